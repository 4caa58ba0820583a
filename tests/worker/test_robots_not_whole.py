"""A robots.txt that did not come whole allows nothing: what was not read may forbid any page."""

# ruff: noqa: E501 - a table reads best with one row to a line
import gzip
import zlib
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import brotli
import pytest

from crawler.hosts.robots_cache import RobotsCache, RobotsEntry
from crawler.hosts.robots_reader import BODY_BYTES_MAX, RobotsReader
from crawler.model import Claim, FailureKind
from crawler.settings import RobotsSettings, Settings
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.hostile_server import Close, Cut, Hold, HostileServer, Repeat, Reset, Step
from tests.support.tls import Authority
from tests.web.fetching import fetching

OK = b"HTTP/1.1 200 OK\r\n"
RULES = b"User-agent: *\nDisallow: /no\n"
LONG = RULES + b"".join(b"Disallow: /%d\n" % n for n in range(60_000))
GZIPPED = gzip.compress(RULES * 100)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CLAIM = Claim(
    url="http://a.test/", fingerprint="1", visit=1, partition=1, epoch=1, token="t", domain="a.test", queue="a.test",
    depth=0, redirects=0, attempts=0, deliveries=0, seed=False,
)  # fmt: skip


def plain(body: bytes, *, length: int | None = None, head: bytes = OK, more: bytes = b"") -> bytes:
    return head + more + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def coded(coding: bytes, body: bytes) -> bytes:
    return plain(body, more=b"Content-Encoding: " + coding + b"\r\n")


NOT_WHOLE: dict[str, tuple[Step, ...]] = {
    "closed before its end": (plain(RULES, length=500), Close()),
    "closed before its first byte": (plain(b"", length=500), Close()),
    "reset before its end": (plain(RULES, length=500), 0.02, Reset()),
    "too slow": (plain(RULES, length=500), Hold()),
    "a byte at a time": (plain(RULES, length=500), Repeat(b"#", 0.05)),
    "chunks without the last one": (CHUNKED + b"%x\r\n" % len(RULES) + RULES + b"\r\n", Close()),
    "an endless chunk extension": (CHUNKED + b"5;", Repeat(b"a" * 65536)),
    "plain text said to be gzip": (coded(b"gzip", RULES),),
    "gzip said to be br": (coded(b"br", GZIPPED),),
    "an unknown coding": (coded(b"aes128gcm", b"\x00\x8f" + RULES),),
    "text without a rule in an unknown coding": (coded(b"base64", b64encode(RULES)),),
    "gzip cut before its last rule": (coded(b"gzip", gzip.compress(RULES + b"# a comment\nDisallow: /")[:-12]),),
    "a member of gzip behind it that is cut": (coded(b"gzip", GZIPPED + GZIPPED[:5]),),
    "brotli that was text": (coded(b"br", RULES),),
    "gzip cut short": (coded(b"gzip", GZIPPED[:-20]),),
    "gzip cut by the connection": (plain(GZIPPED[:-20], length=len(GZIPPED), more=b"Content-Encoding: gzip\r\n"), Close()),
    "gzip whose header has no end": (coded(b"gzip", b"\x1f\x8b\x08\x08\0\0\0\0\0\xff" + b"a" * 600_000),),
    "gzip members that hold nothing": (coded(b"gzip", gzip.compress(b"") * 40_000),),
    "a part of it": (plain(RULES, head=b"HTTP/1.1 206 Partial Content\r\n", more=b"Content-Range: bytes 0-27/900\r\n"),),
    "no content of a length": (plain(b"", length=28, head=b"HTTP/1.1 204 No Content\r\n"), Close()),
    "reset content of a length": (plain(RULES, head=b"HTTP/1.1 205 Reset Content\r\n"), Close()),
    "an empty reply": (Close(),),
    "an upgrade": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Close()),
    "interim responses only": (b"HTTP/1.1 103 Early Hints\r\n\r\n", Close()),
}  # fmt: skip

WHOLE: dict[str, tuple[Step, ...]] = {
    "gzip with a wrong checksum": (coded(b"gzip", GZIPPED[:-8] + b"\0\0\0\0" + GZIPPED[-4:]),),
    "gzip with bytes behind it": (coded(b"gzip", GZIPPED + b"<!-- cached -->"),),
    "brotli with bytes behind it": (coded(b"br", brotli.compress(RULES * 100) + b"\n"),),
    "an unknown coding of text with rules": (coded(b"utf-8", RULES),),
    "two codings, one of them unknown": (coded(b"aws-chunked, gzip", GZIPPED),),
    "a length": (plain(RULES),),
    "until the end of the connection": (OK + b"\r\n" + RULES, Close()),
    "chunks": (CHUNKED + b"%x\r\n" % len(RULES) + RULES + b"\r\n0\r\n\r\n",),
    "gzip": (coded(b"gzip", GZIPPED),),
    "longer than is read": (plain(LONG),),
    "endless": (OK + b"\r\n" + RULES, Repeat(b"Disallow: /x\n" * 4000)),
    "gzip of what is longer than is read": (coded(b"gzip", gzip.compress(LONG)),),
    "gzip bomb": (coded(b"gzip", gzip.compress(RULES + b"#" * 20_000_000)),),
    "gzip of what can hardly be packed": (coded(b"gzip", gzip.compress(LONG, 0)),),
    "an image by its type": (plain(RULES, more=b"Content-Type: image/png\r\n"),),
}  # fmt: skip

WITHOUT_RULES: dict[str, tuple[Step, ...]] = {
    "empty": (plain(b""),),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n",),
    "comments in an unknown coding": (coded(b"none", b"# nothing to forbid\n\n"),),
    "reset content": (plain(b"", head=b"HTTP/1.1 205 Reset Content\r\n"),),
    "a page that is cut and was not found": (plain(b"gone", length=500, head=b"HTTP/1.1 404 Not Found\r\n"), Close()),
}  # fmt: skip


class GrantingBorrower:
    """A slot borrower that grants each slot at once; the claim's queue is its own host's."""

    def __init__(self, own: str) -> None:
        self._own = own

    def place(self, url: str) -> tuple[str, int]:
        return ("a.test" if url.startswith(self._own) else "elsewhere"), 1

    def slot(self, url: str) -> Any:
        return SimpleNamespace(ask=self._now, end=self._now)

    async def _now(self) -> int:
        return 0


async def read(
    server: HostileServer, *, own: str | None = None, patience_s: float = 0.4
) -> tuple[RobotsEntry, bytes, RobotsCache]:
    """What a reader makes of the server's robots.txt, in as many turns as it takes."""
    shared: Any = SimpleNamespace(robots=_nothing_shared)
    settings = Settings(robots=RobotsSettings())
    cache = RobotsCache(shared, settings)
    borrower: Any = GrantingBorrower(server.url if own is None else own)
    async with fetching(total_timeout_s=patience_s, idle_timeout_s=patience_s / 2, insecure_tls=True) as fetcher:
        reader = RobotsReader(cache, fetcher, borrower)
        for _ in range(10):
            reading = await reader.read(CLAIM.queue, server.url[:-1])
            if reading.entry is not None:
                return reading.entry, reading.blob, cache
    raise AssertionError("no end to it")


async def _nothing_shared(partition: int, origin: str) -> bytes | None:
    return None


def check_nothing_is_allowed(entry: RobotsEntry, blob: bytes) -> None:
    assert entry.rules is None
    assert entry.detail
    assert "\n" not in entry.detail
    assert blob == b"", "nothing is shared"


@pytest.mark.parametrize("how", NOT_WHOLE)
async def test_a_robots_txt_that_is_not_whole_allows_nothing(how: str) -> None:
    async with HostileServer(by_path={"/robots.txt": NOT_WHOLE[how]}) as server:
        entry, blob, _ = await read(server)
    check_nothing_is_allowed(entry, blob)
    assert entry.failure in (FailureKind.ROBOTS_UNREACHABLE, FailureKind.DISCONNECTED, FailureKind.PROTOCOL)


@pytest.mark.parametrize("slot", [False, True])
@pytest.mark.parametrize("how", ["closed before its end", "plain text said to be gzip", "a part of it"])
async def test_the_last_redirect_counts_with_and_without_a_borrowed_slot(how: str, slot: bool) -> None:
    moved = b"HTTP/1.1 301 Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
    steps = {"/robots.txt": (moved % b"/r1",), "/r1": (moved % b"/r2",), "/r2": NOT_WHOLE[how]}
    async with HostileServer(by_path=steps) as server:
        entry, blob, cache = await read(server, own=f"{server.url}robots.txt" if slot else None)
        assert cache.known(f"{server.url}r2") is None, "nor is anything allowed to others that are led there"
    check_nothing_is_allowed(entry, blob)


@pytest.mark.parametrize("how", WHOLE)
async def test_a_complete_robots_txt_is_obeyed_even_beyond_the_size_limit(how: str) -> None:
    async with HostileServer(by_path={"/robots.txt": WHOLE[how]}) as server:
        entry, blob, _ = await read(server, patience_s=10)
        assert entry.rules is not None
        assert entry.rules.allows(server.url)
        assert not entry.rules.allows(f"{server.url}no")
        assert blob


LIMIT = BODY_BYTES_MAX
CUT_LINE = b"Allow: /secret|/public\n"
BEGUN = len(b"Allow: /secret")


def cut_at_limit(read_bytes: int, end: bytes = b"\n") -> bytes:
    """A robots.txt of whose bytes so many are read, the last in the midst of a pattern."""
    rules = b"User-agent: *%bDisallow: /%b" % (end, end)
    filler = b"#" * (read_bytes - BEGUN - len(rules) - len(end)) + end
    return rules + filler + CUT_LINE * 5000


def stored(body: bytes) -> bytes:
    """In gzip that packs nothing: the received bytes are more than the content, and are cut first."""
    return gzip.compress(body, 0)


AS_STORED = len(zlib.decompressobj(31).decompress(stored(cut_at_limit(LIMIT))[:LIMIT]))
CUT_BODIES: dict[str, bytes] = {
    "plain": plain(cut_at_limit(LIMIT)),
    "until the end of the connection": OK + b"\r\n" + cut_at_limit(LIMIT),
    "CR": plain(cut_at_limit(LIMIT, b"\r")),
    "CRLF": plain(cut_at_limit(LIMIT, b"\r\n")),
    "chunks": CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(cut_at_limit(LIMIT)), cut_at_limit(LIMIT)),
    "gzip, cut as content": coded(b"gzip", gzip.compress(cut_at_limit(LIMIT))),
    "gzip, cut as received": coded(b"gzip", stored(cut_at_limit(AS_STORED))),
}


@pytest.mark.parametrize("how", CUT_BODIES)
async def test_the_line_that_the_limit_cuts_is_not_obeyed(how: str) -> None:
    async with HostileServer(by_path={"/robots.txt": (CUT_BODIES[how], Close())}) as server:
        entry, _, _ = await read(server, patience_s=10)
        assert entry.rules is not None
        assert [rule.pattern for rule in entry.rules.rules] == ["/"]
        assert not entry.rules.allows(f"{server.url}secret")


@pytest.mark.parametrize("end", [Close(), Cut()], ids=["close_notify", "FIN"])
async def test_one_without_a_length_is_whole_over_tls_after_a_close_notify(end: Step, authority: Authority) -> None:
    steps = (OK + b"\r\n" + RULES, end)
    async with HostileServer(by_path={"/robots.txt": steps}, tls=authority.server()) as server:
        entry, blob, _ = await read(server, patience_s=10)
        if end == Close():
            assert entry.rules is not None
            assert not entry.rules.allows(f"{server.url}no")
        else:
            check_nothing_is_allowed(entry, blob)


@pytest.mark.parametrize("how", WITHOUT_RULES)
async def test_one_without_rules_allows_all(how: str) -> None:
    async with HostileServer(by_path={"/robots.txt": WITHOUT_RULES[how]}) as server:
        entry, _, _ = await read(server, patience_s=10)
        assert entry.rules is not None
        assert entry.rules.allows(f"{server.url}no")


@pytest.mark.parametrize("how", ["closed before its end", "plain text said to be gzip", "too slow"])
async def test_a_crawl_asks_again_and_fetches_no_page(how: str, tmp_path: Path) -> None:
    page = plain(b"<p>forbidden, maybe</p>")
    async with HostileServer(page, by_path={"/robots.txt": NOT_WHOLE[how]}) as server, lab_names() as dns:
        settings = settings_of(
            tmp_path / "c", dns__nameservers=[dns], fetch__idle_timeout_s=0.1, fetch__total_timeout_s=0.2
        )
        done = await crawl(settings, [f"{server.url}no"])
        assert done.entries == []
        assert server.paths == ["/robots.txt"] * settings.retry.attempts
