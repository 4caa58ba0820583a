"""What it takes to find near-duplicates among millions of pages: memory, CPU, disk of `crawler export --unique near`.

Makes index lines and fingerprints of as many pages: three quarters of their own, the others near to one of these, in
chains too. Nothing is fetched and no text is read: what a fingerprint costs is in docs/internals/benchmarks.md. With
--alike that many pages have two blocks of bits in common, as a hostile site could have it; with --equal all have one
fingerprint.
"""

import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from crawler.archive.folder import open_or_create
from crawler.content.fingerprint import DISTANCE
from crawler.model import CommitEntry
from crawler.outputs.unique import Duplicates, How
from scripts.bench_lib import arguments

NEAR_SHARE = 0.25
KNOWN = 1 << 16  # of which later pages are near to one


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("near", __doc__)
    parser.add_argument("--pages", type=arguments.positive_int, default=10_000_000, help="how many pages")
    parser.add_argument("--alike", type=int, default=0, help="how many of these have two blocks of bits in common")
    parser.add_argument("--equal", action="store_true", help="give all the same fingerprint")
    parser.add_argument("--dir", type=Path, help="where the scratch file is made (a temporary folder)")
    options = parser.parse_args(words)
    prints = _Prints(options.alike, is_equal=options.equal)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(dir=options.dir) as home:
        found = Duplicates(open_or_create(Path(home) / "crawl"), How.NEAR, prints.of)
        written = 0
        for page in found.pages(_entries(options.pages), _Told()):
            written += not page.duplicate_of
        room = found.scratch_bytes
        found.close()
    counts = found.counts
    print(
        f"{options.pages:,} pages, {prints.near_made:,} made near to another one, distance {DISTANCE}\n"
        f"{written:,} kept, {counts.duplicates:,} duplicates in {counts.groups:,} groups, {counts.crowded:,} crowded\n"
        f"{time.monotonic() - began_s:,.0f} s, {time.process_time() - began_cpu_s:,.0f} s of CPU, with making pages\n"
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB of memory, {room / 1e9:,.2f} GB of disk"
    )
    return 0


class _Told:
    """Prints when each part begins."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def begin(self, what: str, noun: str = "", total: int = 0) -> None:  # noqa: ARG002
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{time.monotonic() - self._began_s:8,.0f} s, {memory:,.0f} MB: {what}", flush=True)

    def reached(self, count: int, position: int = 0) -> None:
        pass


class _Prints:
    """Fingerprints of the pages, one after the other."""

    def __init__(self, alike: int, *, is_equal: bool) -> None:
        self.near_made = 0
        self._alike, self._is_equal, self._random = alike, is_equal, random.Random(61)
        self._known: list[int] = []

    def of(self, entry: CommitEntry) -> int:  # noqa: ARG002
        if self._is_equal:
            return 61
        rng = self._random
        if self._alike:
            self._alike -= 1
            return rng.getrandbits(42) | 1 << 63
        if self._known and rng.random() < NEAR_SHARE:
            place = rng.randrange(len(self._known))
            found = self._known[place]
            for _ in range(rng.randrange(DISTANCE + 1)):
                found ^= 1 << rng.getrandbits(6)
            self.near_made += 1
        else:
            place, found = rng.randrange(KNOWN), rng.getrandbits(64)
        if place < len(self._known):
            self._known[place] = found
        else:
            self._known.append(found)
        return found


def _entries(pages: int) -> Iterator[CommitEntry]:
    for number in range(pages):
        yield CommitEntry(
            url=f"https://site-{number % 9973}.example/section/{number % 89}/an-article-of-some-length-{number}.html",
            mime="text/html", status_text="200", fingerprint=str(number * 7919), visit=1,
            fetched_at=1.8e9 + number / 50,
            digest=f"sha1:{number:032d}", warc_length="18211", warc_offset=str(number * 18211 % (1 << 30)),
            warc_file=f"main-20261129-{number // 50_000:06d}-session-abcdef.warc.gz", body_bytes=61_234,
            title=f"An article of some length, number {number}", depth=number % 7, node="host-1", session="aa11bb22",
            epoch=3, sequence=number, fetch_ms=117, times={"claimed": 1.8e9, "started": 1.8e9, "archived": 1.8e9},
        )  # fmt: skip
