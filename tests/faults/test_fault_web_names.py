"""The names of a third of the domains are looked up slowly, in vain, or lead inside: the others keep their pace."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crawler.rules import addresses
from tests.crawl.harness import Crawled, crawl, settings_of
from tests.faults.instance_lab import LittleWeb, assert_polite, little_web
from tests.support.dns_server import SERVFAIL, DnsAnswer, DnsServer, Table

DOMAINS, PAGES = 18, 6
DELAY_S = 0.2
CONCURRENCY = 4  # as many as there are slow names: did each wait in a worker, there would be none left
SLOW_S = 5.0
GOOD = DnsAnswer(addresses=("127.0.0.1",))
SICK = {
    **{f"d{n}.test": DnsAnswer(addresses=("127.0.0.1",), delay_s=SLOW_S) for n in (0, 3, 6, 9)},
    "d12.test": DnsAnswer(rcode=SERVFAIL),
    "d15.test": DnsAnswer(addresses=("169.254.169.254",)),
}
SLOW = {name for name, answer in SICK.items() if answer.delay_s}
LOST = set(SICK) - SLOW
SHARE = 0.9
ROUNDS = 2  # a second try for the machine's sake; starved domains would lose both


class Recursive(DnsServer):
    """A recursive resolver: once it has an answer, later and waiting queries get it."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._first: dict[str, float] = {}

    def answer_for(self, name: str) -> DnsAnswer:
        rule, now = super().answer_for(name), time.monotonic()
        return replace(rule, delay_s=max(0.0, self._first.setdefault(name, now) + rule.delay_s - now))


@pytest.fixture
def _loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that private addresses can be forbidden, as they are in real crawls."""
    refused = tuple(network for network in addresses._REFUSED_V4 if str(network) != "127.0.0.0/8")
    monkeypatch.setattr(addresses, "_REFUSED_V4", refused)
    addresses.is_public.cache_clear()
    yield
    addresses.is_public.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("_loopback_is_public")
async def test_failing_names_cost_other_domains_a_tenth_of_their_rate(tmp_path: Path) -> None:
    for n in range(ROUNDS):
        usual, _ = await rate(tmp_path / f"healthy{n}", {})
        kept, done = await rate(tmp_path / f"sick{n}", SICK)
        assert done.errors == []
        if kept >= SHARE * usual:
            return
    pytest.fail(f"{kept:.1f} requests a second instead of {usual:.1f}")


async def rate(folder: Path, sick: dict[str, DnsAnswer]) -> tuple[float, Crawled]:
    """Requests a second of the domains whose names are always well, from the first to the last of them."""
    with little_web(DOMAINS, PAGES, delay_s=0.02) as web:
        async with Recursive({"*.test": GOOD} | sick) as dns:
            settings = settings_of(
                folder, dns__nameservers=[dns.address], scope__mode="any",
                fetch__allow_private=False, fetch__concurrency=CONCURRENCY, politeness__delay_s=DELAY_S,
                hosts__probe_s=0.2, hosts__give_up_s=2.0,
            )  # fmt: skip
            done = await crawl(settings, [web.url(f"d{n}.test") for n in range(DOMAINS)])
        requests = web.requests()
    assert_all_is_known(web, done, lost=LOST if sick else set())
    assert_polite(requests, DELAY_S)
    healthy = [r for r in requests if r.host not in SICK]
    return len(healthy) / (healthy[-1].end - healthy[0].start), done


def assert_all_is_known(web: LittleWeb, done: Crawled, *, lost: set[str]) -> None:
    """Slow names are waited for; what can't be reached is missing, and nothing else."""
    expected = {url: status for url, status in web.expected().items() if not any(f"//{name}:" in url for name in lost)}
    assert done.statuses == expected
    assert done.twice == []
