"""Files of URLs as commands take them: what is printed, the exit code, and a command that was killed in the middle."""

import gzip
import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.cli.cli_lab import crawler, in_process
from tests.support.processes import Nursery

USAGE = 2
TABLE = "reading sites.csv as CSV (semicolons), URLs in column 2 'Website'"


@pytest.fixture
def here(programs: Nursery) -> Path:
    (programs.folder / "sites.csv").write_text(
        "Name;Website\nA;https://a.test/\nB;htp://oops\nC;\nD;d.test\n", encoding="utf-16"
    )
    return programs.folder


def test_a_spreadsheet_is_added_and_what_is_no_url_is_told_by_its_line(programs: Nursery, here: Path) -> None:
    ran = in_process(programs, "seed", "-i", "sites.csv", cwd=here)
    assert (ran.code, ran.out) == (0, "2 new, 0 already seen, 0 out of scope, 1 invalid\n")
    assert ran.err.splitlines() == [
        f"crawler: {TABLE}",
        "crawler: sites.csv line 5: taking d.test as https://d.test/, and other hosts there likewise",
        "crawler: sites.csv line 3: 'htp://oops': not http or https",
        "crawler: sites.csv: 1 row without a URL left out",
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("seed", "-i", "sites.csv", "--column", "Site"), USAGE, "no column 'Site' in this CSV (semicolons)"),
        (("seed", "-i", "sites.csv", "--column", "1"), USAGE, "no valid seed URL"),
        (("seed", "-i", "sites.csv", "--format", "lines", "--column", "1"), USAGE, "leave out --format lines"),
        (("seed", "http://a.test/", "--format", "csv"), USAGE, "are for files of URLs: give one with -i FILE"),
        (("crawl", "http://a.test/", "--column", "x"), USAGE, "are for files of URLs: give one with -i FILE"),
        (("jobs", "add", "x", "--every", "1h", "http://a.test/", "--format", "csv"), USAGE, "are for files of URLs"),
        (("seed", "-i", "sites.csv", "--format", "xls"), USAGE, "invalid choice: 'xls'"),
        (("seed", "-i", "sites.csv", "--column", ""), USAGE, "it is empty"),
        (("jobs", "add", "x", "--every", "1h", "--seeds", "sites.csv"), 0, TABLE),
        (("import", "seen", "sites.csv"), 0, TABLE),
        (("import", "seen", "no.csv"), USAGE, "can't read"),
        (("import", "seen", "sites.csv", "--format", "lines"), USAGE, "no valid seed URL"),
    ],
)
def test_each_command_reads_the_same_file(
    programs: Nursery, here: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = in_process(programs, *words, cwd=here)
    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_more_complaints_than_people_read_are_a_count(programs: Nursery) -> None:
    (programs.folder / "u.txt").write_text("".join(f"no {n}\n" for n in range(25)) + "https://a.test/\n")
    for command in ("seed", "import"):
        words = ("seed", "-i", "u.txt") if command == "seed" else ("import", "seen", "u.txt", "--dir", "other")
        ran = in_process(programs, *words, cwd=programs.folder)
        lines = ran.err.splitlines()
        assert (ran.code, len(lines)) == (0, 11), ran.err
        assert lines[0] == "crawler: u.txt line 1: 'no 0': not a URL"
        assert lines[-1] == "crawler: ... and 15 more invalid URLs"


@pytest.mark.slow(seconds=25)
def test_a_command_that_was_killed_is_finished_by_the_same_one(programs: Nursery) -> None:
    urls = [f"https://h{n % 50}.test/{n}" for n in range(20_000)]
    file = programs.folder / "urls.csv.gz"
    file.write_bytes(gzip.compress(("rank,url\n" + "".join(f"{n},{url}\n" for n, url in enumerate(urls))).encode()))
    command = ("seed", "-i", file.name, "--set", "crawl.partitions=16")
    first = programs.crawler(*command, cwd=programs.folder)
    journal = programs.folder / "crawl-data" / "journal"
    while first.process.poll() is None and not any(one.stat().st_size for one in journal.glob("seeds-*.jsonl")):
        time.sleep(0.01)
    assert first.kill() == -signal.SIGKILL
    again = json.loads(crawler(programs, *command, "--json").out)
    assert again["new"] + again["seen"] == len(urls)
    assert again["new"] > 0
    assert json.loads(crawler(programs, *command, "--json").out)["seen"] == len(urls)
    assert pending(programs) == len(urls)
    shutil.rmtree(programs.folder / "crawl-data" / "engine")  # its journal may have one batch twice
    rebuilt = crawler(programs, "rebuild", "--set", "crawl.partitions=16")
    assert (rebuilt.code, pending(programs)) == (0, len(urls)), rebuilt.err


def pending(programs: Nursery) -> int:
    return int(json.loads(crawler(programs, "stats", "--json").out)["totals"]["pending"])
