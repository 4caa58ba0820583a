"""What is archived besides pages: which records, how many of an origin, without secrets, and failing nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from msgspec.structs import replace
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from crawler import redaction
from crawler.archive.folder import CrawlFolder
from crawler.archive.repair import walk_responses
from crawler.archive.warc import KIND, Kind
from crawler.errors import NoRoomError
from crawler.frontier.owner import Settlement
from crawler.model import Failure, FailureKind, FetchResult, Response
from crawler.worker.exchanges import BYTES_MAX, DAY_S, RECORDS_MAX, Exchanges
from crawler.worker.outcomes import Failed
from tests.archive.archive_samples import AT, folder_in, response, writer_in
from tests.worker.test_schedule import claim


class Lab:
    def __init__(self, tmp_path: Path) -> None:
        self.folder: CrawlFolder = folder_in(tmp_path)
        self.now_s = AT
        self.writer = writer_in(self.folder)
        self.exchanges = Exchanges(self.writer, now_s=lambda: self.now_s)

    def records(self) -> list[tuple[str, dict[str, str], bytes]]:
        """All but the first one of the file, as warcio reads it; fastwarc finds the same, and both are content."""
        self.writer.close()
        (path,) = self.folder.warc.iterdir()
        checker = Checker(type("Options", (), {"inputs": [str(path)], "verbose": False}))
        checker.process_all()
        assert checker.exit_value == 0
        with path.open("rb") as file:
            found = [
                (one.rec_type, dict(one.rec_headers.headers), one.raw_stream.read())
                for one in ArchiveIterator(file, check_digests="raise")
            ]
        with path.open("rb") as file:
            fast = [
                (one.headers["WARC-Type"], one.verify_block_digest()) for one in FastIterator(file, parse_http=False)
            ]
        assert fast == [(kind, True) for kind, *_ in found]
        assert list(walk_responses(self.folder)) == [], "nobody takes them for pages"
        return found[1:]


def robots(number: int = 0, url: str = "http://a.test/robots.txt", **changes: Any) -> FetchResult:
    return FetchResult(url=url, response=response(number, url=url, **changes), fetch_ms=20)


def failed(**changes: Any) -> Failed:
    values: dict[str, Any] = {
        "claim": replace(claim(1), url="http://a.test/x?q=1"), "kind": FailureKind.CONNECT, "detail": "refused",
        "settlement": Settlement(next_fetch_ms=0), "retry_in_ms": 0, "started_at": AT, "failed_at": AT + 0.5,
    }  # fmt: skip
    return Failed(**(values | changes))


def test_each_kind_is_one_valid_record_with_its_request(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.exchanges.answered(Kind.ROBOTS, robots(raw_body=b"User-agent: *\nDisallow:\n"))
    lab.exchanges.add(Kind.COOKIE_WALL, response(url="http://a.test/wall", status=302), is_private=False)
    lab.exchanges.failed(failed(retry_in_ms=-1))
    failure = Failure(kind=FailureKind.TIMEOUT, detail="no answer\r\nWARC-Type: response")
    lab.exchanges.answered(Kind.ROBOTS, FetchResult(url="http://b.test/robots.txt", failure=failure, fetch_ms=250))
    found = lab.records()
    assert [(kind, fields[KIND]) for kind, fields, _ in found] == [
        ("response", "robots"), ("request", "robots"), ("response", "cookie-wall"), ("request", "cookie-wall"),
        ("metadata", "failure"), ("metadata", "failure"),
    ]  # fmt: skip
    assert found[0][2].endswith(b"User-agent: *\nDisallow:\n")
    _, fields, block = found[4]
    assert (fields["WARC-Target-URI"], fields["WARC-Date"]) == ("http://a.test/x?q=1", "2024-05-01T12:00:00.250Z")
    assert block == (
        b"reason: connect\r\ndetail: refused\r\nattempt: 1\r\nbecame: dead\r\nfetchTimeMs: 500\r\nmethod: GET\r\n"
    )
    assert found[5][1]["WARC-Date"] == "2024-05-01T12:00:00.000Z"
    assert found[5][2].splitlines()[1] == b"detail: no answer WARC-Type: response"


def test_what_says_nothing_of_the_site_is_no_record(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for kind, is_stale in ((FailureKind.NETWORK, False), (FailureKind.PROXY, False), (FailureKind.DISCONNECTED, True)):
        result = FetchResult(url="http://a.test/robots.txt", failure=Failure(kind=kind), stale_connection=is_stale)
        lab.exchanges.answered(Kind.ROBOTS, result)
    lab.exchanges.failed(failed(is_attempt=False))
    lab.exchanges.answered(Kind.ROBOTS, robots())
    assert [kind for kind, *_ in lab.records()] == ["response", "request"]


def test_records_of_an_origin_are_bounded_and_counted(tmp_path: Path) -> None:
    lab, over = Lab(tmp_path), 7
    for _ in range(RECORDS_MAX + over):
        lab.exchanges.failed(failed())
    assert lab.exchanges.left_out == over
    lab.exchanges.failed(failed(claim=replace(claim(1), url="http://b.test/")))
    lab.exchanges.answered(Kind.ROBOTS, robots())
    assert lab.exchanges.left_out == over, "others and other kinds have bounds of their own"
    lab.now_s += DAY_S
    lab.exchanges.failed(failed())
    assert (lab.exchanges.left_out, len(lab.records())) == (over, RECORDS_MAX + 4)


def test_bytes_of_an_origin_are_bounded(tmp_path: Path) -> None:
    lab, body = Lab(tmp_path), bytes(BYTES_MAX // 2 - 1000)
    for _ in range(3):
        lab.exchanges.answered(Kind.ROBOTS, robots(raw_body=body))
    assert (lab.exchanges.left_out, len(lab.records())) == (1, 4)


def test_secrets_stay_out(tmp_path: Path) -> None:
    lab, password = Lab(tmp_path), "hush-hush-word"
    redaction.learn_login("me", password)
    try:
        private = response(url="http://a.test/wall", headers=((b"Set-Cookie", b"sid=hush-cookie"), (b"X", b"y")))
        lab.exchanges.add(Kind.COOKIE_WALL, private, is_private=True)
        leads = response(url="http://a.test/robots.txt", headers=((b"Location", f"/in?p={password}".encode()),))
        lab.exchanges.add(Kind.ROBOTS, leads, is_private=False)
        lab.exchanges.add(Kind.ROBOTS, response(url=f"http://a.test/in?p={password}"), is_private=False)
        lab.exchanges.failed(failed(detail=f"the proxy said {password}"))
        failure = Failure(kind=FailureKind.TLS, detail=f"for {password}")
        lab.exchanges.answered(Kind.ROBOTS, FetchResult(url="http://me:hush-me@b.test/", failure=failure))
    finally:
        redaction.forget()
    found = lab.records()
    text = b"".join(b"%b%b" % (str(fields).encode(), block) for _, fields, block in found)
    assert b"hush" not in text
    assert [kind for kind, *_ in found] == ["response", "request", "response", "request", "metadata", "metadata"]


class Unwilling:
    """A writer whose disk fails."""

    def __init__(self) -> None:
        self.dropped = 0

    def add_exchange(self, response: Response, kind: Kind) -> int:
        raise OSError("no")

    def add_failure(self, url: str, **_: Any) -> int:
        return 100

    def sync(self) -> None:
        raise NoRoomError("full", Path("warc"))

    def drop_unwritten(self) -> None:
        self.dropped += 1


async def test_what_cannot_be_written_fails_nothing() -> None:
    writer: Any = Unwilling()
    exchanges = Exchanges(writer)
    exchanges.answered(Kind.ROBOTS, robots())
    exchanges.failed(failed())
    await exchanges.write()
    assert (writer.dropped, exchanges.left_out) == (1, 2)
    await exchanges.write()
    assert writer.dropped == 1, "nothing is left to write"


async def test_they_are_on_disk_without_any_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.worker.exchanges.WRITE_EVERY_S", 0.001)
    lab = Lab(tmp_path)
    lab.exchanges.failed(failed())
    running = asyncio.create_task(lab.exchanges.run())
    while not any(path.stat().st_size for path in lab.folder.warc.iterdir()):
        await asyncio.sleep(0.001)
    running.cancel()


def test_a_full_disk_gets_none(tmp_path: Path) -> None:
    writer = writer_in(folder_in(tmp_path))
    exchanges = Exchanges(writer, refuses=lambda: True)
    exchanges.failed(failed())
    assert exchanges.left_out == 1
