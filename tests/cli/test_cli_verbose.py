"""`crawler crawl -v` and `-vv`, and what becomes of a crawl whose messages nobody reads any more."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, SMALL_PAGES, crawler, in_process, small
from tests.support.processes import Nursery

pytestmark = pytest.mark.processes

LINE = re.compile(r"\d\d:\d\d:\d\d (?P<what>.{13}) +(?:[\d,]+ ms|-) (?P<url>http://\S+)(?: - (?P<then>.*))?")


def url_lines(err: str) -> dict[str, re.Match[str]]:
    """By the path of their URL; each URL has one."""
    found = [match for line in err.splitlines() if (match := LINE.fullmatch(line.partition("] ")[2] or line))]
    by_path = {"/" + match["url"].split("/", 3)[3]: match for match in found if match["url"].count("/") > 2}
    assert len(by_path) == sum(match["url"].count("/") > 2 for match in found)
    return by_path


def test_each_url_has_one_line_with_its_status_and_what_comes_of_it(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        done = in_process(programs, "crawl", site.url(HOST), *QUICK, "-v", "--dir", str(tmp_path / "c"))
    assert done.code == 0, done.err
    lines = url_lines(done.err)
    assert len(lines) == SMALL_PAGES + 1  # the forbidden one
    assert lines["/p3"]["what"].startswith("200 ")
    assert lines["/p3"]["then"] is None
    assert lines["/gone"]["what"].startswith("404 ")
    assert lines["/moved"]["then"] == f"redirects to {site.url(HOST, '/p0')}"
    assert lines["/private/x"]["then"] == "forbidden by robots.txt"
    assert "ring.changed" not in done.err
    assert not list((tmp_path / "c" / "log").glob("crawl.log"))


@pytest.mark.slow(ci=True)
def test_vv_adds_links_robots_and_log_events(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        done = crawler(programs, "crawl", site.url(HOST), *QUICK, "-vv", "-n", "1", "--dir", str(tmp_path / "c"))
    assert done.code == 0, done.err
    lines = url_lines(done.err)
    assert lines["/"]["then"] == "16 links, 15 new, 1 out of scope"
    assert re.search(r"^\[\S+-0\] .* robots\.txt +\d+ ms http://\S+ - read; delay 0 s$", done.err, re.MULTILINE)
    assert re.search(r"^\[\S+-0\] .* info ring\.changed ", done.err, re.MULTILINE)


def test_a_crawl_without_v_prints_no_url(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        done = in_process(programs, "crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"))
    assert (done.code, url_lines(done.err)) == (0, {})


@pytest.mark.slow(ci=True)
def test_a_crawl_goes_on_when_its_messages_are_cut_off_as_by_head(programs: Nursery, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with small() as site:
        command = [
            sys.executable,
            "-m",
            "crawler",
            "crawl",
            site.url(HOST),
            *QUICK,
            "-vv",
            "--set",
            "robots.obey=false",  # it warns of that, before the first page
            "--dir",
            str(tmp_path / "c"),
        ]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writing, env=programs.environment,
            cwd=programs.folder, timeout=60, check=False, text=True,
        )  # fmt: skip
    os.close(writing)
    assert done.returncode == 0
    assert f"Finished: {SMALL_PAGES + 1} pages" in done.stdout


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", ["a full pipe", "a stopped terminal"])
def test_a_crawl_goes_on_when_nobody_reads_its_messages(kind: str, programs: Nursery, tmp_path: Path) -> None:
    """A write that blocks would hold up the heartbeat, and so cost all leases."""
    if kind == "a full pipe":
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4096)
        os.set_blocking(writing, True)
    else:
        reading, writing = pty.openpty()
        termios.tcflow(writing, termios.TCOOFF)
    with small() as site:
        command = [sys.executable, "-m", "crawler", "crawl", site.url(HOST), *QUICK, "-v", "--dir", str(tmp_path / "c")]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writing, env=programs.environment,
            cwd=programs.folder, timeout=60, check=False, text=True,
        )  # fmt: skip
    os.close(writing)
    os.close(reading)
    assert done.returncode == 0
    assert f"Finished: {SMALL_PAGES} pages" in done.stdout
