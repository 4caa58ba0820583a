"""A line with a checksum is what was written, or it is damaged; one without is of an earlier release."""

import random

import msgspec
import pytest

from crawler.archive.checked_lines import LineReader, is_right, with_checksum, without_checksum
from crawler.errors import ConflictError


class Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    url: str = ""
    number: int = 0


LINES = [Line(), Line("http://a.test/ü"), *(Line(f'http://a.test/{n}?x="crc":', n) for n in range(3))]


def stored(line: Line) -> bytes:
    return with_checksum(msgspec.json.encode(line)) + b"\n"


def read(data: bytes) -> tuple[list[Line], list[int]]:
    """The records, and the offsets of damaged lines."""
    reader = LineReader("file", Line)
    return list(reader.records(data.splitlines(keepends=True))), [one.offset for one in reader.damaged]


def test_what_was_written_is_read_and_is_json_for_others() -> None:
    data = b"".join(map(stored, LINES))
    assert read(data) == (LINES, [])
    for line in data.splitlines():
        assert is_right(line) is True
        assert {*msgspec.json.decode(line)} - {"url", "number"} == {"crc"}
        assert msgspec.json.decode(without_checksum(line), type=Line) in LINES


@pytest.mark.parametrize("at", range(len(stored(LINES[3]))))
def test_a_flipped_bit_costs_its_line_and_no_other(at: int) -> None:
    before, hit, after = map(stored, (LINES[1], LINES[3], LINES[4]))
    for bit in range(8):
        broken = hit[:at] + bytes([hit[at] ^ 1 << bit]) + hit[at + 1 :]
        found, damaged = read(before + broken + after)
        if at == len(hit) - 1:  # its line feed: it is one with the next line
            assert (found, damaged) == ([LINES[1]], [len(before)])
        else:
            assert found == [LINES[1], LINES[4]]
            assert damaged[0] == len(before)


@pytest.mark.parametrize("seed", range(200))
def test_lines_that_are_cut_spliced_or_overwritten_are_damaged(seed: int) -> None:
    chance = random.Random(seed)
    data = b"".join(map(stored, LINES * 3))
    start, end = sorted(chance.choices(range(len(data)), k=2))
    more = chance.choice([b"", b"\0" * (end - start), chance.randbytes(3), data[: end - start]])
    found, damaged = read(data[:start] + more + data[end:])
    assert all(line in LINES for line in found)
    if more == b"\0" * (end - start) and more:
        assert damaged


def test_lines_of_earlier_releases_have_none_and_stand_before_all_that_do() -> None:
    old, new = msgspec.json.encode(LINES[2]) + b"\n", stored(LINES[3])
    assert read(old + old + new) == ([LINES[2], LINES[2], LINES[3]], [])
    assert read(old + new + old) == ([LINES[2], LINES[3]], [len(old + new)])
    assert read(b'{"url":"x","numbes":1}\n') == ([], [0])


def test_a_right_line_with_an_unknown_field_is_of_a_newer_release() -> None:
    with pytest.raises(ConflictError, match=r"^file was written by a newer release .*`later`"):
        read(with_checksum(b'{"url":"x","later":1}') + b"\n")


def test_the_torn_end_is_left_out_and_a_damaged_line_is_named() -> None:
    data = stored(LINES[1])
    assert read(data + data[:-1]) == ([LINES[1]], [])
    reader = LineReader("file", Line)
    assert list(reader.records([data, b"x" * 100 + b"\n"])) == [LINES[1]]
    assert str(reader.damaged[0]) == f"line 2 at byte {len(data)} is damaged: {'x' * 60}..."
