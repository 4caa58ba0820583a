"""What remains of budgets: of a domain's after they were raised, of a crawl's for each instance. Pure; 0: no limit."""

from collections.abc import Set as AbstractSet

TURN_S = 1.0  # an instance counts twice in it


def is_left(used: int, budget: int) -> bool:
    """Does a budget of pages or bytes allow more?"""
    return budget == 0 or used < budget


def is_within(depth: int, budget: int) -> bool:
    """Is a URL at this depth within the limit?"""
    return budget == 0 or depth <= budget


def room_of(*, met: int, deferred: int, budget: int) -> int:
    """How many deferred URLs a budget of URLs would admit now; `met`: the number of all URLs ever found.

    URLs that an operator released count as admitted.
    """
    return deferred if budget == 0 else max(0, min(deferred, budget - (met - deferred)))


def share_of(room: int, sharers: AbstractSet[str], me: str, *, counted_s: float, now_s: float) -> int:
    """The part of a limit's room that one of some sessions may claim until it counts again. The parts add up.

    Where the room can't be divided, the rest is each session's in turn, because one may have nothing to fetch: of who
    has counted in that turn, so that what the last one claimed is known. Times are wall clock.
    """
    if me not in sharers:
        return 0
    turn = int(now_s / TURN_S)
    has_rest = turn == int(counted_s / TURN_S) and sorted(sharers)[turn % len(sharers)] == me
    return room // len(sharers) + (room % len(sharers) if has_rest else 0)
