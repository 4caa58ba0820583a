"""`crawler export --wacz`: a ZIP that replay programs open, with committed records alone, or no file at all."""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from warcio.archiveiterator import WARCIterator

from crawler.archive.folder import CrawlFolder, open_existing, open_or_create
from crawler.archive.index_writer import IndexWriter
from crawler.archive.warc import Original
from crawler.archive.warc_reader import read_head
from crawler.archive.warc_writer import WarcWriter
from crawler.cli.main import main
from crawler.errors import ArchiveError, UsageError
from crawler.model import REQUISITE, REVISIT, SITEMAP, WITHHELD, Request
from crawler.outputs import wacz_package
from crawler.outputs.export import Wanted
from crawler.outputs.wacz import WaczSummary, export_wacz
from crawler.runtime.crash_points import VARIABLE
from crawler.settings import ArchiveSettings
from tests.archive.archive_samples import entry, folder_in, response, writer_in
from tests.support.disks import fill

BAD, DISK, KILLED = 2, 5, -9
RUNS = ("0123456789.1.1", "0123456789.1.2")


def filled(root: Path, count: int = 12, *, first: int = 0) -> CrawlFolder:
    """Pages of three hosts in two WARC files, the first page a seed; and the record of a page that nobody committed."""
    folder = open_or_create(root)
    index = IndexWriter(folder, "aa11", lines_max=5)
    writer = writer_in(folder)
    for number in range(first, first + count):
        got = response(number)
        place, digest = writer.add(got)
        writer.sync()
        index.add(replace(entry(number, warc=place, digest=digest), url=got.url, depth=0 if number == 7 else 1))
    writer.add(response(900))
    writer.close()
    index.close()
    return folder


def written(folder: CrawlFolder | list[CrawlFolder], path: Path, **wanted: Any) -> WaczSummary:
    folders = folder if isinstance(folder, list) else [folder]
    return export_wacz(folders, path, path.name, Wanted(**wanted))


class Opened:
    """What a replay program reads of a file."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None
            self.kinds = {one.filename: one.compress_type for one in file.infolist()}
            self.files = {name: file.read(name) for name in file.namelist()}
        self.package = json.loads(self.files["datapackage.json"])
        pages = [json.loads(line) for line in self.files["pages/pages.jsonl"].splitlines()]
        assert pages[0]["format"] == "json-pages-1.0"
        self.pages = pages[1:]
        self.blocks = self.files["indexes/index.idx"].decode().splitlines()[1:]
        self.lines = b"".join(self._block(line) for line in self.blocks).splitlines()
        self.index = [json.loads(line.split(b" ", 2)[2]) for line in self.lines]

    def _block(self, line: str) -> bytes:
        key, moment, fields = line.split(" ", 2)
        place = json.loads(fields)
        packed = self.files["indexes/index.cdx.gz"][place["offset"] :][: place["length"]]
        assert place["digest"] == f"sha256:{hashlib.sha256(packed).hexdigest()}"
        block = gzip.decompress(packed)
        assert block.startswith(f"{key} {moment} ".encode())
        return block

    def record(self, line: dict[str, str]) -> Any:
        """As an archive reader gets it, by its place."""
        data = self.files[f"archive/{line['filename']}"][int(line["offset"]) :][: int(line["length"])]
        (record,) = list(WARCIterator(io.BytesIO(data)))
        return record

    @property
    def urls(self) -> list[str]:
        return [line["url"] for line in self.index]

    def judge(self) -> None:
        """By the specification, and by another program's check of each record."""
        listed = {one["path"]: one for one in self.package["resources"]}
        assert listed.keys() == self.files.keys() - {"datapackage.json", "datapackage-digest.json"}
        for path, one in listed.items():
            data = self.files[path]
            assert (one["hash"], one["bytes"]) == (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
            assert path.endswith("." + one["name"].rpartition(".")[2])
        digest = json.loads(self.files["datapackage-digest.json"])
        wanted = f"sha256:{hashlib.sha256(self.files['datapackage.json']).hexdigest()}"
        assert digest == {"path": "datapackage.json", "hash": wanted}
        assert (self.package["profile"], self.package["wacz_version"]) == ("data-package", "1.1.1")
        assert self.lines == sorted(self.lines)
        assert all(self.kinds[name] == zipfile.ZIP_STORED for name in self.kinds if name.endswith(".gz"))
        for line in self.index:
            fields = self.record(line).rec_headers
            assert fields.get_header("WARC-Target-URI") == line["url"]
            assert fields.get_header("WARC-Payload-Digest") == line["digest"]
        for name in self.files:
            if name.startswith("archive/"):
                for record in WARCIterator(io.BytesIO(self.files[name]), check_digests="raise"):
                    record.content_stream().read()


def test_it_has_what_was_committed_with_index_and_pages(tmp_path: Path) -> None:
    folder, path = filled(tmp_path / "crawl"), tmp_path / "a.wacz"
    summary = written(folder, path)
    found = Opened(path)
    assert (summary.records, summary.pages, summary.missing) == (12, 12, [])
    assert sorted(found.urls) == sorted(response(number).url for number in range(12)), "not the one of no commit"
    requests = [record.rec_type for record in WARCIterator(io.BytesIO(found.files["archive/data-00001.warc.gz"]))]
    assert requests == ["warcinfo", *["response", "request"] * 12]
    assert found.pages[0] == {
        "id": found.pages[0]["id"], "url": response(7).url, "ts": "2024-05-01T12:00:07.250Z", "title": "Title 7",
        "seed": True,
    }  # fmt: skip
    assert (found.package["mainPageUrl"], found.package["title"]) == (response(7).url, "Title 7")
    assert len({page["id"] for page in found.pages}) == 12
    assert summary.bytes == path.stat().st_size


def test_its_warc_files_tell_who_crawled(tmp_path: Path) -> None:
    """As far as those of all folders agree."""
    folders = []
    for name, operator in (("one", "https://us.example/"), ("other", "https://them.example/")):
        folder = open_or_create(tmp_path / name)
        about = {"operator": operator, "robots": "obey"}
        writer = WarcWriter(
            folder, prefix="main", session="aa11", settings=ArchiveSettings(), software="crawler/0", about=about
        )
        index = IndexWriter(folder, "aa11")
        place, digest = writer.add(response(1))
        index.add(entry(1, warc=place, digest=digest))
        writer.close()
        index.close()
        folders.append(folder)
    for some, wanted in ((folders[:1], {"operator", "robots"}), (folders, {"robots"})):
        written(some, tmp_path / "a.wacz")
        first = next(WARCIterator(io.BytesIO(Opened(tmp_path / "a.wacz").files["archive/data-00001.warc.gz"])))
        block = first.content_stream().read()
        assert {name for name in ("operator", "robots") if f"{name}: ".encode() in block} == wanted


def test_parts_and_blocks_have_right_places_and_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wacz_package, "PART_BYTES", 3_000)
    monkeypatch.setattr(wacz_package, "BLOCK_LINES", 5)
    path = tmp_path / "a.wacz"
    written(filled(tmp_path / "crawl"), path)
    found = Opened(path)
    assert len(found.blocks) == 3
    assert len([name for name in found.files if name.startswith("archive/")]) > 2
    found.judge()


def test_the_library_of_the_format_finds_it_valid(tmp_path: Path) -> None:
    pytest.importorskip("wacz", reason="the wacz library is not installed")
    written(filled(tmp_path / "crawl"), tmp_path / "a.wacz")
    command = [sys.executable, "-m", "wacz", "validate", "-f", str(tmp_path / "a.wacz")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, "the passed WACZ is valid" in done.stdout) == (0, True), done.stdout


def test_several_folders_with_files_of_one_name_are_one_archive(tmp_path: Path) -> None:
    """A page that both have, as after a failover of the engine, is there once."""
    one, other = filled(tmp_path / "one", 4), filled(tmp_path / "other", 4, first=3)
    assert [path.name for path in one.warc.iterdir()] == [path.name for path in other.warc.iterdir()]
    summary = written([one, other], tmp_path / "a.wacz")
    found = Opened(tmp_path / "a.wacz")
    assert sorted(found.urls) == sorted(response(number).url for number in range(7))
    assert summary.records == 7
    found.judge()


def test_what_is_no_page_is_there_and_not_listed(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index, writer = IndexWriter(folder, "aa11"), writer_in(folder)
    kinds: list[dict[str, Any]] = [
        {"mime": "image/png"}, {"status_text": "404"}, {"label": SITEMAP}, {}, {"mime": "application/pdf"},
        {"request": Request(method="POST", body_digest="0"), "request_body": "a=1"},
    ]  # fmt: skip
    for number, kind in enumerate(kinds):
        place, digest = writer.add(response(number))
        index.add(entry(number, warc=place, digest=digest, **kind))
    index.add(entry(50, mime=WITHHELD))
    index.add(entry(51))
    writer.close()
    index.close()
    summary = written(folder, tmp_path / "a.wacz")
    found = Opened(tmp_path / "a.wacz")
    assert {page["url"] for page in found.pages} == {response(3).url, response(4).url}
    assert (summary.records, summary.counts.withheld, summary.counts.unarchived) == (6, 1, 1)
    (posted,) = [line for line in found.index if line.get("method")]
    assert (posted["method"], posted["requestBody"]) == ("POST", "a=1")
    assert any(line.startswith(b"test,d2)/page/5?__wb_method=post&a=1 ") for line in found.lines)
    found.judge()


def two_runs(tmp_path: Path, *, original_is_there: bool = True) -> CrawlFolder:
    """A page, which is unchanged in the run after; and one that only the second run has."""
    folder = folder_in(tmp_path)
    index, writer = IndexWriter(folder, "aa11"), writer_in(folder)
    place, digest = writer.add(response(1))
    writer.sync()
    head = read_head(folder, place)
    assert head is not None
    first = entry(1, warc=place, digest=digest, run=RUNS[0])
    if original_is_there:
        index.add(first)
    original = Original(place=place, record_id=head.record_id, date=head.date, digest=digest, mime="text/html")
    again, _ = writer.add(response(1, raw_body=b"", status=304, started_at=response().started_at + 99), "", original)
    index.add(
        entry(
            1, warc=again, digest=digest, run=RUNS[1], fingerprint="5", status_text="304", mime=REVISIT,
            fetched_at=first.fetched_at + 98, original_mime="text/html",
        ).referring(place)
    )  # fmt: skip
    place, digest = writer.add(response(2))
    index.add(entry(2, warc=place, digest=digest, run=RUNS[1]))
    writer.close()
    index.close()
    return folder


def test_a_run_brings_the_records_that_its_pages_are_unchanged_from(tmp_path: Path) -> None:
    summary = written(two_runs(tmp_path), tmp_path / "a.wacz", run=RUNS[1])
    found = Opened(tmp_path / "a.wacz")
    assert [(line["url"], line["mime"], line["status"]) for line in found.index] == [
        (response(1).url, "text/html", "200"), (response(1).url, REVISIT, "200"), (response(2).url, "text/html", "200"),
    ]  # fmt: skip
    assert (summary.records, summary.counts.originals) == (3, 1)
    found.judge()
    whole = written(two_runs(tmp_path / "b"), tmp_path / "b.wacz")
    assert (whole.records, whole.counts.originals) == (3, 0)


def test_a_run_brings_what_its_pages_show_of_any_run(tmp_path: Path) -> None:
    """It is fetched once for all runs; --domain holds for it."""
    folder = two_runs(tmp_path)
    index, writer = IndexWriter(folder, "bb22"), writer_in(folder, "bb22")
    for number in (7, 8):
        place, digest = writer.add(response(number))
        index.add(entry(number, warc=place, digest=digest, label=REQUISITE, mime="image/png"))
    writer.close()
    index.close()
    summary = written(folder, tmp_path / "a.wacz", run=RUNS[1])
    assert {response(7).url, response(8).url} < set(Opened(tmp_path / "a.wacz").urls)
    assert (summary.records, summary.pages) == (5, 3)
    written(folder, tmp_path / "a.wacz", run=RUNS[1], of_url=lambda url: "//d2." in url)
    assert set(Opened(tmp_path / "a.wacz").urls) == {response(2).url, response(8).url}


def test_pages_whose_record_is_gone_are_left_out_with_a_number(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)
    for path in folder.index.iterdir():
        path.unlink()
    index = IndexWriter(folder, "bb22")
    index.add(replace(entry(3), pruned=True))
    index.close()
    with pytest.raises(UsageError, match="1 removed by 'crawler prune'"):
        written(folder, tmp_path / "a.wacz")
    index = IndexWriter(folder, "cc33")
    (file,) = folder.warc.iterdir()
    place = {"warc_file": file.name, "warc_offset": "5", "warc_length": "5"}
    index.add(replace(entry(1, mime=REVISIT), **place).referring(replace(entry(1), **place).warc))
    place, digest = (writer := writer_in(folder, "dd44")).add(response(2))
    writer.close()
    index.add(entry(2, warc=place, digest=digest))
    index.close()
    summary = written(folder, tmp_path / "a.wacz")
    assert (summary.records, summary.counts.without_original, summary.counts.pruned) == (1, 1, 1)


def test_a_crawl_without_records_says_why_there_is_no_file(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index = IndexWriter(folder, "aa11")
    index.add(entry(1))
    index.close()
    with pytest.raises(UsageError, match=r"1 without a record \(archive.warc was off\); no file was made"):
        written(folder, tmp_path / "a.wacz")


def test_only_what_is_wanted_is_in_it(tmp_path: Path) -> None:
    folder, path = filled(tmp_path / "crawl"), tmp_path / "a.wacz"
    summary = written(folder, path, of_url=lambda url: "//d1.test/" in url, since=entry(5).fetched_at - 5)
    assert {url.split("/")[2] for url in Opened(path).urls} == {"d1.test"}
    assert 0 < summary.records < 12
    with pytest.raises(UsageError, match="nothing was found to write"):
        written(folder, path, since=9e9)
    assert summary.records == len(Opened(path).index), "it stays"


def test_a_damaged_record_is_left_out_and_told(tmp_path: Path) -> None:
    folder, path = filled(tmp_path / "crawl"), tmp_path / "a.wacz"
    (file,) = folder.warc.iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    summary = written(folder, path)
    (missing,) = summary.missing
    assert missing.file == f"warc/{file.name}"
    assert summary.records + missing.entries == 12
    Opened(path).judge()
    assert main(["export", "--dir", str(folder.root), "--wacz", str(path)]) == DISK


def test_a_full_disk_is_one_line_and_leaves_nothing(disk: Path, tmp_path: Path) -> None:
    folder = filled(tmp_path / "crawl", 60)
    fill(disk, pages_left=3)
    with pytest.raises(ArchiveError, match="free some space") as error:
        written(folder, disk / "a.wacz")
    assert "\n" not in str(error.value)
    assert {one.name for one in disk.iterdir()} == {"ballast"}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("step", ["record#5", "whole", "named"])
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path, step: str) -> None:
    folder, path = filled(tmp_path / "crawl"), tmp_path / "a.wacz"
    path.write_bytes(b"old")
    command = [sys.executable, "-m", "crawler", "export", "--dir", str(folder.root), "--wacz", str(path)]
    name, _, number = step.partition("#")
    point = f"wacz.step@{name}{f'#{number}' if number else ''}=kill"
    done = subprocess.run(command, env={VARIABLE: point, "PATH": ""}, check=False, capture_output=True)
    assert done.returncode == KILLED, done.stderr
    if step == "named":
        assert len(Opened(path).index) == 12
    else:
        assert path.read_bytes() == b"old"
        assert [one for one in tmp_path.iterdir() if one.suffix == ".part"]
    written(folder, path)
    assert {one.name for one in tmp_path.iterdir()} == {"a.wacz", "crawl"}, "no draft is left"
    Opened(path).judge()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wacz", "a.zip"], "a WACZ file is named FILE.wacz"),
        (["--wacz", "no/a.wacz"], "folder does not exist: no"),
        (["--wacz", "a.wacz", "-o", "b.csv"], "leave out -o"),
        (["--wacz", "a.wacz", "--unique", "exact"], "leave out -o"),
        (["--wacz", "a.wacz", "--changed"], "add --run ID"),
        (["--wacz", "a.wacz", "--dir", "crawl"], "a folder is named twice"),
        (["--wacz", "a.wacz", "--dir", "none"], "none is not a crawl folder"),
        (["--wacz", "a.wacz", "--domain", "nowhere.test"], "nothing was found to write"),
        (["-o", "a.jsonl", "--dir", "crawl"], "several folders are of --wacz"),
    ],
)
def test_what_can_not_be_done_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    filled(tmp_path / "crawl", 3)
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--dir", "crawl", *arguments]) == BAD
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert {one.name for one in tmp_path.iterdir()} == {"crawl"}


def test_the_command_says_what_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path / "crawl", 3)
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--dir", "crawl", "--wacz", "a.wacz", "--domain", "d1.test"]) == 0
    assert capsys.readouterr().err.startswith("1 page written to a.wacz (")
    assert open_existing(tmp_path / "crawl").warc.exists()
