"""Whose a URL is: `crawler ring URL`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl


def located(crawl: "OpenCrawl", text: str) -> tuple[str, str, str, int]:
    """(URL, domain, queue, partition) of a URL, host or domain as people write it. Raises UsageError."""
    from crawler.seeding.url_input import url_of_site

    url = url_of_site(text)
    return (url, *crawl.placement.of(url))


async def place(crawl: "OpenCrawl", text: str) -> dict[str, Any]:
    """Where a URL belongs, who owns it now, and who should."""
    from crawler.frontier.members import Pins, by_partition
    from crawler.reports.ring_members import ring_of, weights_of

    url, domain, queue, partition = located(crawl, text)
    (lease,) = await crawl.leases.read([partition])
    owners = (await ring_of(crawl, weights_of(await crawl.members.read()))).owners
    pinned = by_partition(await Pins(crawl.engine, crawl.keys).read(), crawl.record.partitions)
    return {
        "url": url, "domain": domain, "queue": queue, "partition": partition,
        "owner": lease.node if lease.session else "", "session": lease.session, "epoch": lease.epoch,
        "suggested": owners[partition] if owners else "", "pinned": pinned.get(partition, ""),
    }  # fmt: skip


def place_text(found: Mapping[str, Any]) -> str:
    from crawler.reports.tables import facts

    suggested = found["suggested"] or "nobody: no instance is running"
    if found["pinned"]:
        suggested += f" (the partition is pinned to {found['pinned']})"
    return facts(
        [
            ("url", found["url"]),
            ("domain", found["domain"]),
            ("queue", found["queue"]),
            ("partition", str(found["partition"])),
            ("owner", f"{found['owner']} (session {found['session']})" if found["owner"] else "none now"),
            ("epoch", str(found["epoch"])),
            ("suggested", suggested),
        ]
    )
