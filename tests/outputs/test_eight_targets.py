"""A crawl with eight targets that is killed ten times, while others replace, empty and shorten them."""

import csv
import gzip
import io
import json
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from crawler.engine.embedded import EmbeddedEngine
from tests.cli.cli_lab import HOST, QUICK, crawler, in_process, small
from tests.support.patience import PATIENCE_S
from tests.support.postgres import PostgresServer
from tests.support.processes import Program, nursery

pytestmark = pytest.mark.processes

PAGES = 120
ALL = PAGES + 3
FOREIGN = '{"url": "of another program"}\n' * 20


def json_urls(data: bytes) -> list[str]:
    return [json.loads(line)["url"] for line in data.splitlines()]


def csv_urls(data: bytes) -> list[str]:
    return [row["url"] for row in csv.DictReader(io.StringIO(data.decode(), newline=""))]


def unzstd(data: bytes) -> bytes:
    return bytes(zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read())


def sqlite_urls(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as base:
        return [row[0] for row in base.execute("SELECT url FROM pages")]


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(holds: Callable[[], bool], running: Program) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        assert running.process.poll() is None, running.err
        time.sleep(0.01)


@pytest.mark.slow
def test_eight_targets_are_exact_after_ten_kills_and_others_hands(tmp_path: Path, postgres: PostgresServer) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    dice, database = random.Random(28), postgres.new_database()
    names = ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.csv", "e.csv.gz", "f.parquet", "g.sqlite"]
    paths = {name[0]: tmp_path / name for name in names}
    targets = [*(str(path) for path in paths.values()), postgres.url(database)]
    options = [part for target in targets for part in ("-o", target)]
    folder = ("--dir", str(tmp_path / "c"))

    def replace() -> None:
        (tmp_path / "other").write_text(FOREIGN)
        (tmp_path / "other").rename(paths["a"])

    def empty() -> None:
        paths["d"].write_bytes(b"")

    changes = {3: replace, 6: empty}
    with nursery() as programs, small(PAGES, delay_s=0.03) as site:
        command = ("crawl", site.url(HOST), *QUICK, *folder, *options)
        engine = EmbeddedEngine(tmp_path / "c" / "engine")
        for kill in range(10):
            running = programs.crawler(*command)
            goal = (kill + 1) * ALL // 13
            counted = "b" if kill in changes else "a"
            wait_for(lambda: site_pages(paths, counted) >= goal, running)  # noqa: B023
            if kill in changes:
                changes[kill]()
            time.sleep(dice.uniform(0, 0.2))
            running.kill()
            while set(programs.left()) - {engine.pid()}:
                time.sleep(0.01)
        ran = crawler(programs, *command)
        assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
        audit = in_process(programs, "audit", *folder, "--json", *options)
        assert audit.code == 0, audit.err
        (tmp_path / "less.jsonl").write_bytes(paths["a"].read_bytes().partition(b"\n")[2])
        less = in_process(programs, "audit", *folder, "-o", str(tmp_path / "less.jsonl"))
        assert (less.code, less.err) == (8, "crawler: the crawl is not clean: 1 record of an output\n")
        assert f"found {ALL - 1}, wanted {ALL}, missing 1, extra 0" in less.out
    found = {
        "a": json_urls(paths["a"].read_bytes()),
        "b": json_urls(gzip.decompress(paths["b"].read_bytes())),
        "c": json_urls(unzstd(paths["c"].read_bytes())),
        "d": csv_urls(paths["d"].read_bytes()),
        "e": csv_urls(gzip.decompress(paths["e"].read_bytes())),
        "f": pq.read_table(paths["f"])["url"].to_pylist(),
        "g": sqlite_urls(paths["g"]),
        "h": [row[0] for row in postgres.psql(database, "SELECT url FROM pages")],
    }
    assert {name: len(urls) for name, urls in found.items()} == dict.fromkeys("abcdefgh", ALL)
    wanted = sorted(found["h"])
    assert len(set(wanted)) == ALL
    assert all(sorted(urls) == wanted for urls in found.values())
    notes = json.loads(audit.out)["notes"]
    assert sum(f"has all {ALL} pages" in note for note in notes) == 8
    assert FOREIGN.encode() in [path.read_bytes() for path in tmp_path.glob("*.changed-*")]
    assert not list(tmp_path.glob(".*"))


def site_pages(paths: dict[str, Path], counted: str) -> int:
    if counted == "a":
        return lines_of(paths["a"])
    data = paths["b"].read_bytes() if paths["b"].exists() else b""
    try:
        return gzip.decompress(data).count(b"\n")
    except (EOFError, gzip.BadGzipFile):
        return 0
