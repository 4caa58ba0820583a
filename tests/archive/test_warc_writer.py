import base64
import errno
import gzip
import hashlib
import os
import resource
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_samples import AT, archived, folder_in, response, writer_in
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from crawler.archive import appender, warc
from crawler.archive.warc import response_record
from crawler.archive.warc_reader import read_record, stored_response
from crawler.errors import ArchiveError
from crawler.model import WarcLocation


def base32(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def read_all(path: Path) -> list[tuple[str, dict[str, str], bytes]]:
    """What warcio finds: type, WARC headers, content after the HTTP head; raises when a digest is wrong."""
    with path.open("rb") as file:
        return [
            (r.rec_type, dict(r.rec_headers.headers), r.raw_stream.read())
            for r in ArchiveIterator(file, check_digests="raise")
        ]


def assert_valid(path: Path) -> None:
    """Three independent judges: gzip itself, warcio's own check, and digests verified while reading."""
    subprocess.run(["gzip", "-t", str(path)], check=True, capture_output=True)
    checker = Checker(type("Options", (), {"inputs": [str(path)], "verbose": False}))
    checker.process_all()
    assert checker.exit_value == 0
    read_all(path)


def test_other_tools_read_back_what_was_fetched(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    sent = [response(n) for n in range(5)]
    places = [writer.add(r) for r in sent]
    writer.close()
    (path,) = folder.warc.iterdir()
    assert path.name == "main-20240501120000250-aa11-00000.warc.gz"
    assert_valid(path)
    found = read_all(path)
    assert [kind for kind, _, _ in found] == ["warcinfo"] + ["response", "request"] * 5
    responses = [(headers, body) for kind, headers, body in found if kind == "response"]
    requests = [headers for kind, headers, _ in found if kind == "request"]
    for one, (headers, body), request, (place, digest) in zip(sent, responses, requests, places, strict=True):
        assert body == one.raw_body
        assert headers["WARC-Target-URI"] == one.url
        assert headers["WARC-IP-Address"] == "127.0.0.1"
        assert digest == headers["WARC-Payload-Digest"] == base32(one.raw_body)
        assert request["WARC-Concurrent-To"] == headers["WARC-Record-ID"]
        assert place.file == path.name
    assert responses[1][0]["WARC-Date"] == "2024-05-01T12:00:01.250Z"
    assert len({headers["WARC-Record-ID"] for _, headers, _ in found}) == len(found)


def test_a_location_is_one_gzip_member_that_holds_the_record(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    places = archived(folder, 4)
    for number, place in enumerate(places):
        data = (folder.warc / place.file).read_bytes()[place.offset : place.offset + place.length]
        assert gzip.decompress(data).startswith(b"WARC/1.1\r\nWARC-Type: response\r\n")
        stored = read_record(folder, place)
        assert stored.uri == response(number).url
        assert stored.payload == response(number).raw_body
        assert stored.status_line == "HTTP/1.1 200 OK"
        assert stored.header("content-type") == "text/html"


def test_records_can_be_read_while_the_file_is_still_open(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    place, _ = writer.add(response(3))
    writer.sync()
    assert [p.name for p in folder.warc.iterdir()] == [place.file + ".open"]
    assert read_record(folder, place).payload == response(3).raw_body
    writer.close()


def test_nothing_is_durable_before_sync(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    first, _ = writer.add(response(1))
    assert list(folder.warc.iterdir()) == []
    writer.sync()
    second, _ = writer.add(response(2))
    assert (folder.warc / (first.file + ".open")).stat().st_size == second.offset
    writer.close()


def test_files_rotate_at_their_size_and_each_begins_with_warcinfo(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder, warc_bytes_max=1_000_000)
    noise = os.urandom(400_000)
    places = [writer.add(response(n, raw_body=noise))[0] for n in range(7)]
    writer.sync()
    writer.close()
    files = sorted(folder.warc.iterdir())
    assert [f.name[-13:] for f in files] == ["00000.warc.gz", "00001.warc.gz", "00002.warc.gz"]
    assert sorted({p.file for p in places}) == [f.name for f in files]
    for file in files:
        assert_valid(file)
        assert read_all(file)[0][0] == "warcinfo"
    assert all(read_record(folder, place).payload == noise for place in places)


def test_a_writer_that_got_nothing_leaves_no_file(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    writer.sync()
    writer.close()
    assert list(folder.warc.iterdir()) == []


@pytest.mark.slow(ci=True)
def test_adding_while_another_thread_syncs_loses_and_tears_nothing(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder, warc_bytes_max=1_000_000)
    stop = threading.Event()

    def sync_all_the_time() -> None:
        while not stop.is_set():
            writer.sync()

    thread = threading.Thread(target=sync_all_the_time)
    thread.start()
    noise = os.urandom(6_000)
    places = [writer.add(response(n, raw_body=b"%d" % n + noise))[0] for n in range(800)]
    stop.set()
    thread.join()
    writer.close()
    assert len(list(folder.warc.iterdir())) > 3
    for number, place in enumerate(places):
        assert read_record(folder, place).payload == b"%d" % number + noise
    for path in folder.warc.iterdir():
        assert path.suffix == ".gz"
        assert_valid(path)


@pytest.mark.parametrize("body", [b"", b"\0" * 300_000, b"\r\n\r\nWARC/1.1\r\n", bytes(range(256)) * 9])
def test_any_body_comes_back_byte_by_byte(tmp_path: Path, body: bytes) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    place, _ = writer.add(response(raw_body=body))
    writer.close()
    assert read_record(folder, place).payload == body
    assert_valid(folder.warc / place.file)


def test_headers_that_contradict_the_stored_body_are_kept_under_other_names(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    chunked = response(raw_body=b"plain", headers=((b"Transfer-Encoding", b"chunked"), (b"X-A", b"1"), (b"X-A", b"2")))
    cut = response(raw_body=b"half", headers=((b"content-length", b"8000"),), truncated="disconnect")
    places = [writer.add(r)[0] for r in (chunked, cut)]
    writer.close()
    assert read_record(folder, places[0]).headers == (
        ("X-Crawler-Transfer-Encoding", "chunked"),
        ("X-A", "1"),
        ("X-A", "2"),
        ("Content-Length", "5"),
    )
    assert read_record(folder, places[1]).headers == (("X-Crawler-content-length", "8000"), ("Content-Length", "4"))
    found = read_all(folder.warc / places[0].file)
    assert [h.get("WARC-Truncated") for k, h, _ in found if k == "response"] == [None, "disconnect"]
    assert_valid(folder.warc / places[0].file)


LENGTHS = {
    # headers, status, truncated -> are they kept?
    "the length of the body": (((b"Content-Length", b"5"),), 200, "", True),
    "a blank before the colon": (((b"Content-Length ", b"500"),), 200, "disconnect", False),
    "a tab before the colon, cut": (((b"content-length\t", b"500"),), 200, "length", False),
    "a blank before the colon of a coding": (((b"Transfer-Encoding ", b"chunked"),), 200, "", False),
    "a coding and a length": (((b"TRANSFER-ENCODING", b"chunked"), (b"Content-Length ", b"9")), 200, "", False),
    "another length": (((b"Content-Length", b"6"),), 200, "", False),
    "the length twice": (((b"Content-Length", b"5"), (b"Content-Length", b"5")), 200, "", True),
    "the length and another": (((b"Content-Length", b"5"), (b"Content-Length", b"6")), 200, "", False),
    "the length in a list": (((b"Content-Length", b"5, 5"),), 200, "", False),
    "no length": (((b"X-A", b"b"),), 200, "", True),
    "that of what was not modified": (((b"Content-Length", b"6"),), 304, "", True),
    "that of no content": (((b"Content-Length", b"6"),), 204, "", True),
    "that of reset content": (((b"Content-Length", b"6"),), 205, "", False),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_header_of_the_body_is_kept_where_it_fits_the_stored_one(name: str) -> None:
    headers, status, truncated, is_kept = LENGTHS[name]
    body = b"" if status in (204, 304) else b"hello"
    record, _ = response_record(
        response(raw_body=body, headers=headers, status=status, truncated=truncated), "<urn:uuid:1>"
    )
    stored = stored_response(record, "x")
    assert stored is not None
    lines = [f"{key}: {value}" for key, value in stored.headers]
    given = [f"{key.decode()}: {value.decode()}" for key, value in headers]
    if is_kept:
        assert lines == given
    else:
        assert lines == [*(f"X-Crawler-{line}" for line in given), "Content-Length: 5"]


@pytest.mark.parametrize(
    "reason",
    ["Nicht gefunden", "Trouvé", "не найдено", "見つからない", b"Trouv\xe9".decode("utf-8", "surrogateescape")],
)
def test_a_reason_is_stored_as_it_came(reason: str) -> None:
    record, _ = response_record(response(reason=reason), "<urn:uuid:1>")
    assert b"HTTP/1.1 200 " + reason.encode("utf-8", "surrogateescape") + b"\r\n" in record


def test_a_hostile_exchange_adds_no_header_and_shows_no_password(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    place, _ = writer.add(
        response(
            url="http://me:secret@h.test/a b\r\nWARC-Type: evil",
            reason="OK\r\nInjected: 1",
            headers=((b"X-Bad", b"a\r\nInjected: 2\0"), (b"Content-Type", b"text/html")),
            remote_ip="1.2.3.4\r\nInjected: 3",
            truncated="made-up\r\nInjected: 4",
        )
    )
    writer.close()
    assert_valid(folder.warc / place.file)
    _, headers, _ = read_all(folder.warc / place.file)[1]
    assert headers["WARC-Target-URI"] == "http://h.test/a%20b%0D%0AWARC-Type:%20evil"
    assert headers["WARC-Type"] == "response"
    assert headers["WARC-Truncated"] == "unspecified"
    assert "WARC-IP-Address" not in headers
    assert "Injected" not in headers
    assert [name for name, _ in read_record(folder, place).headers] == ["X-Bad", "Content-Type", "Content-Length"]


def test_canonical_urls_stand_in_the_record_as_they_are() -> None:
    for url in ("http://h.test/@user?q=a@b", "http://[2001:db8::1]/", "http://h.test/%E2%82%AC?a=1&b=%20"):
        assert warc.safe_uri(url) == url


def test_request_records_can_be_left_out(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder, request_records=False)
    place, _ = writer.add(response())
    writer.close()
    assert [kind for kind, _, _ in read_all(folder.warc / place.file)] == ["warcinfo", "response"]


def fail_with(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_full_disk_refuses_everything_and_keeps_the_whole_records(tmp_path: Path) -> None:
    """The limit on the size of a file makes the kernel itself stop in the middle of a write."""
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    noise = os.urandom(20_000)
    kept = [writer.add(response(n, raw_body=noise))[0] for n in range(3)]
    writer.sync()
    lost = [writer.add(response(n, raw_body=noise))[0] for n in range(3, 9)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (lost[2].offset + 100, hard))
    try:
        with pytest.raises(ArchiveError, match="can't write"):
            writer.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(ArchiveError, match="takes nothing more"):
        writer.add(response(9))
    with pytest.raises(ArchiveError):
        writer.sync()
    writer.close()
    (file,) = folder.warc.iterdir()
    assert file.suffix == ".gz"
    assert_valid(file)
    assert [k for k, _, _ in read_all(file)].count("response") == 3
    assert all(read_record(folder, place).payload == noise for place in kept)


def test_a_failed_fsync_is_not_believed_when_it_succeeds_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    writer.add(response(1))
    with monkeypatch.context() as patched:
        patched.setattr(appender.os, "fdatasync", fail_with(errno.EIO))
        with pytest.raises(ArchiveError, match="Input/output error"):
            writer.sync()
    with pytest.raises(ArchiveError):
        writer.sync()
    writer.close()
    assert list(folder.warc.iterdir()) == []


def test_a_disk_that_fails_at_the_end_is_said_and_the_durable_records_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    writer = writer_in(folder)
    place, _ = writer.add(response(1))
    writer.sync()
    writer.add(response(2))
    with monkeypatch.context() as patched:
        patched.setattr(appender.os, "fdatasync", fail_with(errno.ENOSPC))
        with pytest.raises(ArchiveError, match="free some space"):
            writer.close()
    assert read_record(folder, place).payload == response(1).raw_body
    assert_valid(folder.warc / place.file)


def test_a_record_that_is_not_there_is_an_archive_error(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    (place,) = archived(folder, 1)
    wrong = [
        WarcLocation(file="gone.warc.gz", offset=0, length=1),
        WarcLocation(file=place.file, offset=place.offset + 1, length=place.length),
        WarcLocation(file=place.file, offset=place.offset, length=place.length - 1),
        WarcLocation(file=place.file, offset=0, length=place.offset),  # warcinfo
        WarcLocation(file=place.file, offset=10**9, length=place.length),
    ]
    for location in wrong:
        with pytest.raises(ArchiveError):
            read_record(folder, location)


def test_dates_carry_milliseconds_and_no_rounding_up() -> None:
    from crawler.archive.folder import digits14, digits17, iso_ms

    assert iso_ms(AT) == "2024-05-01T12:00:00.250Z"
    assert iso_ms(1_714_564_800.9999) == "2024-05-01T12:00:00.999Z"
    assert digits14(AT + 0.74) == "20240501120000"
    assert digits17(AT) == "20240501120000250"
