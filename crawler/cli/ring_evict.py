"""`crawler ring evict NODE`: take an instance off the crawl, and see what becomes of its partitions."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from crawler.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.frontier.members import Member

SLACK_S = 5.0  # on top of the silence after which others take over


async def evict(crawl: "OpenCrawl", node: str) -> dict[str, Any]:
    """Evict the node's session and wait until no lease is in its name and it is off the list.

    Raises UsageError for a node that is not there, ConflictError when leases stay in its name.
    """
    import asyncio

    from crawler.reports.ring_members import weights_of

    member = await _member_of(crawl, node)
    settings = crawl.settings.membership
    everything = range(crawl.record.partitions)
    held = await _held(crawl, member.session, everything)
    dead_s = settings.dead_s * member.time_scale
    await crawl.members.evict(member)
    begun, left, listed = time.monotonic(), held, await crawl.members.read()
    while (left or member.session in listed) and time.monotonic() - begun < dead_s + SLACK_S:
        await asyncio.sleep(settings.read_s / 2)
        left = await _held(crawl, member.session, left) or await _held(crawl, member.session, everything)
        listed = await crawl.members.read()
    took_s = time.monotonic() - begun
    others = weights_of({s: m for s, m in listed.items() if s != member.session})
    if left:
        why = "" if others else ": nobody else takes part who could take them over"
        raise ConflictError(
            f"{node} is evicted, but {len(left):,} partitions are still in its name after {took_s:.0f} s{why}"
        )
    return {
        "node": node, "session": member.session, "host": member.host.partition("/")[0], "pid": member.pid,
        "partitions": len(held), "seconds": round(took_s, 1),
        "by_itself": not await crawl.members.is_evicted(member.session), "others": sorted(others),
    }  # fmt: skip


async def _member_of(crawl: "OpenCrawl", node: str) -> "Member":
    from crawler.reports.ring_members import by_number

    members = await crawl.members.read()
    for member in members.values():
        if member.node == node:
            return member
    known = ", ".join(sorted((m.node for m in members.values()), key=by_number))
    raise UsageError(f"no node {node!r} takes part ({known or 'nobody does'})")


async def _held(crawl: "OpenCrawl", session: str, partitions: Iterable[int]) -> list[int]:
    return [lease.partition for lease in await crawl.leases.read(partitions) if lease.session == session]


def evict_text(found: Mapping[str, Any]) -> str:
    from crawler.terminal.wording import counted, duration

    what, took = counted(found["partitions"], "partition"), duration(found["seconds"])
    if found["by_itself"]:
        ended = f"it let go of {what} and left after {took}"
    else:
        ended = f"it did not answer; others took over its {what}, after {took} in all"
    text = f"{found['node']} ({found['host']} {found['pid']}) is evicted: {ended}"
    return text if found["others"] else f"{text}\nNobody else takes part; its partitions wait. Start one: crawler run"
