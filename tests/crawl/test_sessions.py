"""Sites that ask for a login: logged in before the first page, again when the session ends, stopped when it fails."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from crawler import Crawler, Page
from crawler.content import parse_cost
from crawler.hosts import login
from crawler.parsing import parse
from crawler.testing import Answer, Asked, crawl, serve
from tests.crawl.members_site import PASSWORD, MembersSite, html, members_app, redirect

START = "http://club.test/"


def logged_in(page: Page) -> bool:
    return b"member" in page.body


def app_of(*, password: str = PASSWORD, judged: bool = True) -> Crawler:
    return members_app(logged_in if judged else None, password=password)


def paths(items: list[dict[str, Any]]) -> list[str]:
    return sorted(item["path"] for item in items)


def wanted(site: MembersSite) -> list[str]:
    return sorted(["/", *(f"/p/{n}" for n in range(site.pages))])


def test_a_site_is_logged_in_to_before_its_first_page() -> None:
    site = MembersSite()
    with serve(site) as web:
        found = crawl(app_of(), START, web=web)
    assert (site.logins, site.refused, found.dead) == (1, 0, {})
    assert paths(found.items) == wanted(site)
    assert set(site.served.values()) - {2} == {1}  # the front page comes after the login, too
    first = [(asked.method, asked.url) for asked in site.asked if not asked.url.endswith("robots.txt")]
    assert first[:2] == [("GET", "http://club.test/login"), ("POST", "http://club.test/login")]


def test_a_session_that_ends_is_begun_again() -> None:
    site = MembersSite(pages=60, lasts=25)
    with serve(site) as web:
        found = crawl(app_of(), START, web=web)
    assert paths(found.items) == wanted(site)
    assert found.dead == {}
    assert site.logins == 3  # each page after a login counts: 62 pages and two more front pages


def test_logins_by_the_settings_need_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLUB", PASSWORD)
    site = MembersSite(lasts=12)
    how = {"url": "http://club.test/login", "user": "me", "password_env": "CLUB"}
    with serve(site) as web:
        found = crawl(None, START, web=web, settings={"sites": [{"match": "club.test", "login": how}]}, folder=tmp_path)
    assert sorted(found.pages) == sorted(f"http://club.test{path}" for path in wanted(site))
    assert (site.refused, found.dead) == (0, {})
    assert site.logins >= 2
    assert leaks(tmp_path) == []


def leaks(folder: Path) -> list[str]:
    """Files that have a password or a cookie of a session, also within compressed records."""
    import gzip

    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_socket():
            data = path.read_bytes()
            if path.suffix == ".gz":
                data += gzip.decompress(data)
            if b"secret-sid" in data or PASSWORD.encode() in data:
                found.append(path.name)
    return found


@pytest.mark.parametrize("judged", [True, False])
def test_a_login_that_fails_stops_the_site_with_its_reason(judged: bool) -> None:
    site = MembersSite()
    with serve(site) as web:
        found = crawl(app_of(password="wrong", judged=judged), START, web=web)
    assert (site.logins, site.refused, found.items) == (0, 1, [])
    assert sum(asked.url.endswith("/login") for asked in site.asked) == 2


def test_a_page_that_wants_more_than_a_login_is_given_up() -> None:
    site = MembersSite(pages=5, forbidden="/admin")
    with serve(site) as web:
        found = crawl(app_of(), START, web=web)
    assert paths(found.items) == wanted(site)
    assert found.dead["http://club.test/admin"].startswith(
        "login_required it leads to the login, though the session holds"
    )
    assert site.logins == 1


def test_cookies_of_a_session_are_in_no_archive(tmp_path: Path) -> None:
    site = MembersSite(pages=3)
    with serve(site) as web:
        crawl(app_of(), START, web=web, folder=tmp_path)
    assert leaks(tmp_path) == []


class Padded(MembersSite):
    """Its login page is longer than what is parsed in the event loop."""

    def _login(self, asked: Asked) -> Answer:
        answer = super()._login(asked)
        return html("<p>" + "so long " * 150_000 + answer.body.decode()) if asked.method == "GET" else answer


@pytest.mark.parametrize("cost", [parse_cost.Cost.LONG, parse_cost.Cost.EXPENSIVE])
def test_a_login_page_that_is_long_is_filled_in_and_one_that_is_expensive_says_so(
    cost: parse_cost.Cost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CLUB", PASSWORD)
    if cost is parse_cost.Cost.EXPENSIVE:
        monkeypatch.setattr(parse, "cost_of", lambda markup: cost)
    site, how = Padded(pages=1), {"url": "http://club.test/login", "user": "me", "password_env": "CLUB"}
    with serve(site) as web:
        found = crawl(None, START, web=web, settings={"sites": [{"match": "club.test", "login": how}]})
    assert site.logins == (cost is parse_cost.Cost.LONG)
    assert found.dead == {}
    failed = [record.__dict__["why"] for record in caplog.records if record.getMessage() == "login.failed"]
    assert [("may take seconds to parse" in why) for why in failed] == [True] * (1 - site.logins)


class Treacherous(MembersSite):
    """A site whose login page is not what it should be."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.hosts = ("club.test", "evil.test")
        self.login_page = answer

    def respond(self, asked: Asked) -> Answer | None:
        if "evil.test" in asked.url or asked.url.partition("?")[0].endswith("/login"):
            self.asked.append(asked)
            return self.login_page
        if asked.url.endswith("/sign/in"):
            return html(FORM.format("/in").replace("post", "get"))
        return super().respond(asked)


FORM = '<form id=in action="{}" method=post><input name=user><input type=password name=pass><button name=go></form>'
TREACHERY = {
    "it redirects to another site": (redirect("http://evil.test/login"), "it redirects to another site (http://evil.test)"),
    "its form leads to another site": (html(FORM.format("//evil.test/")), "its form leads to another site (http://evil.test)"),
    "endless redirects": (redirect("/login"), "its redirects lead nowhere"),
    "no such form": (html("<p>welcome"), "LookupError: no form matches '#in'"),
    "no such button": (html("<form id=in><input name=name></form>"), "LookupError: no button 'go'"),
    "forbidden": (Answer(status=403, body=b"<p>no"), "status 403 for http://club.test/login"),
    "too many fields": (html(FORM.format("").replace("</form>", "<input name=x>" * 10_001)), "more than 10,000 fields"),
    "it never lets anybody in": (html(FORM.format("")), "logged_in says no to http://club.test/login (status 200)"),
    "its form goes elsewhere": (html(FORM.format("//www.club.test/")), "to http://www.club.test: it is another host"),
    "its form is sent by GET": (html(FORM.format("").replace("post", "get")), "puts the password into a URL (GET)"),
    "it redirects to a form that is sent by GET": (redirect("/sign/in"), "puts the password into a URL (GET)"),
    "nothing has changed": (Answer(status=304), "RuntimeError: this page is not HTML"),
    "no content": (Answer(status=204), "RuntimeError: this page is not HTML"),
    "a text": (Answer(headers=[(b"Content-Type", b"text/plain")], body=FORM.encode()), "this page is not HTML"),
    "a script sends it": (html("<input name=user><input type=password>"), "LookupError: no form matches '#in'"),
    "two of them": (html(FORM.format("/a") + FORM.format("/b")), "ValueError: 2 elements match '#in'"),
    "accepted": (Answer(status=202), "RuntimeError: this page is not HTML"),
    "overloaded": (Answer(status=503), "no answer after 3 attempts (status 503)"),
    "a challenge": (
        html("<script>sucuri_cloudproxy_js='';w=String.fromCharCode</script>"),
        "no answer after 3 attempts (this site answers with a challenge (Sucuri))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREACHERY)
def test_a_login_gone_wrong_stops_the_site_and_tells_nobody_the_password(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "TRY_AGAIN_MS", 10)
    answer, why = TREACHERY[name]
    site = Treacherous(answer)
    with serve(site) as web:
        found = crawl(app_of(), START, web=web, settings={"hosts.failures": 100, "internals.hosts.probe_s": 0.05})
    (failed,) = [record for record in caplog.records if record.getMessage() == "login.failed"]
    assert why in failed.__dict__["why"]
    assert (found.items, found.dead, site.logins) == ([], {}, 0)
    assert not [asked for asked in site.asked if "evil.test" in asked.url and asked.method == "POST"]
    assert len(site.asked) < 20


class RoutedByQuery(MembersSite):
    """Each page is /index.php, and its query says which."""

    def respond(self, asked: Asked) -> Answer | None:
        route = dict(parse_qsl(asked.url.partition("?")[2])).get("route", "")
        path = "/login" if route == "account/login" else f"/{route}"
        if asked.url.endswith("/robots.txt"):
            return None
        inner = Asked(method=asked.method, url=f"http://club.test{path}", headers=asked.headers, body=asked.body)
        answer = super().respond(inner)
        assert answer is not None
        target = b"/index.php?back=1&route=account%2Flogin" if path != "/login" else b"/index.php?route=p/0"
        headers = [(name, target if name == b"Location" else value) for name, value in answer.headers]
        body = answer.body.replace(b"href=/", b"href=/index.php?route=")
        return Answer(status=answer.status, headers=headers, body=body)


def test_a_site_that_routes_by_the_query_is_crawled_whole() -> None:
    site = RoutedByQuery(pages=8, lasts=5)
    app = Crawler()

    @app.login("http://club.test/index.php?route=account/login")
    def fill_in(page: Page) -> None:
        page.submit("#in", {"user": "me", "pass": PASSWORD}, button="go")

    @app.page()
    def every(page: Page) -> Iterator[Any]:
        yield {"path": page.url.rpartition("=")[2]}

    with serve(site) as web:
        found = crawl(app, START, web=web)
    assert paths(found.items) == sorted(["http://club.test/", "", *(f"p/{n}" for n in range(8))])
    assert (found.dead, site.refused) == ({}, 0)
    assert site.logins <= 1 + site.ended


@pytest.mark.parametrize("says", [None, True])
def test_a_function_may_say_of_a_page_that_it_can_not_tell(says: bool | None) -> None:
    site = MembersSite(pages=3)
    app = app_of(judged=False)
    app.logged_in(lambda page: says if b"member" in page.body else None)
    with serve(site) as web:
        found = crawl(app, START, web=web)
    assert (paths(found.items), found.dead, site.logins) == (wanted(site), {}, 1)


def test_one_that_says_no_stops_the_site_whatever_others_say(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(judged=False)
    app.logged_in(lambda page: True)

    @app.logged_in
    def is_mine(page: Page) -> bool:
        return "me" in page.title

    with serve(MembersSite()) as web:
        found = crawl(app, START, web=web)
    (failed,) = [record for record in caplog.records if record.getMessage() == "login.failed"]
    assert failed.__dict__["why"] == "@app.logged_in: is_mine says no to http://club.test/ (status 200)"
    assert (found.items, found.dead) == ([], {})


@pytest.mark.parametrize("judged", [True, False])
def test_the_answer_to_a_form_need_not_be_html(judged: bool) -> None:
    """A function that looks for an element can't tell there, and one that reads the text can."""

    class Api(MembersSite):
        def respond(self, asked: Asked) -> Answer | None:
            answer = super().respond(asked)
            if asked.method != "POST" or answer is None:
                return answer
            cookies = [one for one in answer.headers if one[0] == b"Set-Cookie"]
            headers = [(b"Content-Type", b"application/json"), *cookies]
            return Answer(headers=headers, body=b'{"next": "/"}')

    site, app = Api(pages=2), app_of(judged=False)
    app.logged_in(lambda page: True if '"next"' in page.text else None)
    if judged:
        app.logged_in(lambda page: bool(page.css("h1")))
    with serve(site) as web:
        found = crawl(app, START, web=web)
    assert (paths(found.items), found.dead, site.logins) == (wanted(site), {}, 1)


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize(("given", "is_in"), [
    ([], False), (0, False), ("", False), ("yes", True), ([1], True), (NoTruth(), None),
])  # fmt: skip
def test_what_a_function_returns_counts_as_python_has_it(given: object, is_in: bool | None) -> None:
    """One that fails after the form was sent stops the site, as one that says no does."""
    site, app = MembersSite(pages=2), app_of(judged=False)
    app.logged_in(lambda page: given if b"member" in page.body else None)
    with serve(site) as web:
        found = crawl(app, START, web=web)
    assert (found.dead, site.logins) == ({}, 1)
    assert paths(found.items) == (wanted(site) if is_in else [])


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("ends", ["raises", "hangs"])
def test_a_function_that_fails_on_pages_can_not_tell(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "TIMEOUT_S", 0.05)
    site, app = MembersSite(pages=2), app_of(judged=False)

    @app.logged_in
    async def judge(page: Page) -> bool:
        if page.url.endswith("/0"):
            await asyncio.sleep(60) if ends == "hangs" else page.css_first("#none")
        return True

    with serve(site) as web:
        found = crawl(app, START, web=web)
    assert (paths(found.items), found.dead, site.logins) == (wanted(site), {}, 1)


def test_a_flood_of_cookies_is_bounded_and_the_session_goes_on() -> None:
    class Flooding(MembersSite):
        def respond(self, asked: Asked) -> Answer | None:
            answer = super().respond(asked)
            if answer is None or answer.status != 200 or asked.url.endswith("login"):
                return answer
            flood = [
                (b"Set-Cookie", b"n%d=%b; Path=/; Domain=%b" % (n, b"v" * 600, d)) for n in range(25) for d in domains
            ]
            return Answer(headers=[*answer.headers, *flood], body=answer.body)

    domains = (b"evil.test", b"test", b"club.test.evil.test", b"")
    site = Flooding(pages=5)
    with serve(site) as web:
        found = crawl(app_of(), START, web=web)
    assert found.dead == {}
    sent = [len(asked.headers.get("cookie", "")) for asked in site.asked]
    assert max(sent) <= 8192
    assert (site.logins, paths(found.items)) == (1, wanted(site))
