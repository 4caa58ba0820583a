"""A prune among pages that others are unchanged from: what stays can be read, wherever the prune is killed."""

import shutil
from pathlib import Path

import pytest

from crawler.archive.earlier_pages import EarlierPages
from crawler.archive.folder import CrawlFolder, open_existing
from crawler.archive.index_reader import IndexReader
from crawler.archive.index_writer import IndexWriter
from crawler.archive.prune_records import PruneRule
from crawler.archive.warc import Original
from crawler.archive.warc_reader import read_content, read_head
from crawler.model import REVISIT, CommitEntry
from tests.archive.archive_samples import folder_in, response, writer_in
from tests.archive.prune_lab import Killed, leftovers, prune

JOB = "0123456789"
RUNS = [f"{JOB}.1.{n}" for n in range(1, 5)]
PAGES, CHANGES = 6, {(2, 3): "changed", (4, 1): "changed"}  # (run, page): these are not unchanged
STEPS = 40  # more than a prune here has
EVERYTHING = PruneRule(before=9e9)


def beyond(keep: int) -> PruneRule:
    return PruneRule(runs=frozenset(RUNS[:-keep]))


def archived(tmp_path: Path) -> tuple[CrawlFolder, dict[tuple[int, int], bytes]]:
    """Four runs of six pages, each run a session; and the body of each page in each run."""
    folder, bodies = folder_in(tmp_path), dict[tuple[int, int], bytes]()
    last: dict[int, Original] = {}
    for run, name in enumerate(RUNS, 1):
        session = f"aa{run}"
        warc, index = writer_in(folder, session, warc_bytes_max=3_000), IndexWriter(folder, session, lines_max=4)
        for page in range(PAGES):
            is_whole = run == 1 or (run, page) in CHANGES
            got = (
                response(page, raw_body=b"%d %d" % (page, run))
                if is_whole
                else response(page, raw_body=b"", status=304)
            )
            bodies[run, page] = got.raw_body if is_whole else bodies[run - 1, page]
            original = None if is_whole else last[page]
            place, digest = warc.add(got, "", original)
            warc.sync()
            entry = CommitEntry(
                url=got.url, mime=REVISIT if original else "text/html", status_text=str(got.status), visit=1,
                fingerprint=str(100 * run + page), fetched_at=1e9 + run, digest=digest, run=name, head_digest="h",
            ).placed(place, None)  # fmt: skip
            index.add(entry.referring(original.place) if original else entry)
            if is_whole and (head := read_head(folder, place)) is not None:
                last[page] = Original(place=place, record_id=head.record_id, date=head.date, digest=digest, mime="")
        warc.close()
        index.close()
    return folder, bodies


def judge(folder: CrawlFolder, bodies: dict[tuple[int, int], bytes]) -> set[tuple[int, int]]:
    """The pages that are left: each has its body, and refers to a record that is where it says."""
    reader, left = IndexReader(folder), set[tuple[int, int]]()
    for entry in reader.entries():
        run, page = divmod(int(entry.fingerprint), 100)
        assert read_content(folder, entry).payload == bodies[run, page]
        left.add((run, page))
    assert reader.missing == []
    assert len(list(IndexReader(folder).entries(pruned=True))) == len(bodies), "no commit is forgotten"
    return left


def needed(keep: int) -> set[tuple[int, int]]:
    """The newest runs, and in which run each of their pages was whole."""
    kept = {(run, page) for run in range(len(RUNS) - keep + 1, len(RUNS) + 1) for page in range(PAGES)}
    whole = {(max(r for r in range(1, run + 1) if r == 1 or (r, page) in CHANGES), page) for run, page in kept}
    return kept | whole


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_what_is_kept_is_what_is_needed(tmp_path: Path, keep: int) -> None:
    folder, bodies = archived(tmp_path)
    figures = prune(folder, beyond(keep))
    left = judge(folder, bodies)
    assert left == needed(keep)
    assert figures.pages == len(bodies) - len(left)
    assert figures.waiting == {"unchanged": len(left) - keep * PAGES}
    assert prune(folder, beyond(keep)).pages == 0, "nothing more goes"
    places = [entry.original for entry in IndexReader(folder).entries() if entry.original is not None]
    assert all(read_head(folder, place) is not None for place in places), "they were moved with what they refer to"


def test_all_goes_once_nothing_needs_it(tmp_path: Path) -> None:
    folder, bodies = archived(tmp_path)
    prune(folder, beyond(1))
    figures = prune(folder, EVERYTHING)
    assert (judge(folder, bodies), figures.waiting) == (set(), {})
    assert list(folder.warc.iterdir()) == []
    assert EarlierPages(folder).find("http://a.test/", RUNS[-1], "h") is None


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("keep", [1, 2])
def test_a_prune_that_is_killed_at_any_step_is_completed(tmp_path: Path, keep: int) -> None:
    made, bodies = archived(tmp_path)
    for number in range(STEPS):
        folder = open_existing(shutil.copytree(made.root, tmp_path / str(number)))
        left_to_go = number

        def step(name: str) -> None:
            nonlocal left_to_go
            left_to_go -= 1
            if left_to_go < 0:
                raise Killed(name)

        try:
            prune(folder, beyond(keep), step=step)
        except Killed:
            judge(folder, bodies)
        prune(folder, beyond(keep))
        assert judge(folder, bodies) == needed(keep)
        assert leftovers(folder) == []
        if left_to_go >= 0:
            return
    pytest.fail("a prune has more steps than were tried")
