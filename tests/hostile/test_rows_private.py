"""No connection to a private address on any path that a site chooses (R02, I10): pages, robots.txt, sitemaps, names.

127.0.0.1 stands for a public address here, and 127.0.0.2 for one that is not.
"""

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.sitemap_reader import SitemapReader
from crawler.errors import NothingFetchedError
from crawler.model import FailureKind
from crawler.rules import addresses
from crawler.web import resolver
from tests.crawl.harness import crawl, settings_of
from tests.hostile.crawled import links, moved, ok
from tests.hostile.test_rows_sitemaps import Granted, index
from tests.support.dns_server import DnsAnswer, DnsServer
from tests.support.hostile_server import HostileServer, Step
from tests.web.fetching import HELLO, fetching, kind_of

NAMES = {
    "inside.test": ["127.0.0.2"],
    "both.test": ["127.0.0.2", "10.1.2.3"],
    "alias.test": DnsAnswer(cname="inside.test", addresses=["127.0.0.2"]),
    "*.test": ["127.0.0.1"],
}
INSIDE = ("inside.test", "both.test", "alias.test", "127.0.0.2", "0x7f000002", "[::ffff:127.0.0.2]")


@pytest.fixture(autouse=True)
def _one_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_public(address: str) -> bool:
        try:
            return ipaddress.ip_address(address) == ipaddress.ip_address("127.0.0.1")
        except ValueError:
            return False

    monkeypatch.setattr(resolver, "is_public", is_public)
    monkeypatch.setattr(addresses, "is_public", is_public)


@pytest.mark.parametrize("row", ["R02-by-links-redirects-and-robots.txt"])
async def test_row(row: str, tmp_path: Path) -> None:
    by_path: dict[str, Sequence[Step]] = {}
    async with (
        HostileServer(HELLO, by_path=by_path) as server,
        HostileServer(HELLO, host="127.0.0.2", port=server.port) as inside,
        DnsServer(NAMES) as dns,
    ):
        targets = [f"http://{host}:{server.port}/secret" for host in INSIDE]
        no_rules = [ok("", "text/plain")]
        by_path |= {"linking.test/": [links(*targets)], "moving.test/": [links(*(f"/{n}" for n in range(len(INSIDE))))]}
        by_path |= {f"moving.test/{n}": [moved(target)] for n, target in enumerate(targets)}
        by_path |= {"linking.test/robots.txt": no_rules, "moving.test/robots.txt": no_rules}
        by_path |= {f"robots{n}.test/robots.txt": [moved(target)] for n, target in enumerate(targets)}
        settings = settings_of(
            tmp_path / "c", dns__nameservers=[dns.address], fetch__allow_private=False, scope__mode="any",
            crawl__time_max_s=20.0, retry__attempts=1,
        )  # fmt: skip
        hosts = ["linking.test", "moving.test", *(f"robots{n}.test" for n in range(len(INSIDE)))]
        done = await crawl(settings, [f"http://{host}:{server.port}/" for host in hosts])
        assert [i.stopped_because for i in done.instances] == ["finished"]
        assert inside.connections == 0
        assert {f"http://moving.test:{server.port}/{n}" for n in range(len(INSIDE))} <= set(done.statuses)
        assert not [url for url in done.statuses if "//robots" in url or "secret" in url]


@pytest.mark.parametrize("row", ["R02-by-sitemaps"])
async def test_row_of_sitemaps(row: str) -> None:
    by_path: dict[str, Sequence[Step]] = {}
    async with (
        HostileServer(HELLO, by_path=by_path) as server,
        HostileServer(HELLO, host="127.0.0.2", port=server.port) as inside,
        fetching(table=NAMES, allow_private=False) as fetcher,
    ):
        target, start = f"http://inside.test:{server.port}/map", f"http://a.test:{server.port}"
        by_path |= {"/map.xml": [ok(index(target, f"{start}/moved"))], "/moved": [moved(target)]}
        granted: Any = Granted()
        assert [found.urls async for found in SitemapReader(fetcher, granted).read(f"{start}/map.xml")]
        with pytest.raises(NothingFetchedError, match="private address"):
            assert [found async for found in SitemapReader(fetcher, granted).read(f"{start}/moved")]
        assert inside.connections == 0


@pytest.mark.parametrize("row", ["R02-through-a-gateway"])
async def test_row_of_gateways(row: str) -> None:
    """What is asked for through a gateway is judged all the same, and so is the gateway."""
    async with (
        HostileServer(HELLO) as server,
        HostileServer(HELLO, host="127.0.0.2", port=server.port) as inside,
        fetching(table=NAMES, allow_private=False, gateway=f"127.0.0.1:{server.port}") as fetcher,
        fetching(table=NAMES, allow_private=False, gateway=f"127.0.0.2:{server.port}") as wrong,
    ):
        for host in ("inside.test", "both.test", "alias.test", "127.0.0.2"):
            assert kind_of(await fetcher.fetch(f"http://{host}/")) is FailureKind.ADDRESS_REFUSED
        assert kind_of(await wrong.fetch("http://a.test/")) is FailureKind.ADDRESS_REFUSED
        assert (server.connections, inside.connections) == (0, 0)
