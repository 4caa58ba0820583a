"""Requests that carry something, through a whole crawl: what arrives, what is repeated, and what is given up."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawler, Page
from crawler.archive.folder import open_existing
from crawler.archive.index_reader import read_entries
from crawler.archive.repair import ArchivedResponse, walk_responses
from crawler.archive.warc_reader import members
from crawler.outputs.records import page_record
from crawler.testing import Answer, Asked, crawl, serve
from crawler.testing.web_server import ServedWeb

HERE, THERE = "http://shop.test", "http://other.test"
SLOW = {"fetch.idle_timeout_s": 0.5, "fetch.total_timeout_s": 0.5}


class Site:
    """Answers as a test says, and notes what arrives."""

    hosts = ("shop.test", "other.test")

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: defaultdict[str, list[Answer]] = defaultdict(list)

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        if asked.url.endswith("/robots.txt"):
            return None
        self.asked.append(asked)
        answers = self.answers[asked.url]
        return (answers.pop(0) if len(answers) > 1 else answers[0]) if answers else page("ok")

    def sent(self, method: str = "POST") -> list[tuple[str, bytes]]:
        return [(asked.url, asked.body) for asked in self.asked if asked.method == method]


def page(html: str, status: int = 200, **headers: str) -> Answer:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Answer(status=status, headers=[(b"Content-Type", b"text/html"), *lines], body=html.encode())


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def web(site: Site) -> Iterator[ServedWeb]:
    with serve(site) as web:
        yield web


def app_of(*requests: dict[str, Any], handler: Callable[[Page], Any] | None = None) -> Crawler:
    """Begins with these; each page becomes an item."""
    app = Crawler()

    @app.start
    def start() -> Iterator[Any]:
        for request in requests:
            yield app.request(**{"url": f"{HERE}/order", "label": "done", **request})

    @app.page(label="done")
    def done(page: Page) -> Iterator[Any]:
        if handler is not None:
            yield from handler(page) or ()
        yield {"url": page.url, "method": page.request.method, "meta": page.meta}

    return app


def test_what_is_given_arrives(site: Site, web: ServedWeb, tmp_path: Path) -> None:
    requests = (
        {"form": {"q": "tea & ä"}, "meta": {"n": 1}},
        {"json": {"q": [1]}, "meta": {"n": 2}, "headers": {"X-App": "yes"}},
        {"method": "PUT", "body": b"\x00\xff", "meta": {"n": 3}},
        {"method": "GET", "form": {"q": "tea"}, "meta": {"n": 4}},
        {"method": "DELETE", "meta": {"n": 5}},
        {"method": "HEAD", "meta": {"n": 6}},
        {"url": f"{HERE}/plain", "meta": {"n": 7}},
    )
    found = crawl(app_of(*requests), web=web, folder=tmp_path)
    assert found.dead == {}
    assert sorted(item["meta"]["n"] for item in found.items) == [1, 2, 3, 4, 5, 7]  # of a HEAD nothing is handled
    by_method = {asked.method: asked for asked in site.asked if not asked.url.endswith("/plain")}
    posts = [asked for asked in site.asked if asked.method == "POST"]
    assert sorted(asked.body for asked in posts) == [b"q=tea+%26+%C3%A4", b'{"q":[1]}']
    assert {asked.headers.get("x-app") for asked in posts} == {None, "yes"}
    assert {asked.headers["content-type"] for asked in posts} == {
        "application/x-www-form-urlencoded",
        "application/json",
    }
    assert (by_method["PUT"].body, by_method["GET"].url) == (b"\x00\xff", f"{HERE}/order?q=tea")
    assert "content-length" not in by_method["DELETE"].headers
    carried = [entry.request for entry in read_entries(open_existing(tmp_path)) if entry.request]
    assert {request.method for request in carried} == {"GET", "POST", "PUT", "DELETE", "HEAD"}
    assert all(not request.body for request in carried)
    assert {bool(request.digest) for request in carried if request.method == "PUT"} == {True}
    records = [page_record(entry, open_existing(tmp_path)) for entry in read_entries(open_existing(tmp_path))]
    told = [(one["method"], bool(one["body_digest"]), one["meta"]["n"]) for one in records if "method" in one]
    assert sorted(told, key=lambda one: one[2]) == [
        ("POST", True, 1), ("POST", True, 2), ("PUT", True, 3), ("GET", False, 4), ("DELETE", False, 5),
        ("HEAD", False, 6), ("GET", False, 7),
    ]  # fmt: skip


def test_bodies_are_archived_unless_they_are_secret(site: Site, web: ServedWeb, tmp_path: Path) -> None:
    crawl(app_of({"form": {"q": "open"}}, {"form": {"q": "hidden"}, "secret": True}), web=web, folder=tmp_path)
    assert len(site.sent()) == 2
    folder = open_existing(tmp_path)
    fingerprints = {one.stored.fingerprint for one in walk_responses(folder) if isinstance(one, ArchivedResponse)}
    assert fingerprints == {entry.fingerprint for entry in read_entries(folder)}
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "engine" not in str(path))
    assert b"hidden" not in kept
    keys = [line.partition(b" ")[0] for path in folder.index.iterdir() for line in path.read_bytes().splitlines()]
    assert sum(one.endswith(b"?__wb_method=post&q=open") for one in keys) == 1, "pywb finds it"
    assert sum(one.endswith(b"?__wb_method=post") for one in keys) == 1
    records = [one for path in folder.warc.iterdir() for one in records_of(path)]
    assert sum(b"q=open" in one for one in records) == 1
    assert not any(b"hidden" in one for one in records)
    assert any(b"Content-Length: 14\r\n\r\n(not archived)" in one for one in records)


def records_of(path: Path) -> list[bytes]:
    import gzip

    data = path.read_bytes()
    return [gzip.decompress(data[start:end]) for start, end in members(memoryview(data))]


ONCE: dict[str, tuple[list[Answer], dict[str, Any], int, str]] = {
    # what the server answers, what the request says, how often it is sent, how it ends
    "a page": ([page("ok")], {}, 1, ""),
    "404": ([page("no", 404)], {}, 1, ""),
    "500": ([page("no", 500)], {}, 1, "outcome_unknown server_error: status 500"),
    "500, idempotent": ([page("no", 500), page("ok")], {"idempotent": True}, 2, ""),
    "500, PUT": ([page("no", 500), page("ok")], {"method": "PUT"}, 2, ""),
    "500, PATCH": ([page("no", 500), page("ok")], {"method": "PATCH"}, 1, "outcome_unknown server_error: status 500"),
    "503": ([page("no", 503), page("ok")], {}, 2, ""),
    "429": ([page("no", 429), page("no", 429), page("ok")], {}, 3, ""),
    "no answer": ([Answer(delay_s=60)], {}, 1, "outcome_unknown timeout: no response in time"),
}


@pytest.mark.parametrize("name", ONCE)
def test_a_post_is_repeated_only_for_a_server_that_did_nothing(name: str, site: Site, web: ServedWeb) -> None:
    answers, more, times, end = ONCE[name]
    site.answers[f"{HERE}/order"] = answers
    request = {"method": "POST", "body": b"x"} | more
    found = crawl(app_of(request), web=web, settings=SLOW)
    assert len(site.sent(request["method"])) == times
    assert found.dead == ({f"{HERE}/order": end} if end else {})


def test_a_handler_that_fails_on_a_post_does_not_repeat_it(site: Site, web: ServedWeb) -> None:
    def failing(page: Page) -> None:
        raise RuntimeError("no")

    found = crawl(app_of({"body": b"x"}, handler=failing), web=web)
    assert len(site.sent()) == 1
    assert found.dead[f"{HERE}/order"].startswith("handler RuntimeError: no")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_handler_may_want_a_page_again(method: str, site: Site, web: ServedWeb) -> None:
    site.answers[f"{HERE}/order"] = [page("wait"), page("wait"), page("done")]

    def patient(page: Page) -> Iterator[Any]:
        yield {"seen": page.body.decode()}
        if page.body == b"wait":
            page.follow("/never")
            page.retry(delay=0.05)

    found = crawl(app_of({"method": method, "meta": {"n": 1}}, handler=patient), web=web)
    assert len(site.sent(method)) == 3
    assert [item.get("seen") for item in found.items] == ["done", None]
    assert (found.items[1]["meta"], found.dead) == ({"n": 1}, {})


def test_a_handler_that_is_never_content_gives_the_page_up(site: Site, web: ServedWeb) -> None:
    found = crawl(app_of({"url": f"{HERE}/order"}, handler=lambda page: page.retry()), web=web)
    assert (len(site.asked), found.dead) == (3, {f"{HERE}/order": "handler_retry"})
    assert found.items == []


REDIRECTS: dict[str, tuple[int, str, dict[str, Any], list[tuple[str, str, bytes]]]] = {
    # status, where to, what the request says, and what arrives there: method, URL, body
    "303": (303, f"{HERE}/got", {}, [("GET", f"{HERE}/got", b"")]),
    "302 elsewhere": (302, f"{THERE}/got", {}, [("GET", f"{THERE}/got", b"")]),
    "307": (307, f"{HERE}/got", {}, [("POST", f"{HERE}/got", b"x")]),
    "308 elsewhere": (308, f"{THERE}/got", {}, []),
    "308 elsewhere, as wished": (308, f"{THERE}/got", {"cross_origin": True}, [("POST", f"{THERE}/got", b"x")]),
    "302 of a PUT": (302, f"{HERE}/got", {"method": "PUT"}, [("PUT", f"{HERE}/got", b"x")]),
}


@pytest.mark.parametrize("name", REDIRECTS)
def test_what_a_redirect_of_a_post_brings_where(name: str, site: Site, web: ServedWeb) -> None:
    status, target, more, wanted = REDIRECTS[name]
    site.answers[f"{HERE}/order"] = [page("", status, Location=target)]
    request = {"method": "POST", "body": b"x", "meta": {"n": 1}, "headers": {"X-App": "secret"}} | more
    found = crawl(app_of(request), web=web, settings={"scope.mode": "any"})
    arrived = [asked for asked in site.asked if asked.url.endswith("/got")]
    assert [(asked.method, asked.url, asked.body) for asked in arrived] == wanted
    is_elsewhere = target.startswith(THERE)
    for asked in arrived:
        assert ("x-app" in asked.headers) == (not is_elsewhere or bool(more))
        assert found.items[-1]["meta"] == {"n": 1}
    assert found.dead == ({} if wanted else {f"{HERE}/order": f"redirect_with_body to {target}"})


def test_again_means_once_more_for_this_page(site: Site, web: ServedWeb) -> None:
    def twice(page: Page) -> None:
        if not page.request.key:
            assert page.follow(page.url, again=True, label="done", meta={"n": 1}) == 1
            assert page.follow(page.url, again=True, label="done", meta={"n": 2}) == 1
            page.follow(page.url, label="done")  # known
            page.follow(page.url, key="k", label="done", meta={"n": 3})
            page.follow(page.url, key="k", label="done", meta={"n": 4})  # known by then

    found = crawl(app_of({"url": f"{HERE}/order"}, handler=twice), web=web)
    assert sorted(item["meta"].get("n", 0) for item in found.items) == [0, 1, 2, 3]
    assert len(site.asked) == 4


def test_requests_may_be_changed_or_refused_before_they_are_sent(site: Site, web: ServedWeb, tmp_path: Path) -> None:
    app = app_of(
        {"url": f"{HERE}/a", "meta": {"n": 1}}, {"url": f"{HERE}/b"}, {"body": b"x", "headers": {"X-Own": "1"}}
    )

    @app.before_request
    def sign(request: Any) -> None:
        request.headers["Authorization"] = "Bearer hush-token"
        request.headers["Cookie"] = "sid=hush-cookie"
        request.headers["X-Meta"] = str(request.meta.get("n", "none"))

    @app.before_request
    async def judge(request: Any) -> None:
        if request.url.endswith("/b"):
            request.refuse("not today")

    found = crawl(app, web=web, folder=tmp_path)
    assert {asked.url for asked in site.asked} == {f"{HERE}/a", f"{HERE}/order"}
    assert {asked.headers["authorization"] for asked in site.asked} == {"Bearer hush-token"}
    assert {asked.headers["cookie"] for asked in site.asked} == {"sid=hush-cookie"}
    assert {(asked.headers["x-meta"], asked.headers.get("x-own")) for asked in site.asked} == {
        ("1", None),
        ("none", "1"),
    }
    assert (len(found.items), found.dead) == (2, {})
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    records = [one for path in open_existing(tmp_path).warc.iterdir() for one in records_of(path)]
    assert not [data for data in (kept, *records) if b"hush" in data]
    assert (
        sum(b"Authorization: (not archived)\r\n" in one and b"Cookie: (not archived)\r\n" in one for one in records)
        == 2
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"X Y": "1"}, "can't be the name of a header"),
        ({"Host": "x"}, "the header Host can't be set: it comes from the URL"),
        ({"X": 1}, "X"),
    ],
)
def test_a_function_that_spoils_a_request_fails_its_page_alone(
    wrong: dict[str, Any], said: str, site: Site, web: ServedWeb
) -> None:
    app = app_of({"url": f"{HERE}/a"}, {"url": f"{HERE}/b"})

    @app.before_request
    def spoil(request: Any) -> None:
        if request.url.endswith("/a"):
            request.headers.update(wrong)

    found = crawl(app, web=web)
    assert said in found.dead[f"{HERE}/a"]
    assert [item["url"] for item in found.items] == [f"{HERE}/b"]
