"""A prune removes what its rule matches and nothing else, and may be killed at any step."""

import gzip
import shutil
import sqlite3
from itertools import count
from pathlib import Path

import pytest
from archive_samples import AT, entry, response, writer_in
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from prune_lab import Archive, Killed, Page, archive, judge, leftovers, prune, records_on_disk, work

from crawler.archive import prune as prune_module
from crawler.archive import prune_steps
from crawler.archive.folder import open_existing
from crawler.archive.index_writer import IndexWriter, change_lines
from crawler.archive.prune_index import Scratch
from crawler.archive.prune_journal import Journal
from crawler.archive.prune_records import PruneRule, runs_beyond
from crawler.archive.read_segments import ReadMarks
from crawler.archive.repair import ArchivedResponse, walk_responses
from crawler.archive.warc import warcinfo
from crawler.archive.warc_reader import info_of, members
from crawler.errors import ArchiveError, ConflictError
from crawler.model import REQUISITE, CommitEntry, WarcLocation

RUNS = ("", "job1.1.a", "job1.1.b", "job2.1.c", "job2.1.c.2", "job2.2.d-m")


def pages(number: int) -> list[Page]:
    """Of three domains, two sessions and several runs; some with items, some indexed twice, some never committed."""
    found = []
    for n in range(number):
        session = "aa11" if n < number // 2 else "bb22"
        indexed_by = {0: ("cc33",), 1: (session, "cc33"), 2: ()}.get(n % 11, (session,))
        run = RUNS[n % len(RUNS)]
        found.append(
            Page(number=n, session=session, indexed_by=indexed_by, run=run, items=n % 3, has_record=n % 7 != 3)
        )
    return found


def orphans_of(made: Archive) -> int:
    """Records that no line names, in files that nothing was removed from."""
    named = {(one.warc.file, one.warc.offset) for one in made.left().values() if one.warc}
    found = [one for one in walk_responses(made.folder) if isinstance(one, ArchivedResponse)]
    orphans = [one for one in found if (one.location.file, one.location.offset) not in named]
    assert all("p1." not in one.location.file for one in orphans), "a copy has only what is named"
    return len(orphans)


def committed_before(made: Archive, before: float) -> set[tuple[str, int]]:
    return {key for key, one in made.commits.items() if one.fetched_at < before}


def with_requisites(tmp_path: Path) -> Archive:
    """0 to 5 are requisites, which are of no run, 6 to 11 pages of the crawl and of two runs."""
    requisites = [Page(number=n, label=REQUISITE) for n in range(6)]
    return archive(tmp_path, [*requisites, *(Page(number=n, run=RUNS[n % 3]) for n in range(6, 12))])


def numbers(keys: set[tuple[str, int]], made: Archive) -> set[int]:
    return {int(made.commits[key].url.rpartition("/")[2]) for key in keys}


@pytest.mark.parametrize(
    ("rule", "gone", "shown"),
    [
        (PruneRule(before=AT + 3), set(), 3),
        (PruneRule(before=AT + 11), {6, 7, 8, 9, 10}, 6),
        (PruneRule(before=AT + 99), set(range(12)), 0),
        (PruneRule(before=AT + 99, active=frozenset({RUNS[2]})), {6, 7, 9, 10}, 6),
        (PruneRule(runs=frozenset({RUNS[1]})), {7, 10}, 0),
        (PruneRule(domain="d1.test"), {1, 4, 7, 10}, 0),
        (PruneRule(domain="d1.test", before=AT + 3), {1}, 0),
    ],
)
def test_requisites_stay_until_the_last_page_goes(tmp_path: Path, rule: PruneRule, gone: set[int], shown: int) -> None:
    made = with_requisites(tmp_path)
    figures = prune(made.folder, rule)
    judge(made)
    assert numbers(made.pruned(), made) == gone
    assert figures.waiting == ({"shown": shown} if shown else {})


def test_requisites_go_with_a_later_prune_of_the_pages(tmp_path: Path) -> None:
    made = with_requisites(tmp_path)
    prune(made.folder, PruneRule(before=AT + 9))
    figures = prune(made.folder, PruneRule(before=AT + 99))
    judge(made)
    assert made.left() == {}
    assert figures.waiting == {}


def test_old_pages_go_with_their_records_and_items_and_the_others_stay(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(60))
    before = records_on_disk(made.folder)
    figures = prune(made.folder, PruneRule(before=AT + 25))
    judge(made)
    assert made.pruned() == committed_before(made, AT + 25)
    assert figures.pages == len(made.pruned())
    assert figures.waiting == {}
    kept = sum(one.warc is not None for one in made.left().values())
    assert records_on_disk(made.folder) == kept + orphans_of(made) < before
    assert leftovers(made.folder) == []


def test_a_dry_run_tells_the_same_figures_and_changes_nothing(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(60))

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in made.folder.root.rglob("*") if path.is_file()}

    before, rule = content(), PruneRule(before=AT + 25)
    told = prune(made.folder, rule, dry_run=True)
    assert content() == before
    assert prune(made.folder, rule) == told
    files = {path for path in before if path.parent in (made.folder.warc, made.folder.items)}
    gone = sum(len(before[path]) for path in files if not path.exists())
    new = [path for path in content().keys() - before.keys() if path.parent in (made.folder.warc, made.folder.items)]
    rewritten = sum(path.stat().st_size for path in new)
    assert told.files_removed + told.files_rewritten == sum(not path.exists() for path in files)
    assert told.files_rewritten == len(new)
    infos = 600 * len(new)  # the first record of a new file
    assert gone - rewritten <= told.bytes <= gone - rewritten + infos


def test_whole_files_are_deleted_and_nothing_is_copied(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n) for n in range(40)])
    names = made.warc_names
    figures = prune(made.folder, PruneRule(before=AT + 1_000))
    assert (figures.pages, figures.files_removed, figures.files_rewritten) == (40, len(names), 0)
    assert made.warc_names == []
    judge(made)


def test_what_stays_of_a_file_tells_who_archived_it(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n) for n in range(6)], file_bytes=100_000)
    (path,) = made.folder.warc.iterdir()
    data = path.read_bytes()
    info = gzip.compress(
        warcinfo("<urn:uuid:x>", filename=path.name, at=AT, software="other/1", fields={"operator": "me@example.org"})
    )
    end = next(iter(members(memoryview(data))))[1]
    index = {key: one.placed(moved(one, len(info) - end), one.items) for key, one in made.commits.items()}
    made.commits.clear()
    made.commits.update(index)
    path.write_bytes(info + data[end:])
    change_lines(made.folder, lambda one: index[one.fingerprint, one.visit])
    prune(made.folder, PruneRule(before=AT + 3))
    (left,) = made.folder.warc.iterdir()
    fields = info_of(left)
    assert (fields["operator"], fields["software"]) == ("me@example.org", "crawler/0")
    assert path.name in fields["description"]
    judge(made)


def moved(one: CommitEntry, by: int) -> WarcLocation | None:
    return replace(one.warc, offset=one.warc.offset + by) if one.warc else None


def test_a_domain_goes_alone(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(60))
    prune(made.folder, PruneRule(domain="d1.test"))
    judge(made)
    assert {key for key, one in made.commits.items() if "//d1.test/" in one.url} == made.pruned()


def test_runs_that_are_kept_and_pages_of_no_run_stay(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(60))
    beyond = runs_beyond(RUNS[1:], 1)
    assert beyond == {"job1.1.a", "job2.1.c", "job2.1.c.2"}
    prune(made.folder, PruneRule(runs=beyond))
    judge(made)
    assert {key for key, one in made.commits.items() if one.run in beyond} == made.pruned()


def test_pages_of_an_active_run_stay_however_old(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(30))
    prune(made.folder, PruneRule(before=AT + 1_000, active=frozenset({"job1.1.b"})))
    judge(made)
    assert {one.run for one in made.left().values()} == {"job1.1.b"}


def test_what_was_pruned_can_be_pruned_again_and_again(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(60), file_bytes=10_000)
    names = set[str]()
    for before in (AT + 5, AT + 8, AT + 30, AT + 31):
        prune(made.folder, PruneRule(before=before))
        names.update(made.warc_names)
        judge(made)
        assert made.pruned() == committed_before(made, before)
    assert any("p2.warc.gz" in name for name in names)
    assert prune(made.folder, PruneRule(before=AT + 31)).pages == 0


# --- killed ---


@pytest.mark.slow(ci=True)
def test_a_prune_killed_at_any_step_loses_nothing_and_the_next_one_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "BATCH_BYTES", 2_500)  # several batches of one or two files
    made = archive(tmp_path / "a", pages(24), file_bytes=1_500)
    rule, reached = PruneRule(before=AT + 20, domain="d1.test"), list[str]()
    prune(archive(tmp_path / "b", pages(24), file_bytes=1_500).folder, rule, step=reached.append)
    assert {"planned", "begun", "part", "draft", "copied", "named", "segment", "removed", "done", "ended"} == {*reached}
    assert len(reached) > 30
    pristine = made.folder.root
    for number in range(1, len(reached) + 1):
        again = tmp_path / "c"
        shutil.copytree(pristine, again)
        copy, steps = Archive(open_existing(again), made.commits), count(1)

        def step(name: str, steps: "count[int]" = steps, number: int = number) -> None:
            if next(steps) == number:
                raise Killed(name)

        with pytest.raises(Killed):
            prune(copy.folder, rule, step=step)
        judge(copy)
        prune(copy.folder, rule)
        judge(copy)
        assert leftovers(copy.folder) == []
        assert {one.url for one in made.commits.values()} - {one.url for one in copy.left().values()} == {
            one.url for one in made.commits.values() if rule.matches(one)
        }, reached[number - 1]
        kept = sum(one.warc is not None for one in copy.left().values())
        assert records_on_disk(copy.folder) == kept + orphans_of(copy), reached[number - 1]
        shutil.rmtree(again)


def test_a_killed_prune_is_completed_by_one_with_another_rule(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(40))

    def step(name: str) -> None:
        if name == "segment":
            raise Killed

    with pytest.raises(Killed):
        prune(made.folder, PruneRule(domain="d1.test"), step=step)
    prune(made.folder, PruneRule(domain="d2.test"))
    judge(made)
    assert {one.url.partition("/page")[0] for one in made.left().values()} == {"http://d0.test"}


# --- what must stay ---


def test_a_file_with_a_commit_that_is_not_indexed_stays(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n, indexed_by=() if n == 5 else ("aa11",)) for n in range(12)])
    place = next(iter(made.commits.values())).warc
    assert place is not None
    late = entry(5, warc=place)  # the engine's log has it, and it is drained after the prune
    figures = prune(made.folder, PruneRule(before=AT + 1_000), undrained=[late])
    of_file = {key for key, one in made.commits.items() if one.warc and one.warc.file == place.file}
    assert of_file
    assert made.pruned() == made.commits.keys() - of_file
    assert figures.waiting == {"running": len(of_file) + 1}
    judge(made)


def test_what_an_open_segment_names_stays_until_it_is_closed(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n) for n in range(12)])
    writer = writer_in(made.folder, "dd44")
    place = writer.add(response(99))[0]
    writer.close()
    index = IndexWriter(made.folder, "dd44")
    index.add(entry(99, session="dd44", warc=place))
    index.sync()
    made.commits[entry(99).fingerprint, 1] = entry(99)
    figures = prune(made.folder, PruneRule(before=AT + 1_000), alive=["dd44"])
    assert [one.url for one in made.left().values()] == [entry(99).url]
    assert figures.waiting == {"running": 1}
    index.close()
    prune(made.folder, PruneRule(before=AT + 1_000))
    assert made.left() == {}
    judge(made)


def test_of_a_living_session_only_files_go_whose_records_are_all_committed(tmp_path: Path) -> None:
    some = [Page(number=n, indexed_by=() if n == 1 else ("aa11",)) for n in range(30)]
    made = archive(tmp_path, some)
    first = made.warc_names[0]
    figures = prune(made.folder, PruneRule(before=AT + 1_000), alive=["aa11"])
    assert made.warc_names == [first], "its second record may be committed any time"
    assert figures.waiting == {"running": len(made.left())}
    judge(made)
    prune(made.folder, PruneRule(before=AT + 1_000))
    assert made.warc_names == []


def test_with_commits_in_other_folders_a_file_with_unnamed_records_stays(tmp_path: Path) -> None:
    some = [Page(number=n, indexed_by=() if n == 1 else ("aa11",)) for n in range(30)]
    made = archive(tmp_path, some)
    figures = prune(made.folder, PruneRule(domain="d0.test"), committed=30)
    assert figures.waiting["unnamed"] > 0
    first = made.warc_names[0]
    assert "p1" not in first
    assert any("p1" in name for name in made.warc_names), "other files have no such record"
    judge(made)


def test_with_commits_in_other_folders_such_a_file_goes_once_all_of_it_is_old(tmp_path: Path) -> None:
    some = [Page(number=n, indexed_by=() if n == 1 else ("aa11",)) for n in range(30)]
    made = archive(tmp_path, some)
    rule = PruneRule(before=AT + 1_000)
    assert prune(made.folder, rule, committed=30).waiting["unnamed"] > 0, "it was written after that time"
    prune(made.folder, PruneRule(before=4_000_000_000.0), committed=30)
    assert made.warc_names == []
    judge(made)


def test_what_an_output_has_not_read_stays_and_goes_once_it_has(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n) for n in range(32)], lines_max=8)
    made.folder.outputs.mkdir()
    cursor = made.folder.outputs / "pages-lines-aa.cursor"
    cursor.touch()
    names = sorted(path.name for path in made.folder.index.iterdir())
    ReadMarks(cursor).note(frozenset(names[:2]))
    figures = prune(made.folder, PruneRule(before=AT + 1_000))
    assert figures.waiting["outputs"] >= 16, "and those in files that have pages of both"
    assert figures.cursors == ["outputs/pages-lines-aa.cursor"]
    assert {one.url for one in made.left().values()} >= {entry(n).url for n in range(16, 32)}
    judge(made)
    ReadMarks(cursor).note(frozenset(names))
    prune(made.folder, PruneRule(before=AT + 1_000))
    assert made.left() == {}


def test_an_output_that_begins_to_read_meanwhile_ends_the_prune_which_goes_on_later(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(30))
    rule = PruneRule(before=AT + 20)
    cursor = made.folder.outputs / "pages-lines-aa.cursor"

    def step(name: str) -> None:
        if name == "begun":
            made.folder.outputs.mkdir()
            cursor.touch()

    with pytest.raises(ConflictError, match=r"pages-lines-aa\.cursor"):
        prune(made.folder, rule, step=step)
    judge(made)
    assert made.pruned() == set()
    ReadMarks(cursor).note(None)
    prune(made.folder, rule)
    assert made.pruned() == committed_before(made, AT + 20)


def test_nothing_is_removed_while_somebody_reads(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(30))
    with made.folder.reading(), pytest.raises(ConflictError, match="still reads"):
        prune(made.folder, PruneRule(before=AT + 20))
    assert made.pruned() == set()
    judge(made)
    prune(made.folder, PruneRule(before=AT + 20))
    assert made.pruned() == committed_before(made, AT + 20)


@pytest.mark.parametrize("part", [0.5, 0.0], ids=["cut", "empty"])
def test_a_file_that_the_index_does_not_fit_is_left_alone(tmp_path: Path, part: float) -> None:
    made = archive(tmp_path, [Page(number=n) for n in range(12)])
    damaged = made.folder.warc / made.warc_names[0]
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(len(data) * part)])
    figures = prune(made.folder, PruneRule(before=AT + 1_000))
    assert made.warc_names == [damaged.name]
    assert figures.waiting == {"damaged": len(made.left())}


def test_a_record_of_a_kind_that_it_does_not_know_is_left_with_its_file(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n) for n in range(12)])
    first = made.folder.warc / made.warc_names[0]
    other = writer_in(made.folder, "zz99")
    other.add(response(50))
    other.close()
    path = next(made.folder.warc.glob("*zz99*"))
    text = gzip.decompress(path.read_bytes())
    unknown = text[text.index(b"WARC/1.1\r\nWARC-Type: response") :].replace(b"Type: response", b"Type: metadata", 1)
    path.unlink()
    first.write_bytes(first.read_bytes() + gzip.compress(unknown.partition(b"WARC/1.1\r\nWARC-Type: request")[0]))
    figures = prune(made.folder, PruneRule(before=AT + 1_000))
    assert made.warc_names == [first.name]
    assert figures.waiting == {"damaged": len(made.left())}


def test_a_disk_without_room_for_what_stays_is_told_and_gets_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = archive(tmp_path, pages(30))

    class Usage:
        free = 1_000

    with monkeypatch.context() as patched:
        patched.setattr(prune_steps.shutil, "disk_usage", lambda _: Usage)
        with pytest.raises(ArchiveError, match="make room"):
            prune(made.folder, PruneRule(domain="d1.test"))
    assert [path for path in made.folder.warc.iterdir() if path.suffix == ".pruning"] == []
    judge(made)
    prune(made.folder, PruneRule(domain="d1.test"))
    assert not any("//d1.test/" in one.url for one in made.left().values())


def test_a_disk_without_room_to_decide_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = archive(tmp_path, pages(30))

    def fail(self: Scratch) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Scratch, "complete", fail)
    with pytest.raises(ArchiveError, match="100 bytes a page to decide: database or disk is full"):
        prune(made.folder, PruneRule(domain="d1.test"))
    assert made.pruned() == set()


def test_old_files_that_no_commit_names_go_by_age(tmp_path: Path) -> None:
    made = archive(tmp_path, [Page(number=n, indexed_by=()) for n in range(12)])
    assert prune(made.folder, PruneRule(domain="d1.test")).files_removed == 0
    assert prune(made.folder, PruneRule(before=AT), alive=["aa11"]).files_removed == 0
    assert prune(made.folder, PruneRule(before=4_000_000_000.0), alive=["aa11"]).files_removed == 0
    names = made.warc_names
    assert prune(made.folder, PruneRule(before=4_000_000_000.0)).files_removed == len(names)
    assert made.warc_names == []


def test_the_journal_of_a_prune_that_did_not_begin_is_dropped(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(30))
    (made.folder.root / "prune.db.new").write_bytes(b"half")
    (made.folder.root / "prune.db.new-journal").write_bytes(b"half")
    assert Journal.found(made.folder) is None
    assert leftovers(made.folder) == []


def test_a_batch_that_was_copied_is_not_copied_again(tmp_path: Path) -> None:
    made = archive(tmp_path, pages(30))

    def step(name: str) -> None:
        if name == "copied":
            raise Killed

    with pytest.raises(Killed):
        prune(made.folder, PruneRule(domain="d1.test"), step=step)
    journal, steps = Journal.found(made.folder), list[str]()
    assert journal is not None
    with journal:
        work(made.folder, journal, steps.append).run()
    assert "part" not in steps
    judge(made)


# --- any archive, any rule ---

PAGES = st.lists(
    st.builds(
        Page,
        number=st.integers(0, 40),
        session=st.sampled_from(["aa11", "bb22"]),
        indexed_by=st.sampled_from([(), ("aa11",), ("bb22",), ("aa11", "bb22"), ("cc33",)]),
        run=st.sampled_from(RUNS),
        has_record=st.booleans(),
        items=st.integers(0, 2),
    ),
    unique_by=lambda page: page.number,
    max_size=30,
)
RULES = st.builds(
    PruneRule,
    before=st.sampled_from([0.0, AT + 10, AT + 25, AT + 1_000]),
    domain=st.sampled_from(["", "d0.test", "d1.test"]),
    runs=st.sampled_from([None, frozenset(RUNS[1:3]), runs_beyond(RUNS[1:], 1)]),
    active=st.sampled_from([frozenset(), frozenset(RUNS[1:2])]),
)


@pytest.mark.slow(ci=True)
@settings(max_examples=60, deadline=None)
@given(some=PAGES, rules=st.lists(RULES, min_size=1, max_size=3), killed_at=st.integers(1, 60), size=st.integers(1, 3))
def test_any_prunes_of_any_archive_leave_what_a_plain_model_leaves(
    tmp_path_factory: pytest.TempPathFactory, some: list[Page], rules: list[PruneRule], killed_at: int, size: int
) -> None:
    made = archive(tmp_path_factory.mktemp("any"), some, file_bytes=600 * size, lines_max=2 * size)
    steps = count(1)

    def step(name: str) -> None:
        if next(steps) == killed_at:
            raise Killed(name)

    for rule in rules:
        try:
            figures = prune(made.folder, rule, step=step)
        except Killed:
            judge(made)
            prune(made.folder, rule)
        else:
            assert figures.waiting == {}
        judge(made)
    gone = {key for key, one in made.commits.items() if any(rule.matches(one) for rule in rules)}
    assert made.pruned() == gone
    assert leftovers(made.folder) == []
