"""Targets of every kind that somebody removes: a look at one changes nothing, and what is missing is filled again."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from crawler.outputs import follow
from crawler.outputs.export import export
from crawler.outputs.follow import Outputs
from crawler.outputs.opening import check_target
from crawler.outputs.records import PAGES, Pages
from tests.outputs.growing import FILES, Crawl, sorted_urls
from tests.outputs.samples import target
from tests.support.patience import wait_until
from tests.support.postgres import PostgresServer

KINDS = (*FILES, "a table of pages.sqlite", "postgresql")


class Place:
    """Where records of one kind of target go."""

    def __init__(self, name: str, found: Callable[[], Sequence[str]], remove: Callable[[], object]) -> None:
        self.name, self.found, self.remove = name, found, remove


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: str = request.param
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.new_database()

        def rows() -> list[str]:
            if server.psql(database, "SELECT to_regclass('pages')") == [[""]]:
                return []
            return sorted(row[0] for row in server.psql(database, "SELECT url FROM pages"))

        return Place(server.url(database), rows, lambda: server.psql(database, "DROP TABLE pages"))
    path = tmp_path / "out" / kind.rpartition(" ")[2]
    path.parent.mkdir()

    def drop() -> None:
        with closing(sqlite3.connect(path)) as base:
            base.execute("DROP TABLE pages")

    def found() -> list[str]:
        try:
            return sorted_urls(path)
        except (FileNotFoundError, sqlite3.OperationalError, json.JSONDecodeError):  # nothing, not yet, half a line
            return []

    return Place(str(path), found, drop if kind.startswith("a table") else path.unlink)


def outputs_of(crawl: Crawl, place: Place) -> Outputs:
    """As commands begin: each target is looked at first."""
    one = target(place.name)
    check_target(one, PAGES)
    outputs = Outputs(crawl.folder, [one], lambda: Pages(crawl.folder), warn=print)
    outputs.start()
    return outputs


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_what_was_removed_between_two_commands_is_filled_again(crawl: Crawl, place: Place) -> None:
    for _ in range(3):
        crawl.add(40)
        assert outputs_of(crawl, place).finish() == []
        assert place.found() == sorted(crawl.urls)
        place.remove()
        check_target(target(place.name), PAGES)
        assert place.found() == []


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "pages.parquet"], indirect=True)
def test_what_is_removed_while_a_crawl_runs_is_filled_again(
    crawl: Crawl, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PAUSE_MAX_S", 0.05)
    outputs = outputs_of(crawl, place)

    def is_filled() -> bool:
        if not place.found():  # perhaps it was removed while it was written to: the writer looks before the next page
            crawl.add(1)
        return place.found() == sorted(crawl.urls)

    for _ in range(2):
        crawl.add(40)
        wait_until(is_filled)
        place.remove()
    crawl.add(40)
    assert outputs.finish() == []
    assert place.found() == sorted(crawl.urls)


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "pages.parquet"], indirect=True)
def test_what_is_removed_after_the_last_record_is_filled_again(
    crawl: Crawl, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PAUSE_MAX_S", 0.05)
    outputs = outputs_of(crawl, place)
    crawl.add(40)
    wait_until(lambda: place.found() == sorted(crawl.urls))
    place.remove()
    assert outputs.finish() == []
    assert place.found() == sorted(crawl.urls)


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_an_export_fills_what_was_removed_and_the_next_crawl_goes_on(crawl: Crawl, place: Place) -> None:
    crawl.add(40)
    assert outputs_of(crawl, place).finish() == []
    place.remove()
    export(crawl.folder, [target(place.name)], Pages(crawl.folder))
    assert place.found() == sorted(crawl.urls)
    crawl.add(40)
    assert outputs_of(crawl, place).finish() == []
    assert place.found() == sorted(crawl.urls)


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_a_look_at_a_target_leaves_nothing_there(crawl: Crawl, place: Place) -> None:
    for _ in range(2):
        check_target(target(place.name), PAGES)
        assert place.found() == []
    if not place.name.startswith("postgres"):
        assert list(Path(place.name).parent.iterdir()) == []
