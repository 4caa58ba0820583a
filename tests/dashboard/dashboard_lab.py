"""A real crawl, served, and a real browser that looks at it."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.settings import load
from crawler.testing.generated_web import ATTEMPTS, Resource
from crawler.testing.web_server import environment_of, serve
from tests.support.processes import Nursery, Program, nursery

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page, Request

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
APP = """\
from crawler import Crawler

app = Crawler()


@app.page("evil.test/*")
async def fails(page):
    raise ValueError(page.css_first("title").text())
"""
SETTINGS = {
    "politeness.delay_s": 0.3,
    "crawl.partitions": 64,
    "retry.backoff_s": 0.05,
    "retry.backoff_factor": 1.0,
    "retry.server_error.backoff_s": 0.05,
    "retry.handler.backoff_s": 0.05,
}
SHOPS, PAGES = 4, 400  # some minutes of pages
JOB_PAGES = 30  # that only a job fetches
T = TypeVar("T")


@dataclass
class Dashboard:
    """A crawl that runs, and `crawler serve` on it."""

    folder: Path
    programs: Nursery
    server: Program
    base: str

    def login_link(self) -> str:
        """The last link that was printed: each works once."""
        links = re.findall(r"https?://\S+/login\?code=\S+", f"{self.server.out}\n{self.server.err}")
        return links[-1]

    def ask(self, question: Callable[[OpenCrawl], Awaitable[T]]) -> T:
        """What the engine knows, asked without the server."""

        async def answer() -> T:
            settings = load(environment={}, options={"archive.dir": str(self.folder)})
            async with open_crawl(settings, create=False) as crawl:
                return await question(crawl)

        # The browser's driver has the loop of this thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, answer()).result()


def serve_crawl(programs: Nursery, folder: Path, port: int = 0) -> Dashboard:
    """Start `crawler serve` and wait for it."""
    server = programs.crawler("serve", "--listen", f"127.0.0.1:{port}", "--dir", str(folder))
    base = server.wait_for(r"Serving crawl \S+ at (http://\S+)/")[1]
    server.wait_for(r"login\?code=")
    return Dashboard(folder, programs, server, base)


def pages() -> dict[str, Resource | str]:
    """Shops that take long, one site that heals when its pages are tried again, and a hostile one."""
    found: dict[str, Resource | str] = {"http://new.test/": "<p>found late</p>"}
    found |= {f"http://job.test/{n}": "<p>of a job</p>" for n in range(JOB_PAGES)}
    for shop in range(SHOPS):
        links = "".join(f'<a href="/{n}">.</a>' for n in range(PAGES))
        found |= {f"http://shop{shop}.test/": links, f"http://shop{shop}.test/gone": Resource(status=404, body="no")}
        found |= {f"http://shop{shop}.test/{n}": "<p>a page</p>" for n in range(PAGES)}
    found["http://broken.test/"] = Resource(fails=ATTEMPTS, body="<p>healed</p>")
    title = HOSTILE.replace("<", "&lt;")
    found["http://evil.test/"] = f"<html><head><title>{title}</title></head><body>.</body></html>"
    return found


@contextlib.contextmanager
def dashboard_of_a_crawl(folder: Path) -> Iterator[Dashboard]:
    """A small crawl that runs while in this context."""
    app = folder.parent / "app.py"
    app.write_text(APP, encoding="utf-8")
    with serve(pages()) as web, nursery(web.environment | environment_of(SETTINGS)) as programs:
        seeds = [f"http://shop{n}.test/" for n in range(SHOPS)] + ["http://broken.test/", "http://evil.test/"]
        assert programs.crawler("seed", *seeds, "--dir", str(folder)).wait() == 0
        programs.crawler("run", "--dir", str(folder), "--node", "one", "--app", str(app))
        yield serve_crawl(programs, folder)


@dataclass
class Watched:
    """A page of a browser, and what it must not do."""

    page: "Page"
    base: str
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)  # parts of complaints that a test provokes

    def __post_init__(self) -> None:
        self.page.on("request", self._request)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))

    def _request(self, request: "Request") -> None:
        self.requests.append(request.url)
        if not request.url.startswith((f"{self.base}/", "data:")):
            self.problems.append(f"a request to another origin: {request.url}")

    def _said(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def open(self, view: str = "") -> None:
        """Show a view, by its address."""
        self.page.goto(f"{self.base}/#/{view}")

    def check(self) -> None:
        """Raises AssertionError for complaints of the browser that no test provoked."""
        found = [problem for problem in self.problems if not any(part in problem for part in self.expected)]
        assert not found, found
