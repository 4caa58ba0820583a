"""When a change counts as slower, and the file of the records."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from scripts.bench_lib import calibration, peer_clients, record_file
from scripts.bench_lib import record as record_bench
from scripts.bench_lib.other_commit import at_commit
from scripts.bench_lib.peer_environments import UnavailableError
from tests.support.engine import Engine, running_engine
from tests.test_peers import run_of

HEADER = {"commit": "abc", "date": "2026-01-01 00:00", "machine": {"cpu": "some"}}


def record(crawler: list[float], engine: float = 0.1, base: float = 1.0) -> dict[str, Any]:
    """Of runs of four pages with these CPU seconds, with loops that took `base` for as many pages."""
    runs = [run_of(client_cpu_s=cpu, engine_cpu_s=engine * base) for cpu in crawler]
    loops = [1000 * base / 4 for _ in crawler]
    return record_file.record_of(HEADER, "w", runs, [run_of(client_cpu_s=base) for _ in crawler], loops)


def worse(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [verdict.what for verdict in record_file.verdicts(now, before) if verdict.is_worse]


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
        return record_file.record_of(HEADER, "w", runs, [run_of(client_cpu_s=1.0) for _ in runs], [0.2 * factor] * 3)

    assert worse(slowed_by(1.6), slowed_by(1.0)) == []


def test_code_is_slower_than_before_when_it_is_so_in_all_rounds_but_the_oddest() -> None:
    def pair(*ratios: float) -> Any:
        now = [run_of(client_cpu_s=2 * ratio, engine_cpu_s=0.1) for ratio in ratios]
        return record_file.paired(now, [run_of(client_cpu_s=2.0, engine_cpu_s=0.1) for _ in ratios])

    slower, engine = pair(1.02, 1.03, 0.2, 1.05, 1.04)
    assert slower.is_worse
    assert str(slower) == "crawler: WORSE: 1.030 of the earlier code (1.020 to 1.040 in the middle rounds)"
    assert (engine.is_worse, engine.ratio.median) == (False, 1.0)
    assert not pair(1.02, 1.03, 0.99, 0.98, 1.04)[0].is_worse
    assert "better" in str(pair(0.95, 0.96, 0.97)[0])


@pytest.mark.slow
def test_the_code_of_an_earlier_commit_runs_beside_that_of_now() -> None:
    with at_commit(peer_clients.all_clients(8)["crawler"], "HEAD") as client:
        folder = Path(client.environment["PYTHONPATH"])
        assert (client.name, client.title) == ("before", "this crawler at HEAD")
        command = [sys.executable, "-m", "crawler", "--version"]
        subprocess.run(command, env={"PYTHONPATH": str(folder)}, cwd="/", check=True, capture_output=True)
        assert (folder / "crawler" / "frontier" / "lua" / "claim.lua").exists()
    assert not folder.exists()


def test_a_commit_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(UnavailableError, match="commit 0123abcd is not available: "),
        at_commit(peer_clients.all_clients(8)["crawler"], "0123abcd"),
    ):
        pass


def test_a_verdict_says_in_one_line_what_was_and_what_the_noise_is() -> None:
    first = record_file.verdicts(record([1.8, 1.8, 1.9]), record([1.5, 1.5, 1.6]))[0]
    assert str(first) == ("crawler: WORSE: 1.800 of its calibration loop, before 1.500 (+20.0 %; noise 0.100)")


def test_what_is_written_is_read_back_and_the_last_of_a_workload_counts() -> None:
    first, second = record([1.0]), record([2.0])
    other = record([3.0]) | {"workload": "x"}
    text = "".join(map(record_file.line_of, (first, second, other)))
    assert text.count("\n") == 3
    found = record_file.read(text)
    assert found == [first, second, other]
    assert record_file.last(found, "w") == second
    assert record_file.last(found, "y") is None


@pytest.mark.parametrize(("line", "why"), [("{", "line 2 is not JSON"), ('{"commit": ""}', "line 2 is not a record")])
def test_a_line_that_is_no_record_is_named(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        record_file.read(record_file.line_of(record([1.0])) + line)


def test_the_projects_own_records_can_be_read() -> None:
    assert record_file.last(record_file.read(record_bench.FILE.read_text("utf-8")), record_bench.WORKLOAD) is not None


@pytest.mark.parametrize(
    ("cpu_s", "then_s", "code"),
    [
        pytest.param(1.0, None, 0, id="the same"),
        pytest.param(9.0, 8.0, 1, marks=pytest.mark.slow, id="slower, and slower than the code before"),
        pytest.param(9.0, 9.0, 0, marks=pytest.mark.slow, id="slower, and so is the code before"),
        pytest.param(9.0, None, 1, id="slower, and the code before can't be run"),
    ],
)
def test_the_exit_code_tells_a_regression_and_only_write_writes(
    cpu_s: float,
    then_s: float | None,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "records.ndjson"
    commit = "0123abcd" if then_s is None else "HEAD"
    before = record([1.0, 1.1, 0.9]) | {"workload": record_bench.WORKLOAD, "commit": commit}
    file.write_text(record_file.line_of(before), encoding="utf-8")
    pages = [str(number) for number in range(record_bench.WEB.pages_min)]

    def taking(cpu_s: float | None) -> list[Any]:
        return [run_of(pages, client_cpu_s=cpu_s, engine_cpu_s=0.1) for _ in range(3)]

    found = {"bare": taking(1.0), "crawler": taking(cpu_s)}
    monkeypatch.setattr(record_bench.measure, "take_cores", lambda: None)
    monkeypatch.setattr(record_bench, "measured", lambda rounds, cores: (found, [1 / 3] * 3))
    monkeypatch.setattr(record_bench, "with_other_code", lambda client, rounds, cores: (taking(cpu_s), taking(then_s)))
    monkeypatch.setattr(record_bench.servers, "missing_packages", lambda web: [])
    for words, lines in (((), 1), (("--write",), 2)):
        assert record_bench.main(["--file", str(file), *words]) == code
        assert len(file.read_text("utf-8").splitlines()) == lines
        printed = capsys.readouterr()
        assert ("in turn with the code of" in printed.out) == (cpu_s > 1.0)
        assert ("is not available" in printed.err) == (cpu_s > 1.0 and then_s is None)


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

    monkeypatch.setattr(calibration, "running_engine", watched)
    monkeypatch.setattr(calibration, "PAGES", 70)
    assert calibration.main() == 0
    assert 0 < float(capsys.readouterr().out) < 10
    ((url, written),) = seen
    assert b"calibration" in written
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(OSError):
        client.connect(url.removeprefix("unix://"))


def test_the_loop_of_the_engine_asks_the_same_at_each_run() -> None:
    def commands() -> list[object]:
        pipelines = calibration.loads(redis.Redis())
        return [command for pipeline in pipelines for command, _ in pipeline.command_stack]

    assert commands() == commands()
    assert len(commands()) == calibration.PAGES
