"""`crawler ring`: who takes part and has which share, whose a URL is, what a change would move, pins, eviction.

One file for each: ring_members, ring_place, ring_plan, ring_pins, ring_evict. This one finds out which is meant.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.settings import Settings

# What may stand in the place of a URL, and what has to follow it.
ACTIONS = {"pins": (), "pin": ("DOMAIN", "NODE"), "unpin": ("DOMAIN",), "evict": ("NODE",)}
PLAN = "--plan"

EPILOG = """\
examples:
  crawler ring                             members, their state and share
  crawler ring https://docs.example/a      domain, partition, owner, epoch
  crawler ring --plan +2                   what two more nodes would move
  crawler ring --plan -web-3 +big-0:4      one node less, another with four times the share
  crawler ring pin shop.example big-0      give a domain to a node; `unpin DOMAIN` takes it back
  crawler ring pins                        all pins, and whether they are heard
  crawler ring evict web-3                 take an instance off the crawl, now

A member's state is judged by its heartbeat, read twice: "silent" has not beaten in between,
"dead" is proven by its free lock file on this machine. "quarantined" came back so often lately
that it has to wait. "disagrees" follows another ring than most: its settings, or its release,
differ from theirs. The ring suggests shares; what is held are leases, which follow the ring.

What is owned are partitions. A pinned domain takes its whole partition along, some 1/1024 of
all domains, so two domains of one partition can't be pinned to different nodes. While the
node of a pin does not take part, the ring decides.

An evicted instance lets go at once and exits with 10. If it hangs, nothing it writes counts
once it was silent for membership.dead_s; others take over then. Started again, it may join.

A host that is named like an action is asked for as a URL: crawler ring http://pin/

exit codes: 0 done, 2 no such crawl, bad URL, node or plan, 3 engine,
4 another domain of the partition is pinned to another node, or an evicted node's
partitions stay in its name
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "ring",
        usage="crawler ring [URL | --plan CHANGE ... | pin DOMAIN NODE | unpin DOMAIN | pins | evict NODE]\n"
        "                    [options]",
        help="members, their state and share; the owner of a URL; pins; what a change would move",
        description="Who takes part in a crawl and who has which share; with a URL, whose it is.",
        epilog=EPILOG,
    )
    p.add_argument("urls", nargs="*", metavar="URL", help="a URL or domain: where it belongs")
    p.add_argument(
        PLAN,
        action="append",
        default=[],
        metavar="CHANGE",
        help="what would move: +2 or -1 nodes, -NODE, +NODE:WEIGHT (a new node, or a new weight); several at once",
    )
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=run, takes_urls=True)


def plan_as_one_word(arguments: Sequence[str]) -> list[str]:
    """`--plan +2 -web-3` as `--plan=+2 -web-3`: a node's name behind a minus is no option."""
    if PLAN not in arguments or arguments[0] != "ring":
        return list(arguments)
    begin = arguments.index(PLAN)
    end = begin + 1
    while end < len(arguments) and arguments[end][:1] in ("+", "-") and not _is_option(arguments[end]):
        end += 1
    if end == begin + 1:
        return list(arguments)
    return [*arguments[:begin], f"{PLAN}={' '.join(arguments[begin + 1 : end])}", *arguments[end:]]


def _is_option(word: str) -> bool:
    return word.startswith("--") or word in ("-v", "-h")


def run(arguments: argparse.Namespace) -> int:
    """Do what the words mean. Raises UsageError for words that mean nothing."""
    from crawler.cli.event_loop import run_async

    _check_words(arguments.urls, planned=bool(arguments.plan))
    return run_async(_run(arguments, settings_of(arguments)))


def _check_words(words: Sequence[str], *, planned: bool) -> None:
    if planned and words:
        raise UsageError(f"{PLAN} goes alone: {words[0]!r} is not a change (+2, -1, -NODE, +NODE:WEIGHT)")
    if words and words[0] in ACTIONS:
        wanted = ACTIONS[words[0]]
        if len(words) - 1 != len(wanted):
            usage = " ".join(("crawler ring", words[0], *wanted))
            host = f"; a host of that name: crawler ring http://{words[0]}/" if len(words) == 1 else ""
            raise UsageError(f"write '{usage}'{host}")
    elif len(words) > 1:
        raise UsageError(f"one URL at a time, not {words[1]!r} as well")


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.app.open_crawl import open_crawl
    from crawler.terminal.printing import out, out_json

    async with open_crawl(settings, create=False) as crawl:
        found, text = await _answer(crawl, arguments.urls, " ".join(arguments.plan).split())
    if arguments.json:
        out_json(found)
    else:
        out(text)
    return 0


async def _answer(crawl: "OpenCrawl", words: Sequence[str], plan: Sequence[str]) -> tuple[dict[str, Any], str]:
    """What was found, for programs and for people."""
    from crawler.cli import ring_evict, ring_pins
    from crawler.reports import ring_members, ring_place, ring_plan

    if plan:
        found = await ring_plan.planned(crawl, plan)
        return found, ring_plan.plan_text(found)
    if not words:
        found = await ring_members.members(crawl)
        return found, ring_members.members_text(found)
    if words[0] == "pins":
        found = await ring_pins.pins(crawl)
        return found, ring_pins.pins_text(found)
    if words[0] == "pin":
        found = await ring_pins.pin(crawl, words[1], words[2])
        return found, ring_pins.pin_text(found)
    if words[0] == "unpin":
        found = await ring_pins.unpin(crawl, words[1])
        return found, ring_pins.unpin_text(found)
    if words[0] == "evict":
        found = await ring_evict.evict(crawl, words[1])
        return found, ring_evict.evict_text(found)
    found = await ring_place.place(crawl, words[0])
    return found, ring_place.place_text(found)
