"""Seeds that redirect, in whole crawls: on several machines, after a loss of the engine, and seeded since."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from crawler.crawl.admission import bound_of
from crawler.crawl.opening import make_seeder, open_crawl
from crawler.frontier.record import record_of
from crawler.frontier.stats import SEED_LED_AWAY
from crawler.views.facts import explain
from crawler.views.losses import losses_of
from crawler.views.summary import summary
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import Lab, audit, given, opened, rebuild
from tests.support.engine import Engine
from tests.support.serving import serve_linked
from tests.support.web import Resource

OLD, NEW, DOCS = "old.test", "new.test", "docs.test"


def moved(to: str) -> Resource:
    return Resource(status=301, headers={"Location": to})


def web(port: int) -> dict[tuple[str, str], Resource]:
    return {
        (OLD, "/"): moved(f"http://{NEW}:{port}/"),
        (NEW, "/"): moved("/home"),
        (NEW, "/home"): Resource(body=f"<a href='/a'>a</a> <a href='//{OLD}:{port}/b'>b</a> <a href='/c'>c</a>"),
        (NEW, "/a"): Resource(body="<a href='/c'>c</a>"),
        (NEW, "/c"): Resource(body="<p>a leaf</p>"),
        (OLD, "/b"): Resource(body="<p>a leaf</p>"),
        (DOCS, "/docs"): moved("/docs/"),
        (DOCS, "/docs/"): Resource(body="<a href='/docs/1'>in</a> <a href='/out'>out</a>"),
        (DOCS, "/docs/1"): Resource(body="<a href='/docs/2'>in</a>"),
        (DOCS, "/docs/2"): Resource(body="<p>a leaf</p>"),
        (DOCS, "/out"): Resource(body="<p>a leaf</p>"),
    }


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[Lab]:
    with serve_linked(web) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, tmp_path)


@pytest.mark.slow(ci=True)
async def test_of_another_site_only_where_the_seed_leads_is_fetched_until_it_is_seeded(lab: Lab) -> None:
    """Its links are known from the archive by then: the page is not fetched again."""
    settings = lab.settings(scope__mode="domain")
    seed, target = lab.site.url(OLD), lab.site.url(NEW, "/home")
    first = {seed, lab.site.url(NEW), target, lab.site.url(OLD, "/b")}
    assert {*(await crawl(settings, [seed])).statuses} == first
    async with opened(settings) as found:
        totals = await found.stats.totals()
        assert totals.lost == {SEED_LED_AWAY: 1}
        text = await summary(found, totals, losses_of(totals, {}), new=4, seconds=1, why="finished", outputs=())
        facts = await explain(found, lab.site.url(NEW, "/a"))
    assert f"1 seed redirects out of the scope, so only the page there is fetched: {seed} -> {target}." in text
    assert f"crawler seed --dir {settings.archive.dir} {target}," in text
    assert f"the seed {seed} redirects to {target} there: 'crawler seed {target}'" in facts.scope.rule
    for _ in range(2):  # as often as one likes
        async with opened(settings) as found:
            await make_seeder(found).add_all([given(target)])
        whole = (await crawl(settings, [])).statuses
        assert {*whole} == first | {lab.site.url(NEW, "/a"), lab.site.url(NEW, "/c")}
    assert max(lab.asked().values()) == 1
    assert await audit(settings) == 0
    async with opened(settings) as found:
        assert "out of the scope" not in await summary(found, totals, [], new=0, seconds=1, why="finished", outputs=())
    lab.engine.flush()
    await rebuild(settings)
    assert (await crawl(settings, [])).statuses == whole
    assert max(lab.asked().values()) == 1


async def test_nothing_but_redirects_to_other_sites_is_the_headline(lab: Lab) -> None:
    settings = lab.settings(scope__mode="domain", scope__exclude=["/b"])
    await crawl(settings, [lab.site.url(OLD)])
    async with opened(settings) as found:
        text = await summary(found, await found.stats.totals(), [], new=3, seconds=1, why="finished", outputs=())
    assert text.startswith("Each seed redirects out of the scope, so only the page there is fetched: ")


async def test_a_record_that_is_elsewhere_is_said(lab: Lab) -> None:
    """The site is open then, and its other pages may be seeded."""
    await crawl(lab.settings(scope__mode="domain"), [lab.site.url(OLD)])
    async with open_crawl(lab.settings("elsewhere", scope__mode="domain"), create=True) as found:
        report = await make_seeder(found).add_all([given(lab.site.url(NEW, "/home"))])
    assert report.unread == [lab.site.url(NEW, "/home")]
    assert "its record is in another folder" in report.unread_notes[0]


@pytest.mark.slow(ci=True)
async def test_a_folder_without_its_slash_opens_the_folder_and_no_more(lab: Lab) -> None:
    settings = lab.settings(scope__mode="prefix")
    inside = {lab.site.url(DOCS, path) for path in ("/docs", "/docs/", "/docs/1", "/docs/2")}
    begun = await crawl(lab.settings(scope__mode="prefix", crawl__pages_max=2), [lab.site.url(DOCS, "/docs")])
    assert len(begun.entries) == 2
    lab.engine.flush()
    await rebuild(settings)
    assert {*(await crawl(settings, [])).statuses} == inside
    assert await audit(settings) == 0


async def test_a_crawl_of_a_release_that_followed_redirects_everywhere_goes_on_to_do_so(lab: Lab) -> None:
    settings = lab.settings()
    async with open_crawl(settings, create=True) as found:
        stored = msgspec.json.decode(msgspec.json.encode(found.record))
        assert record_of(stored).scope.redirected_seeds == "site"
        noted = bound_of("main", found.record).record
        assert noted["scope"]["redirected_seeds"] == "site"
