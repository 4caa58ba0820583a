"""The instances of this machine that belong to one command: as many as wanted, started, stopped, made more or fewer.

No child outlives its parent for long. Knows children and names for them; nothing of crawls.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from crawler.errors import ConflictError, CrawlerError, EngineError
from crawler.supervisor.child import BACKOFF_S, USELESS, Child, ChildState, End

log = logging.getLogger(__name__)

NAMES_RETRY_S = 1.0  # while the engine does not return the free names
KILL_WAIT_S = 2.0
TELLING = USELESS | {ConflictError.exit_code}  # exit codes of a child that mean a fault of the whole crawl
NOBODY = "no instance is left: start some with 'crawler scale N', or press Ctrl-C to quit"


class GaveUpError(CrawlerError):
    """An instance ended again and again; the others were stopped."""

    exit_code = 1

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NodeNames(Protocol):
    """Where names for children come from."""

    async def free(self, count: int, besides: Collection[str]) -> list[str]: ...
    async def is_free(self, node: str) -> bool: ...


class Supervisor:
    """`run` keeps as many children as `wanted`; `command_of` gives the argument list for a child of that name.

    `say` gets one line for each thing of note, `warn` for each that went wrong.
    """

    def __init__(
        self,
        names: NodeNames,
        command_of: Callable[[str], Sequence[str]],
        *,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        warn: Callable[[str], None],
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self.wanted = 0
        self.stopped_because = ""
        self._names = names
        self._command_of = command_of
        self._environment = dict(environment)
        self._say = say
        self._warn = warn
        self._backoff_s = backoff_s
        self._children: dict[str, Child] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_done = False
        self._failure: GaveUpError | None = None
        self._broken: BaseException | None = None

    @property
    def children(self) -> list[Child]:
        """In the order of their names."""
        return [self._children[name] for name in sorted(self._children, key=_order)]

    @property
    def is_ending(self) -> bool:
        """Stopping, or nothing is left to do: no child is started any more."""
        return bool(self.stopped_because) or self._is_done

    async def run(self, wanted: int) -> None:
        """Until the work is done or `stop` was called. Raises GaveUpError when a child could not be kept running."""
        self.wanted = wanted
        try:
            while self._keepers or not self.is_ending:
                self._changed.clear()
                pause_s = await self._adjust()
                if self._keepers or not self.is_ending:
                    await self._until_changed(pause_s)
        finally:
            self.kill()
            keepers = list(self._keepers)
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
        for error in (self._broken, self._failure):
            if error is not None:
                raise error

    def scale(self, wanted: int) -> None:
        """Keep this many children from now on: the highest names stop first, the first free names start."""
        if self.is_ending or wanted == self.wanted:
            return
        log.info("fleet.scaled", extra={"before": self.wanted, "wanted": wanted})
        self._say(f"Scaling from {self.wanted} to {wanted}")
        self.wanted = wanted
        self._changed.set()

    def stop(self, why: str = "signal") -> None:
        """Ask all children to stop in order."""
        if not self.is_ending:
            self.stopped_because = why
        for child in self._children.values():
            child.stop()
        self._changed.set()

    def kill(self) -> None:
        """End what still runs at once."""
        for child in self._children.values():
            child.kill()

    def kill_and_wait(self) -> None:
        """The same, and block until they are dead: their locks are free then."""
        self.kill()
        for child in self._children.values():
            child.wait_dead(KILL_WAIT_S)

    # --- as many as wanted ---

    async def _adjust(self) -> float | None:
        """Stop some or start some; seconds after which to try again, if that is needed."""
        kept = [child for child in self.children if not child.is_asked_to_stop]
        if self.is_ending:
            return None
        for child in kept[self.wanted :]:
            child.stop()
        missing = self.wanted - len(kept)
        if missing <= 0:
            return None
        try:
            names = await self._names.free(missing, self._children.keys())
        except EngineError:
            return NAMES_RETRY_S
        for name in names:
            self._start(name)
        return None

    async def _until_changed(self, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _start(self, name: str) -> None:
        if self.is_ending:
            return
        child = self._children[name] = Child(
            name,
            self._command_of(name),
            environment=self._environment,
            say=self._say,
            warn=self._warn,
            backoff_s=self._backoff_s,
        )
        keeper = asyncio.create_task(self._keep(child))
        self._keepers.add(keeper)
        keeper.add_done_callback(self._ended)

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        self._keepers.discard(keeper)
        if not keeper.cancelled() and keeper.exception() is not None:
            self._broken = self._broken or keeper.exception()
            self.stop("broken")
        if not self._children and not self.wanted and not self.is_ending:
            self._say(NOBODY)
        self._changed.set()

    # --- one child ---

    async def _keep(self, child: Child) -> None:
        """The whole life of one child, and what its end means for the others."""
        end = await child.live()
        if end is End.CONFLICT:
            end = await self._settled(child)
        if end is not End.GAVE_UP:
            del self._children[child.name]
        if end is End.DONE:
            self._finish()
        elif end is End.LEFT:
            self._do_without(child)
        elif end is End.GAVE_UP:
            self._give_up(child)

    async def _settled(self, child: Child) -> End:
        """A name that another process has taken is left to it; any other conflict is permanent."""
        try:
            is_name_lost = not await self._names.is_free(child.name)
        except EngineError:
            is_name_lost = True
        if is_name_lost:
            self._warn(f"instance {child.name}: {child.said}; starting one under another name")
            return End.STOPPED
        return End.GAVE_UP

    def _finish(self) -> None:
        """Nothing is left to crawl: the others find the same, and those that wait for their next start need none."""
        self._is_done = True
        for child in self._children.values():
            if child.state is ChildState.RESTARTING:
                child.stop()

    def _do_without(self, child: Child) -> None:
        """An operator stopped this one: it is not a crash, and we don't restart it."""
        if self.is_ending:
            return
        self.wanted = max(0, self.wanted - 1)
        why = "was evicted" if child.was_evicted else "was stopped by another process"
        log.warning("instance.left", extra={"node": child.name, "why": why, "wanted": self.wanted})
        self._warn(f"instance {child.name} {why}; it is not started again, {self.wanted} wanted from now on")

    def _give_up(self, child: Child) -> None:
        child.give_up()
        tries = f" {child.deaths} times" if child.deaths > 1 else ""
        log.error("instance.given_up", extra={"node": child.name, "how": child.how, "deaths": child.deaths})
        self._failure = self._failure or GaveUpError(
            f"instance {child.name} {child.how}{tries}: the others were stopped; nothing is lost",
            child.code if child.code in TELLING else 1,
        )
        self.stop("gave up")


def _order(name: str) -> tuple[str, int]:
    """host-2 before host-10."""
    stem, _, slot = name.rpartition("-")
    return (stem, int(slot)) if slot.isdecimal() else (name, -1)
