"""The session's heartbeat and what it entitles to: no beat answered lately, no request started.

The counter vouches for all leases of the session. A beat whose reply came too late marks a lapse: others may have
taken over meanwhile, so every lease must be acquired anew before anything is started.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from crawler.errors import EngineError
from crawler.frontier.members import BeatAnswer, Member, Members, NameTakenError
from crawler.rules.liveness import Declared, hold_out_ms, step
from crawler.runtime.clock import monotonic_ms
from crawler.settings import MembershipSettings

log = logging.getLogger(__name__)

NAMELESS_DEATHS = 2  # so many times the silence that means death; a dead session is struck off by then


class BeatState(msgspec.Struct):
    """When the last answered beat was *sent* (monotonic ms); None before the first.

    `stretch` is what others may judge us by: of the last answered beat, or of one sent since if that is smaller.
    """

    sent_ms: int | None = None
    stretch: int = 1
    lapses: int = 0
    failed: bool = False
    evicted: bool = False
    hold_until_ms: int = 0
    nameless_since_ms: int | None = None  # struck off, and another session has the node's name
    alive_since_ms: int | None = None  # None: steady already, or not alive


class Heartbeat:
    """Writes the counter every beat; `on_lapse` is called when this session was silent for too long.

    `still` is awaited before a session that was struck off joins again; what it raises ends the session.
    """

    def __init__(
        self,
        members: Members,
        member: Member,
        settings: MembershipSettings,
        *,
        on_lapse: Callable[[], None],
        on_evicted: Callable[[], None] = lambda: None,
        still: Callable[[], Awaitable[None]] | None = None,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.member = member
        self._members = members
        self._settings = settings
        self._stop_ms = int(settings.self_stop_s * 1000)
        self._abort_ms = int(settings.dead_s * 1000)
        self._on_lapse = on_lapse
        self._on_evicted = on_evicted
        self._still = still
        self._clock_ms = clock_ms
        self._state = BeatState()
        self._describe: Callable[[], dict[str, Any]] = dict
        self._stretch: Callable[[], int] = lambda: 1

    @property
    def lapses(self) -> int:
        return self._state.lapses

    def describe_with(self, describe: Callable[[], dict[str, Any]], stretch: Callable[[], int]) -> None:
        """Where the beat gets the fields of `Member` that change from, and by how much its times are to stretch."""
        self._describe = describe
        self._stretch = stretch

    def may_start(self) -> bool:
        """May a request be started now?"""
        sent, state = self._state.sent_ms, self._state
        return sent is not None and not state.evicted and self._clock_ms() - sent < self._stop_ms * state.stretch

    def must_abort(self) -> bool:
        """Has silence lasted so long that others may own what is in flight?"""
        sent = self._state.sent_ms
        return sent is not None and self._clock_ms() - sent >= self._abort_ms * self._state.stretch

    def joined(self, sent_ms: int, returns: int) -> None:
        """The join counts as the first beat; a node that returns too often is held out for a growing time."""
        s, state = self._settings, self._state
        state.sent_ms, state.stretch = sent_ms, self.member.stretch
        if self._declared is Declared.SEEDING:
            return
        hold_ms = hold_out_ms(
            returns, free=s.flap_free, hold_ms=int(s.flap_hold_s * 1000), hold_max_ms=int(s.flap_hold_max_s * 1000)
        )
        state.hold_until_ms = self._clock_ms() + hold_ms
        if hold_ms:
            log.warning("member.held_out", extra={"returns": returns, "seconds": hold_ms / 1000})
            self._declare(Declared.HELD_OUT)
        else:
            self._take_part()

    @property
    def _declared(self) -> Declared:
        return Declared(self.member.state)

    def _declare(self, then: Declared) -> None:
        self.member = msgspec.structs.replace(self.member, state=step(self._declared, then).value)

    def _take_part(self) -> None:
        self._declare(Declared.ALIVE)
        self._state.alive_since_ms = self._clock_ms()

    @property
    def is_unanswered(self) -> bool:
        """Did the last beat fail?"""
        return self._state.failed

    async def run(self) -> None:
        """Beat until cancelled, or evicted."""
        while not self._state.evicted:
            await self.beat()
            await asyncio.sleep(self._settings.beat_s * self._state.stretch)

    async def beat(self) -> None:
        """One beat; an engine that does not answer is no error here, silence speaks for itself."""
        if self._declared is Declared.HELD_OUT and self._clock_ms() >= self._state.hold_until_ms:
            self._take_part()
        self.member = msgspec.structs.replace(
            self.member, counter=self.member.counter + 1, stretch=self._stretch(), **self._describe()
        )
        self._state.stretch = min(self._state.stretch, self.member.stretch)  # the engine may have it, answered or not
        sent_ms = self._clock_ms()
        try:
            answer = await self._members.beat(self.member)
            if answer is BeatAnswer.GONE:
                await self._rejoin()
        except EngineError as error:
            self._state.failed = True
            log.warning("heartbeat.unanswered", extra={"error": str(error)})
            return
        self._state.failed = False
        if answer is BeatAnswer.EVICTED:
            log.warning("member.evicted", extra={"node": self.member.node})
            self._state.evicted = True
            self._on_evicted()
        elif answer is BeatAnswer.COMMITTED:
            self._answered(sent_ms)
            await self._settle_down()

    async def _rejoin(self) -> None:
        """Struck off while we were silent: we come back as one that joins, and hold nothing. `still` may object."""
        if self._declared is Declared.LEAVING:
            self._lapse(struck_off=True)
            return
        if self._still is not None:
            await self._still()
        if self._declared is not Declared.SEEDING:
            self._declare(Declared.JOINING)
        sent_ms = self._clock_ms()
        try:
            returns = await self._members.join(self.member)
        except NameTakenError:
            self._wait_for_the_name()
            return
        self._lapse(struck_off=True)
        self._state.nameless_since_ms = None
        self.joined(sent_ms, returns)

    def _wait_for_the_name(self) -> None:
        """Somebody has our node's name. An engine that fell back may have put a dead former session of the node there:
        the others will notice. Raises NameTakenError when it lasts: then the node was started elsewhere.
        """
        now_ms, since_ms = self._clock_ms(), self._state.nameless_since_ms
        if since_ms is None:
            self._state.nameless_since_ms = now_ms
            self._lapse(struck_off=True)
        elif now_ms - since_ms >= NAMELESS_DEATHS * self._abort_ms * self._state.stretch:
            raise NameTakenError(f"node {self.member.node!r} was started elsewhere while this instance was silent")

    def _answered(self, sent_ms: int) -> None:
        state, before = self._state, self._state.sent_ms
        late = before is not None and self._clock_ms() - before >= self._stop_ms * state.stretch
        state.sent_ms, state.stretch = sent_ms, self.member.stretch
        if late:
            self._lapse(struck_off=False)

    def _lapse(self, *, struck_off: bool) -> None:
        self._state.lapses += 1
        log.warning("heartbeat.lapse", extra={"struck_off": struck_off})
        self._on_lapse()

    async def _settle_down(self) -> None:
        """A life that lasted ends the count of returns."""
        since = self._state.alive_since_ms
        if since is not None and self._clock_ms() - since >= self._settings.steady_s * 1000:
            with contextlib.suppress(EngineError):
                await self._members.is_steady(self.member.node)
                self._state.alive_since_ms = None

    async def leaving(self) -> None:
        """Tell the others that this session goes: its share moves at once."""
        self._declare(Declared.LEAVING)
        self.member = msgspec.structs.replace(self.member, counter=self.member.counter + 1)
        with contextlib.suppress(EngineError):
            await self._members.beat(self.member)
