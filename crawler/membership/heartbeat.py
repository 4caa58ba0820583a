"""The session's heartbeat: without a recent answered beat, no request starts.

One counter keeps all leases of the session alive. A beat whose reply came too late is a lease loss: others may have
taken over meanwhile, so every lease must be acquired again before anything starts.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from crawler.errors import CrawlerError, EngineError
from crawler.frontier.members import BeatAnswer, Member, Members, NameTakenError
from crawler.rules.membership import COMMANDS, DeclaredState, quarantine_ms, step
from crawler.runtime.clocks import monotonic_ms
from crawler.runtime.ticks import tick
from crawler.settings import MembershipSettings

log = logging.getLogger(__name__)

STEADY_S = 60.0  # a node that lives this long starts again with no joins counted; always longer than its death takes
NAMELESS_DEATHS = 2  # times the silence that means death; by then a dead session is off the member list


async def keep_engine(heartbeat: "Heartbeat", revive: Callable[[], Awaitable[None]], *, every_s: float) -> None:
    """Restart an embedded engine that was killed, until cancelled. Any instance may do it."""
    while True:
        await tick(every_s)
        if heartbeat.is_unanswered:
            try:
                await revive()
            except CrawlerError as error:
                log.warning("engine.not_revived", extra={"error": str(error)})


class SessionLiveness:
    """What the answered heartbeats of this session permit: read by the pipeline, written by `Heartbeat`.

    `sent_ms`: when the last answered beat was *sent* (monotonic ms); None before the first. `time_scale`: the one that
    others may judge us by, of the last answered beat, or of a later one that was sent if that is smaller.
    """

    def __init__(
        self,
        settings: MembershipSettings,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
        is_in_doubt: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_in_doubt`: may the answers be those of a server that is the primary no longer?"""
        self._is_in_doubt = is_in_doubt
        self.stop_ms = int(settings.self_stop_s * 1000)
        self.abort_ms = int(settings.dead_s * 1000)
        self._clock_ms = clock_ms
        self.sent_ms: int | None = None
        self.time_scale = 1
        self.lease_losses = 0
        self.is_evicted = False

    def may_start(self) -> bool:
        """May a request be started now?"""
        sent_ms = self.sent_ms
        if sent_ms is None or self.is_evicted or self._is_in_doubt():
            return False
        return self._clock_ms() - sent_ms < self.stop_ms * self.time_scale

    def must_abort(self) -> bool:
        """Has the silence lasted long enough that others may own what is in flight?"""
        return self.sent_ms is not None and self._clock_ms() - self.sent_ms >= self.abort_ms * self.time_scale


class BeatCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat calls. `on_lease_loss`: when this session was silent for too long. `has_room`: may it have
    partitions that others could have, as far as its disk goes?

    `check_crawl` is awaited before a session that was removed from the member list joins again; what it raises ends
    the session. `describe`: the fields of `Member` that change with each beat. `time_scale`: factor of all its times.
    """

    on_lease_loss: Callable[[], object] = lambda: None
    on_evicted: Callable[[], None] = lambda: None
    check_crawl: Callable[[], Awaitable[None]] | None = None
    has_room: Callable[[], bool] = lambda: True
    describe: Callable[[], Mapping[str, Any]] = dict
    time_scale: Callable[[], int] = lambda: 1


NO_CALLS = BeatCalls()


class Heartbeat:
    """Writes the counter every beat."""

    def __init__(
        self,
        members: Members,
        member: Member,
        settings: MembershipSettings,
        *,
        liveness: SessionLiveness,
        calls: BeatCalls = NO_CALLS,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.member = member
        self._members = members
        self._settings = settings
        self._liveness = liveness
        self._calls = calls
        self._clock_ms = clock_ms
        self._quarantined_until_ms = 0
        self._nameless_since_ms: int | None = None  # removed, and another session has the node's name
        self._alive_since_ms: int | None = None  # None: steady already, or not alive
        self.is_unanswered = False  # did the last beat fail?

    def joined(self, sent_ms: int, returns: int) -> None:
        """The join counts as the first beat; a node that returns too often is quarantined for a growing time, and one
        whose disk has no room until it has.
        """
        s = self._settings
        self._liveness.sent_ms, self._liveness.time_scale = sent_ms, self.member.time_scale
        if self._declared in COMMANDS:
            return
        hold_ms = quarantine_ms(
            returns, free=s.flap_free, hold_ms=int(s.flap_hold_s * 1000), hold_max_ms=int(s.flap_hold_max_s * 1000)
        )
        self._quarantined_until_ms = self._clock_ms() + hold_ms
        if hold_ms:
            log.warning("member.quarantined", extra={"returns": returns, "seconds": hold_ms / 1000})
        if hold_ms or not self._calls.has_room():
            self._declare(DeclaredState.QUARANTINED)
        else:
            self._take_part()

    @property
    def _declared(self) -> DeclaredState:
        return DeclaredState(self.member.state)

    def _declare(self, then: DeclaredState) -> None:
        self.member = msgspec.structs.replace(self.member, state=step(self._declared, then).value)

    def _take_part(self) -> None:
        self._declare(DeclaredState.ALIVE)
        self._alive_since_ms = self._clock_ms()

    async def run(self) -> None:
        """Beat until cancelled, or evicted."""
        while not self._liveness.is_evicted:
            await self.beat()
            await tick(self._settings.beat_s * self._liveness.time_scale)

    async def beat(self) -> None:
        """One beat. An engine that does not answer is not an error here: silence has its own consequences."""
        has_room, declared = self._calls.has_room(), self._declared
        if declared is DeclaredState.ALIVE and not has_room:
            log.warning("member.quarantined", extra={"why": "disk"})
            self._declare(DeclaredState.QUARANTINED)
            self._alive_since_ms = None
        elif declared is DeclaredState.QUARANTINED and has_room and self._clock_ms() >= self._quarantined_until_ms:
            self._take_part()
        self.member = msgspec.structs.replace(
            self.member, counter=self.member.counter + 1, time_scale=self._calls.time_scale(),
            lacks_room=not has_room, **self._calls.describe(),
        )  # fmt: skip
        # The engine may have it, answered or not.
        self._liveness.time_scale = min(self._liveness.time_scale, self.member.time_scale)
        sent_ms = self._clock_ms()
        try:
            answer = await self._members.heartbeat(self.member)
            if answer is BeatAnswer.COMMITTED and self._declared is DeclaredState.JOINING:  # its join was not answered
                answer = BeatAnswer.GONE
            if answer is BeatAnswer.GONE:
                await self._rejoin()
        except EngineError as error:
            self.is_unanswered = True
            log.warning("heartbeat.unanswered", extra={"error": str(error)})
            return
        self.is_unanswered = False
        if answer is BeatAnswer.EVICTED:
            log.warning("member.evicted", extra={"node": self.member.node})
            self._liveness.is_evicted = True
            self._calls.on_evicted()
        elif answer is BeatAnswer.COMMITTED:
            self._answered(sent_ms)
            await self._settle_down()

    async def _rejoin(self) -> None:
        """Removed while we were silent: join again, without any lease; not when this session leaves, which may begin at
        any time. Raises what `check_crawl` raises.
        """
        if self._calls.check_crawl is not None and self._declared is not DeclaredState.LEAVING:
            await self._calls.check_crawl()
        if self._declared is DeclaredState.LEAVING:
            self._lose_all_leases(removed=True)
            return
        if self._declared not in COMMANDS:
            self._declare(DeclaredState.JOINING)
        sent_ms = self._clock_ms()
        try:
            returns = await self._members.join(self.member)
        except NameTakenError:
            self._wait_for_the_name()
            return
        self._lose_all_leases(removed=True)
        self._nameless_since_ms = None
        if self.member.state != DeclaredState.LEAVING.value:
            self.joined(sent_ms, returns)

    def _wait_for_the_name(self) -> None:
        """Another session has our node's name. An engine that fell back may have restored a dead former session of the
        node, which the others will remove. Raises NameTakenError if it lasts: then the node was started elsewhere.
        """
        now_ms, since_ms = self._clock_ms(), self._nameless_since_ms
        if since_ms is None:
            self._nameless_since_ms = now_ms
            self._lose_all_leases(removed=True)
        elif now_ms - since_ms >= NAMELESS_DEATHS * self._liveness.abort_ms * self._liveness.time_scale:
            raise NameTakenError(f"node {self.member.node!r} was started elsewhere while this instance was silent")

    def _answered(self, sent_ms: int) -> None:
        liveness, before = self._liveness, self._liveness.sent_ms
        late = before is not None and self._clock_ms() - before >= liveness.stop_ms * liveness.time_scale
        liveness.sent_ms, liveness.time_scale = sent_ms, self.member.time_scale
        if late:
            self._lose_all_leases(removed=False)

    def _lose_all_leases(self, *, removed: bool) -> None:
        self._liveness.lease_losses += 1
        log.warning("heartbeat.lease_loss", extra={"removed": removed})
        self._calls.on_lease_loss()

    async def _settle_down(self) -> None:
        """After a steady life, the count of returns is reset."""
        since = self._alive_since_ms
        if since is not None and self._clock_ms() - since >= max(STEADY_S, 2 * self._settings.dead_s) * 1000:
            with contextlib.suppress(EngineError):
                await self._members.is_steady(self.member.node)
                self._alive_since_ms = None

    async def leaving(self) -> None:
        """Announce that this session leaves: its share moves at once."""
        self._declare(DeclaredState.LEAVING)
        self.member = msgspec.structs.replace(self.member, counter=self.member.counter + 1)
        with contextlib.suppress(EngineError):
            await self._members.heartbeat(self.member)
