"""What other crawlers know: URLs that count as seen, and requests of their queues."""

import asyncio
import contextlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.crawl.imports import SCRAPY_DEFAULTS, KnownUrl, known_in
from crawler.crawl.scrapy_redis import scrapy_request
from crawler.rules.url_list import TWO_URLS
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import WebLab, audit, opened
from tests.support.engine import Engine
from tests.support.serving import serve_web


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("http://a.test/x\n", KnownUrl("http://a.test/x")),
        ("  http://a.test/x\tthe rest\r\n", KnownUrl("http://a.test/x")),
        ("http://a.test/my file", KnownUrl("http://a.test/my file")),
        ("http://a.test/ http://b.test/", KnownUrl("http://a.test/ http://b.test/", flaw=TWO_URLS)),
        ("# a comment", None),
        ("\n", None),
        ('{"url": "http://a.test/", "status": 404, "more": []}', KnownUrl("http://a.test/", "404")),
        ('{"status": 404}', KnownUrl("")),
        ("{half", KnownUrl("")),
        ("[1]", KnownUrl("[1]")),
        ('test,a)/ 20260101000000 {"url": "http://a.test/", "status": "200"}', KnownUrl("http://a.test/", "200")),
        ('test,a)/ 20260101000000 {"url": null}', KnownUrl("None")),
        ("test,a)/ 20260101000000 {", KnownUrl("")),
    ],
)
def test_a_line_is_read_as_what_it_is(line: str, known: KnownUrl | None) -> None:
    assert known_in(line, []) == known


def test_columns_of_cdx_are_those_of_its_header() -> None:
    columns: list[str] = []
    assert known_in(" CDX N b a m s k r M S V g\n", columns) is None
    line = "test,a)/x 20260101000000 http://a.test/x text/html 200 SHA - - 1 2 f.warc.gz\n"
    assert known_in(line, columns) == KnownUrl("http://a.test/x", "200")
    assert known_in("test,a)/x 20260101000000 http://a.test/x warc/revisit - SHA", columns) == KnownUrl(
        "http://a.test/x"
    )
    assert known_in("one\n", columns) == KnownUrl("")
    assert known_in(" CDX a s\n", columns) is None
    assert known_in("http://b.test/ 503\n", columns) == KnownUrl("http://b.test/", "503")


class Spy:
    """What a pickle must not run."""

    def __reduce__(self) -> Any:
        return print, ("executed",)


def stored(**changed: Any) -> dict[str, Any]:
    """As Scrapy's `Request.to_dict` makes it."""
    return {
        "url": "http://a.test/x", "callback": "parse", "errback": None, "headers": {b"Referer": [b"http://a.test/"]},
        "method": "GET", "body": b"", "cookies": {}, "meta": {"depth": 1}, "encoding": "utf-8", "priority": 0,
        "dont_filter": False, "flags": [], "cb_kwargs": {}, **changed,
    }  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_request_is_read_with_what_it_carries(protocol: int) -> None:
    given = stored(method="POST", body=b"q=1", meta={"page": 2, "object": {1, 2}, "text": "ä"})
    found = scrapy_request("request 1", pickle.dumps(given, protocol=protocol), -5.0)
    assert (found.text, found.priority, found.flaw) == ("http://a.test/x", 5.0, "")
    assert found.request is not None
    assert (found.request.method, found.request.body, found.request.meta) == (
        "POST", b"q=1", {"page": 2, "text": "ä"},
    )  # fmt: skip


def test_headers_come_along_but_for_those_that_are_secret_or_everybodys() -> None:
    headers = {
        b"Content-Type": [b"application/json"], b"X-Lang": [b"en", b"de"], b"Accept": [SCRAPY_DEFAULTS["accept"].encode()],  # noqa: E501
        b"Authorization": [b"Basic x"], b"Host": [b"b.test"], b"User-Agent": [b"Scrapy"], b"Referer": [b"http://a.test/"],
    }  # fmt: skip
    for more, expected in (({}, 1), ({"headers": {}, "cookies": {"a": "b"}}, 1), ({"headers": {}}, 0)):
        told = list[str]()
        given = pickle.dumps(stored(**{"method": "POST", "body": b"{}", "headers": headers, **more}))
        request = scrapy_request("", given, on_secrets=told.append).request
        assert len(told) == expected
        assert request is not None
        if not more:
            assert request.headers == {"Content-Type": "application/json", "X-Lang": "en, de"}
    assert "header" in scrapy_request("", pickle.dumps(stored(headers={b"X": [b"a\r\nb"]}))).flaw


def test_meta_that_names_one_value_a_billion_times_is_left_out() -> None:
    laughs: list[Any] = ["ha" * 50]
    for _ in range(30):
        laughs = [laughs] * 10
    endless: list[Any] = []
    endless.append(endless)
    given = stored(meta={"a": laughs, "b": "x" * 9000, "c": endless, "d": {1: 2}, "e": b"bytes", "f": 10**400, "ok": 1})
    found = scrapy_request("", pickle.dumps(given))
    assert found.request is not None
    assert "ok" in found.request.meta
    assert not {"a", "b", "c", "e"} & found.request.meta.keys()


def test_a_request_in_json_and_a_plain_one_are_read() -> None:
    assert scrapy_request("", b'{"url": "http://a.test/x", "priority": 3}').priority == 3.0
    found = scrapy_request("", pickle.dumps(stored()))
    assert (found.text, found.priority) == ("http://a.test/x", None)


@pytest.mark.parametrize(
    "data",
    [pickle.dumps(stored(meta={"x": Spy()})), pickle.dumps([1]), pickle.dumps({"no": "url"}), b"", b"{", b"\x80\x04.",
     b"garbage", b"[" * 100_000, pickle.dumps(stored(method="GET\r\nX: y")), pickle.dumps({"url": b"\xff"}),
     b"\x80\x04\x8c\xff" + b"x" * 10],
)  # fmt: skip
def test_what_is_no_request_is_a_flaw_and_runs_nothing(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert "request" in scrapy_request("request 1", data).flaw
    assert "executed" not in capsys.readouterr().out


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> Any:
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


def say(lab: WebLab, *words: str) -> int:
    return main([*words, "--dir", str(lab.home / "c"), "--redis", lab.engine.url])


@pytest.mark.slow(ci=True)
async def test_urls_that_were_imported_are_not_fetched_and_the_audit_knows_them(
    lab: WebLab, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = sorted(url for url, status in lab.expected.items() if status == 200 and url not in lab.site.web.seeds)
    seen, failed = pages[::3], pages[1::3]
    file = lab.home / "old.cdx"
    rows = [" CDX a s", *(f"{url} 200" for url in seen), *(f"{url} 503" for url in failed), "nonsense -"]
    file.write_text("\n".join(rows))
    assert await asyncio.to_thread(say, lab, "import", "seen", str(file)) == 0
    assert f"{len(seen)} URLs marked as seen, 0 known before, {len(failed)} left out" in capsys.readouterr().out
    assert await asyncio.to_thread(say, lab, "import", "seen", str(file)) == 0
    assert f"0 URLs marked as seen, {len(seen)} known before" in capsys.readouterr().out
    done = await crawl(lab.settings(), lab.site.web.seeds)
    fetched = {entry.url for entry in done.entries}
    assert fetched & set(seen) == set()
    assert set(lab.site.web.seeds) <= fetched
    async with opened(lab.settings()) as found:
        totals = await found.stats.totals()
    assert totals.refused.get("imported") == len(seen)
    assert await audit(lab.settings()) == 0


def test_a_queue_of_scrapy_redis_is_added_and_stays(engine: Engine, tmp_path: Path, capsys: Any) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    with contextlib.closing(engine.client()) as client:
        client.zadd("q:requests", {pickle.dumps(stored(url=f"http://a.test/{n}")): -n for n in range(1200)})
        client.zadd("q:requests", {b"nonsense": 0})
        client.rpush("q:list", pickle.dumps(stored(url="http://b.test/", cookies={"a": "b"})))
        client.sadd("q:dupefilter", "0" * 40, "f" * 40)
        assert main(["import", "scrapy-redis", engine.url, "q:requests", *where]) == 0
        assert "1,200 requests added, 0 known before, 1 unusable" in capsys.readouterr().out
        assert client.zcard("q:requests") == 1201
        assert main(["import", "scrapy-redis", engine.url, "q:list", *where]) == 0
        assert main(["import", "scrapy-redis", engine.url, "q:none", *where]) == 2
        assert main(["import", "scrapy-redis", engine.url, "q:dupefilter", *where]) == 2
        said = capsys.readouterr().err
    assert "1 request had cookies or Authorization, which were left out" in said
    assert "there is no such key" in said
    assert "q:dupefilter is a set of fingerprints (a dupefilter), which tell no URLs" in said


@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_start_urls_of_scrapy_redis_are_taken_in_each_form(
    kind: str, engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    plain = [
        "http://a.test/1", " http://a.test/2\n", '"http://a.test/3"', "a.test", "http://a.test/4 # four",
        "HTTP://a.test/5", "http://a.test/\u00e4",
    ]  # fmt: skip
    whole = [pickle.dumps(stored(url="http://a.test/6"), protocol=n) for n in (0, 2, 4)]
    whole.append(b'{"url": "http://a.test/7", "meta": {"page": 1}}')
    flawed = ["nonsense", "\ufeff", "http://a.test/ http://b.test/", b"http://a.test/\xff", "ftp://a.test/", "[]"]
    key, members = "q:start_urls", [one.encode() if isinstance(one, str) else one for one in plain + whole + flawed]
    with contextlib.closing(engine.client()) as client:
        if kind == "list":
            client.rpush(key, *members)
        elif kind == "set":
            client.sadd(key, *members)
        else:
            client.zadd(key, {one: -n for n, one in enumerate(members)})
        assert main(["import", "scrapy-redis", engine.url, key, *where]) == 0
        said = capsys.readouterr()
        new, urls = len(plain) + 2, len(plain) + 1
        assert f"{new} requests added, 2 known before, {len(flawed)} unusable; {urls} plain URLs among" in said.out
        assert said.err.count("not a request that can be read") == 5, said.err
        assert client.exists(key)


@pytest.mark.parametrize("kind", ["set", "zset", "list"])
def test_a_large_queue_is_read_in_parts(kind: str, engine: Engine, tmp_path: Path, capsys: Any) -> None:
    with contextlib.closing(engine.client()) as client:
        urls = [f"http://a.test/{n}" for n in range(1300)]
        if kind == "zset":
            client.zadd("q", dict.fromkeys(urls, 0))
        else:
            getattr(client, "sadd" if kind == "set" else "rpush")("q", *urls)
        assert main(["import", "scrapy-redis", engine.url, "q", "--dir", str(tmp_path), "--redis", engine.url]) == 0
    assert "1,300 requests added, 0 known before, 0 unusable; 1,300 plain URLs among" in capsys.readouterr().out
