"""Pages that are had with a cookie only, which other URLs set on the way (R06): what a browser gets, within bounds."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from crawler.model import CommitEntry
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.hostile.crawled import NOT_FOUND, links, moved, ok
from tests.support.hostile_server import Close, HostileServer, Step

Answer = Callable[[str, Mapping[str, str]], Step]  # of a path, and the cookies that came with the request


class CookieServer(HostileServer):
    """Answers by what is asked for and by the cookies that are sent. `asked`: both, in order."""

    def __init__(self, answer: Answer, robots: bytes) -> None:
        super().__init__(NOT_FOUND)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._answer, self._robots = answer, robots

    def _steps_now(self) -> Sequence[Step]:
        head = self.requests[-1].decode("latin-1")
        sent = next((line[8:] for line in head.split("\r\n") if line.lower().startswith("cookie: ")), "")
        path, cookies = head.split(" ")[1], {name: morsel.value for name, morsel in SimpleCookie(sent).items()}
        if path != "/robots.txt":
            self.asked.append((path, cookies))
            return [ok("good") if path == "/good" else self._answer(path, cookies)]
        return [ok(self._robots, "text/plain")]


def crawled(
    answer: Answer, folder: Path, *, robots: bytes = b"", **options: Any
) -> tuple[dict[str, CommitEntry], list[tuple[str, dict[str, str]]]]:
    """What is committed, by path, and what was asked for."""

    async def run() -> tuple[dict[str, CommitEntry], list[tuple[str, dict[str, str]]]]:
        async with CookieServer(answer, robots) as server, lab_names() as dns:
            settings = settings_of(folder, dns__nameservers=[dns], crawl__time_max_s=30.0, **options)
            done = await crawl(settings, [f"http://wall.test:{server.port}/"])
            assert done.errors == []
            assert done.twice == []
            return {e.url.partition(f":{server.port}")[2]: e for e in done.entries}, server.asked

    return asyncio.run(run())


def cookie(name: str, value: str = "1") -> str:
    return f"Set-Cookie: {name}={value}; Path=/\r\n"


def two_steps(path: str, cookies: Mapping[str, str]) -> bytes:
    if path == "/set":
        return moved("/", more=cookie("b", "1" if cookies.get("a") else "lost"))
    return PAGE if cookies == {"a": "1", "b": "1"} else moved("/set", more=cookie("a"))


def one_sets(path: str, cookies: Mapping[str, str]) -> bytes:
    """The page itself sets no cookie and says nothing to the URL that does."""
    if path == "/set":
        return moved("/", more=cookie("b"))
    return PAGE if cookies == {"b": "1"} else moved("/set")


def five_steps(path: str, cookies: Mapping[str, str]) -> bytes:
    """Each URL wants the cookies of all before it."""
    way = ["/", "/1", "/2", "/3", "/4"]
    if path == "/" and len(cookies) == len(way):
        return PAGE
    at = way.index(path)
    return moved([*way, "/"][at + 1], more=cookie(f"c{at}")) if len(cookies) == at else moved("/bad")


def site_wide(path: str, cookies: Mapping[str, str]) -> bytes:
    """Every page wants the cookie; where to come back to is in the query."""
    if path.startswith("/check?"):
        return moved(path.partition("=")[2].replace("%2F", "/"), more=cookie("seen"))
    if not cookies:
        return moved(f"/check?to={path.replace('/', '%2F')}")
    return links(*(f"/{n}" for n in range(30))) if path == "/" else ok(path)


def never(path: str, cookies: Mapping[str, str]) -> bytes:
    """It always wants another cookie."""
    return moved("/set" if path == "/" else "/", more=cookie("a", str(len(cookies))))


def no_wall(path: str, cookies: Mapping[str, str]) -> bytes:
    """Most redirects that set a cookie: what is answered on the way is not asked for again."""
    if path == "/":
        return ok("".join(f'<a href="/{n}">x</a>' for n in range(20)))
    return ok(path) if path.endswith("/") else moved(f"{path}/", more=cookie("balancer"))


def plain(path: str, cookies: Mapping[str, str]) -> bytes:
    """They set no cookie, and lead to what was asked for already."""
    return {"/": links("/c", "/a", "/b"), "/c": ok("c"), "/a": moved("/c"), "/b": moved("/a")}[path]


PAGE = links("/good")
PAGES = {"/": 200, "/good": 200}
WALLS: dict[str, tuple[Answer, Mapping[str, int], int]] = {  # what is committed, and how many requests are made
    "R06-wall-of-two": (two_steps, PAGES, 4),
    "R06-wall-of-one-that-sets": (one_sets, PAGES, 4),
    "R06-wall-of-five": (five_steps, PAGES, 7),
    "R06-wall-around-a-site": (site_wide, {"/": 200, **{f"/{n}": 200 for n in range(30)}}, 3 * 31),
    "R06-wall-without-a-door": (never, {"/": 302, "/set": 302}, 3),
    "R06-plain-redirects": (plain, {"/": 200, "/a": 302, "/b": 302, "/c": 200}, 4),
    "R06-no-wall": (no_wall, {"/": 200} | {f"/{n}": 302 for n in range(20)} | {f"/{n}/": 200 for n in range(20)}, 41),
}


@pytest.mark.parametrize("row", WALLS)
def test_row(row: str, tmp_path: Path) -> None:
    answer, expected, requests = WALLS[row]
    entries, asked = crawled(answer, tmp_path / "c")
    assert {path: e.status for path, e in entries.items()} == expected
    assert len(asked) == requests


@pytest.mark.parametrize("by", ["robots.txt", "scope"])
def test_what_is_forbidden_is_not_asked_for_on_the_way(by: str, tmp_path: Path) -> None:
    robots = b"User-agent: *\nDisallow: /set" if by == "robots.txt" else b""
    options = {"scope__exclude": ["/set"]} if by == "scope" else {}
    entries, asked = crawled(two_steps, tmp_path / "c", robots=robots, **options)
    assert {path: e.status for path, e in entries.items()} == {"/": 302}
    assert asked == [("/", {})]


def test_each_step_of_a_wall_keeps_the_delay(tmp_path: Path) -> None:
    began = time.monotonic()
    entries, asked = crawled(two_steps, tmp_path / "c", politeness__delay_s=0.2)
    assert {path: e.status for path, e in entries.items()} == PAGES
    assert time.monotonic() - began > 0.2 * len(asked)


def test_a_step_that_met_a_closed_connection_is_taken_again(tmp_path: Path) -> None:
    closed: list[str] = []

    def answer(path: str, cookies: Mapping[str, str]) -> Step:
        if path == "/set" and not closed:
            closed.append(path)
            return Close()
        return two_steps(path, cookies)

    entries, asked = crawled(answer, tmp_path / "c")
    assert {path: e.status for path, e in entries.items()} == PAGES
    assert [path for path, _ in asked] == ["/", "/set", "/set", "/", "/good"]
