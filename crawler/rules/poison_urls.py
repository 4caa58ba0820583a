"""URLs that end the process that works on them: noticed, isolated, given up. Pure.

A URL whose content was worked on when its process died is a suspect. After two such deaths it is fetched alone, so that
others that were worked on are cleared; if the process dies again, it was this one. What only waited is never blamed.
"""

from enum import Enum

ALONE_AT = 2
GIVEN_UP_AT = 3
# Where nobody could read what the dead process worked on (another machine), a URL that was handed out so often and not
# heard of again is parsed where it can be killed. More would blame URLs that only waited.
GUARDED_AT_DELIVERIES = 3


class CrashAction(Enum):
    """How a claim is to be handled."""

    NORMAL = "normal"
    GUARDED = "guarded"  # parsed where it can be killed
    ALONE = "alone"
    GIVEN_UP = "given_up"


def crash_action_of(deaths: int, deliveries: int) -> CrashAction:
    """By the deaths that were noted, and the deliveries whose owner vanished."""
    if deaths >= GIVEN_UP_AT:
        return CrashAction.GIVEN_UP
    if deaths >= ALONE_AT:
        return CrashAction.ALONE
    return CrashAction.GUARDED if deaths or deliveries >= GUARDED_AT_DELIVERIES else CrashAction.NORMAL
