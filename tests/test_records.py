"""When a change counts as slower, and the lines in which benchmarks are kept."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.engine import Engine, running_engine
from tests.support.lab import LAB, lab_module
from tests.test_peers import run_of

records = lab_module("records")
record_bench = lab_module("record_bench")
engine_loop = lab_module("engine_loop")

HEADER = {"commit": "abc", "date": "2026-01-01 00:00", "machine": {"cpu": "some"}}
FILE = LAB.parents[1] / "docs" / "benchmarks.ndjson"


def record(crawler: list[float], engine: float = 0.1, base: float = 1.0) -> dict[str, Any]:
    """Of runs of four pages with these CPU seconds, beside loops that took `base` for as many."""
    runs = [run_of(client_cpu_s=cpu, engine_cpu_s=engine * base) for cpu in crawler]
    loops = [1000 * base / 4 for _ in crawler]
    return records.record_of(HEADER, "w", runs, [run_of(client_cpu_s=base) for _ in crawler], loops)


def worse(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [verdict.what for verdict in records.verdicts(now, before) if verdict.is_worse]


def test_a_record_has_ratios_to_the_calibration_loop_and_cpu_seconds() -> None:
    found = record([3.0, 2.0, 4.0], engine=0.5, base=2.0)
    assert found["ratios"]["crawler"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert found["ratios"]["engine"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert found["cpu_s_per_1000"] == {
        "crawler": 750, "engine": 250, "calibration": 500, "engine_calibration": 500,
    }  # fmt: skip
    assert (found["rounds"], found["pages"], found["commit"]) == (3, 4, "abc")


def test_a_machine_that_is_slower_as_a_whole_is_no_regression() -> None:
    assert worse(record([3.0, 3.0, 3.0], base=2.0), record([1.5, 1.5, 1.5], base=1.0)) == []


def test_a_ratio_that_rose_by_more_than_the_noise_of_both_is_a_regression() -> None:
    before = record([1.4, 1.5, 1.6])
    assert worse(record([1.6, 1.69, 1.8]), before) == []
    assert worse(record([1.7, 1.75, 1.8]), before) == ["crawler"]
    assert worse(before, record([1.7, 1.75, 1.8])) == []


def test_a_round_in_which_something_else_ran_is_no_noise() -> None:
    before = record([1.5, 9.0, 1.5, 1.5, 0.1])
    assert before["ratios"]["crawler"] == {"median": 1.5, "low": 1.5, "high": 1.5}
    assert worse(record([1.6, 1.6, 0.1, 1.6, 9.0]), before) == ["crawler"]


def test_the_engine_is_judged_on_its_own() -> None:
    assert worse(record([1.5, 1.5, 1.5], engine=0.2), record([1.5, 1.5, 1.5], engine=0.1)) == ["engine"]


def test_a_machine_that_is_slower_for_engines_alone_is_no_regression() -> None:
    def slowed_by(factor: float) -> dict[str, Any]:
        runs = [run_of(client_cpu_s=1.5, engine_cpu_s=0.1 * factor) for _ in range(3)]
        return records.record_of(HEADER, "w", runs, [run_of(client_cpu_s=1.0) for _ in runs], [0.2 * factor] * 3)

    assert worse(slowed_by(1.6), slowed_by(1.0)) == []


def test_a_verdict_says_in_one_line_what_was_and_what_the_noise_is() -> None:
    first = records.verdicts(record([1.8, 1.8, 1.9]), record([1.5, 1.5, 1.6]))[0]
    assert str(first) == (
        "crawler: WORSE: 1.800 of its calibration loop, before 1.500 (+20.0 %; noise of the rounds 0.100)"
    )


def test_what_is_written_is_read_back_and_the_last_of_a_workload_counts() -> None:
    first, second = record([1.0]), record([2.0])
    other = record([3.0]) | {"workload": "x"}
    text = "".join(map(records.line_of, (first, second, other)))
    assert text.count("\n") == 3
    found = records.read(text)
    assert found == [first, second, other]
    assert records.last(found, "w") == second
    assert records.last(found, "y") is None


@pytest.mark.parametrize(("line", "why"), [("{", "line 2 is not JSON"), ('{"commit": ""}', "line 2 is no record")])
def test_a_line_that_is_no_record_is_named(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        records.read(records.line_of(record([1.0])) + line)


def test_the_projects_own_records_can_be_read() -> None:
    assert records.last(records.read(FILE.read_text("utf-8")), record_bench.WORKLOAD) is not None


@pytest.mark.parametrize(("cpu_s", "code"), [(1.0, 0), (9.0, 1)])
def test_the_exit_code_tells_a_regression_and_only_write_writes(
    cpu_s: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.ndjson"
    before = record([1.0, 1.1, 0.9]) | {"workload": record_bench.WORKLOAD}
    file.write_text(records.line_of(before), encoding="utf-8")
    pages = [str(number) for number in range(record_bench.WEB.pages_min)]
    crawler = [run_of(pages, client_cpu_s=cpu_s, engine_cpu_s=0.1) for _ in range(3)]
    runs = {"bare": [run_of(pages, client_cpu_s=1.0) for _ in range(3)], "crawler": crawler}
    monkeypatch.setattr(record_bench, "measured", lambda rounds: (runs, [1 / 3] * 3))
    monkeypatch.setattr(record_bench.servers, "missing_packages", lambda web: [])
    for words, lines in (((), 1), (("--write",), 2)):
        monkeypatch.setattr("sys.argv", ["bench-record", "--file", str(file), *words])
        assert record_bench.main() == code
        assert len(file.read_text("utf-8").splitlines()) == lines
        capsys.readouterr()


def test_the_loop_of_the_engine_loads_a_server_prints_its_cpu_seconds_and_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    @contextlib.contextmanager
    def watched(*options: str) -> Iterator[Engine]:
        with running_engine(*options) as engine:
            yield engine
            with contextlib.closing(engine.client()) as client:
                folder = Path(client.config_get("dir")["dir"])
            seen.append((engine.url, (folder / "appendonlydir" / "appendonly.aof.1.incr.aof").read_bytes()))

    monkeypatch.setattr(engine_loop, "running_engine", watched)
    monkeypatch.setattr(engine_loop, "PAGES", 70)
    assert engine_loop.main() == 0
    assert 0 < float(capsys.readouterr().out) < 10
    ((url, written),) = seen
    assert b"calibration" in written
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(OSError):
        client.connect(url.removeprefix("unix://"))


def test_the_loop_of_the_engine_asks_the_same_at_each_run() -> None:
    def commands() -> list[object]:
        pipelines = engine_loop.loads(redis.Redis())
        return [command for pipeline in pipelines for command, _ in pipeline.command_stack]

    assert commands() == commands()
    assert len(commands()) == engine_loop.PAGES
