"""Who may do what: tokens, roles, hosts, browsers' sessions, other sites' pages."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.api import app
from crawler.api.access import is_ours, listen_address, reachable, shown
from crawler.api.problem import Limits
from crawler.api.routes import ROUTES
from crawler.api.server import check_tokens, listen
from crawler.errors import ConflictError, UsageError
from crawler.frontier.api_store import ApiTokens, Role
from tests.api.api_lab import PROBLEM, QUICK, Served, served, served_crawl
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import all_keys, seeded

READS = ("/v1/overview", "/v1/domains", "/healthz", "/readyz", "/openapi.json", "/", "/nothing", "/v1/events")
PAUSE = "/v1/domains/docs.example/pause"


async def cookie_of(api: Served) -> str:
    """The cookie of a browser that opens the link."""
    status, _, headers = await api.send("GET", api.server.login_url().partition(f":{api.port}")[2])
    assert (status, headers["Location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(headers["Set-Cookie"].split("; "))
    return str(headers["Set-Cookie"].partition(";")[0])


async def test_loopback_reads_need_no_token_and_writes_do(api: Served) -> None:
    assert (await api.get("/v1/overview"))[0] == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in (PAUSE, "/v1/overview", "/nothing"):
            status, found, headers = await api.send(method, path)
            assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="crawler"')
            assert found["status"] == 401
    assert (await api.crawl.operator.overrides()).stop_of("docs.example") == ""


@pytest.mark.parametrize("path", READS)
async def test_a_wrong_token_is_401_everywhere(api: Served, path: str) -> None:
    right = (await api.token())["Authorization"]
    wrong = [
        right[:-1] + ("A" if right[-1] != "A" else "B"),
        right[:-1],
        f"{right}x",
        right.replace("Bearer", "Token"),
        "Bearer ",
        "Bearer x",
        "Basic eDp5",
        "Bearer crawler_00000000_x",
        "Bearer \xff",
    ]
    for text in wrong:
        status, found, headers = await api.send("GET", path, {"Authorization": text})
        assert (status, headers.getall("WWW-Authenticate")) == (401, ['Bearer realm="crawler", error="invalid_token"'])
        assert headers["Content-Type"] == PROBLEM
        assert right.split("_", 2)[2][:20] not in str(found)


async def test_a_reader_may_not_write_and_a_writer_may(api: Served) -> None:
    reader, writer = await api.token(Role.READ), await api.token(Role.WRITE)
    assert (await api.send("POST", PAUSE, reader))[0] == 403
    assert (await api.get("/v1/session", **reader))[1]["role"] == "read"
    status, found, _ = await api.send("POST", PAUSE, writer)
    assert (status, found["paused"], found["domain"]) == (200, True, "docs.example")
    (entry,) = await api.crawl.operator_log.read()
    assert (entry.who, entry.via, entry.action, entry.target) == ("ann", "api", "pause", "docs.example")


async def test_the_engine_has_no_token_and_a_removed_one_ends(
    api: Served, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.0)
    token = await api.token(Role.READ)
    assert (await api.get("/v1/overview", **token))[0] == 200
    tokens = ApiTokens(api.crawl.engine, api.crawl.keys)
    (number,) = await tokens.read()
    secret = token["Authorization"].split("_", 2)[2].encode()
    everything = b"".join(await api.crawl.engine.command("HVALS", api.crawl.keys.api_tokens))
    assert secret not in everything
    assert await tokens.remove(number)
    assert (await api.get("/v1/overview", **token))[0] == 401


async def test_elsewhere_than_on_loopback_everything_needs_a_token(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, address="0.0.0.0") as api:
        for path in READS:
            assert (await api.get(path))[0] == 401, path
        token = await api.token(Role.READ)
        assert (await api.get("/v1/overview", **token))[0] == 200
        cookie = await cookie_of(api)
        assert (await api.get("/v1/overview", Cookie=cookie))[0] == 200


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
async def test_what_comes_through_a_proxy_needs_a_token(api: Served, header: str) -> None:
    assert (await api.send("GET", "/v1/overview", {header: "x"}))[0] == 401


async def test_with_a_name_everything_needs_a_token(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, names=("Crawl.example",)) as api:
        token = await api.token(Role.READ)
        for host in ("crawl.example", "CRAWL.example:443", f"127.0.0.1:{api.port}"):
            assert (await api.get("/v1/overview", Host=host))[0] == 401
            assert (await api.get("/v1/overview", Host=host, **token))[0] == 200
        assert (await api.get("/v1/overview", Host="evil.example", **token))[0] == 421


async def test_no_server_for_others_without_a_token(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl:
        await check_tokens(crawl, "127.0.0.1")
        await check_tokens(crawl, "::1")
        with pytest.raises(UsageError, match="crawler token add"):
            await check_tokens(crawl, "0.0.0.0")
        await ApiTokens(crawl.engine, crawl.keys).add("ann", Role.READ)
        await check_tokens(crawl, "0.0.0.0")


async def test_only_hosts_of_this_server_are_answered(api: Served) -> None:
    port, token = api.port, await api.token()
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"LOCALHOST:{port}"):
        assert (await api.get("/v1/overview", Host=host))[0] == 200, host
    foreign = ("evil.example", f"evil.example:{port}", "127.0.0.1", "localhost:1", f"127.0.0.1.evil:{port}", "")
    for host in foreign:
        for path in ("/v1/overview", "/", "/healthz", api.server.login_url().partition(f":{port}")[2]):
            status, _, headers = await api.send("GET", path, {"Host": host, **token})
            assert (status, headers["Content-Type"]) == (421, PROBLEM), (host, path)
    assert (await api.raw(b"GET /v1/overview HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 421 ")
    two = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert (await api.raw(two.encode())).split()[1] in (b"400", b"421")


@pytest.mark.parametrize(
    ("header", "is_one"),
    [("10.0.0.5:80", True), ("10.0.0.5", True), ("10.0.0.6", False), ("10.0.0.5:81", False), ("a.example", True),
     ("a.example:9", True), ("a.example.", False), ("b.a.example", False), ("localhost", True), ("10.0.0.5:x", True),
     ("10.0.0.5:99999", True), ("[::1]", True), ("::1", False), ("a.example@evil", False)],
)  # fmt: skip
def test_a_host_is_the_address_or_a_given_name(header: str, *, is_one: bool) -> None:
    assert is_ours(header, address="10.0.0.5", port=80, names={"a.example"}) is is_one


def test_addresses_to_listen_on_are_ip_addresses_with_a_port() -> None:
    assert listen_address("127.0.0.1:8800") == ("127.0.0.1", 8800)
    assert listen_address("localhost:0") == ("127.0.0.1", 0)
    assert listen_address("[::1]:8800") == ("::1", 8800)
    for text in ("8800", ":8800", "127.0.0.1", "127.0.0.1:", "example.com:80", "127.0.0.1:70000", "::1", "[::1]"):
        with pytest.raises(UsageError, match="expected an address and a port"):
            listen_address(text)


def test_the_printed_address_is_one_that_answers() -> None:
    found = [shown(reachable(address), 80) for address in ("0.0.0.0", "::", "::1", "10.0.0.5")]
    assert found == ["127.0.0.1:80", "[::1]:80", "[::1]:80", "10.0.0.5:80"]


async def test_it_answers_on_ipv6_as_on_ipv4(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, address="::1") as api, api.http.get(f"{api.server.url}healthz") as answer:
        assert (answer.status, api.server.url) == (200, f"http://[::1]:{api.port}/")


def test_a_port_in_use_is_a_conflict() -> None:
    with listen("127.0.0.1", 0) as sock, pytest.raises(ConflictError, match="is in use"):
        listen("127.0.0.1", sock.getsockname()[1])


async def test_a_browsers_link_works_once_and_the_next_is_announced(tmp_path: Path, engine: Engine) -> None:
    said: list[str] = []
    async with served_crawl(tmp_path, engine, announce=said.append) as api:
        path = api.server.login_url().partition(f":{api.port}")[2]
        cookie = await cookie_of(api)
        status, found, headers = await api.send("GET", path)
        assert (status, "Set-Cookie" in headers) == (403, False)
        assert "open the last that 'crawler serve' printed" in found["detail"]
        assert said == [api.server.login_url()]
        assert (await api.get("/login?code="))[0] == 403
        assert (await api.get("/login"))[0] == 400
        other = await cookie_of(api)
        for one in (cookie, other):
            assert (await api.get("/v1/session", Cookie=one))[1]["user"] == "browser"


async def test_a_browsers_write_needs_the_csrf_token_and_our_origin(api: Served) -> None:
    cookie = await cookie_of(api)
    csrf = (await api.get("/v1/session", Cookie=cookie))[1]["csrf_token"]
    ours = f"http://127.0.0.1:{api.port}"
    good = {"Cookie": cookie, "X-CSRF-Token": csrf, "Origin": ours, "Sec-Fetch-Site": "same-origin"}
    assert (await api.send("POST", PAUSE, good))[0] == 200
    (entry,) = await api.crawl.operator_log.read()
    assert (entry.who, entry.via) == ("browser", "api")
    changes = {
        "X-CSRF-Token": ("", "x", csrf[:-1], f"{csrf}x", None),
        "Origin": ("http://evil.example", "null", f"http://localhost:{api.port}", f"{ours}.evil"),
        "Sec-Fetch-Site": ("cross-site", "same-site"),
    }
    for name, values in changes.items():
        for value in values:
            headers = {key: text for key, text in (good | {name: value}).items() if text is not None}
            assert (await api.send("POST", "/v1/resume", headers))[0] == 403, (name, value)
    assert (await api.send("POST", "/v1/resume", good | {"Cookie": f"{cookie}x"}))[0] == 401
    assert len(await api.crawl.operator_log.read()) == 1


async def test_pages_of_other_sites_can_read_nothing(api: Served) -> None:
    for site in ("cross-site", "same-site"):
        fetch = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Origin": "http://evil.example"}
        assert (await api.send("GET", "/v1/overview", fetch))[0] == 403
        visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert (await api.send("GET", "/v1/overview", visit))[0] == 200
    for method in ("GET", "OPTIONS"):
        _, _, headers = await api.send(method, "/v1/overview", {"Origin": "http://evil.example"})
        assert not [name for name in headers if name.lower().startswith("access-control")]


async def test_every_answer_has_the_security_headers(api: Served) -> None:
    for method, path in itertools.product(("GET", "POST"), (*READS[:-1], PAUSE)):
        _, _, headers = await api.send(method, path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        if path.startswith("/v1"):
            assert headers["Cache-Control"] == "no-store"
    broken = await api.raw(b"nonsense\r\n\r\n")
    assert broken.startswith(b"HTTP/1.0 400 ")
    assert b"\r\nContent-Security-Policy: default-src 'none'" in broken
    assert PROBLEM.encode() in broken


async def test_too_many_requests_of_one_client_are_429(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(requests_per_s=0.001, requests_burst=3, shutdown_s=0.5)
    async with seeded(tmp_path / "c", engine) as crawl, served(crawl, limits=limits) as api:
        token = await api.token(Role.READ)
        assert [(await api.get("/healthz"))[0] for _ in range(4)] == [200, 200, 200, 429]
        status, found, headers = await api.send("GET", "/healthz")
        assert (status, found["status"], int(headers["Retry-After"]) > 0) == (429, 429, True)
        assert [(await api.get("/healthz", **token))[0] for _ in range(4)] == [200, 200, 200, 429]
        assert (await api.get("/healthz", Authorization="Bearer x"))[0] == 429, "wrong tokens count for the address"


def test_the_usual_limits_let_a_browser_work() -> None:
    assert Limits().requests_burst >= 100
    assert QUICK.requests_per_s > Limits().requests_per_s


async def removed(api: Served) -> None:
    """Remove all tokens."""
    tokens = ApiTokens(api.crawl.engine, api.crawl.keys)
    for number in await tokens.read():
        assert await tokens.remove(number)


async def narrowed(api: Served) -> None:
    """Let all tokens only read."""
    tokens = ApiTokens(api.crawl.engine, api.crawl.keys)
    for number, token in (await tokens.read()).items():
        blob = msgspec.json.encode(msgspec.structs.replace(token, role=Role.READ))
        await api.crawl.engine.command("HSET", api.crawl.keys.api_tokens, number, blob)


async def given_to_eve(api: Served) -> None:
    """Let all tokens be another user's."""
    tokens = ApiTokens(api.crawl.engine, api.crawl.keys)
    for number, token in (await tokens.read()).items():
        blob = msgspec.json.encode(msgspec.structs.replace(token, user="eve"))
        await api.crawl.engine.command("HSET", api.crawl.keys.api_tokens, number, blob)


@pytest.mark.parametrize("revoke", [removed, given_to_eve])
async def test_a_revoked_token_ends_its_stream_of_events_and_no_other(
    api: Served, revoke: Callable[[Served], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.01)
    async with asyncio.timeout(PATIENCE_S):
        token = await api.token(Role.READ)
        nobodys, anns = [await api.http.get(api.url("/v1/events"), headers=one) for one in ({}, token)]
        assert (await anns.content.readline()).startswith(b"id: ")
        await revoke(api)
        assert b"event: overview" in await anns.read(), "it ends as a whole answer does"
        for _ in range(20):
            assert await nobodys.content.readline()
        nobodys.close()


async def test_a_narrowed_token_goes_on_to_listen(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.01)
    async with asyncio.timeout(PATIENCE_S), api.http.get(api.url("/v1/events"), headers=await api.token()) as response:
        await narrowed(api)
        for _ in range(40):
            assert await response.content.readline()


@pytest.mark.parametrize(("revoke", "status"), [(removed, 401), (narrowed, 403), (given_to_eve, 401)])
@pytest.mark.parametrize("is_quick", [False, True])
async def test_a_revoked_token_ends_its_upload_of_seeds(
    tmp_path: Path,
    engine: Engine,
    revoke: Callable[[Served], Awaitable[None]],
    status: int,
    *,
    is_quick: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.01)
    is_revoked = asyncio.Event()

    async def lines(api: Served) -> AsyncIterator[bytes]:
        yield b'"https://a.example/"\n'
        while not await api.crawl.members.read():
            await asyncio.sleep(0.001)
        await revoke(api)
        is_revoked.set()
        while is_quick:
            yield b'"https://b.example/"\n'
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    limits = msgspec.structs.replace(QUICK, linger_s=0.05)
    async with asyncio.timeout(PATIENCE_S), served_crawl(tmp_path, engine, limits=limits) as api:
        headers = await api.token() | {"Content-Type": "application/x-ndjson", "Idempotency-Key": "k"}
        found_status, found, _ = await api.send("POST", "/v1/seeds", headers, data=lines(api))
        assert (found_status, is_revoked.is_set()) == (status, True), found
        assert await api.crawl.members.read() == {}, "the seeder has left"
        assert not await api.crawl.engine.command("EXISTS", api.crawl.keys.api_answers), "the key is free"


async def test_a_token_revoked_while_its_body_comes_changes_nothing(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.0)

    is_admitted, read_body = asyncio.Event(), app.read_body

    async def reading(*arguments: Any) -> bytes:
        is_admitted.set()
        return await read_body(*arguments)

    monkeypatch.setattr(app, "read_body", reading)

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await is_admitted.wait()
        await removed(api)
        yield b"}"

    headers = await api.token() | {"Content-Type": "application/json"}
    assert (await api.send("POST", PAUSE, headers, data=body()))[0] == 401
    assert await api.crawl.operator_log.read() == []


async def test_a_browsers_session_that_ended_ends_its_streams(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.01)
    monkeypatch.setattr("crawler.api.access.SESSIONS_MAX", 1)
    async with asyncio.timeout(PATIENCE_S):
        response = await api.http.get(api.url("/v1/events"), headers={"Cookie": await cookie_of(api)})
        assert (await response.content.readline()).startswith(b"id: ")
        await cookie_of(api)  # the oldest has to go for it
        assert await response.read(), "it ends"


@pytest.mark.parametrize("who", ["nobody", "token", "browser"])
async def test_head_has_no_effect_on_any_route(tmp_path: Path, engine: Engine, who: str) -> None:
    said: list[str] = []
    async with served_crawl(tmp_path, engine, announce=said.append) as api:
        headers = {"Cookie": await cookie_of(api)} if who == "browser" else {}
        if who == "token":
            headers = await api.token()
        link = api.server.login_url().partition(f":{api.port}")[2]
        said.clear()
        before = await all_keys(api.crawl)
        paths = {re.sub(r"\{\w+\}", "docs.example", one.path): False for one in ROUTES}
        paths |= {re.sub(r"\{\w+\}", "docs.example", one.path): True for one in ROUTES if one.has_head}
        for path, has_head in (paths | {link: False, "/nothing": False}).items():
            status, raw, answered = await api.send("HEAD", path, headers)
            assert (raw, "Set-Cookie" in answered) == (b"", False), path
            if not has_head:
                assert status in (404, 405), path
            elif path != "/v1/ring":  # which waits for heartbeats
                assert status == (await api.send("GET", path, headers))[0], path
        assert await all_keys(api.crawl) == before
        assert (said, api.server.login_url().endswith(link)) == ([], True)
        assert (await api.send("GET", link))[0] == 303, "the link is unused"
