"""The server below a path and behind proxies: what is under the path, whom it believes, and whose rate it counts."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from crawler.api.front import Front, listening_at
from crawler.api.problem import Limits
from crawler.api.proxies import trusted_proxies
from crawler.api.routes import ROUTES
from crawler.api.server import serving
from crawler.frontier.api_tokens import Role
from tests.api.api_lab import Served, served, served_crawl
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.views.views_lab import seeded

NAME = "crawl.example"
HERE = trusted_proxies(["127.0.0.1"], may_be_unix=False)
BELOW = Front(names=(NAME,), prefix="/tools/crawler")
BEHIND = Front(names=(NAME,), prefix="/crawler", proxies=HERE)
TLS = {"Host": NAME, "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}


async def opened(api: Served, headers: dict[str, str]) -> str:
    """What sets the cookie of a browser that opens the link."""
    path = f"/{api.server.login_url().split('/', 3)[3]}"
    return str((await api.send("GET", path, headers))[2]["Set-Cookie"])


async def test_each_path_is_below_the_prefix_and_nowhere_else(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl, served(crawl) as plain, served(crawl, front=BELOW) as api:
        token, root = await api.token(), BELOW.root
        moved = "paths begin with /tools/crawler/ here; let the proxy pass them unchanged"
        for path in sorted({re.sub(r"\{\w+\}", "docs.example", one.path) for one in ROUTES if one.has_head}):
            if path == "/v1/ring":  # which waits for heartbeats
                continue
            alike = [(await one.send("HEAD", at, token))[0] for one, at in ((plain, path), (api, f"{root}{path}"))]
            assert alike[0] == alike[1], path
            status, found, _ = await api.send("GET", path)
            assert (status, found["detail"]) == (404, moved), path
        for path in ("/tools", "/tools/", "/tools/crawlers", "/tools/crawlerx/v1/overview", "/login", "/v1/pause"):
            for method in ("GET", "POST"):
                assert (await api.send(method, path, token))[1]["detail"] == moved, path
        description = (await api.get(f"{root}/openapi.json", **token))[1]
        assert description["servers"] == [{"url": root}]
        assert (await plain.get("/openapi.json", **token))[1]["servers"] == [{"url": "/"}]


async def test_redirects_stay_below_the_prefix(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, front=BELOW) as api:
        status, _, headers = await api.send("GET", "/tools/crawler?a=b%20c")
        assert (status, headers["Location"]) == (308, "/tools/crawler/?a=b%20c"), "also for those without a session"
        assert (await api.send("POST", "/tools/crawler"))[0] == 404
        token = await api.token()
        status, _, headers = await api.send("GET", "/tools/crawler/users/ann/jobs?limit=1", token)
        assert (status, headers["Location"]) == (308, "/tools/crawler/v1/users/ann/jobs?limit=1")
        assert re.fullmatch(rf"http://127\.0\.0\.1:{api.port}/tools/crawler/login\?code=\S+", api.server.login_url())
        assert "; Path=/tools/crawler/;" in await opened(api, {"Host": NAME})
        assert (await api.send("POST", "/tools/crawler/v1/pause", await api.browser(Host=NAME)))[0] == 200


async def test_servers_of_one_name_have_cookies_of_their_own(tmp_path: Path, engine: Engine) -> None:
    """The path of a cookie does not tell /a/ from what is below it, and a browser sends both."""
    fronts = [Front(names=(NAME,), prefix=prefix) for prefix in (None, "", "/a", "/a/b", "/a/c")]
    async with seeded(tmp_path / "c", engine) as crawl:
        found = []
        for front in fronts:
            async with served(crawl, front=front) as api:
                cookie = await opened(api, {"Host": NAME})
                found.append(cookie.partition("=")[0].replace(str(api.port), "PORT"))
    assert found[:2] == ["crawler_session_PORT"] * 2
    assert len(set(found[1:])) == 4


# What a browser sends by way of a proxy that does TLS: (what is trusted, further headers, status of a change)
ORIGIN = {"Origin": f"https://{NAME}", "Sec-Fetch-Site": "same-origin"}
CHANGES = [
    (HERE, {**TLS, **ORIGIN}, 200),
    (HERE, {**TLS, **ORIGIN, "Host": "127.0.0.1:{port}", "X-Forwarded-Host": NAME}, 200),
    (HERE, {**TLS, **ORIGIN, "Host": "127.0.0.1:{port}"}, 403),  # the proxy tells nobody what the browser wrote
    (HERE, {**TLS, **ORIGIN, "X-Forwarded-Host": "evil.example"}, 421),
    (HERE, {**TLS, **ORIGIN, "Host": "evil.example"}, 421),
    (HERE, {**TLS, **ORIGIN, "Host": "evil.example", "X-Forwarded-Host": NAME}, 200),
    (HERE, {**TLS, **ORIGIN, "Origin": f"http://{NAME}"}, 403),
    (HERE, {**TLS, **ORIGIN, "Origin": "https://evil.example"}, 403),
    (HERE, {**TLS, "Sec-Fetch-Site": "cross-site"}, 403),
    (HERE, {**TLS, **ORIGIN, "Host": f"{NAME}:8443", "Origin": f"https://{NAME}:8443"}, 200),
    (HERE, {**TLS, **ORIGIN, "Origin": f"https://{NAME}:8443"}, 200),
    (HERE, {"Host": NAME, "X-Forwarded-Proto": "http", "Origin": f"http://{NAME}"}, 200),
    (HERE, {**TLS, **ORIGIN, "Authorization": "Basic eDp5"}, 200),
    (trusted_proxies(["192.0.2.1"], may_be_unix=False), {**TLS, **ORIGIN}, 200),
    (trusted_proxies(["192.0.2.1"], may_be_unix=False), {**TLS, **ORIGIN, "X-Forwarded-Host": "evil.example"}, 200),
    (trusted_proxies([], may_be_unix=False), {**TLS, **ORIGIN}, 200),
    (trusted_proxies([], may_be_unix=False),
     {**TLS, **ORIGIN, "Host": "127.0.0.1:{port}", "X-Forwarded-Host": NAME}, 403),
]  # fmt: skip


async def test_changes_of_a_browser_through_a_proxy(tmp_path: Path, engine: Engine) -> None:
    async with seeded(tmp_path / "c", engine) as crawl:
        for proxies, headers, expected in CHANGES:
            async with served(crawl, front=Front(names=(NAME,), prefix="/crawler", proxies=proxies)) as api:
                own = await api.browser(Host=NAME)
                sent = own | {name: text.replace("{port}", str(api.port)) for name, text in headers.items()}
                status, found, _ = await api.send("POST", "/crawler/v1/resume", sent)
                assert status == expected, (proxies, headers, found)
                if status == 403 and "evil" not in str(headers) and "Origin" in headers:
                    assert "let the proxy pass Host on as it came" in found["detail"]


@pytest.mark.parametrize(
    ("front", "headers", "is_secure"),
    [
        (BEHIND, TLS, True),
        (BEHIND, TLS | {"X-Forwarded-Proto": "http"}, False),
        (BEHIND, {"Host": NAME}, False),
        (BELOW, TLS, False),  # nobody is trusted
    ],
)
async def test_the_cookie_is_secure_where_a_trusted_proxy_tells_of_tls(
    tmp_path: Path, engine: Engine, front: Front, headers: dict[str, str], *, is_secure: bool
) -> None:
    async with served_crawl(tmp_path, engine, front=front) as api:
        cookie = await opened(api, headers)
        assert ("Secure" in cookie.split("; ")) is is_secure


async def test_the_link_has_the_name_of_the_proxy(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, front=BEHIND) as api:
        assert api.server.url == f"https://{NAME}/crawler/"
        assert api.server.login_url().startswith(f"https://{NAME}/crawler/login?code=")


async def test_each_client_of_a_trusted_proxy_has_a_rate_of_its_own(tmp_path: Path, engine: Engine) -> None:
    limits = Limits(requests_per_s=0.001, requests_burst=2, shutdown_s=0.5)

    async def asked(api: Served, client: str) -> int:
        return (await api.send("GET", "/crawler/v1/session", {"Host": NAME, "X-Forwarded-For": client}))[0]

    async with seeded(tmp_path / "c", engine) as crawl:
        async with served(crawl, front=BEHIND, limits=limits) as api:
            assert [await asked(api, "203.0.113.1") for _ in range(3)] == [401, 401, 429]
            assert [await asked(api, "203.0.113.2") for _ in range(3)] == [401, 401, 429]
            assert await asked(api, "203.0.113.3, 203.0.113.1") == 429, "what stands before it was made up"
        async with served(crawl, front=Front(names=(NAME,), prefix="/crawler"), limits=limits) as api:
            assert [await asked(api, f"203.0.113.{n}") for n in range(3)] == [401, 401, 429], "nobody is trusted"


async def test_what_goes_wrong_is_logged_with_the_client(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_crawl(tmp_path, engine, front=BEHIND) as api:

        async def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("crawler.api.access.Access.check_still", broken)
        headers = await api.token() | TLS | {"Content-Type": "application/json"}
        assert (await api.send("POST", "/crawler/v1/pause", headers, data=b"{}"))[0] == 500
    (record,) = [one for one in caplog.records if one.getMessage() == "api.bug"]
    assert record.__dict__["client"] == "203.0.113.9"


async def test_events_are_kept_back_by_no_proxy(tmp_path: Path, engine: Engine) -> None:
    async with served_crawl(tmp_path, engine, front=BEHIND) as api, asyncio.timeout(PATIENCE_S):
        headers = {"Host": NAME} | await api.token(Role.READ)
        async with api.http.get(api.url("/crawler/v1/events"), headers=headers) as response:
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Cache-Control"] == "no-store, no-transform"
            assert response.content_type == "text/event-stream"


# A Unix socket: who can open it is a proxy, or our own user with a token.


@pytest.fixture
async def by_socket(tmp_path: Path, engine: Engine) -> AsyncIterator[tuple[Served, Path]]:
    path = tmp_path / "serve.sock"
    front = Front(names=(NAME,), proxies=trusted_proxies(["unix"], may_be_unix=True))
    limits = Limits(events_every_s=0.02, requests_per_s=0.001, requests_burst=8, shutdown_s=0.5)
    async with seeded(tmp_path / "c", engine) as crawl:
        with listening_at(path) as sock:
            async with (
                serving(crawl, sock, limits=limits, front=front) as server,
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(path)), cookie_jar=aiohttp.DummyCookieJar()
                ) as http,
            ):
                yield Served(crawl, server, http), path


async def test_through_a_socket_everything_needs_a_token_or_a_session(by_socket: tuple[Served, Path]) -> None:
    api, path = by_socket
    for host in ("localhost", "127.0.0.1", NAME):
        assert (await api.send("GET", "/v1/session", {"Host": host}))[0] == 401
    assert (await api.send("GET", "/v1/session", {"Host": "evil.example"}))[0] == 421
    token = await api.token()
    assert (await api.send("GET", "/v1/session", token | {"Host": "localhost"}))[1]["user"] == "ann"
    cookie = await opened(api, TLS)
    assert cookie.startswith("crawler_session_")
    assert "; Secure" in cookie
    assert api.server.url == f"https://{NAME}/"
    assert (await api.send("POST", "/v1/pause", await api.browser(**TLS) | ORIGIN))[0] == 200
    async with api.http.get(api.url("/v1/events"), headers=token | TLS) as response:
        assert (await response.content.readline()).startswith(b"id: ")
    assert path.exists()


async def test_through_a_socket_each_client_of_a_trusted_proxy_has_a_rate_of_its_own(
    by_socket: tuple[Served, Path],
) -> None:
    api, _ = by_socket
    for client in ("203.0.113.1", "203.0.113.2"):
        headers = {"Host": NAME, "X-Forwarded-For": client}
        found = [(await api.send("GET", "/v1/session", headers))[0] for _ in range(9)]
        assert found == [401] * 8 + [429]
