"""`crawler seeds`: each seed of a crawl, and what became of all that descends from it."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.frontier.restore import SeedCounts
    from crawler.settings import Settings

SHOWN = 50

EPILOG = """\
examples:
  crawler seeds                     the first 50, in the order in which they were given
  crawler seeds --waiting           those with URLs left to fetch
  crawler seeds --json | jq -r 'select(.waiting == 0) | .url'

A URL belongs to the seed from which it was found first. "waiting" are URLs that are queued,
being fetched, waiting for a retry or for their time, or deferred; "done" those that were
fetched or refused.
A seed that a page had led to before it was given is not listed: it belongs to that page's.

With --json, one object a line, and all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "seeds",
        help="each seed's pending, done and dead URLs",
        description="The seeds of a crawl, with counts of all URLs that descend from each.",
        epilog=EPILOG,
    )
    p.add_argument("--waiting", action="store_true", help="only seeds with URLs left to fetch")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"at most N (default: all; {SHOWN} in a table)")
    p.add_argument("--json", action="store_true", help="for programs")
    add_common(p)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print. Raises UsageError for a crawl that is not there."""
    from crawler.cli.event_loop import run_async

    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of seeds")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from msgspec.structs import asdict

    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, out_json

    shown: list[SeedCounts] = []
    limit = arguments.limit if arguments.json or arguments.limit else SHOWN
    total = finished = printed = 0
    async with open_crawl(settings, create=False) as crawl:
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
        out(_text(shown, total=total, finished=finished))
    return 0


def _text(shown: "list[SeedCounts]", *, total: int, finished: int) -> str:
    from crawler.terminal.text import counted, table

    parts = [f"{counted(total, 'seed')}, {finished:,} finished"]
    if shown:
        rows = [(s.url, f"{s.waiting:,}", f"{s.done:,}", f"{s.dead:,}") for s in shown]
        parts.append(table(("seed", "waiting", "done", "dead"), rows))
    return "\n\n".join(parts)
