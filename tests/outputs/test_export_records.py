import contextlib
import csv
import gzip
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import MissingFile
from crawler.archive.index_writer import IndexWriter
from crawler.errors import ArchiveError, UsageError
from crawler.model import WarcLocation
from crawler.outputs import export as exporting
from crawler.outputs import files
from crawler.outputs.export import ExportSummary
from crawler.outputs.opening import targets_of
from crawler.outputs.records import PAGE_COLUMNS, Pages
from tests.archive.archive_samples import entry, folder_in, response, writer_in


def export(folder: CrawlFolder, targets: list[str], stdout: io.BytesIO | None = None, **content: Any) -> ExportSummary:
    with contextlib.closing(Pages(folder, **content)) as pages:
        return exporting.export(folder, targets_of(targets), pages, stdout=stdout)


def filled(tmp_path: Path, count: int = 6) -> CrawlFolder:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    for number in range(count):
        index.add(entry(number, status_text="404" if number == 1 else "200"))
        index.add(entry(number, status_text="404" if number == 1 else "200"))  # written twice, counts once
    index.close()
    return folder


def test_json_lines_have_one_record_per_page_with_all_fields(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    target = tmp_path / "pages.jsonl"
    summary = export(folder, [str(target)])
    text = target.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert len(records) == summary.records == 6
    assert summary.by_status == {200: 5, 404: 1}
    assert summary.missing == []
    assert all(list(r) == list(PAGE_COLUMNS) for r in records)
    assert len(re.findall(r'"status": *200', text)) == 5
    (first,) = [r for r in records if r["url"] == "http://d0.test/page/0"]
    assert first["fetched_at"] == "2024-05-01T12:00:00.250Z"
    assert (first["bytes"], first["title"], first["depth"]) == (31_000, "Title 0", 0)
    assert (first["warc_file"], first["warc_offset"]) == (None, None)


def test_pages_of_a_run_name_it_and_can_be_written_alone(tmp_path: Path) -> None:
    folder, target = filled(tmp_path), tmp_path / "pages.jsonl"
    index = IndexWriter(folder, "bb22")
    index.add(replace(entry(0), fingerprint="77", run="job.0.1"))
    index.add(replace(entry(1), fingerprint="78", run="job.0.2"))
    index.close()
    assert export(folder, [str(target)]).records == 8
    records = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(r.get("run", "-") for r in records) == ["-"] * 6 + ["job.0.1", "job.0.2"]
    summary = exporting.export(folder, targets_of([str(target)]), Pages(folder), run="job.0.1")
    assert (summary.records, summary.by_status) == (1, {200: 1})
    (record,) = [json.loads(line) for line in target.read_text().splitlines()]
    assert (record["url"], record["run"]) == ("http://d0.test/page/0", "job.0.1")
    lines = [line for path in folder.index.iterdir() for line in path.read_bytes().splitlines()]
    assert sum(b'"run"' in line for line in lines) == 2, "others have no byte of it"


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.jsonl.gz", "p.parquet", "p.sqlite"])
def test_nothing_found_replaces_no_file_that_has_something(tmp_path: Path, name: str) -> None:
    folder, target = filled(tmp_path), tmp_path / name
    assert export(folder, [str(target)]).records == 6
    before = target.read_bytes()
    with pytest.raises(UsageError, match=r"no page of run job\.0\.9"):
        exporting.export(folder, targets_of([str(target)]), Pages(folder), run="job.0.9")
    assert target.read_bytes() == before
    summary = exporting.export(folder, targets_of([str(target)]), Pages(folder), since=9e9)
    assert (summary.records, summary.kept) == (0, [str(target)])
    assert target.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if "draft" in path.name]


def test_pages_with_a_mark_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "pages.jsonl"
    index = IndexWriter(folder, "aa11")
    for number, marks in enumerate(
        ({}, {"noindex": True}, {"truncated": "length"}, {"noindex": True, "truncated": "time"})
    ):
        index.add(replace(entry(number), **marks))
    index.close()
    for unless, numbers in ((), {0, 1, 2, 3}), (("noindex",), {0, 2}), (("noindex", "truncated"), {0}):
        summary = exporting.export(folder, targets_of([str(target)]), Pages(folder), unless=unless)
        records = [json.loads(line) for line in target.read_text().splitlines()]
        assert {record["url"] for record in records} == {entry(number).url for number in numbers}
        assert (summary.records, summary.left_out) == (len(numbers), 4 - len(numbers))
        assert all(record["noindex"] is (record["url"] in (entry(1).url, entry(3).url)) for record in records)


def test_csv_says_the_same_as_json_lines_in_one_pass(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    index.add(entry(1, title='a "quoted", title\nüber', warc=WarcLocation(file="x.warc.gz", offset=7, length=1)))
    index.close()
    summary = export(folder, [str(tmp_path / "p.csv"), str(tmp_path / "p.jsonl")])
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    record = json.loads((tmp_path / "p.jsonl").read_text())
    assert row == {name: str(value) for name, value in record.items()}
    assert row["warc_file"] == "warc/x.warc.gz"
    assert [m.file for m in summary.missing] == ["warc/x.warc.gz"]


def test_standard_output_gets_json_lines_and_stays_open(tmp_path: Path) -> None:
    out = io.BytesIO()
    assert export(filled(tmp_path), ["-"], stdout=out).records == 6
    assert len(out.getvalue().splitlines()) == 6


def test_a_reader_that_has_enough_ends_the_export_without_an_error(tmp_path: Path) -> None:
    class Closed(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    assert export(filled(tmp_path), ["-"], stdout=Closed()).records == 0


def test_an_empty_crawl_gives_an_empty_file(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    assert export(folder, [str(tmp_path / "p.jsonl"), str(tmp_path / "p.csv")]).records == 0
    assert (tmp_path / "p.jsonl").read_bytes() == b""
    assert (tmp_path / "p.csv").read_text() == ",".join(PAGE_COLUMNS) + "\n"


@pytest.mark.parametrize("target", ["missing/p.jsonl", "crawl", "p.xml", "crawl.d/", "file/p.csv"])
def test_a_target_that_can_not_be_written_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    folder = filled(tmp_path)
    (tmp_path / "crawl.d").mkdir()
    (tmp_path / "file").write_text("x")

    def no_work(*_: object) -> None:
        raise AssertionError("read the index before the target was known to be writable")

    monkeypatch.setattr(exporting.IndexReader, "entries", no_work)
    with pytest.raises(UsageError):
        export(folder, [str(tmp_path / "good.jsonl"), str(tmp_path / target)])
    assert not (tmp_path / "good.jsonl").exists()
    assert [p.name for p in tmp_path.iterdir() if "part" in p.name] == []


def test_a_failed_export_leaves_the_old_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled(tmp_path)
    target = tmp_path / "p.jsonl"
    target.write_text("old")
    target.chmod(0o640)

    def fail(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", fail)
        with pytest.raises(ArchiveError, match="No space left"):
            export(folder, [str(target)])
    assert target.read_text() == "old"
    export(folder, [str(target)])
    assert len(target.read_text().splitlines()) == 6
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["crawl", "p.jsonl"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_takes_bytes_and_is_never_replaced(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No space left"):
        export(filled(tmp_path), ["/dev/full"])
    assert Path("/dev/full").is_char_device()


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    export(filled(tmp_path), [str(tmp_path / "link.jsonl")])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len((tmp_path / "real.jsonl").read_text().splitlines()) == 6


def gunzip(payload: bytes, coding: str) -> bytes:
    return gzip.decompress(payload) if coding == "gzip" else payload


def test_text_and_links_come_from_the_archived_page(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    page = '<html><title>T</title><body><p>Grüße</p><a href="/next#x">n</a><a rel=nofollow href="b">b</a></body>'
    writer, index = writer_in(folder), IndexWriter(folder, "aa11")
    cases = [
        ("http://h.test/utf8", "text/html; charset=utf-8", page.encode(), b""),
        ("http://h.test/latin1", "text/html; charset=iso-8859-1", page.encode("latin-1"), b""),
        ("http://h.test/gzip", "text/html; charset=utf-8", gzip.compress(page.encode()), b"gzip"),
        ("http://h.test/plain", "text/plain; charset=utf-8", "Grüße <b>".encode(), b""),
        ("http://h.test/image", "image/png", b"\x89PNG", b""),
    ]
    for number, (url, content_type, body, coding) in enumerate(cases):
        headers = ((b"Content-Type", content_type.encode()),) + (((b"Content-Encoding", coding),) if coding else ())
        place, _ = writer.add(response(number, url=url, raw_body=body, headers=headers))
        index.add(entry(number, url=url, mime=content_type.partition(";")[0], warc=place))
    lost = WarcLocation(file=place.file, offset=place.offset + 1, length=place.length)
    index.add(entry(8, url="http://h.test/unreadable", warc=lost))
    writer.close()
    index.close()
    summary = export(folder, [str(tmp_path / "p.jsonl")], columns=("text", "links"), decode=gunzip)
    found = {r["url"].rpartition("/")[2]: r for r in map(json.loads, (tmp_path / "p.jsonl").read_text().splitlines())}
    for name in ("utf8", "latin1", "gzip"):
        assert "Grüße" in found[name]["text"]
        assert "<p>" not in found[name]["text"]
        assert found[name]["links"] == ["http://h.test/next", "http://h.test/b"]
    assert (found["plain"]["text"], found["plain"]["links"]) == ("Grüße <b>", [])
    assert (found["image"]["text"], found["image"]["links"]) == (None, None)
    assert (found["unreadable"]["text"], found["unreadable"]["links"]) == (None, None)
    assert summary.missing == [MissingFile(f"warc/{place.file}", "records not readable", 1)]
    assert summary.records == 6
