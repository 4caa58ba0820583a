"""Who owns what, over HTTP: each partition's holder and suggestion, and takeovers."""

from msgspec.structs import replace

from crawler.crawl.opening import member_of
from crawler.frontier.leases import Takeover, Takeovers
from crawler.views.shares import ring_of
from tests.api.api_lab import Served


def takeover(number: int) -> Takeover:
    return Takeover(
        node="a", session=f"s{number}", by_node="b", by_session="t", partitions=number, silent_ms=5, at=float(number)
    )


async def test_holders_and_suggestions_of_all_partitions(api: Served) -> None:
    crawl = api.crawl
    count = crawl.record.partitions
    _, found = await api.get("/v1/ring/partitions")
    assert found == {"nodes": [], "held": [-1] * count, "suggested": [-1] * count, "shards": []}
    for node in ("left", "right"):
        member = replace(member_of(crawl, node, state="alive"), session=node)
        await crawl.members.join(member)
    first, second, *_ = await crawl.leases.read(range(count))
    await crawl.leases.acquire("left", "left", [(first, 0)])
    await crawl.leases.acquire("gone", "gone", [(second, 0)])
    _, found = await api.get("/v1/ring/partitions")
    assert found["nodes"] == ["gone", "left", "right"]
    assert found["held"] == [1, 0] + [-1] * (count - 2)
    ring = await ring_of(crawl, {"left": 1, "right": 1})
    assert [found["nodes"][n] for n in found["suggested"]] == list(ring.owners)


async def test_the_last_takeovers(api: Served) -> None:
    log = Takeovers(api.crawl.engine, api.crawl.keys)
    for number in range(3):
        await log.note(takeover(number))
    _, found = await api.get("/v1/takeovers?limit=2")
    assert [one["partitions"] for one in found["takeovers"]] == [1, 2]
    assert (await api.get("/v1/takeovers?limit=0"))[0] == 400
