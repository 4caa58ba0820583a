"""Undoes gzip and zstd of a file that comes in blocks, by what it begins with and whatever its name. Pure.

Memory is bounded for any input: what a block inflates to is passed on in pieces.
"""

import sys
import zlib
from collections.abc import Iterator
from typing import Protocol

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PIECE_BYTES = 1 << 18  # of output at a time
_STEP_BYTES = 1 << 14  # of input: decoders copy what they did not use, again for each member


class PackedError(Exception):
    """What is packed is damaged, or was cut off."""


class _Decoder(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def is_complete(self) -> bool: ...
    def inflate(self, data: bytes) -> Iterator[bytes]: ...


class Unpacker:
    """The bytes of a file: `take` its blocks, then its `end`. Both raise PackedError."""

    def __init__(self) -> None:
        self._head = b""
        self._is_begun = False
        self._decoder: _Decoder | None = None

    def take(self, block: bytes) -> Iterator[bytes]:
        """What a block has."""
        if not self._is_begun:
            block = self._head + block
            if len(block) < len(ZSTD):
                self._head = block
                return
            self._begin(block)
        yield from self._unpacked(block)

    def end(self) -> Iterator[bytes]:
        """What is left: the file is complete."""
        if not self._is_begun:
            self._begin(self._head)
            yield from self._unpacked(self._head)
        if self._decoder is not None and not self._decoder.is_complete:
            raise PackedError(f"its {self._decoder.name} data is cut off")

    def _begin(self, head: bytes) -> None:
        self._is_begun = True
        if head.startswith(GZIP):
            self._decoder = _Gzip()
        elif head.startswith(ZSTD):
            self._decoder = _Zstd()

    def _unpacked(self, block: bytes) -> Iterator[bytes]:
        if self._decoder is None:
            yield from [block] if block else []
            return
        for at in range(0, len(block), _STEP_BYTES):
            yield from self._decoder.inflate(block[at : at + _STEP_BYTES])


class _Gzip:
    """RFC 1952: any number of members, maybe with zeros behind the last one."""

    name = "gzip"

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._is_between = False  # a member is complete, and the next one has not begun

    @property
    def is_complete(self) -> bool:
        return self._is_between

    def inflate(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._is_between:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._member, self._is_between = zlib.decompressobj(31), False
            try:
                piece = self._member.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise PackedError("its gzip data is damaged") from None
            if piece:
                yield piece
            self._is_between = self._member.eof
            data = self._member.unused_data if self._is_between else self._member.unconsumed_tail


class _Zstd:
    """RFC 8878: any number of frames."""

    name = "zstd"

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        self._zstd = zstd
        self._frame = zstd.ZstdDecompressor()
        self.is_complete = False

    def inflate(self, data: bytes) -> Iterator[bytes]:
        while data or not (self.is_complete or self._frame.needs_input):
            if self.is_complete:
                self._frame, self.is_complete = self._zstd.ZstdDecompressor(), False
            try:
                piece = self._frame.decompress(data, PIECE_BYTES)
            except self._zstd.ZstdError:
                raise PackedError("its zstd data is damaged") from None
            if piece:
                yield piece
            self.is_complete = self._frame.eof
            data = self._frame.unused_data if self.is_complete else b""
