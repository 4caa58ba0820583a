"""Responses, entries and folders that the tests of the archive share."""

from pathlib import Path
from typing import Any

from crawler.archive.folder import CrawlFolder, open_or_create
from crawler.archive.warc_writer import WarcWriter
from crawler.model import CommitEntry, ItemsLocation, Response, WarcLocation
from crawler.settings import ArchiveSettings

AT = 1_714_564_800.25  # 2024-05-01T12:00:00.25Z


def folder_in(tmp_path: Path) -> CrawlFolder:
    return open_or_create(tmp_path / "crawl")


def response(number: int = 0, **changes: Any) -> Response:
    body = changes.pop("raw_body", b"<html><title>%d</title>%s</html>" % (number, b"text " * 40))
    values: dict[str, Any] = {
        "url": f"http://d{number % 3}.test/page/{number}",
        "status": 200,
        "reason": "OK",
        "http_version": "1.1",
        "headers": ((b"Content-Type", b"text/html"), (b"Content-Length", b"%d" % len(body))),
        "raw_body": body,
        "body": body,
        "request_head": b"GET /page/%d HTTP/1.1\r\nHost: d%d.test\r\n\r\n" % (number, number % 3),
        "remote_ip": "127.0.0.1",
        "started_at": AT + number,
        "fetch_ms": 12,
    }
    return Response(**(values | changes))


def entry(
    number: int = 0, *, warc: WarcLocation | None = None, items: ItemsLocation | None = None, **changes: Any
) -> CommitEntry:
    values: dict[str, Any] = {
        "url": f"http://d{number % 3}.test/page/{number}",
        "fingerprint": str(number * 7919 - 5_000_000_000_000_000_000),
        "visit": 1,
        "status_text": "200",
        "fetched_at": AT + number,
        "mime": "text/html",
        "body_bytes": 31_000 + number,
        "title": f"Title {number}",
        "depth": number % 5,
        "digest": "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ",
        "node": "host-1",
        "session": "aa11",
        "epoch": 3,
        "sequence": number,
        "fetch_ms": 17,
        "times": {"claimed": AT, "started": AT + 0.5},
    }
    return CommitEntry(**(values | changes)).placed(warc, items)


def writer_in(folder: CrawlFolder, session: str = "aa11", **settings: Any) -> WarcWriter:
    return WarcWriter(
        folder,
        prefix="main",
        session=session,
        settings=ArchiveSettings(**settings),
        software="crawler/0",
        clock=lambda: AT,
    )


def archived(folder: CrawlFolder, count: int, session: str = "aa11") -> list[WarcLocation]:
    """Write and close `count` responses."""
    writer = writer_in(folder, session)
    places = [writer.add(response(n))[0] for n in range(count)]
    writer.close()
    return places
