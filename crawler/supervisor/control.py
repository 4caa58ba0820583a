"""Where a supervisor can be reached: once a second it says in the engine what it has, reads how many instances it is to
have, and looks whether those it has are alive.

A child whose process lives but whose heartbeat does not is hung: it is killed, and so started again. Only what was
observed without a gap counts, so a supervisor that was itself paused or cut off learns nothing from it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

import msgspec

from crawler.errors import EngineError, EngineFull
from crawler.frontier.members import Member, Members
from crawler.frontier.supervisors import SupervisorChild, SupervisorRecord, SupervisorRecords
from crawler.membership.node_names import is_lock_free
from crawler.rules.membership import DeclaredState
from crawler.settings import MembershipSettings
from crawler.supervisor.child import Child, ChildState
from crawler.supervisor.supervisor import Supervisor

EVERY_S = 1.0


SETTLING_S = 0.1


GAP_S = 2.5  # two looks further apart than this start the observation of silences afresh


HUNG_SILENCES = 3  # times after which others take a silent member's partitions: there is no way back into its old work


WORDS_MAX = 300


SEEN_AS = {DeclaredState.ALIVE: ChildState.RUNNING, DeclaredState.QUARANTINED: ChildState.QUARANTINED}


class Pulse(msgspec.Struct, frozen=True):
    """A heartbeat counter, and since when (monotonic) it has been what it is."""

    session: str
    counter: int
    since_s: float


class SupervisorControl:
    """`run` next to the supervisor, `close` after it. `me` names the supervisor; the rest of it is filled in here."""

    def __init__(
        self,
        supervisor: Supervisor,
        supervisors: SupervisorRecords,
        members: Members,
        me: SupervisorRecord,
        settings: MembershipSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor = supervisor
        self._supervisors = supervisors
        self._members = members
        self._me = me
        self._settings = settings
        self._clock = clock
        self._began_s = clock()
        self._looked_s = clock()
        self._pulses: dict[str, Pulse] = {}

    async def run(self) -> None:
        """Until cancelled; other code reports an engine that does not answer."""
        with contextlib.suppress(EngineError):
            await self._clear_up()
        while True:
            with contextlib.suppress(EngineError):
                await self.look()
            await asyncio.sleep(EVERY_S)

    async def _clear_up(self) -> None:
        """Delete the records of killed supervisors of this machine."""
        for session, record in (await self._supervisors.read()).items():
            if is_lock_free(record):
                await self._supervisors.remove(session)

    async def close(self) -> None:
        """Delete the record."""
        with contextlib.suppress(EngineError):
            await self._supervisors.remove(self._me.session)

    async def look(self) -> None:
        """Read, act, write."""
        self._feel((await self._members.read()).values())
        request = await self._supervisors.asked(self._me.session)
        if request is not None and request.by != self._me.obeyed:
            self._supervisor.scale(request.wanted)
            self._me = msgspec.structs.replace(self._me, obeyed=request.by)
            await asyncio.sleep(SETTLING_S)  # the requester must see the result
        self._me = self._described()
        with contextlib.suppress(EngineFull):
            await self._supervisors.write(self._me)

    # --- what it has ---

    def _described(self) -> SupervisorRecord:
        supervisor = self._supervisor
        return msgspec.structs.replace(
            self._me,
            counter=self._me.counter + 1,
            wanted=supervisor.wanted,
            state="stopping" if supervisor.is_ending else "running",
            age_s=round(self._clock() - self._began_s, 1),
            children=tuple(_described(child) for child in supervisor.children),
        )

    # --- whether they live ---

    def _feel(self, members: Iterable[Member]) -> None:
        now_s = self._clock()
        if now_s - self._looked_s > GAP_S:
            self._pulses.clear()
        self._looked_s = now_s
        here = {(m.node, m.pid): m for m in members if m.host == self._me.host}
        for child in self._supervisor.children:
            member = here.get((child.name, child.pid))
            if member is None:
                self._pulses.pop(child.name, None)
                continue
            if member.state in SEEN_AS:
                child.is_seen(SEEN_AS[DeclaredState(member.state)])
            self._judge(child, member, now_s)

    def _judge(self, child: Child, member: Member, now_s: float) -> None:
        pulse = self._pulses.get(child.name)
        if pulse is None or (pulse.session, pulse.counter) != (member.session, member.counter) or child.is_paused():
            self._pulses[child.name] = Pulse(member.session, member.counter, now_s)
            return
        if now_s - pulse.since_s >= HUNG_SILENCES * self._settings.dead_s * member.time_scale:
            del self._pulses[child.name]
            child.kill(hung=f"no heartbeat for {now_s - pulse.since_s:.0f} s")


def _described(child: Child) -> SupervisorChild:
    now_s = time.monotonic()
    return SupervisorChild(
        node=child.name,
        state=child.state,
        pid=child.pid,
        restarts=child.restarts,
        for_s=round(now_s - child.since_s, 1),
        due_s=round(max(0.0, child.due_s - now_s), 1) if child.state is ChildState.RESTARTING else 0.0,
        last_words=child.last_words[:WORDS_MAX],
    )
