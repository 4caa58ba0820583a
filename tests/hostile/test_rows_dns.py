"""What name servers do wrong (D), through the fetcher that asks them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.audit.judge_sameness import DOMAINS_MIN
from crawler.cli.main import main
from crawler.model import FailureKind
from crawler.settings import DnsSettings, FetchSettings, Settings
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from tests.hostile.crawled import Site, crawl_all, ok
from tests.support.dns_server import NXDOMAIN, REFUSED, SERVFAIL, DnsAnswer, DnsServer
from tests.support.hostile_server import HostileServer
from tests.support.patience import PATIENCE_S
from tests.web.fetching import HELLO, kind_of, response_of

HERE = "127.0.0.1"
DEAD = "127.0.0.99"  # nobody listens there


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def fetching(
    table: Mapping[str, DnsAnswer | list[str]], *, allow_private: bool = True, clock: Clock | None = None, **dns: float
) -> AsyncIterator[tuple[Fetcher, DnsServer, str]]:
    """A fetcher, its name server, and the rest of a URL after the host's name."""
    async with DnsServer(table, tcp=True) as server, HostileServer(HELLO) as web:
        settings = Settings(
            fetch=FetchSettings(allow_private=allow_private, connect_timeout_s=1.0, total_timeout_s=3.0),
            dns=DnsSettings(nameservers=(server.address,), **{"timeout_s": 0.5, "tries": 2, **dns}),  # type: ignore[arg-type]
        )
        resolver = CachingResolver(settings.dns, allow_private=allow_private, clock=clock or Clock())
        async with Fetcher(settings, resolver=resolver, version="1") as fetcher:
            yield fetcher, server, f":{web.port}/"
        await resolver.close()


async def not_there() -> None:
    """And for others it makes no difference."""
    table = {"none.test": DnsAnswer(rcode=NXDOMAIN), "empty.test": DnsAnswer(), "good.test": [HERE]}
    async with fetching(table) as (fetcher, server, rest):
        for _ in range(3):
            for host in ("none.test", "empty.test"):
                assert kind_of(await fetcher.fetch(f"http://{host}{rest}")) is FailureKind.DNS_NOT_FOUND
            assert response_of(await fetcher.fetch(f"http://good.test{rest}")).status == 200
        assert server.asked("none.test") == 1, "remembered"


async def failing_servers() -> None:
    """Each kind at once, next to healthy names: these are all found, and no failure is taken for an absent name."""
    bad = {
        "servfail": DnsAnswer(rcode=SERVFAIL), "refused": DnsAnswer(rcode=REFUSED), "formerr": DnsAnswer(rcode=1),
        "notimp": DnsAnswer(rcode=4), "silent": DnsAnswer(silent=True), "malformed": DnsAnswer(malformed=True),
        "empty": DnsAnswer(raw=b""), "garbage": DnsAnswer(raw=b"\x81\x80" + b"\xff" * 60),
        "late": DnsAnswer(malformed=True, delay_s=0.03),
    }  # fmt: skip
    table = {f"*.{name}.test": rule for name, rule in bad.items()} | {
        "*.good.test": DnsAnswer(addresses=[HERE], delay_s=0.05)
    }
    async with fetching(table, timeout_s=1.0) as (fetcher, _, rest):

        async def kind(host: str) -> FailureKind | None:
            result = await fetcher.fetch(f"http://{host}{rest}")
            return result.failure.kind if result.failure else None

        hosts = [f"{n}.{name}.test" for n in range(3) for name in ("good", *bad)]
        found = dict(zip(hosts, await asyncio.gather(*map(kind, hosts)), strict=True))
    good = {host: kind for host, kind in found.items() if host.endswith(".good.test")}
    assert set(good.values()) == {None}
    assert {kind for host, kind in found.items() if host not in good} == {FailureKind.DNS_ERROR}


async def truncated() -> None:
    async with fetching({"long.test": DnsAnswer(truncated=True, addresses=[HERE])}) as (fetcher, _, rest):
        assert response_of(await fetcher.fetch(f"http://long.test{rest}")).status == 200


async def slow() -> None:
    """Names that take long hold up nobody else."""
    table = {"*.slow.test": DnsAnswer(addresses=[HERE], delay_s=3.0), "*.good.test": [HERE]}
    async with fetching(table, timeout_s=4.0) as (fetcher, _, rest):
        slow = [asyncio.create_task(fetcher.fetch(f"http://{n}.slow.test{rest}")) for n in range(20)]
        await asyncio.sleep(0)
        for n in range(20):
            assert response_of(await fetcher.fetch(f"http://{n}.good.test{rest}")).status == 200
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def rebinding() -> None:
    """An address is judged when connecting, and again when the name is looked up again."""
    clock = Clock()
    rule = DnsAnswer(times=[["93.184.216.34"], [HERE]], ttl=0)
    async with fetching({"rebind.test": rule}, allow_private=False, clock=clock) as (fetcher, server, rest):
        assert await fetcher.address_of(f"http://rebind.test{rest}") == "93.184.216.34"
        assert await fetcher.address_of(f"http://rebind.test{rest}") == "93.184.216.34", (
            "kept for a minute, TTL 0 or not"
        )
        assert server.asked("rebind.test") == 1
        clock.now += 61
        assert kind_of(await fetcher.fetch(f"http://rebind.test{rest}")) is FailureKind.ADDRESS_REFUSED


async def times_to_live() -> None:
    for ttl, least_s, most_s in ((0, 60, 60), (2**31 - 1, 3600, 3600), (2**31, 60, 3600), (2**32 - 1, 60, 3600)):
        clock = Clock()
        async with fetching({"a.test": DnsAnswer(addresses=[HERE], ttl=ttl)}, clock=clock) as (fetcher, _, rest):
            url = f"http://a.test{rest}"
            await fetcher.fetch(url)
            clock.now += least_s - 1
            assert fetcher.known_address_of(url) == HERE
            clock.now += most_s - least_s + 2
            assert fetcher.known_address_of(url) is None


async def aliases() -> None:
    table = {
        "loop.test": DnsAnswer(cname=["b.test", "loop.test", "b.test", "loop.test"]),
        "self.test": DnsAnswer(cname="self.test"),
        "chain.test": DnsAnswer(cname=[f"c{n}.test" for n in range(50)], addresses=[HERE]),
        "short.test": DnsAnswer(cname=[f"c{n}.test" for n in range(5)], addresses=[HERE]),
    }
    async with fetching(table) as (fetcher, _, rest):
        for host in ("loop.test", "self.test", "chain.test"):
            kind = kind_of(await fetcher.fetch(f"http://{host}{rest}"))
            assert kind in (FailureKind.DNS_ERROR, FailureKind.DNS_NOT_FOUND)
        assert response_of(await fetcher.fetch(f"http://short.test{rest}")).status == 200


async def an_alias_of_a_private_name() -> None:
    table = {"a.test": DnsAnswer(cname="inside.test", addresses=["10.0.0.1"])}
    async with fetching(table, allow_private=False) as (fetcher, _, rest):
        assert kind_of(await fetcher.fetch(f"http://a.test{rest}")) is FailureKind.ADDRESS_REFUSED


async def a_thousand_addresses() -> None:
    addresses = [HERE, *(f"127.1.{n // 250}.{n % 250 + 1}" for n in range(999))]
    async with fetching({"many.test": DnsAnswer(truncated=True, addresses=addresses)}) as (fetcher, _, rest):
        assert response_of(await fetcher.fetch(f"http://many.test{rest}")).status == 200
        assert len(await fetcher._resolver.lookup("many.test")) == 4


async def dead_addresses() -> None:
    """A dead one before a live one costs a quarter of a second; all dead is a failure to connect."""
    table = {"half.test": [DEAD, HERE], "both.test": [DEAD, "::1", HERE], "dead.test": [DEAD]}
    async with fetching(table) as (fetcher, _, rest):
        for host in ("half.test", "both.test"):
            assert response_of(await fetcher.fetch(f"http://{host}{rest}")).status == 200
        assert kind_of(await fetcher.fetch(f"http://dead.test{rest}")) is FailureKind.CONNECT


ROWS: dict[str, Callable[[], Awaitable[None]]] = {
    "D01-not-there": not_there,
    "D02-failing-servers": failing_servers,
    "D02-truncated": truncated,
    "D03-slow": slow,
    "D04-rebinding": rebinding,
    "D05-times-to-live": times_to_live,
    "D06-aliases": aliases,
    "D06-an-alias-of-a-private-name": an_alias_of_a_private_name,
    "D07-a-thousand-addresses": a_thousand_addresses,
    "D07-dead-addresses": dead_addresses,
}


@pytest.mark.parametrize("row", ROWS)
async def test_row(row: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await ROWS[row]()


PORTAL = ok("<p>Log in to the network</p>")
PORTALS = {f"D09-portal-{n}": Site({"/": PORTAL}, wanted=("/",)) for n in range(DOMAINS_MIN)}
OTHERS = {f"D09-other-{n}": Site({"/": ok(f"<p>{n}</p>"), "/same": PORTAL}) for n in range(3)}
EMPTY = {f"D09-empty-{n}": Site({"/": ok("")}) for n in range(DOMAINS_MIN)}
ONE_DOMAIN = {
    f"D09-one-{n}.all": Site({"/": ok("<p>one domain, many hosts</p>")}, wanted=("/",)) for n in range(DOMAINS_MIN)
}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("row", ["D09-captive-portal"])
def test_row_of_one_page_under_many_names(row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The audit tells of it; it is no fault of the crawl."""
    crawl_all({**PORTALS, **OTHERS, **EMPTY, **ONE_DOMAIN}, tmp_path / row)
    capsys.readouterr()
    assert main(["audit", "--dir", str(tmp_path / row), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]["same_pages"]
    assert (found["count"], found["is_violation"]) == (1, False)
    assert found["examples"][0]["domains"] == DOMAINS_MIN
    assert found["examples"][0]["url"].startswith("http://d09-portal-")
