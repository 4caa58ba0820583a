"""cookies.txt: a table of lines with what is read of them, and whether curl 7.88 and wget 1.21 sent them when asked.

A line is the bytes of the file, a character for each. What both leave out is left out here, but for two forms that are
clear, and what would not arrive as it is in the file. `cookie` has what differs from a plain one of the host.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules.cookie_file import read_netscape
from crawler.rules.cookies import Cookie

PLAIN = {"name": "a", "value": "1", "host": "shop.test"}
GOOD = b"shop.test\tFALSE\t/\tFALSE\t0\tgood\t1"
Row = dict[str, Any]
ROWS: list[Row] = [json.loads(line) for line in Path(__file__).with_name("cookie_lines.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row["note"] for row in ROWS])
def test_a_line_is_a_cookie_or_left_out_alone(row: Row) -> None:
    data = GOOD + b"\n" + row["line"].encode("latin-1") + b"\n" + GOOD.replace(b"good", b"last") + b"\n"
    found = read_netscape(data, "c.txt")
    first, *middle, last = found.cookies
    assert (first.name, last.name) == ("good", "last")
    if "why" in row:
        assert (middle, found.left_out, found.first) == ([], 1, f"line 2: {row['why']}")
    else:
        assert (middle, found.left_out) == ([Cookie(**{**PLAIN, **row["cookie"]})], 0)


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        GOOD + b"\n",
        b"# Netscape HTTP Cookie File\n\n" + GOOD,
        b"\xef\xbb\xbf" + GOOD,
        b"\xef\xbb\xbf# Netscape HTTP Cookie File\r\n" + GOOD + b"\r\n",
        GOOD.decode().encode("utf-16"),
        b"\xfe\xff" + GOOD.decode().encode("utf-16-be"),
    ],
)
def test_how_a_file_begins_and_ends_does_not_matter(data: bytes) -> None:
    found = read_netscape(data, "c.txt")
    assert ([one.name for one in found.cookies], found.left_out) == (["good"], 0)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# Netscape HTTP Cookie File\n", b"\xef\xbb\xbf"])
def test_a_file_may_be_empty(data: bytes) -> None:
    assert read_netscape(data, "c.txt").cookies == []


@pytest.mark.parametrize("data", [b"<html>", b'[\n{"name": "a"}\n]', b"a=1; b=2", b"\0" * 100, b"\x1f\x8b\x08\x00"])
def test_a_file_of_another_kind_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"c\.txt is not a cookies\.txt.*line 1: expected 7 fields"):
        read_netscape(data, "c.txt")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = read_netscape(GOOD + b"\n" + data, "c.txt")
    assert found.cookies[0].name == "good"
    for one in found.cookies:
        assert not set(f"{one.name}{one.value}") & set("\r\n\0;")
