"""`crawler seeds`: each seed of a crawl, and what became of all that descends from it."""

import argparse

from msgspec.structs import asdict

from crawler.cli.options import SHOWN
from crawler.cli.run_async import run_on
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.frontier.seeds import SeedCounts
from crawler.terminal.output import out, out_json
from crawler.terminal.tables import table
from crawler.terminal.words import counted


def run_seeds(arguments: argparse.Namespace) -> int:
    """Print. Raises UsageError for a crawl that is not there."""
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of seeds")
    return run_on(arguments, _seeds)


async def _seeds(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    shown: list[SeedCounts] = []
    limit = arguments.limit if arguments.json or arguments.limit else SHOWN
    total = finished = printed = 0
    async for some in crawl.seeds.read():
        total += len(some)
        finished += sum(not seed.waiting for seed in some)
        wanted = [seed for seed in some if seed.waiting or not arguments.waiting]
        wanted = wanted if limit is None else wanted[: limit - printed]
        printed += len(wanted)
        if arguments.json:
            for seed in wanted:
                out_json(asdict(seed) | {"waiting": seed.waiting})
        else:
            shown += wanted
    if not arguments.json:
        out(_seeds_text(shown, total=total, finished=finished))


def _seeds_text(shown: "list[SeedCounts]", *, total: int, finished: int) -> str:
    parts = [f"{counted(total, 'seed')}, {finished:,} finished"]
    if shown:
        rows = [(s.url, f"{s.waiting:,}", f"{s.done:,}", f"{s.dead:,}") for s in shown]
        parts.append(table(("seed", "waiting", "done", "dead"), rows))
    return "\n\n".join(parts)
