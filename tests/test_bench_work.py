"""What `scripts/bench work` counts is the same each time, and what it says of the recorded values is right."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.bench_lib import work
from scripts.bench_lib.work_counts import FEW, STAGES, START, Calls, Recorder
from scripts.bench_lib.work_pages import FixedWeb
from scripts.bench_lib.work_world import crawled
from tests.simulation.wire import OPTIONS
from tests.support.engine import running_engine

HERE = {"python": "3.11.7, GCC", "redis": "8.1"}


@pytest.fixture(scope="module")
def path():
    with running_engine(*OPTIONS) as engine:
        yield engine.url.removeprefix("unix://")


@pytest.mark.slow(ci=True)
def test_a_crawl_makes_the_same_calls_and_commands_each_time(path: str) -> None:
    def measured() -> tuple[list[int], list[object]]:
        calls = Calls()
        traffic = crawled(START, path, partitions=FEW, counted=calls.counted)
        return [calls.of_crawler(), calls.of_others()], [traffic.bytes, traffic.commands, traffic.operations]

    crawled(START, path, partitions=FEW)  # what is made once in a process
    calls, traffic = measured()
    assert all((*calls, *traffic))
    again = measured()
    assert again[0] == pytest.approx(calls, rel=0.005)  # this process has run other tests
    assert again[1] == traffic


def test_a_page_more_is_counted(path: str) -> None:
    few, many = (crawled(FixedWeb(hosts=1, pages_each=n), path, partitions=FEW) for n in (2, 12))
    assert many.bytes > few.bytes
    assert many.operations > few.operations


def test_what_each_stage_calls_is_found(path: str) -> None:
    recorder = Recorder()
    crawled(START, path, partitions=FEW, counted=recorder.recorded)
    assert [stage for stage, calls in recorder.calls.items() if not calls] == []
    assert all(not hasattr(getattr(owner, name), "calls") for found in STAGES.values() for owner, name in found)


@pytest.mark.parametrize(
    ("now", "before", "without", "expected"),
    [
        ({"a": 102}, {"a": 100}, (), []),
        ({"a": 103}, {"a": 100}, (), ["WORSE: a: 103, recorded 100 (+3.0 %)"]),
        ({"a": 50}, {"a": 100}, (), []),
        ({"a": 1}, {"a": 0}, (), ["WORSE: a: 1, recorded 0 (new)"]),
        ({"a": 0}, {"a": 0}, (), []),
        ({"a": 1}, {}, (), ["NEW: a: 1 is not recorded"]),
        ({}, {"a": 1}, (), []),
        ({"a page: instructions": 9}, {"a page: instructions": 1}, work.OF_LIBRARIES, []),
        ({"b: calls": 9}, {"b: calls": 1}, work.OF_LIBRARIES, ["WORSE: b: calls: 9, recorded 1 (+800.0 %)"]),
    ],
)  # fmt: skip
def test_a_value_may_grow_by_two_percent(now, before, without, expected) -> None:
    assert work.grown(now, before, without=without) == expected


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (HERE, ""),
        (HERE | {"redis": "7.0"}, "redis is 8.1, and was 7.0"),
        ({"python": "3.11.7, GCC"}, "redis is 8.1, and was not there"),
        (HERE | {"gone": "1"}, ""),
    ],
)
def test_another_version_of_a_library_is_said(recorded, expected) -> None:
    assert work.not_comparable(recorded, HERE) == expected


@pytest.fixture
def bench(tmp_path: Path, monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs the command with these values instead of measured ones."""

    def run(values: dict[str, int], *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(work, "counted", lambda *, with_instructions: values)
        code = work.main([*words, "--file", str(tmp_path / "work.json")])
        return code, *capsys.readouterr()

    return run


def test_a_record_has_its_reason_and_later_runs_are_compared_with_it(bench, tmp_path: Path) -> None:
    assert bench({"b": 2, "a": 100})[0] == 0  # nothing to compare with
    assert bench({"b": 2, "a": 100}, "--record", " first ")[0] == 0
    record = json.loads((tmp_path / "work.json").read_text())
    assert record["reason"] == "first"
    assert list(record["values"]) == ["a", "b"]
    assert bench({"b": 2, "a": 101})[0] == 0
    code, out, _ = bench({"b": 2, "a": 110})
    assert code == 1
    assert "WORSE: a: 110, recorded 100 (+10.0 %)" in out
    assert "scripts/bench work --record 'REASON'" in out
    assert json.loads((tmp_path / "work.json").read_text()) == record


def test_instructions_are_not_dropped_from_the_record(bench) -> None:
    assert bench({"a: instructions": 2}, "--record", "first")[0] == 0
    code, _, error = bench({}, "--record", "second", "--no-instructions")
    assert code == 2
    assert "valgrind" in error


def test_a_file_that_is_no_record_is_refused_by_its_name(bench, tmp_path: Path) -> None:
    for text in ("{", "[]", '{"values": {}}'):
        (tmp_path / "work.json").write_text(text)
        code, _, error = bench({"a": 1})
        assert code == 2
        assert "work.json" in error


def test_a_record_without_a_reason_is_refused(bench) -> None:
    with pytest.raises(SystemExit):
        bench({"a": 1}, "--record", " ")


def test_the_recorded_file_has_a_value_of_each_kind() -> None:
    values = work.read(work.FILE)["values"]
    assert list(values) == sorted(values)
    assert {f"a page, {stage}: instructions" for stage in STAGES} <= set(values)
    counted = ("calls", "calls of libraries", "engine bytes", "engine commands", "engine operations")
    crawls = ("start and end", "100 pages", "a minute of waiting")
    assert {f"{crawl}: {name}" for crawl in crawls for name in counted} <= set(values)


@pytest.mark.slow(seconds=60)
def test_all_counts_repeat_in_another_process(path: str, tmp_path: Path) -> None:
    first, again = (work.run("counts", [], path, str(tmp_path)) for _ in range(2))
    assert again == pytest.approx(first, rel=0.005)
