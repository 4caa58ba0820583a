"""Jobs in a real browser: the table with its bars, a job's page, the form with its preview, a run's page.

`PICTURES=docs/images scripts/test -k picture --all` writes the picture for the docs, else it goes to a temporary
folder.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect

from crawler.crawl.opening import OpenCrawl
from crawler.views import jobs
from crawler.views.job_view import JobView
from tests.dashboard.dashboard_lab import HOSTILE, JOB_PAGES, Dashboard, Watched
from tests.dashboard.jobs_lab import JOBS, ROWS, fill_many, served_jobs
from tests.dashboard.test_dashboard_clicks import confirm
from tests.dashboard.test_dashboard_pictures import take
from tests.dashboard.test_dashboard_view import CUT, HIDE
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(180)]
VIEWS = ("jobs", "job/ann/news", "job/default/archive", "run/x")


@pytest.fixture(scope="module")
def board(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with served_jobs(tmp_path_factory.mktemp("jobs") / "crawl") as found:
        yield found


@pytest.fixture
def guest(board: Dashboard, look: Callable[..., Watched]) -> Watched:
    """A page of somebody who may only read."""
    return look(board.base)


@pytest.fixture
def operator(board: Dashboard, look: Callable[..., Watched]) -> Watched:
    """A page of somebody who opened the one-time link."""
    watched = look(board.base)
    watched.page.goto(board.login_link())
    return watched


def row_of(page: "Page", name: str) -> Any:
    return page.locator("#jobs-table tbody tr").filter(has=page.get_by_role("link", name=name, exact=True))


def job_of(board: Dashboard, user: str, name: str) -> JobView:
    async def read(crawl: OpenCrawl) -> JobView:
        return await jobs.find_job(crawl, user, name)

    return board.ask(read)


def test_the_picture_of_the_jobs(board: Dashboard, look: Callable[..., Watched], tmp_path: Path) -> None:
    folder = Path(os.environ.get("PICTURES", "") or tmp_path)
    watched = look(board.base, viewport={"width": 1280, "height": 620})
    watched.page.goto(board.login_link())
    watched.open("jobs")
    expect(row_of(watched.page, "news")).to_be_visible()
    take(watched.page, folder / "dashboard-jobs.png")


def test_the_table_has_the_jobs_of_all_users_with_their_next_times_and_last_runs(guest: Watched) -> None:
    page = guest.page
    guest.open("jobs")
    expect(page.locator("#jobs-table tbody tr")).to_have_count(len(JOBS))
    news = row_of(page, "news")
    expect(news).to_contain_text(re.compile(r"ann\s*running\s*every 3 hours\s*in \d h \d\d m"))
    bars = news.get_by_role("img")
    expect(bars).to_have_attribute("aria-label", "Last 31 times: 15 finished, 2 failed, 13 missed, 1 running")
    expect(bars.locator(".bar")).to_have_count(20)
    assert re.search(r"12 times: missed$", bars.locator(".bar.missed title").all_text_contents()[-1])
    assert re.search(r": finished, \d\d pages, 1 m", bars.locator(".bar.finished title").all_text_contents()[-1])
    expect(row_of(page, "launch").get_by_role("img")).to_have_attribute("aria-label", "No time yet")
    expect(row_of(page, "archive")).to_contain_text("paused")
    before = row_of(page, "status").locator("td").nth(3).inner_text()
    expect(row_of(page, "status").locator("td").nth(3)).not_to_have_text(before)  # it counts down
    expect(page.get_by_role("button", name="New job")).to_be_hidden()
    guest.open("job/ann/news")
    expect(page.locator("#job-sentence")).to_contain_text("Every 3 hours: next in")
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)


def test_jobs_are_found_and_paged(board: Dashboard, look: Callable[..., Watched]) -> None:
    board.ask(fill_many)
    watched = look(board.base)
    page = watched.page
    watched.open("jobs")
    page.get_by_role("combobox", name="Rows").select_option("25")
    expect(page.locator("#jobs-table tbody tr")).to_have_count(25)
    page.get_by_role("button", name="Next page").click()
    expect(page.locator("#jobs-table tbody tr")).to_have_count(len(JOBS) + 30 - 25)
    expect(row_of(page, "site29")).to_be_visible()
    page.get_by_role("button", name="Previous page").click()
    expect(row_of(page, "news")).to_be_visible()
    page.locator("#jobs-search").fill("BOB")
    expect(page.locator("#jobs-table tbody tr")).to_have_count(2)
    page.locator("#jobs-search").fill("nothing like it")
    expect(page.locator("#jobs-empty")).to_have_text('No job contains "nothing like it".')


def test_failed_runs_are_repeated_and_dismissed(board: Dashboard, guest: Watched, operator: Watched) -> None:
    guest.open("job/ann/news")
    expect(guest.page.locator("#job-failed li")).to_have_count(2)
    expect(guest.page.locator("#job-failed li").first).to_contain_text(f"no usable page: {HOSTILE}")
    expect(guest.page.locator("#job-failed-panel").get_by_role("button")).to_have_count(0)
    page = operator.page
    operator.open("job/ann/news")
    line = page.locator("#job-failed li").first
    line.get_by_role("button", name="Retry").click()
    confirm(operator, "Retry")
    expect(page.locator("#toast")).to_contain_text("1 run repeated.")
    expect(page.locator("#job-failed li")).to_have_count(1)
    expect(page.locator("#job-sentence")).to_contain_text("1 run waits")
    expect(page.get_by_role("button", name="Retry all")).to_be_hidden()
    line.get_by_role("button", name="Dismiss").click()
    confirm(operator, "Dismiss")
    expect(page.locator("#job-failed-panel")).to_be_hidden()
    assert job_of(board, "ann", "news").failed == 0


def test_a_job_is_made_with_a_preview_of_its_schedule(board: Dashboard, operator: Watched) -> None:
    page = operator.page
    operator.open("jobs")
    operator.expected.append("422")
    page.get_by_role("button", name="New job").click()
    form = page.get_by_role("form", name="New job")
    expect(form.get_by_role("textbox", name="Name")).to_be_focused()
    page.keyboard.type("weather")
    form.get_by_role("textbox", name="User").fill("dora")
    form.get_by_role("textbox", name="Schedule").fill("soon")
    expect(form.get_by_role("status")).to_contain_text("not a valid duration")
    form.get_by_role("combobox", name="Kind of schedule").select_option("cron expression")
    form.get_by_role("textbox", name="Schedule").fill("30 2 29 2 *")
    form.get_by_role("combobox", name="Time zone").fill("Europe/Paris")
    expect(form.get_by_role("status")).to_contain_text("Europe/Paris. Next:")
    expect(form.locator(".preview li")).to_have_count(5)
    expect(form.locator(".preview li").first).to_contain_text("-02-29 02:30:00+01:00")
    form.get_by_role("spinbutton", name="Depth").fill("1")
    form.get_by_role("button", name="Add the job").click()
    expect(form.get_by_role("alert")).to_contain_text("a job needs seeds")
    form.get_by_role("textbox", name="Seeds").fill("https://weather.example/\n\nhttps://w2.example/")
    form.get_by_role("button", name="Add the job").click()
    expect(page.locator("#toast-text")).to_have_text("weather was added.")
    expect(page.locator("#t-job")).to_have_text("weather")
    expect(page.locator("#job-times li")).to_have_count(10)
    made = job_of(board, "dora", "weather")
    assert (made.cron, made.timezone, made.depth) == ("30 2 29 2 *", "Europe/Paris", 1)
    assert list(made.seeds) == ["https://weather.example/", "https://w2.example/"]


def test_only_what_was_changed_is_sent(board: Dashboard, operator: Watched) -> None:
    page = operator.page
    operator.open("job/bob/docs")
    page.get_by_role("button", name="Edit…").click()
    form = page.get_by_role("form", name="Change docs")
    expect(form.get_by_role("textbox", name="Name")).to_be_disabled()
    expect(form.get_by_role("textbox", name="Seeds")).to_have_value("https://docs.example/")
    form.get_by_role("spinbutton", name="Depth").fill("")
    form.get_by_role("combobox", name="Overlapping runs").select_option("run both")
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        form.get_by_role("button", name="Save the changes").click()
    assert json.loads(sent.value.post_data or "") == {"depth": None, "overlap": "allow"}
    expect(page.locator("#job-definition")).to_contain_text("both runs go on")
    expect(form).to_be_hidden()
    changed = job_of(board, "bob", "docs")
    assert (changed.depth, changed.overlap, changed.scope, changed.max_retry_count) == (None, "allow", "host", 2)


def test_a_job_is_paused_resumed_run_and_removed_by_clicks(board: Dashboard, operator: Watched) -> None:
    page = operator.page
    operator.open("job/carol/catalogue")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert job_of(board, "carol", "catalogue").state == "active"
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(operator, "Pause")
    expect(page.locator("#job-state")).to_have_text("paused")
    page.get_by_role("button", name="Resume", exact=True).click()
    confirm(operator, "Resume")
    expect(page.locator("#job-state")).to_have_text("active")
    page.get_by_role("button", name="Run now").click()
    confirm(operator, "Run now")
    expect(page.locator("#job-sentence")).to_contain_text("1 run waits")
    assert len(job_of(board, "carol", "catalogue").requested) == 1
    page.get_by_role("button", name="Remove").click()
    confirm(operator, "Remove")
    expect(page.locator("#toast-text")).to_have_text("catalogue is removed.")
    expect(row_of(page, "launch")).to_be_visible()
    expect(row_of(page, "catalogue")).to_have_count(0)
    operator.expected.append("404")
    operator.open("job/carol/catalogue")
    expect(page.locator("#job-sentence")).to_contain_text("no job 'catalogue'")
    expect(page.locator("#job-body")).to_be_hidden()


def test_the_history_has_what_was_missed_and_older_pages(guest: Watched) -> None:
    page = guest.page
    guest.open("job/ann/news")
    table = page.locator("#job-history tbody tr")
    expect(table).to_have_count(30)
    expect(table.nth(5)).to_contain_text(re.compile(r" to .*, 12 times\s*missed\s*$"))
    expect(table.nth(13)).to_contain_text("skipped (overlap)")
    expect(table.nth(3)).to_contain_text(f"no usable page: {HOSTILE}")
    assert page.locator("main img").count() == 0
    expect(page.locator("#job-running li")).to_have_count(1)
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    expect(table).to_have_count(ROWS - 30)
    page.get_by_role("button", name="Newest").click()
    expect(table.nth(5)).to_contain_text("12 times")


def test_a_run_shows_what_became_of_it_and_what_it_ran_with(guest: Watched) -> None:
    page = guest.page
    guest.open("job/bob/status")
    page.locator("#job-history tbody tr").nth(1).get_by_role("link").click()
    expect(page.locator("#run-state")).to_have_text("finished")
    expect(page.locator("#run-sentence")).to_contain_text(re.compile(r"It finished: \d\d pages in 1 m 00 s\."))
    expect(page.locator("#run-facts")).to_contain_text("https://status.example/")
    page.get_by_role("link", name="status, of user bob").click()
    page.locator("#job-running").get_by_role("link").click()
    expect(page.locator("#run-state")).to_have_text("running")
    guest.expected.append("404")
    guest.open("run/x.1.2")
    expect(page.locator("#run-sentence")).to_contain_text("there is no run 'x.1.2'")


def test_a_run_is_triggered_by_a_click_and_seen_until_it_has_finished(dashboard: Dashboard, writer: Watched) -> None:
    page = writer.page
    writer.open("jobs")
    page.get_by_role("button", name="New job").click()
    form = page.get_by_role("form", name="New job")
    form.get_by_role("textbox", name="Name").fill("late")
    form.get_by_role("textbox", name="Schedule").fill("1d")
    form.get_by_role("textbox", name="Seeds").fill("".join(f"http://job.test/{n}\n" for n in range(JOB_PAGES)))
    form.get_by_role("button", name="Add the job").click()
    page.get_by_role("button", name="Run now").click()
    confirm(writer, "Run now")
    expect(page.locator("#job-running")).to_contain_text(
        re.compile(r"[1-9]\d* pages?, .* pending, [\d.]+ pages/s, for "), timeout=1000 * PATIENCE_S
    )
    page.locator("#job-running").get_by_role("link").click()
    expect(page.locator("#run-state")).to_have_text("running, manual")
    expect(page.locator("#run-facts")).to_contain_text(re.compile(rf"{JOB_PAGES}, of them \d+ pending"))
    expect(page.locator("#run-state")).to_have_text("finished, manual", timeout=1000 * PATIENCE_S)
    expect(page.locator("#run-sentence")).to_contain_text(f"It finished: {JOB_PAGES} pages in ")


def test_a_hidden_tab_reads_no_jobs(guest: Watched) -> None:
    page = guest.page
    page.clock.install()
    for view in ("jobs", "job/ann/news"):
        guest.open(view)
        expect(
            page.locator("#jobs-table tbody tr, #job-history tbody tr").locator("visible=true").first
        ).to_be_visible()
        page.evaluate(HIDE, "hidden")
        before = len(guest.requests)
        page.clock.run_for(60_000)
        assert guest.requests[before:] == []
        page.evaluate(HIDE, "seen")
        expect(page.locator("#connection-text")).to_have_text("live")
        assert any("/jobs" in url for url in guest.requests[before:])


@pytest.mark.parametrize("width", [360, 768])
def test_only_tables_of_jobs_scroll_sideways(board: Dashboard, look: Callable[..., Watched], width: int) -> None:
    watched = look(board.base, viewport={"width": width, "height": 740})
    page = watched.page
    page.goto(board.login_link())
    watched.expected.append("404")  # the run that there is not
    for view in VIEWS:
        watched.open(view)
        expect(
            page.locator("main > section:visible .sentence, #jobs-table tbody tr").locator("visible=true").first
        ).to_be_attached()
        if view == "jobs":
            page.get_by_role("button", name="New job").click()
            expect(page.get_by_role("form", name="New job")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.evaluate(CUT, width) == [], view


def test_the_form_works_by_keyboard(operator: Watched) -> None:
    page = operator.page
    operator.open("jobs")
    button = page.get_by_role("button", name="New job")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Name")).to_be_focused()
    for name in ("User", "Kind of schedule", "Schedule", "Time zone", "Random delay"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus").locator("xpath=..")).to_contain_text(name)
    page.keyboard.press("Escape")
    expect(page.get_by_role("form", name="New job")).to_have_count(0)
    expect(button).to_be_focused()
