"""What hosts write into Content-Encoding, and what they send with it: content_coding.jsonl has a row for each.

A row: the value of the header, the body ("T" is PAGE, else base64), how far it can be decoded (`Decoded`), and what
comes of it, whole or by its beginning. `by` is whose answer that is: Chromium's, the standard's, or ours on purpose.
"""

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from crawler.content.coding import inflate
from crawler.model import Decoded

PAGE = b'<title>odd</title><p>some text of a page <a href="/next">next</a>' + b"".join(
    b"<p>line %d of it" % n for n in range(12)
)
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("content_coding.jsonl").read_text().splitlines()
]
JUDGES = ("chromium", "standard", "on purpose: ")


def bytes_of(text: str) -> bytes:
    return PAGE if text == "T" else base64.b64decode(text)


@pytest.mark.parametrize("row", ROWS, ids=[row["row"].replace(" ", "-") for row in ROWS])
def test_a_body_is_read_as_far_as_its_coding_goes(row: dict[str, Any]) -> None:
    coding = ",".join(part.partition(":")[2] or part for part in row["coding"].split("\r\n"))
    found = inflate(bytes_of(row["body"]), coding, limit=1_000_000, ratio_max=100)
    assert found.decoded is Decoded[row["decoded"].upper()], found.error
    assert len(found.error) <= 120
    if "page" in row:
        assert found.body == bytes_of(row["page"])
    else:
        assert found.body.startswith(row["begins"].encode())
    assert row["by"].startswith(JUDGES)


WHOLE = {
    "gzip": gzip.compress(PAGE),
    "deflate": zlib.compress(PAGE),
    "br": brotli.compress(PAGE),
    "zstd": zstandard.compress(PAGE),
}


@pytest.mark.parametrize("coding", WHOLE)
def test_what_is_read_of_a_cut_body_only_grows(coding: str) -> None:
    """Each byte more gives as much as before, or more of the same; the last one makes it whole."""
    whole, before = WHOLE[coding], b""
    for length in range(1, len(whole)):
        found = inflate(whole[:length], coding, limit=1_000_000, ratio_max=100)
        assert found.decoded is (Decoded.PART if found.body else Decoded.NOTHING), length
        assert found.body.startswith(before)
        assert PAGE.startswith(found.body)
        before = found.body


@pytest.mark.parametrize("named", [["x"] * 5000, ["gzip"] * 5000, ["br", "x"] * 4, ["x", "gzip", "br"] * 1000])
def test_a_long_list_of_codings_costs_little(named: list[str]) -> None:
    found = inflate(PAGE * 1000, ", ".join(named), limit=10_000_000, ratio_max=100)
    assert found.decoded is not Decoded.CLEAN
    assert len(found.error) < 120
