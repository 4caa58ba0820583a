"""Heads that are slightly wrong, and bodies whose end is told oddly: response_head.jsonl and transfer_coding.jsonl.

A row: what the host sends before it closes, and the page (or PAGE) that is read of it, or the kind of failure. `again`:
the connection may carry another request; `cut`: it is marked as cut. `by` is whose answer that is: Chromium's, the
standard's, or ours on purpose.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.warc import response_record
from crawler.archive.warc_reader import stored_response
from crawler.model import FailureKind, Response
from crawler.web.response import BadHead, ResponseReader
from tests.support.hostile_server import Close, HostileServer
from tests.web.fetching import fetching, response_of

PAGE = "<title>t</title><p>a page <a href=/next>next</a>"
ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for name in ("response_head", "transfer_coding")
    for line in Path(__file__).with_name(f"{name}.jsonl").read_text().splitlines()
]
JUDGES = ("chromium", "standard: ", "on purpose: ")


def read(wire: bytes, step: int) -> tuple[ResponseReader, FailureKind | None]:
    reader = ResponseReader(headers_bytes_max=64 * 1024)
    reader.begin(body_bytes_max=1_000_000)
    try:
        for at in range(0, len(wire), step):
            if reader.feed(wire[at : at + step]) is not None and step == 1:
                break
    except BadHead as refusal:
        return reader, refusal.kind
    return reader, None


@pytest.mark.parametrize("row", ROWS, ids=[row["row"].replace(" ", "-") for row in ROWS])
def test_a_response_is_read_as_browsers_read_it(row: dict[str, Any]) -> None:
    wire = row["wire"].encode("latin-1")
    for step in (len(wire), 1, 7):
        reader, refused = read(wire, step)
        if "refused" in row:
            assert refused is FailureKind(row["refused"])
            continue
        assert refused is None
        assert reader.head is not None
        assert reader.head.status == row.get("status", 200)
        assert reader.body() == row.get("body", PAGE).encode("latin-1")
        assert reader.is_whole_at_end() is not row.get("cut", False)
        if step == len(wire):
            assert reader.allows_another() is row["again"]
        if "header" in row:
            name, value = row["header"]
            assert reader.head.get(name.encode()) == value
    assert row["by"].startswith(JUDGES)


HEADS = [row for row in ROWS if "refused" not in row and not row["again"] and not row.get("cut")]


async def test_a_doubtful_connection_never_carries_a_second_request() -> None:
    """Whatever follows on it is not the answer to another URL, even if it looks like one and came in time."""
    decoy = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndecoy"
    steps = {f"/{n}": (row["wire"].encode("latin-1"), 0.01, decoy, Close()) for n, row in enumerate(HEADS)}
    async with HostileServer(by_path=steps) as server, fetching() as fetcher:
        for n, row in enumerate(HEADS):
            before = server.connections
            for times in (1, 2):
                response = response_of(await fetcher.fetch(f"{server.url}{n}"))
                assert response.status == row.get("status", 200)
                assert server.connections == before + times, row["row"]
                check_record(response)


def check_record(response: Response) -> None:
    """The archive has the headers that came, and a body that fits those that tell of it."""
    stored = stored_response(response_record(response, "<urn:x>")[0], "here")
    assert stored is not None
    assert stored.payload == response.raw_body
    lengths = [value for name, value in stored.headers if name.lower() == "content-length"]
    assert set(lengths) <= {str(len(response.raw_body))}
    names = [name.lower().removeprefix("x-crawler-") for name, _ in stored.headers]
    assert "transfer-encoding" not in {name.lower() for name, _ in stored.headers}
    for name, value in response.headers:
        assert name.decode().lower() in names
        assert value.decode("latin-1").strip() in {value for _, value in stored.headers}
