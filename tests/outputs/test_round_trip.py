"""Random items, written while a crawl runs, by processes that are killed, and by an export; read back by readers of
other make: the same items, each as often.

`--all` tries three times as many, `pytest --hypothesis-profile=deep` a thousand of each.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, example, given, settings

from crawler.archive import index_reader
from crawler.outputs import export as exporting
from crawler.outputs import files, follow, lines, parquet
from crawler.outputs.export import export
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Items
from crawler.outputs.target import Target
from tests.outputs.round_trip import (
    PAGES,
    ROUNDS,
    Item,
    Shop,
    csv_found,
    csv_wanted,
    exact,
    json_found,
    killed_after,
    parquet_found,
    postgres_found,
    sqlite_found,
    values_wanted,
)
from tests.support.postgres import PostgresServer

Rounds = list[tuple[list[list[Item]], int]]
EXAMPLES = {"all": 40, "deep": 1000}.get(
    settings.get_current_profile_name(), 14
)  # each starts up to three processes and kills them
some = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


numbers = count()


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are many moments between two of them."""
    monkeypatch.setattr(follow, "EVERY_S", 0.001)
    monkeypatch.setattr(follow, "BATCH_ROWS", 3)
    monkeypatch.setattr(exporting, "BATCH_ROWS", 3)
    monkeypatch.setattr(index_reader, "CHUNK_LINES", 2)
    monkeypatch.setattr(lines, "ROWS", 2)
    monkeypatch.setattr(files, "PACK_ROWS", 4)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 3)


def check(
    rounds: Rounds, target: Target, other: Target, found: Callable[[], tuple[Counter[str], Counter[str]]],
    wanted: Callable[[Sequence[Item]], Counter[str]],
) -> None:  # fmt: skip
    """Both targets, one kept up to date and one exported, have what the pages gave."""
    place = Path(mkdtemp(prefix="crawler-round-trip-"))
    shop = Shop(place)
    try:
        for pages, points in rounds:
            shop.add(pages)

            def work() -> None:
                follower = shop.follower(target)
                follower.open()
                follower.step(is_last=True)

            code = killed_after(points, work)
            assert code in (0, 9)
        follower = shop.follower(target)
        follower.open()
        follower.start()
        shop.close()
        problem = follower.finish()
        assert problem is None, problem
        assert follower.notes == []
        source = Items(shop.folder)
        assert export(shop.folder, [other], source).records == len(shop.wanted)
        source.close()
        live, exported = found()
        assert live == wanted(shop.wanted)
        assert exported == live
    finally:
        shop.close()
        shutil.rmtree(place)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "suffix", [".jsonl.gz", *(pytest.param(one, marks=pytest.mark.slow) for one in (".jsonl", ".jsonl.zst"))]
)
@some
@given(rounds=ROUNDS)
def test_json_lines(tmp_path: Path, suffix: str, rounds: Rounds) -> None:
    (live, other), (live_path, other_path) = two(tmp_path, suffix)
    wanted = lambda items: Counter(map(exact, items))  # noqa: E731
    check(rounds, live, other, lambda: (json_found(live_path), json_found(other_path)), wanted)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "suffix", [".csv", *(pytest.param(one, marks=pytest.mark.slow) for one in (".csv.gz", ".csv.zst"))]
)
@some
@given(rounds=ROUNDS)
def test_csv(tmp_path: Path, suffix: str, rounds: Rounds) -> None:
    (live, other), (live_path, other_path) = two(tmp_path, suffix)
    check(rounds, live, other, lambda: (csv_found(live_path), csv_found(other_path)), csv_wanted)


@pytest.mark.slow(ci=True)
@some
@given(rounds=ROUNDS)
def test_sqlite(tmp_path: Path, rounds: Rounds) -> None:
    (live, other), (live_path, other_path) = two(tmp_path, ".sqlite")
    check(rounds, live, other, lambda: (sqlite_found(live_path), sqlite_found(other_path)), values_wanted)


@pytest.mark.slow
@some
@given(rounds=ROUNDS)
@example(rounds=[([[{"a": "\0", "b": "\x1f"}]], 40)])
def test_postgresql(postgres: PostgresServer, database: str, rounds: Rounds) -> None:
    names = [f"items{next(numbers)}" for _ in range(2)]
    live, other = targets_of([postgres.url(database, table=name) for name in names])
    url = postgres.url(database)

    def wanted(items: Sequence[Item]) -> Counter[str]:
        return values_wanted(items, nul="\ufffd")

    check(rounds, live, other, lambda: (postgres_found(url, names[0]), postgres_found(url, names[1])), wanted)


@pytest.mark.slow(ci=True)
@some
@given(pages=PAGES)
def test_parquet(tmp_path: Path, pages: list[list[Item]]) -> None:
    pytest.importorskip("pyarrow")
    (live, other), (live_path, other_path) = two(tmp_path, ".parquet")
    place = Path(mkdtemp(prefix="crawler-round-trip-"))
    shop = Shop(place)
    shop.add(pages)
    shop.close()
    outputs = follow.Outputs(shop.folder, [live], lambda: Items(shop.folder), warn=print)
    outputs.start()
    assert outputs.finish() == []
    source = Items(shop.folder)
    export(shop.folder, [other], source)
    source.close()
    assert parquet_found(live_path) == parquet_found(other_path) == values_wanted(shop.wanted)
    shutil.rmtree(place)


def two(place: Path, suffix: str) -> tuple[list[Target], list[Path]]:
    """New files, and the targets that they are."""
    folder = Path(mkdtemp(dir=place))
    paths = [folder / f"{name}{suffix}" for name in ("live", "export")]
    return targets_of([os.fspath(path) for path in paths], csv_safe=False), paths
