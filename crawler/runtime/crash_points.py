"""Named points of the pipeline at which a test can end, stop or delay the process. No effect in production.

The variable SHARDCRAWL_CRASH_POINT=POINT[@TEXT][#N]=ACTION is read once at the start. The action runs when POINT is
reached for the Nth time (default: the first) with TEXT in its detail (a URL, where there is one): `kill` (SIGKILL),
`stop` (SIGSTOP), `exit:CODE`, `sleep:SECONDS` (blocks the whole process). With `*` after the action it runs each time
from then on.
"""

import os
import signal
import time
from collections.abc import Callable

VARIABLE = "SHARDCRAWL_CRASH_POINT"


POINTS = (
    "lease.acquired",  # the engine has the lease, this session does not know yet
    "claim.taken",  # claims are in memory, nothing is started
    "robots.answered",  # robots.txt is read, not shared
    "login.done",  # the session has begun, and is not stored
    "request.noted",  # that it is about to be sent: of those that must not be repeated
    "fetch.checked",  # the deadline is checked, the request is not written
    "fetch.answered",  # the response is here, not parsed
    "page.parsed",
    "page.handled",  # its handler has ended, nothing is on disk
    "archive.written",  # the record is in memory, not synced
    "archive.synced",
    "exchanges.added",  # robots.txt and the like are in memory, not synced
    "route.added",  # the links are in other partitions, the page is not acked
    "ack.answered",  # committed, not indexed
    "end.answered",  # a retry, dead letter or refusal is written
    "index.synced",  # indexed, the engine's log is not drained
    "drain.answered",
    "spill.written",  # blocks of queues are in a file, the engine does not know
    "spill.told",
    "unspill.answered",
    "handover.dropped",  # dropped in memory, not yet released
    "release.answered",
    "prune.step",  # any of its steps; the detail is which
    "rehandle.step",  # likewise
    "forget.step",  # likewise
    "wacz.step",  # of an export: a record is copied; all is written; the file has its name
)


def _action_of(text: str) -> Callable[[], None]:
    name, _, value = text.partition(":")
    actions: dict[str, Callable[[], None]] = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "exit": lambda: os._exit(int(value)),
        "sleep": lambda: time.sleep(float(value)),
    }
    return actions[name]


def _armed(setting: str) -> Callable[[str, str], None]:
    place, _, action = setting.partition("=")
    place, _, nth = place.partition("#")
    point, _, text = place.partition("@")
    if point not in POINTS:
        raise ValueError(f"{VARIABLE}: no point {point!r}; there are {', '.join(POINTS)}")
    again = action.endswith("*")
    act, count, wanted = _action_of(action.rstrip("*")), 0, int(nth or 1)

    def reached(name: str, detail: str = "") -> None:
        nonlocal count
        if name == point and text in detail:
            count += 1
            if count == wanted or (again and count > wanted):
                act()

    return reached


def _nothing(name: str, detail: str = "") -> None:
    """No crash point is set."""


reached: Callable[..., None] = _armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _nothing
