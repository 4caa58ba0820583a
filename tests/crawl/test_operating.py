"""An operator's hand on a crawl that two instances run: orders hold within two seconds, and nothing is lost."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.operate_lab import Desk
from tests.crawl.harness import Crawled, crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S, until
from tests.support.serving import Request, serve_resources
from tests.support.web import Resource

DOMAINS = ("a.test", "b.test", "c.test", "d.test")
PAGES = 60
DELAY_S = 0.05
EFFECTIVE_S = 2.0
QUIET_S = 2.0


def web_of(pages: int = PAGES, answer_s: float = 0.0) -> dict[tuple[str, str], Resource]:
    """A home page for each domain, which leads to all the others."""
    page = Resource(body="<p>a page</p>", delay_s=answer_s)
    web = {(host, f"/{n}"): page for host in DOMAINS for n in range(pages)}
    links = "".join(f'<a href="/{n}">x</a>' for n in range(pages))
    return web | {(host, "/"): Resource(body=links) for host in DOMAINS}


class Lab(Desk):
    """A crawl by two instances, and operator commands while it runs."""

    async def order(self, *words: str) -> str:
        """A command, while the crawl goes on; what it printed."""
        return await asyncio.to_thread(self.say, *words)

    async def crawl(self, meanwhile: Callable[[Any], Any], *, instances: int = 2, **options: Any) -> Crawled:
        async with lab_names() as dns:
            given = {"frontier__redis": self.engine.url, "dns__nameservers": [dns], "politeness__delay_s": DELAY_S}
            done = await crawl(
                settings_of(self.folder, **(given | options)),
                [self.site.url(host) for host in DOMAINS],
                instances=instances,
                meanwhile=meanwhile,
            )
        assert done.errors == []
        assert done.twice == []
        report = json.loads(await self.order("audit", "--json"))
        assert {
            name: found
            for name, found in report["findings"].items()
            if found and found["count"] and found["is_violation"]
        } == {}
        return done

    def pages(self, host: str = "") -> list[Request]:
        return [r for r in self.site.requests() if host in ("", r.host.partition(":")[0]) and not r.is_robots]

    def closest(self, host: str, *, since: float) -> float:
        """The shortest time (s) between two requests to a host."""
        starts = [r.start for r in self.pages(host) if r.start > since]
        return min(later - start for start, later in itertools.pairwise(starts))

    async def first_page(self, host: str, *, since: float) -> float:
        """How long (s) a page is waited for, in turns of this loop: while the machine stands still, none pass."""
        waited = 0.0
        while not any(r.start > since for r in self.pages(host)):
            assert waited < 10, f"{len(self.pages(host))} pages of {host}, and no more"
            await asyncio.sleep(0.05)
            waited += 0.05
        return waited

    async def stopped(self, host: str = "") -> int:
        """How many pages a host has had when no further one comes, though more are left."""
        async with asyncio.timeout(PATIENCE_S):
            before = -1
            while before != (count := len(self.pages(host))):
                before = count
                await asyncio.sleep(QUIET_S)
        assert count < (PAGES + 1) * (1 if host else len(DOMAINS))
        return count

    async def under_way(self) -> None:
        """Every domain has had a few pages."""
        while min(len(self.pages(host)) for host in DOMAINS) < 3:
            await asyncio.sleep(0.05)


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    with serve_resources(web_of()) as site:
        yield Lab(tmp_path, engine, site, capsys)


@pytest.mark.slow(ci=True)
async def test_a_paused_crawl_starts_no_request_and_does_not_end(lab: Lab) -> None:
    async def meanwhile(_: object) -> None:
        await lab.under_way()
        assert "is now paused" in await lab.order("pause")
        await lab.stopped()
        assert "is resumed" in await lab.order("resume")

    done = await lab.crawl(meanwhile)
    assert len(done.entries) == len(DOMAINS) * (PAGES + 1)


@pytest.mark.slow(ci=True)
async def test_a_domain_that_is_paused_waits_while_others_go_on(lab: Lab) -> None:
    pages: dict[str, int] = {}

    async def meanwhile(_: object) -> None:
        await lab.under_way()
        assert "a.test is now paused" in await lab.order("pause", "a.test")
        pages["a.test"] = await lab.stopped("a.test")
        others = min(len(lab.pages("b.test")) + 5, PAGES + 1)
        await until(lambda: len(lab.pages("b.test")) >= others)
        pages["later"] = len(lab.pages("a.test"))
        assert "a.test is resumed" in await lab.order("resume", "a.test")

    done = await lab.crawl(meanwhile, politeness__delay_s=0.1)
    assert pages["later"] == pages["a.test"]
    assert len(done.entries) == len(DOMAINS) * (PAGES + 1)


@pytest.mark.slow(ci=True)
async def test_a_crawl_ends_despite_a_blocked_domain_that_can_be_unblocked(lab: Lab) -> None:
    stopped: list[int] = []

    async def meanwhile(_: object) -> None:
        await lab.under_way()
        assert "a.test is now blocked" in await lab.order("block", "a.test")
        stopped.append(await lab.stopped("a.test"))

    done = await lab.crawl(meanwhile)
    assert len(lab.pages("a.test")) == stopped[0]
    assert len(done.entries) < len(DOMAINS) * (PAGES + 1)
    assert "back in its queue" in await lab.order("unblock", "a.test")
    again = await lab.crawl(_nothing)
    assert len(again.entries) == len(DOMAINS) * (PAGES + 1)


@pytest.mark.slow
@pytest.mark.parametrize("shorter_delay", ["0", "auto"])
async def test_a_delay_holds_within_two_seconds_longer_or_shorter(lab: Lab, shorter_delay: str) -> None:
    gaps: dict[str, float] = {}

    async def meanwhile(_: object) -> None:
        await lab.under_way()
        await lab.order("delay", "a.test", "0.7")
        longer = time.monotonic()
        await asyncio.sleep(EFFECTIVE_S + 2.5)
        gaps["longer"] = lab.closest("a.test", since=longer + EFFECTIVE_S)
        await lab.order("delay", "a.test", "30")
        await asyncio.sleep(EFFECTIVE_S)
        before = time.monotonic()  # a page may come before the command has ended
        await lab.order("delay", "a.test", shorter_delay)
        gaps["shorter"] = await lab.first_page("a.test", since=before)

    done = await lab.crawl(meanwhile, politeness__delay_s=0.1)  # so that enough are left when the delay is 30 s
    assert len(done.entries) == len(DOMAINS) * (PAGES + 1)
    assert gaps["longer"] >= 0.7 - 0.005
    assert gaps["shorter"] < EFFECTIVE_S


@pytest.mark.slow
async def test_a_boosted_domain_has_all_workers_for_itself_within_two_seconds(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """One worker, and four domains that are always due."""
    ordered: list[float] = []

    async def meanwhile(_: object) -> None:
        await lab.under_way()
        assert "boost 3" in await lab.order("boost", "c.test", "3")
        ordered.append(time.monotonic())

    with serve_resources(web_of(answer_s=0.05)) as site:
        lab = Lab(tmp_path, engine, site, capsys)
        done = await lab.crawl(meanwhile, instances=1, politeness__delay_s=0, fetch__concurrency=1)
        end = max(r.start for r in lab.pages("c.test"))
        window = [r.host.partition(":")[0] for r in lab.pages() if ordered[0] + EFFECTIVE_S < r.start <= end]
    assert len(window) > 5
    assert set(window) == {"c.test"}
    assert len(done.entries) == len(DOMAINS) * (PAGES + 1)


async def _nothing(_: object) -> None:
    pass
