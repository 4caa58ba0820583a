"""Pins: `crawler ring pin`, `unpin` and `pins`. Says what a pin takes along, and whether it is heard."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.frontier.members import Pins


def _pins_of(crawl: "OpenCrawl") -> "Pins":
    from crawler.frontier.members import Pins

    return Pins(crawl.engine, crawl.keys)


async def pin(crawl: "OpenCrawl", text: str, node: str) -> dict[str, Any]:
    """Give a domain to a node. Raises ConflictError when its partition is pinned to another one."""
    from crawler.reports.ring_members import weights_of
    from crawler.reports.ring_place import located

    _, domain, _, partition = located(crawl, text)
    await _pins_of(crawl).pin(domain, node, partitions=crawl.record.partitions)
    (domains,) = await crawl.stats.domain_counts([partition])
    return {
        "domain": domain, "node": node, "partition": partition, "partitions": crawl.record.partitions,
        "domains": domains, "running": node in weights_of(await crawl.members.read()),
    }  # fmt: skip


def pin_text(found: Mapping[str, Any]) -> str:
    from crawler.reports.wording import number

    text = (
        f"{found['domain']} is pinned to {found['node']}, and with it partition {found['partition']}: "
        f"1 of {number(found['partitions'])}, {number(found['domains'])} of the domains met so far"
    )
    if not found["running"]:
        text += f"\n{found['node']} does not take part now; until it does, the ring decides"
    return text


async def unpin(crawl: "OpenCrawl", text: str) -> dict[str, Any]:
    """Take a domain's pin away. Raises UsageError when it has none."""
    from crawler.reports.ring_place import located

    _, domain, _, partition = located(crawl, text)
    if not await _pins_of(crawl).unpin(domain):
        raise UsageError(f"{domain} is not pinned ('crawler ring pins' lists those that are)")
    others = sorted(name for name, p in (await _partitions(crawl)).items() if p == partition)
    return {"domain": domain, "partition": partition, "still_pinned_by": others}


def unpin_text(found: Mapping[str, Any]) -> str:
    others = ", ".join(found["still_pinned_by"])
    decides = f"partition {found['partition']} stays where it is pinned, by {others}" if others else "the ring decides"
    return f"{found['domain']} is no longer pinned: {decides}"


async def _partitions(crawl: "OpenCrawl") -> dict[str, int]:
    from crawler.rules.identity import partition_of

    return {domain: partition_of(domain, crawl.record.partitions) for domain in await _pins_of(crawl).read()}


async def pins(crawl: "OpenCrawl") -> dict[str, Any]:
    """All pins, with who owns their partitions now."""
    from crawler.reports.ring_members import weights_of

    nodes, places = await _pins_of(crawl).read(), await _partitions(crawl)
    running = weights_of(await crawl.members.read())
    leases = {lease.partition: lease for lease in await crawl.leases.read(sorted(set(places.values())))}
    rows = []
    for domain, node in sorted(nodes.items()):
        lease = leases[places[domain]]
        owner = lease.node if lease.session else ""
        state = "heard" if owner == node else "moving" if node in running else "waiting"
        rows.append({"domain": domain, "node": node, "partition": places[domain], "owner": owner, "state": state})
    return {"crawl": crawl.settings.crawl.name, "pins": rows}


MEANINGS = {"heard": "heard", "moving": "on its way", "waiting": "its node does not take part"}


def pins_text(found: Mapping[str, Any]) -> str:
    from crawler.reports.tables import NOTHING, table

    if not found["pins"]:
        return "Nothing is pinned. To give a domain to a node: crawler ring pin DOMAIN NODE"
    rows = [
        (row["domain"], row["node"], row["owner"] or NOTHING, MEANINGS[row["state"]], str(row["partition"]))
        for row in found["pins"]
    ]
    return table(("domain", "pinned to", "owner now", "state", "partition"), rows, left=4)
