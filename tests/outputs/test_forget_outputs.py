"""What `crawler forget` does with outputs: the domain's records go, all others stay, and the output goes on."""

from pathlib import Path

import pytest

from crawler.archive.index_reader import read_entries
from crawler.archive.index_writer import change_lines
from crawler.outputs.forgetting import KeptOutput, forget_early, forget_late, kept_outputs, old_copies
from crawler.outputs.records import PAGES
from crawler.rules.forgotten import Named
from tests.outputs.growing import FILES, Crawl, lines_of, sorted_urls
from tests.outputs.samples import target
from tests.support.postgres import PostgresServer


def keep(crawl: Crawl, path: Path | str) -> list[str]:
    """Complete the output as a crawl does; what it tells people."""
    follower = crawl.follower(path)
    follower.open()
    follower.start()
    assert follower.finish() is None
    return crawl.said


def named_in(crawl: Crawl) -> Named:
    return Named(crawl.urls[0].split("/")[2])


def visits_of(crawl: Crawl, named: Named) -> list[tuple[int, int]]:
    return [(int(one.fingerprint), one.visit) for one in read_entries(crawl.folder) if named.owns(one.url)]


def forget(crawl: Crawl, path: Path | str, named: Named) -> None:
    (output,) = kept_outputs([crawl.folder], [target(path)])
    visits = visits_of(crawl, named)
    if not output.is_late:
        forget_early(output, named, visits)
    crawl.index.close()
    change_lines(crawl.folder, lambda entry: None if named.owns(entry.url) else entry, drops_to=None)
    if output.is_late:
        forget_late(output, named)


@pytest.mark.parametrize("name", [one for one in FILES if not one.endswith("parquet")])  # that is written at the end
def test_other_records_stay_and_the_output_goes_on(tmp_path: Path, name: str) -> None:
    crawl, path = Crawl(tmp_path, lines_max=5), tmp_path / name
    crawl.add(12)
    keep(crawl, path)
    named = named_in(crawl)
    kept = sorted(url for url in crawl.urls if not named.owns(url))
    assert 0 < len(kept) < 12
    forget(crawl, path, named)
    assert sorted_urls(path) == kept
    if name.endswith("sqlite"):
        assert not named.is_in(path.read_bytes())
    again = Crawl.__new__(Crawl)
    again.folder, again.urls = crawl.folder, crawl.urls
    assert keep(again, path) == [], "nothing is written again"
    assert sorted_urls(path) == kept


def test_lines_of_pruned_pages_stay_byte_by_byte(tmp_path: Path) -> None:
    crawl, path = Crawl(tmp_path), tmp_path / "pages.jsonl"
    crawl.add(9)
    keep(crawl, path)
    named = named_in(crawl)
    before = [line for line in path.read_bytes().splitlines() if not named.is_in(line)]
    crawl.index.close()
    change_lines(crawl.folder, lambda _: None, drops_to=None)
    (output,) = kept_outputs([crawl.folder], [target(path)])
    forget_early(output, named, [])
    assert path.read_bytes().splitlines() == before
    assert lines_of(path) == len(before) > 0


def test_copies_that_were_set_aside_are_found(tmp_path: Path) -> None:
    crawl, path = Crawl(tmp_path), tmp_path / "pages.jsonl"
    crawl.add(3)
    keep(crawl, path)
    path.with_name("pages.jsonl.changed-1").write_text(f'{{"url":"{crawl.urls[0]}"}}\n')
    path.with_name("pages.jsonl.changed-2").write_text("{}\n")
    output = KeptOutput(crawl.folder, target(path), PAGES, tmp_path)
    assert [one.name for one in old_copies(output, named_in(crawl))] == ["pages.jsonl.changed-1"]


def test_rows_of_a_database_go_and_the_table_is_rewritten(tmp_path: Path, postgres: PostgresServer) -> None:
    database = postgres.new_database()
    url, crawl = postgres.url(database), Crawl(tmp_path)
    crawl.add(9)
    keep(crawl, url)
    named = named_in(crawl)
    forget(crawl, url, named)
    found = {row[0] for row in postgres.psql(database, "SELECT url FROM pages")}
    assert found == {one for one in crawl.urls if not named.owns(one)}
    dead = postgres.psql(database, "SELECT pg_relation_size('pages') > 8192")
    assert dead == [["f"]]
