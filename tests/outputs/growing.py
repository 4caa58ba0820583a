"""An index that grows, followed: what the tests of outputs next to a crawl share."""

import csv
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_writer import IndexWriter
from crawler.outputs.follow import Follower
from crawler.outputs.records import Pages
from tests.archive.archive_samples import entry, folder_in
from tests.outputs.round_trip import unpacked
from tests.outputs.samples import json_lines, target

FILES = ["pages.jsonl", "pages.csv", "pages.jsonl.gz", "pages.csv.zst", "pages.sqlite"]
if find_spec("pyarrow"):
    FILES.append("pages.parquet")


class Crawl:
    """An index that grows, as several sessions write it."""

    def __init__(self, tmp_path: Path, lines_max: int = 50_000) -> None:
        self.folder: CrawlFolder = folder_in(tmp_path)
        self.urls: list[str] = []
        self.index = IndexWriter(self.folder, "aa11", lines_max=lines_max)

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            found = entry(len(self.urls))
            self.index.add(found)
            self.urls.append(found.url)
        self.index.sync()

    def follower(self, path: Path | str) -> Follower:
        self.said: list[str] = []
        return Follower(self.folder, target(path), Pages(self.folder), warn=self.said.append)


@contextmanager
def running(follower: Follower) -> Iterator[Follower]:
    follower.open()
    follower.start()
    try:
        yield follower
    finally:
        follower.finish()


def urls(path: Path) -> list[str]:
    return [record["url"] for record in json_lines(path)]


def sorted_urls(path: Path) -> list[str]:
    """Of a file of any kind, in the order of the URLs."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as base:
            return sorted(row[0] for row in base.execute("SELECT url FROM pages"))
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return sorted(pq.read_table(path)["url"].to_pylist())
    text = unpacked(path).decode()
    if ".csv" in path.suffixes:
        return sorted(row["url"] for row in csv.DictReader(io.StringIO(text, newline="")))
    return sorted(json.loads(line)["url"] for line in text.splitlines())


def lines_of(path: Path) -> int:
    """How many lines are whole: a reader of a growing file may find the last one half written."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
