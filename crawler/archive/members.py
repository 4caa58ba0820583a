"""Finds the whole gzip members of a WARC file: how much of a torn file can be trusted. Must not know
records.
"""

from collections.abc import Iterator

from isal import isal_zlib

_GZIP = 31
_MAGIC = b"\x1f\x8b\x08"
_CHUNK_BYTES = 64 * 1024

Buffer = bytes | memoryview


def member_end(data: memoryview, start: int) -> int | None:
    """End of the member that begins at `start`; None when it is torn or damaged (its CRC is checked)."""
    inflater = isal_zlib.decompressobj(wbits=_GZIP)
    position = start
    while position < len(data):
        chunk = data[position : position + _CHUNK_BYTES]
        try:
            inflater.decompress(chunk)
        except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
            return None
        position += len(chunk)
        if inflater.eof:
            return position - len(inflater.unused_data)
    return None


def members(data: memoryview) -> Iterator[tuple[int, int]]:
    """(start, end) of the whole members from the beginning up to the first that is not."""
    start = 0
    while start < len(data):
        end = member_end(data, start)
        if end is None:
            return
        yield start, end
        start = end


def whole_member_after(data: memoryview, start: int, window_bytes: int = 1 << 20) -> bool:
    """Whether a whole member lies somewhere after `start`: the damage is no torn tail then, but in the middle."""
    position = start
    while position < len(data):
        window = bytes(data[position : position + window_bytes])
        found = window.find(_MAGIC)
        while found >= 0:
            if member_end(data, position + found) is not None:
                return True
            found = window.find(_MAGIC, found + 1)
        position += max(len(window) - len(_MAGIC) + 1, 1)
    return False
