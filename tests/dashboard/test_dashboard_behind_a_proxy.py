"""The dashboard behind nginx, below a path, over TLS: everything that the browser sends stays there and is answered."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import expect, sync_playwright

from tests.dashboard.dashboard_lab import Dashboard, Watched, dashboard_of_a_crawl
from tests.support.chromium import MISSING, PROGRAM
from tests.support.engine import free_port
from tests.support.patience import PATIENCE_S
from tests.support.real_proxies import NAME, proxy_of_the_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.processes, pytest.mark.timeout(180)]
BASE = f"https://{NAME}/crawler"
VIEWS = ("", "domains", "domain/shop0.test", "jobs", "instances", "dead-letters", "operate")


@pytest.fixture(scope="module")
def served_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dashboard, int]]:
    """A crawl, and the port of nginx before it."""
    folder = tmp_path_factory.mktemp("behind")
    with dashboard_of_a_crawl(folder / "crawl") as dashboard:
        at = f"127.0.0.1:{free_port()}"
        options = ("--listen", at, "--host", NAME, "--prefix", "/crawler/", "--trust-proxy", "127.0.0.1")
        server = dashboard.programs.crawler("serve", *options, "--dir", str(dashboard.folder))
        server.wait_for(r"login\?code=")
        with proxy_of_the_page(dashboard.programs, "nginx", folder, at) as port:
            yield Dashboard(dashboard.folder, dashboard.programs, server, BASE), port


@pytest.fixture(scope="module")
def browser(served_behind: tuple[Dashboard, int]) -> "Iterator[Browser]":
    """To which the name leads to nginx."""
    if MISSING:
        pytest.skip(MISSING)
    rules = f"--host-resolver-rules=MAP {NAME}:443 127.0.0.1:{served_behind[1]}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox", rules])
        yield browser
        browser.close()


def test_all_views_work_below_a_path(served_behind: tuple[Dashboard, int], look: Callable[..., Watched]) -> None:
    dashboard, _ = served_behind
    watched = look(BASE, ignore_https_errors=True)
    page, failed = watched.page, list[str]()
    page.on("response", lambda one: one.status >= 400 and failed.append(f"{one.status} {one.url}"))
    page.goto(dashboard.login_link())
    assert page.url == f"{BASE}/"
    page.goto(BASE)
    assert page.url == f"{BASE}/", "the path without its slash leads there"
    watched.problems.remove(f"a request to another origin: {BASE}")
    expect(page.locator("#connection-text")).to_have_text("live", timeout=1000 * PATIENCE_S)
    expect(page.locator("#read-only")).to_be_hidden()
    for view in VIEWS:
        watched.open(view)
        expect(page.locator("main > section:visible h2").first).to_be_attached()
        if view == "domains":
            expect(page.locator("#domains-table tbody tr a").first).to_be_visible(timeout=1000 * PATIENCE_S)
    page.locator("#crawl-pause").click()
    page.locator("#dialog-ok").click()
    expect(page.locator("#state")).to_have_text("paused", timeout=1000 * PATIENCE_S)
    page.locator("#crawl-resume").click()
    page.locator("#dialog-ok").click()
    expect(page.locator("#state")).to_have_text("running", timeout=1000 * PATIENCE_S)
    for link in ("API", "Metrics"):
        page.goto(f"{BASE}/")
        page.get_by_role("link", name=link, exact=True).click()
        assert page.url.startswith(f"{BASE}/"), page.url
    assert failed == []
    (cookie,) = page.context.cookies()
    assert (cookie["path"], cookie["secure"], cookie["httpOnly"]) == ("/crawler/", True, True)


def test_links_on_pages_of_other_sites_lead_to_the_dashboard(
    served_behind: tuple[Dashboard, int], look: Callable[..., Watched]
) -> None:
    """As a log-in elsewhere leads back, or a chat shows the link: the browser's visit comes from another site."""
    dashboard, _ = served_behind
    watched = look(BASE, ignore_https_errors=True)
    for target in (dashboard.login_link(), f"{BASE}/"):
        watched.page.goto(f"data:text/html,<a href='{target}'>dashboard</a>")
        watched.page.get_by_role("link").click()
        expect(watched.page.locator("#connection-text")).to_have_text("live", timeout=1000 * PATIENCE_S)
        expect(watched.page.locator("#read-only")).to_be_hidden()


def test_who_has_no_session_is_told_of_the_link(look: Callable[..., Watched]) -> None:
    watched = look(BASE, ignore_https_errors=True)
    watched.expected += ["401", "404", "favicon.ico"]  # that one is asked for where a page names no icon
    answer = watched.page.goto(f"{BASE}/")
    assert answer
    assert answer.status == 401
    assert "open the last link that 'crawler serve' printed" in answer.text()


def test_a_session_that_ends_is_told_with_what_to_do(
    served_behind: tuple[Dashboard, int], look: Callable[..., Watched]
) -> None:
    dashboard, _ = served_behind
    watched = look(BASE, ignore_https_errors=True)
    watched.expected.append("401")
    watched.page.goto(dashboard.login_link())
    expect(watched.page.locator("#connection-text")).to_have_text("live", timeout=1000 * PATIENCE_S)
    watched.page.context.clear_cookies()
    watched.open("domains")
    expect(watched.page.locator("#banner")).to_contain_text("open the last link", timeout=1000 * PATIENCE_S)
    expect(watched.page.locator("#connection-text")).to_have_text("logged out")
    watched.page.goto(dashboard.login_link())
    expect(watched.page.locator("#connection-text")).to_have_text("live", timeout=1000 * PATIENCE_S)
    expect(watched.page.locator("#banner")).to_be_hidden()
