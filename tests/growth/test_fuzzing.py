"""The fuzzer reports what it should, and repeats its inputs by seed."""

import random
from pathlib import Path

import pytest

from tests.growth import __main__ as fuzzer
from tests.growth.__main__ import judged
from tests.growth.mixing import input_of
from tests.growth.target import Target
from tests.growth.targets import TARGETS


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


def test_more_time_than_the_bound_and_time_that_grows_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def quadratic(data: bytes) -> None:
        for _ in range(len(data) // 2):
            data.count(b"~")

    monkeypatch.setattr(fuzzer, "JUDGED_S", 0.0005)
    found = judged(target_of(quadratic), b"a" * 16_000, traced=False)
    assert found is not None
    assert found.what.startswith("growth")
    monkeypatch.setattr(fuzzer, "CALL_S_MAX", 0.0)
    found = judged(target_of(quadratic), b"a" * 4096, traced=False)
    assert found is not None
    assert found.what.startswith("time")


def test_quarters_that_mean_something_else_make_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a robots.txt: no rule without its User-agent line, and none where only comments are."""

    def robots(data: bytes) -> None:
        for _ in range(data.count(b"rule") if data.startswith(b"agent") else 0):
            sum(data[:100])

    monkeypatch.setattr(fuzzer, "JUDGED_S", 0.0005)
    data = b"agent " + b"# nothing" * 2000 + b"rule " * 3000
    assert judged(target_of(robots), data, traced=False) is None


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
