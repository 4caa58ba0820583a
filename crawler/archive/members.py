"""Finds the whole gzip members of a WARC file: how much of a torn file can be trusted. Must not know
records.
"""

from collections.abc import Iterator

from isal import isal_zlib

_GZIP = 31
_MAGIC = b"\x1f\x8b\x08"
_CHUNK_BYTES = 64 * 1024
WORK_FACTOR, WORK_BYTES_MIN = 16, 64 * 1024 * 1024  # of what may be looked at for whole members after damage

Buffer = bytes | memoryview


def member_end(data: memoryview, start: int) -> int | None:
    """End of the member that begins at `start`; None when it is torn or damaged (its CRC is checked)."""
    return _read(data, start)[0]


def _read(data: memoryview, start: int) -> tuple[int | None, int]:
    """As `member_end`, and how many bytes were looked at."""
    inflater = isal_zlib.decompressobj(wbits=_GZIP)
    position = start
    while position < len(data):
        chunk = data[position : position + _CHUNK_BYTES]
        try:
            inflater.decompress(chunk)
        except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
            return None, position + len(chunk) - start
        position += len(chunk)
        if inflater.eof:
            return position - len(inflater.unused_data), position - start
    return None, position - start


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
    """Whether a whole member lies somewhere after `start`: the damage is no torn tail then, but in the middle.

    A body may be full of what looks like the beginning of a member. When too much was looked at, the answer is yes, by
    which nothing is cut off.
    """
    position, room = start, WORK_FACTOR * len(data) + WORK_BYTES_MIN
    while position < len(data):
        window = bytes(data[position : position + window_bytes])
        found = window.find(_MAGIC)
        while found >= 0:
            end, looked_at = _read(data, position + found)
            room -= looked_at
            if end is not None or room < 0:
                return True
            found = window.find(_MAGIC, found + 1)
        position += max(len(window) - len(_MAGIC) + 1, 1)
    return False
