"""Where the password of a login is sent: as many requests of a crawl as bear it."""

from urllib.parse import urlsplit

import pytest

from crawler import Crawler, Page
from crawler.errors import UsageError
from crawler.hosts.login_plans import plans_of
from crawler.testing import Answer, Asked, crawl, serve
from tests.crawl.members_site import PASSWORD, MembersSite, html, redirect

COOKIE = ("Set-Cookie", "sid=sid; Path=/; Domain=club.test")
FORM = '<form id=in action="{}" method=post><input name=user><input type=password name=pass><button name=go></form>'


class Sending(MembersSite):
    """A site whose login form is sent to `action`; `redirects`: what happens there, once."""

    def __init__(self, action: str, redirects: tuple[int, str] | None = None, host: str = "club.test") -> None:
        super().__init__(pages=2)
        self.hosts = (host, f"www.{host}")
        self.action, self.redirects = action, redirects
        self.got: list[str] = []  # where the password came to

    def respond(self, asked: Asked) -> Answer | None:
        if PASSWORD in asked.body.decode() or PASSWORD in asked.url:
            self.got.append(f"{asked.method} {asked.url.partition('?')[0]}")
            if self.redirects is not None and len(self.got) == 1:
                status, target = self.redirects
                self._sessions["sid"] = 10**9
                given = [("Location", target.replace("PASSWORD", PASSWORD)), COOKIE][: 1 if status > 306 else 2]
                return Answer(status=status, headers=[(name.encode(), value.encode()) for name, value in given])
            self._sessions["sid"] = 10**9
            self.logins += 1
            return redirect("/", COOKIE)
        if urlsplit(asked.url).path == "/login":
            return html(FORM.format(self.action))
        return super().respond(asked)


HERE, WWW = "POST https://club.test/in", "POST https://www.club.test/in"
SENT: dict[str, tuple[str, tuple[int, str] | None, tuple[str, ...], list[str]]] = {  # action, redirect, named, where to
    "here": ("/in", None, (), [HERE]),
    "over http": ("http://club.test/in", None, (), []),
    "over http, to a named host": ("http://www.club.test/in", None, ("www.club.test",), []),
    "to another host": ("https://www.club.test/in", None, (), []),
    "to a named host": ("https://www.club.test/in", None, ("www.club.test",), [WWW]),
    "302": ("/in", (302, "https://www.club.test/home"), (), [HERE]),
    "302, with the password": ("/in", (302, "https://www.club.test/home?p=PASSWORD"), (), [HERE]),
    "303, with the password, to a named host": (
        "/in", (303, "https://www.club.test/in?p=PASSWORD"), ("www.club.test",), [HERE, WWW.replace("POST", "GET")],
    ),
    "307 here": ("/", (307, "/in"), (), ["POST https://club.test/", HERE]),
    "308 here": ("/", (308, "/in"), (), ["POST https://club.test/", HERE]),
    "307 to a named host": ("/in", (307, "https://www.club.test/in"), ("www.club.test",), [HERE]),
    "308 to another site": ("/in", (308, "https://evil.test/in"), ("www.club.test",), [HERE]),
    "307 to http": ("/in", (307, "http://club.test/in"), (), [HERE]),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_a_password_is_sent_to_where_it_may_go_and_nowhere_else(name: str) -> None:
    action, redirects, hosts, wanted_at = SENT[name]
    site = Sending(action, redirects)
    app = Crawler()

    @app.login("https://club.test/login", action_hosts=hosts)
    def fill_in(page: Page) -> None:
        page.submit("#in", {"user": "me", "pass": PASSWORD}, cross_origin=True)

    app.page()(lambda page: None)
    with serve(site) as web:
        crawl(app, "https://club.test/", web=web)
    assert site.got == wanted_at


def test_a_redirect_from_http_to_https_takes_the_form_along() -> None:
    site = Sending("/in", (307, "https://club.test/in"))
    app = Crawler()
    app.page()(lambda page: None)
    app.login("http://club.test/login")(lambda page: page.submit("#in", {"user": "me", "pass": PASSWORD}))
    with serve(site) as web:
        found = crawl(app, "http://club.test/", web=web)
    assert site.got == ["POST http://club.test/in", HERE]
    assert (site.logins, found.dead) == (1, {})


@pytest.mark.parametrize("hosts", ["evil.test", "www.club.test/in", "", "www.club.test:x"])
def test_a_host_that_can_not_get_the_password_is_an_error_at_the_start(hosts: str) -> None:
    app = Crawler()
    app.login("https://club.test/login", action_hosts=[hosts])(lambda page: None)
    with pytest.raises(UsageError, match="action_hosts"):
        plans_of(app, (), {})
