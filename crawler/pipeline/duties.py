"""Small duties that run beside the pipeline for as long as the instance lives."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from crawler.archive.history import HistoryWriter
from crawler.engine.client import Engine
from crawler.errors import ArchiveError, CrawlerError, EngineError
from crawler.frontier.frontier import Fence, Frontier
from crawler.frontier.keys import Keys
from crawler.membership.heartbeat import Heartbeat
from crawler.membership.ownership import Ownership
from crawler.model import Claim
from crawler.pipeline.rebalance import PartitionWork
from crawler.pipeline.schedule import Workbench
from crawler.runtime.clock import ENGINE_PAUSE_S
from crawler.settings.schema import FrontierSettings

log = logging.getLogger(__name__)

RECONNECT_PAUSE_S = 1.0
RETURN_EVERY_S = 0.5
WAIT_IN_HAND_MS = 1000  # at least; claims whose turn is further off than that and the time to claim ahead go back
HISTORY_EVERY_S = 1.0  # what a killed process loses of it


async def keep_engine(heartbeat: Heartbeat, revive: Callable[[], Awaitable[None]] | None, *, every_s: float) -> None:
    """Start an embedded engine again that was killed; whoever notices first does it. Nothing to do for others."""
    while revive is not None:
        await asyncio.sleep(every_s)
        if heartbeat.is_unanswered:
            try:
                await revive()
            except CrawlerError as error:
                log.warning("engine.not_revived", extra={"error": str(error)})
    await asyncio.Event().wait()


async def listen(engine: Engine, channel: str, on_hint: Callable[[int], None]) -> None:
    """Hear which partitions others have woken. A lost hint costs a sweep of the claimer."""
    while True:
        try:
            async for message in engine.subscribe(channel):
                on_hint(Keys.partition_of_meta(message.decode()))
        except EngineError:
            await asyncio.sleep(RECONNECT_PAUSE_S)


async def keep_claims(
    frontier: Frontier, ownership: Ownership, in_work: Callable[[], list[Claim]], *, visibility_ms: int
) -> None:
    """Extend claims while they are worked on: a slow page is not handed out twice."""
    while True:
        await asyncio.sleep(visibility_ms / 4000)
        mine: dict[int, tuple[Fence, list[Claim]]] = {}
        for claim in in_work():
            fence = ownership.fence_of(claim.partition)
            if fence is not None and ownership.holds(claim):
                mine.setdefault(claim.partition, (fence, []))[1].append(claim)
        with contextlib.suppress(EngineError):  # three more tries before the first one expires
            await frontier.extend(mine, visibility_ms=visibility_ms)


async def keep_history(history: HistoryWriter) -> None:
    """Write down what became of attempts. A disk that does not take it stops nothing: these notes are for people."""
    while True:
        await asyncio.sleep(HISTORY_EVERY_S)
        try:
            await asyncio.to_thread(history.write)
        except ArchiveError as error:
            log.warning("history.not_written", extra={"error": str(error)})


async def return_stale(bench: Workbench, work: PartitionWork, settings: FrontierSettings) -> None:
    """Claims whose turn is far off go back: their queue was told to wait, or the instance is overloaded."""
    half_ms = int(settings.visibility_timeout_s * 500)
    wait_max_ms = max(WAIT_IN_HAND_MS, int(settings.claim_ahead_s * 1000))
    while True:
        await asyncio.sleep(RETURN_EVERY_S)
        await work.return_claims(bench.take_stale(wait_max_ms=wait_max_ms, age_max_ms=half_ms))
        bench.forget_idle()


async def follow_shared(read: Callable[[], Awaitable[None]], *, every_s: float) -> None:
    """Orders, and scope changes of others, within a heartbeat."""
    while True:
        await asyncio.sleep(every_s)
        with contextlib.suppress(EngineError):
            await read()


async def until_done(step: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """What must be known before anything is claimed: an engine that is away for a moment is waited for."""
    while not stop.is_set():
        try:
            await step()
            return
        except EngineError as error:
            log.warning("begin.engine_error", extra={"error": str(error)})
            await asyncio.sleep(ENGINE_PAUSE_S)
