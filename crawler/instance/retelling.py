"""Sends again what a shard of a cluster may have lost: calls of other sessions' partitions, from the last minutes.

Each session tells with its heartbeat for which primaries (by their run ids) it has done so; no crawl ends before all
sessions agree. What a dead session had sent is sent by whoever reports its death.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from crawler.archive.told_log import Told, ToldLog, told_in
from crawler.engine.client import Engine
from crawler.engine.server import Change
from crawler.errors import ArchiveError, EngineError, NoRoomError
from crawler.frontier.arguments import AddArgs
from crawler.frontier.members import UNDER_WAY, Member, engine_digest
from crawler.frontier.messages import AddReply
from crawler.frontier.owner import Frontier
from crawler.frontier.runs import Runs
from crawler.model import AddOutcome
from crawler.rules.membership import COMMANDS, declared
from crawler.runtime.clocks import ENGINE_PAUSE_S
from crawler.runtime.ticks import tick

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 64
SETTLE_PAUSE_S = 0.1
LOOK_S = 0.5  # between two looks at what others know of the cluster


def all_told(digest: str, members: Mapping[str, Member]) -> bool:
    """Has each primary what these sent, dead ones among them? `digest`: that of the session that asks."""
    return digest != UNDER_WAY and all(
        m.engine == digest for m in members.values() if declared(m.state) not in COMMANDS
    )


class Retelling:
    """`run` sends; the other methods only note what is to be sent."""

    def __init__(
        self,
        engine: Engine,
        frontier: Frontier,
        runs: Runs,
        told: ToldLog,
        on_no_room: Callable[[NoRoomError], None] = lambda _: None,
    ) -> None:
        self._on_no_room = on_no_room
        self._engine = engine
        self._frontier = frontier
        self._runs = runs
        self._told = told
        if engine.fails_in_parts:
            frontier.note_told = self._note
        self._changes: list[Change] = []
        self._adopted: list[Path] = []
        self._has_more = asyncio.Event()  # since `run` last looked

    def _note(self, calls: Iterable[tuple[int, AddArgs]]) -> None:
        self._keep([Told(partition, args) for partition, args in calls])

    def _keep(self, calls: Sequence[Told]) -> None:
        """Calls that find no room in the log are tried again, like those that the engine does not answer: raises
        EngineError.
        """
        try:
            self._told.note(calls, drops_old=not self._changes)
        except NoRoomError as error:
            self._on_no_room(error)
            raise EngineError(f"URLs for other partitions wait: {error}") from None

    def noticed(self, change: Change) -> None:
        """A server is another one than before."""
        if self._engine.fails_in_parts and change.may_have_lost:
            self._changes.append(change)
            self._has_more.set()

    async def owe(self, partitions: Collection[int]) -> bool:
        """What was just sent to these partitions did not arrive, as their shard is down: may it be sent later? Then
        the pages that it came from may be committed. Raises ArchiveError.
        """
        if not (self._engine.fails_in_parts and self._told.has_room):
            return False
        self._has_more.set()
        self._changes.append(Change({self._frontier.keys.meta(partition) for partition in partitions}.__contains__))
        try:
            await asyncio.to_thread(self._told.sync)
        except NoRoomError as error:
            self._on_no_room(error)
            return False
        return True

    def adopt(self, paths: Iterable[Path]) -> None:
        """Files of a dead session: all that is in them is sent again, then they are deleted."""
        self._adopted += [path for path in paths if path not in self._adopted]
        self._has_more.set()

    @property
    def is_done(self) -> bool:
        return not self._changes and not self._adopted

    @property
    def digest(self) -> str:
        """`Member.engine`: of the primaries, if they have all that this session sent, or else UNDER_WAY."""
        return engine_digest(self._engine.run_id) if self.is_done else UNDER_WAY

    async def run(self) -> None:
        """Send what was noted, until cancelled."""
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            while not self.is_done:
                await tick(LOOK_S)
                await self._catch_up()

    async def settle(self, partitions: int) -> None:
        """Before leaving, while `run` goes on: until replicas have what this session sent, and shards that changed have
        it again. Once it has left, nobody may be there to tell it.
        """
        keys = {self._frontier.keys.crawl, *map(self._frontier.keys.meta, range(partitions))}
        while self._told.paths:
            with contextlib.suppress(EngineError):
                if await self._engine.written(keys) == keys and self.is_done:
                    return
            await asyncio.sleep(SETTLE_PAUSE_S)

    async def _catch_up(self) -> None:
        changes, adopted = list(self._changes), list(self._adopted)
        calls = new = damaged = 0
        for path in (*adopted, *(self._told.paths if changes else ())):
            wanted = _all if path in adopted else partial(self._may_be_lost, changes)
            told, bad = await asyncio.to_thread(_read, path, wanted)
            new += await self._send(told)
            calls, damaged = calls + len(told), damaged + bad
            if path in adopted:
                path.unlink(missing_ok=True)
        log.warning("told.again", extra={"calls": calls, "lost": new, "damaged": damaged})
        del self._changes[: len(changes)]
        self._adopted = [path for path in self._adopted if path not in adopted]

    def _may_be_lost(self, changes: Sequence[Change], told: Told) -> bool:
        """Of a run, the list of its partitions may be what was lost."""
        meta = self._frontier.keys.meta(told.partition)
        return _run_of(told) != "" or any(change.affects(meta) for change in changes)

    async def _send(self, told: Sequence[Told]) -> int:
        """Until all calls are answered; returns how many URLs were new."""
        return sum([await self._send_some(told[at : at + CALLS_AT_ONCE]) for at in range(0, len(told), CALLS_AT_ONCE)])

    async def _send_some(self, told: Sequence[Told]) -> int:
        left, new = list(told), 0
        while left:
            try:
                left = await self._of_active_runs(left)
                replies = await self._frontier.tell([(one.partition, AddArgs(*one.args)) for one in left])
                answered = zip(left, replies, strict=True)
                self._keep([one for one, reply in answered if isinstance(reply, AddReply)])  # as what was sent now
            except EngineError as error:
                log.warning("told.engine_error", extra={"error": str(error)})
                await asyncio.sleep(ENGINE_PAUSE_S)
                continue
            new += sum(r.outcomes.count(AddOutcome.NEW) for r in replies if isinstance(r, AddReply))
            left = [one for one, reply in zip(left, replies, strict=True) if not isinstance(reply, AddReply)]
            if left:
                await asyncio.sleep(ENGINE_PAUSE_S)
        return new

    async def _of_active_runs(self, told: Sequence[Told]) -> list[Told]:
        """Without those of runs that have ended; the partitions of others are noted, as before they were sent first."""
        partitions = dict[str, set[int]]()
        for one in told:
            if run := _run_of(one):
                partitions.setdefault(run, set()).add(one.partition)
        ended = await self._runs.touch_all(partitions) if partitions else set()
        return [one for one in told if _run_of(one) not in ended]


def _all(_told: Told) -> bool:
    return True


def _read(path: Path, wanted: Callable[[Told], bool]) -> tuple[list[Told], int]:
    """What is wanted of a file, and how many of its places are damaged."""
    try:
        found = [one for one in told_in([path]) if one is None or wanted(one)]
    except ArchiveError as error:
        log.error("told.unreadable", extra={"error": str(error)})
        return [], 1
    return [one for one in found if one is not None], found.count(None)


def _run_of(told: Told) -> str:
    return AddArgs(*told.args).run
