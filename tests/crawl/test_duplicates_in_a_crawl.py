"""A crawl whose pages bring one body several times: stored once, and there for everybody who wants it."""

import json
import shutil
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler import Crawler, Page
from crawler.archive.folder import open_existing
from crawler.archive.index_reader import IndexReader
from crawler.archive.warc_reader import read_content
from crawler.archive.warc_web import RecordedWeb
from crawler.model import CommitEntry
from crawler.runtime.crash_points import VARIABLE
from crawler.testing import Answer, Asked, crawl, serve
from tests.cli.cli_lab import crawler, in_process
from tests.support.processes import Nursery

BODY = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9
HTML = b"<!doctype html><p>" + b"the same " * 300
LINKS = {
    "": ("one.png", "same.html", "other.html"),
    "other.html": ("next.html",),
    "next.html": ("two.png", "three.png"),
}
PAGES = 7  # of each host


class Pictures:
    """The first picture is in the index before a page tells of the others, so which pages refer to it is certain."""

    hosts = ("a.test", "b.test", "club.test")

    def __init__(self, folder: Path) -> None:
        self._index = folder / "index"

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        parts = urlsplit(asked.url)
        name = parts.path[1:]
        if name == "robots.txt":
            return None
        if name == "next.html":
            self._wait_for(f'"url":"{parts.scheme}://{parts.netloc}/one.png"'.encode())
        links = "".join(f"<a href=/{one}>x</a>" for one in LINKS.get(name, ())).encode()
        kind, body = (b"image/png", BODY) if name.endswith("png") else (b"text/html", HTML + links)
        return Answer(headers=[(b"Content-Type", kind), (b"ETag", f'"{name}"'.encode())], body=body)

    def _wait_for(self, line: bytes) -> None:
        """Not for ever: the crawler may have been killed."""
        for _ in range(600):
            if any(line in path.read_bytes() for path in self._index.iterdir()):
                return
            time.sleep(0.005)


def crawled(
    folder: Path, *hosts: str, app: Crawler | None = None, settings: Mapping[str, Any] | None = None
) -> dict[str, CommitEntry]:
    """By URL."""
    with serve(Pictures(folder)) as web:
        crawl(app, [f"http://{host}/" for host in hosts], web=web, folder=folder, settings=settings)
    return {entry.url: entry for entry in IndexReader(open_existing(folder)).entries()}


def duplicates(entries: dict[str, CommitEntry]) -> set[str]:
    return {url for url, entry in entries.items() if entry.original is not None}


TWICE = {f"http://{host}/{name}.png" for host in ("a.test", "b.test") for name in ("two", "three")}


def judge(folder: Path, entries: dict[str, CommitEntry]) -> None:
    for url, entry in entries.items():
        stored = read_content(open_existing(folder), entry)
        if url.endswith("png"):
            assert stored.payload == BODY
            assert stored.header("etag") == f'"{url.rpartition("/")[2]}"'
            assert entry.content_type == "image/png"


def test_a_body_is_archived_once_and_is_there_for_everybody(tmp_path: Path, programs: Nursery) -> None:
    folder, app = tmp_path / "c", Crawler()

    @app.page()
    def every(page: Page) -> object:
        assert not page.is_unchanged
        yield {"url": page.url, "bytes": len(page.body)}

    entries = crawled(folder, "a.test", "b.test", app=app)
    assert duplicates(entries) == TWICE, "of one domain each, and no HTML"
    judge(folder, entries)
    (original,) = {one.original.file for one in entries.values() if one.original}
    with (folder / "warc" / original).open("rb") as file:
        kinds = [record.rec_type for record in ArchiveIterator(file, check_digests="raise")]
    assert kinds.count("revisit") == len(TWICE)

    def say(*words: str) -> str:
        ran = in_process(programs, *words, "--dir", str(folder), cwd=tmp_path)
        assert ran.code == 0, ran
        return ran.out

    say("audit")
    totals = json.loads(say("stats", "--json"))["totals"]
    assert (totals["duplicates"], totals["duplicate_bytes"]) == (len(TWICE), len(TWICE) * len(BODY))
    assert "4 pages, 9.03 KiB of bodies not archived again" in say("stats")
    exported = [json.loads(line) for line in say("export").splitlines()]
    assert {one["url"] for one in exported if one["content_type"] == "image/png"} >= TWICE
    say("export", "--wacz", str(tmp_path / "x.wacz"), "--domain", "a.test")
    with zipfile.ZipFile(tmp_path / "x.wacz") as packed:
        (tmp_path / "x.warc.gz").write_bytes(packed.read("archive/data-00001.warc.gz"))
    web = RecordedWeb([tmp_path / "x.warc.gz"])
    found = [web.read(f"http://a.test/{name}.png") for name in ("one", "two", "three")]
    assert [one.body for one in found if one is not None] == [BODY] * 3


def test_a_rebuild_and_a_replay_find_them(tmp_path: Path, programs: Nursery) -> None:
    folder = tmp_path / "c"
    entries = crawled(folder, "a.test", "b.test")
    assert duplicates(entries) == TWICE

    def saved() -> tuple[int, int]:
        totals = json.loads(in_process(programs, "stats", "--json", "--dir", str(folder), cwd=tmp_path).out)["totals"]
        return totals["duplicates"], totals["duplicate_bytes"]

    before = saved()
    assert before == (len(TWICE), len(TWICE) * len(BODY))
    shutil.rmtree(folder / "engine")
    ran = in_process(programs, "rebuild", "--dir", str(folder), cwd=tmp_path)
    assert saved() == before
    assert (ran.code, f"done     {len(entries)} (not fetched again)" in ran.out) == (0, True), ran
    assert in_process(programs, "audit", "--dir", str(folder), cwd=tmp_path).code == 0
    judge(folder, {one.url: one for one in IndexReader(open_existing(folder)).entries()})


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("of", ["one.png", "two.png"], ids=["before the body", "behind the body"])
@pytest.mark.parametrize("is_kept", [True, False], ids=["the engine kept", "the engine lost"])
def test_bodies_that_other_bytes_moved_are_found(tmp_path: Path, programs: Nursery, of: str, is_kept: bool) -> None:
    """And a prune still knows that pages need them."""
    folder = tmp_path / "c"
    entries = crawled(folder, "a.test")
    place = entries[f"http://a.test/{of}"].warc
    assert place is not None
    path = folder / "warc" / place.file
    data = path.read_bytes()
    path.write_bytes(data[: place.offset] + b"\xff" * 77 + data[place.offset :])
    if not is_kept:
        shutil.rmtree(folder / "engine")
    ran = in_process(programs, "rebuild", "--dir", str(folder), cwd=tmp_path)
    assert ran.code == 0, ran
    assert in_process(programs, "audit", "--dir", str(folder), cwd=tmp_path).code == 0
    found = {one.url: one for one in IndexReader(open_existing(folder)).entries()}
    judge(folder, found)
    assert {one.original for one in found.values() if one.original} == {found["http://a.test/one.png"].warc}


@pytest.mark.slow(ci=True)
def test_a_damaged_body_is_told_and_fetched_again_for_all_its_pages(tmp_path: Path, programs: Nursery) -> None:
    folder = tmp_path / "c"
    place = crawled(folder, "a.test", "b.test")["http://a.test/one.png"].warc
    assert place is not None
    path = folder / "warc" / place.file
    data = bytearray(path.read_bytes())
    data[place.offset + 40 : place.offset + 48] = b"\xff" * 8
    path.write_bytes(data)
    ran = in_process(programs, "rebuild", "--dir", str(folder), cwd=tmp_path)
    assert "3 committed pages can't be read" in ran.err, ran
    assert in_process(programs, "rebuild", "--dir", str(folder), "--refetch", cwd=tmp_path).code == 0
    entries = crawled(folder, "a.test", "b.test")
    assert len(entries) == 2 * PAGES
    judge(folder, entries)
    assert in_process(programs, "audit", "--dir", str(folder), cwd=tmp_path).code == 0


def test_a_crawl_that_wants_whole_records_gets_them(tmp_path: Path) -> None:
    entries = crawled(tmp_path / "c", "a.test", settings={"archive.duplicates": True})
    assert (duplicates(entries), len(entries)) == (set(), PAGES)


@pytest.mark.parametrize(
    "rule",
    [
        {"session": True},
        {"auth": "me:hush-word"},
        {"cookies": {"sid": "hush-cookie"}},
        {"headers": {"Authorization": "Bearer hush-word"}},
    ],
    ids=lambda rule: next(iter(rule)),
)
def test_what_a_session_or_a_secret_brings_is_with_its_page(tmp_path: Path, rule: dict[str, object]) -> None:
    entries = crawled(tmp_path / "c", "club.test", settings={"sites": [{"match": "http://club.test", **rule}]})
    assert (duplicates(entries), len(entries)) == (set(), PAGES)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("point", ["archive.written@0#3", "archive.synced#4", "ack.answered#4", "index.synced#2"])
def test_killed_anywhere_the_same_pages_are_whole(tmp_path: Path, programs: Nursery, point: str) -> None:
    folder = tmp_path / "c"
    with serve(Pictures(folder)) as web:
        words = ["crawl", "http://a.test/", "http://b.test/", "--dir", str(folder), "-q", "--delay", "0"]
        words += [f"--set={name}={value}" for name, value in web.settings.items() if name.startswith("fetch.")]
        killed = crawler(programs, *words, cwd=tmp_path, **web.environment, **{VARIABLE: f"{point}=kill"})
        done = crawler(programs, *words, cwd=tmp_path, **web.environment)
    assert done.code == 0, (killed, done)
    entries = {one.url: one for one in IndexReader(open_existing(folder)).entries()}
    assert len(entries) == 2 * PAGES
    judge(folder, entries)
    assert in_process(programs, "audit", "--dir", str(folder), cwd=tmp_path).code == 0
