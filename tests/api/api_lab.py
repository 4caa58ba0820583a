"""A real application on a real engine, and clients for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web_app

from crawler.api import event_hub
from crawler.api.front import PLAIN, Front, listen
from crawler.api.problem import Limits
from crawler.api.server import Listening, serving
from crawler.crawl.opening import OpenCrawl
from crawler.frontier.api_tokens import ApiTokens, Role
from crawler.views.snapshot import Overview
from tests.support.engine import Engine
from tests.views.views_lab import seeded

QUICK = Limits(events_every_s=0.02, requests_per_s=10_000, requests_burst=10_000, shutdown_s=0.5)
PROBLEM = "application/problem+json"


class Served:
    """A server and what tests need of it. Answers are (status, decoded JSON)."""

    def __init__(self, crawl: OpenCrawl, server: Listening, http: aiohttp.ClientSession) -> None:
        self.crawl = crawl
        self.server = server
        self.port = server.port
        self.http = http

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def token(self, role: Role = Role.WRITE, user: str = "ann") -> dict[str, str]:
        """A new token, as headers."""
        text = await ApiTokens(self.crawl.engine, self.crawl.keys).add(user, role)
        return {"Authorization": f"Bearer {text}"}

    async def browser(self, **headers: str) -> dict[str, str]:
        """Headers of a browser that opened the link; with `headers`, as a proxy passes them on."""
        path = f"/{self.server.login_url().split('/', 3)[3]}"
        status, _, answered = await self.send("GET", path, headers)
        assert status == 303
        sent = headers | {"Cookie": str(answered["Set-Cookie"].partition(";")[0])}
        session = (await self.send("GET", f"{answered['Location']}v1/session", sent))[1]
        return sent | {"X-CSRF-Token": session["csrf_token"]}

    async def send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any
    ) -> tuple[int, Any, Any]:
        """(status, JSON or text, headers) of the answer."""
        options = {"allow_redirects": False} | options
        async with self.http.request(method, self.url(path), headers=headers, **options) as response:
            raw = await response.read()
            kind = response.content_type
            return response.status, msgspec.json.decode(raw) if "json" in kind and raw else raw, response.headers

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        status, found, _ = await self.send("GET", path, {name.replace("_", "-"): v for name, v in headers.items()})
        return status, found

    async def raw(self, text: bytes, *, until_closed: bool = True) -> bytes:
        """What the server sends back for these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text)
            return await (reader.read() if until_closed else reader.readuntil(b"\r\n\r\n"))
        finally:
            writer.close()


class CountedReads:
    """How often the events' reader has read the headline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._overview = event_hub.overview_with_losses
        monkeypatch.setattr(event_hub, "overview_with_losses", self._read)

    async def _read(self, crawl: OpenCrawl) -> Overview:
        self.count += 1
        return await self._overview(crawl)


@contextlib.asynccontextmanager
async def served(
    crawl: OpenCrawl,
    *,
    limits: Limits = QUICK,
    front: Front = PLAIN,
    address: str = "127.0.0.1",
    announce: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Served]:
    """Serve an open crawl."""
    with listen(address, 0) as sock:
        async with (
            serving(crawl, sock, limits=limits, front=front, announce=announce) as server,
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        ):
            try:
                yield Served(crawl, server, http)
            finally:
                web_app._cached_build_middleware.cache_clear()  # it keeps the applications of all tests, 0.2 MB each


@contextlib.asynccontextmanager
async def served_crawl(folder: Path, engine: Engine, **options: Any) -> AsyncIterator[Served]:
    """A small crawl, served."""
    async with seeded(folder / "c", engine) as crawl, served(crawl, **options) as server:
        yield server
