"""Reads who owns each partition, whom the ring suggests for it, and who took partitions over."""

from collections.abc import Sequence

import msgspec

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.leases import Takeover, Takeovers
from crawler.frontier.members import weights_of
from crawler.views.ring import Shard
from crawler.views.shares import ring_of, shards

NOBODY = -1


class PartitionOwners(msgspec.Struct, frozen=True, kw_only=True):
    """By partition, places in `nodes`; -1 where nobody has the lease, or no instance runs."""

    nodes: Sequence[str]
    held: Sequence[int]  # by leases
    suggested: Sequence[int]  # by the ring
    shards: Sequence[Shard] = ()  # of a cluster


class TakeoversView(msgspec.Struct, frozen=True, kw_only=True):
    """Takeovers, the oldest first."""

    takeovers: Sequence[Takeover]


async def partition_owners(crawl: OpenCrawl) -> PartitionOwners:
    """One pass over the leases. Raises EngineError, as all functions here do."""
    holders = [""] * crawl.record.partitions
    for lease in await crawl.leases.read_there(range(crawl.record.partitions)):  # without those on a shard that is down
        holders[lease.partition] = lease.node if lease.session else ""
    ring = await ring_of(crawl, weights_of(await crawl.members.read()))
    suggested = ring.owners or [""] * len(holders)
    nodes = sorted({*holders, *suggested} - {""})
    place = {node: n for n, node in enumerate(nodes)} | {"": NOBODY}
    return PartitionOwners(
        nodes=nodes, held=[place[node] for node in holders], suggested=[place[node] for node in suggested],
        shards=await shards(crawl),
    )  # fmt: skip


async def takeovers(crawl: OpenCrawl, limit: int) -> TakeoversView:
    """The last ones."""
    return TakeoversView(takeovers=(await Takeovers(crawl.engine, crawl.keys).read(limit))[-limit:])
