"""Sites whose answers are slightly wrong: their pages are read as browsers read them, and what lacks is counted."""

import asyncio
import gzip
import json
from pathlib import Path

import brotli
import pytest

from crawler.cli.main import main
from crawler.crawl.opening import open_crawl
from crawler.settings import Settings
from crawler.views.losses import Kind
from crawler.views.whole import losses
from tests.crawl.harness import crawl, entries_of, settings_of
from tests.support.hostile_server import Close, HostileServer, Step

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
PAGE = b"<title>odd</title><p>text</p>" + b"<p>more</p>" * 20


def coded(coding: str, body: bytes, *, status: bytes = b"200 OK") -> tuple[bytes]:
    head = b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    return (head % (status, coding.encode(), len(body)) + body,)


def linking(to: str) -> bytes:
    return PAGE + f'<a href="{to}">next</a>'.encode()


def packed(to: str) -> bytes:
    return gzip.compress(linking(to))


# A chain: each page is found on the one before it.
READABLE: dict[str, tuple[str, bytes, str]] = {
    "/none": ("none", linking("/aws"), "unknown coding 'none'"),
    "/aws": ("aws-chunked, gzip", packed("/plain"), "unknown coding 'aws-chunked'"),
    "/plain": ("gzip", linking("/tail"), "not gzip, as it was said to be"),
    "/tail": ("gzip", packed("/sum") + b"<!-- cached -->", "trailing garbage"),
    "/sum": ("gzip", packed("/cut")[:-8] + bytes(8), "a wrong checksum"),
    "/cut": ("gzip", packed("/br")[:-9], "incomplete"),
    "/br": ("br", brotli.compress(linking("/end")) + b"\n", "trailing garbage"),
}
NOTHING: dict[str, tuple[Step, ...]] = {
    "/text-as-br": coded("br", PAGE),
    "/not-there": coded("br", PAGE, status=b"404 Not Found"),
}


def web() -> dict[str, tuple[Step, ...]]:
    found: dict[str, tuple[Step, ...]] = {path: coded(coding, body) for path, (coding, body, _) in READABLE.items()}
    home = b"".join(b'<a href="%b">x</a>' % path.encode() for path in ("/none", *NOTHING))
    return found | NOTHING | {
        "/": (OK + b"Content-Length: %d\r\n\r\n" % len(home) + home,),
        "/end": (OK + b"Content-Length: 3\r\n\r\nend",),
        "/robots.txt": (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",),
    }  # fmt: skip


async def losses_in(settings: Settings) -> dict[tuple[str, str], int]:
    async with open_crawl(settings, create=False) as opened:
        return {(one.kind, one.reason): one.count for one in await losses(opened)}


async def test_pages_in_odd_codings_are_read_marked_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with HostileServer(by_path=web()) as server:
        settings = settings_of(tmp_path / "c", fetch__concurrency=1)
        await crawl(settings, [server.url])
        requests = server.paths
    pages = {entry.url.removeprefix(server.url[:-1]): entry for entry in entries_of(tmp_path / "c")}
    assert pages.keys() == {"/", "/end", "/not-there", *READABLE}
    errors = {path: entry.decode_error for path, entry in pages.items()}
    assert {path: errors[path] for path in READABLE} == {path: error for path, (_, _, error) in READABLE.items()}
    assert {pages[path].title for path in READABLE} == {"odd"}
    assert errors["/end"] == ""
    assert pages["/not-there"].status == 404
    again = {"/cut", *NOTHING}  # what another attempt may mend; all else is asked for once
    assert {path: requests.count(path) for path in [*READABLE, *NOTHING]} == {
        path: 2 if path in again else 1 for path in [*READABLE, *NOTHING]
    }
    expected = {(Kind.CUT, "decode_error"): len(READABLE) + 1, (Kind.GIVEN_UP, "body"): 1}
    assert await losses_in(settings) == expected

    folder = str(tmp_path / "c")
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["export", "--columns", "text,links", "--dir", folder]) == 0
    shown = capsys.readouterr()
    rows = {row["url"].removeprefix(server.url[:-1]): row for row in map(json.loads, shown.out.splitlines())}
    assert rows["/tail"]["links"] == [f"{server.url}sum"]
    assert rows["/tail"]["decode_error"] == "trailing garbage"
    assert rows["/plain"]["text"].startswith("text")
    assert rows["/not-there"]["text"] is None
    assert f"{server.url}not-there: no content, its body can't be decoded" in shown.err
    assert "could not be read" not in shown.err

    assert await asyncio.to_thread(main, ["dead", "show", f"{server.url}text-as-br", "--dir", folder]) == 0
    assert "Content-Encoding: " in capsys.readouterr().out


# Content-Type of each page of a chain; None: there is none.
TYPES = ("text/html charset=utf-8", "text/html,text/html", "html", "charset=utf-8", "text", "*/*", None, "text/html;")


async def test_pages_in_odd_types_lead_to_others(tmp_path: Path) -> None:
    steps: dict[str, tuple[Step, ...]] = {"/robots.txt": (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",)}
    for n, kind in enumerate(TYPES):
        body = linking(f"/{n + 1}")
        head = b"" if kind is None else b"Content-Type: %b\r\n" % kind.encode()
        steps[f"/{n}"] = (b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body),)
    end = linking("/never")
    steps[f"/{len(TYPES)}"] = (
        b"HTTP/1.1 200 OK\r\nContent-Type: html\r\nX-Content-Type-Options: nosniff\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(end), end),
    )
    async with HostileServer(by_path=steps) as server:
        done = await crawl(settings_of(tmp_path / "c"), [f"{server.url}0"])
        assert server.paths == ["/robots.txt", *(f"/{n}" for n in range(len(TYPES) + 1))]
    assert [entry.title for entry in sorted(done.entries, key=lambda entry: entry.depth)] == ["odd"] * len(TYPES) + [""]
    assert {entry.mime for entry in done.entries} == {"text/html", "unk"}


LENGTH = b"Content-Length: %d\r\n\r\n%b"
CHUNKED = b"Transfer-Encoding: %b\r\n\r\n%x%b%b%b0%b%b"
HEADS = (
    b"<br />\r\n<b>Warning</b>: x in <b>/x.php</b> on line <b>3</b><br />\r\n", b"no colon\r\n", b": no name\r\n",
    b"HTTP/1.1 200 OK\r\n", b"N\xc3\xa4me: x\r\n", b"X-A : b\r\n", b"Transfer-Encoding: identity\r\n",
)  # fmt: skip
CODINGS = ((b"chunked, chunked", b"\r\n"), (b"identity, chunked", b"\r\n"), (b"chunked", b"\n"))


async def test_pages_with_odd_heads_and_chunks_lead_to_others(tmp_path: Path) -> None:
    steps: dict[str, tuple[Step, ...]] = {"/robots.txt": (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",)}
    for n, line in enumerate(HEADS):
        body = linking(f"/{n + 1}")
        steps[f"/{n}"] = (OK + line + LENGTH % (len(body), body),)
    for n, (coding, end) in enumerate(CODINGS, len(HEADS)):
        body = linking(f"/{n + 1}")
        steps[f"/{n}"] = (OK + CHUNKED % (coding, len(body), end, body, end, end, end),)
    last = len(HEADS) + len(CODINGS)
    steps[f"/{last}"] = (OK + b"Transfer-Encoding: gzip\r\n\r\n" + packed("/end"), Close())
    steps["/end"] = (OK + LENGTH % (3, b"end"),)
    async with HostileServer(by_path=steps) as server:
        done = await crawl(settings_of(tmp_path / "c"), [f"{server.url}0"])
        assert server.paths == ["/robots.txt", *(f"/{n}" for n in range(last + 1)), "/end"]
    assert {entry.decode_error for entry in done.entries} == {""}
    assert [entry.title for entry in sorted(done.entries, key=lambda entry: entry.depth)] == ["odd"] * (last + 1) + [""]


RULES = b"User-agent: *\nDisallow: /" + b"x" * 40 + b"\nDisallow: /\n"
STORED = gzip.compress(RULES, 0, mtime=0)
BEFORE_THE_RULE = STORED.index(b"\nDisallow: /\n") + 1


CUT = {
    "before the rule": STORED[:BEFORE_THE_RULE],
    "within the rule": STORED[: BEFORE_THE_RULE + 5],
    "before the checksum": STORED[:-8],
    "within the checksum": STORED[:-1],
    "of what is packed": gzip.compress(RULES)[:-9],
}


@pytest.mark.parametrize("how", CUT)
async def test_a_robots_txt_that_is_cut_before_a_rule_lets_nothing_through(how: str, tmp_path: Path) -> None:
    steps = {"/robots.txt": coded("gzip", CUT[how]), "/": coded("gzip", PAGE)}
    async with HostileServer(by_path=steps) as server:
        done = await crawl(settings_of(tmp_path / "c"), [server.url])
        assert done.entries == []
        assert set(server.paths) == {"/robots.txt"}
