"""`crawler crawls`: the crawls of an engine, and the removal of one, on terminals and in scripts."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_lab import Ran, in_process
from tests.support.engine import Engine
from tests.support.processes import Nursery


def answered(programs: Nursery, answer: str, *arguments: str) -> Ran:
    """The same on a terminal, where a person types an answer."""
    leader, follower = pty.openpty()
    try:
        os.write(leader, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "crawler", *arguments], stdin=follower, capture_output=True, text=True,
            env=programs.environment, cwd=programs.folder, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(leader)
        os.close(follower)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_crawls_of_an_engine_are_listed_and_removed_by_scripts(programs: Nursery, engine: Engine) -> None:
    at = ("--redis", engine.url)
    assert in_process(programs, "crawls", *at).out == "no crawls\n"
    for name in ("a", "a.b"):
        seeded = in_process(programs, "seed", "http://x.test/", *at, "--name", name, "--set", "crawl.partitions=4")
        assert seeded.code == 0
    listed = in_process(programs, "crawls", *at).out.splitlines()
    assert listed[0].split() == ["crawl", "created", "pages", "pending", "instances"]
    assert [line.split()[0] for line in listed[1:]] == ["a", "a.b"]
    rows = [json.loads(line) for line in in_process(programs, "crawls", "list", *at, "--json").out.splitlines()]
    assert [(row["name"], row["pages"], row["pending"], row["condition"]) for row in rows] == [
        ("a", 0, 1, "ready"), ("a.b", 0, 1, "ready"),
    ]  # fmt: skip
    refused = in_process(programs, "crawls", "rm", "a", *at)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "crawler: add --yes to remove the crawl 'a': there is no terminal to ask on\n"
    done = in_process(programs, "crawls", *at, "rm", "a", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Removed crawl 'a' from the engine: ")
    assert "'crawler rebuild' brings the crawl back" in done.out
    gone = in_process(programs, "crawls", "rm", "a", "--yes", *at)
    assert (gone.code, gone.err) == (2, "crawler: the engine has no crawl 'a' (it has: a.b)\n")
    bad = in_process(programs, "crawls", "rm", "a b", "--yes", *at)
    assert (bad.code, bad.err.count("\n")) == (2, 1)
    assert "crawl.name" in bad.err


@pytest.mark.slow(ci=True)
def test_a_person_is_asked_and_the_folder_keeps_what_a_rebuild_needs(programs: Nursery) -> None:
    folder = ("--dir", "c")
    assert in_process(programs, "seed", "http://x.test/", *folder, "--set", "crawl.partitions=4").code == 0
    kept = answered(programs, "n", "crawls", "rm", "main", *folder)
    assert (kept.code, kept.out) == (2, "")
    assert "Remove crawl 'main' (0 pages, 1 pending) from the engine?" in kept.err
    assert kept.err.endswith("crawler: not confirmed: nothing was removed\n")
    assert answered(programs, "y", "crawls", "rm", "main", *folder).code == 0
    assert in_process(programs, "crawls", *folder).out == "no crawls\n"
    assert Path(programs.folder, "c", "journal").is_dir()
    assert in_process(programs, "rebuild", *folder).code == 0
    assert json.loads(in_process(programs, "crawls", *folder, "--json").out)["pending"] == 1


def test_no_crawl_folder_is_one_line(programs: Nursery) -> None:
    none = in_process(programs, "crawls", "--dir", "nowhere")
    assert (none.code, none.out, none.err.count("\n")) == (2, "", 1)
