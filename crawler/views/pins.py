"""What an operator changes about the owners of a crawl's partitions: pins of domains, eviction of an instance.

Each is written to the operator log before it acts.
"""

import asyncio
import time
from collections.abc import Iterable

from crawler.crawl.opening import OpenCrawl
from crawler.errors import ConflictError, UsageError
from crawler.frontier.members import Member, weights_of
from crawler.frontier.operator_log import Actor
from crawler.rules.places import partition_of
from crawler.terminal.words import by_number, counted
from crawler.views.ring import Eviction, NewPin, Pin, PinList, RemovedPin
from crawler.views.shares import located, pins_of

EVICT_SLACK_S = 5.0  # on top of the silence after which others take over


async def pin(crawl: OpenCrawl, text: str, node: str, *, actor: Actor) -> NewPin:
    """Give a domain to a node. Raises ConflictError when its partition is pinned to another one."""
    _, domain, _, partition = located(crawl, text)
    await crawl.operator_log.add(actor, "ring pin", domain, f"to {node}")
    await pins_of(crawl).pin(domain, node, partitions=crawl.record.partitions)
    (domains,) = await crawl.stats.domain_counts([partition])
    return NewPin(
        domain=domain, node=node, partition=partition, partitions=crawl.record.partitions,
        domains=domains, running=node in weights_of(await crawl.members.read()),
    )  # fmt: skip


async def unpin(crawl: OpenCrawl, text: str, *, actor: Actor) -> RemovedPin:
    """Take a domain's pin away. Raises UsageError when it has none."""
    _, domain, _, partition = located(crawl, text)
    if domain not in await pins_of(crawl).read():
        raise UsageError(f"{domain} is not pinned ('crawler ring pins' lists those that are)")
    await crawl.operator_log.add(actor, "ring unpin", domain)
    await pins_of(crawl).unpin(domain)
    left = await pins_of(crawl).read()
    others = sorted(name for name in left if partition_of(name, crawl.record.partitions) == partition)
    return RemovedPin(domain=domain, partition=partition, still_pinned_by=others)


async def pins(crawl: OpenCrawl) -> PinList:
    """All pins, with who owns their partitions now."""
    nodes = await pins_of(crawl).read()
    places = {domain: partition_of(domain, crawl.record.partitions) for domain in nodes}
    running = weights_of(await crawl.members.read())
    leases = {lease.partition: lease for lease in await crawl.leases.read(sorted(set(places.values())))}
    rows = []
    for domain, node in sorted(nodes.items()):
        lease = leases[places[domain]]
        owner = lease.node if lease.session else ""
        state = "heard" if owner == node else "moving" if node in running else "waiting"
        state = "full" if running.get(node) == 0 else state
        rows.append(Pin(domain=domain, node=node, partition=places[domain], owner=owner, state=state))
    return PinList(crawl=crawl.settings.crawl.name, pins=rows)


async def evict(crawl: OpenCrawl, node: str, *, actor: Actor) -> Eviction:
    """Evict the node's session and wait until no lease is in its name and it is off the list.

    Raises UsageError for a node that is not there, ConflictError when leases stay in its name.
    """
    member = await _member_of(crawl, node)
    settings = crawl.settings.membership
    everything = range(crawl.record.partitions)
    held = await _held(crawl, member.session, everything)
    dead_s = settings.dead_s * member.time_scale
    await crawl.operator_log.add(actor, "ring evict", node, f"session {member.session}")
    await crawl.members.evict(member)
    begun, left, listed = time.monotonic(), held, await crawl.members.read()
    while (left or member.session in listed) and time.monotonic() - begun < dead_s + EVICT_SLACK_S:
        await asyncio.sleep(settings.read_s / 2)
        left = await _held(crawl, member.session, left) or await _held(crawl, member.session, everything)
        listed = await crawl.members.read()
    took_s = time.monotonic() - begun
    others = weights_of({s: m for s, m in listed.items() if s != member.session})
    if left:
        why = "" if others else ": nobody else takes part who could take them over"
        raise ConflictError(
            f"{node} is evicted, but it still holds {counted(len(left), 'partition')} after {took_s:.0f} s{why}"
        )
    return Eviction(
        node=node, session=member.session, host=member.host.partition("/")[0], pid=member.pid,
        partitions=len(held), seconds=round(took_s, 1),
        by_itself=not await crawl.members.is_evicted(member.session), others=sorted(others),
    )  # fmt: skip


async def _member_of(crawl: OpenCrawl, node: str) -> Member:
    members = await crawl.members.read()
    for member in members.values():
        if member.node == node:
            return member
    known = ", ".join(sorted((m.node for m in members.values()), key=by_number))
    raise UsageError(f"no node {node!r} takes part ({known or 'nobody does'})")


async def _held(crawl: OpenCrawl, session: str, partitions: Iterable[int]) -> list[int]:
    return [lease.partition for lease in await crawl.leases.read(partitions) if lease.session == session]
