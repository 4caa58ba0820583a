"""What Chromium requests of the rows of the tables: all of it is found, but where a row has the reason.

`chromium` of a row has what is requested, where that differs from what is found; `why` is the reason. Each row is a
page of a host of its own on loopback, in one window; nothing is scrolled to.
"""

import asyncio
import base64
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import pytest

from crawler.content.css_urls import css_urls
from crawler.rules.urls import canonicalize
from tests.content.test_requisites import PAGES, SHEET, SHEETS, Row, listed
from tests.support.chromium import chromium, needs_chromium

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

AT_ONCE, PAGE_MS = 6, 20_000
MUTATIONS, SEED = int(os.environ.get("ODD_MUTATIONS", "200")), int(os.environ.get("ODD_SEED", "41"))
PARTS = re.compile(r"\w+|\W")
TOKENS = (*"(){}\"'\\;\n @-", "/*", "*/", "url(", "@import ", "image-set(", "\\75 ")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><g id="i"/></svg>'
ANSWERS = {  # by the ends of names
    "png": ("image/png", PNG),
    "css": ("text/css", b""),
    "svg": ("image/svg+xml", SVG),
    "js": ("text/javascript", b""),
    "html": ("text/html", b"<link rel=icon href=data:,>"),
    "json": ("application/json", b"{}"),
    "vtt": ("text/vtt", b"WEBVTT\n"),
}
SHOWN = "".join(f"<div class={name} style='width:9px;height:9px'>t</div>" for name in "abcdefgh")
STYLED = f"<!doctype html><link rel=stylesheet href=sheet.css>{SHOWN}<ul><li>t</ul><a href=# style='--x:url('>t</a>"

Documents = dict[tuple[str, str], tuple[str, bytes]]


@contextlib.asynccontextmanager
async def serving(documents: Documents) -> AsyncIterator[int]:
    """The port of a server of these documents, by host and path."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readexactly(1) == b"G":  # else it is the beginning of TLS
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ")[1]
                host = head.lower().partition("\r\nhost: ")[2].partition("\r\n")[0]
                by_name = ANSWERS.get(path.partition("?")[0].rpartition(".")[2], ("text/plain", b"x"))
                kind, body = documents.get((host, path), by_name)
                fields = f"Content-Type: {kind}\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def requested_of(context: "BrowserContext", host: str) -> list[str]:
    """The http URLs that the page of a host requests, in their order, once each."""
    from playwright.async_api import TimeoutError as PlaywrightTimeout

    page = await context.new_page()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url.partition("#")[0]))
    await page.goto(f"http://{host}/d/page", wait_until="load", timeout=PAGE_MS)
    with contextlib.suppress(PlaywrightTimeout):  # of a busy machine: what was requested until then counts
        await page.wait_for_load_state("networkidle", timeout=PAGE_MS)
    await page.close()
    known = {f"http://{host}/d/page", f"http://{host}/d/sheet.css"}
    found = dict.fromkeys(canonicalize(url) for url in urls if url.startswith("http") and url not in known)
    return [url.removeprefix(f"http://{host}") for url in found]


async def requested(pages: Sequence[Row], sheets: Sequence[Row]) -> list[list[str]]:
    """What Chromium requests for each row."""
    documents: Documents = {}
    for number, row in enumerate((*pages, *sheets)):
        is_sheet = number >= len(pages)
        body = (STYLED if is_sheet else row["body"]).encode()
        documents[f"n{number}.test", "/d/page"] = ("text/html; charset=utf-8", body)
        documents[f"n{number}.test", "/d/sheet.css"] = ("text/css; charset=utf-8", row["body"].encode())
    slots = asyncio.Semaphore(AT_ONCE)
    async with serving(documents) as port, chromium(f"MAP * 127.0.0.1:{port}") as browser:
        context = await browser.new_context(viewport={"width": 1280, "height": 720}, device_scale_factor=1)

        async def one(number: int) -> list[str]:
            async with slots:
                return await requested_of(context, f"n{number}.test")

        return await asyncio.gather(*map(one, range(len(pages) + len(sheets))))


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(600)
@needs_chromium
async def test_chromium_requests_what_the_rows_say() -> None:
    rows = [*PAGES, *SHEETS]
    for row, found in zip(rows, await requested(PAGES, SHEETS), strict=True):
        ours = [url for url, _ in row["found"]]
        assert sorted(found) == sorted(row.get("chromium", ours)), row


def mutants(count: int, seed: int) -> list[str]:
    """Sheets of parts of rows, with parts left out, doubled and exchanged."""
    chance, bodies, found = random.Random(seed), [row["body"] for row in SHEETS], list[str]()
    while len(found) < count:
        parts = [part for body in chance.sample(bodies, 2) for part in PARTS.findall(body)]
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(parts))
            parts[at : at + 1] = chance.choice(([], [parts[at]] * 2, [chance.choice(TOKENS)], [chance.choice(parts)]))
            parts = parts or [chance.choice(TOKENS)]
        found.append("".join(parts))
    return found


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(600)
@needs_chromium
async def test_chromium_requests_nothing_more_of_mutated_sheets() -> None:
    sheets = [{"body": body} for body in mutants(MUTATIONS, SEED)]
    missed = []
    for row, found in zip(sheets, await requested([], sheets), strict=True):
        ours = {url for url, _ in listed(css_urls(row["body"], SHEET, limit=100)[0])}
        if not ours.issuperset(found):
            missed.append((row["body"], set(found) - ours))
    assert missed == []


def test_each_difference_has_its_reason() -> None:
    for row in (*PAGES, *SHEETS):
        ours = {url for url, _ in row["found"]}
        assert ("chromium" in row) == ("why" in row)
        assert "chromium" not in row or set(row["chromium"]) != ours, row
