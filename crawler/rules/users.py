"""Names and weights of users, who share what a crawl can fetch. Pure.

A job belongs to a user, and so do the URLs of its runs. URLs of no job belong to the crawl itself, CRAWL.
"""

from crawler.errors import UsageError

CRAWL = ""
NAME_MAX = 64
WEIGHT_MIN, WEIGHT_MAX = 0.01, 1000.0


def check_user(name: str) -> str:
    """The name of a user, as it came. Raises UsageError."""
    plain = name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not plain or len(name) > NAME_MAX or not name[0].isalnum():
        raise UsageError(
            f"{name[:80]!r} is not a valid name of a user: use up to {NAME_MAX} letters, digits, '-', '_' and '.', "
            "beginning with a letter or digit"
        )
    return name


def check_weight(weight: float) -> float:
    """The weight of a user among others, as it came; 1 is that of all who have no other. Raises UsageError."""
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:  # false for NaN, too
        raise UsageError(f"weight {weight:g}: expected a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}")
    return weight
