"""What a domain's budgets leave, when they were raised after they had been used up. Pure; 0 stands for no limit."""


def is_left(used: int, budget: int) -> bool:
    """Does a budget of pages or bytes allow more?"""
    return budget == 0 or used < budget


def is_within(depth: int, budget: int) -> bool:
    """Is a URL so many links from a seed near enough?"""
    return budget == 0 or depth <= budget


def room_of(*, met: int, parked: int, budget: int) -> int:
    """How many of the URLs that a budget of URLs has parked it would take in now; `met`: all that were ever met.

    What was released by hand counts as taken in.
    """
    return parked if budget == 0 else max(0, min(parked, budget - (met - parked)))
