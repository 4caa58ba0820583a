"""Who of the member list lives, for a command that is not an instance: it looks again and again."""

from crawler.frontier.members import Member, Members
from crawler.membership.node_names import is_lock_free
from crawler.rules.membership import DeclaredState, HeartbeatReading, Liveness, Observer, declared, times_of
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import MembershipSettings


class Living:
    """Judges members by what it has seen of their heartbeats, as instances do."""

    def __init__(self, members: Members, settings: MembershipSettings) -> None:
        self._members = members
        self._observer = Observer(times_of(settings), {})

    async def read(self) -> dict[str, Member]:
        """All that are not dead, by their sessions. Raises EngineError."""
        members, now_ms = await self._members.read(), monotonic_ms()
        self._observer = self._observer.read(map(_reading, members.values()), now_ms)
        states = self._observer.states(now_ms)
        return {session: member for session, member in members.items() if states[session] is not Liveness.DEAD}

    async def pausing(self) -> tuple[str, ...]:
        """The sessions of commands that pause the crawl. Raises EngineError."""
        living = await self.read()
        return tuple(sorted(s for s, member in living.items() if member.state == DeclaredState.PAUSING.value))


def _reading(member: Member) -> HeartbeatReading:
    return HeartbeatReading(
        member.session, member.counter, declared(member.state), member.time_scale, is_lock_free(member)
    )
