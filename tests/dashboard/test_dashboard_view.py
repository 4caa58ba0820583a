"""How the dashboard behaves in a browser: hidden tabs, outages, keyboards, phones, dark rooms, hostile text."""

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from crawler.crawl.opening import OpenCrawl
from crawler.views.losses import Kind, Loss
from crawler.views.whole import losses
from tests.dashboard.dashboard_lab import HOSTILE, Dashboard, Watched, serve_crawl
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(180)]
VIEWS = ("", "domains", "domain/shop0.test", "instances", "dead-letters", "operate")
HIDE = """how => {
    Object.defineProperty(document, "hidden", {value: how === "hidden", configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
COLOUR = "place => getComputedStyle(document.querySelector(place), '::before').backgroundColor"
CUT = """width => [...document.querySelectorAll("main *")]
    .filter(e => !e.closest(".scroll, svg, .visually-hidden, .switch") && e.getBoundingClientRect().right > width + 1)
    .map(e => e.outerHTML.slice(0, 80))"""


def test_a_hidden_tab_sends_nothing_and_is_fresh_when_it_is_seen_again(reader: Watched) -> None:
    page = reader.page
    page.clock.install()
    reader.open("domains")
    expect(page.locator("#connection-text")).to_have_text("live")
    expect(page.locator("#domains-table tbody tr").first).to_be_visible()
    page.evaluate(HIDE, "hidden")
    expect(page.locator("#connection-text")).to_have_text("stopped")
    before = len(reader.requests)
    page.clock.run_for(120_000)
    assert reader.requests[before:] == []
    page.evaluate(HIDE, "seen")
    expect(page.locator("#connection-text")).to_have_text("live")
    assert {url.partition("?")[0].removeprefix(reader.base) for url in reader.requests[before:]} >= {
        "/v1/events",
        "/v1/domains",
    }


def test_an_outage_of_the_server_shows_and_ends_by_itself(dashboard: Dashboard, look: Callable[..., Watched]) -> None:
    first = serve_crawl(dashboard.programs, dashboard.folder)
    port = int(first.base.rpartition(":")[2])
    watched = look(first.base)
    watched.open()
    expect(watched.page.locator("#connection-text")).to_have_text("live")
    watched.expected.append("net::ERR_")
    first.server.kill()
    expect(watched.page.locator("#banner")).to_contain_text("No connection to crawler serve", timeout=1000 * PATIENCE_S)
    serve_crawl(dashboard.programs, dashboard.folder, port)
    expect(watched.page.locator("#banner")).to_be_hidden(timeout=1000 * PATIENCE_S)
    pages = watched.page.locator("#n-pages").inner_text()
    expect(watched.page.locator("#n-pages")).not_to_have_text(pages, timeout=1000 * PATIENCE_S)


def test_without_events_the_page_polls(reader: Watched) -> None:
    reader.expected.append("503")
    reader.page.route("**/v1/events", lambda route: route.fulfill(status=503))
    reader.open()
    expect(reader.page.locator("#connection-text")).to_have_text("polling")
    pages = reader.page.locator("#n-pages").inner_text()
    expect(reader.page.locator("#n-pages")).not_to_have_text(pages, timeout=1000 * PATIENCE_S)


def test_an_outage_of_the_engine_shows_with_its_reason(reader: Watched) -> None:
    problem = {"title": "Service Unavailable", "status": 503, "detail": "the engine does not answer"}
    reader.expected.append("503")

    def refuse(route: "Route") -> None:
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(problem))

    reader.page.route("**/v1/events", refuse)
    reader.open()
    expect(reader.page.locator("#state")).to_have_text("running")
    green = reader.page.evaluate(COLOUR, "#state")
    reader.page.route("**/v1/**", refuse)
    told = "The engine does not answer. This page shows what was known last"
    expect(reader.page.locator("#banner")).to_contain_text(told, timeout=1000 * PATIENCE_S)
    expect(reader.page.locator("#connection-text")).to_have_text("no answer")
    assert reader.page.evaluate(COLOUR, "#state") == reader.page.evaluate(COLOUR, "#connection") != green
    reader.page.unroute("**/v1/**")
    expect(reader.page.locator("#banner")).to_be_hidden(timeout=1000 * PATIENCE_S)
    expect(reader.page.locator("#state")).to_have_text("running", timeout=1000 * PATIENCE_S)
    assert reader.page.evaluate(COLOUR, "#state") == green


@pytest.mark.parametrize("width", [360, 768])
def test_only_tables_scroll_sideways(dashboard: Dashboard, look: Callable[..., Watched], width: int) -> None:
    watched = look(dashboard.base, viewport={"width": width, "height": 740})
    watched.page.goto(dashboard.login_link())
    for view in VIEWS:
        watched.open(view)
        expect(watched.page.locator("main > section:visible h2").first).to_be_attached()
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width, view
        cut = watched.page.evaluate(CUT, width)
        assert cut == [], view


def test_on_a_phone_the_headline_is_one_line_beside_the_overview(
    dashboard: Dashboard, look: Callable[..., Watched]
) -> None:
    watched = look(dashboard.base, viewport={"width": 390, "height": 800})
    for view in VIEWS:
        watched.open(view)
        expect(watched.page.locator("#state")).to_have_text("running")
        box = watched.page.locator(".headline").bounding_box()
        assert box
        assert (box["height"] < 60) is (view != ""), (view, box)


def test_lists_that_were_not_read_yet_tell_so(reader: Watched) -> None:
    reader.page.route(re.compile("/v1/(?!events|overview|session)"), lambda _: None)  # which is never answered
    for view in ("", "domains", "domain/shop0.test", "jobs", "job/ann/news", "instances", "dead-letters", "operate"):
        reader.open(view)
        section = reader.page.locator("main > section:not([hidden])")
        expect(section).to_contain_text("Reading ...")
        for empty in ("None", "No domain", "No job", "No dead letters", "No command", "No instance"):
            expect(section).not_to_contain_text(empty, use_inner_text=True)


def test_dark_and_light_follow_the_system(dashboard: Dashboard, look: Callable[..., Watched]) -> None:
    found = {}
    for scheme in ("light", "dark"):
        watched = look(dashboard.base, color_scheme=scheme)
        watched.open()
        expect(watched.page.locator("#state")).to_have_text("running")
        found[scheme] = watched.page.evaluate(
            "[getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.body).color]"
            ".map(text => text.match(/\\d+/g).slice(0, 3).reduce((n, part) => n + Number(part), 0))"
        )
    assert found["light"][0] > 600 > found["light"][1]
    assert found["dark"][0] < 150 < 500 < found["dark"][1]


def test_everything_works_by_keyboard(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open()
    expect(page.locator("#state")).to_have_text("running")
    page.reload()
    chart = page.get_by_role("slider").first
    expect(chart).to_have_attribute("aria-label", re.compile("at most"), timeout=1000 * PATIENCE_S)
    expect(chart).to_have_attribute(
        "aria-valuemax", re.compile(r"^[1-9]"), timeout=1000 * PATIENCE_S
    )  # two points at least
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    chart.focus()
    page.keyboard.press("End")
    last = chart.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    expect(page.locator(".tip").first).to_be_visible()
    assert chart.get_attribute("aria-valuetext") != last
    writer.open("domain/shop2.test")
    page.get_by_role("button", name="Pause", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Pause shop2.test?")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()


def test_domains_are_sorted_searched_and_paged(reader: Watched) -> None:
    page = reader.page
    reader.open("domains")
    rows = page.locator("#domains-table tbody tr")
    expect(rows).not_to_have_count(0)
    page.get_by_role("button", name="Queued").click()
    expect(page.get_by_role("columnheader", name="Queued")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Order").select_option("name")
    page.get_by_role("combobox", name="Rows").select_option("25")
    expect(page.get_by_role("columnheader", name="Domain")).to_have_attribute("aria-sort", "ascending")
    expect(page.get_by_role("button", name="Next page")).to_be_hidden()
    page.get_by_role("searchbox", name="Search").fill("shop1")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("shop1.test")
    page.get_by_role("searchbox", name="Search").fill("nothing-like-this")
    expect(page.locator("#domains-empty")).to_contain_text("nothing-like-this")
    reader.expected.append("404")
    reader.open("domain/never.test")
    expect(page.locator("#domain-sentence")).to_contain_text("has not met")


def test_the_names_of_a_page_survive_a_page_turn(dashboard: Dashboard, reader: Watched) -> None:
    """With pages of 25 of 60 domains, made up here: Next, Previous and First do what they say."""
    sent: list[str] = []

    def answer(route: "Route") -> None:
        query = route.request.url.partition("?")[2]
        sent.append(query)
        after = query.partition("after=")[2]
        begin = int(after[1:3]) + 1 if after else 0
        names = [f"d{n:02}.test" for n in range(begin, min(begin + 25, 60))]
        rows = [_row(name) for name in names]
        following = names[-1] if begin + 25 < 60 else ""
        route.fulfill(json={"sort": "name", "rows": rows, "total": 60, "next": following})

    reader.page.route("**/v1/domains?*by_name*", answer)
    reader.open("domains")
    reader.page.get_by_role("combobox", name="Rows").select_option("25")
    reader.page.get_by_label("Order").select_option("name")
    first = reader.page.locator("#domains-table tbody tr").first
    expect(first).to_contain_text("d00.test")
    for expected in ("d25.test", "d50.test"):
        reader.page.get_by_role("button", name="Next page").click()
        expect(first).to_contain_text(expected)
    expect(reader.page.get_by_role("button", name="Next page")).to_be_disabled()
    reader.page.get_by_role("button", name="Previous page").click()
    expect(first).to_contain_text("d25.test")
    reader.page.get_by_role("button", name="First page").click()
    expect(first).to_contain_text("d00.test")
    expect(reader.page.locator("#domains-total")).to_have_text("60")


def _row(name: str) -> dict[str, Any]:
    text: dict[str, Any] = dict.fromkeys(("stop", "last_error", "owner"), HOSTILE)
    counts = dict.fromkeys(
        (
            "partition", "boost", "queued", "claimed", "retrying", "pending", "fetched", "bytes", "retries", "dead",
            "robots_denied", "fetch_ms", "items", "items_invalid", "delay_ms", "next_fetch_in_ms", "last_error_at",
            "epoch",
        ),
        1,
    )  # fmt: skip
    status = {"2": 1, HOSTILE: 2}
    return counts | text | {
        "domain": name, "state": HOSTILE, "in_flight": None, "status": status, "errors": {HOSTILE: 3},
        "refused": {HOSTILE: 1}, "latency_ms": None, "rates": None,
    }  # fmt: skip


def test_hostile_text_in_every_field_stays_text(reader: Watched) -> None:
    """Whatever strings the API gives: all of them are replaced by markup on their way."""

    def poisoned(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: poisoned(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [poisoned(one) for one in value]
        return HOSTILE if isinstance(value, str) and name not in ("next", "csrf_token") else value

    def answer(route: "Route") -> None:
        if "/v1/events" in route.request.url:
            route.fulfill(status=503)
            return
        found = route.fetch()
        route.fulfill(status=found.status, json=poisoned(found.json()))

    reader.expected.append("503")
    reader.page.route("**/v1/**", answer)
    for view in VIEWS:
        reader.open(view)
        expect(reader.page.locator("#crawl-name")).to_have_text(HOSTILE)
        expect(reader.page.locator("main")).to_contain_text("<img", timeout=1000 * PATIENCE_S)
    assert reader.page.locator("body img").count() == 0
    assert reader.page.evaluate("document.title") != "owned"


async def read_losses(crawl: OpenCrawl) -> list[Loss]:
    return await losses(crawl)


def test_the_overview_lists_what_is_missing_in_the_results(dashboard: Dashboard, reader: Watched) -> None:
    reader.open()
    rows = reader.page.locator("#losses tbody tr")
    expect(rows.first).to_be_visible()
    found = [one for one in dashboard.ask(read_losses) if one.kind is Kind.GIVEN_UP]
    assert found
    for one in found:
        expect(rows.filter(has_text=one.reason)).to_contain_text(f"{one.kind}{one.reason}{one.example}{one.advice}")


def test_times_of_a_domain_are_in_the_time_zone_of_the_reader(
    dashboard: Dashboard, look: Callable[..., Watched]
) -> None:
    watched = look(dashboard.base, timezone_id="Asia/Tokyo")
    watched.open("domain/shop0.test")
    facts = watched.page.locator("#domain-facts")
    expect(facts).to_contain_text("read at", timeout=1000 * PATIENCE_S)
    read_at = re.search(r"read at (?:[\d-]+ )?(\d\d):\d\d:\d\d$", facts.locator("dd", has_text="read at").inner_text())
    assert read_at
    assert "UTC" not in facts.inner_text()
    now = datetime.now(ZoneInfo("Asia/Tokyo"))
    assert int(read_at[1]) in {(now - timedelta(hours=n)).hour for n in range(3)}


@pytest.mark.parametrize("width", [360, 390, 700, 800, 1100, 1280])
def test_no_tile_stands_alone_and_each_row_is_full(
    dashboard: Dashboard, look: Callable[..., Watched], width: int
) -> None:
    watched = look(dashboard.base, viewport={"width": width, "height": 800})
    watched.open()
    expect(watched.page.locator("#s-age")).to_contain_text("since")
    whole, tiles = watched.page.evaluate(
        "() => [document.querySelector('.tiles').clientWidth, [...document.querySelectorAll('.tiles > div')]"
        ".map(one => [one.offsetTop, one.offsetWidth])]"
    )
    rows = [[w for top, w in tiles if top == row] for row in sorted({top for top, _ in tiles})]
    assert all(len(row) > 1 and abs(sum(row) - whole) < len(row) for row in rows), rows
