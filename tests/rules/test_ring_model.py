"""The model of the ring: it counts with the crawler's own code, and the same arguments give the same figures."""

import re

import pytest

from crawler.rules.places import partition_of
from crawler.rules.ring import build, moves, share_changed
from scripts.bench_lib import ring_model


def test_moves_are_counted_from_ring_to_ring() -> None:
    before = build({"a": 1, "b": 1}, partitions=64).owners
    after = build({"a": 1, "b": 1, "c": 1}, partitions=64).owners
    found = moves(before, after, 64)
    assert all((before[p], after[p]) == pair for p, pair in found.items())
    assert all(before[p] == after[p] for p in set(range(64)) - set(found))
    assert moves(before, before, 64) == {}
    assert moves((), ("a", "a"), 2) == {0: ("", "a"), 1: ("", "a")}
    assert moves(("a", "a"), (), 2) == {0: ("a", ""), 1: ("a", "")}
    assert moves((), (), 2) == {}


@pytest.mark.parametrize(
    ("now", "then", "share"),
    [
        ({"a": 1}, {"a": 1, "b": 1}, 1 / 2),
        ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1}, 1 / 3),
        ({"a": 1, "b": 1}, {"a": 3, "b": 1}, 1 / 4),
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}, 0),
        ({"a": 1}, {"b": 1}, 1),
        ({}, {"a": 1}, 1),
        ({"a": 1}, {}, 1),
        ({}, {}, 0),
    ],
)
def test_the_least_that_has_to_move_is_the_change_of_the_shares(
    now: dict[str, int], then: dict[str, int], share: float
) -> None:
    assert share_changed(now, then) == pytest.approx(share)


def test_domains_are_counted_where_the_product_puts_them() -> None:
    counts = ring_model.domains_by_partition(3000, jobs=2)
    names = [f"site-{n}.example" for n in range(3000)]
    for partitions in (16384, 1024, 64):
        folded = ring_model.folded(counts, partitions)
        assert sum(folded) == 3000
        for partition in range(0, partitions, max(1, partitions // 8)):
            assert folded[partition] == sum(partition_of(name, partitions) == partition for name in names)


@pytest.mark.slow(ci=True)
def test_the_same_arguments_give_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--instances", "12", "--partitions", "1024", "--domains", "5000", "--churn", "8", "--no-table"]
    arguments += ["--lists", "2"]
    said = []
    for _ in range(2):
        assert ring_model.main(arguments) == 0
        timeless = re.sub(r"[\d.]+ (s|ms|KiB|MiB)\b", "", capsys.readouterr().out)
        said.append(re.sub(r" +", " ", timeless))  # columns are as wide as the times in them
    assert said[0] == said[1]
    (row,) = re.findall(r"^ 12 1,024 85 .*$", said[0], re.MULTILINE)
    columns = row.split()
    assert float(columns[3]) <= 1.10
    assert all(1.0 <= float(worst) <= 1.5 for worst in (columns[6], columns[8]))
    assert columns[11] == "kept"
    assert re.search(r"^join +2 ", said[0], re.MULTILINE)
    assert re.search(r"^weight +4 ", said[0], re.MULTILINE)
    assert "4 joins and leaves in 2 lists of names" in said[0]


@pytest.mark.parametrize("arguments", [["--instances", "1"], ["--partitions", "1000"], ["--domains", "0"]])
def test_sizes_that_make_no_sense_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ring_model.main(arguments)
    assert ended.value.code == 2
    assert "--" in capsys.readouterr().err
