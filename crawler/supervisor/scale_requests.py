"""Seeing and asking supervisors from outside, through the engine: which there are, whether they live, what they run.

What is proven is a free lock file on this machine; anything else is judged by whether the record's counter grows.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from crawler.archive.folder import Life, life_at
from crawler.errors import NotReachedError, UsageError
from crawler.frontier.supervisors import ScaleRequest, SupervisorRecord, SupervisorRecords
from crawler.membership.node_names import host_id, is_lock_free
from crawler.supervisor.child import ChildState

SILENT_S = 3.5  # a record is written each second
POLL_S = 0.25
GONE, SILENT = "gone", "silent"


class SupervisorStatus(msgspec.Struct, frozen=True):
    """A supervisor as seen from here; `state` is its own word for it, or GONE or SILENT."""

    record: SupervisorRecord
    state: str

    @property
    def lives(self) -> bool:
        return self.state not in (GONE, SILENT)

    @property
    def host(self) -> str:
        """The host's name, without its boot."""
        return self.record.host.partition("/")[0]

    @property
    def name(self) -> str:
        """What people call it by: host and process id."""
        return f"{self.host}:{self.record.pid}"

    @property
    def running(self) -> int:
        """Instances that take part in the crawl."""
        return sum(child.state == ChildState.RUNNING for child in self.record.children) if self.lives else 0

    def is_called(self, name: str) -> bool:
        return name in (self.host, self.name)


async def look(supervisors: SupervisorRecords) -> list[SupervisorStatus]:
    """All supervisors of the crawl. Records of those not there are deleted: a live supervisor writes its own again."""
    first = await supervisors.read()
    silent = await _not_heard(supervisors, [record for record in first.values() if not _is_proven(record)])
    latest = await supervisors.read()
    seen = []
    for session, before in first.items():
        record = latest.get(session)
        if record is None and session not in silent and not is_lock_free(before):
            continue  # ended normally while we read
        one = _judged(record or before, is_silent=session in silent)
        if not one.lives:
            await supervisors.remove(session)
        seen.append(one)
    return sorted(seen, key=lambda one: (one.host, one.record.folder, one.record.pid))


def _is_proven(record: SupervisorRecord) -> bool:
    """Does the lock file tell whether it lives?"""
    return record.host == host_id() and life_at(Path(record.lock)) is not Life.UNKNOWN


def _judged(record: SupervisorRecord, *, is_silent: bool) -> SupervisorStatus:
    if is_lock_free(record) or (is_silent and record.host == host_id()):
        return SupervisorStatus(record, GONE)
    return SupervisorStatus(record, SILENT if is_silent else record.state)


async def _not_heard(supervisors: SupervisorRecords, doubtful: Iterable[SupervisorRecord]) -> set[str]:
    """Those whose record is not written while we look."""
    waiting = {record.session: record.counter for record in doubtful}
    deadline = time.monotonic() + SILENT_S
    while waiting and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        now = await supervisors.read()
        waiting = {s: counter for s, counter in waiting.items() if s in now and now[s].counter == counter}
    return set(waiting)


def picked(seen: Sequence[SupervisorStatus], *, host: str = "", folder: str = "") -> SupervisorStatus:
    """The supervisor that is meant: of this machine, or of `host` (a name, or name:pid). Raises UsageError."""
    living = [one for one in seen if one.lives]
    fitting = [one for one in living if one.is_called(host)] if host else _here(living)
    if len(fitting) > 1 and folder:
        fitting = [one for one in fitting if one.record.folder == str(Path(folder).resolve())] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(f"--host {one.name} ({one.record.folder})" for one in fitting)
        raise UsageError(f"{len(fitting)} supervisors run on {host or 'this host'}: name one by {names}")
    where = f"host {host}" if host else "this host"
    elsewhere = ", ".join(sorted({one.name for one in living}))
    hint = f"there are {elsewhere} (use --host)" if elsewhere else "start one: crawler run -n 4"
    raise UsageError(f"no supervisor runs on {where}: {hint}")


def _here(living: Iterable[SupervisorStatus]) -> list[SupervisorStatus]:
    return [one for one in living if one.record.host == host_id()]


async def scale(
    supervisors: SupervisorRecords, one: SupervisorStatus, wanted: int, *, by: str, timeout_s: float
) -> SupervisorStatus:
    """Request this many instances and wait until they run, and no others. Raises NotReachedError."""
    await supervisors.ask(one.record.session, ScaleRequest(wanted=wanted, by=by))
    deadline, record = time.monotonic() + timeout_s, one.record
    while time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        found = (await supervisors.read()).get(record.session)
        if found is None or is_lock_free(found):
            raise NotReachedError(f"supervisor {one.name} ended meanwhile: its crawl is finished, or it was stopped")
        record = found
        if record.state != "running":
            raise NotReachedError(f"supervisor {one.name} is {record.state}: it starts no more instances")
        if record.obeyed == by and _is_settled(record):
            return SupervisorStatus(record, record.state)
        request = await supervisors.asked(record.session)
        if request is None or request.by != by:
            raise NotReachedError(f"somebody else scaled supervisor {one.name} meanwhile; see 'crawler scale --status'")
    raise NotReachedError(_under_way(record, one.name, wanted, by, timeout_s))


def _is_settled(record: SupervisorRecord) -> bool:
    return len(record.children) == record.wanted and all(child.state == ChildState.RUNNING for child in record.children)


def _under_way(record: SupervisorRecord, name: str, wanted: int, by: str, timeout_s: float) -> str:
    if record.obeyed != by:
        return f"supervisor {name} has not answered for {timeout_s:g} s: it continues as soon as it can"
    running = sum(child.state == ChildState.RUNNING for child in record.children)
    return (
        f"not done after {timeout_s:g} s: {wanted} wanted, {running} running, {len(record.children) - running} in "
        "transition; it continues, see 'crawler scale --status'"
    )
