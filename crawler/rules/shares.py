"""Shares of users: their weights in what a crawl can fetch, and who has to give way where room is short. Pure.

A job belongs to a user, and so do the URLs of its runs. URLs of no job belong to the crawl itself, CRAWL.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from crawler.errors import UsageError

CRAWL = ""
WEIGHT_MIN, WEIGHT_MAX = 0.01, 1000.0


def check_weight(weight: float) -> float:
    """The weight of a user among others, as it came; 1 is that of all who have no other. Raises UsageError."""
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:  # false for NaN, too
        raise UsageError(f"weight {weight:g}: expected a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}")
    return weight


def beyond_shares(owners: Sequence[Hashable], kept: int) -> list[int]:
    """The places of what has to go from a list, oldest first, so that at most `kept` stay.

    Whoever has most gives up their oldest, so nobody loses anything to somebody who has more (max-min fairness).
    """
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, owner in enumerate(owners):
        places[owner].append(place)
    gone, left, others = [], kept, len(places)
    for owner, count in sorted(Counter(owners).items(), key=lambda one: one[1]):
        stay = min(count, left // others)
        gone += places[owner][: count - stay]
        left, others = left - stay, others - 1
    return sorted(gone)
