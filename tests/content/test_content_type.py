"""What hosts write into Content-Type, and what is no HTML without one: content_type.jsonl has a row for each.

A row: the header (null: none), the body (or PAGE), whether the site forbids to guess, whether it is HTML, and where
that is of interest the type and the codec that the header names. `by` is whose answer it is: Chromium's, the
standard's, or ours on purpose. Facts of WPT (fetch/content-type, mimesniff) are among them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from crawler.content.sniff import detect_charset
from crawler.media_type import content_type_of, declared_type, is_html, media_type
from crawler.model import Response

PAGE = '<title>t</title><p>a page <a href="/next">next</a>'
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("content_type.jsonl").read_text().splitlines()
]
JUDGES = ("chromium", "standard", "on purpose: ")


def response_of(row: dict[str, Any]) -> Response:
    body = row.get("body", PAGE).encode("latin-1")
    headers = [(b"Content-Type", row["type"].encode("latin-1"))] if row["type"] is not None else []
    headers += [(b"X-Content-Type-Options", b"nosniff")] if row.get("nosniff") else []
    return Response(
        url="http://a.test/", status=200, reason="", http_version="1.1", headers=tuple(headers), raw_body=body,
        body=body, request_head=b"", remote_ip="", started_at=0.0, fetch_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['type']}-{n}".replace(" ", "_") for n, row in enumerate(ROWS)])
def test_a_type_is_read_as_browsers_read_it(row: dict[str, Any]) -> None:
    response = response_of(row)
    declared = declared_type(response)
    assert is_html(declared, response.body) is row["html"]
    if "essence" in row:
        assert response.content_type == row["essence"]
    if row["type"] is not None and row["html"] and "body" not in row:
        assert detect_charset(b"\xb0\xa1" * 40 + b"<p>", declared) == row.get(
            "charset", detect_charset(b"\xb0\xa1" * 40 + b"<p>", "")
        )
    assert row["by"].startswith(JUDGES)


@pytest.mark.parametrize("options", ["nosniff", "NoSniff", " nosniff ", "nosniff, x", "nosniff,nosniff"])
def test_a_site_may_forbid_to_guess(options: str) -> None:
    headers = ((b"x-content-type-options", options.encode()),)
    response = response_of({"type": None})
    assert declared_type(response) == ""
    forbidding = Response(
        **{name: getattr(response, name) for name in response.__struct_fields__} | {"headers": headers}
    )
    assert media_type(declared_type(forbidding)) == "text/plain"


def test_several_headers_are_one_list() -> None:
    response = response_of({"type": "text/plain"})
    both = ((b"Content-Type", b"text/plain"), (b"content-type", b"text/html; charset=gbk"))
    listed = Response(**{name: getattr(response, name) for name in response.__struct_fields__} | {"headers": both})
    assert content_type_of(declared_type(listed)) == ("text/html", "gbk")


@pytest.mark.parametrize(
    "more", [";" * 60_000, "," * 60_000, ";x=" + '"' * 60_000, ';x="' + '\\"' * 30_000, ";charset=" + " " * 60_000]
)
def test_only_the_beginning_of_a_long_header_is_read(more: str) -> None:
    """Time and cache are bounded by it."""
    assert content_type_of(f"text/html{more}, image/png") == ("text/html", "")
