"""Outputs of items that were kept up to date, after pages were handled again: the new items, and none of the old."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from crawler.archive.index_writer import IndexWriter, change_lines
from crawler.archive.items import ItemWriter
from crawler.errors import ConflictError
from crawler.model import CommitEntry
from crawler.outputs.cursor import cursor_path, lock_of, start_items_over
from crawler.outputs.follow import Outputs
from crawler.outputs.records import Items
from crawler.outputs.verify import compare
from tests.archive.archive_samples import entry, folder_in
from tests.outputs.growing import FILES
from tests.outputs.samples import target
from tests.support.postgres import PostgresServer

PAGES = 12
COUNTS = (lambda n: 2, lambda n: n % 4)  # items of page n: before, and after


class Handled:
    """A folder whose pages have items, which are replaced."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = folder_in(tmp_path)
        items, index = ItemWriter(self.folder, "aa11"), IndexWriter(self.folder, "aa11", lines_max=5)
        for n in range(PAGES):
            index.add(entry(n, items=items.add([self.item(n, k, 0) for k in range(COUNTS[0](n))])))
        items.close()
        index.close()

    def item(self, page: int, number: int, version: int) -> bytes:
        return json.dumps({"page": page, "n": number, "version": version}).encode()

    def replace(self) -> None:
        items = ItemWriter(self.folder, "bb22")

        def changed(one: CommitEntry) -> CommitEntry:
            page = int(one.url.rpartition("/")[2])
            new = [self.item(page, k, 1) for k in range(COUNTS[1](page))]
            return one.placed(one.warc, items.add(new) if new else None)

        change_lines(self.folder, changed)
        items.close()
        start_items_over(self.folder)

    def keep_up_to_date(self, *names: Path | str) -> list[str]:
        """One command with `-o`; what it warns of."""
        said: list[str] = []
        outputs = Outputs(self.folder, [target(n) for n in names], lambda: Items(self.folder), warn=said.append)
        outputs.start()
        assert outputs.finish() == []
        return said

    def check(self, name: Path | str) -> None:
        found = compare([self.folder], target(name), items=True)
        wanted = sum(map(COUNTS[1], range(PAGES)))
        assert (found.found, found.wanted, found.missing, found.extra) == (wanted, wanted, 0, 0)


@pytest.fixture
def handled(tmp_path: Path) -> Handled:
    return Handled(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("times", [1, 2])
def test_a_file_has_the_new_items_alone(handled: Handled, tmp_path: Path, name: str, times: int) -> None:
    path = tmp_path / name.replace("pages", "items")
    handled.keep_up_to_date(path)
    for _ in range(times):
        handled.replace()
    assert handled.keep_up_to_date(path) == []
    handled.check(path)
    assert handled.keep_up_to_date(path) == []
    handled.check(path)
    assert [one.name for one in tmp_path.iterdir() if "changed" in one.name] == [], "it was ours"


def rows_of(path: Path) -> Sequence[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as base:
        return base.execute("SELECT page, n, version FROM items ORDER BY page, n").fetchall()


def test_a_table_loses_the_rows_of_items_that_are_gone_and_keeps_those_of_others(
    handled: Handled, tmp_path: Path
) -> None:
    path = tmp_path / "items.sqlite"
    handled.keep_up_to_date(path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("INSERT INTO items (_fingerprint, _visit, _number, page, n, version) VALUES (1, 1, 0, 99, 0, 7)")
        base.commit()
    handled.replace()
    handled.keep_up_to_date(path)
    assert rows_of(path) == [(n, k, 1) for n in range(PAGES) for k in range(COUNTS[1](n))] + [(99, 0, 7)]


def test_a_table_of_a_server_has_the_new_items_alone(handled: Handled, postgres: PostgresServer) -> None:
    database = postgres.new_database()
    handled.keep_up_to_date(postgres.url(database))
    handled.replace()
    handled.keep_up_to_date(postgres.url(database))
    found = postgres.psql(database, "SELECT page, n, version FROM items ORDER BY page, n")
    assert [tuple(map(int, row)) for row in found] == [(n, k, 1) for n in range(PAGES) for k in range(COUNTS[1](n))]


@pytest.mark.parametrize("again", [Handled.replace, lambda handled: start_items_over(handled.folder)])
def test_a_writer_that_is_at_work_is_not_disturbed(
    handled: Handled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: Callable[[Handled], None]
) -> None:
    path = tmp_path / "items.jsonl"
    handled.keep_up_to_date(path)
    cursor = cursor_path(handled.folder.outputs, target(path), "items")
    exclusive = handled.folder.exclusive
    monkeypatch.setattr(type(handled.folder), "exclusive", lambda _, name, timeout_s=0.0: exclusive(name, timeout_s))
    with exclusive(lock_of(cursor)), pytest.raises(ConflictError, match=r"output-items"):
        again(handled)
