"""What has changed between runs, by the index: `jobs diff`, and `export --changed`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.archive.folder import CrawlFolder
from crawler.archive.index import pruned
from crawler.archive.index_reader import IndexReader
from crawler.archive.index_writer import IndexWriter
from crawler.archive.run_changes import changed_pages, differences
from crawler.cli.main import main
from crawler.model import SITEMAP, CommitEntry, Request, WarcLocation
from tests.archive.archive_samples import folder_in

JOB = "0123456789"
ONE, TWO, THREE, FOUR = (f"{JOB}.1.{n}" for n in "1239")
OTHER = "9876543210.1.5"
HERE = WarcLocation(file="a", offset=1, length=1)


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    return folder_in(tmp_path)


def page(path: str, run: str, digest: str = "d", **values: Any) -> CommitEntry:
    number = abs(hash((path, run, str(values.get("request")))))
    given = {"status_text": "200", "mime": "text/html", "visit": 1, "fetched_at": 1.8e9, "digest": digest} | values
    return CommitEntry(url=f"http://a.test/{path}", run=run, fingerprint=str(number % 2**62), **given)


def unchanged(path: str, run: str, digest: str = "d") -> CommitEntry:
    return page(path, run, digest, status_text="304", mime="warc/revisit").referring(HERE)


def read(folder: CrawlFolder, *pages: CommitEntry) -> Iterator[CommitEntry]:
    index = IndexWriter(folder, "aa11", lines_max=3)
    for one in pages:
        index.add(one)
    index.close()
    return IndexReader(folder).entries(pruned=True)


CASES: Mapping[str, tuple[CommitEntry | None, CommitEntry | None, str]] = {
    "the same": (page("x", ONE), page("x", TWO), "unchanged"),
    "said to be": (page("x", ONE), unchanged("x", TWO), "unchanged"),
    "said twice": (unchanged("x", ONE), unchanged("x", TWO), "unchanged"),
    "again whole": (unchanged("x", ONE), page("x", TWO), "unchanged"),
    "another body": (page("x", ONE), page("x", TWO, "e"), "changed"),
    "another since": (unchanged("x", ONE), unchanged("x", TWO, "e"), "changed"),
    "another status": (page("x", ONE), page("x", TWO, status_text="404"), "changed"),
    "a bare 304": (page("x", ONE), page("x", TWO, status_text="304"), "changed"),
    "another target": (page("x", ONE, redirect_to="http://b.test/"), page("x", TWO), "changed"),
    "new": (None, page("x", TWO), "added"),
    "gone": (page("x", ONE), None, "removed"),
    "pruned before": (pruned(page("x", ONE)), page("x", TWO), "unknown"),
    "pruned since": (page("x", ONE), pruned(page("x", TWO)), "unknown"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_page_of_two_runs_is_one_of_five_kinds(folder: CrawlFolder, case: str) -> None:
    before, after, kind = CASES[case]
    others = page("x", THREE, "z"), page("x", "", "z"), page("x", OTHER, "z"), page("y", ONE), page("y", TWO)
    entries = read(folder, *others, *(one for one in (before, after) if one))
    found = {one.url.rpartition("/")[2]: one.change for one in differences(entries, ONE, TWO)}
    assert found == {"x": kind, "y": "unchanged"}


def test_pages_of_one_key_and_requests_of_one_url_are_told_apart(folder: CrawlFolder) -> None:
    post = Request(method="POST", body_digest="aa")
    pages = [
        page("Page", ONE, "1"),
        page("page", ONE, "2"),
        page("page/", ONE, "3"),
        page("page", ONE, "4", request=post),
    ]
    later = [msgspec.structs.replace(one, run=TWO, fingerprint=one.fingerprint + "1") for one in pages]
    later[3] = msgspec.structs.replace(later[3], digest="5")
    found = sorted(
        (one.url.rpartition(".test")[2], one.change) for one in differences(read(folder, *pages, *later), ONE, TWO)
    )
    assert found == [("/Page", "unchanged"), ("/page", "changed"), ("/page", "unchanged"), ("/page/", "unchanged")]


def test_a_run_is_compared_with_the_last_run_that_has_the_page(folder: CrawlFolder) -> None:
    entries = read(
        folder,
        page("back", ONE, "1"), page("back", TWO, "2"), page("back", THREE, "1"),
        page("skipped", ONE, "1"), page("skipped", THREE, "1"),
        page("later", THREE, "1"), page("later", FOUR, "1"),
        pruned(page("pruned", TWO)), page("pruned", ONE, "1"), page("pruned", THREE, "1"),
        page("other", OTHER, "1"), page("other", THREE, "1"),
        page("error", TWO, "1"), page("error", THREE, "1", status_text="500"),
    )  # fmt: skip
    found = [entry.url.rpartition("/")[2] for entry in changed_pages(entries, THREE)]
    assert found == ["back", "error", "later", "other"]


def test_runs_follow_each_other_by_time_and_attempt(folder: CrawlFolder) -> None:
    runs = [f"{JOB}.1.zz", f"{JOB}.1.100", f"{JOB}.1.100.2", f"{JOB}.2.100-m"]
    for at, run in enumerate(runs):
        pages = [page(f"p{at}", one, str(n)) for n, one in enumerate(runs)]
        pages.append(page(f"q{at}", run))
        pages += [page(f"q{at}", one) for one in runs[at - 1 : at]]
    entries = list(read(folder, *pages))
    assert [one.url[-2:] for one in changed_pages(entries, runs[3])] == ["p3"]
    assert [one.url[-2:] for one in changed_pages(entries, runs[2])] == ["p3", "q3"]


def test_sitemaps_are_no_pages(folder: CrawlFolder) -> None:
    entries = read(folder, page("s", ONE, label=SITEMAP), page("s", TWO, "e", label=SITEMAP))
    assert list(differences(entries, ONE, TWO)) == []


def run_cli(folder: CrawlFolder, *arguments: str) -> int:
    return main([*arguments, "--dir", str(folder.root)])


def test_the_command_prints_counts_and_urls(folder: CrawlFolder, capsys: pytest.CaptureFixture[str]) -> None:
    list(
        read(
            folder,
            page("a", ONE),
            page("b", ONE),
            page("c", ONE),
            unchanged("a", TWO),
            page("b", TWO, "e"),
            page("d", TWO),
        )
    )
    assert run_cli(folder, "jobs", "diff", ONE, TWO) == 0
    assert capsys.readouterr().out == "1 added, 1 removed, 1 changed, 1 unchanged\n"
    assert run_cli(folder, "jobs", "diff", ONE, TWO, "--urls") == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "changed   http://a.test/b", "removed   http://a.test/c", "added     http://a.test/d",
    ]  # fmt: skip
    assert run_cli(folder, "jobs", "diff", ONE, TWO, "--json", "--urls") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"url": "http://a.test/b", "change": "changed", "status_before": 200, "status": 200}
    assert lines[-1] == {
        "before": ONE, "after": TWO, "added": 1, "removed": 1, "changed": 1, "unchanged": 1, "unknown": 0,
    }  # fmt: skip
    assert run_cli(folder, "export", "--run", TWO, "--changed") == 0
    assert [json.loads(line)["url"][-1] for line in capsys.readouterr().out.splitlines()] == ["b", "d"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("jobs", "diff", ONE, "x"), "'x' is not the id of a run"),
        (("jobs", "diff", ONE, FOUR), f"no page of run {FOUR} in"),
        (("export", "--changed"), "add --run ID"),
    ],
)
def test_what_can_not_be_compared_is_told(
    folder: CrawlFolder, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    list(read(folder, page("a", ONE)))
    assert run_cli(folder, *arguments) == 2
    assert text in capsys.readouterr().err
