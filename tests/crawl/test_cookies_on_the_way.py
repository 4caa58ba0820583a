"""Cookies on the way through redirects and walls: each once, to the URLs that it is for, with a session and without."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from crawler.testing import Answer, Asked, crawl, serve
from tests.crawl.members_site import html, redirect

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "session": {"session": True}, "file": {"cookies": "cookies.txt"}}


class Site:
    """A wall that another page opens. It notes what comes."""

    hosts = ("shop.test",)

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        path, cookie = urlsplit(asked.url).path, asked.headers.get("cookie", "")
        if path == "/robots.txt":
            return None
        self.asked.append((path, cookie))
        return self.page(path, cookie)

    def page(self, path: str, cookie: str) -> Answer:
        if path == "/wall/set":
            return redirect("/shop/", ("Set-Cookie", "b=2; Path=/"), ("Set-Cookie", "own=1"))
        if "b=2" in cookie:
            return html("<h1>in</h1>")
        more = (("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "far=1; Path=/other"))
        return redirect("/wall/set?to=/shop/", *more)


class Itself(Site):
    def page(self, path: str, cookie: str) -> Answer:
        if "b=2" in cookie:
            return html("<h1>in</h1>")
        return redirect(
            path, ("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2"), ("Set-Cookie", "far=1; Path=/other")
        )


class Elsewhere(Site):
    """Its cookie is for another path, so the page never gets it."""

    def page(self, path: str, cookie: str) -> Answer:
        return redirect(path, ("Set-Cookie", "far=1; Path=/other"))


# What is requested, with its cookies; {} is what a session began with.
WAYS: dict[str, tuple[type[Site], list[tuple[str, str]]]] = {
    "through another page": (Site, [("/shop/", "{}"), ("/wall/set", "{}a=1; "), ("/shop/", "{}a=1; b=2; ")]),
    "back to itself": (Itself, [("/shop/", "{}"), ("/shop/", "b=2; {}a=1; ")]),
    "for another path": (Elsewhere, [("/shop/", "{}")]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_cookie_is_sent_once_and_where_it_belongs(way: str, kind: str, tmp_path: Path) -> None:
    make, wanted = WAYS[way]
    site, rule, kept = make(), dict(KINDS[kind]), ""
    if kind == "file":
        rule["cookies"], kept = str(tmp_path / "cookies.txt"), "kept=1; "
        (tmp_path / "cookies.txt").write_text("shop.test\tFALSE\t/\tFALSE\t0\tkept\t1\n")
    sites = [{"match": "shop.test", **rule}] if rule else []
    with serve(site) as web:
        found = crawl(None, "http://shop.test/shop/", web=web, settings={"sites": sites})
    assert site.asked == [(path, cookies.format(kept).removesuffix("; ")) for path, cookies in wanted]
    assert found.dead == {}
