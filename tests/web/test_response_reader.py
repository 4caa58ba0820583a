"""Bytes in, a response or a refusal out; however the bytes are cut, the same. What hosts do wrong has a table of its own."""

# ruff: noqa: E501 - a table reads best with one row to a line
import gc
import weakref
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model import FailureKind
from crawler.web.response import (
    CHUNK_OVERHEAD_BYTES_MAX,
    HEADERS_MAX,
    INTERIM_MAX,
    TRAILER_BYTES_MAX,
    BadHead,
    ResponseReader,
)
from tests.hostile.test_rows_http import ROWS as HOSTILE_ROWS
from tests.hostile.test_rows_http import Row

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n3\r\n, y\r\n0\r\n\r\n"
LIMIT = 1000
HEADERS_BYTES_MAX = 16_384


@dataclass(frozen=True)
class Outcome:
    """`ended` as `feed` says it, or the kind of refusal; None: bytes ran out first, and `is_whole_at_end` counts."""

    ended: str | FailureKind | None
    status: int = 0
    body: bytes = b""
    is_whole_at_end: bool = False
    allows_another: bool = False


def whole(body: bytes = b"hello", *, status: int = 200, again: bool = True) -> Outcome:
    return Outcome("", status, body, is_whole_at_end=True, allows_another=again)


def to_the_end(body: bytes) -> Outcome:
    """All that follows, once the connection ends."""
    return Outcome(None, 200, body, is_whole_at_end=True)


def refused(kind: FailureKind) -> Outcome:
    return Outcome(kind)


def new_reader() -> ResponseReader:
    reader = ResponseReader(headers_bytes_max=HEADERS_BYTES_MAX)
    reader.begin(body_bytes_max=LIMIT)
    return reader


def read(pieces: list[bytes]) -> Outcome:
    reader = new_reader()
    ended: str | None = None
    for piece in pieces:
        if ended is None:
            try:
                ended = reader.feed(piece)
            except BadHead as refusal:
                return refused(refusal.kind)
    return Outcome(
        ended,
        reader.head.status if reader.head else 0,
        reader.body(),
        reader.is_whole_at_end(),
        reader.allows_another(),
    )


def headers(count: int) -> bytes:
    return b"".join(b"X-%d: a\r\n" % n for n in range(count))


NO_STATUS_LINES = [
    "RTSP/1.0 200 OK", "ICE/1.0 200 OK", "ICY 200 OK", "HTTP/0.9 200 OK", "HTTP/2.0 200 OK", "HTTP/2 200 OK", "HTTP/3 200",
    "HTTP/1.2 200 OK", "HTTP/1.10 200 OK", "HTTP/01.1 200 OK", "HTP/1.1 200 OK", "http/1.1 200 OK", " HTTP/1.1 200 OK",
    "HTTP/1.1 20x OK", "HTTP/1.1 99 x", "HTTP/1.1 099 x", "HTTP/1.1 000 x", "HTTP/1.1 1000 x", "HTTP/1.1 -200 OK",
    "HTTP/1.1 200OK", "HTTP/1.1  200 OK", "HTTP/1.1\t200 OK", "HTTP/1.1 ", "HTTP/1.1", "GET / HTTP/1.1",
]  # fmt: skip
P, H = FailureKind.PROTOCOL, FailureKind.HEADERS_TOO_LARGE
LENGTH = b"Content-Length: 5\r\n"
SPELLINGS = {
    b"chunked": True, b" chunked": True, b"\tchunked": True, b" \t chunked": True, b" chunked  ": True, b" Chunked": True,
    b"\tchunked\t": False, b" chunked \t ": False, b" chunked,": False, b" ,chunked": False, b"\t,\tChunked\t,,": False,
}  # fmt: skip
OTHER_CODINGS = (
    b"", b" ", b",", b" chunked;a=b", b" chunked\x0b", b" chunked\xa0", b' "chunked"', b" chunke", b" gzip,", b"\tgzip\t",
    b" chunked chunked", b" chunked, gzip", b" identity",
)  # fmt: skip
ROWS = {
    "a length": (OK + LENGTH + b"\r\nhello", whole()),
    "no body": (OK + b"Content-Length: 0\r\n\r\n", whole(b"")),
    "chunks": (CHUNKED + CHUNKS, whole(b"hello, y")),
    "chunks with trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nX-T: a\r\nX-U: b\r\n\r\n", whole()),
    "the host closes": (OK + b"Connection: close\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "HTTP/1.0 that keeps": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH + b"\r\nhello", whole()),
    "until the end of the connection": (OK + b"\r\nhello", Outcome(None, 200, b"hello", is_whole_at_end=True)),
    "HTTP/1.0 until the end": (b"HTTP/1.0 200 OK\r\n\r\nhello", Outcome(None, 200, b"hello", is_whole_at_end=True)),
    "a body that is not there yet": (OK + LENGTH + b"\r\nhel", Outcome(None, 200, b"hel")),
    "a head that is not whole": (OK + LENGTH, Outcome(None)),
    "beyond the limit": (OK + b"Content-Length: 1001\r\n\r\n" + b"a" * 1001, Outcome("length", 200, b"a" * LIMIT, is_whole_at_end=True, allows_another=True)),
    "at the limit": (OK + b"Content-Length: 1000\r\n\r\n" + b"a" * 1000, whole(b"a" * 1000)),
    "an empty line of one line feed before one of two": (
        OK + b"X-A: b\r\n\n\r\n", Outcome(None, 200, b"\r\n", is_whole_at_end=True),
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", whole(b"", status=204)),
    "204 of a length": (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", whole(b"", status=204, again=False)),
    "205": (b"HTTP/1.1 205 Reset\r\n\r\n", whole(b"", status=205, again=False)),
    "304": (b"HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n", whole(b"", status=304)),
    "304 of a length": (b"HTTP/1.1 304 Not Modified\r\n" + LENGTH + b"\r\n", whole(b"", status=304, again=False)),
    "an upgrade": (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", refused(P)),
    "interim responses": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * INTERIM_MAX + OK + LENGTH + b"\r\nhello", whole()),
    "too many interim responses": (b"HTTP/1.1 100 Continue\r\n\r\n" * (INTERIM_MAX + 1) + OK + LENGTH + b"\r\nhello", refused(P)),
    "as many headers as may be": (OK + LENGTH + headers(HEADERS_MAX - 1) + b"\r\nhello", whole()),
    "one header too many": (OK + LENGTH + headers(HEADERS_MAX) + b"\r\nhello", refused(H)),
    "trailers count as headers": (CHUNKED + b"5\r\nhello\r\n0\r\n" + headers(HEADERS_MAX + 1), refused(H)),
    "headers of too many bytes": (OK + b"X-A: " + b"a" * HEADERS_BYTES_MAX + b"\r\n\r\n", refused(H)),
    "folded headers": (OK + b"X-A: b\r\n c\r\n" + LENGTH + b"\r\nhello", whole()),
    "a space before the colon": (OK + b"Content-Length : 5\r\n\r\nhello", whole(again=False)),
    "a tab before the coding": (OK + b"Transfer-Encoding:\tchunked\r\n\r\n" + CHUNKS, whole(b"hello, y")),
    **{
        f"the coding as {value!r}": (OK + b"Transfer-Encoding:" + value + b"\r\n\r\n" + CHUNKS, whole(b"hello, y", again=is_plain))
        for value, is_plain in SPELLINGS.items()
    },
    **{f"another coding, {value!r}": (OK + b"Transfer-Encoding:" + value + b"\r\n\r\n" + CHUNKS, to_the_end(CHUNKS)) for value in OTHER_CODINGS},
    "the coding twice in a list": (OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "the coding behind a tab and a length": (OK + LENGTH + b"Transfer-Encoding:\tchunked\t\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "the coding behind a tab, and a NUL": (OK + b"X: \0\r\nTransfer-Encoding:\tchunked\t\r\n\r\n" + CHUNKS, refused(P)),
    "a tab before the colon": (OK + b"Transfer-Encoding\t: chunked\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "the coding twice": (CHUNKED[:-2] + CHUNKED[len(OK):] + CHUNKS, whole(b"hello, y", again=False)),
    "the coding twice, once with a tab": (CHUNKED[:-2] + b"Transfer-Encoding: Chunked\t\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "the coding and an empty one": (CHUNKED[:-2] + b"Transfer-Encoding:\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "a length with tabs": (OK + b"Content-Length:\t5\t\r\n\r\nhello", whole()),
    "a length with tabs and blanks": (OK + b"Content-Length: \t 5 \t \r\n\r\nhello", whole()),
    "the coding in capitals": (OK + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n" + CHUNKS, whole(b"hello, y")),
    "the coding folded": (OK + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS, whole(b"hello, y")),
    "a word folded to the coding": (OK + b"Transfer-Encoding: chunked\r\n gzip\r\n\r\n" + CHUNKS, to_the_end(CHUNKS)),
    "two codings": (OK + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "the coding and a length": (OK + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "lengths that agree": (OK + LENGTH + LENGTH + b"\r\nhello", whole(again=False)),
    "lengths that differ": (OK + LENGTH + b"Content-Length: 6\r\n\r\nhello!", refused(P)),
    "lengths that agree, and a bad header": (OK + LENGTH + LENGTH + b"X A: b\r\n\r\nhello", whole(again=False)),
    "lengths that agree, and no end": (OK + LENGTH + LENGTH, Outcome(None)),
    "lengths that agree, and headers of too many bytes": (OK + LENGTH + LENGTH + b"X-A: " + b"a" * HEADERS_BYTES_MAX, refused(H)),
    "a NUL": (OK + b"X-A: a\0b\r\n" + LENGTH + b"\r\nhello", refused(P)),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", refused(P)),
    "no HTTP without a line's end": (b"<html>", refused(P)),
    "empty lines before": (b"\r\n\r\n\n" + OK + LENGTH + b"\r\nhello", whole()),
    "endless empty lines": (b"\r\n" * HEADERS_BYTES_MAX, refused(H)),
    "no reason": (b"HTTP/1.1 200\r\n" + LENGTH + b"\r\nhello", whole()),
    "a status beyond 599": (b"HTTP/1.1 999 x\r\n" + LENGTH + b"\r\nhello", whole(status=999)),
    "a bare LF": (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", whole()),
    "a bare CR in a value": (OK + b"X-A: b\rX-C: d\r\n" + LENGTH + b"\r\nhello", refused(P)),
    "a bare CR in the reason": (b"HTTP/1.1 200 O\rK\r\n" + LENGTH + b"\r\nhello", refused(P)),
    "two CR before an LF": (OK + b"X-A: b\r\r\n" + LENGTH + b"\r\nhello", refused(P)),
    "CR for line ends": ((OK + LENGTH + b"\r\n").replace(b"\n", b"") + b"hello", refused(P)),
    "a bare CR in an interim response": (b"HTTP/1.1 103 x\r\nX: a\rb\r\n\r\n" + OK + LENGTH + b"\r\nhello", refused(P)),
    "a NUL in the reason": (b"HTTP/1.1 200 O\0K\r\n" + LENGTH + b"\r\nhello", refused(P)),
    "a name of nothing": (OK + b": a\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "no colon": (OK + b"X-A\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "a blank before the first header": (OK + b" X-A: b\r\n\tc\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "a length with a blank before it": (OK + b" Content-Length: 2\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "a fold of blanks": (OK + b"X-A: b\r\n  \r\n" + LENGTH + b"\r\nhello", whole()),
    "a length folded": (OK + b"Content-Length:\r\n 5\r\n\r\nhello", whole()),
    "a length folded to two": (OK + LENGTH[:-2] + b"\r\n 6\r\n\r\nhello", refused(P)),
    "a length in a list": (OK + b"Content-Length: 5, 5,5\r\n\r\nhello", whole(again=False)),
    "a length with zeros, twice": (OK + LENGTH + b"Content-Length: 005\r\n\r\nhello", whole(again=False)),
    "lengths in a list that differ": (OK + b"Content-Length: 5,6\r\n\r\nhello!", refused(P)),
    "a length and nothing": (OK + b"Content-Length: 5,\r\n\r\nhello", refused(P)),
    "an empty length next to another": (OK + LENGTH + b"Content-Length:\r\n\r\nhello", refused(P)),
    "a length next to a negative one": (OK + LENGTH + b"Content-Length: -5\r\n\r\nhello", refused(P)),
    "a length next to one with a plus": (OK + LENGTH + b"Content-Length: +5\r\n\r\nhello", refused(P)),
    "a length and an odd blank": (OK + b"Content-Length: 5\x0b\r\n\r\nhello", refused(P)),
    "a length of many digits": (OK + b"Content-Length: " + b"1" * 5000 + b"\r\n\r\nhello", refused(P)),
    "a length of many digits, twice": (OK + (b"Content-Length: " + b"1" * 5000 + b"\r\n") * 2 + b"\r\nhello", refused(P)),
    "a length of many zeros": (OK + b"Content-Length: " + b"0" * 5000 + b"5\r\n\r\nhello", whole()),
    "two lengths next to chunks": (OK + LENGTH + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "chunks next to two lengths": (OK + b"Transfer-Encoding: chunked\r\n" + LENGTH + LENGTH + b"\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "chunks between two lengths": (OK + LENGTH + b"Transfer-Encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "a negative length next to chunks": (OK + b"Content-Length: -1\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "folded chunks next to a length": (OK + b"Transfer-Encoding:\r\n chunked\r\n" + LENGTH + b"\r\n" + CHUNKS, whole(b"hello, y", again=False)),
    "identity next to a length": (OK + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\nhello", whole(again=False)),
    "a size of 17 digits": (CHUNKED + b"F" * 17 + b"\r\nhello", refused(P)),
    "a NUL in a chunk extension": (CHUNKED + b"5;a=\0\r\nhello\r\n0\r\n\r\n", refused(P)),
    "lengths behind an interim response": (b"HTTP/1.1 103 x\r\nLink: a\r\n\r\n" + OK + LENGTH + LENGTH + b"\r\nhello", whole(again=False)),
    "a length and chunks behind an interim response": (b"HTTP/1.1 100 x\r\n\r\n" + OK + LENGTH + CHUNKED[len(OK):] + CHUNKS, whole(b"hello, y", again=False)),
    "an interim response with lengths": (b"HTTP/1.1 103 x\r\n" + LENGTH + LENGTH + b"\r\n" + OK + LENGTH + b"\r\nhello", whole()),
    "an interim response that ends the connection": (b"HTTP/1.1 103 x\r\nConnection: close\r\n\r\n" + OK + LENGTH + b"\r\nhello", whole()),
    "an interim response of another protocol": (b"HTTP/2.0 103 x\r\n\r\n" + OK + LENGTH + b"\r\nhello", refused(P)),
    "an interim response and no other": (b"HTTP/1.1 103 x\r\n\r\n", Outcome(None)),
    "interim responses of too many bytes": ((b"HTTP/1.1 103 x\r\nX-A: " + b"a" * (HEADERS_BYTES_MAX // 2) + b"\r\n\r\n") * 2 + OK + LENGTH + b"\r\nhello", refused(H)),
    **{f"status line {line}": (line.encode() + b"\r\n" + LENGTH + b"\r\nhello", refused(P)) for line in NO_STATUS_LINES},
}  # fmt: skip


def by_the_byte(wire: bytes) -> list[bytes]:
    return [wire[at : at + 1] for at in range(len(wire))]


@pytest.mark.parametrize("name", ROWS)
def test_a_response_is_read_at_once_and_by_the_byte(name: str) -> None:
    wire, expected = ROWS[name]
    assert read([wire]) == expected
    assert read(by_the_byte(wire)) == expected


@given(st.data())
def test_where_the_bytes_are_cut_changes_nothing(data: st.DataObject) -> None:
    wire, expected = ROWS[data.draw(st.sampled_from(sorted(ROWS)))]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(wire)), max_size=6)) | {0, len(wire)})
    assert read([wire[start:end] for start, end in pairwise(cuts)]) == expected


LINES = (
    b"X-A: b", b" folded", b"\tfolded", b"X A: b", b"X-A : b", b": b", b"X-A", b"X-A: b\rc", b"X-A: \0", b"X-\xe9: \xe9",
    b"Content-Length: 5", b"content-length: 5", b"Content-Length: 6", b"Content-Length: 5, 5", b"Content-Length: -1",
    b"Content-Length: +5", b"Content-Length:", b"Content-Length : 5", b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding:", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: x",
    b"Connection: close", b"Connection: upgrade", b"Upgrade: h2c",
)  # fmt: skip
STATUS_LINES = (
    b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 x", b"HTTP/1.1 304 x", b"HTTP/1.1 101 x", b"HTTP/1.1 103 x",
    b"HTTP/2.0 200 x", b"HTTP/1.1 99 x",
)  # fmt: skip


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Heads of lines that are odd in many ways, interim ones too, with a body or something like it."""
    wire = b""
    for _ in range(draw(st.integers(1, 3))):
        lines = [draw(st.sampled_from(STATUS_LINES)), *draw(st.lists(st.sampled_from(LINES), max_size=4)), b""]
        wire += b"".join([line + draw(st.sampled_from((b"\r\n", b"\r\n", b"\n"))) for line in lines])
    return wire + draw(st.sampled_from((b"", b"hello", CHUNKS, b"5\r\nhel", OK + LENGTH + b"\r\nhello", b"\r\n")))


def judged(pieces: list[bytes]) -> tuple[object, ...]:
    """Without what counts for its connection: bytes behind a response may not have come yet when it ends."""
    outcome = read(pieces)
    return outcome.ended, outcome.status, outcome.body, outcome.ended is None and outcome.is_whole_at_end


@pytest.mark.slow(ci=True)
@given(responses(), st.data())
def test_any_response_is_judged_the_same_however_its_bytes_are_cut(wire: bytes, data: st.DataObject) -> None:
    expected = judged([wire])
    assert judged(by_the_byte(wire)) == expected
    cuts = sorted(data.draw(st.sets(st.integers(0, len(wire)), max_size=4)) | {0, len(wire)})
    assert judged([wire[start:end] for start, end in pairwise(cuts)]) == expected


@pytest.mark.parametrize(
    "row", [row for row in HOSTILE_ROWS if isinstance(row.steps[0], bytes)], ids=lambda row: row.name
)
def test_hostile_responses_are_judged_the_same_by_the_byte(row: Row) -> None:
    wire = row.steps[0]
    assert isinstance(wire, bytes)
    wire = wire[: 3 * HEADERS_BYTES_MAX]
    assert judged(by_the_byte(wire)) == judged([wire])


def test_one_reader_takes_one_response_after_another() -> None:
    reader = ResponseReader(headers_bytes_max=HEADERS_BYTES_MAX)
    for body in (b"one", b"", b"three"):
        reader.begin(body_bytes_max=LIMIT)
        assert reader.feed(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body) == ""
        assert reader.body() == body
        assert reader.allows_another()
        reader.clear()
        assert reader.head is None
        assert reader.body() == b""


@pytest.mark.parametrize("more", [OK + LENGTH + b"\r\nhello", b"hello", b"\0"])
@pytest.mark.parametrize(
    ("answer", "body"), [(OK + LENGTH + b"\r\nfirst", b"first"), (b"HTTP/1.1 304 Not Modified\r\n\r\n", b"")]
)
def test_bytes_behind_a_response_leave_it_whole_and_end_its_connection(answer: bytes, body: bytes, more: bytes) -> None:
    reader = new_reader()
    assert reader.feed(answer + more) == ""
    assert reader.body() == body
    assert not reader.allows_another()


def test_empty_lines_behind_a_response_are_forgiven() -> None:
    reader = new_reader()
    assert reader.feed(OK + LENGTH + b"\r\nfirst\r\n") == ""
    assert reader.body() == b"first"


def test_headers_keep_their_order_their_case_and_every_one_of_a_name() -> None:
    reader = new_reader()
    reader.feed(OK + LENGTH + b"Set-Cookie: a=1 \t\r\nset-cookie: b=\xe9\r\nX-Empty:\r\n\r\nhello")
    head = reader.head
    assert head is not None
    assert head.headers == (
        (b"Content-Length", b"5"),
        (b"Set-Cookie", b"a=1"),
        (b"set-cookie", b"b=\xe9"),
        (b"X-Empty", b""),
    )
    assert head.get(b"set-cookie") == "a=1"
    assert head.all_of(b"set-cookie") == {b"a=1", b"b=\xe9"}
    assert head.get(b"x-missing") is None
    assert (head.status, head.reason, head.http_version) == (200, "OK", "1.1")


def test_a_name_has_no_blank_before_its_colon_and_a_reason_is_kept_as_it_came() -> None:
    """RFC 9112 5.1. The parser takes a blank behind the names of these headers only."""
    for reason in (b"\xd0\xbd\xd0\xb5\xd1\x82", b"caf\xe9", b""):
        reader = new_reader()
        reader.feed(b"HTTP/1.1 200 " + reason + b"\r\nContent-Length : 5\r\n\r\nhello")
        assert reader.head is not None
        assert reader.head.headers == ((b"Content-Length", b"5"),)
        assert reader.head.reason.encode("utf-8", "surrogateescape") == reason


def test_a_body_of_tiny_chunks_is_cut_by_what_they_cost() -> None:
    reader = ResponseReader(headers_bytes_max=HEADERS_BYTES_MAX)
    reader.begin(body_bytes_max=10**9)
    assert reader.feed(CHUNKED) is None
    tiny = b"1;" + b"x" * 1000 + b"\r\na\r\n"
    fed = 0
    while (ended := reader.feed(tiny)) is None:
        fed += len(tiny)
        assert fed < 2 * CHUNK_OVERHEAD_BYTES_MAX
    assert ended == "length"
    assert set(reader.body()) == {ord("a")}


@pytest.mark.parametrize("piece", [1, 100, 5000])
def test_a_trailer_without_an_end_costs_linear_time(piece: int) -> None:
    """The parser copies what it has of one at each piece: two megabytes in pieces of 100 bytes took six seconds."""
    reader = ResponseReader(headers_bytes_max=HEADERS_BYTES_MAX)
    reader.begin(body_bytes_max=10**9)
    assert reader.feed(CHUNKED + b"5\r\nhello\r\n0\r\nX: ") is None
    for _ in range(TRAILER_BYTES_MAX // piece):
        assert reader.feed(b"a" * piece) is None
    with pytest.raises(BadHead) as refused:
        reader.feed(b"a" * TRAILER_BYTES_MAX)
    assert refused.value.kind is H


def test_long_chunks_and_short_trailers_are_accepted() -> None:
    size = 5 * TRAILER_BYTES_MAX
    wire = CHUNKED + b"%x\r\n" % size + b"a" * size + b"\r\n0\r\nX: " + b"b" * 9000 + b"\r\nY: c\r\n\r\n"
    for piece in (len(wire), 7, 4096):
        reader = ResponseReader(headers_bytes_max=HEADERS_BYTES_MAX)
        reader.begin(body_bytes_max=10**9)
        ends = [reader.feed(wire[at : at + piece]) for at in range(0, len(wire), piece)]
        assert ends[-1] == ""
        assert len(reader.body()) == size


def test_a_reader_that_is_closed_goes_without_a_search_for_garbage() -> None:
    class Watched(ResponseReader):
        pass

    gc.disable()
    try:
        reader = Watched(headers_bytes_max=HEADERS_BYTES_MAX)
        reader.begin(body_bytes_max=LIMIT)
        reader.feed(OK + LENGTH + b"\r\nhello")
        seen = weakref.ref(reader)
        reader.close()
        del reader
        assert seen() is None
    finally:
        gc.enable()
