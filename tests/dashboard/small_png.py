"""Makes screenshots small enough for the docs: 256 colours instead of 16 million, which no reader sees."""

import struct
import zlib
from collections import Counter

COLOURS = 256
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def smaller(png: bytes) -> bytes:
    """The same picture with a palette. Raises AssertionError for one that is not as browsers write them."""
    chunks = list(_chunks(png))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, interlaced) == (8, 0)
    channels = {2: 3, 6: 4}[kind]
    raw = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
    rows = list(_rows(raw, width * channels, channels))
    pixels = [[row[n : n + 3] for n in range(0, len(row), channels)] for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    palette = [pixel for pixel, _ in counts.most_common(COLOURS)]
    place = {pixel: n for n, pixel in enumerate(palette)}
    for pixel in counts:
        if pixel not in place:
            place[pixel] = _nearest(palette, pixel)
    lines = b"".join(b"\0" + bytes(place[pixel] for pixel in row) for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _nearest(palette: list[bytes], pixel: bytes) -> int:
    return min(range(len(palette)), key=lambda n: sum((a - b) ** 2 for a, b in zip(palette[n], pixel, strict=True)))


def _chunks(png: bytes) -> "list[tuple[bytes, bytes]]":
    found, at = [], len(_SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _rows(raw: bytes, size: int, step: int) -> "list[bytes]":
    """Undo the filters of the lines."""
    rows, before = [], bytes(size)
    for begin in range(0, len(raw), size + 1):
        kind, line = raw[begin], bytearray(raw[begin + 1 : begin + 1 + size])
        for n in range(size) if kind else ():
            left, up = line[n - step] if n >= step else 0, before[n]
            corner = before[n - step] if n >= step else 0
            line[n] = (line[n] + (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]) & 255
        before = bytes(line)
        rows.append(before)
    return rows


def _paeth(left: int, up: int, corner: int) -> int:
    return min((left, up, corner), key=lambda value: abs(left + up - corner - value))
