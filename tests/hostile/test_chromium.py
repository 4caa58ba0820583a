"""The same bytes in Chromium and here: the rows of the tables of odd answers, and seeded mutations of them.

What Chromium shows must be here, too: its title, its links and its text. More may be here (what it fails on is often
readable); where less is, a rule of `ON_PURPOSE` has to say why. To look at one part again, with more mutations:

    SEED=7 MUTATIONS=5000 scripts/test -n 0 --all tests/hostile/test_chromium.py -k coding
"""

import asyncio
import contextlib
import json
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from crawler.content.html import extract_text, parse_page
from crawler.media_type import declared_type, is_html
from crawler.model import Decoded, FailureKind, FetchResult
from tests.content.test_content_type import PAGE as TYPED_PAGE
from tests.support.chromium import chromium, needs_chromium
from tests.support.hostile_server import Close, HostileServer
from tests.web.fetching import fetching
from tests.web.test_odd_codings import bytes_of

TESTS = Path(__file__).parents[1]
MUTATIONS, SEED = int(os.environ.get("MUTATIONS", "2000")), int(os.environ.get("SEED", "41"))
TOKENS = {
    "coding": (
        b"gzip", b"br", b"deflate", b"zstd", b"none", b"utf-8", b",", b", ", b";", b'"', b" ", b"identity", b"x-gzip",
        b"aws-chunked", b"q=1", b"*",
    ),
    "type": (
        b"text/html", b"text/plain", b"charset=", b"utf-8", b"gbk", b";", b",", b" ", b"\t", b"/", b"html", b"(", b'"',
        b"'", b"*/*", b"application/xhtml+xml", b"unknown/unknown", b"=", b"text/",
    ),
    "head": (
        b"\r\n", b"\n", b": ", b":", b" ", b"\t", b"X-A: b", b"no colon", b"HTTP/1.1 200 OK", b"\xc3\xa4", b"<b>", b"'",
        b"Content-Length", b"Content-Type: text/plain\r\n", b"Content-Encoding: none\r\n",
    ),
    "transfer": (
        b"chunked", b"identity", b"gzip", b",", b" ", b";a=b", b"\r\n", b"\n", b"0", b"1", b"a", b"Transfer-Encoding: ",
        b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n", b"x",
    ),
}  # fmt: skip


_SEEN = """({
    type: document.contentType, title: document.title,
    links: [...document.querySelectorAll("a[href], area[href]")].map(a => a.href),
    text: document.body ? document.body.innerText : (document.documentElement || {textContent: ""}).textContent,
})"""
PAGE_S, TABS = 4.0, 6

OF_THE_MACHINE = (FailureKind.CONNECT, FailureKind.TIMEOUT)  # when it is busy


class Case(NamedTuple):
    """What a host sends, and where in it mutations may be."""

    wire: bytes
    start: int
    end: int


class Ours(NamedTuple):
    """What is read here; `failure` is the reason if nothing is."""

    title: str = ""
    links: tuple[str, ...] = ()
    text: str = ""
    failure: str = ""
    decoded: Decoded = Decoded.CLEAN


class Seen(msgspec.Struct, frozen=True):
    """A document as scripts see it in Chromium."""

    type: str
    title: str
    links: tuple[str, ...]
    text: str


class Tab:
    """A tab without scripts. Not by Playwright's `goto`: the error page of the URL before would interrupt it."""

    def __init__(self, devtools: Any) -> None:
        self._devtools = devtools
        self._events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()  # documents, and how they ended

    async def begin(self) -> None:
        self._devtools.on("Page.lifecycleEvent", lambda one: self._events.put_nowait((one["loaderId"], one["name"])))
        self._devtools.on("Network.loadingFailed", lambda one: self._events.put_nowait((one["requestId"], "failed")))
        await self._devtools.send("Page.enable")
        await self._devtools.send("Network.enable")
        await self._devtools.send("Page.setLifecycleEventsEnabled", {"enabled": True})

    async def open(self, url: str) -> Seen | None:
        """What is shown once it has loaded; None for an error page, a download, or no document in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAGE_S):
                went = await self._devtools.send("Page.navigate", {"url": url})
                if went.get("errorText") or went.get("isDownload"):
                    return None
                ended = ""
                while ended not in ("load", "failed"):
                    loader, ended = await self._events.get()
                    ended = ended if loader == went["loaderId"] else ""
                if ended == "load":  # else it failed within its body: a part of a document is shown, and an error
                    found = await self._devtools.send("Runtime.evaluate", {"expression": _SEEN, "returnByValue": True})
                    return msgspec.convert(found["result"]["value"], Seen)
        return None


@contextlib.asynccontextmanager
async def opening() -> AsyncIterator[Callable[[str], Awaitable[Seen | None]]]:
    """Opens URLs in the tabs of one browser."""
    async with chromium() as browser:
        context = await browser.new_context(java_script_enabled=False)
        tabs = asyncio.Queue[Tab]()
        for _ in range(TABS):
            tab = Tab(await context.new_cdp_session(await context.new_page()))
            await tab.begin()
            tabs.put_nowait(tab)

        async def open_one(url: str) -> Seen | None:
            tab = await tabs.get()
            try:
                return await tab.open(url)
            finally:
                tabs.put_nowait(tab)

        yield open_one


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TESTS / f"{name}.jsonl").read_text().splitlines()]


def around(head: bytes, value: bytes, body: bytes) -> Case:
    """A response whose head ends in a value; it, and the whole body, may be mutated."""
    length = b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Case(head + value + length + body, len(head), len(head) + len(value))


def cases_of(part: str) -> Iterator[Case]:
    ok = b"HTTP/1.1 200 OK\r\n"
    if part == "coding":
        for row in rows_of("web/content_coding"):
            head = ok + b"Content-Type: text/html\r\nContent-Encoding: "
            yield around(head, row["coding"].encode("latin-1"), bytes_of(row["body"]))
    elif part == "type":
        for row in rows_of("content/content_type"):
            more = b"X-Content-Type-Options: nosniff\r\n" if row.get("nosniff") else b""
            name = b"Content-Type: " if row["type"] is not None else b"X-None: "
            body = row.get("body", TYPED_PAGE).encode("latin-1")
            yield around(ok + more + name, (row["type"] or "").encode("latin-1"), body)
    else:
        for row in rows_of("web/response_head" if part == "head" else "web/transfer_coding"):
            wire = row["wire"].encode("latin-1")
            at = wire.find(b"\n") + 1
            yield Case(wire, at, wire.find(b"<title>", at) if part == "head" else len(wire))


def mutated(case: Case, part: str, choose: random.Random) -> bytes:
    """One or two changes of the part that is of interest: a token put in, in the place of something, or taken out."""
    wire, end = case.wire, case.end
    for _ in range(choose.randint(1, 2)):
        at = choose.randint(case.start, max(case.start, end))
        token = choose.choice((*TOKENS[part], b""))
        gone = choose.choice((0, 0, 1, 3, len(token)))
        gone = min(gone, max(0, end - at))
        wire, end = wire[:at] + token + wire[at + gone :], end + len(token) - gone
    if part == "coding" and choose.random() < 0.3:  # damage to the body, of the same length
        body = wire.index(b"\r\n\r\n") + 4
        if body < len(wire):
            at = choose.randrange(body, len(wire))
            wire = wire[:at] + bytes([choose.randrange(256)]) + wire[at + 1 :]
    return wire


def read(result: FetchResult) -> Ours:
    response = result.response
    if response is None:
        assert result.failure is not None
        return Ours(failure=f"{result.failure.kind}: {result.failure.detail}")
    kind = declared_type(response)
    page = parse_page(
        response.url, kind, "", response.body, links_max=1000, obey_nofollow=False, bytes_max=8192, agent="x"
    )
    text = extract_text(response.body, page.charset) if is_html(kind, response.body) else ""
    failure = "nothing decoded" if response.decoded is Decoded.NOTHING else ""
    return Ours(page.title, page.links, text, failure, response.decoded)


def lacks(ours: Ours, seen: Seen) -> str:
    """What Chromium shows of an HTML document that is not here."""
    if seen.type not in ("text/html", "application/xhtml+xml"):
        return ""
    # What is escaped was damaged, and its charset is guessed.
    shown = {link.partition("#")[0] for link in seen.links if link.startswith("http") and "%" not in link}
    if missing := shown - set(ours.links):
        return f"links {sorted(missing)}"
    if seen.title.isascii() and seen.title and seen.title != ours.title:
        return f"the title {seen.title!r}"
    if "".join(seen.text.split()) and not "".join(ours.text.split()) and seen.links:
        return "its text"
    return ""


def head_of(wire: bytes) -> bytes:
    return re.split(rb"\n\r?\n", wire, maxsplit=1)[0] + b"\n"


def values(wire: bytes, name: bytes) -> list[bytes]:
    return re.findall(rb"(?im)^" + name + rb"[ \t]*:[ \t]*([^\n]*?)[ \t\r]*$", head_of(wire))


# Where less is here than in Chromium: the part, how to know it, and why.
ON_PURPOSE: tuple[tuple[str, Callable[[bytes, Ours], bool], str], ...] = (
    (
        "a bare CR or a NUL",
        lambda _, ours: "bare CR" in ours.failure or "NUL" in ours.failure,
        "a way to hide a header",
    ),
    ("status line", lambda _, ours: "status line" in ours.failure or "not HTTP" in ours.failure, "H01"),
    ("a length that is none", lambda _, ours: "Content-Length" in ours.failure, "RFC 9112 6.3, 5: can't be recovered"),
    ("a long size", lambda _, ours: "size of a chunk" in ours.failure, "64 bytes are enough for one"),
    ("256 headers", lambda _, ours: "headers" in ours.failure, "bounded"),
    ("three layers", lambda _, ours: ours.decoded is Decoded.NOTHING, "bounded; or what is shown is garbage"),
    (
        "no final chunked",
        lambda wire, _: (
            bool(found := values(wire, b"transfer-encoding"))
            and b",".join(found).lower().rstrip(b", \t").rpartition(b",")[2].strip() != b"chunked"
        ),
        "RFC 9112 6.3 reads to the end of the connection",
    ),
    (
        "any type behind text/plain",
        lambda wire, _: b"*/*" in b",".join(values(wire, b"content-type")),
        "passed over by the Fetch Standard; Chromium guesses the type then",
    ),
    ("chunks in HTTP/1.0", lambda wire, _: wire.startswith(b"HTTP/1.0") and b"ransfer" in wire, "RFC 9112 6.1"),
)


@needs_chromium
@pytest.mark.slow(seconds=100)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", TOKENS)
async def test_what_chromium_shows_is_read(part: str) -> None:
    choose = random.Random(SEED)
    cases = list(cases_of(part))
    wires = [case.wire for case in cases] + [mutated(choose.choice(cases), part, choose) for _ in range(MUTATIONS)]
    steps = {f"/{n}": (wire, Close()) for n, wire in enumerate(wires)}
    found: dict[int, str] = {}
    rows = rows_of("content/content_type") if part == "type" else []
    shown = explained = 0
    async with HostileServer(by_path=steps) as server, opening() as open_one, fetching() as fetcher:

        async def compare(n: int) -> tuple[bool, bool]:
            """Does Chromium show it, and is less read here on purpose?"""
            url = f"{server.url}{n}"
            result = await fetcher.fetch(url)
            while result.failure is not None and result.failure.kind in OF_THE_MACHINE:
                result = await fetcher.fetch(url)
            ours, seen = read(result), await open_one(url)
            if seen and n < len(rows) and rows[n]["by"] == "chromium" and "xml" not in seen.type:
                assert (seen.type == "text/html") is rows[n]["html"], rows[n]
            if seen is None or not (lacking := lacks(ours, seen)):
                return seen is not None, False
            if any(knows(wires[n], ours) for _, knows, _ in ON_PURPOSE):
                return True, True
            found[n] = f"{lacking}; {ours.failure or ours.decoded.name}; {wires[n]!r}"
            return True, False

        for start in range(0, len(wires), 20):
            for is_shown, is_explained in await asyncio.gather(
                *map(compare, range(start, min(start + 20, len(wires))))
            ):
                shown, explained = shown + is_shown, explained + is_explained
    print(f"{part}: {len(wires)} answers, {shown} shown by Chromium, {explained} of them read less on purpose")
    assert shown > len(wires) / 4
    assert not found, "\n".join([f"{len(found)} disagreements", *list(found.values())[:20]])
