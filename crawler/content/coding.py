"""Decodes content codings within a limit, as far as they can be, also of malformed and hostile bodies. Pure.

Memory is bounded by the limit for any input: every decoder is called with a maximum of output bytes. Hosts name codings
that are none ("none", "utf-8", "aws-chunked"), send what they name without it, add bytes behind it, or cut it. Like
browsers, we read what is there; `Decoded` says how far it can be trusted.
"""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from isal import isal_zlib

from crawler.lazy_module import LazyModule
from crawler.media_type import is_text
from crawler.model import Decoded

if TYPE_CHECKING:
    import brotli

    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
else:  # most pages are packed by gzip, or not at all
    brotli = LazyModule("brotli")
    zstd = LazyModule("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

_IsalError = cast("type[Exception]", isal_zlib.error)  # its stub calls it an instance

LAYERS_MAX = 2
LISTED_MAX = 8  # codings that may be named: some are not applied
RATIO_MAX = 100  # a body that inflates to more times its size is cut: it is a bomb
RATIO_FREE_BYTES = 1024 * 1024  # the ratio counts only beyond this: small pages of one repeated byte are legitimate
ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # RFC 9659: the window that a client must support

INCOMPLETE = "incomplete"  # the one error that an interrupted transfer explains
TAIL = "trailing garbage"
CHECKSUM = "a wrong checksum"
MEMBERS_MAX = 1000  # of a gzip body, and frames of zstd: tools that compress in blocks create some hundred
ZSTD_BLOCKS_MAX = 100_000  # read to find the end of a frame; servers that flush after each line create some thousand
_MEMBER_STEP_BYTES = 512
_PIECE_BYTES = 1024  # input step when a damaged body is decoded again to keep its first part
_WBITS_GZIP, _WBITS_ZLIB, _WBITS_RAW = 31, 15, -15
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_HEAD_BYTES, _GZIP_TRAILER_BYTES = 10, 8
_ZSTD_MAGIC, _ZSTD_SKIPPED_MAGIC = b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # before the latter, 0x50 to 0x5f
_ZSTD_CHECKSUM_BYTES, _ZSTD_HAS_CHECKSUM = 4, 4
ZSTD_WINDOW_LOG = ZSTD_WINDOW_BYTES_MAX.bit_length() - 1
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16  # flags of its header; higher ones are reserved


class Inflated(NamedTuple):
    """`truncated`: cut at the limit. `error`: what is wrong with the coding, or ''; `decoded`: what that means."""

    body: bytes
    truncated: bool
    error: str
    decoded: Decoded = Decoded.CLEAN

    def of_cut(self, truncated: str) -> "Inflated":
        """The same of a body whose transfer was cut, if `truncated`: that its coding is, too, is not an error."""
        if not truncated or self.error != INCOMPLETE:
            return self
        return self._replace(error="", decoded=Decoded.CLEAN)


class _Layer(NamedTuple):
    body: bytes
    error: str = ""
    decoded: Decoded = Decoded.CLEAN


class _ZlibObject(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = 0) -> bytes: ...


class _Stream(Protocol):
    """A decoder that was begun: decodes a piece, at most so many bytes of output, and tells when its end was met."""

    def feed(self, piece: bytes, room: int) -> bytes: ...
    @property
    def has_ended(self) -> bool: ...


_Decoder = Callable[[bytes, int], _Layer]


def inflate(raw: bytes, content_encoding: str, *, limit: int, ratio_max: int) -> Inflated:
    """Decode the codings that a Content-Encoding value names, last applied first.

    `limit` is in bytes of output. More than `ratio_max` times the input, beyond the first MiB, is a decompression bomb:
    an error, with the body cut there. Codings that nobody knows are passed over. The body is empty if a coding can't be
    undone at all, or if there are more than two.
    """
    named = [c for c in (part.partition(";")[0].strip(" \t\"'") for part in content_encoding.lower().split(",")) if c]
    codings = [c for c in named if c in _DECODERS]
    unknown = next((c for c in named if c not in _DECODERS and c != "identity"), "")
    if not raw or not (codings or unknown):
        return Inflated(raw[:limit], len(raw) > limit, "")
    ratio_cap = max(RATIO_FREE_BYTES, ratio_max * len(raw))
    body, error, decoded, layers = raw, "", Decoded.CLEAN, 0
    too_many = _Layer(b"", f"{len(codings)} layers of content coding", Decoded.NOTHING)
    if len(codings) > LISTED_MAX:
        return Inflated(b"", truncated=False, error=too_many.error, decoded=too_many.decoded)
    if unknown:
        error, decoded = f"unknown coding {unknown[:40]!r}", Decoded.UNSURE
    for coding in reversed(codings):
        layer = _DECODERS[coding](body, min(limit, ratio_cap) + 1)
        if layer.decoded is Decoded.NOTHING and unknown:
            continue  # as browsers do: where one is unknown, the body is what came
        layers += layer.body is not body
        if layers > LAYERS_MAX:
            layer = too_many
        body, error, decoded = layer.body, error or layer.error, max(decoded, layer.decoded)
        if layer.decoded is Decoded.NOTHING:
            return Inflated(b"", truncated=False, error=layer.error, decoded=decoded)
    if len(body) > ratio_cap:
        error = f"inflates to more than {ratio_max} times its size"
        return Inflated(body[:ratio_cap], truncated=False, error=error, decoded=Decoded.PART)
    if len(body) > limit:
        # What follows the limit was not read, so it can't be wrong.
        if decoded in (Decoded.WHOLE, Decoded.PART):
            error, decoded = "", Decoded.CLEAN
        return Inflated(body[:limit], truncated=True, error=error, decoded=decoded)
    return Inflated(body, truncated=False, error=error, decoded=decoded)


# --- gzip ---


def _gzip(data: bytes, output_max: int) -> _Layer:
    """RFC 1952, with several members; the common case is one call. Without its magic number it is not gzip.

    A decoder returns unused input as a copy. So members after the first get their input in growing pieces: then the
    copies take no longer than the bytes that were used.
    """
    if not _may_be_member(data, 0):
        return _Layer(data, "not gzip, as it was said to be", Decoded.UNCODED)
    out: list[bytes] = []
    room = output_max
    at, step, error = 0, len(data), ""
    for _ in range(MEMBERS_MAX):
        start = at
        try:
            parts, at, is_whole = _member(data, at, step, room)
        except _IsalError as failure:
            part, end = _damaged_member(data, start, room)
            out.append(part)
            room -= len(part)
            if end < 0:
                return _cut(out, _reason(failure))
            at, is_whole, error = end, True, CHECKSUM
        else:
            out += parts
            room -= sum(map(len, parts))
        if room <= 0:
            break
        if not is_whole:
            return _cut(out, INCOMPLETE)
        if at >= len(data):
            break
        if not _may_be_member(data, at):  # garbage, which every reader ignores
            return _Layer(b"".join(out), error or TAIL, Decoded.WHOLE)
        step = _MEMBER_STEP_BYTES
    else:
        return _cut(out, f"more than {MEMBERS_MAX} gzip members")
    body = out[0] if len(out) == 1 else b"".join(out)
    return _Layer(body, error, Decoded.WHOLE if error else Decoded.CLEAN)


def _may_be_member(data: bytes, at: int) -> bool:
    return data.startswith(_GZIP_MAGIC, at) or data[at : at + 2] == _GZIP_MAGIC[:1]


def _member(data: bytes, at: int, step: int, room: int) -> tuple[list[bytes], int, bool]:
    """Content of the member at `at`, the position after it, and whether it is complete. Reads in growing steps."""
    decoder: _ZlibObject = isal_zlib.decompressobj(_WBITS_GZIP)
    parts: list[bytes] = []
    while at < len(data) and room > 0:
        piece = data if step >= len(data) and at == 0 else data[at : at + step]
        parts.append(decoder.decompress(piece, room))
        room -= len(parts[-1])
        at += len(piece)
        if decoder.eof:
            return parts, at - len(decoder.unused_data), True
        step *= 2
    return parts, at, False


def _damaged_member(data: bytes, at: int, room: int) -> tuple[bytes, int]:
    """What can be had of a member that raised an error, and where it ends if only its checksum or size is wrong; -1:
    it is damaged.
    """
    content = _gzip_content(data, at)
    if content < 0:
        return b"", -1
    part, used, _ = _salvaged(_Zlib, data[content:], room)
    end = content + used + _GZIP_TRAILER_BYTES
    return part, end if used >= 0 and end <= len(data) else -1


def _gzip_content(data: bytes, at: int) -> int:
    """Where the content of the member at `at` begins, behind its header (RFC 1952 2.3); -1: that is not whole."""
    head = data[at : at + _GZIP_HEAD_BYTES]
    if len(head) < _GZIP_HEAD_BYTES or not head.startswith(_GZIP_MAGIC + b"\x08") or head[3] >= 2 * _FCOMMENT:
        return -1
    flags, at = head[3], at + _GZIP_HEAD_BYTES
    if flags & _FEXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for text in (_FNAME, _FCOMMENT):
        if flags & text:
            nul = data.find(b"\0", at)
            if nul < 0:
                return -1
            at = nul + 1
    at += 2 if flags & _FHCRC else 0
    return at if at <= len(data) else -1


# --- deflate, brotli, zstd ---


def _deflate(data: bytes, output_max: int) -> _Layer:
    """Zlib (RFC 1950), as in the standard, else raw deflate (RFC 1951), which some servers send."""
    as_zlib = _zlib(data, _WBITS_ZLIB, output_max)
    if as_zlib.body or not as_zlib.error:
        return as_zlib
    as_raw = _zlib(data, _WBITS_RAW, output_max)
    return as_raw if as_raw.body or not as_raw.error else as_zlib


def _zlib(data: bytes, wbits: int, output_max: int) -> _Layer:
    decoder: _ZlibObject = isal_zlib.decompressobj(wbits)
    try:
        body = decoder.decompress(data, output_max)
    except _IsalError as failure:
        return _zlib_damaged(data, wbits, output_max, _reason(failure))
    if not decoder.eof and len(body) < output_max:
        return _unmarked(data, _cut([body], INCOMPLETE))
    if not decoder.eof or not decoder.unused_data:
        return _Layer(body)
    return _tail(data, body) if wbits == _WBITS_RAW else _Layer(body, TAIL, Decoded.WHOLE)


def _zlib_damaged(data: bytes, wbits: int, output_max: int, reason: str) -> _Layer:
    if wbits == _WBITS_RAW:
        return _unmarked(data, _cut([_salvaged(_Zlib, data, output_max)[0]], reason))
    # Its content is raw deflate behind two bytes: so a wrong checksum costs nothing.
    part, used, _ = _salvaged(_Zlib, data[2:], output_max) if _is_zlib(data) else (b"", -1, "")
    return _unmarked(data, _cut([part], reason) if used < 0 else _Layer(part, CHECKSUM, Decoded.WHOLE))


def _is_zlib(data: bytes) -> bool:
    """RFC 1950 2.2: method 8, a window that exists, no dictionary, and a header that is a multiple of 31."""
    head = data[:2]
    return (
        len(head) == 2
        and head[0] & 15 == 8
        and head[0] >> 4 <= 7
        and not head[1] & 32
        and (head[0] << 8 | head[1]) % 31 == 0
    )


def _brotli(data: bytes, output_max: int) -> _Layer:
    """RFC 7932; the window is at most 16 MiB by format."""
    decoder = brotli.Decompressor()
    try:
        body: bytes = decoder.process(data, output_buffer_limit=output_max)
    except brotli.error:
        part, used, reason = _salvaged(_Brotli, data, output_max)
        return _tail(data, part) if used >= 0 else _unmarked(data, _cut([part], reason))
    if len(body) < output_max and not decoder.is_finished():
        return _unmarked(data, _cut([body], INCOMPLETE))
    return _Layer(body)


def _zstd(data: bytes, output_max: int) -> _Layer:
    """RFC 8878; a frame that needs a window beyond 8 MiB is refused."""
    body, reason = _zstd_read(data, output_max, RATIO_FREE_BYTES)
    ends = [*_zstd_frames(data)] if reason or len(body) < output_max else [len(data)]
    end = ends[-1] if ends else 0
    if not reason:
        many = f"more than {MEMBERS_MAX} zstd frames" if len(ends) == MEMBERS_MAX else ""
        return _Layer(body) if end == len(data) else _cut([body], many or INCOMPLETE)
    if 0 < end < len(data) and not data.startswith(_ZSTD_MAGIC, end):
        return _Layer(_zstd_read(data[:end], output_max, RATIO_FREE_BYTES)[0], TAIL, Decoded.WHOLE)
    if end == len(data) and data[4] & _ZSTD_HAS_CHECKSUM:
        unchecked = data[:4] + bytes([data[4] & ~_ZSTD_HAS_CHECKSUM]) + data[5:-_ZSTD_CHECKSUM_BYTES]
        whole, failure = _zstd_read(unchecked, output_max, RATIO_FREE_BYTES)
        if not failure:
            return _Layer(whole, CHECKSUM, Decoded.WHOLE)
    return _cut([_zstd_read(data, output_max, _PIECE_BYTES)[0]], reason)


def _zstd_read(data: bytes, output_max: int, step: int) -> tuple[bytes, str]:
    """The content, and the error if there is one, which costs at most the last `step` bytes before it."""
    out: list[bytes] = []
    begin, room = 0, output_max
    try:
        for end in (*_zstd_frames(data), len(data)):
            frame, begin = memoryview(data)[begin:end], end
            decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
            while room > 0 and not decoder.eof and (frame or not decoder.needs_input):
                part = decoder.decompress(frame, min(room, step))
                frame = frame[:0]
                out.append(part)
                room -= len(part)
    except zstd.ZstdError as failure:
        return b"".join(out), _reason(failure)
    return out[0] if len(out) == 1 else b"".join(out), ""


def _zstd_frames(data: bytes) -> Iterator[int]:
    """Where each whole frame at the beginning of `data` ends, of MEMBERS_MAX.

    RFC 8878 3.1.1: header, blocks (3 bytes: last flag, 2 bits of type, 21 bits of size), checksum if flagged. 3.1.2:
    frames that are skipped have their length behind their magic number.
    """
    at = blocks = 0
    for _ in range(MEMBERS_MAX):
        if data[at + 1 : at + 4] == _ZSTD_SKIPPED_MAGIC and data[at] >> 4 == 5:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        elif data.startswith(_ZSTD_MAGIC, at):
            flags = data[at + 4] if at + 4 < len(data) else 0
            at += 5 + _zstd_fields_bytes(flags)
            is_last = False
            while not is_last and blocks < ZSTD_BLOCKS_MAX:
                if at + 3 > len(data):
                    return
                header = int.from_bytes(data[at : at + 3], "little")
                is_last, is_run_length = bool(header & 1), (header >> 1) & 3 == 1
                at += 3 + (1 if is_run_length else header >> 3)
                blocks += 1
            if not is_last:
                return
            at += _ZSTD_CHECKSUM_BYTES if flags & _ZSTD_HAS_CHECKSUM else 0
        else:
            return
        if at > len(data):
            return
        yield at


def _zstd_fields_bytes(flags: int) -> int:
    """The bytes of the header's fields behind its flags (RFC 8878 3.1.1.1): window, dictionary, size of the content."""
    is_single, size_flag, dictionary_flag = bool(flags & 32), flags >> 6, flags & 3
    size_bytes = 1 << size_flag if size_flag else int(is_single)
    return (not is_single) + (0, 1, 2, 4)[dictionary_flag] + size_bytes


# --- damaged streams ---


class _Zlib:
    def __init__(self) -> None:
        self._decoder: _ZlibObject = isal_zlib.decompressobj(_WBITS_RAW)

    def feed(self, piece: bytes, room: int) -> bytes:
        return self._decoder.decompress(piece, room)

    @property
    def has_ended(self) -> bool:
        return self._decoder.eof


class _Brotli:
    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    def feed(self, piece: bytes, room: int) -> bytes:
        part: bytes = self._decoder.process(piece, output_buffer_limit=room)
        return part

    @property
    def has_ended(self) -> bool:
        return bool(self._decoder.is_finished())


def _salvaged(begin: Callable[[], _Stream], data: bytes, output_max: int) -> tuple[bytes, int, str]:
    """A damaged stream decoded again: what comes before the error, the position after its end (-1: it has none), and
    the error.

    In small steps; the one with the error, or with the end, byte by byte, for an error costs the step it is in.
    """
    stream, step, at, room, out = begin(), _PIECE_BYTES, 0, output_max, list[bytes]()
    while at < len(data) and room > 0:
        piece, reason = data[at : at + step], ""
        try:
            part = stream.feed(piece, room)
        except (_IsalError, brotli.error) as failure:
            part, reason = b"", _reason(failure)
        if step > 1 and (reason or stream.has_ended):
            stream, step = begin(), 1
            out = [stream.feed(data[:at], output_max)] if at else []
            room = output_max - sum(map(len, out))
            continue
        out.append(part)
        if reason:
            return b"".join(out), -1, reason
        room -= len(part)
        at += len(piece)
        if stream.has_ended:
            return b"".join(out), at, ""
    return b"".join(out), -1, INCOMPLETE if room > 0 else ""


def _cut(parts: list[bytes], reason: str) -> _Layer:
    body = b"".join(parts)
    return _Layer(body, reason, Decoded.PART if body else Decoded.NOTHING)


def _unmarked(data: bytes, layer: _Layer) -> _Layer:
    """The same, of a coding without a magic number: some bytes of any text decode as one. Then they are not used."""
    return _Layer(b"", layer.error, Decoded.NOTHING) if is_text(data) else layer


def _tail(data: bytes, body: bytes) -> _Layer:
    """A stream that has an end, but neither a magic number nor a checksum, and bytes behind it."""
    return _unmarked(data, _Layer(body, TAIL, Decoded.UNSURE))


def _reason(error: Exception) -> str:
    """An error of a library as one short line."""
    return " ".join(str(error).split())[:100] or type(error).__name__


_DECODERS: dict[str, _Decoder] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
