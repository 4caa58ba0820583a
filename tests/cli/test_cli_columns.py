"""Columns of pages in commands that are killed: targets stay as they were, each page is there once, no process is left.

A library that stands in for resiliparse tells which processes it runs in, and holds each page until it may go on, or
until whoever asked for it is gone.
"""

import json
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from crawler.engine.embedded import EmbeddedEngine
from crawler.outputs import follow
from crawler.parsing import column_pool
from tests.cli.cli_lab import HOST, QUICK, SMALL_PAGES, crawler, in_process, small
from tests.cli.test_cli_outputs import lines
from tests.support.patience import wait_until
from tests.support.processes import Nursery, is_running

pytestmark = pytest.mark.processes

HOLDING = """
import os, pathlib, time
folder = pathlib.Path({folder!r})
def extract_plain_text(html, **options):
    asker = os.getppid()
    (folder / str(os.getpid())).touch()
    while os.getppid() == asker and not (folder / "go").exists():
        time.sleep(0.02)
    return "main text"
"""


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A folder with a file for each process that has a page, and the stand-in in `path`."""
    folder = tmp_path / "held"
    package = folder / "path" / "resiliparse" / "extract"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "html2text.py").write_text(HOLDING.format(folder=str(folder)))
    return folder


def processes(held: Path) -> list[int]:
    return [int(file.name) for file in held.iterdir() if file.name.isdecimal()]


@pytest.mark.slow(ci=True)
def test_an_export_that_is_killed_leaves_its_target_as_it_was_and_no_process(
    programs: Nursery, tmp_path: Path, held: Path
) -> None:
    folder, target = ("--dir", str(tmp_path / "c")), tmp_path / "pages.jsonl"
    with small() as site:
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, *folder, "-q").code == 0
    assert in_process(programs, "export", *folder, "-o", str(target)).code == 0
    before = target.read_bytes()
    path = {"PYTHONPATH": f"{held / 'path'}:{programs.environment['PYTHONPATH']}"}
    command = ("export", *folder, "-o", str(target), "--columns", "main_text")
    running = programs.crawler(*command, **path)
    wait_until(lambda: len(processes(held)) == 2)
    running.kill()
    wait_until(lambda: not any(map(is_running, processes(held))))
    wait_until(lambda: not programs.left())
    assert target.read_bytes() == before
    (held / "go").touch()
    ran = crawler(programs, *command, **path)
    assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
    records = [json.loads(line) for line in target.read_text().splitlines()]
    assert len({record["url"] for record in records}) == len(records) == SMALL_PAGES
    assert {record["main_text"] for record in records if record["status"] == 200} == {"main text"}
    assert {file.name for file in tmp_path.iterdir()} == {"c", "held", "pages.jsonl"}, "no draft is left"


@pytest.mark.slow(ci=True)
def test_a_crawl_with_columns_that_is_killed_goes_on_with_each_page_once(
    programs: Nursery, tmp_path: Path, held: Path
) -> None:
    target, engine = tmp_path / "pages.jsonl", EmbeddedEngine(tmp_path / "c" / "engine")
    path = {"PYTHONPATH": f"{held / 'path'}:{programs.environment['PYTHONPATH']}"}
    (held / "go").touch()
    with small(40, delay_s=0.05) as site:
        command = ("crawl", site.url(HOST), *QUICK, "--dir", str(tmp_path / "c"), "-o", str(target), "-q")
        command += ("--columns", "main_text")
        for pages in (3, 15):
            running = programs.crawler(*command, **path)
            wait_until(lambda pages=pages: len(lines(target)) >= pages)  # type: ignore[misc]
            running.kill()
            wait_until(lambda: not any(map(is_running, processes(held))))
            wait_until(lambda: not set(programs.left()) - {engine.pid()})
        ran = crawler(programs, *command, **path)
        assert (ran.code, ran.err) == (0, "")
    assert len(lines(target)) == len(set(lines(target))) == 43
    records = [json.loads(line) for line in target.read_text().splitlines()]
    assert {record["main_text"] for record in records if record["status"] == 200} == {"main text"}


@pytest.mark.parametrize("end", ["no process", "no thread"])
def test_columns_that_cannot_be_found_here_are_one_line_and_come_later(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    folder, target = ("--dir", str(tmp_path / "c")), tmp_path / "pages.jsonl"
    command = ("export", *folder, "-o", str(target), "--columns", "text")
    with small() as site:
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, *folder, "-q").code == 0
    assert in_process(programs, "export", *folder, "-o", str(target)).code == 0
    before = target.read_bytes()
    if end == "no process":
        worker = partial(column_pool.ColumnWorker, ("/no/such/program",))
        monkeypatch.setattr(column_pool, "ColumnWorker", worker)
        why = "their process does not start (No such file or directory)"
    else:
        why = "can't start new thread"
        monkeypatch.setattr(column_pool.ThreadPoolExecutor, "submit", Mock(side_effect=RuntimeError(why)))
    ran = in_process(programs, *command)
    assert (ran.code, ran.err) == (12, f"crawler: columns of pages can't be found here: {why}\n")
    assert target.read_bytes() == before
    monkeypatch.undo()
    assert in_process(programs, *command).code == 0
    assert len([json.loads(line)["text"] for line in target.read_text().splitlines()]) == SMALL_PAGES


@pytest.mark.slow(ci=True)
def test_a_crawl_whose_columns_cannot_be_found_ends_and_its_output_catches_up(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "pages.jsonl"
    options = (*QUICK, "--dir", str(tmp_path / "c"), "-q", "-o", str(target), "--columns", "text")
    worker = partial(column_pool.ColumnWorker, ("/no/such/program",))
    monkeypatch.setattr(column_pool, "ColumnWorker", worker)
    monkeypatch.setattr(follow, "FINISH_S", 0.1)
    with small() as site:
        ran = in_process(programs, "crawl", site.url(HOST), *options)
        assert (ran.code, "columns of pages can't be found here" in ran.err) == (12, True), ran
        assert (lines(target), "Traceback" in ran.err) == ([], False)
        monkeypatch.undo()
        assert in_process(programs, "crawl", *options).code == 0
        assert len(lines(target)) == SMALL_PAGES
