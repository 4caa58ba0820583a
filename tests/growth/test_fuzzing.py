"""The fuzzer reports what it should, and repeats its inputs by seed."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.growth import __main__ as fuzzer
from tests.growth.__main__ import judged
from tests.growth.mixing import input_of
from tests.growth.target import Target
from tests.growth.targets import TARGETS

Costing = Callable[[Callable[[bytes], float]], Target]


def target_of(function: object, raises: tuple[type[Exception], ...] = ()) -> Target:
    return Target(name="tried", function=function, tokens=(b"a",), bytes_max=4096, raises=raises)  # type: ignore[arg-type]


def test_an_exception_that_the_row_does_not_list_is_a_finding() -> None:
    found = judged(target_of(int), b"9" * 5000, traced=False)
    assert found is not None
    assert found.what.startswith("ValueError")
    assert judged(target_of(int, (ValueError,)), b"9" * 5000, traced=False) is None


def test_more_memory_than_the_bound_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzer, "MEMORY_BYTES_MAX", 1000)
    found = judged(target_of(lambda data: bytes(1000 * len(data))), b"a" * 100, traced=True)
    assert found is not None
    assert found.what.startswith("memory")
    assert judged(target_of(len), b"a" * 100, traced=True) is None


@pytest.fixture
def costing(monkeypatch: pytest.MonkeyPatch) -> Costing:
    """Targets whose calls take as many seconds as their function returns, on a machine of any speed."""
    spent: list[float] = []

    def cpu_s(call: Callable[[bytes], None], data: bytes) -> float:
        call(data)
        return spent.pop()

    monkeypatch.setattr(fuzzer, "cpu_s", cpu_s)
    return lambda function: target_of(lambda data: spent.append(function(data)))


def test_more_time_than_the_bound_and_time_that_grows_are_findings(costing: Costing) -> None:
    found = judged(costing(lambda data: (len(data) / 16_000) ** 2), b"a" * 16_000, traced=False)
    assert found is not None
    assert found.what == "growth: 62.5 ms for a quarter -> 1000 ms"
    assert judged(costing(lambda data: len(data) / 16_000), b"a" * 16_000, traced=False) is None
    found = judged(costing(lambda data: len(data) / 1000), b"a" * 4096, traced=False)
    assert found is not None
    assert found.what.startswith("time: 4.1 s")


def test_quarters_that_mean_something_else_make_no_growth(costing: Costing) -> None:
    """As in a robots.txt: no rule without its User-agent line, and none where only comments are."""

    def robots(data: bytes) -> float:
        return data.count(b"rule") / 3000 if data.startswith(b"agent") else 0.0

    data = b"agent " + b"# nothing" * 2000 + b"rule " * 3000
    assert judged(costing(robots), data, traced=False) is None


def test_a_written_finding_is_found_again_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "input.bin"
    file.write_bytes(b"a" * 4096)
    monkeypatch.setitem(TARGETS, "tried", target_of(lambda data: sum(data)))
    monkeypatch.setattr(fuzzer.logging, "disable", lambda level: None)
    monkeypatch.setattr("sys.argv", ["fuzz", "--target", "tried", "--input", str(file), "--out", str(tmp_path)])
    assert fuzzer.main() == 0
    monkeypatch.setattr(fuzzer, "CALL_S_MAX", 0.0)
    assert fuzzer.main() == 1


@pytest.mark.parametrize("name", ["page", "sitemap", "coding.gzip", "url"])
def test_a_seed_gives_the_same_inputs_again(name: str) -> None:
    target = TARGETS[name]
    one, other = ([input_of(target, random.Random(seed), 2000) for seed in range(20)] for _ in range(2))
    assert one == other
    assert len(set(one)) > 15
