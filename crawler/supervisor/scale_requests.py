"""Seeing and asking supervisors from outside, through the engine: which there are, whether they live, what they run.

What is proven is a free lock file on this machine; anything else is judged by whether the record's counter grows.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from crawler.archive.session_lock import Life, life_at
from crawler.errors import NotReachedError, UsageError
from crawler.frontier.supervisors import Fleet, Fleets, Request
from crawler.membership.nodes import host_id, is_lock_free
from crawler.supervisor.child import State

SILENT_S = 3.5  # a record is written each second
POLL_S = 0.25
GONE, SILENT = "gone", "silent"


class Sighting(msgspec.Struct, frozen=True):
    """A supervisor as seen from here; `state` is its own word for it, or GONE or SILENT."""

    fleet: Fleet
    state: str

    @property
    def lives(self) -> bool:
        return self.state not in (GONE, SILENT)

    @property
    def host(self) -> str:
        """The host's name, without its boot."""
        return self.fleet.host.partition("/")[0]

    @property
    def name(self) -> str:
        """What people call it by: host and process id."""
        return f"{self.host}:{self.fleet.pid}"

    @property
    def running(self) -> int:
        """Instances that take part in the crawl."""
        return sum(child.state == State.RUNNING for child in self.fleet.children) if self.lives else 0

    def is_called(self, name: str) -> bool:
        return name in (self.host, self.name)


async def look(fleets: Fleets) -> list[Sighting]:
    """All supervisors of the crawl. Records of those not there are taken away: one that lives writes it anew."""
    first = await fleets.read()
    silent = await _not_heard(fleets, [fleet for fleet in first.values() if not _is_proven(fleet)])
    latest = await fleets.read()
    seen = []
    for session, before in first.items():
        fleet = latest.get(session)
        if fleet is None and session not in silent and not is_lock_free(before):
            continue  # ended in good order while we looked
        one = _judged(fleet or before, is_silent=session in silent)
        if not one.lives:
            await fleets.remove(session)
        seen.append(one)
    return sorted(seen, key=lambda one: (one.host, one.fleet.folder, one.fleet.pid))


def _is_proven(fleet: Fleet) -> bool:
    """Does the lock file tell whether it lives?"""
    return fleet.host == host_id() and life_at(Path(fleet.lock)) is not Life.UNKNOWN


def _judged(fleet: Fleet, *, is_silent: bool) -> Sighting:
    if is_lock_free(fleet) or (is_silent and fleet.host == host_id()):
        return Sighting(fleet, GONE)
    return Sighting(fleet, SILENT if is_silent else fleet.state)


async def _not_heard(fleets: Fleets, doubtful: Iterable[Fleet]) -> set[str]:
    """Those whose record is not written while we look."""
    waiting = {fleet.session: fleet.counter for fleet in doubtful}
    deadline = time.monotonic() + SILENT_S
    while waiting and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        now = await fleets.read()
        waiting = {s: counter for s, counter in waiting.items() if s in now and now[s].counter == counter}
    return set(waiting)


def picked(seen: Sequence[Sighting], *, host: str = "", folder: str = "") -> Sighting:
    """The supervisor that is meant: of this machine, or of `host` (a name, or name:pid). Raises UsageError."""
    living = [one for one in seen if one.lives]
    fitting = [one for one in living if one.is_called(host)] if host else _here(living)
    if len(fitting) > 1 and folder:
        fitting = [one for one in fitting if one.fleet.folder == str(Path(folder).resolve())] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(f"--host {one.name} ({one.fleet.folder})" for one in fitting)
        raise UsageError(f"{len(fitting)} supervisors run on {host or 'this host'}: name one by {names}")
    where = f"host {host}" if host else "this host"
    elsewhere = ", ".join(sorted({one.name for one in living}))
    hint = f"there are {elsewhere} (use --host)" if elsewhere else "start one: crawler run -n 4"
    raise UsageError(f"no supervisor runs on {where}: {hint}")


def _here(living: Iterable[Sighting]) -> list[Sighting]:
    return [one for one in living if one.fleet.host == host_id()]


async def scale(fleets: Fleets, one: Sighting, wanted: int, *, by: str, timeout_s: float) -> Sighting:
    """Ask for so many instances and wait until they run, and no others. Raises NotReachedError."""
    await fleets.ask(one.fleet.session, Request(wanted=wanted, by=by))
    deadline, fleet = time.monotonic() + timeout_s, one.fleet
    while time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        found = (await fleets.read()).get(fleet.session)
        if found is None or is_lock_free(found):
            raise NotReachedError(f"supervisor {one.name} ended meanwhile: its crawl is finished, or it was stopped")
        fleet = found
        if fleet.state != "running":
            raise NotReachedError(f"supervisor {one.name} is {fleet.state}: it starts no instance any more")
        if fleet.obeyed == by and _is_settled(fleet):
            return Sighting(fleet, fleet.state)
        request = await fleets.asked(fleet.session)
        if request is None or request.by != by:
            raise NotReachedError(f"somebody else scaled supervisor {one.name} meanwhile; see 'crawler scale --status'")
    raise NotReachedError(_under_way(fleet, one.name, wanted, by, timeout_s))


def _is_settled(fleet: Fleet) -> bool:
    return len(fleet.children) == fleet.wanted and all(child.state == State.RUNNING for child in fleet.children)


def _under_way(fleet: Fleet, name: str, wanted: int, by: str, timeout_s: float) -> str:
    if fleet.obeyed != by:
        return f"supervisor {name} has not answered for {timeout_s:g} s: it goes on as soon as it can"
    running = sum(child.state == State.RUNNING for child in fleet.children)
    return (
        f"not done after {timeout_s:g} s: {wanted} wanted, {running} running, {len(fleet.children) - running} on their "
        "way; it goes on, see 'crawler scale --status'"
    )
