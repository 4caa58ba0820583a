"""A site for members only: a login with a form and a token, sessions that end after some pages, and what it saw."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from crawler import Crawler, Page
from crawler.testing import Answer, Asked

PASSWORD = "hush-word"


class MembersSite:
    """`lasts`: pages of a session (0: no end). `forbidden`: a path that leads to the login whoever asks."""

    def __init__(self, host: str = "club.test", pages: int = 20, lasts: int = 0, forbidden: str = "") -> None:
        self.hosts = (host,)
        self.pages, self.lasts, self.forbidden = pages, lasts, forbidden
        self.logins = self.refused = 0
        self.asked: list[Asked] = []
        self.served: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._sessions: dict[str, int] = {}  # pages that are left
        self.ended = 0  # sessions

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def end_sessions(self) -> None:
        self._sessions.clear()

    def respond(self, asked: Asked) -> Answer | None:
        self.asked.append(asked)
        path = urlsplit(asked.url).path
        if path == "/robots.txt":
            return None
        if path == "/login":
            return self._login(asked)
        session = self._session_of(asked)
        if session not in self._sessions or path == self.forbidden:
            return redirect(f"/login?next={path}")
        self._sessions[session] -= 1
        if not self._sessions[session]:
            del self._sessions[session]
            self.ended += 1
        self.served[path] += 1
        links = "".join(f"<a href=/p/{n}>{n}</a>" for n in range(self.pages)) if path == "/" else ""
        return html(
            f"<h1>member {path}</h1>{links}<a href={self.forbidden or '/'}>x</a>", ("Set-Cookie", f"seen={path}")
        )

    def _session_of(self, asked: Asked) -> str:
        pairs = dict(pair.strip().partition("=")[::2] for pair in asked.headers.get("cookie", "").split(";"))
        return pairs.get("sid", "")

    def _login(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            form = "<input name=q></form><form id=in method=post><input type=hidden name=token value=t{}>"
            fields = "<input name=user><input type=password name=pass><button name=go value=in>in</button>"
            return html(
                f"<form action=/search>{form.format(self.logins)}{fields}</form>", ("Set-Cookie", "pre=1; Path=/")
            )
        given = parse_qs(asked.body.decode())
        if given != {"user": ["me"], "pass": [PASSWORD], "token": [f"t{self.logins}"], "go": ["in"]}:
            self.refused += 1
            return html("<p>wrong</p><form method=post><input type=password name=pass></form>")
        self.logins += 1
        name = f"secret-sid-{next(self._numbers)}"
        self._sessions[name] = self.lasts or 10**9
        return redirect("/", ("Set-Cookie", f"sid={name}; Path=/; HttpOnly"))


def members_app(judge: Callable[[Page], bool | None] | None = None, *, password: str = PASSWORD) -> Crawler:
    """Logs in, and yields the path of each page. `judge`: of what shows that the login holds."""
    app = Crawler()

    @app.login("http://club.test/login")
    def fill_in(page: Page) -> None:
        page.submit("#in", {"user": "me", "pass": password}, button="go")

    if judge is not None:
        app.logged_in(judge)

    @app.page()
    def every(page: Page) -> Iterator[Any]:
        yield {"path": page.url.removeprefix("http://club.test")}

    return app


def html(body: str, *headers: tuple[str, str]) -> Answer:
    lines = [("Content-Type", "text/html"), *headers]
    return Answer(headers=[(name.encode(), value.encode()) for name, value in lines], body=body.encode())


def redirect(target: str, *headers: tuple[str, str]) -> Answer:
    lines = [("Location", target), *headers]
    return Answer(status=303, headers=[(name.encode(), value.encode()) for name, value in lines], body=b"")
