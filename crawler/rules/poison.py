"""Poison URLs, which crash the process that works on them: suspected, isolated, given up. Pure.

A URL that was being processed when its process died is a suspect. After two such deaths it is fetched alone, which
clears the other suspects; if the process dies again, this URL was the cause. URLs that only waited are never blamed.
"""

from enum import Enum

ALONE_AT = 2
GIVEN_UP_AT = 3
# Nobody may be able to read what the dead process worked on (it ran on another machine). A URL that was handed out
# this often without a result is then parsed in a process that can be killed. More would blame URLs that only waited.
GUARDED_AT_DELIVERIES = 3


class CrashAction(Enum):
    """How a claim is to be handled."""

    NORMAL = "normal"
    GUARDED = "guarded"  # parsed in a process that can be killed
    ALONE = "alone"
    GIVEN_UP = "given_up"


def crash_action_of(deaths: int, deliveries: int) -> CrashAction:
    """By the recorded deaths, and the deliveries whose owner vanished."""
    if deaths >= GIVEN_UP_AT:
        return CrashAction.GIVEN_UP
    if deaths >= ALONE_AT:
        return CrashAction.ALONE
    return CrashAction.GUARDED if deaths or deliveries >= GUARDED_AT_DELIVERIES else CrashAction.NORMAL
