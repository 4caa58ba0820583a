"""Rows of what reads headers, content codings and archives."""

import gzip
from collections.abc import Iterator

import brotli

from crawler.archive.warc_reader import stored_response
from crawler.archive.warc_web import _parsed as recorded_response
from crawler.audit.requests import parse_line
from crawler.content.html import redirect_target, refresh_target
from crawler.content.robots_directives import robots_header
from crawler.content.said import licenses_in
from crawler.content.sniff import detect_charset
from crawler.errors import ArchiveError
from crawler.media_type import is_html, media_type
from crawler.rules.conditional import validators_of
from crawler.rules.health import retry_after_ms
from crawler.rules.rights import USAGE, meaning_of, statement
from crawler.rules.signatures import dictionary_of, wish_in
from crawler.rules.site_rights import read_tdmrep
from crawler.web.response import BadHead
from tests.growth.reading import (
    BASE,
    KIB,
    answered_once,
    cookies,
    fed_bytewise,
    fed_in_two,
    gzip_members,
    head,
    headers,
    records,
    stored_lines,
    undone,
)
from tests.growth.target import Target
from tests.growth.tokens import CODED, EMPTY_ZSTD, HEAD, HEAD_AROUND, HOST, JSON, SKIPPED_ZSTD, TEXT, URL, WARC


def rows() -> Iterator[Target]:
    yield Target(
        name="head",
        function=head,
        tokens=HEAD,
        around=HEAD_AROUND,
        bytes_max=64 * KIB,
        raises=(BadHead,),
    )
    yield Target(
        name="head.fed", function=fed_in_two, tokens=HEAD, around=HEAD_AROUND, bytes_max=60 * KIB, raises=(BadHead,)
    )
    yield Target(
        name="head.bytewise",
        function=fed_bytewise,
        tokens=HEAD,
        around=HEAD_AROUND,
        bytes_max=2 * KIB,
        raises=(BadHead,),
    )
    second = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
    yield Target(
        name="head.pair",
        function=answered_once,
        tokens=(*HEAD, second, b"HTTP/1.1 304 x\r\n\r\n"),
        around=(
            *((before, behind + second) for before, behind in HEAD_AROUND),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", second),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", second),
            (b"HTTP/1.1 304 Not Modified\r\n\r\n", b""),
        ),
        bytes_max=2 * KIB,
        raises=(BadHead,),
    )
    yield Target(name="headers", function=headers, tokens=(*TEXT, b"Set-Cookie: a=b\n", b"a:b\n"), bytes_max=60 * KIB)
    yield Target(name="set-cookie", function=cookies, tokens=(*TEXT, b"a=b;", b"expires="), bytes_max=60 * KIB)
    yield Target(
        name="accept-signature",
        function=lambda data: (wish_in(data, covers_agent=True, keyids=("K",)), dictionary_of(data)),
        around=((b"", b""), (b'a=("@authority" ', b');tag="web-bot-auth"'), (b'a=("@authority");nonce="', b'"')),
        tokens=(*TEXT, b'"@authority" ', b"a=(), ", b";key=", b'"a"', b":YQ==:", b"?1", b"@1", b'%"a"', b"1.5", b"\\"),
        bytes_max=60 * KIB,
    )
    yield Target(
        name="validators",
        reads_text=True,
        bytes_max=60 * KIB,
        around=((b"", b""), (b'W/"', b'"')),
        tokens=(*TEXT, b'"', b"W/", b"*", b", "),
        function=lambda text: validators_of(text, text).confirmed_by(text),
    )
    yield Target(
        name="retry-after",
        reads_text=True,
        bytes_max=60 * KIB,
        around=((b"", b""), (b"Sun, 06 Nov 1994 ", b"")),
        tokens=(*TEXT, b"(", b")", b"Sun, ", b"06 Nov 1994 ", b"08:49:37 ", b"GMT", b"+0000 ", b"-", b"Nov"),
        function=lambda text: (
            retry_after_ms(text, date=None, now_s=1.8e9, max_s=60.0),
            retry_after_ms("5", date=text, now_s=1.8e9, max_s=60.0),
        ),
    )
    yield Target(
        name="content-type",
        reads_text=True,
        bytes_max=60 * KIB,
        around=((b"", b""), (b"text/html; charset=", b"")),
        function=lambda text: (detect_charset(b"x", text), media_type(text), is_html(text, b"<p>")),
        tokens=(*TEXT, b"charset", b"charset=", b"charset =", b"/", b"text/html", b"utf-8"),
    )
    yield Target(
        name="x-robots-tag",
        reads_text=True,
        bytes_max=60 * KIB,
        around=((b"", b""), (b"shardcrawl", b"noindex")),
        function=lambda text: robots_header(text, "shardcrawl"),
        tokens=(*TEXT, b"noindex", b"none,", b"shardcrawl:", b"unavailable_after:", b"*"),
    )
    yield Target(
        name="content-usage",
        reads_text=True,
        bytes_max=60 * KIB,
        function=lambda text: meaning_of(USAGE, statement("header", USAGE, text)[0].value),
        tokens=(*TEXT, b"train-ai=n,", b"search=y", b"=", b";", b" = ", b"bots"),
    )
    yield Target(
        name="link",
        reads_text=True,
        bytes_max=60 * KIB,
        function=lambda text: licenses_in(text, BASE),
        tokens=(*TEXT, b"<", b">", b"; rel=license", b"; rel=", b",", b'"'),
    )
    yield Target(
        name="tdmrep.json",
        bytes_max=500 * KIB,
        around=((b"", b""), (b"[", b"]")),
        function=read_tdmrep,
        tokens=(*TEXT, b'{"location": "/*", "tdm-reservation": 1},', b"[", b"{", b"1,", b'"'),
    )
    yield Target(
        name="refresh",
        reads_text=True,
        bytes_max=60 * KIB,
        around=((b"", b""), (b"0;", b""), (b"0;url='", b"")),
        function=lambda text: refresh_target(BASE, text),
        tokens=(*TEXT, b".", b"url", b"url=", b"url =", b"/"),
    )
    yield Target(
        name="location",
        reads_text=True,
        bytes_max=60 * KIB,
        around=((b"", b""), (b"/", b""), (b"//", b"")),
        function=lambda text: redirect_target(BASE, text),
        tokens=(*TEXT, *URL, *HOST),
    )
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "deflate, br", "x, gzip", "br, x, deflate"):
        yield Target(
            name=f"coding.{coding}",
            function=undone(coding),
            bytes_max=256 * KIB,
            tokens=(*CODED, EMPTY_ZSTD, SKIPPED_ZSTD, b"\x06", brotli.compress(b""), b"\x0c\x00\x00"),
            around=(
                (b"", b""),
                (gzip.compress(b"page"), b""),
                (b"\x78\x9c", b""),
                (b"\x1b\x03\x00", b""),
                (EMPTY_ZSTD, b""),
            ),
        )
    yield Target(name="warc.write", function=records, tokens=(*HEAD, b"\r", b"a:b\n"), bytes_max=64 * KIB)
    yield Target(
        name="warc.recorded",
        function=lambda data: recorded_response(data, BASE),
        tokens=WARC,
        bytes_max=64 * KIB,
        around=(
            (b"", b""),
            (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        ),
        raises=(ArchiveError,),
    )
    yield Target(
        name="warc.read",
        function=lambda data: stored_response(data, "x"),
        tokens=WARC,
        bytes_max=64 * KIB,
        around=((b"", b""), (b"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: ", b"\r\n\r\n")),
        raises=(ArchiveError,),
    )
    yield Target(name="warc.members", function=gzip_members, tokens=CODED, bytes_max=64 * KIB)
    yield Target(
        name="lines",
        function=stored_lines,
        tokens=(*JSON, b'com,a)/ 1 {"url":"x"}'),
        around=((b"", b""), (b"a 1 ", b"}")),
    )
    yield Target(
        name="access-log",
        function=parse_line,
        reads_text=True,
        tokens=(*TEXT, b"[", b"]", b'a a a a [x] "GET / HTTP/1.1" 200 1', b" 1.1"),
        around=(
            (b"", b""),
            (b'a - - - [x] "', b""),
            (b'a - - - [21/Nov/2026:19:00:00 +0000] "GET / HTTP/1.1" 200 1 "" "a"', b"x"),
        ),
    )
