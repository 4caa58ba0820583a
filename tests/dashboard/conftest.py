"""One crawl and one browser for all tests of the dashboard."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.dashboard_lab import Dashboard, Watched, dashboard_of_a_crawl
from tests.support.chromium import MISSING, PROGRAM

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """No longer than a module: its driver runs an event loop, beside which no asynchronous test can run."""
    if MISSING:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def dashboard(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A crawl that runs and is served."""
    with dashboard_of_a_crawl(tmp_path_factory.mktemp("dashboard") / "crawl") as found:
        yield found


@pytest.fixture
def look(browser: "Browser") -> Iterator[Callable[..., Watched]]:
    """Opens a page in a browser of its own: what it must not do fails the test at its end."""
    opened: list[Watched] = []

    def new(base: str, **options: Any) -> Watched:
        opened.append(Watched(browser.new_context(**options).new_page(), base))
        return opened[-1]

    yield new
    for watched in opened:
        watched.page.unroute_all(behavior="ignoreErrors")  # an answer that a test changes may be on its way
        watched.page.context.close()
    for watched in opened:
        watched.check()


@pytest.fixture
def reader(dashboard: Dashboard, look: Callable[..., Watched]) -> Watched:
    """A page of somebody who may only read."""
    return look(dashboard.base)


@pytest.fixture
def writer(dashboard: Dashboard, look: Callable[..., Watched]) -> Watched:
    """A page of somebody who opened the one-time link."""
    watched = look(dashboard.base)
    watched.page.goto(dashboard.login_link())
    return watched
