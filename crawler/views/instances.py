"""The instances of a crawl by their own word, in one cheap read; `observed_members` judges them by two."""

from collections.abc import Iterable

import msgspec

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.members import Member, MemberView


class MembersView(msgspec.Struct, frozen=True, kw_only=True):
    """All instances, by node."""

    members: list[MemberView]


async def alive(crawl: OpenCrawl) -> list[Member]:
    """The instances at work. Raises EngineError, as all functions here do."""
    return [m for m in (await crawl.members.read()).values() if m.is_at_work]


def running_since(members: Iterable[Member], now_s: float) -> float:
    """When the instance began that runs for longest (s since 1970): what was before tells nothing of the rate now."""
    return min((m.started_at for m in members), default=now_s)


async def waits_for(crawl: OpenCrawl, members: Iterable[Member]) -> list[str]:
    """Why these instances claim no more URLs, or few: values of `Member.waits_for`, and "engine disk"."""
    found = {member.waits_for for member in members} - {""}
    if await crawl.engine.is_disk_full():  # no member can note it: it takes no heartbeat either
        found.add("engine disk")
    return sorted(found)


def full_nodes(members: Iterable[Member]) -> list[str]:
    """The nodes of these instances that wait for room on their disks."""
    return sorted({member.node for member in members if member.waits_for == "disk"})


async def member_views(crawl: OpenCrawl) -> MembersView:
    """The member list."""
    found = sorted((await crawl.members.read()).values(), key=lambda member: (member.node, member.session))
    return MembersView(members=[msgspec.convert(one, MemberView, from_attributes=True) for one in found])
