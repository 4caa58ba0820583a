"""Decodes content codings within a limit, also of malformed and hostile bodies. Pure.

Memory is bounded by the limit for any input: every decoder is called with a maximum of output bytes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, cast

import brotli
import zstandard
from isal import isal_zlib

_IsalError = cast("type[Exception]", isal_zlib.error)  # its stub calls it an instance

LAYERS_MAX = 2
RATIO_FREE_BYTES = 1024 * 1024  # the ratio counts only beyond this: small pages of one repeated byte are legitimate
ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # RFC 9659: the window that a client must support

INCOMPLETE = "incomplete"  # the one error that an interrupted transfer explains
MEMBERS_MAX = 1000  # of one gzip body: tools that compress in blocks create some hundred
ZSTD_BLOCKS_MAX = 100_000  # read to find the end of a frame; servers that flush after each line create some thousand
_MEMBER_STEP_BYTES = 512
_PIECE_BYTES = 1024  # input step when a damaged body is decoded again to keep its first part
_TRAILER_BYTES = 8  # of gzip: a wrong checksum must not cost the last piece
_WBITS_GZIP, _WBITS_ZLIB, _WBITS_RAW = 31, 15, -15


class Inflated(NamedTuple):
    """`truncated`: cut at the limit. `error`: why the coding is invalid, or ''; `body` is then the part before that."""

    body: bytes
    truncated: bool
    error: str


class _Layer(NamedTuple):
    body: bytes
    error: str


class _ZlibObject(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = 0) -> bytes: ...


_Decoder = Callable[[bytes, int], _Layer]


def inflate(raw: bytes, content_encoding: str, *, limit: int, ratio_max: int) -> Inflated:
    """Decode the codings that a Content-Encoding value names, last applied first.

    `limit` is in bytes of output. More than `ratio_max` times the input, beyond the first MiB, is a decompression bomb:
    an error, with the body cut there. The body is empty for an unknown coding or more than two layers.
    """
    codings = [c for c in (part.strip() for part in content_encoding.lower().split(",")) if c and c != "identity"]
    if not codings or not raw:
        return Inflated(raw[:limit], len(raw) > limit, "")
    if len(codings) > LAYERS_MAX:
        return Inflated(b"", truncated=False, error=f"{len(codings)} layers of content coding")
    ratio_cap = max(RATIO_FREE_BYTES, ratio_max * len(raw))
    body, error = raw, ""
    for coding in reversed(codings):
        decoder = _DECODERS.get(coding)
        if decoder is None:
            return Inflated(b"", truncated=False, error=f"unknown coding {coding[:40]!r}")
        body, layer_error = decoder(body, min(limit, ratio_cap) + 1)
        error = error or layer_error
    if len(body) > ratio_cap:
        return Inflated(body[:ratio_cap], truncated=False, error=f"inflates to more than {ratio_max} times its size")
    if len(body) > limit:
        return Inflated(body[:limit], truncated=True, error="")
    return Inflated(body, truncated=False, error=error)


def _gzip(data: bytes, output_max: int) -> _Layer:
    """RFC 1952, with several members; the common case is one call.

    A decoder returns unused input as a copy. So members after the first get their input in growing pieces: then the
    copies take no longer than the bytes that were used.
    """
    out: list[bytes] = []
    room = output_max
    at, step = 0, len(data)
    for _ in range(MEMBERS_MAX):
        try:
            parts, at, is_whole = _member(data, at, step, room)
        except _IsalError:
            part, error = _salvage_zlib(data[at:], _WBITS_GZIP, room)
            # Bytes after a member that are not a member are garbage, which every reader ignores.
            return _Layer(b"".join([*out, part]), "trailing garbage" if out and not part else error)
        out += parts
        room -= sum(map(len, parts))
        if room <= 0:
            break
        if not is_whole:
            return _Layer(b"".join(out), "trailing garbage" if len(out) > 1 and not any(parts) else INCOMPLETE)
        if at >= len(data):
            break
        step = _MEMBER_STEP_BYTES
    else:
        return _Layer(b"".join(out), f"more than {MEMBERS_MAX} gzip members")
    return _Layer(out[0] if len(out) == 1 else b"".join(out), "")


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
    except _IsalError:
        return _salvage_zlib(data, wbits, output_max)
    if not decoder.eof and len(body) < output_max:
        return _Layer(body, INCOMPLETE)
    return _Layer(body, "trailing garbage" if decoder.eof and decoder.unused_data else "")


def _salvage_zlib(data: bytes, wbits: int, output_max: int) -> _Layer:
    """Decode a damaged stream again in small steps: an error then costs the last step, not everything."""
    decoder: _ZlibObject = isal_zlib.decompressobj(wbits)
    out: list[bytes] = []
    room = output_max
    for piece in _pieces(data):
        try:
            part = decoder.decompress(piece, room)
        except _IsalError as error:
            return _Layer(b"".join(out), _reason(error))
        out.append(part)
        room -= len(part)
        if room <= 0 or decoder.eof:
            break
    return _Layer(b"".join(out), "trailing garbage" if room > 0 else "")


def _brotli(data: bytes, output_max: int) -> _Layer:
    """RFC 7932; the window is at most 16 MiB by format."""
    decoder = brotli.Decompressor()
    try:
        body: bytes = decoder.process(data, output_buffer_limit=output_max)
    except brotli.error:
        return _salvage_brotli(data, output_max)
    if len(body) < output_max and not decoder.is_finished():
        return _Layer(body, INCOMPLETE)
    return _Layer(body, "")


def _salvage_brotli(data: bytes, output_max: int) -> _Layer:
    decoder = brotli.Decompressor()
    out: list[bytes] = []
    room = output_max
    for piece in _pieces(data):
        if decoder.is_finished():
            return _Layer(b"".join(out), "trailing garbage")
        try:
            part = decoder.process(piece, output_buffer_limit=room)
        except brotli.error as error:
            return _Layer(b"".join(out), _reason(error))
        out.append(part)
        room -= len(part)
        if room <= 0:
            break
    return _Layer(b"".join(out), "")


def _zstd(data: bytes, output_max: int) -> _Layer:
    """RFC 8878; a frame that needs a window beyond 8 MiB is refused."""
    out: list[bytes] = []
    room = output_max
    error = ""
    try:
        decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        with decoder.stream_reader(data, read_across_frames=True) as reader:
            while room > 0 and (part := reader.read(min(room, RATIO_FREE_BYTES))):
                out.append(part)
                room -= len(part)
    except zstandard.ZstdError as failure:
        error = _reason(failure)
    if not error and room > 0 and not _is_whole_zstd(data):
        error = INCOMPLETE
    return _Layer(out[0] if len(out) == 1 else b"".join(out), error)


def _is_whole_zstd(data: bytes) -> bool:
    """Whether the first frame ends within `data`: the stream reader does not report a missing end.

    RFC 8878 3.1.1: header, blocks (3 bytes: last flag, 2 bits of type, 21 bits of size), checksum if flagged.
    """
    try:
        at = zstandard.frame_header_size(data)
        checksum_bytes = 4 if zstandard.get_frame_parameters(data).has_checksum else 0
    except zstandard.ZstdError:
        return False
    for _ in range(ZSTD_BLOCKS_MAX):
        if at + 3 > len(data):
            return False
        header = int.from_bytes(data[at : at + 3], "little")
        is_run_length = (header >> 1) & 3 == 1
        at += 3 + (1 if is_run_length else header >> 3)
        if header & 1:
            return at + checksum_bytes <= len(data)
    return False


def _pieces(data: bytes) -> Iterator[bytes]:
    body_end = max(0, len(data) - _TRAILER_BYTES)
    for start in range(0, body_end, _PIECE_BYTES):
        yield data[start : min(start + _PIECE_BYTES, body_end)]
    yield data[body_end:]


def _reason(error: Exception) -> str:
    """An error of a library as one short line."""
    return " ".join(str(error).split())[:100] or type(error).__name__


_DECODERS: dict[str, _Decoder] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": cast("_Decoder", _brotli),
    "zstd": _zstd,
}
