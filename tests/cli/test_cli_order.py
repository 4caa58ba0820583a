"""The order of a crawl from the command line: given once, shown, kept; and what a sitemap says is heard."""

import json
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, Ran, crawler, in_process, page
from tests.support.processes import Nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

ONE_AT_A_TIME = ("-c", "1", "--delay", "0.01", "--set", "frontier.claim_urls_max=1")
ENTRIES = {
    "/old": "<lastmod>2024-01-05T10:00:00Z</lastmod>",
    "/new": "<lastmod>2024-03-01</lastmod>",
    "/older": "<lastmod>2023</lastmod>",
}


def said(ran: Ran) -> str:
    assert ran.code == 0, ran.err
    return ran.out


def test_a_sitemap_with_dates_is_crawled_newest_first(programs: Nursery, tmp_path: Path) -> None:
    entries = "".join(f"<url><loc>{target}</loc>{more}</url>" for target, more in ENTRIES.items())
    pages = {(HOST, target): page() for target in ENTRIES}
    pages[HOST, "/map.xml"] = Resource(content_type="application/xml", body=f"<urlset>{entries}</urlset>")
    where = ("--dir", str(tmp_path / "c"), "--allow-private")
    with serve_resources(pages) as site:
        sitemap = ("--sitemap", site.url(HOST, "/map.xml"))
        said(in_process(programs, "seed", *sitemap, "--order", "freshness", *where))
        said(in_process(programs, "crawl", "--order", "freshness", *where, *ONE_AT_A_TIME))
        asked = [r.target for r in site.requests() if r.target in ENTRIES]
    assert asked == ["/new", "/old", "/older"]


@pytest.mark.slow(ci=True)
def test_the_order_is_shown_and_kept_and_another_one_is_refused_in_one_line(programs: Nursery, tmp_path: Path) -> None:
    rules = "frontier.rules=[{match = '/news/', add = 2.0}, {match = 'a,b', add = -1}]"
    with serve_resources({(HOST, "/"): page()}) as site:
        first = ("crawl", site.url(HOST), "--dir", str(tmp_path / "c"), *QUICK)
        said(in_process(programs, *first, "--order", "freshness", "--set", rules))
        stats = ("stats", "--dir", str(tmp_path / "c"))
        assert "\norder     freshness (half-life 1 d 00 h, 2 rules)" in said(in_process(programs, *stats))
        shown = json.loads(said(in_process(programs, *stats, "--json")))["ordering"]
        assert (shown["order"], shown["rules"][0]) == ("freshness", {"match": "/news/", "add": 2.0})
        said(in_process(programs, *first))
        said(in_process(programs, *first, "--order", "freshness", "--set", rules))
        for other in (["--order", "breadth"], ["--order", "priority"], ["--set", "frontier.half_life_s=60"]):
            refused = in_process(programs, *first, *other)
            assert (refused.code, refused.err.count("\n")) == (2, 1)
            assert "this crawl has frontier." in refused.err


@pytest.mark.slow(ci=True)
def test_several_instances_are_handed_the_order_with_its_rules(programs: Nursery, tmp_path: Path) -> None:
    rules = ("--order", "priority", "--set", "frontier.rules=[{match = '/p', add = 2.0}]")
    with serve_resources({(HOST, "/"): page("/p"), (HOST, "/p"): page()}) as site:
        done = crawler(programs, "crawl", site.url(HOST), "-n", "2", "--dir", str(tmp_path / "c"), *QUICK, *rules)
    assert (done.code, "2 pages" in done.out) == (0, True), done.err
