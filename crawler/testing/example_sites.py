"""The sites of the made-up web that answer to more than a URL: a login, a search by POST, an API, a reading room."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from crawler.testing.web_server import Answer, Asked

MEMBERS, SEARCH, API, READERS = "members.test", "search.test", "api.test", "readers.test"
USER, PASSWORD, TOKEN, CARD = "guest", "green tea", "tea-token", "reader-7"
FOUND_A_PAGE, ITEMS_A_PAGE = 5, 6
SESSION_PAGES = 8  # after these a session ends


class ExampleSites:
    """`quotes` are for members, `products` are searched and in the API, `titles` are in the reading room."""

    hosts = (MEMBERS, SEARCH, API, READERS)

    def __init__(self, quotes: Sequence[Mapping[str, Any]], products: Sequence[Mapping[str, Any]]) -> None:
        self.quotes, self.products = quotes, products
        self.titles = [f"Volume {number}" for number in range(1, 7)]
        self._sessions: dict[str, int] = {}
        self._number = 0

    def respond(self, asked: Asked) -> Answer | None:
        """For a URL of these hosts."""
        url = urlsplit(asked.url)
        fields = {
            name: values[-1]
            for name, values in parse_qs(f"{url.query}&{asked.body.decode('utf-8', 'replace')}").items()
        }
        sites = {MEMBERS: self._members, SEARCH: self._search, API: self._api, READERS: self._readers}
        return sites[url.hostname or ""](asked, url.path, fields)

    def _members(self, asked: Asked, path: str, fields: Mapping[str, str]) -> Answer | None:
        if path == "/login":
            return self._login(asked, fields)
        name = _cookies(asked).get("member", "")
        if self._sessions.get(name, 0) <= 0:
            return _redirect(f"/login?next={path}")
        self._sessions[name] -= 1
        number = path.strip("/").partition("/")[2] if path != "/" else "1"
        if not number.isdigit() or not 0 < int(number) <= len(self.quotes):
            return None
        quote = self.quotes[int(number) - 1]
        more = f'<a class="next" href="/quote/{int(number) + 1}">Next</a>' if int(number) < len(self.quotes) else ""
        return _html(f'<p class="text">{escape(quote["text"])}</p><a class="logout" href="/logout">Log out</a>{more}')

    def _login(self, asked: Asked, fields: Mapping[str, str]) -> Answer:
        if asked.method != "POST":
            form = '<form id="in" method="post"><input type="hidden" name="token" value="t1"><input name="user">'
            return _html(f'{form}<input type="password" name="password"><button>Log in</button></form>')
        if (fields.get("user"), fields.get("password"), fields.get("token")) != (USER, PASSWORD, "t1"):
            return _html("<p>Wrong user or password.</p>")
        self._number += 1
        self._sessions[f"m{self._number}"] = SESSION_PAGES
        return _redirect("/", ("Set-Cookie", f"member=m{self._number}; Path=/"))

    def _search(self, asked: Asked, path: str, fields: Mapping[str, str]) -> Answer | None:
        if asked.method != "POST":
            form = '<form id="search" action="/search" method="post"><input name="q">'
            return _html(f'{form}<input type="hidden" name="page" value="1"></form>') if path == "/" else None
        page = int(fields.get("page", "1"))
        found = [one for one in self.products if fields.get("q", "").lower() in one["name"].lower()]
        shown = found[(page - 1) * FOUND_A_PAGE : page * FOUND_A_PAGE]
        items = "".join(f"<li class=tea>{escape(one['name'])}</li>" for one in shown)
        more = f'<b class="next">{page + 1}</b>' if page * FOUND_A_PAGE < len(found) else ""
        return _html(f"<ul>{items}</ul>{more}")

    def _api(self, asked: Asked, path: str, fields: Mapping[str, str]) -> Answer | None:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(status=401, body=b'{"error": "no token"}')
        if path != "/teas":
            return None
        page = int(fields.get("page", "1"))
        following = f"http://{API}/teas?page={page + 1}" if page * ITEMS_A_PAGE < len(self.products) else None
        shown = list(self.products[(page - 1) * ITEMS_A_PAGE : page * ITEMS_A_PAGE])
        body = msgspec.json.encode({"teas": shown, "next": following})
        return Answer(headers=[(b"Content-Type", b"application/json")], body=body)

    def _readers(self, asked: Asked, path: str, _: Mapping[str, str]) -> Answer | None:
        if _cookies(asked).get("card") != CARD:
            return Answer(status=403, body=b"<p>Show your card.</p>")
        if path == "/":
            return _html("".join(f'<a href="/{n}">{title}</a>' for n, title in enumerate(self.titles, 1)))
        number = path.strip("/")
        known = number.isdigit() and 0 < int(number) <= len(self.titles)
        return _html(f"<h1>{self.titles[int(number) - 1]}</h1>") if known else None


def _cookies(asked: Asked) -> dict[str, str]:
    pairs = (pair.strip().partition("=") for pair in asked.headers.get("cookie", "").split(";"))
    return {name: value for name, _, value in pairs}


def _html(body: str, *headers: tuple[str, str]) -> Answer:
    lines = [("Content-Type", "text/html"), *headers]
    return Answer(
        headers=[(name.encode(), value.encode()) for name, value in lines], body=f"<!doctype html>{body}".encode()
    )


def _redirect(target: str, *headers: tuple[str, str]) -> Answer:
    lines = [("Location", target), *headers]
    return Answer(status=303, headers=[(name.encode(), value.encode()) for name, value in lines])
