"""Who may do what: tokens, roles, hosts, browsers' sessions, other sites' pages."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.api import route
from crawler.api.front import Front, listen
from crawler.api.problem import Limits
from crawler.api.proxies import trusted_proxies
from crawler.api.routes import ROUTES
from crawler.api.server import check_tokens
from crawler.errors import ConflictError, EngineDown, UsageError
from crawler.frontier.api_tokens import ApiToken, ApiTokens, Role
from tests.api.api_lab import PROBLEM, QUICK, Served, served, served_crawl
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import all_keys, seeded

READS = ("/v1/overview", "/v1/domains", "/healthz", "/readyz", "/openapi.json", "/", "/nothing", "/v1/events")
PAUSE = "/v1/domains/docs.example/pause"


async def cookie_of(api: Served) -> str:
    """The cookie of a browser that opens the link."""
    status, _, headers = await api.send("GET", api.server.login_url().partition(f":{api.port}")[2])
    home = headers["Location"]
    assert (status, api.server.url.endswith(f":{api.port}{home}")) == (303, True)
    assert {"HttpOnly", "SameSite=Lax", f"Path={home}"} <= set(headers["Set-Cookie"].split("; "))
    return str(headers["Set-Cookie"].partition(";")[0])


async def test_loopback_reads_need_no_token_and_writes_do(api: Served) -> None:
    assert (await api.get("/v1/overview"))[0] == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in (PAUSE, "/v1/overview", "/nothing"):
            status, found, headers = await api.send(method, path)
            assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="crawler"')
            assert found["status"] == 401
    assert (await api.crawl.operator.overrides()).stop_of("docs.example") == ""


PUBLIC = ("/healthz",)


@pytest.mark.parametrize("path", [path for path in READS if path not in PUBLIC])
async def test_a_wrong_token_is_401_everywhere(api: Served, path: str) -> None:
    right = (await api.token())["Authorization"]
    wrong = [
        right[:-1] + ("A" if right[-1] != "A" else "B"),
        right[:-1],
        f"{right}x",
        "Bearer crawler_00000000_x",
    ]
    for text in wrong:
        status, found, headers = await api.send("GET", path, {"Authorization": text})
        assert (status, headers.getall("WWW-Authenticate")) == (401, ['Bearer realm="crawler", error="invalid_token"'])
        assert headers["Content-Type"] == PROBLEM
        assert right.split("_", 2)[2][:20] not in str(found)


# What Authorization may have that is not for us: of a proxy that asks for a password, or of one that knows its people.
FOREIGN = [
    "Basic eDp5",
    "basic eDp5",
    "Basic",
    "Negotiate YIIB",
    'Digest username="x", realm="y"',
    "NTLM TlRM",
    "AWS4-HMAC-SHA256 Credential=x",
    "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",  # the id token of an OIDC proxy
    "Bearer x",
    "Bearer ",
    "Bearer",
    "Bearer \xff",
    "Token crawler_00000000_x",
    "crawler_00000000_x",
    "",
]


@pytest.mark.parametrize("text", FOREIGN)
async def test_what_is_not_for_us_in_authorization_is_passed_over(api: Served, text: str) -> None:
    """It neither lets in nor keeps out: a session counts, and a token of ours next to it."""
    headers = {"Authorization": text}
    cookie = {"Cookie": await cookie_of(api)}
    status, found, _ = await api.send("GET", "/v1/session", headers | cookie)
    assert (status, found["user"]) == (200, "browser")
    good = headers | cookie | {"X-CSRF-Token": found["csrf_token"]}
    assert (await api.send("POST", "/v1/pause", good))[0] == 200
    status, found, answered = await api.send("GET", "/v1/session", headers)
    assert (status, answered["WWW-Authenticate"]) == (401, 'Bearer realm="crawler"')
    assert found["detail"].startswith("Authorization seems to be for a proxy")
    ours = (await api.token(Role.READ))["Authorization"]
    for both in ([text, ours], [ours, text]):
        lines = "".join(f"Authorization: {one}\r\n" for one in both)
        host = f"Host: 127.0.0.1:{api.port}\r\nConnection: close\r\n"
        raw = f"GET /v1/session HTTP/1.1\r\n{host}{lines}\r\n".encode("latin-1")
        assert b'"user":"ann"' in await api.raw(raw), both


async def test_a_wrong_token_of_ours_is_refused_whatever_is_next_to_it(api: Served) -> None:
    cookie = await cookie_of(api)
    right = (await api.token())["Authorization"]
    assert (await api.get("/v1/session", Authorization=f"{right}x", Cookie=cookie))[0] == 401
    lines = f"Authorization: {right}\r\nAuthorization: {right}x\r\n"
    raw = f"GET /v1/session HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nConnection: close\r\n{lines}\r\n"
    assert (await api.raw(raw.encode())).startswith(b"HTTP/1.1 401 ")


async def test_where_a_proxy_adds_a_token_a_browsers_session_counts(api: Served) -> None:
    """A proxy may let all its people read; who opened the link may do more."""
    reader = await api.token(Role.READ, "proxy")
    cookie = {"Cookie": await cookie_of(api)}
    assert (await api.get("/v1/session", **reader))[1]["user"] == "proxy"
    session = (await api.send("GET", "/v1/session", reader | cookie))[1]
    assert (session["user"], session["role"]) == ("browser", "write")
    assert (await api.send("POST", "/v1/pause", reader | cookie))[0] == 403, "only with what its page knows"
    assert (await api.send("POST", "/v1/pause", reader | cookie | {"X-CSRF-Token": session["csrf_token"]}))[0] == 200


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
            assert (await api.get(path))[0] == (200 if path in PUBLIC else 401), path
        token = await api.token(Role.READ)
        assert (await api.get("/v1/overview", **token))[0] == 200
        cookie = await cookie_of(api)
        assert (await api.get("/v1/overview", Cookie=cookie))[0] == 200


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Via"])
async def test_what_comes_through_a_proxy_needs_a_token_or_a_session(api: Served, header: str) -> None:
    status, found, _ = await api.send("GET", "/v1/overview", {header: "x"})
    assert (status, found["detail"].startswith(f"{header} tells that this came through a proxy")) == (401, True)
    assert "'crawler token add'" in found["detail"]
    assert "open the last link that 'crawler serve' printed" in found["detail"]
    assert (await api.send("GET", "/v1/overview", {header: "x", "Cookie": await cookie_of(api)}))[0] == 200
    assert (await api.send("GET", "/v1/overview", {header: "x"} | await api.token()))[0] == 200


OPEN, CLOSED = (200, 200), (401, 200)
FRONTS = [
    ("plain", Front(), OPEN),
    ("a name", Front(names=("crawl.example",)), CLOSED),
    ("a prefix", Front(prefix="/crawler"), CLOSED),
    ("the prefix /", Front(prefix=""), CLOSED),
    ("a proxy", Front(proxies=trusted_proxies(["192.0.2.1"], may_be_unix=False)), CLOSED),
]


@pytest.mark.parametrize(("what", "front", "expected"), FRONTS)
async def test_reading_is_open_while_nothing_tells_of_others(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, what: str, front: Front, expected: tuple[int, int]
) -> None:
    """(What nobody gets, what a session gets); and the same once there is a token: nobody gets anything."""
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.0)
    async with served_crawl(tmp_path, engine, front=front) as api:
        cookie = {"Cookie": await cookie_of(api)}
        paths = [f"{front.root}{path}" for path in READS[:-1] if path != "/nothing"]
        for path in paths:
            nobody, session = (await api.send("GET", path))[0], (await api.send("GET", path, cookie))[0]
            assert (nobody, session) == (OPEN if path.endswith(PUBLIC) else expected), (what, path)
        token = await api.token(Role.READ)
        for path in paths:
            found = [(await api.send("GET", path, headers))[0] for headers in ({}, cookie, token)]
            assert found == [200 if path.endswith(PUBLIC) else 401, 200, 200], (what, path)
        await removed(api)
        assert (await api.send("GET", paths[0]))[0] == expected[0]


async def test_a_first_token_ends_the_streams_of_those_who_have_none(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.01)
    async with asyncio.timeout(PATIENCE_S):
        response = await api.http.get(api.url("/v1/events"))
        assert (await response.content.readline()).startswith(b"id: ")
        await api.token()
        assert b"event: overview" in await response.read()


async def test_an_engine_that_does_not_answer_closes_nothing(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the dashboard and probes come without it, and who may read is what was known last."""
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.0)
    assert (await api.get("/v1/overview"))[0] == 200

    async def read(_: ApiTokens) -> dict[str, ApiToken]:
        raise EngineDown("gone")

    with monkeypatch.context() as outage:
        outage.setattr(ApiTokens, "read", read)
        assert [(await api.get(path))[0] for path in ("/", "/healthz")] == [200, 200]
    await api.token()
    assert [(await api.get(path))[0] for path in ("/", "/healthz")] == [401, 200]
    monkeypatch.setattr(ApiTokens, "read", read)
    assert [(await api.get(path))[0] for path in ("/", "/healthz")] == [401, 200]


async def test_tokens_are_known_before_the_first_request(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of requests that come at once, only one reads them; and the engine may be gone by then."""

    async def read(_: ApiTokens) -> dict[str, ApiToken]:
        raise EngineDown("gone")

    async with seeded(tmp_path / "c", engine) as crawl:
        await ApiTokens(crawl.engine, crawl.keys).add("ann", Role.READ)
        async with served(crawl) as api:
            monkeypatch.setattr(ApiTokens, "read", read)
            monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.0)
            assert (await api.get("/"))[0] == 401


async def test_with_a_name_everything_needs_a_token(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, front=Front(names=("crawl.example",))) as api:
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
        assert (await api.get("/v1/overview", Host=host, **token))[0] == 200, host
    foreign = ("evil.example", f"evil.example:{port}", "127.0.0.1", "localhost:1", f"127.0.0.1.evil:{port}", "")
    for host in foreign:
        for path in ("/v1/overview", "/", "/healthz", api.server.login_url().partition(f":{port}")[2]):
            status, _, headers = await api.send("GET", path, {"Host": host, **token})
            assert (status, headers["Content-Type"]) == (421, PROBLEM), (host, path)
    assert (await api.raw(b"GET /v1/overview HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 421 ")
    two = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert (await api.raw(two.encode())).split()[1] in (b"400", b"421")


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


async def test_too_many_requests_of_one_client_are_429(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.api.access.TOKENS_READ_EVERY_S", 0.0)
    limits = Limits(requests_per_s=0.001, requests_burst=3, shutdown_s=0.5)
    async with served_crawl(tmp_path, engine, limits=limits, front=Front(prefix="")) as api:
        token = await api.token(Role.READ)
        assert [(await api.get("/v1/session"))[0] for _ in range(4)] == [401, 401, 401, 429]
        status, found, headers = await api.send("GET", "/healthz")
        assert (status, found["status"], int(headers["Retry-After"]) > 0) == (429, 429, True)
        assert [(await api.get("/v1/session", **token))[0] for _ in range(4)] == [200, 200, 200, 429]
        wrong = await api.get("/v1/session", Authorization="Bearer crawler_00000000_x")
        assert wrong[0] == 429, "wrong tokens count for the address"


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
        cookie, token = {"Cookie": await cookie_of(api)}, await api.token(Role.READ)
        browsers, anns = [await api.http.get(api.url("/v1/events"), headers=one) for one in (cookie, token)]
        assert (await anns.content.readline()).startswith(b"id: ")
        await revoke(api)
        assert b"event: overview" in await anns.read(), "it ends as a whole answer does"
        for _ in range(20):
            assert await browsers.content.readline()
        browsers.close()


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

    is_admitted, read_body = asyncio.Event(), route.read_body

    async def reading(*arguments: Any) -> bytes:
        is_admitted.set()
        return await read_body(*arguments)

    monkeypatch.setattr(route, "read_body", reading)

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
    monkeypatch.setattr("crawler.api.browser_sessions.SESSIONS_MAX", 1)
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
