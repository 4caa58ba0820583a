"""Lines of JSON that prove themselves: the last field of each is `crc`, the CRC-32 of all bytes before it.

    {"url":"http://a.test/","number":1,"crc":"5c3d9a01"}

Programs that do not know the field ignore it. A line whose checksum is wrong is damaged, and so is one that lost its
checksum: a flipped bit in the name of the field makes an unknown field of it. A right checksum over an unknown field
is the work of a newer release. Lines of earlier releases have no checksum; in a journal they stand before all that
have one.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from crawler.errors import ConflictError

Record = TypeVar("Record", bound=msgspec.Struct)

_NAME = b'"crc":"'
_LENGTH = len(_NAME) + 8 + 2  # with the digits, and the end of the object
SHOWN = 60  # bytes of a damaged line


class DamagedLine(NamedTuple):
    """A line that can't be used: its number, counted from 1, where it begins (bytes), and its bytes."""

    number: int
    offset: int
    data: bytes

    def __str__(self) -> str:
        shown = self.data[:SHOWN].decode("ascii", "backslashreplace").rstrip("\n")
        return f"line {self.number} at byte {self.offset} is damaged: {shown}{'...' * (len(self.data) > SHOWN)}"


def with_checksum(line: bytes) -> bytes:
    """A line that ends with a JSON object, without a line feed, with its checksum."""
    before = line[:-1] if line.endswith(b"{}") else line[:-1] + b","
    return b'%b%b%08x"}' % (before, _NAME, crc32(before))


def has_checksum(line: bytes) -> bool:
    """Does a line (without its line feed) end with a checksum, right or not?"""
    return line.startswith(_NAME, -_LENGTH) and line.endswith(b'"}')


def is_right(line: bytes) -> bool | None:
    """Is the checksum of a line (without its line feed) right? None: it has none."""
    return line[-10:-2] == b"%08x" % crc32(line[:-_LENGTH]) if has_checksum(line) else None


def without_checksum(line: bytes) -> bytes:
    """A line (without its line feed) that has a checksum, as it was before."""
    return line[:-_LENGTH].removesuffix(b",") + b"}"


def whole_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file up to the first one without its end: what its writer adds meanwhile, behind which a file
    goes on, is the rest of that one.
    """
    for line in lines:
        if not line.endswith(b"\n"):
            return
        yield line


class _Number(msgspec.Struct):
    number: int


def number_line(number: int) -> bytes:
    """The only line of a small file that has one number."""
    return with_checksum(b'{"number":%d}' % number) + b"\n"


def number_in(path: Path) -> int | None:
    """The number in such a file; None if there is none, or it is damaged. Raises OSError."""
    try:
        line = path.read_bytes().removesuffix(b"\n")
        return msgspec.json.decode(line, type=_Number).number if is_right(line) else None
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class LineReader(Generic[Record]):
    """Reads the lines of one file in order. `record`: a struct that forbids unknown fields. `damaged`: so far."""

    def __init__(self, name: str, record: type[Record]) -> None:
        self._name = name
        self._decode: Callable[[bytes], Record] = msgspec.json.Decoder(record).decode
        self._are_checked = False  # a line with a checksum came before
        self.damaged: list[DamagedLine] = []

    def records(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """The records of whole lines; an incomplete last one is left out: its writer was cut off. Raises ConflictError
        for a line of a newer release.
        """
        offset = 0
        for number, line in enumerate(whole_lines(lines), 1):
            record = self._record(line[:-1])
            if record is None:
                self.damaged.append(DamagedLine(number, offset, line))
            else:
                yield record
            offset += len(line)

    def _record(self, line: bytes) -> Record | None:
        proof = is_right(line)
        if proof is False or (proof is None and self._are_checked):
            return None
        self._are_checked = self._are_checked or proof is not None
        try:
            return self._decode(without_checksum(line) if proof else line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            if proof:
                raise ConflictError(f"{self._name} was written by a newer release of the program ({error})") from None
            return None
