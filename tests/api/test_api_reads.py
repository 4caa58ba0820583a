"""What can be read: the same numbers as the service functions, errors as problems, the description of it all."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.api import handlers, jobs
from crawler.api.problem import Problem
from crawler.api.routes import ROUTES
from crawler.errors import EngineDown
from crawler.views import whole
from crawler.views import whole as overview_service
from tests.api.api_lab import PROBLEM, Served, served, served_crawl
from tests.support.engine import Engine, running_engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import DOMAIN, URLS, give_up, seeded


def checked(found: Any, status: int, *words: str) -> None:
    """Is it a problem with this status, and these words in its detail?"""
    problem = msgspec.convert(found, Problem)
    assert (problem.status, problem.type) == (status, "about:blank")
    assert all(word in problem.detail for word in words), problem.detail


async def test_numbers_are_those_of_the_service(api: Served) -> None:
    status, found = await api.get("/v1/totals")
    expected = msgspec.to_builtins(await whole.totals(api.crawl))
    assert (status, found) == (200, expected)
    _, overview = await api.get("/v1/overview")
    assert (overview["added"], overview["pending"], overview["state"]) == (len(URLS), len(URLS), "idle")
    _, detail = await api.get(f"/v1/domains/{DOMAIN}")
    assert (detail["domain"]["domain"], detail["domain"]["queued"]) == (DOMAIN, len(URLS))
    assert (await api.get(f"/v1/domains/https%3A%2F%2F{DOMAIN}%2Fp1"))[1]["domain"]["domain"] == DOMAIN
    _, crawls = await api.get("/v1/crawls")
    assert (crawls["served"], [(one["name"], one["pending"]) for one in crawls["crawls"]]) == (
        "main",
        [("main", len(URLS))],
    )
    assert (await api.get("/v1/health"))[1]["engine"].startswith("valkey ")
    assert (await api.get("/v1/members"))[1] == {"members": []}
    assert (await api.get(f"/v1/ring/place?url={DOMAIN}"))[1]["domain"] == DOMAIN
    assert (await api.get("/v1/ring"))[1]["free"] == api.crawl.record.partitions
    _, explained = await api.get(f"/v1/explain?url={URLS[0]}")
    assert (explained["state"], explained["domain"], explained["scope"]["allowed"]) == ("queued", DOMAIN, True)
    assert (await api.get(f"/v1/history?domain={DOMAIN}"))[1] == {"attempts": []}
    status, metrics, headers = await api.send("GET", "/metrics")
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    assert b'crawler_urls_pending{crawl="main"} 5.0' in metrics
    assert set((await api.get("/v1/series"))[1]) == {"fine", "coarse"}


async def test_domains_come_page_by_page(tmp_path: Path, engine: Engine) -> None:
    names = [f"d{n:02}.example" for n in range(25)]
    urls = [f"https://{name}/" for name in names]
    async with seeded(tmp_path / "c", engine, *urls) as crawl, served(crawl) as api:
        found: list[str] = []
        after = ""
        while True:
            _, page = await api.get(f"/v1/domains?by_name=true&limit=10&after={after}")
            found += [row["domain"] for row in page["rows"]]
            after = page["next"]
            if not after:
                break
            assert len(page["rows"]) == 10
        assert found == names
        assert [row["domain"] for row in (await api.get("/v1/domains?match=d07"))[1]["rows"]] == ["d07.example"]
        ranked: list[str] = []
        while len(ranked) < 25:
            _, page = await api.get(f"/v1/domains?sort=due&limit=10&after={len(ranked) or ''}")
            ranked += [row["domain"] for row in page["rows"]]
            assert page["next"] == (str(len(ranked)) if len(ranked) < 25 else "")
        assert sorted(ranked) == names


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/v1/nothing", 404, "/openapi.json"),
        ("/v1/domains/never.example", 404, "has not met"),
        ("/v1/domains/%20", 422, "invalid URL"),
        ("/v1/domains?limit=x", 400, "limit"),
        ("/v1/domains?limit=1001", 400, "limit"),
        ("/v1/domains?sort=name", 400, "sort"),
        ("/v1/domains?after=a.test", 422, "by_name"),
        ("/v1/domains?after=99999", 422, "by_name"),
        ("/v1/domains?top=5", 400, "top"),
        ("/v1/domains?limit=5&limit=6", 400, "twice"),
        ("/v1/overview?x=", 400, "x"),
        ("/v1/ring/place", 400, "url"),
        ("/v1/explain", 400, "url"),
        ("/v1/explain?url=docs.example", 422, "invalid URL"),
        ("/v1/history", 422, "one URL or one domain"),
        ("/v1/history?url=https://a.test/&domain=a.test", 422, "one URL or one domain"),
        ("/v1/dead-letters?cursor=x", 422, "cursor"),
        ("/v1/dead-letters?reason=x", 400, "reason"),
        ("/assets/../../keys.py", 404, ""),
        ("/assets/%2e%2e/server.py", 404, ""),
        ("/assets/secret.js", 404, ""),
    ],
)
async def test_errors_are_problems(api: Served, path: str, status: int, word: str) -> None:
    found_status, found, headers = await api.send("GET", path)
    assert (found_status, headers["Content-Type"]) == (status, PROBLEM)
    checked(found, status, word)


async def test_a_wrong_method_is_405_with_those_that_there_are(api: Served) -> None:
    status, found, headers = await api.send("DELETE", "/v1/overview", await api.token())
    assert (status, set(headers["Allow"].split(","))) == (405, {"GET", "HEAD"})
    checked(found, 405)


@pytest.mark.parametrize(
    "text",
    [
        b"GET /v1/overview HTTP/1.1\r\nHost: a\r\nBad Header\r\n\r\n",
        b"GET /v1/overview HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + b"\x00" * 50 + b"\r\n\r\n",
        b"POST /v1/pause HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_a_problem_and_the_end(api: Served, text: bytes) -> None:
    async with asyncio.timeout(PATIENCE_S):
        head, _, body = (await api.raw(text)).partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0]
    checked(msgspec.json.decode(body), 400)
    assert (await api.get("/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("line", "extra", "status"),
    [
        ("GET /v1/overview", "Expect: the-unexpected", 417),
        ("CONNECT a.test:443", "", 401),
        ("FETCH /v1/overview", "", 400),
        ("GET /v1/overview", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13", 200),
        ("GET http://evil.example/v1/overview", "", 200),
        ("GET /v1/overview", "Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
    ],
)
async def test_unusual_requests_are_answered_in_order(api: Served, line: str, extra: str, status: int) -> None:
    lines = f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n{extra}\r\n" + "\r\n" * bool(extra)
    async with asyncio.timeout(PATIENCE_S):
        head = await api.raw(lines.encode(), until_closed=False)
    assert head.split()[1] == str(status).encode(), head
    assert b"Content-Security-Policy" in head
    assert (PROBLEM.encode() in head) is (status != 200)


async def test_a_bug_shows_no_trace_and_is_logged_with_its_number(
    api: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: object) -> None:
        raise ValueError("secret of the inside")

    monkeypatch.setattr(overview_service, "totals", broken)
    with caplog.at_level(logging.ERROR):
        status, found, _ = await api.send("GET", "/v1/totals")
    checked(found, 500, "bug")
    assert (status, "secret" in str(found)) == (500, False)
    (record,) = [record for record in caplog.records if record.message == "api.bug"]
    assert record.id in found["detail"]  # type: ignore[attr-defined]
    assert record.exc_info is not None


async def test_the_server_outlives_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_engine() as engine:
        async with served_crawl(tmp_path, engine) as api:
            token, cookie = await api.token(), (await api.browser())["Cookie"]
            assert (await api.get("/readyz", **token))[0] == 200
            engine.process.kill()
            engine.process.wait()
            for method, path in (("GET", "/v1/overview"), ("GET", "/readyz"), ("POST", "/v1/pause")):
                status, found, headers = await api.send(method, path, token)
                assert (status, headers["Retry-After"].isdigit()) == (503, True), path
                checked(found, 503)
            assert (await api.get("/healthz"))[0] == 200
            monkeypatch.setattr("crawler.api.live_crawl.RELOAD_EVERY_S", 0.0)
            assert b'crawler_engine_up{crawl="main"} 0.0' in (await api.get("/metrics", Cookie=cookie))[1]


async def test_a_crawl_that_the_engine_lost_is_503_with_what_to_do(
    api: Served, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.api.live_crawl.RELOAD_EVERY_S", 0.0)
    engine.flush()
    for path in ("/v1/overview", "/v1/domains", "/readyz"):
        checked((await api.get(path))[1], 503, "crawler rebuild")


async def test_readyz_does_not_wait_for_a_silent_engine(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(type(api.crawl.crawls), "still", silent)
    async with asyncio.timeout(PATIENCE_S):
        checked((await api.get("/readyz"))[1], 503, "in time")


async def test_dead_letters_come_in_pages_and_sums(api: Served) -> None:
    await give_up(api.crawl, lambda url: "tls" if url.endswith("1") else "timeout")
    _, found = await api.get("/v1/dead-letters/summary?limit=2")
    assert (found["total"], found["reasons"], len(found["newest"])) == (5, {"timeout": 4, "tls": 1}, 2)
    _, found = await api.get("/v1/dead-letters?reason=tls")
    assert [letter["url"] for letter in found["letters"]] == [URLS[1]]


def refers_to(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*map(refers_to, value.values()))
    return set().union(*map(refers_to, value)) if isinstance(value, list) else set()


async def test_the_description_has_every_route_and_every_type(api: Served) -> None:
    status, found, headers = await api.send("GET", "/openapi.json")
    assert (status, headers["Content-Type"], found["openapi"]) == (200, "application/json", "3.1.0")
    assert {(r.method.lower(), r.path) for r in ROUTES} == {(m, p) for p, item in found["paths"].items() for m in item}
    for reference in refers_to(found):
        place = found
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
    operations = [one for item in found["paths"].values() for one in item.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"].endswith((".", "?")) for one in operations)
    names = [one["name"] for one in found["paths"]["/v1/domains"]["get"]["parameters"]]
    assert names == ["sort", "limit", "by_name", "after", "match"]


async def test_a_head_request_has_the_headers_alone(api: Served) -> None:
    query = {
        handlers.place: "?url=a.test", handlers.explain: "?url=https://a.test/", handlers.history: "?domain=a.test",
        jobs.schedule_preview: "?executionInterval=PT1H",
    }  # fmt: skip
    for route in ROUTES:
        if route.method != "GET" or route.media == "text/event-stream" or route.is_public:
            continue
        path = route.path.format(name=DOMAIN, user="ann", run="x") + query.get(route.handler, "")
        status, found, headers = await api.send("HEAD", path)
        assert (status in (200, 404), found) == (True, b""), (path, headers)


async def test_an_outage_is_what_the_client_of_the_engine_says(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(_: object) -> None:
        raise EngineDown("no answer from the engine: redis://:secret@host")

    monkeypatch.setattr(overview_service, "totals", down)
    checked((await api.get("/v1/totals"))[1], 503, "no answer")
