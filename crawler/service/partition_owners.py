"""Reads who owns each partition, whom the ring suggests for it, and who took partitions over."""

from collections.abc import Sequence

import msgspec

from crawler.app.crawl import OpenCrawl
from crawler.frontier.owner import Takeover, Takeovers
from crawler.service.ring_view import ring_of, weights_of

NOBODY = -1


class PartitionOwners(msgspec.Struct, frozen=True, kw_only=True):
    """By partition, places in `nodes`; -1 where nobody has the lease, or no instance runs."""

    nodes: Sequence[str]
    held: Sequence[int]  # by leases
    suggested: Sequence[int]  # by the ring


class TakeoversView(msgspec.Struct, frozen=True, kw_only=True):
    """Takeovers, the oldest first."""

    takeovers: Sequence[Takeover]


async def partition_owners(crawl: OpenCrawl) -> PartitionOwners:
    """One pass over the leases. Raises EngineError, as all functions here do."""
    leases = await crawl.leases.read(range(crawl.record.partitions))
    ring = await ring_of(crawl, weights_of(await crawl.members.read()))
    holders = [lease.node if lease.session else "" for lease in leases]
    suggested = ring.owners or [""] * len(holders)
    nodes = sorted({*holders, *suggested} - {""})
    place = {node: n for n, node in enumerate(nodes)} | {"": NOBODY}
    return PartitionOwners(
        nodes=nodes, held=[place[node] for node in holders], suggested=[place[node] for node in suggested]
    )


async def takeovers(crawl: OpenCrawl, limit: int) -> TakeoversView:
    """The last ones."""
    return TakeoversView(takeovers=(await Takeovers(crawl.engine, crawl.keys).read(limit))[-limit:])
