"""The instances of a crawl by their own word, in one cheap read; `ring_view` judges them by two."""

from collections.abc import Iterable

import msgspec

from crawler.app.crawl import OpenCrawl
from crawler.frontier.members import Awaited, Member


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """One instance, as it described itself with its last heartbeat."""

    node: str
    session: str
    state: str  # joining, alive, quarantined, leaving; seeding: a command that adds URLs
    weight: int
    started_at: float  # s since 1970
    partitions: int
    in_flight: int  # URLs
    lease_losses: int  # how often it lost all its partitions after a silence
    waits_for: str  # why it claims no URLs: "memory", "disk", "paused", or ""
    awaited: Awaited | None  # what it waits for, where nothing has come of its work for some seconds
    last_error: str  # of the last minute


class MembersView(msgspec.Struct, frozen=True, kw_only=True):
    """All instances, by node."""

    members: list[MemberView]


async def alive(crawl: OpenCrawl) -> list[Member]:
    """The instances that take part. Raises EngineError, as all functions here do."""
    return [m for m in (await crawl.members.read()).values() if m.state == "alive"]


def running_since(members: Iterable[Member], now_s: float) -> float:
    """When the instance began that runs for longest (s since 1970): what was before tells nothing of the rate now."""
    return min((m.started_at for m in members), default=now_s)


async def waits_for(crawl: OpenCrawl, members: Iterable[Member]) -> list[str]:
    """Why these instances claim no more URLs, or few: values of `Member.waits_for`, and "engine disk"."""
    found = {member.waits_for for member in members} - {""}
    if await crawl.engine.is_disk_full():  # no member can note it: it takes no heartbeat either
        found.add("engine disk")
    return sorted(found)


async def member_views(crawl: OpenCrawl) -> MembersView:
    """The member list."""
    found = sorted((await crawl.members.read()).values(), key=lambda member: (member.node, member.session))
    return MembersView(
        members=[
            MemberView(
                node=one.node, session=one.session, state=one.state, weight=one.weight, started_at=one.started_at,
                partitions=one.partitions, in_flight=one.in_flight, lease_losses=one.lease_losses,
                waits_for=one.waits_for, awaited=one.awaited, last_error=one.last_error,
            )
            for one in found
        ]
    )  # fmt: skip
