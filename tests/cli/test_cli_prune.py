"""`crawler prune` on real crawls: what it prints and keeps, and that a kill at any step leaves a clean crawl."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from crawler.archive.folder import open_existing
from crawler.archive.index import to_entry, to_line
from crawler.archive.index_writer import replace_segment
from crawler.archive.session_locks import SessionLock
from crawler.cli.main import main
from crawler.rules.job_runs import RunRecord, RunSpec, home_of, run_id
from crawler.runtime.crash_points import VARIABLE
from tests.cli.cli_lab import HOST, crawler, small_site
from tests.cli.operate_lab import Lab
from tests.crawl.harness import entries_of
from tests.support.engine import Engine
from tests.support.processes import Nursery
from tests.support.serving import serve_resources

ENGINE_DOWN, TAKEN, BAD_INPUT = 3, 4, 2
PAGES = 15
KILLED = -9


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    with serve_resources(small_site()) as site:
        one = Lab(tmp_path / "c", engine, site, capsys)
        assert one.crawl() == PAGES
        yield one


def moment_between(lab: Lab) -> tuple[str, int]:
    """A time between two pages in the middle of the crawl, and how many were fetched before it."""
    times = sorted(entry.fetched_at for entry in entries_of(lab.folder))
    number = max(range(4, 11), key=lambda n: times[n] - times[n - 1])
    at = datetime.fromtimestamp((times[number] + times[number - 1]) / 2, UTC)
    return at.isoformat(timespec="microseconds"), number


@pytest.mark.slow(ci=True)
def test_old_pages_go_stay_done_and_are_not_fetched_again(lab: Lab) -> None:
    before, (when, old) = len(lab.site.requests()), moment_between(lab)
    told = lab.json("prune", "--older-than", when, "--dry-run")
    assert (told["pages"], told["files_removed"], told["files_rewritten"], told["dry_run"]) == (old, 0, 1, True)
    assert len(lab.say("export").splitlines()) == PAGES
    done = lab.json("prune", "--older-than", when)
    assert done == told | {"dry_run": False}
    code, lines, said = lab.run("export", "--columns", "links")
    assert (code, len(lines.splitlines()), said) == (0, PAGES - old, f"{old} pages removed by 'crawler prune'")
    lab.audit()
    assert lab.crawl() == PAGES - old
    assert len(lab.site.requests()) == before, "nothing is fetched again"
    lab.audit()


def test_it_says_what_it_did_and_the_operator_log_has_it(lab: Lab) -> None:
    lines = lab.say("prune", "--domain", f"http://{HOST}/x", "--dry-run").splitlines()
    assert lines[0].startswith("Would remove 15 pages and ")
    assert lines[0].endswith("(1 file would be removed, 0 would be rewritten).")
    lines = lab.say("prune", "--domain", HOST).splitlines()
    assert lines[0].startswith("Removed 15 pages and ")
    assert lines[0].endswith("(1 file removed, 0 rewritten).")
    assert lines[1].startswith("They stay done, and are not fetched again.")
    (entry,) = [json.loads(line) for line in lab.say("oplog", "--json").splitlines()]
    assert (entry["action"], entry["target"]) == ("prune", HOST)
    assert ", pruned" in lab.say("explain", lab.site.url(HOST))
    assert "15 commits were pruned" in lab.say("audit")
    assert lab.say("prune", "--domain", HOST).startswith("Removed 0 pages and 0 attempts")


def test_the_newest_runs_of_a_job_and_active_ones_stay(lab: Lab) -> None:
    runs = [run_id("job1", 1, nominal) for nominal in (1, 2, 3)]
    folder = open_existing(lab.folder)
    for path in folder.index.iterdir():
        entries = [entry for line in path.read_bytes().splitlines(keepends=True) if (entry := to_entry(line))]
        lines = [
            to_line(type(entry)(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"run": run}))
            for number, entry in enumerate(entries)
            for run in [(*runs, "")[number % 4]]
        ]
        replace_segment(folder, path, sorted(lines))
    partitions = json.loads((lab.folder / "bound.json").read_text())["record"]["partitions"]
    with lab.engine.client() as client:
        active = RunRecord(run=runs[0], user="ann", name="news", nominal=1, started_at=1.0, spec=RunSpec())
        client.hset(f"{{main:{home_of('job1', partitions)}}}:runs", runs[0], msgspec.json.encode(active))
        assert lab.json("prune", "--keep-runs", "2")["pages"] == 0
        assert lab.json("prune", "--keep-runs", "1")["pages"] == len([n for n in range(PAGES) if n % 4 == 1])
        assert {entry.run for entry in entries_of(lab.folder)} == {runs[0], runs[2], ""}
        client.hdel(f"{{main:{home_of('job1', partitions)}}}:runs", runs[0])
    pruned = len([n for n in range(PAGES) if n % 4 == 0])
    said = lab.say("prune", "--keep-runs", "1")
    assert said.startswith(f"Removed {pruned} pages and ")
    assert "Their runs stay in the history of jobs." in said
    assert {entry.run for entry in entries_of(lab.folder)} == {runs[2], ""}
    code, out, err = lab.run("export", "--run", runs[0])
    assert (code, out) == (0, "")
    assert f"{pruned} pages of run {runs[0]} removed by 'crawler prune'" in err
    assert "no page of run job1.1.9 in" in lab.run("export", "--run", "job1.1.9")[2]


def test_what_a_living_session_may_still_commit_stays(lab: Lab) -> None:
    folder = open_existing(lab.folder)
    (session,) = {entry.session for entry in entries_of(lab.folder)}
    (index,) = folder.index.iterdir()
    lock = SessionLock(folder, session)
    index.rename(index.with_name(index.name + ".open"))
    found = lab.say("prune", "--domain", HOST)
    assert "15 pages more stay for now: running instances still use their files." in found
    lock.close()
    assert lab.json("prune", "--domain", HOST)["pages"] == PAGES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--older-than WHEN, --keep-runs N, --domain DOMAIN"),
        (("--older-than", "30"), "'30' has no unit"),
        (("--older-than", "soon"), "not a valid time"),
        (("--keep-runs", "0"), "not a valid number"),
        (("--domain", "http://"), "invalid URL"),
    ],
)
def test_bad_input_is_one_line_and_removes_nothing(lab: Lab, words: tuple[str, ...], said: str) -> None:
    try:
        code, _, err = lab.run("prune", *words)
    except SystemExit as ended:
        code, err = int(str(ended.code)), lab.capsys.readouterr().err.strip()
    assert (code, said in err, err.count("\n")) == (BAD_INPUT, True, 0), err
    assert len(entries_of(lab.folder)) == PAGES


def test_without_its_engine_nothing_is_removed(lab: Lab) -> None:
    assert main(["prune", "--domain", HOST, "--dir", str(lab.folder), "--redis", "redis://127.0.0.1:1"]) == ENGINE_DOWN
    lab.engine.flush()
    code, _, err = lab.run("prune", "--domain", HOST)
    assert (code, "'crawler rebuild'" in err, err.count("\n")) == (TAKEN, True, 0)
    assert len(entries_of(lab.folder)) == PAGES


def test_only_one_prune_at_a_time(lab: Lab) -> None:
    with open_existing(lab.folder).exclusive("prune"):
        code, _, err = lab.run("prune", "--domain", HOST)
    assert (code, "prune.lock" in err) == (TAKEN, True)
    assert len(entries_of(lab.folder)) == PAGES


@pytest.mark.slow
@pytest.mark.processes
def test_kill_9_at_any_step_leaves_a_clean_crawl_and_the_same_command_completes_it(lab: Lab, programs: Nursery) -> None:
    where = ("--dir", str(lab.folder), "--redis", lab.engine.url)
    when, old = moment_between(lab)
    command = ("prune", "--older-than", when, *where)
    kills, at = 0, 1
    while True:
        ran = crawler(programs, *command, **{VARIABLE: f"prune.step#{at}=kill"})
        if ran.code != KILLED:
            break
        kills += 1
        code, out, err = lab.run("audit")
        assert code == 0, out + err
        told = lab.run("prune", "--older-than", "1d", "--dry-run")
        assert told[0] in (0, TAKEN), told
        at += 1 if at < 4 else 2
    assert ran.code == 0, ran.err
    assert kills >= 5
    assert ran.out.startswith(f"Completed a prune that was interrupted, of {old} pages.")
    lab.audit()
    assert len(entries_of(lab.folder)) == PAGES - old
    assert [path for path in lab.folder.iterdir() if "prune" in path.name] == []
