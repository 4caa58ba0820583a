"""Outputs and exports next to prunes: no page is missed, whatever is removed and whenever."""

import contextlib
import threading
from pathlib import Path

import pytest

from crawler.archive.prune_records import PruneRule
from crawler.archive.read_segments import OutputsRead, ReadMarks
from crawler.outputs.export import export
from crawler.outputs.records import Items, Pages
from crawler.outputs.verify import compare
from tests.archive.archive_samples import AT, folder_in
from tests.archive.prune_lab import Page, archive, prune
from tests.outputs.growing import Crawl, lines_of, running, urls
from tests.outputs.samples import json_lines, target
from tests.support.patience import wait_until

EVERYTHING = PruneRule(before=AT + 10_000)


@pytest.fixture
def growing(tmp_path: Path) -> Crawl:
    return Crawl(tmp_path, lines_max=10)


def test_a_segment_goes_only_once_the_output_has_read_it_to_its_end(growing: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    growing.add(25)
    with running(growing.follower(path)):
        wait_until(lambda: not list(OutputsRead(growing.folder).waiting_for("aa11-00001.cdxj")))
        assert list(OutputsRead(growing.folder).waiting_for("aa11-00002.cdxj"))
        assert prune(growing.folder, EVERYTHING, readers_timeout_s=30.0).pages == 20  # the output looks all the time
        growing.add(10)
        wait_until(lambda: lines_of(path) == 35)
    growing.index.close()
    assert sorted(urls(path)) == sorted(growing.urls)
    left = prune(growing.folder, EVERYTHING)
    assert (left.pages, left.waiting) == (10, {"outputs": 5}), "the last segment was complete after the last look"
    with running(growing.follower(path)):
        growing.add(0)
    assert prune(growing.folder, EVERYTHING).pages == 5
    assert sorted(urls(path)) == sorted(growing.urls)


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.csv", "pages.parquet", "pages.sqlite"])
def test_an_output_has_no_page_too_many_for_having_pruned_ones(growing: Crawl, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    growing.add(25)
    growing.index.close()
    export(growing.folder, [target(path)], Pages(growing.folder))
    prune(growing.folder, PruneRule(before=AT + 10))
    found = compare([growing.folder], target(path), items=False)
    assert (found.wanted, found.missing, found.extra) == (15, 0, 0)


def test_what_was_pruned_is_not_written_again(growing: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    growing.add(20)
    growing.index.close()
    with running(growing.follower(path)):
        pass
    prune(growing.folder, PruneRule(before=AT + 5))
    path.unlink()
    with running(growing.follower(path)):
        pass
    assert sorted(urls(path)) == sorted(growing.urls[5:])


def test_an_output_that_begins_again_holds_prunes_up_until_it_has_read_everything(
    growing: Crawl, tmp_path: Path
) -> None:
    path = tmp_path / "pages.jsonl"
    growing.add(20)
    growing.index.close()
    with running(growing.follower(path)):
        pass
    path.unlink()
    follower = growing.follower(path)
    follower.open()
    with contextlib.closing(follower):
        assert prune(growing.folder, EVERYTHING).waiting == {"outputs": 20}


def test_a_file_that_an_export_wrote_whole_waits_for_nothing(growing: Crawl, tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    growing.add(20)
    follower = growing.follower(path)
    follower.open()
    follower.close()
    growing.index.close()
    assert prune(growing.folder, EVERYTHING).waiting == {"outputs": 20}
    export(growing.folder, [target(path)], Pages(growing.folder))
    assert prune(growing.folder, EVERYTHING).pages == 20


@pytest.mark.slow
def test_exports_while_pages_are_removed_have_each_page_that_is_left_with_its_items(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n, items=2) for n in range(48)])
    ended, problems, counts = threading.Event(), list[object](), list[int]()

    def export_again_and_again() -> None:
        while not ended.is_set():
            path = tmp_path / "items.jsonl"
            with contextlib.closing(Items(made.folder)) as source:
                summary = export(made.folder, [target(path)], source)
            problems.extend(summary.missing)
            counts.append(len(json_lines(path)))

    thread = threading.Thread(target=export_again_and_again)
    thread.start()
    try:
        for before in range(6, 49, 6):
            prune(made.folder, PruneRule(before=AT + before), readers_timeout_s=30.0)
    finally:
        ended.set()
        thread.join()
    assert problems == []
    assert counts == sorted(counts, reverse=True)
    assert {count % 2 for count in counts} == {0}
    assert len({*counts}) > 2


def test_damaged_marks_of_what_was_read_mean_that_nothing_was(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    folder.outputs.mkdir()
    cursor = folder.outputs / "pages-lines-1.cursor"
    cursor.write_bytes(b"")
    ReadMarks(cursor).note(frozenset({"aa11-00001.cdxj"}))
    path = cursor.with_name(cursor.name + ".read")
    whole = path.read_bytes()
    assert OutputsRead(folder).waiting_for("aa11-00001.cdxj") == []
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert OutputsRead(folder).waiting_for("aa11-00000.cdxj") == ["outputs/pages-lines-1.cursor"]
    for earlier, waits in ((b"aa11-00001.cdxj\n", False), (b"*\n", False), (b"", True)):
        path.write_bytes(earlier)
        assert bool(OutputsRead(folder).waiting_for("aa11-00001.cdxj")) == waits
