"""A domain's records, items and lines leave a folder; whatever a kill leaves, the rest stays byte for byte."""

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from crawler.archive import index_writer
from crawler.archive.forget_files import ForgetFiles, target_of
from crawler.archive.items import ItemFiles
from crawler.archive.repair import Flaw, IndexLine, walk_lines, walk_responses
from crawler.archive.warc import Kind
from crawler.archive.warc_reader import read_record
from crawler.rules.forgotten import ForgottenDomain, Named, digest_of, forgotten_of
from tests.archive.archive_samples import entry, response, writer_in
from tests.archive.prune_lab import Archive, Killed, Page, archive

KEY = b"k" * 16


def domain_of(number: int) -> str:
    return Named(entry(number).url.split("/")[2]).domain


def made_in(tmp_path: Path, seed: int) -> Archive:
    """Pages of several sessions, some with items, some that were never committed, some with lines of two sessions."""
    chance = random.Random(seed)
    pages = [
        Page(
            number=n, session=chance.choice(("aa11", "bb22")), items=chance.choice((0, 1, 3)),
            indexed_by=chance.choice((("aa11",), ("bb22",), ("aa11", "bb22"), ())),
        )
        for n in range(40)
    ]  # fmt: skip
    return archive(tmp_path, pages, lines_max=5)


def forget(made: Archive, *some: Named, step: Any = lambda _: None) -> ForgetFiles:
    """Of several domains the first one; the crawl has all of them on its list."""
    named = some[0]
    forgotten = forgotten_of([ForgottenDomain(digest=digest_of(one.domain, KEY), at=1.0) for one in some], KEY)
    files = ForgetFiles([made.folder], named, forgotten=forgotten, has_all=True, step=step)
    try:
        files.settle()
        files.read()
        files.change_files(dry_run=False)
        files.drop_lines(made.folder, keeps_keys=False)
    finally:
        files.close()
    return files


def contents(made: Archive, named: Named) -> dict[str, Any]:
    """Of the pages of other domains, as their lines lead there."""
    found: dict[str, Any] = {}
    with ItemFiles(made.folder) as files:
        for line in walk_lines(made.folder):
            assert isinstance(line, IndexLine), line
            one = line.entry
            if not named.owns(one.url):
                record = read_record(made.folder, one.warc) if one.warc else None
                found[one.url] = record, files.items(one.items) if one.items else None
    return found


def is_gone(made: Archive, named: Named) -> None:
    for path in (*made.folder.warc.iterdir(), *made.folder.items.iterdir()):
        assert not named.is_in(gzip.decompress(path.read_bytes())), path
    for path in made.folder.index.iterdir():
        assert not named.is_in(path.read_bytes())
    assert [found for found in walk_responses(made.folder) if isinstance(found, Flaw)] == []


@pytest.mark.parametrize("seed", range(6))
def test_a_domain_goes_and_the_others_stay(tmp_path: Path, seed: int) -> None:
    made, named = made_in(tmp_path, seed), Named(entry(3).url.split("/")[2])
    before = contents(made, named)
    forget(made, named)
    is_gone(made, named)
    assert contents(made, named) == before
    again = forget(made, named).figures
    assert (again.pages, again.records, again.files_rewritten, again.files_removed) == (0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_kills_at_any_step_and_within_the_index_lose_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, chance = made_in(tmp_path, seed), random.Random(seed)
    names = sorted({entry(n).url.split("/")[2] for n in range(40)})
    wanted = [Named(name) for name in chance.sample(names, 2)]
    before = contents(made, wanted[0])
    replace, left = index_writer.replace_segment, [0]

    def end_soon(*_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    def replaced(*given: Any, **more: Any) -> None:
        end_soon()
        replace(*given, **more)

    monkeypatch.setattr(index_writer, "replace_segment", replaced)
    for _ in range(12):  # of one domain, or of the other
        left[0] = chance.randrange(1, 14)
        named = chance.choice(wanted)
        try:
            forget(made, named, *wanted, step=end_soon)
        except Killed:
            continue
    left[0] = 0
    for named in wanted:
        forget(made, named, *wanted)
    for named in wanted:
        is_gone(made, named)
    kept = {url: found for url, found in before.items() if not wanted[1].owns(url)}
    assert contents(made, wanted[0]) == kept


@pytest.mark.parametrize("has_all", [True, False])
def test_what_was_exchanged_besides_pages_goes_by_its_url(tmp_path: Path, has_all: bool) -> None:
    """Also where other folders are not given: no line of any would name it."""
    made, named = archive(tmp_path, [Page(number=1)]), Named("d0.test")
    writer = writer_in(made.folder, "ee55")
    for host in ("d0.test", "d1.test"):
        asked = f"GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        robots = response(url=f"http://{host}/robots.txt", raw_body=host.encode(), request_head=asked)
        writer.add_exchange(robots, Kind.ROBOTS)
        writer.add_failure(f"http://{host}/x", at=1.0, fields={"reason": "timeout"})
    writer.close()
    files = ForgetFiles([made.folder], named, forgotten=None, has_all=has_all, step=lambda _: None)
    files.read()
    files.change_files(dry_run=False)
    files.close()
    assert (files.figures.records, files.unreached) == (3, []), "the response, its request and the failure"
    text = b"".join(gzip.decompress(path.read_bytes()) for path in made.folder.warc.iterdir())
    assert b"d0.test" not in text
    assert text.count(b"Crawler-Kind: ") == 3


def test_lines_that_cannot_be_changed_keep_all_files(tmp_path: Path) -> None:
    made, named = made_in(tmp_path, 1), Named(entry(3).url.split("/")[2])
    segment = min(made.folder.index.iterdir())
    segment.write_bytes(segment.read_bytes().replace(b'"url"', b'"URL"', 1))
    before = {path: path.read_bytes() for path in (*made.folder.warc.iterdir(), *made.folder.items.iterdir())}
    files = forget(made, named)
    assert any("index to be mended" in why for _, why in files.unreached)
    assert {path: path.read_bytes() for path in (*made.folder.warc.iterdir(), *made.folder.items.iterdir())} == before


def test_what_only_another_folder_names_stays_until_that_is_named(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n, indexed_by=() if n == 1 else ("aa11",), items=1) for n in range(4)])
    named = Named(entry(3).url.split("/")[2])
    files = ForgetFiles([made.folder], named, forgotten=None, has_all=False, step=lambda _: None)
    files.read()
    files.change_files(dry_run=False)
    files.close()
    assert files.figures.files_rewritten == 0 or not named.owns(entry(1).url)
    assert all("--dir" in why for _, why in files.unreached)
    assert files.unreached


@pytest.mark.parametrize(
    ("head", "url"),
    [
        (b"WARC/1.1\r\nWARC-Target-URI: http://a.test/\r\n\r\n", "http://a.test/"),
        (b"WARC/1.1\r\nwarc-target-uri:<http://a.test/>\r\n\r\n", "http://a.test/"),
        (b"WARC/1.1\r\nWARC-Type: warcinfo\r\n\r\nWARC-Target-URI: http://a.test/\r\n", ""),
        (b"WARC/1.1\r\nWARC-Target-URI: urn:x\r\n\r\n", ""),
        (b"", ""),
    ],
)
def test_the_url_of_a_record(head: bytes, url: str) -> None:
    assert target_of(head) == url
