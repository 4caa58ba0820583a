"""What a domain's budgets leave, when they were raised after they had been used up. Pure; 0 stands for no limit."""

from hashlib import blake2b

LINK_PLACES = 224  # as in lua/_admission.lua


def is_left(used: int, budget: int) -> bool:
    """Does a budget of pages or bytes allow more?"""
    return budget == 0 or used < budget


def is_within(depth: int, budget: int) -> bool:
    """Is a URL so many links from a seed near enough?"""
    return budget == 0 or depth <= budget


def room_of(*, met: int, deferred: int, budget: int) -> int:
    """How many of the URLs that a budget of URLs has parked it would take in now; `met`: all that were ever met.

    What was released by hand counts as taken in.
    """
    return deferred if budget == 0 else max(0, min(deferred, budget - (met - deferred)))


def link_place(domain: str, hash_key: bytes) -> int:
    """Which bit stands for a linking domain, in the record of the queue that it links to; 0 to LINK_PLACES - 1.

    With the crawl's key nobody can choose domains whose bits differ, or are one.
    """
    digest = blake2b(domain.encode(), digest_size=8, person=b"link", salt=hash_key).digest()
    return int.from_bytes(digest, "big") % LINK_PLACES


def grown(budget: int, per_linking_domain: int, links: str) -> int:
    """A budget of URLs with what linking domains add to it; `links`: their bits, seven to a character."""
    return budget and budget + per_linking_domain * sum(ord(bits).bit_count() for bits in links)
