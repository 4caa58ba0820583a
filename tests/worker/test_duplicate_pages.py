"""Which pages may have their body in the record of another one."""

from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.warc import Original
from crawler.frontier.owner import Settlement
from crawler.model import SITEMAP, ParsedPage, Request, WarcLocation
from crawler.settings import ArchiveSettings
from crawler.worker.archive import ArchiveStage, _may_refer
from crawler.worker.outcomes import Committable, Withheld
from tests.archive.archive_samples import response
from tests.worker.test_schedule import claim

PNG = b"\x89PNG\r\n\x1a\n" + bytes(2000)
HTML = b"<!doctype html><p>" + b"text " * 400
TYPE = b"Content-Type"
ORIGINAL = Original(place=WarcLocation(file="f", offset=0, length=1), record_id="", date="", digest="", mime="")


def page(**changes: Any) -> Committable:
    values: dict[str, Any] = {"raw_body": PNG, "headers": ((TYPE, b"image/png"),)}
    of_response = {name: changes.pop(name) for name in list(changes) if name in response().__struct_fields__}
    got = response(**(values | of_response))
    of_claim = {name: changes.pop(name) for name in list(changes) if name in ("request", "label")}
    return Committable(
        claim=replace(claim(1), **of_claim), response=got, settlement=Settlement(next_fetch_ms=0),
        **({"page": ParsedPage()} | changes),
    )  # fmt: skip


def head(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", "Host: a.test", *lines, "")).encode()


@pytest.mark.parametrize("kind", [b"image/png", b"text/css", b"font/woff2", b"application/pdf", b"image/svg+xml", b""])
def test_what_pages_load_and_people_download_may(kind: bytes) -> None:
    assert _may_refer(page(headers=((TYPE, kind),)))
    assert _may_refer(page(request_head=head("Cookies: none", "Accept: */*")))


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": ((TYPE, b"text/html; charset=utf-8"),), "raw_body": HTML},
        {"headers": ((TYPE, b"application/xhtml+xml"),), "raw_body": HTML},
        {"headers": (), "raw_body": HTML},
        {"raw_body": bytes(1023)},
        {"status": 404},
        {"status": 206},
        {"truncated": "length"},
        {"decode_error": "gzip"},
        {"page": ParsedPage(links=("http://a.test/",))},
        {"label": SITEMAP},
        {"request": Request(method="POST")},
        {"request": Request(headers={"X": "y"})},
        {"is_private": True},
        {"original": ORIGINAL},
        {"request_head": head("Cookie: a=1")},
        {"request_head": head("cookie: (not archived)")},
        {"request_head": head("Authorization: Basic YTpi")},
        {"request_head": head("X-Api-Key: (not archived)")},
    ],
)
def test_what_is_read_again_or_not_whole_or_secret_does_not(changes: dict[str, Any]) -> None:
    assert not _may_refer(page(**changes))


class Warc:
    """A writer that notes how a page was archived."""

    def __init__(self) -> None:
        self.how: list[str] = []

    def add(self, *_: Any) -> tuple[WarcLocation, str]:
        self.how.append("whole")
        return ORIGINAL.place, "sha1:A"

    def add_withheld(self, *_: Any, **__: Any) -> tuple[WarcLocation, str]:
        self.how.append("withheld")
        return ORIGINAL.place, "sha1:A"


@pytest.mark.parametrize("settings", [ArchiveSettings(duplicates=True), ArchiveSettings()])
def test_withheld_pages_and_crawls_that_want_whole_records_are_as_ever(settings: ArchiveSettings) -> None:
    nothing, warc = None, Warc()
    files: Any = type("Files", (), {"warc": warc})
    stage = ArchiveStage(nothing, nothing, files, nothing, nothing, settings, log_entries_max=9)  # type: ignore[arg-type]
    if settings.duplicates:
        assert stage._place(page()).digest == "sha1:A"
        assert stage._place(page()).digest == "sha1:A"
    left_out = Withheld(body_bytes=9, mime="image/png", links=())
    stage._place(page(withheld=left_out, raw_body=b"", body=b""))
    assert warc.how == ["whole", "whole", "withheld"] if settings.duplicates else ["withheld"]
