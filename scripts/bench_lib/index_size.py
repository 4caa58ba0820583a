"""A large index: how long one URL takes to look up, and what it costs to read all lines in order.

Writes --distinct segments of full size, and links to them until there are --segments. What the page cache holds is then
less than a real index would need: --distinct as large as --segments, where the disk has room, tells what a disk adds.
"""

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from crawler.archive import index, index_writer
from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader, find_url, index_bytes, segment_names
from crawler.model import WarcLocation
from scripts.bench_lib import arguments
from tests.archive.archive_samples import entry, folder_in

Result = TypeVar("Result")

DOMAINS = 2_000_000
READ_BYTES = 1 << 29  # of lines that are read in order


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    with tempfile.TemporaryDirectory(prefix="bench-index-", dir=options.scratch) as scratch:
        folder = folder_in(Path(scratch))
        fill(folder, options.segments, min(options.distinct, options.segments))
        os.sync()
        names, listed_s = timed(lambda: segment_names(folder))
        print(f"{len(names):,} segments, {index_bytes(folder) / (1 << 30):,.1f} GiB; listed in {listed_s:.2f} s")
        for what in ("first", "second"):
            _, seconds = timed(lambda: find_url(folder, "https://www.domain5.example/section/1/page-5"))
            print(f"{what} look-up of a URL    {seconds:8.2f} s, {seconds / len(names) * 1e6:,.0f} us a segment")
        before, reader, cpu_s, began = peak_mib(), IndexReader(folder), time.process_time(), time.monotonic()
        for _ in reader.entries():
            if reader.bytes_read > READ_BYTES:
                break
        lines = reader.bytes_read / index_bytes(folder) * len(names) * index_writer.SEGMENT_LINES
        cpu_s, seconds = time.process_time() - cpu_s, time.monotonic() - began
        print(f"lines in order         {seconds / lines * 1e6:8.2f} us each, {cpu_s / lines * 1e6:.2f} us of CPU, "
              f"{peak_mib() - before:.0f} MiB more memory")  # fmt: skip
    return 0


def fill(folder: CrawlFolder, segments: int, distinct: int) -> None:
    rng, number = random.Random(1), 0
    for segment in range(distinct):
        lines = []
        for _ in range(index_writer.SEGMENT_LINES):
            number += 1
            url = f"https://www.domain{rng.randrange(DOMAINS)}.example/section/{number % 99}/page-{number}"
            place = WarcLocation(
                file=f"main-20260101000000000-{segment:012x}-00000.warc.gz", offset=number, length=9_000
            )
            lines.append(index.to_line(entry(number, url=url, warc=place)))
        index_writer.replace_segment(folder, folder.index / f"{segment:012x}-00000{index_writer.SUFFIX}", sorted(lines))
    for n in range(distinct, segments):
        serial, segment = divmod(n, distinct)
        first = folder.index / f"{segment:012x}-00000{index_writer.SUFFIX}"
        os.link(first, first.with_name(f"{segment:012x}-{serial:05d}{index_writer.SUFFIX}"))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, number = arguments.parser("index", __doc__), arguments.positive_int
    parser.add_argument("--segments", type=number, default=30_000, help="of 16,384 lines each (default: 30,000)")
    parser.add_argument("--distinct", type=number, default=60, help="that are not links (default: 60)")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="for the folder (default: /tmp)")
    return parser.parse_args(words)
