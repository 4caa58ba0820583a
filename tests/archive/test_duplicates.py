"""Bodies that a file has once: what refers to them, and what a prune, a forget or damage makes of both."""

import shutil
from itertools import count
from pathlib import Path

import pytest
from archive_samples import AT, folder_in, response, writer_in
from fastwarc.warc import ArchiveIterator as FastIterator
from prune_lab import Killed, prune
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from crawler.archive.duplicates import URL_MAX, Duplicates, body_key
from crawler.archive.earlier_pages import EarlierPages
from crawler.archive.folder import CrawlFolder, open_existing
from crawler.archive.forget_files import ForgetFiles
from crawler.archive.index_reader import IndexReader
from crawler.archive.index_writer import IndexWriter
from crawler.archive.prune_records import PruneRule
from crawler.archive.repair import take_damage_out
from crawler.archive.warc_reader import read_content
from crawler.archive.warc_web import RecordedWeb
from crawler.errors import ArchiveError
from crawler.model import REVISIT, CommitEntry, Response
from crawler.rules.forgotten import Named

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
RUN = "job1.1.20260101T000000"


def image(number: int, host: str = "a.test", body: bytes = PNG) -> Response:
    url = f"http://{host}/{number}.png"
    headers = ((b"Content-Type", b"image/png"), (b"ETag", b'"%d"' % number), (b"Content-Length", b"%d" % len(body)))
    return response(number, url=url, headers=headers, raw_body=body)


class Lab:
    """Archives pages one by one as the archive stage does it, each indexed before the next."""

    def __init__(self, folder: CrawlFolder, **settings: int) -> None:
        self.folder, self.duplicates = folder, Duplicates()
        self.writer = writer_in(folder, **settings)
        self.index = IndexWriter(folder, "aa11", lines_max=3)
        self.bodies: dict[str, bytes] = {}

    def add(self, one: Response, *, user: str = "", is_indexed: bool = True, run: str = "") -> CommitEntry:
        self.bodies[one.url] = one.raw_body
        key = body_key(user, one.url.split("/")[2], one.raw_body)
        original = self.duplicates.find(key, self.writer)
        if original is None:
            place, digest = self.writer.add(one)
            self.duplicates.stored(key, one, place, digest, self.writer.last_id)
        else:
            place, digest = self.writer.add_duplicate(one, original)
        self.writer.sync()
        entry = CommitEntry(
            url=one.url, mime=REVISIT if original else "image/png", status_text="200", visit=1, head_digest="h",
            fingerprint=str(abs(hash(one.url)) >> 8), fetched_at=one.started_at, digest=digest, run=run,
        ).placed(place, None)  # fmt: skip
        if original is not None:
            entry = entry.referring(original.place)
        self.index.add(entry)
        self.index.sync()
        if is_indexed:
            self.duplicates.indexed(entry)
        return entry

    def close(self) -> None:
        self.writer.close()
        self.index.close()


def judge(folder: CrawlFolder, bodies: dict[str, bytes]) -> set[str]:
    """The pages that are left: each has its own headers and its whole body."""
    reader, left = IndexReader(folder), set[str]()
    for entry in reader.entries():
        stored = read_content(folder, entry)
        number = entry.url.rpartition("/")[2].removesuffix(".png")
        assert (stored.uri, stored.payload, stored.status) == (entry.url, bodies[entry.url], 200)
        assert stored.header("etag") == f'"{number}"'
        left.add(entry.url)
    assert reader.missing == []
    return left


def archived(tmp_path: Path, hosts: tuple[str, ...] = ("a.test", "b.test"), images: int = 6) -> Lab:
    lab = Lab(folder_in(tmp_path))
    for number in range(images):
        for host in hosts:
            lab.add(image(number, host))
    lab.close()
    return lab


def test_a_body_is_stored_once_in_a_file_that_all_readers_take(tmp_path: Path) -> None:
    lab = archived(tmp_path)
    (path,) = lab.folder.warc.iterdir()
    checker = Checker(type("Options", (), {"inputs": [str(path)], "verbose": False}))
    checker.process_all()
    assert checker.exit_value == 0
    with path.open("rb") as file:
        found = [(one.rec_type, dict(one.rec_headers.headers)) for one in ArchiveIterator(file, check_digests="raise")]
    with path.open("rb") as file:
        assert all(one.verify_block_digest() for one in FastIterator(file, parse_http=False))
    whole = {fields["WARC-Record-ID"]: fields for kind, fields in found if kind == "response"}
    again = [fields for kind, fields in found if kind == "revisit"]
    assert (len(whole), len(again)) == (2, 10)
    for fields in again:
        original = whole[fields["WARC-Refers-To"]]
        assert fields["WARC-Profile"].endswith("/identical-payload-digest")
        assert fields["WARC-Payload-Digest"] == original["WARC-Payload-Digest"]
        assert fields["WARC-Refers-To-Target-URI"] == original["WARC-Target-URI"]
        assert fields["WARC-Refers-To-Date"] == original["WARC-Date"]
        assert fields["WARC-Target-URI"].split("/")[2] == original["WARC-Target-URI"].split("/")[2]
    assert judge(lab.folder, lab.bodies) == lab.bodies.keys()


def test_a_replay_has_the_own_headers_and_the_body(tmp_path: Path) -> None:
    lab = archived(tmp_path)
    web = RecordedWeb([lab.folder.root])
    for url, body in lab.bodies.items():
        found = web.read(url)
        assert found is not None
        assert (found.status, found.body) == (200, body)
        number = url.rpartition("/")[2].removesuffix(".png")
        assert (b"ETag", b'"%b"' % number.encode()) in found.headers


def test_what_is_not_indexed_or_of_others_is_no_original(tmp_path: Path) -> None:
    lab = Lab(folder_in(tmp_path))
    lab.add(image(0), is_indexed=False)
    assert lab.add(image(1), is_indexed=False).original is None, "its line may never come"
    lab.duplicates.indexed(lab.add(image(2, body=PNG[1:])))
    first = lab.add(image(3))
    assert first.original is None
    assert lab.add(image(4)).original == first.warc
    assert lab.add(image(5, "b.test")).original is None, "of another domain"
    assert lab.add(image(6), user="ann").original is None, "of another user"
    assert lab.add(image(7, body=PNG + b"x")).original is None
    lab.close()


def test_an_original_is_in_the_same_file(tmp_path: Path) -> None:
    lab = Lab(folder_in(tmp_path), warc_bytes_max=1_000_000)
    noise = b"".join(n.to_bytes(4, "big") for n in range(0, 4_000_000_000, 20_011))
    entries = [lab.add(image(n)) for n in range(3)]
    lab.add(image(3, body=noise))
    lab.add(image(4, body=noise[::-1]))
    entries += [lab.add(image(n)) for n in range(5, 8)]
    lab.close()
    files = {entry.warc.file for entry in entries if entry.warc}
    assert len(files) == 2
    assert sum(entry.original is None for entry in entries) == 2, "one in each file"
    assert all(one.original.file == one.warc.file for one in entries if one.original and one.warc)
    assert judge(lab.folder, lab.bodies) == lab.bodies.keys()


def test_a_file_that_found_no_room_is_referred_to_no_more(tmp_path: Path) -> None:
    lab = Lab(folder_in(tmp_path))
    lab.add(image(0))
    lab.writer.drop_unwritten()
    assert lab.add(image(1)).original is None
    assert lab.add(image(2)).original is not None
    lab.close()


def test_known_bodies_are_bounded(tmp_path: Path) -> None:
    lab = Lab(folder_in(tmp_path))
    lab.duplicates = Duplicates(originals_max=4)
    for number in range(6):
        lab.add(image(number, body=PNG + bytes([number])))
    assert lab.add(image(10, body=PNG + bytes([5]))).original is not None
    assert lab.add(image(11, body=PNG + bytes([0]))).original is None, "forgotten, and archived again"
    for number in range(20, 30):
        lab.add(image(number, body=PNG + bytes([number])), is_indexed=False)
    assert len(lab.duplicates._waiting) <= 2
    long = image(40, host="a.test/" + "x" * URL_MAX, body=PNG * 2)
    lab.add(long)
    assert lab.add(image(41, body=PNG * 2)).original is None, "too long to be remembered"
    lab.close()


OLD = PruneRule(before=AT + 3)


def test_a_prune_keeps_a_body_as_long_as_a_page_needs_it(tmp_path: Path) -> None:
    lab = archived(tmp_path)
    figures = prune(lab.folder, OLD)
    assert figures.waiting == {"unchanged": 2}, "the two originals"
    left = judge(lab.folder, lab.bodies)
    assert left == {url for url in lab.bodies if url[-5] in "0345"}
    assert all(one.original is None or one.original.file.count("p1") for one in IndexReader(lab.folder).entries())
    prune(lab.folder, PruneRule(before=AT + 100))
    assert (judge(lab.folder, lab.bodies), list(lab.folder.warc.iterdir())) == (set(), [])


@pytest.mark.slow(ci=True)
def test_a_prune_that_is_killed_anywhere_keeps_bodies_with_pages(tmp_path: Path) -> None:
    made = archived(tmp_path)
    for number in count():
        folder = open_existing(shutil.copytree(made.folder.root, tmp_path / str(number)))
        left_to_go = number

        def step(name: str) -> None:
            nonlocal left_to_go
            left_to_go -= 1
            if left_to_go < 0:
                raise Killed

        try:
            prune(folder, OLD, step=step)
        except Killed:
            prune(folder, OLD)
            assert judge(folder, made.bodies) == {url for url in made.bodies if url[-5] in "0345"}
        else:
            break
    assert number > 5


@pytest.mark.parametrize("forgotten", ["a.test", "b.test"])
def test_a_forgotten_domain_takes_nothing_from_others(tmp_path: Path, forgotten: str) -> None:
    lab = archived(tmp_path)
    files = ForgetFiles([lab.folder], Named(forgotten), forgotten=None, has_all=True, step=lambda _: None)
    files.settle()
    files.read()
    files.change_files(dry_run=False)
    files.drop_lines(lab.folder, keeps_keys=False)
    files.close()
    assert judge(lab.folder, lab.bodies) == {url for url in lab.bodies if forgotten not in url}


def test_damage_to_a_body_is_told_for_each_page_that_needs_it(tmp_path: Path) -> None:
    lab = archived(tmp_path, hosts=("a.test",))
    entries = list(IndexReader(lab.folder).entries())
    (original,) = {one.original for one in entries if one.original}
    path = lab.folder.warc / original.file
    data = bytearray(path.read_bytes())
    data[original.offset + 40 : original.offset + 48] = b"\xff" * 8
    path.write_bytes(data)
    for _ in range(2):
        for entry in IndexReader(lab.folder).entries():
            with pytest.raises(ArchiveError):
                read_content(lab.folder, entry)
        take_damage_out(lab.folder, path.name, [lab.folder])


def test_another_body_at_the_place_is_never_taken(tmp_path: Path) -> None:
    lab = Lab(folder_in(tmp_path))
    other = lab.add(image(0, body=PNG[::-1]))
    lab.add(image(1))
    again = lab.add(image(2))
    lab.close()
    with pytest.raises(ArchiveError):
        read_content(lab.folder, again.referring(other.warc))


def test_no_run_asks_about_a_page_whose_headers_are_elsewhere(tmp_path: Path) -> None:
    """Its ETag is in its own record, and its body in another one's: all of it is requested."""
    lab = Lab(folder_in(tmp_path))
    lab.add(image(0), run=RUN)
    lab.add(image(1), run=RUN)
    lab.close()
    later = "job1.1.20260102T000000"
    pages = EarlierPages(lab.folder)
    assert pages.find(image(0).url, later, "h") is not None
    assert pages.find(image(1).url, later, "h") is None
