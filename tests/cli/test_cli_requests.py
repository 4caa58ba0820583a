"""What --header, --cookie, --data and --method send, and to whom; seeds in JSON; and that no value is kept or said."""

import gzip
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.session import CrawlSession
from crawler.testing import Answer, Asked, serve
from crawler.testing.web_server import ServedWeb
from tests.cli.cli_lab import HOST, Ran, crawler, forget_apps, in_process, small
from tests.support.processes import Nursery, nursery

SHOP, WWW, OTHER = "https://shop.test", "https://www.shop.test", "https://other.test"
SECRET = ("--header", "Authorization: Bearer hush-token", "--cookie", "id=hush-cookie; a=", "--cookie", "b=2")
SENT = {"authorization": "Bearer hush-token", "cookie": "id=hush-cookie; a=; b=2"}


class Site:
    """Three hosts of two sites, over http and https; notes what arrives, and the command lines of child processes."""

    hosts = ("shop.test", "www.shop.test", "other.test")

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[str, Answer] = {}
        self.robots: Answer | None = None
        self.children = set[bytes]()
        self._lock = threading.Lock()

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        with self._lock:
            self.asked.append(asked)
            self.children |= {line for line in command_lines() if b"--child" in line}
        return self.robots if asked.url.endswith("/robots.txt") else self.answers.get(asked.url, page())

    def links(self, url: str, *targets: str) -> None:
        self.answers[url] = page("".join(f"<a href='{target}'>x</a>" for target in targets))

    def redirect(self, url: str, target: str, status: int = 302) -> None:
        self.answers[url] = Answer(status=status, headers=[(b"Location", target.encode())])

    @property
    def pages(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.url.endswith("/robots.txt")]

    def got(self, *names: str) -> dict[str, dict[str, str]]:
        """By URL: of these headers, those that arrived."""
        found = defaultdict[str, dict[str, str]](dict)
        for asked in self.asked:
            found[asked.url] |= {name: asked.headers[name] for name in names if name in asked.headers}
        return dict(found)


def page(html: str = "<title>p</title>") -> Answer:
    return Answer(headers=[(b"Content-Type", b"text/html")], body=html.encode())


def command_lines() -> Iterator[bytes]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes()
        except OSError:
            continue


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def web(site: Site) -> Iterator[ServedWeb]:
    with serve(site) as web:
        yield web


@pytest.fixture
def programs(web: ServedWeb, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    forget_apps(monkeypatch)
    with nursery(web.environment | {"CRAWLER_CRAWL_PARTITIONS": "16"}) as programs:
        yield programs


def crawl(programs: Nursery, folder: Path, *words: str) -> Ran:
    ran = in_process(programs, "crawl", *words, "--dir", str(folder), "--delay", "0")
    assert ran.code == 0, ran.err
    return ran


def kept_in(folder: Path) -> Iterator[bytes]:
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            yield gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def test_secrets_go_to_the_sites_that_were_named_and_the_rest_to_all(
    site: Site, programs: Nursery, tmp_path: Path
) -> None:
    site.links(f"{SHOP}/", f"{WWW}/a", "http://shop.test/plain", f"{OTHER}/", "http://shop.test:8080/")
    site.redirect(f"{WWW}/a", f"{OTHER}/from")
    words = [f"{SHOP}/", "--scope", "any", *SECRET, "--header", "X-Team: search"]
    ran = crawl(programs, tmp_path / "c", *words)
    found = site.got("authorization", "cookie", "x-team")
    team = {"x-team": "search"}
    for url in (f"{SHOP}/", f"{SHOP}/robots.txt", f"{WWW}/a", f"{WWW}/robots.txt"):
        assert found.pop(url) == SENT | team, url
    assert len(found) >= 6
    assert set(map(str, found.values())) == {str(team)}
    kept = b"".join(kept_in(tmp_path / "c"))
    assert b"Cookie: (not archived)" in kept
    assert b"X-Team: search" in kept
    assert b"hush" not in kept
    assert "hush" not in ran.out + ran.err


def test_a_url_over_http_has_its_secrets_over_https_too_and_nowhere_else(
    site: Site, programs: Nursery, tmp_path: Path
) -> None:
    site.redirect("http://shop.test/", f"{SHOP}/")
    site.links(f"{SHOP}/", f"{OTHER}/")
    crawl(programs, tmp_path / "c", "http://shop.test/", "--scope", "any", "--cookie", "id=1")
    found = site.got("cookie")
    assert [found[url] for url in ("http://shop.test/", f"{SHOP}/", f"{OTHER}/")] == [{"cookie": "id=1"}] * 2 + [{}]


def test_options_go_before_the_tables_of_the_file(site: Site, programs: Nursery, tmp_path: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text(
        '[[sites]]\nmatch = "shop.test"\nauth = "me:word"\ncookies = { id = "file", c = "3" }\n'
        'headers = { x-team = "file", X-File = "yes" }\n'
    )
    words = [f"{SHOP}/", *SECRET, "--header", "X-Team: option", "--config", str(config)]
    crawl(programs, tmp_path / "c", *words)
    (asked,) = site.pages
    assert asked.headers["authorization"] == "Bearer hush-token"
    assert asked.headers["cookie"] == "id=hush-cookie; a=; b=2; c=3"
    assert (asked.headers["x-team"], asked.headers["x-file"]) == ("option", "yes")


def test_a_resumed_crawl_sends_only_what_it_is_given_again(site: Site, programs: Nursery, tmp_path: Path) -> None:
    site.links(f"{SHOP}/", "/next")
    first = crawl(programs, tmp_path / "c", f"{SHOP}/", "--pages", "1", *SECRET, "--header", "X-Team: 1")
    assert "1 page" in first.out
    crawl(programs, tmp_path / "c", f"{SHOP}/")
    found = site.got("authorization", "cookie", "x-team")
    assert (found[f"{SHOP}/"], found[f"{SHOP}/next"]) == (SENT | {"x-team": "1"}, {})


def test_a_sitemap_that_is_named_opens_its_site_to_a_cookie(site: Site, programs: Nursery, tmp_path: Path) -> None:
    xml = f"<urlset><url><loc>{SHOP}/a</loc></url></urlset>"
    site.answers[f"{SHOP}/map.xml"] = Answer(headers=[(b"Content-Type", b"text/xml")], body=xml.encode())
    crawl(programs, tmp_path / "c", "--sitemap", f"{SHOP}/map.xml", "--cookie", "id=1")
    assert {asked.url: asked.headers.get("cookie") for asked in site.pages} == {
        f"{SHOP}/map.xml": "id=1", f"{SHOP}/a": "id=1",
    }  # fmt: skip


def test_a_url_without_a_scheme_is_told_once(site: Site, programs: Nursery, tmp_path: Path) -> None:
    ran = crawl(programs, tmp_path / "c", "shop.test", "nowhere", "--cookie", "id=1")
    assert ran.err.count("taking shop.test as") == 1
    assert ran.err.count("'nowhere'") == 1
    assert [asked.headers["cookie"] for asked in site.pages] == ["id=1"]


def test_a_report_of_a_bug_has_no_value(programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("hush-token, id=hush-cookie")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("crawler.cli.crawl.check_app", fail)
    ran = in_process(programs, "crawl", URL, *SECRET, "-v")
    assert ran.code == 1
    (report,) = tmp_path.glob("crawler-bug-*.txt")
    assert f"crawl {URL} --header Authorization: ***" in report.read_text()
    for text in (report.read_text(), ran.err):
        assert "RuntimeError" in text
        assert "hush" not in text


@pytest.mark.slow(ci=True)
@pytest.mark.processes
def test_instances_get_them_and_no_command_line_shows_them(site: Site, programs: Nursery, tmp_path: Path) -> None:
    site.links(f"{SHOP}/", *(f"/{n}" for n in range(4)))
    words = [f"{SHOP}/", "-n", "2", "--dir", str(tmp_path / "c"), "--delay", "0", *SECRET, "--header", "X-Team: 1"]
    ran = programs.crawler("crawl", *words)
    assert ran.wait() == 0, ran.err
    found = site.got("authorization", "cookie", "x-team")
    assert len(found) == 6
    assert all(sent == SENT | {"x-team": "1"} for sent in found.values()), found
    assert len(site.children) >= 1
    assert not [line for line in site.children if b"hush" in line]
    assert b"hush" not in b"".join(kept_in(tmp_path / "c"))
    assert "hush" not in ran.out + ran.err


def test_how_to_go_on_names_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["crawl", URL, "--cookie", "a=zz", "--header=Authorization: zz", "--header", "X-A: zz"]
    monkeypatch.setattr(sys, "argv", ["crawler", *words])
    session: Any = CrawlSession.__new__(CrawlSession)
    shown = f"crawler crawl {URL} --cookie '***' '--header=Authorization: ***' --header 'X-A: ***'"
    assert session._how_to_resume().endswith(shown)


def test_a_value_that_is_no_text_is_not_said(programs: Nursery) -> None:
    ran = in_process(programs, "crawl", URL, "--header", "Authorization: hush\udcff")
    assert (ran.code, ran.err) == (2, "crawler: the argument Authorization: *** is not valid UTF-8\n")


URL = f"{SHOP}/"
NO_URL = "goes to the sites of the URLs on the command line, and there is none: for others, use [[sites]]"
BAD = [
    (("crawl", URL, "--header", "Bearer hush"), "--header: expected 'Name: value'"),
    (("crawl", URL, "--header", "Bearer hush:hush"), "--header: expected 'Name: value'"),
    (("crawl", URL, "--header", ": hush"), "--header: expected 'Name: value'"),
    (("crawl", URL, "--header", ""), "--header: expected 'Name: value'"),
    (("crawl", URL, "--header", "Authorization:  "), "--header Authorization has no value"),
    (("crawl", URL, "--header", "X-A: hush\r\nHost: hush"), "--header X-A: the value is not printable ASCII"),
    (("crawl", URL, "--header", "X-A: hush\n"), "--header X-A: the value is not printable ASCII"),
    (("crawl", URL, "--header", "X-A: hush\u202e"), "--header X-A: the value is not printable ASCII"),
    (("crawl", URL, "--header", "Host: hush"), "--header Host: the header Host can't be set: it comes from the URL"),
    (("crawl", URL, "--header", "content-length: 1"), "--header content-length: the header content"),
    (("crawl", URL, "--header", "X-A: hush", "--header", "x-a: hush"), "--header x-a is given twice"),
    (("crawl", URL, "--header", f"X-A: hush{'x' * 8192}"), "--header and --cookie have more than 8,192 bytes"),
    (("crawl", URL, "--cookie", "hush"), "--cookie: expected 'name=value'"),
    (("crawl", URL, "--cookie", " ; "), "--cookie: expected 'name=value'"),
    (("crawl", URL, "--cookie", "a=1; =hush"), "--cookie: expected 'name=value'"),
    (("crawl", URL, "--cookie", "a=hush\x1b"), "--cookie: the value of a is not printable ASCII"),
    (("crawl", URL, "--cookie", "a=1; a=hush"), "--cookie: the cookie a is given twice"),
    (("crawl", URL, "--cookie", "a=1", "--header", "Cookie: a=hush"), "--cookie: the cookie a is given twice"),
    (("crawl", URL, "--header", "Cookie: hush"), "--header Cookie: expected 'name=value'"),
    (("run", "--cookie", "a=hush"), f"--cookie {NO_URL}"),
    (("run", "--header", "authorization: hush"), f"--header authorization {NO_URL}"),
    (("crawl", "-i", "seeds.txt", "--cookie", "a=hush"), f"--cookie {NO_URL}"),
    (("crawl", "-", "--cookie", "a=hush"), f"--cookie {NO_URL}"),
    (("crawl", "htp://x", "-i", "seeds.txt", "--cookie", "a=hush"), f"--cookie {NO_URL}"),
    (("crawl", "http://a*.test/", "--cookie", "a=hush"), f"--cookie {NO_URL}"),
    (("crawl", "--app", "shop.py", "--header", "Cookie: a=hush"), f"--cookie {NO_URL}"),
    (("crawl", *(f"http://s{n}.test/" for n in range(129)), "--cookie", "a=hush"), "would go to too many sites"),
    (("fetch", URL, "--method", "CONNECT"), "--method='CONNECT': expected GET, POST"),
    (("fetch", URL, "--method", "P T"), "--method='P T': expected GET, POST"),
    (("fetch", URL, "--method", "get", "--data", "hush"), "--method get: it has no body"),
    (("fetch", URL, "--method", "HEAD", "--data", ""), "--method HEAD: it has no body"),
    (("fetch", URL, "--data", "@no-such-file"), "--data: can't read no-such-file: No such file"),
    (("fetch", URL, "--data", "@."), "--data: can't read .: Is a directory"),
    (("fetch", URL, "--data", "@/dev/zero"), "--data: more than 65,536 bytes"),
    (("fetch", URL, "--data", f"hush{'x' * 65_536}"), "--data: more than 65,536 bytes"),
    (("shell", URL, "--data", "@-"), "--data @- needs -c"),
    (("crawl", URL, "--data", "hush"), "unknown option --data"),
    (("seed", URL, "--cookie", "hush"), "unknown option --cookie"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), BAD, ids=[f"{w[0]} {s[:40]}" for w, s in BAD])
def test_what_can_not_be_sent_is_one_line_without_the_value(
    programs: Nursery, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "seeds.txt").write_text(f"{URL}\n")
    ran = in_process(programs, *words, cwd=tmp_path)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert said in ran.err
    assert "hush" not in ran.err
    assert [file.name for file in tmp_path.iterdir()] == ["seeds.txt"]


def test_a_variable_that_a_table_misses_is_named_with_the_number_of_the_file(programs: Nursery, tmp_path: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text('[[sites]]\nmatch = "shop.test"\nauth = { env = "NO_SUCH_LOGIN" }\n')
    ran = in_process(programs, "crawl", URL, "--cookie", "a=1", "--config", str(config), cwd=tmp_path)
    assert (ran.code, ran.err) == (2, "crawler: sites[0].auth: the environment has no variable NO_SUCH_LOGIN\n")


# --- one request ---


def fetched(programs: Nursery, *words: str) -> str:
    ran = in_process(programs, "fetch", *words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


@pytest.mark.parametrize(
    ("words", "method", "body", "kind"),
    [
        (("--data", "q=1", "--data", "page=2"), "POST", b"q=1&page=2", "application/x-www-form-urlencoded"),
        (("--data", ""), "POST", b"", "application/x-www-form-urlencoded"),
        (("--data", "12"), "POST", b"12", "application/x-www-form-urlencoded"),
        (("--data", '{"q": 1}'), "POST", b'{"q": 1}', "application/json"),
        (("--data", " [1]\n", "--method", "put"), "PUT", b" [1]\n", "application/json"),
        (("--data", "[" * 40_000), "POST", b"[" * 40_000, "application/x-www-form-urlencoded"),
        (("--data", "{}", "--header", "content-type: text/plain"), "POST", b"{}", "text/plain"),
        (("--data", "@body.bin"), "POST", b"a\r\n\xff\0", "application/x-www-form-urlencoded"),
        (("--method", "POST"), "POST", b"", None),
        (("--method", "Delete"), "DELETE", b"", None),
        (("--method", "HEAD"), "HEAD", b"", None),
        (("--method", "GET"), "GET", b"", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_is_sent_as_it_was_given(
    site: Site, programs: Nursery, tmp_path: Path, words: tuple[str, ...], method: str, body: bytes, kind: str | None
) -> None:
    (tmp_path / "body.bin").write_bytes(b"a\r\n\xff\0")
    ran = in_process(programs, "fetch", f"{SHOP}/form", *words, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    robots, sent = site.asked
    assert (robots.method, robots.body, "content-type" in robots.headers) == ("GET", b"", False)
    assert (sent.method, sent.body, sent.headers.get("content-type")) == (method, body, kind)
    assert sent.headers.get("content-length") == (str(len(body)) if kind or method == "POST" else None)
    assert ("request  " + method in ran.out) is (method != "GET")


def test_a_body_may_come_from_standard_input(site: Site, programs: Nursery) -> None:
    ran = crawler(programs, "fetch", f"{SHOP}/form", "--data", "@-", "--json", stdin='{"from": "a pipe"}\n')
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["method"] == "POST"
    assert site.pages[0].body == b'{"from": "a pipe"}\n'


@pytest.mark.parametrize(
    ("status", "target", "arrives"),
    [
        (303, f"{SHOP}/there", ("GET", b"", None)),
        (302, f"{OTHER}/there", ("GET", b"", None)),
        (307, f"{SHOP}/there", ("POST", b"q=1", "text/plain")),
        (308, f"{OTHER}/there", None),
        (307, "http://shop.test/there", None),
    ],
)
def test_a_redirect_takes_along_what_it_would_in_a_crawl(
    site: Site, programs: Nursery, status: int, target: str, arrives: tuple[str, bytes, str | None] | None
) -> None:
    site.redirect(f"{SHOP}/form", target, status)
    words = [f"{SHOP}/form", "--data", "q=1", "--header", "Content-Type: text/plain", "--cookie", "a=1", "--follow"]
    out = fetched(programs, *words)
    first, *more = site.pages
    assert (first.method, first.body, first.headers["cookie"]) == ("POST", b"q=1", "a=1")
    found = [(one.method, one.body, one.headers.get("content-type")) for one in more]
    assert found == ([] if arrives is None else [arrives])
    assert [one.headers.get("cookie") for one in more] in ([], ["a=1" if "shop" in target else None])
    assert ("not followed: another origin does not get the body" in out) is (arrives is None)


def test_a_post_takes_a_connection_of_its_own(programs: Nursery) -> None:
    """On one that is kept, nobody knows whether a server that closes it has read the request."""
    with small() as site:
        for words in ((), ("--data", "q=1")):
            fetched(programs, site.url(HOST), "--allow-private", "--set", "fetch.gateway=", *words)
        got, posted = [[one.port for one in site.requests()[n : n + 2]] for n in (0, 2)]
    assert got[0] == got[1]
    assert posted[0] != posted[1]


@pytest.mark.parametrize("command", ["fetch", "shell", "crawl"])
def test_the_user_agent_is_sent_and_robots_txt_is_read_for_the_crawler(
    site: Site, programs: Nursery, tmp_path: Path, command: str
) -> None:
    rules = b"User-agent: other\nDisallow: /\n\nUser-agent: shardcrawl\nDisallow: /private\n"
    site.robots = Answer(headers=[(b"Content-Type", b"text/plain")], body=rules)
    site.links(URL, "/private")
    agent = ["--user-agent", "other/1.0 ({contact})", "--contact", "me@other.test", "--delay", "0"]
    more = {"crawl": ["--dir", str(tmp_path / "c")], "shell": ["-c", "page.url"]}.get(command, [])
    ran = in_process(programs, command, URL, *agent, *more)
    assert ran.code == 0, ran.err
    assert [asked.url for asked in site.pages] == [URL]
    assert {asked.headers["user-agent"] for asked in site.asked} == {"other/1.0 (me@other.test)"}
    if command != "crawl":
        assert in_process(programs, command, f"{SHOP}/private", *agent, *more).code == 6


# --- the prompt ---

APP = """
from crawler import Crawler
app = Crawler()

@app.start
def start():
    yield app.request("https://shop.test/found", method="POST", form={"q": "start"}, label="found", meta={"n": 0})

@app.page(label="found")
def found(page):
    yield {"meta": page.meta, "method": page.request.method, "body": page.request.body.decode(), "said": page.title}
    if page.meta.get("n") == 3:
        page.retry(delay=20)

@app.page()
def form(page):
    page.follow("/found", form={"q": "x"}, meta={"n": 1}, label="found")
    page.follow("/plain")
"""


def shell(programs: Nursery, code: str, *words: str) -> str:
    ran = in_process(programs, "shell", f"{SHOP}/", "-c", code, "--delay", "0", *words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_the_prompt_requests_as_a_handler_does(site: Site, programs: Nursery) -> None:
    code = """
p = fetch("/found", form={"q": "x y"}, meta={"n": 1}, headers={"X-One": "1"})
q = fetch("https://other.test/", method="PUT", json={"a": 1})
r = fetch("/search?old=1", method="GET", form={"q": 2})
print(page.request.method, p.request.method, p.request.body, p.meta, q.request, r.request, r.url)
"""
    out = shell(programs, code, "--data", "first=1", "--cookie", "a=1", "--header", "X-All: 1")
    put = "Request(method='PUT', headers={'Content-Type': 'application/json'}, body=b'{\"a\":1}')"
    assert out == f"POST POST b'q=x+y' {{'n': 1}} {put} Request() {SHOP}/search?q=2\n"
    sent = [(one.method, one.url, one.body, one.headers.get("x-one"), one.headers.get("cookie")) for one in site.pages]
    assert sent == [
        ("POST", f"{SHOP}/", b"first=1", None, "a=1"),
        ("POST", f"{SHOP}/found", b"q=x+y", "1", "a=1"),
        ("PUT", f"{OTHER}/", b'{"a":1}', None, None),
        ("GET", f"{SHOP}/search?q=2", b"", None, "a=1"),
    ]
    assert {one.headers.get("x-all") for one in site.asked} == {"1"}


def test_the_prompt_shows_what_a_handler_follows_and_that_it_wants_the_page_again(
    site: Site, programs: Nursery, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    app = ("--app", str(tmp_path / "shop.py"))
    form = "headers={'Content-Type': 'application/x-www-form-urlencoded'}, body=b'q=x', meta={'n': 1}"
    post = f"Followed(url='{SHOP}/found', label='found', priority=0.0, request=Request(method='POST', {form}))"
    assert shell(programs, "handle(page)", *app) == f"([], [{post}, Followed(url='{SHOP}/plain', priority=0.0)])\n"
    code = "page.label = 'found'; page.meta = {'n': 3}; print(handle(page)[0][0]['meta'])"
    ran = in_process(programs, "shell", f"{SHOP}/", "-c", code, *app)
    assert (ran.code, ran.out) == (0, "{'n': 3}\n")
    assert ran.err == "page.retry: a crawl would request the page again in 20 s or later, and take none of this\n"


# --- seeds in JSON ---

SEEDS = """\
# found by hand
https://shop.test/plain
{"url": "https://shop.test/found", "method": "POST", "form": {"q": "a b"}, "label": "found", "meta": {"n": 1}}
{"url": "https://shop.test/found", "json": {"q": [1]}, "label": "found", "meta": {"n": 2}, "priority": 5}
{"url": "https://shop.test/found?old=1#x", "method": "GET", "form": {"q": "c"}, "label": "found"}
{"url": "https://shop.test/found"
{"url": "https://shop.test/plain", "metod": "POST"}
{"url": "https://shop.test/found", "method": "TRACE"}
{"url": "https://shop.test/found", "headers": {"Cookie": "hush"}}
{"url": "htp://shop.test/"}
"""


@pytest.mark.parametrize("how", ["crawl", "seed"])
def test_seeds_in_json_carry_their_requests(site: Site, programs: Nursery, tmp_path: Path, how: str) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "seeds.jsonl").write_text(SEEDS)
    where = ["--dir", str(tmp_path / "c")]
    app = ["--app", str(tmp_path / "shop.py"), "-o", str(tmp_path / "items.jsonl"), "--delay", "0"]
    ran = in_process(programs, how, "-i", str(tmp_path / "seeds.jsonl"), *where, *(app if how == "crawl" else ()))
    assert ran.code == 0, ran.err
    if how == "seed":
        assert "4 new, 0 already seen, 0 out of scope, 5 invalid" in ran.out
        assert in_process(programs, "crawl", *where, *app, f"{SHOP}/plain").code == 0
    said = [line.partition(": ")[2] for line in ran.err.splitlines() if "seeds.jsonl line" in line]
    assert [line.partition(" line ")[2].partition(":")[0] for line in said] == ["6", "7", "8", "9", "10"]
    assert "line 7: '{...}': not a seed in JSON: Object contains unknown field `metod`" in said[1]
    assert "hush" not in ran.err
    items = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    found = sorted((item["method"], item["body"], item["meta"].get("n", 0)) for item in items)
    assert found == [("GET", "", 0), ("POST", "q=a+b", 1), ("POST", "q=x", 1), ("POST", '{"q":[1]}', 2)]
    sent = {(one.method, one.url.removeprefix(SHOP), one.body) for one in site.pages}
    assert ("GET", "/found?q=c", b"") in sent
    assert ("POST", "/found", b"q=a+b") in sent
    told = in_process(programs, "explain", f"{SHOP}/found", *where).out
    assert "not by a plain GET" in told
    assert told.count(" POST") == 3


def test_an_app_begins_its_own_crawl_and_goes_on_with_it(site: Site, programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    for _ in range(2):
        crawl(programs, tmp_path / "c", "--app", str(tmp_path / "shop.py"))
    assert [(one.method, one.url, one.body) for one in site.pages] == [("POST", f"{SHOP}/found", b"q=start")]


def test_seeds_of_a_job_are_urls_alone(programs: Nursery, tmp_path: Path) -> None:
    (tmp_path / "seeds.jsonl").write_text(SEEDS)
    add = ["jobs", "add", "news", "--every", "1h", "--dir", str(tmp_path / "c"), "--seeds"]
    ran = in_process(programs, *add, str(tmp_path / "seeds.jsonl"))
    assert ran.code == 0
    alone = "seeds of a job are URLs alone, without label, priority or request"
    assert [line.rpartition(": ")[2] for line in ran.err.splitlines()].count(alone) == 3
    (tmp_path / "only.jsonl").write_text('{"url": "https://shop.test/", "method": "POST"}\n')
    ran = in_process(programs, *add, str(tmp_path / "only.jsonl"))
    assert (ran.code, ran.err.splitlines()[-1]) == (2, "crawler: no valid seed URL")
