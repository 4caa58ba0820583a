"""`crawler ring`: who takes part, who has which share, and whose a URL is."""

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of

if TYPE_CHECKING:
    from crawler.app import OpenCrawl
    from crawler.frontier.members import Member
    from crawler.rules.ring import Ring
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler ring                             members, their state and share
  crawler ring https://docs.example/a      domain, partition, owner, epoch

A member's state is judged by its heartbeat, read twice: "silent" has not beaten in between,
"dead" is proven by its free lock file on this machine. The ring suggests shares; what is
held are leases, which follow the ring.

exit codes: 0 done, 2 no such crawl or bad URL, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "ring",
        help="members, their state and share; the owner of a URL",
        description="Who takes part in a crawl and who has which share; with a URL, whose it is.",
        epilog=EPILOG,
    )
    p.add_argument("url", nargs="?", metavar="URL", help="a URL or domain: where it belongs")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print members, or the place of one URL."""
    from crawler.cli.loop import run_async

    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.app import open_crawl

    async with open_crawl(settings, create=False) as crawl:
        found = await _place(crawl, arguments.url) if arguments.url else await _members(crawl)
    if arguments.json:
        print(json.dumps(found))
    elif arguments.url:
        print(_place_text(found))
    else:
        print(_members_text(found))
    return 0


def ring_of(crawl: "OpenCrawl", members: Mapping[str, "Member"]) -> "Ring":
    """The ring over those who take partitions."""
    from crawler.rules.ring import build

    settings = crawl.settings.membership
    weights = {m.node: m.weight for m in members.values() if m.state == "alive"}
    return build(
        weights,
        partitions=crawl.record.partitions,
        virtual_nodes=settings.virtual_nodes,
        load_bound=settings.load_bound,
    )


async def observed(crawl: "OpenCrawl") -> tuple[dict[str, "Member"], dict[str, str]]:
    """Members, and the state of each by two looks at its heartbeat."""
    import asyncio

    from crawler.nodes import is_lock_free

    first = await crawl.members.read()
    if first:
        await asyncio.sleep(1.5 * crawl.settings.membership.beat_s)
    members = await crawl.members.read()
    states = {}
    for session, member in members.items():
        silent = session in first and first[session].counter == member.counter
        states[session] = "dead" if is_lock_free(member) else "silent" if silent else member.state
    return members, states


async def _members(crawl: "OpenCrawl") -> dict[str, Any]:
    members, states = await observed(crawl)
    alive = {s: m for s, m in members.items() if states[s] != "dead"}
    suggested = Counter(ring_of(crawl, alive).owners)
    leases = await crawl.leases.read(range(crawl.record.partitions))
    held = Counter(lease.session for lease in leases if lease.session)
    now = time.time()
    rows = [
        {
            "node": m.node,
            "state": states[s],
            "session": s,
            "age_s": round(max(0.0, now - m.started_at), 1),
            "host": m.host.partition("/")[0],
            "pid": m.pid,
            "weight": m.weight,
            "in_flight": m.in_flight,
            "suggested": suggested[m.node] if m.state == "alive" else 0,
            "held": held[s],
        }
        for s, m in sorted(members.items(), key=lambda item: item[1].node)
    ]
    unowned = sum(1 for lease in leases if not lease.session)
    strangers = sum(n for session, n in held.items() if session not in members)
    return {
        "crawl": crawl.settings.crawl.name, "partitions": crawl.record.partitions, "members": rows,
        "free": unowned, "held_by_gone": strangers,
    }  # fmt: skip


def _members_text(found: dict[str, Any]) -> str:
    from crawler.watch.tables import table
    from crawler.watch.wording import duration, number

    total = found["partitions"]
    if not found["members"]:
        return f"No instance is running; {number(total)} partitions wait. Start one: crawler run"
    rows = [
        (
            m["node"],
            m["state"],
            duration(m["age_s"]),
            str(m["weight"]),
            number(m["in_flight"]),
            number(m["suggested"]),
            number(m["held"]),
            f"{100 * m['held'] / total:.1f} %",
            f"{m['host']} {m['pid']}",
        )
        for m in found["members"]
    ]
    headers = ("node", "state", "age", "weight", "in flight", "suggested", "held", "share", "host, pid")
    lines = [table(headers, rows, left=2)]
    if found["free"] or found["held_by_gone"]:
        lines.append(
            f"\nof {number(total)} partitions {number(found['free'])} are free, "
            f"{number(found['held_by_gone'])} held by sessions that are gone"
        )
    return "\n".join(lines)


async def _place(crawl: "OpenCrawl", text: str) -> dict[str, Any]:
    from crawler.rules.urls import canonicalize

    url = canonicalize(text if "://" in text else f"http://{text}/")
    domain, queue, partition = crawl.router().place(url)
    (lease,) = await crawl.leases.read([partition])
    owners = ring_of(crawl, await crawl.members.read()).owners
    return {
        "url": url, "domain": domain, "queue": queue, "partition": partition,
        "owner": lease.node if lease.session else "", "session": lease.session, "epoch": lease.epoch,
        "suggested": owners[partition] if owners else "",
    }  # fmt: skip


def _place_text(found: dict[str, Any]) -> str:
    from crawler.watch.tables import facts

    return facts(
        [
            ("url", found["url"]),
            ("domain", found["domain"]),
            ("queue", found["queue"]),
            ("partition", str(found["partition"])),
            ("owner", f"{found['owner']} (session {found['session']})" if found["owner"] else "none now"),
            ("epoch", str(found["epoch"])),
            ("suggested", found["suggested"] or "nobody: no instance is running"),
        ]
    )
