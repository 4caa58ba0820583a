"""Weights of users, who share what a crawl can fetch. Pure.

A job belongs to a user, and so do the URLs of its runs. URLs of no job belong to the crawl itself, CRAWL.
"""

from crawler.errors import UsageError

CRAWL = ""
WEIGHT_MIN, WEIGHT_MAX = 0.01, 1000.0


def check_weight(weight: float) -> float:
    """The weight of a user among others, as it came; 1 is that of all who have no other. Raises UsageError."""
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:  # false for NaN, too
        raise UsageError(f"weight {weight:g}: expected a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}")
    return weight
