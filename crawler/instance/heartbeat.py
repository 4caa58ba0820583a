"""The session's heartbeat and what it entitles to: no beat answered lately, no request started.

The counter vouches for all leases of the session. A beat whose reply came too late marks a lapse: others may have
taken over meanwhile, so every lease must be acquired anew before anything is started.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from crawler.errors import EngineError
from crawler.frontier.members import Member, Members
from crawler.instance.clock import monotonic_ms
from crawler.settings import MembershipSettings

log = logging.getLogger(__name__)


@dataclass(slots=True)
class BeatState:
    """When the last answered beat was *sent* (monotonic ms); None before the first."""

    sent_ms: int | None = None
    lapses: int = 0
    failed: bool = False


class Heartbeat:
    """Writes the counter every beat; `on_lapse` is called when this session was silent for too long."""

    def __init__(
        self,
        members: Members,
        member: Member,
        settings: MembershipSettings,
        *,
        on_lapse: Callable[[], None],
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.member = member
        self._members = members
        self._beat_s = settings.beat_s
        self._stop_ms = int(settings.self_stop_s * 1000)
        self._abort_ms = int(settings.dead_s * 1000)
        self._on_lapse = on_lapse
        self._clock_ms = clock_ms
        self._state = BeatState()
        self._describe: Callable[[], tuple[int, int]] = lambda: (0, 0)

    @property
    def lapses(self) -> int:
        return self._state.lapses

    def describe_with(self, describe: Callable[[], tuple[int, int]]) -> None:
        """Where the beat gets (partitions held, requests in flight) from."""
        self._describe = describe

    def may_start(self) -> bool:
        """May a request be started now?"""
        sent = self._state.sent_ms
        return sent is not None and self._clock_ms() - sent < self._stop_ms

    def must_abort(self) -> bool:
        """Has silence lasted so long that others may own what is in flight?"""
        sent = self._state.sent_ms
        return sent is not None and self._clock_ms() - sent >= self._abort_ms

    def joined(self, sent_ms: int) -> None:
        """The join counts as the first beat."""
        self._state.sent_ms = sent_ms

    @property
    def is_unanswered(self) -> bool:
        """Did the last beat fail?"""
        return self._state.failed

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(self._beat_s)

    async def beat(self) -> None:
        """One beat; an engine that does not answer is no error here, silence speaks for itself."""
        partitions, in_flight = self._describe()
        self.member = msgspec.structs.replace(
            self.member, counter=self.member.counter + 1, partitions=partitions, in_flight=in_flight
        )
        sent_ms = self._clock_ms()
        try:
            known = await self._members.beat(self.member)
            if not known:
                await self._members.join(self.member)
        except EngineError as error:
            self._state.failed = True
            log.warning("heartbeat.unanswered", extra={"error": str(error)})
            return
        self._answered(sent_ms, known=known)

    def _answered(self, sent_ms: int, *, known: bool) -> None:
        state, before = self._state, self._state.sent_ms
        state.sent_ms, state.failed = sent_ms, False
        late = before is not None and self._clock_ms() - before >= self._stop_ms
        if late or not known:
            state.lapses += 1
            log.warning("heartbeat.lapse", extra={"struck_off": not known})
            self._on_lapse()

    async def leaving(self) -> None:
        """Tell the others that this session goes: its share moves at once."""
        self.member = msgspec.structs.replace(self.member, state="leaving", counter=self.member.counter + 1)
        with contextlib.suppress(EngineError):
            await self._members.beat(self.member)
