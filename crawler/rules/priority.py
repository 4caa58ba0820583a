"""The score of a queued URL: highest leaves first. Pure.

score = priority + t / half_life, t in seconds since the crawl began. A negative half-life makes older URLs gain, so
that equal priorities leave in order of arrival. A positive one decays values exponentially: the order of
v * 2**-((now - t) / h) is that of log2(v) + t / h, the same at every `now`, so no score is ever computed anew.
"""

SCORE_DIGITS = 4  # short scores keep small sorted sets small; 1e-4 of a depth step is 8.6 s at the default half-life


def score(*, priority: float, age_s: float, half_life_s: float) -> float:
    """Score of a URL found `age_s` seconds after the crawl began; half_life_s 0 leaves time out."""
    bonus = age_s / half_life_s if half_life_s else 0.0
    return round(priority + bonus, SCORE_DIGITS)


def default_priority(depth: int) -> float:
    """Breadth first: minus the depth."""
    return -float(depth)
