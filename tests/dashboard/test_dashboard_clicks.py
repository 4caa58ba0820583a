"""The dashboard in a real browser changes a real crawl, and only for who may."""

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator import Overrides
from tests.dashboard.dashboard_lab import HOSTILE, Dashboard, Watched
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(180)]
SHOP = "shop0.test"


async def overrides(crawl: OpenCrawl) -> Overrides:
    return await crawl.operator.overrides()


def confirm(page: Watched, button: str) -> None:
    """Press the main button of the dialog that is open."""
    dialog = page.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()


def test_who_did_not_log_in_reads_everything_and_changes_nothing(dashboard: Dashboard, reader: Watched) -> None:
    page = reader.page
    reader.open()
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#connection-text")).to_have_text("live")
    expect(page.locator("#read-only")).to_contain_text("one-time link")
    expect(page.get_by_role("button", name="Pause the crawl")).to_be_hidden()
    reader.open(f"domain/{SHOP}")
    expect(page.locator("#domain-sentence")).not_to_be_empty()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_have_count(0)
    reader.open("operate")
    expect(page.locator("#seed-form")).to_be_hidden()
    log, view = page.locator("#log").bounding_box(), page.locator("#main").bounding_box()
    assert log
    assert view
    assert log["width"] > 0.9 * view["width"], "what is left has the room"


def test_the_link_works_once(dashboard: Dashboard, reader: Watched) -> None:
    link = dashboard.login_link()
    reader.page.goto(link)
    expect(reader.page.get_by_role("button", name="Pause the crawl")).to_be_visible()
    expect(reader.page.locator("#read-only")).to_be_hidden()
    assert reader.page.url == f"{dashboard.base}/"
    reader.expected += ["403", "404"]  # the refusal, and an icon that it does not have
    answer = reader.page.goto(link)
    assert answer is not None
    assert answer.status == 403


def test_a_click_on_pause_reaches_the_crawl_and_one_on_resume_ends_it(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open(f"domain/{SHOP}")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert SHOP not in dashboard.ask(overrides).paused
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(writer, "Pause")
    expect(page.locator("#toast-text")).to_contain_text(f"{SHOP} is now paused")
    expect(page.locator("#domain-state")).to_have_text("paused")
    expect(page.locator("#domain-sentence")).to_contain_text("paused by an operator")
    assert dashboard.ask(overrides).paused == {SHOP}
    resume = page.get_by_role("button", name="Resume", exact=True)
    expect(resume, "the focus stays").to_be_focused()
    resume.click()
    confirm(writer, "Resume")
    expect(page.locator("#domain-state")).not_to_have_text("paused")
    assert not dashboard.ask(overrides).paused


def test_block_boost_and_delay_are_given_to_the_crawl(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open("domain/shop1.test")
    page.get_by_role("button", name="Block").click()
    confirm(writer, "Block")
    expect(page.locator("#domain-state")).to_have_text("blocked")
    page.get_by_role("button", name="Unblock").click()
    confirm(writer, "Unblock")
    page.get_by_role("button", name="Boost…").click()
    page.get_by_label("Boost, from -9 to 9").fill("7")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Boost (7)…")).to_be_visible()
    page.get_by_role("button", name="Delay…").click()
    page.get_by_label("Seconds between two requests").fill("2.5")
    confirm(writer, "Set the delay")
    expect(page.locator("#domain-facts")).to_contain_text("2.5 s (by an operator)")
    found = dashboard.ask(overrides)
    assert (found.blocked, found.boosts, found.delays_ms) == (set(), {"shop1.test": 7}, {"shop1.test": 2500})
    page.get_by_role("button", name="Delay (2.5 s)…").click()
    page.get_by_label("Seconds between two requests").fill("")
    confirm(writer, "Set the delay")
    expect(page.get_by_role("button", name="Delay…")).to_be_visible()
    assert dashboard.ask(overrides).delays_ms == {}


def test_a_command_that_is_refused_says_why(writer: Watched) -> None:
    writer.open("domain/shop1.test")
    writer.page.get_by_role("button", name="Delay…").click()
    writer.page.get_by_label("Seconds between two requests").fill("0.01")
    writer.expected.append("422")
    confirm(writer, "Set the delay")
    expect(writer.page.locator("#toast-text")).to_contain_text("Not done: shop1.test: 0.3 s")


def test_the_whole_crawl_is_paused_and_resumed(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open()
    page.get_by_role("button", name="Pause the crawl").click()
    confirm(writer, "Pause")
    expect(page.locator("#state")).to_have_text("paused")
    assert dashboard.ask(overrides).is_paused
    expect(page.locator("#state-text")).to_contain_text("wait for 'crawler resume'.")
    expect(page.get_by_role("button", name="Resume the crawl"), "the focus stays").to_be_focused()
    page.get_by_role("button", name="Resume the crawl").click()
    confirm(writer, "Resume")
    expect(page.locator("#state")).to_have_text("running")


def test_dead_letters_are_retried_by_reason(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open("dead-letters")
    row = page.locator("#dead-reasons tr", has_text="server error")
    expect(row).to_be_visible(timeout=1000 * PATIENCE_S)
    row.get_by_role("button", name="Retry all").click()
    confirm(writer, "Retry")
    expect(page.locator("#toast-text")).to_have_text("1 URL put back.")
    expect(row).to_have_count(0)
    writer.open("domain/broken.test")
    expect(page.locator("#domain-sentence")).to_contain_text("(1 page)", timeout=1000 * PATIENCE_S)


def test_a_seed_is_added_and_what_is_wrong_is_told(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open("operate")
    page.get_by_label("URLs, one per line").fill("http://new.test/\n\nnonsense://x\n")
    page.get_by_role("button", name="Add seeds").click()
    expect(page.locator("#seed-result")).to_contain_text("1 new, 1 invalid.")
    expect(page.locator("#seed-result")).to_contain_text("nonsense://x: ")
    expect(page.locator("#log li").first).to_contain_text("browser (api): seed, 2 URLs")
    writer.open("domains")
    page.get_by_role("searchbox", name="Search").fill("new")
    expect(page.get_by_role("row", name="new.test")).to_contain_text("done", timeout=1000 * PATIENCE_S)


def test_one_url_is_explained(reader: Watched) -> None:
    page = reader.page
    reader.open("domains")
    page.get_by_label("URL", exact=True).fill("http://shop3.test/")
    verdict = page.locator("#explain-verdict")

    def is_crawled() -> bool:
        page.get_by_role("button", name="Explain").click()
        return verdict.is_visible() and "Crawled: status 200" in verdict.inner_text()

    wait_until(is_crawled)
    expect(page.locator("#explain-facts")).to_contain_text("in: domain shop3.test of a seed")
    page.get_by_label("URL", exact=True).fill("http://elsewhere.test/")
    page.keyboard.press("Enter")
    expect(page.locator("#explain-facts")).to_contain_text("out: ")


def test_text_of_sites_stays_text(dashboard: Dashboard, reader: Watched) -> None:
    reader.open("domain/evil.test")
    expect(reader.page.locator("#domain-dead")).to_contain_text(HOSTILE, timeout=1000 * PATIENCE_S)
    expect(reader.page.locator("#domain-attempts")).to_contain_text(HOSTILE, timeout=1000 * PATIENCE_S)
    reader.open("dead-letters")
    expect(reader.page.locator("#dead-list")).to_contain_text(HOSTILE)
    assert reader.page.locator("main img").count() == 0
    assert "owned" not in reader.page.title()
