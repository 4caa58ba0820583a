"""Standard streams that are closed, full, or shared with what handlers print."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, Ran, page, small
from tests.support.processes import Nursery
from tests.support.serving import serve_resources

FULL = "crawler: can't write standard output: No space left on device"
PRINTING = """\
import os
from crawler import Crawler

print("loaded")
app = Crawler()


@app.page("*")
async def anything(page):
    print("handled")
    os.system("echo from a program")
    yield {"url": page.url}
"""


def shell(programs: Nursery, redirections: str, *arguments: str) -> Ran:
    """Run a command with its standard streams redirected as a shell does it."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "crawler", *arguments],
        capture_output=True, text=True, env=programs.environment, cwd=programs.folder, timeout=60, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.parametrize(
    "closed",  # pairs are between what is tried: each alone, and all
    [
        "0",
        "1",
        "2",
        "012",
        "012 -n 2",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("01", "02", "12", "0 -n 2")),
    ],
)
def test_a_crawl_with_closed_streams_crawls(programs: Nursery, closed: str) -> None:
    closed, *instances = closed.split()
    redirections = " ".join(f"{number}>&-" for number in closed)
    with small(2) as site:
        ran = shell(programs, redirections, "crawl", site.url(HOST), *QUICK, *instances)
    assert (ran.code, ran.err if "2" in closed else "") == (0, "")
    assert ("Finished: 5 pages" in ran.out) == ("1" not in closed)
    assert len(list((programs.folder / "crawl-data" / "warc").iterdir())) >= 1


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "command", ["--help", "--version", "crawl --help", "fetch URL", "seed URL", "doctor", "init x"]
)
def test_a_full_standard_output_is_one_line_and_exit_code_5(programs: Nursery, command: str) -> None:
    with small(2) as site:
        words = command.replace("URL", site.url(HOST)).split()
        private = ("--allow-private",) if words[0] in ("fetch", "seed", "doctor") else ()
        ran = shell(programs, ">/dev/full", *words, *private)
    assert (ran.code, ran.err.splitlines()[-1]) == (5, FULL)
    assert ran.err.count(FULL) == 1
    assert "Traceback" not in ran.err


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("output", "told"), [((), FULL), (("-o", "-"), f"{FULL}; free some space")], ids=["summary", "results"]
)
def test_a_crawl_whose_output_is_full_ends_and_says_so(programs: Nursery, output: tuple[str, ...], told: str) -> None:
    with small(2) as site:
        ran = shell(programs, ">/dev/full", "crawl", site.url(HOST), *QUICK, *output)
    assert ran.code == 5
    assert ran.err.splitlines()[-1].startswith(told)


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("instances", "verbose"),
    [
        ((), ()),
        (("-n", "2"), ("-vv",)),
        pytest.param((), ("-vv",), marks=pytest.mark.slow),  # the two above have both
        pytest.param(("-n", "2"), (), marks=pytest.mark.slow),
    ],
    ids=["alone", "supervised verbose", "alone verbose", "supervised"],
)
def test_messages_that_cannot_be_written_do_not_stop_a_crawl(
    programs: Nursery, instances: tuple[str, ...], verbose: tuple[str, ...]
) -> None:
    with small(2) as site:
        ran = shell(programs, "2>/dev/full", "crawl", site.url(HOST), *QUICK, *instances, *verbose)
    assert ran.code == 0
    assert "Finished: 5 pages" in ran.out


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-", ">/dev/full 2>/dev/full"])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(programs: Nursery, stream: str) -> None:
    assert shell(programs, stream, "crawl", "nonsense").code == 2
    assert shell(programs, stream, "nonsense").code == 2


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("instances", "processes"),
    [
        ((), ""),
        ((), ", processes=True"),
        (("-n", "2"), ", processes=True"),
        pytest.param(("-n", "2"), "", marks=pytest.mark.slow),  # less than the row above
    ],
    ids=["in the loop", "in a process", "in a process, supervised", "in the loop, supervised"],
)
def test_what_handlers_print_stays_out_of_results_on_standard_output(
    programs: Nursery, tmp_path: Path, instances: tuple[str, ...], processes: str
) -> None:
    (tmp_path / "shop.py").write_text(PRINTING.replace('page("*")', f'page("*"{processes})'))
    with serve_resources({(HOST, "/"): page("/a"), (HOST, "/a"): page()}) as site:
        app = ("--app", str(tmp_path / "shop.py"))
        ran = shell(programs, "", "crawl", site.url(HOST), *QUICK, *app, "-o", "-", *instances)
    assert ran.code == 0, ran.err
    assert sorted(json.loads(line)["url"] for line in ran.out.splitlines()) == [site.url(HOST), site.url(HOST, "/a")]
    if not instances:
        assert {"handled", "from a program"} <= set(ran.err.splitlines())
