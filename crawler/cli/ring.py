"""`crawler ring`: members and shares, the owner of a URL, what a change of nodes would move, pins, eviction."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from crawler.cli.options import actor, add_common, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl

Answer = tuple[object, str]  # for programs and for people
Call = Callable[["OpenCrawl", argparse.Namespace], Awaitable[Answer]]

EPILOG = """\
examples:
  crawler ring                                   members, their state and share
  crawler ring show https://docs.example/a       domain, partition, owner, epoch
  crawler ring plan --add 2                      what two more nodes would move
  crawler ring plan --remove web-3 --add big-0:4
                                                 one node less, another with four times the share
  crawler ring pin shop.example big-0            give a domain to a node; `unpin DOMAIN` ends it
  crawler ring pins                              all pins, and whether they are heard
  crawler ring evict web-3                       take an instance off the crawl, now

A member's state is judged by its heartbeat, read twice: a "silent" member sent none in
between, a "dead" one left its lock file free on this machine. A "quarantined" one came back
so often lately that it has to wait. One that "disagrees" follows another ring than most: its
settings or its release differ. The ring suggests shares; instances hold leases, which follow
the ring.

Instances own partitions. A pinned domain takes its whole partition along, some 1/1024 of all
domains, so two domains of one partition can't be pinned to different nodes. While the node of
a pin does not take part, the ring decides.

An evicted instance lets go at once and exits with 10. If it hangs, nothing that it writes
counts after a silence of membership.dead_s; others take over then. Started again, it may join.

exit codes: 0 done, 2 no such crawl, bad URL, node or plan, 3 engine,
4 another domain of the partition is pinned to another node, or an evicted node's
partitions stay in its name
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "ring",
        help="members, their state and share; the owner of a URL; pins; what a change would move",
        description="Who takes part in a crawl and has which share. Without an action: show.",
        epilog=EPILOG,
    )
    _add_options(p)
    p.set_defaults(run=run, answer=_show, url=None)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, answer: Call, text: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        _add_options(one)
        for option in one._actions[1:]:  # noqa: SLF001 - argparse has no list of its options
            option.default = argparse.SUPPRESS  # options before the name of the action count as well
        one.set_defaults(answer=answer, parser=one)
        return one

    one = add("show", _show, "members, their state and share; with a URL: where it belongs")
    one.add_argument("url", nargs="?", metavar="URL", help="a URL or domain")
    one = add("plan", _plan, "what a change of nodes would move; changes nothing")
    one.add_argument(
        "--add", dest="changes", action="append", type=lambda text: f"+{text}", metavar="N|NODE[:WEIGHT]",
        help="N more nodes, one more node of that name, or a new weight of a node; repeatable",
    )  # fmt: skip
    one.add_argument(
        "--remove", dest="changes", action="append", type=lambda text: f"-{text}", metavar="N|NODE",
        help="N nodes less, those with the highest numbers, or that node; repeatable",
    )  # fmt: skip
    one = add("pin", _pin, "give a domain to a node")
    one.add_argument("domain", metavar="DOMAIN")
    one.add_argument("node", metavar="NODE")
    one = add("unpin", _unpin, "end a domain's pin")
    one.add_argument("domain", metavar="DOMAIN")
    add("pins", _pins, "all pins, and whether they are heard")
    one = add("evict", _evict, "take an instance off the crawl, now")
    one.add_argument("node", metavar="NODE")


def _add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)


def run(arguments: argparse.Namespace) -> int:
    """Open the crawl and print the answer. Raises UsageError."""
    from crawler.cli.event_loop import run_async

    return run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    import msgspec

    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, out_json

    async with open_crawl(settings_of(arguments), create=False) as crawl:
        found, text = await arguments.answer(crawl, arguments)
    if arguments.json:
        out_json(msgspec.to_builtins(found))
    else:
        out(text)
    return 0


async def _show(crawl: "OpenCrawl", arguments: argparse.Namespace) -> Answer:
    from crawler.views.ring import members, place
    from crawler.views.ring_text import members_text, place_text

    if arguments.url is None:
        listed = await members(crawl)
        return listed, members_text(listed)
    found = await place(crawl, arguments.url)
    return found, place_text(found)


async def _plan(crawl: "OpenCrawl", arguments: argparse.Namespace) -> Answer:
    from crawler.views.ring import planned
    from crawler.views.ring_text import plan_text

    if not arguments.changes:
        raise UsageError("a plan needs a change: --add 2, --add NODE:WEIGHT, --remove 1 or --remove NODE")
    try:
        found = await planned(crawl, arguments.changes)
    except UsageError as error:  # add NODE: ..., remove NODE: ...
        raise UsageError(f"--{error}") from None
    return found, plan_text(found)


async def _pin(crawl: "OpenCrawl", arguments: argparse.Namespace) -> Answer:
    from crawler.views.ring import pin
    from crawler.views.ring_text import pin_text

    found = await pin(crawl, arguments.domain, arguments.node, actor=actor())
    return found, pin_text(found)


async def _unpin(crawl: "OpenCrawl", arguments: argparse.Namespace) -> Answer:
    from crawler.views.ring import unpin
    from crawler.views.ring_text import unpin_text

    found = await unpin(crawl, arguments.domain, actor=actor())
    return found, unpin_text(found)


async def _pins(crawl: "OpenCrawl", _: argparse.Namespace) -> Answer:
    from crawler.views.ring import pins
    from crawler.views.ring_text import pins_text

    found = await pins(crawl)
    return found, pins_text(found)


async def _evict(crawl: "OpenCrawl", arguments: argparse.Namespace) -> Answer:
    from crawler.views.ring import evict
    from crawler.views.ring_text import evict_text

    found = await evict(crawl, arguments.node, actor=actor())
    return found, evict_text(found)
