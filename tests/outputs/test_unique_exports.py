"""`export --unique`: which pages are left out or marked, whatever the order of files; and that nothing else changes."""

import csv
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_writer import IndexWriter
from crawler.errors import NoRoomError
from crawler.model import CommitEntry
from crawler.outputs import unique
from crawler.outputs.export import ExportSummary, export
from crawler.outputs.opening import targets_of
from crawler.outputs.records import PAGE_COLUMNS, Pages
from crawler.outputs.unique import Duplicates, How
from tests.archive.archive_samples import entry, folder_in, response, writer_in
from tests.cli.cli_lab import in_process
from tests.outputs.samples import json_lines
from tests.support.processes import Nursery

COLUMNS = ("fingerprint", "duplicate_of")


def page(number: int, digest: str = "", **changes: Any) -> CommitEntry:
    """One with a body of its own, unless a digest is given."""
    return entry(number, digest=digest or f"sha1:{number}", depth=changes.pop("depth", 1), **changes)


def written(folder: CrawlFolder, entries: list[CommitEntry], session: str = "aa11") -> None:
    index = IndexWriter(folder, session)
    for one in entries:
        index.add(one)
    index.close()


def exported(
    folder: CrawlFolder, target: Path, how: How, prints: dict[str, int] | None = None, *, marks: bool = False,
    **options: Any,
) -> ExportSummary:  # fmt: skip
    """`prints`: fingerprints by URL."""
    found = Duplicates(folder, how, lambda one: (prints or {}).get(one.url, 0))
    source = Pages(folder, columns=COLUMNS if marks else ())
    try:
        return export(folder, targets_of([str(target)]), source, unique=found, **options)
    finally:
        found.close()


def urls(path: Path) -> set[str]:
    return {record["url"] for record in json_lines(path)}


def duplicates(path: Path) -> dict[str, str]:
    return {one["url"]: one["duplicate_of"] for one in json_lines(path) if one["duplicate_of"] is not None}


def test_pages_with_one_body_are_left_out_but_the_one_nearest_to_the_seeds(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    pages = [page(0, "sha1:A", depth=3), page(1, "sha1:A", depth=2), page(2, "sha1:B"), page(3, "sha1:A", depth=2)]
    written(folder, pages)
    summary = exported(folder, target, How.EXACT)
    assert urls(target) == {pages[1].url, pages[2].url}
    assert (summary.records, summary.by_status) == (2, {200: 2})
    assert summary.unique is not None
    assert (summary.unique.groups, summary.unique.duplicates) == (1, 2)
    assert [list(record) for record in json_lines(target)] == [list(PAGE_COLUMNS)] * 2
    exported(folder, target, How.EXACT, marks=True)
    assert duplicates(target) == {pages[0].url: pages[1].url, pages[3].url: pages[1].url}
    assert len(urls(target)) == 4


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, 0),
        ({"depth": 0}, 1),
        ({"fetched_at": 1.0}, 1),
        ({"depth": 2, "fetched_at": 1.0}, 0),
        ({"fetched_at": 1_714_564_800.25}, 0),  # as the other: http://d0 is before http://d1
        ({"fetched_at": 1_714_564_800.25, "url": "http://a.test/z"}, 1),
        ({"depth": 0, "fetched_at": 9e9}, 1),
    ],
)
def test_the_lowest_by_depth_fetch_and_url_is_kept(tmp_path: Path, changes: dict[str, Any], kept: int) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    pages = [page(0, "sha1:A"), replace(page(1, "sha1:A"), **changes)]
    written(folder, pages)
    exported(folder, target, How.EXACT)
    assert urls(target) == {pages[kept].url}


def test_depths_and_times_beyond_what_fits_in_64_bits_are_compared_in_full(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    deep = [page(n, "sha1:A", depth=unique.DEPTH_MAX + 5 - n, fetched_at=1e9 + n) for n in range(4)]
    late = [page(n, "sha1:B", fetched_at=9e9 + n) for n in range(4, 8)]
    early = [page(n, "sha1:C", fetched_at=1 + n / 1e8) for n in range(11, 7, -1)]
    written(folder, [*deep, *late, *early])
    exported(folder, target, How.EXACT)
    assert urls(target) == {deep[3].url, late[0].url, early[3].url}


def test_near_pages_are_in_one_group_by_chains_and_by_their_bodies(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    pages = [page(number, depth=number) for number in range(6)] + [page(9, "sha1:3", depth=9)]
    written(folder, pages)
    chain = {pages[0].url: 0xFF00, pages[1].url: 0xFF0F, pages[2].url: 0xFFFF, pages[3].url: 1 << 50 | 0xFF00FF0000}
    summary = exported(folder, target, How.NEAR, chain, marks=True)
    assert duplicates(target) == {pages[1].url: pages[0].url, pages[2].url: pages[0].url, pages[6].url: pages[3].url}
    assert summary.unique is not None
    assert (summary.unique.groups, summary.unique.duplicates, summary.unique.without) == (2, 3, 3)
    shown = {one["url"]: one["fingerprint"] for one in json_lines(target)}
    assert (shown[pages[0].url], shown[pages[4].url]) == ("000000000000ff00", None)
    assert exported(folder, target, How.EXACT, chain).records == 6, "whose bodies differ"


def test_what_has_no_content_is_a_duplicate_of_nothing(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    none = {
        "missing": {"status_text": "404"},
        "moved": {"status_text": "301", "redirect_to": "http://d0.test/"},
        "cut": {"truncated": "length"},
        "empty": {"digest": "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"},
        "unknown": {"digest": ""},
        "sitemap": {"label": "+sitemap"},
    }
    pages = [page(0, "sha1:A")]
    for number, changes in enumerate((one for one in none.values() for _ in range(2)), 1):
        pages.append(replace(page(number, "sha1:A"), **changes))
    written(folder, pages)
    for how in How:
        summary = exported(folder, target, how, {one.url: 7 for one in pages})
        assert (summary.records, summary.unique.duplicates if summary.unique else 0) == (11, 0), how


def test_an_answer_that_is_unchanged_is_the_page_that_it_is_of(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    unchanged = replace(
        page(1, "sha1:A"), status_text="304", original_file="x.warc.gz", original_offset="0", original_length="1"
    )
    written(folder, [page(0, "sha1:A"), unchanged])
    assert exported(folder, target, How.EXACT).records == 1


def kept_by_model(pages: list[CommitEntry], prints: dict[str, int]) -> dict[str, str]:
    """By URL the page that is kept of its group: all pairs, and the groups merged until nothing changes."""
    groups = [{page.url} for page in pages]
    by_url = {page.url: page for page in pages}

    def are_joined(one: str, other: str) -> bool:
        a, b = prints.get(one, 0), prints.get(other, 0)
        return by_url[one].digest == by_url[other].digest or bool(a and b and (a ^ b).bit_count() <= 4)

    for page in pages:
        near = [group for group in groups if any(are_joined(page.url, other) for other in group)]
        groups = [group for group in groups if group not in near] + [set().union(*near)]
    order = {url: (page.depth, page.fetched_at, url) for url, page in by_url.items()}
    return {url: min(group, key=order.__getitem__) for group in groups for url in group}


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_does_not_depend_on_the_order_of_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pages = [page(n, f"sha1:{rng.randrange(12)}", depth=rng.randrange(3), fetched_at=1e9 + n % 5) for n in range(60)]
    prints = {one.url: rng.getrandbits(64) for one in pages[:10]}
    prints |= {one.url: prints[pages[rng.randrange(10)].url] ^ 1 << rng.randrange(64) for one in pages[10:40]}
    found = []
    for turn in range(3):
        (tmp_path / f"{turn}").mkdir()
        folder, target = folder_in(tmp_path / f"{turn}"), tmp_path / f"{turn}" / "p.jsonl"
        rng.shuffle(pages)
        cut = rng.randrange(1, 59)
        written(folder, pages[:cut], "aa11")
        written(folder, pages[cut:], "bb22")
        exported(folder, target, How.NEAR, prints, marks=True)
        found.append((urls(target), duplicates(target)))
        exported(folder, target, How.NEAR, prints)
        assert urls(target) == found[-1][0] - set(found[-1][1])
    kept = kept_by_model(pages, prints)
    assert found[0] == (set(kept), {url: of for url, of in kept.items() if of != url})
    assert found[0] == found[1] == found[2]
    assert len(found[0][1]) > 20


def test_duplicates_are_looked_for_among_what_is_exported(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    one, other = page(0, "sha1:A", noindex=True), page(1, "sha1:A", times={"archived": 1e9})
    in_runs = [replace(page(n, "sha1:A"), run=f"job.0.{n}") for n in (2, 3)]
    written(folder, [one, other, *in_runs])
    assert exported(folder, target, How.EXACT).records == 1
    assert exported(folder, target, How.EXACT, unless=["noindex"]).records == 1
    assert urls(target) == {other.url}
    exported(folder, target, How.EXACT, since=1.5e9, unless=["noindex"])
    assert urls(target) == {in_runs[0].url}
    exported(folder, target, How.EXACT, run="job.0.3")
    assert urls(target) == {in_runs[1].url}
    assert exported(folder, target, How.EXACT, run="job.0.3", changed=True).records == 1
    exported(folder, target, How.EXACT, of_url=lambda url: url == other.url)
    assert urls(target) == {other.url}


def test_all_targets_have_the_same_pages_and_columns(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    folder = folder_in(tmp_path)
    written(folder, [page(0, "sha1:A"), page(1, "sha1:A"), page(2)])
    found = Duplicates(folder, How.EXACT)
    targets = [str(tmp_path / name) for name in ("p.jsonl", "p.csv.gz", "p.csv", "p.parquet", "p.sqlite")]
    export(folder, targets_of(targets), Pages(folder, columns=COLUMNS), unique=found)
    found.close()
    records = json_lines(tmp_path / "p.jsonl")
    assert {record["duplicate_of"] for record in records} == {None, "http://d0.test/page/0"}
    assert [list(record) for record in records] == [[*PAGE_COLUMNS, "duplicate_of", "fingerprint"]] * 3
    with (tmp_path / "p.csv").open(newline="") as file:
        assert [row["duplicate_of"] for row in csv.DictReader(file)] == [r["duplicate_of"] or "" for r in records]
    table = pq.read_table(tmp_path / "p.parquet")
    assert table["duplicate_of"].to_pylist() == [record["duplicate_of"] for record in records]
    assert table["fingerprint"].to_pylist() == [None] * 3


def test_pages_that_come_meanwhile_are_not_in_it(tmp_path: Path) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    written(folder, [page(0), page(1)])

    def come(one: CommitEntry) -> int:
        written(folder, [page(5, depth=0), page(6)], f"cc{one.depth}{one.sequence}")
        return 7

    found = Duplicates(folder, How.NEAR, come)
    assert export(folder, targets_of([str(target)]), Pages(folder), unique=found).records == 1
    found.close()
    assert urls(target) == {page(0).url}


def test_a_full_disk_is_one_line_and_leaves_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    written(folder, [page(0), page(1)])
    target.write_text("old\n")
    monkeypatch.setattr(unique, "scratch_file", lambda _: Path("/dev/full").open("w+b"))  # noqa: SIM115
    with pytest.raises(NoRoomError, match=r"copy of the index \(\d+ bytes so far\)"):
        exported(folder, target, How.EXACT)
    assert target.read_text() == "old\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from crawler.archive.folder import open_existing
from crawler.outputs import {module} as module
from tests.outputs.test_unique_exports import How, exported

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

module.{name} = die
exported(open_existing(Path({folder!r})), Path({target!r}), How.NEAR, {{"http://d0.test/page/0": 5}})
"""


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("module", "name"),
    [("unique", "join_equal"), ("unique", "join_near"), ("unique", "_whole_order"), ("export", "_check")],
)
def test_a_kill_leaves_nothing_but_what_was_there(tmp_path: Path, module: str, name: str) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "p.jsonl"
    written(folder, [page(0, "sha1:A", fetched_at=7.0), page(1, "sha1:A", fetched_at=7.0), page(2)])
    target.write_text("old\n")
    exported(folder, tmp_path / "warm.jsonl", How.NEAR)
    before = {path for path in tmp_path.rglob("*") if ".draft" not in path.name}
    program = KILLED.format(module=module, name=name, folder=str(folder.root), target=str(target))
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, cwd=Path.cwd(), timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if name != "_check":
        assert target.read_text() == "old\n"
    exported(folder, target, How.NEAR)  # takes away the draft of the other one
    assert set(tmp_path.rglob("*")) == before
    assert len(urls(target)) == 2


def texts_of(tmp_path: Path) -> CrawlFolder:
    """Three pages of one text that a clock tells apart, one of another text, one of few words, and a picture twice."""
    folder = folder_in(tmp_path)
    writer, index = writer_in(folder), IndexWriter(folder, "aa11")
    rng = random.Random(2)

    def text() -> str:
        return "".join(
            f"<p>{' '.join(rng.choices([f'word{n}' for n in range(500)], k=60)).capitalize()}.</p>" for _ in range(6)
        )

    same, other = text(), text()
    bodies = [f"<p>It is 10:{minute} now.</p>{same}" for minute in (11, 12, 13)] + [other, "<p>Only few words.</p>"]
    for number, body in enumerate(bodies):
        whole = f"<html><title>T</title><body><article>{body}</article></body></html>".encode()
        place, digest = writer.add(response(number, raw_body=whole))
        index.add(entry(number, warc=place, digest=digest, depth=number))
    for number in (7, 8):
        place, digest = writer.add(
            response(number, raw_body=b"\x89PNG same", headers=((b"Content-Type", b"image/png"),))
        )
        index.add(entry(number, warc=place, digest=digest, depth=number, mime="image/png"))
    writer.close()
    index.close()
    return folder


def test_the_command_says_what_it_left_out_and_marks_it_if_asked(programs: Nursery, tmp_path: Path) -> None:
    folder, target = texts_of(tmp_path), tmp_path / "p.jsonl"
    ran = in_process(programs, "export", "--dir", str(folder.root), "-o", str(target), "--unique", "exact")
    assert (ran.code, len(urls(target))) == (0, 6), ran.err
    assert "1 duplicate (1 group) left out (--unique exact)" in ran.out + ran.err
    ran = in_process(programs, "export", "--dir", str(folder.root), "-o", str(target), "--unique", "near")
    assert (ran.code, len(urls(target))) == (0, 4), ran.err
    assert "3 duplicates (2 groups) left out (--unique near)" in ran.out + ran.err
    assert "3 pages have too little text to be compared, or none" in ran.out + ran.err
    near = ("--unique", "near", "--columns", "duplicate_of,fingerprint")
    ran = in_process(programs, "export", "--dir", str(folder.root), "-o", str(target), *near)
    assert "3 duplicates (2 groups) marked (--unique near, column duplicate_of)" in ran.out + ran.err
    marked = json_lines(target)
    assert len(duplicates(target)) == 3
    assert sum(len(record["fingerprint"] or "") == 16 for record in marked) == 4
    alone = ("--columns", "fingerprint,text")
    ran = in_process(programs, "export", "--dir", str(folder.root), "-o", str(target), *alone)
    assert ran.code == 0, ran.err
    by_url = {record["url"]: record["fingerprint"] for record in marked}
    assert {record["url"]: record["fingerprint"] for record in json_lines(target)} == by_url, (
        "the same without --unique"
    )
    assert all("duplicate_of" not in record for record in json_lines(target))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--unique", "near", "--items"), "leave out --items"),
        (("--columns", "fingerprint", "--items"), "leave out --items"),
        (("--columns", "duplicate_of"), "needs --unique exact or --unique near"),
        (("--columns", "fingerprints"), "'fingerprints' is not a column of bodies"),
        (("--unique", "similar"), "invalid choice: 'similar'"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    programs: Nursery, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    folder = folder_in(tmp_path)
    ran = in_process(programs, "export", "--dir", str(folder.root), *options)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_without_its_library_the_command_to_install_it_is_said(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resiliparse", None)
    folder = folder_in(tmp_path)
    for options in (("--unique", "near"), ("--columns", "fingerprint")):
        ran = in_process(programs, "export", "--dir", str(folder.root), *options)
        assert (ran.code, "needs resiliparse" in ran.err) == (2, True), ran.err
    ran = in_process(programs, "export", "--dir", str(folder.root), "--unique", "exact", "-o", str(tmp_path / "p.csv"))
    assert ran.code == 0, ran.err
