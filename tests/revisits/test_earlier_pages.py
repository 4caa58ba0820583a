"""What is asked about: validators, kinds of requests, and the page that is found in sealed and in open segments."""

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from warcio.archiveiterator import WARCIterator

from crawler.archive import earlier_pages
from crawler.archive.earlier_pages import EarlierPages
from crawler.archive.folder import CrawlFolder
from crawler.archive.index import pruned
from crawler.archive.index_writer import IndexWriter
from crawler.archive.prune_journal import FILE, PRUNE_LOCK
from crawler.archive.warc import Original
from crawler.archive.warc_reader import read_head, read_record
from crawler.archive.warc_writer import WarcWriter
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, Response, WarcLocation
from crawler.rules.conditional import Validators, head_digest, validators_of
from tests.archive.archive_samples import folder_in, writer_in

JOB = "0123456789"
URL = "http://a.test/x"
HEAD = b"GET /x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: u\r\n\r\n"
DIGEST = head_digest(HEAD)
DATE = "Tue, 15 Nov 1994 12:45:26 GMT"


@pytest.mark.parametrize(
    ("etag", "modified", "found"),
    [
        ('"a"', "", ('"a"', "")),
        ('W/"a"', DATE, ('W/"a"', DATE)),
        ("", "Tuesday, 15-Nov-94 12:45:26 GMT", ("", "Tuesday, 15-Nov-94 12:45:26 GMT")),
        ("", "Tue Nov 15 12:45:26 1994", ("", "Tue Nov 15 12:45:26 1994")),
        ("", "Tue, 15 Nov 1994 13:45:26 +0100", ("", "Tue, 15 Nov 1994 13:45:26 +0100")),
        ("", "yesterday", ("", "")),
        ("", "0", ("", "")),
        ("", "-1", ("", "")),
        ("", "784903526", ("", "")),
        ("", "1994-11-15T12:45:26Z", ("", "")),
        ("", "Tue, 99 Nov 1994 12:45:26 GMT", ("", "")),
        ("", f"{DATE}, {DATE}", ("", "")),
        ("", f"{DATE}\r\nX: y", ("", "")),
        ('w/"a"', "", ("", "")),
        ("a", "", ("", "")),
        ("*", "", ("", "")),
        ('"', "", ("", "")),
        ('"a"b"', "", ("", "")),
        ('"a","b"', "", ("", "")),
        ('"a\r\nX: y"', "a\r\nX: y", ("", "")),
        ('"' + "a" * 254 + '"', DATE, ('"' + "a" * 254 + '"', DATE)),
        ('"' + "a" * 255 + '"', DATE + " " * 99, ("", "")),
        ("", "\xe4", ("", "")),
        ("", "\x00", ("", "")),
    ],
)
def test_validators_are_one_tag_and_a_date(etag: str, modified: str, found: tuple[str, str]) -> None:
    assert validators_of(etag, modified) == found


@pytest.mark.parametrize(
    ("known", "answered", "is_confirmed"),
    [
        ('"a"', '"a"', True), ('"a"', 'W/"a"', True), ('W/"a"', '"a"', True), ('"a"', "", True), ("", '"b"', True),
        ('"a"', '"b"', False), ('"a"', '"a","b"', False), ('"a"', '"A"', False),
    ],
)  # fmt: skip
def test_an_answer_is_about_the_page_with_its_tag(known: str, answered: str, is_confirmed: bool) -> None:
    assert Validators(known, "then").confirmed_by(answered) is is_confirmed


def test_conditions_do_not_make_another_kind_of_request() -> None:
    asking = HEAD.replace(b"User", b'If-None-Match: "a"\r\nif-modified-since: x\r\nUser')
    assert head_digest(asking) == DIGEST
    assert head_digest(HEAD.replace(b": u", b": v")) != DIGEST
    assert head_digest(HEAD.replace(b"User", b"If-Match: a\r\nUser")) != DIGEST


def response(body: bytes = b"one", *headers: tuple[bytes, bytes], status: int = 200, url: str = URL) -> Response:
    return Response(
        url=url, status=status, reason="OK", http_version="1.1", headers=headers or ((b"ETag", b'"1"'),), raw_body=body,
        body=body, request_head=HEAD, remote_ip="1.2.3.4", started_at=1_714_564_800.25, fetch_ms=1,
    )  # fmt: skip


def line(
    place: WarcLocation, digest: str, *, run: str = f"{JOB}.1.1", at: float = 1e9, **values: object
) -> CommitEntry:
    given = {"url": URL, "mime": "text/html", "status_text": "200", "fingerprint": str(int(at)), "visit": 1}
    entry = CommitEntry(**given | {"fetched_at": at, "digest": digest, "run": run, "head_digest": DIGEST} | values)
    return entry.placed(place, None)


class Archive:
    """Pages with records of their own, in one session's files."""

    def __init__(self, folder: CrawlFolder, session: str = "aa11", lines_max: int = 4) -> None:
        self.folder = folder
        self.warc: WarcWriter = writer_in(folder, session, warc_bytes_max=1 << 20)
        self.index = IndexWriter(folder, session, lines_max=lines_max)

    def add(self, body: bytes = b"one", *headers: tuple[bytes, bytes], url: str = URL, **values: object) -> CommitEntry:
        place, digest = self.warc.add(response(body, *headers, url=url))
        entry = line(place, digest, url=url, **values)
        self.index.add(entry)
        self.sync()
        return entry

    def sync(self) -> None:
        self.warc.sync()
        self.index.sync()

    def close(self) -> None:
        self.warc.close()
        self.index.close()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(earlier_pages, "LISTED_S", 0.0)
    return Archive(folder_in(tmp_path))


def found(archive: Archive, run: str = f"{JOB}.1.9", url: str = URL, digest: str = DIGEST) -> WarcLocation | None:
    page = EarlierPages(archive.folder).find(url, run, digest)
    return page.original.place if page else None


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("others", [0, 1, 3, 9])
def test_the_newest_page_of_the_job_is_found(archive: Archive, others: int, is_open: bool) -> None:
    """Among others of its URL, key and job, in whichever segment it is."""
    pages = EarlierPages(archive.folder)
    assert pages.find(URL, f"{JOB}.1.9", DIGEST) is None
    for n in range(others):
        archive.add(url=f"{URL}{n}", at=1e9 + n)
        archive.add(url="http://www.a.test/X", at=2e9 + n)
        archive.add(run="", at=3e9 + n)
        archive.add(run=f"9{JOB[1:]}.1.1", at=3e9 + n)
    archive.add(b"old", run=f"{JOB}.1.1", at=1.1e9)
    newest = archive.add(b"new", run=f"{JOB}.1.2", at=1.2e9)
    for n in range(others):
        archive.add(url=f"http://a.test/{n}", at=4e9 + n)
    if not is_open:
        archive.close()
    for one in (pages, EarlierPages(archive.folder)):
        page = one.find(URL, f"{JOB}.1.9", DIGEST)
        assert page is not None
        assert (page.original.place, page.validators) == (newest.warc, ('"1"', ""))


UNFIT: Sequence[dict[str, object]] = (
    {"status_text": "404"}, {"status_text": "304"}, {"truncated": "length"}, {"decode_error": "gzip"},
    {"label": "+sitemap"}, {"head_digest": "0"}, {"head_digest": ""},
)  # fmt: skip


@pytest.mark.parametrize("values", UNFIT, ids=str)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_page_that_does_not_fit_is_not_asked_about(
    archive: Archive, values: dict[str, object], is_open: bool
) -> None:
    archive.add(**values)
    if not is_open:
        archive.close()
    assert found(archive) is None


def test_an_older_page_serves_where_the_newest_has_no_use(archive: Archive) -> None:
    fit = archive.add(b"fit")
    archive.add(b"error", run=f"{JOB}.1.2", at=1.2e9, status_text="500")
    archive.close()
    assert found(archive) == fit.warc


def test_what_was_pruned_or_is_being_pruned_is_not_asked_about(archive: Archive) -> None:
    entry = archive.add()
    assert found(archive) == entry.warc
    with archive.folder.exclusive(PRUNE_LOCK):
        assert found(archive) is None
    (archive.folder.root / FILE).touch()
    assert found(archive) is None
    (archive.folder.root / FILE).unlink()
    archive.index.add(msgspec.structs.replace(pruned(entry), run=entry.run))
    archive.sync()
    assert found(archive) is None


def test_a_record_that_is_gone_or_another_is_not_asked_about(archive: Archive) -> None:
    entry = archive.add()
    archive.close()
    path = next(archive.folder.warc.iterdir())
    whole = path.read_bytes()
    for damaged in (whole[:50], b"", b"x" * len(whole)):
        path.write_bytes(damaged)
        assert found(archive) is None
    path.write_bytes(whole)
    assert found(archive) == entry.warc
    path.unlink()
    assert found(archive) is None


def test_other_tools_read_a_revisit_record(tmp_path: Path) -> None:
    writer = writer_in(folder := folder_in(tmp_path), "aa11")
    place, digest = writer.add(response())
    head = read_head(folder, place)
    assert head is None, "it is not on disk yet"
    writer.sync()
    head = read_head(folder, place)
    assert head is not None
    assert (head.digest, head.header("etag"), head.payload) == (digest, '"1"', b"")
    original = Original(place=place, record_id=head.record_id, date=head.date, digest=digest, mime="text/html")
    again, same = writer.add(response(b"", status=304), "", original)
    hostile = Original(place=place, record_id="a\r\nX: y", date="z\r\n", digest=digest, mime="")
    writer.add(response(b"", status=304), "7", hostile)
    writer.close()
    assert same == digest
    records = list(WARCIterator(io.BytesIO(next(folder.warc.iterdir()).read_bytes()), check_digests="raise"))
    kinds = [record.rec_type for record in records]
    assert kinds == ["warcinfo", "response", "request", "revisit", "request", "revisit", "request"]
    fields = dict(records[3].rec_headers.headers)
    assert fields["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    assert fields["WARC-Refers-To"] == records[1].rec_headers.get_header("WARC-Record-ID") == head.record_id
    assert fields["WARC-Refers-To-Date"] == records[1].rec_headers.get_header("WARC-Date")
    assert (fields["WARC-Refers-To-Target-URI"], fields["WARC-Payload-Digest"]) == (URL, digest)
    assert "WARC-Refers-To" not in dict(records[5].rec_headers.headers)
    with pytest.raises(ArchiveError, match="no response record"):
        read_record(folder, again)
    assert read_head(folder, again) is None
