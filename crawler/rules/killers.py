"""URLs that end the process that fetches them: noticed, isolated, given up. Pure.

A URL that had been started when its process died is under suspicion, and so are all that were under way with it. After
two such deaths it is fetched alone, so that its neighbours are cleared; if the process dies again, it was this one.
"""

from enum import Enum

ALONE_AT = 2
GIVEN_UP_AT = 3
# Where nobody could read what the dead process was at (another machine), deliveries that were never heard of again
# count, too, but for less: most of those URLs only waited.
DELIVERIES_PER_DEATH = 3


class Fate(Enum):
    """How a claim is to be handled."""

    NORMAL = "normal"
    GUARDED = "guarded"  # one death: parsed where it can be killed
    ALONE = "alone"
    GIVEN_UP = "given_up"


def fate_of(deaths: int, deliveries: int) -> Fate:
    """By the deaths that were noted, and the deliveries whose owner vanished."""
    counted = max(deaths, deliveries // DELIVERIES_PER_DEATH)
    if counted >= GIVEN_UP_AT:
        return Fate.GIVEN_UP
    if counted >= ALONE_AT:
        return Fate.ALONE
    return Fate.GUARDED if counted else Fate.NORMAL
