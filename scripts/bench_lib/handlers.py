"""What does a handler that reads a title and five fields add to parsing, as an async and as a plain function?

The same bodies (HTML of Debian's documentation packages) are parsed in turn, in one process. The quickest of some
rounds counts, because other programs only add time. The measured part is from the parser to the item's frame in memory:
a handler adds nothing else to a crawl but some bytes in commit and index. To compare whole crawls:
`scripts/bench peers --only crawler,handler,handler-def`.
"""

import asyncio
import mmap
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import uvloop

from crawler import Crawler
from crawler.archive.folder import open_or_create
from crawler.archive.inflight_log import InflightMark
from crawler.archive.items import ItemWriter
from crawler.content.html import parse_with_tree
from crawler.content.parse_cost import Cost, cost_of
from crawler.crawl.build import tune_process
from crawler.model import Claim, Response
from crawler.rules.urls import JoinCache
from crawler.settings import Settings
from crawler.worker.handle import HandlerRuntime
from scripts.bench_lib import arguments
from scripts.bench_lib.peers.handlers_app import async_app, plain_app

URL = "http://docs.example/"
CLAIM = Claim(
    url=URL, fingerprint="1", visit=1, partition=0, epoch=1, token="1", domain="docs.example", queue="docs.example",
    depth=0, redirects=0, attempts=0, deliveries=0, seed=True,
)  # fmt: skip
WORKERS = 16  # pages at a time


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("handlers", __doc__)
    parser.add_argument("--pages", type=arguments.positive_int, default=1500, help="number of bodies")
    parser.add_argument("--rounds", type=arguments.positive_int, default=8, help="the quickest one counts")
    options = parser.parse_args(words)
    tune_process()
    found = list(islice(bodies(Path("/usr/share/doc")), options.pages))
    if not found:
        print("bench: no HTML under /usr/share/doc; as root: apt install python3-doc", file=sys.stderr)
        return 2
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        writer = ItemWriter(open_or_create(Path(folder) / "c"), "bench")
        for _ in range(options.rounds):
            for name, app in (("without", None), ("async def", async_app), ("def, in threads", plain_app)):
                began = time.process_time()
                uvloop.run(handle_all(found, app, writer))
                best[name] = min(best.get(name, 1e9), time.process_time() - began)
    kib = sum(map(len, found)) / len(found) / 1024
    print(f"{len(found)} pages of {kib:.0f} KiB, the quickest of {options.rounds} rounds; CPU-s per 1,000 pages")
    for name, seconds in best.items():
        more = f"  {1000 * (seconds - best['without']) / len(found):+.3f}" if name != "without" else ""
        print(f"{name:<16} {1000 * seconds / len(found):.3f}{more}")
    return 0


def bodies(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*.html")):
        if path.is_file():
            body = path.read_bytes()
            if body and cost_of(body) is Cost.CHEAP:
                yield body


async def handle_all(found: Sequence[bytes], app: Crawler | None, writer: ItemWriter) -> None:
    no_stats: Any = None
    runtime, left = HandlerRuntime(app, Settings(), no_stats), iter(found)
    await asyncio.gather(*(handle_some(runtime, left, writer) for _ in range(WORKERS)))


async def handle_some(runtime: HandlerRuntime, left: Iterator[bytes], writer: ItemWriter) -> None:
    mark = InflightMark(mmap.mmap(-1, mmap.PAGESIZE), 0)
    joins = JoinCache()
    for body in left:
        response = Response(
            url=URL, status=200, reason="OK", http_version="1.1", headers=((b"Content-Type", b"text/html"),),
            raw_body=body, body=body, request_head=b"", remote_ip="", started_at=0.0, fetch_ms=1,
        )  # fmt: skip
        page, tree = parse_with_tree(
            URL, "text/html", "", body, links_max=5000, obey_nofollow=True, bytes_max=8192, agent="bench", joins=joins
        )
        _, handled = await runtime.handling.handle(CLAIM, response, page, tree, mark, guarded=False)
        del tree
        if handled.items:
            writer.add(handled.items)
        await asyncio.sleep(0)  # the next page comes from the network
