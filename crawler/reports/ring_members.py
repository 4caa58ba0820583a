"""Who takes part in a crawl, who is well, who has which share: the table of `crawler ring`."""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.frontier.members import Member
    from crawler.rules.ring import Ring

LOOK_BEATS = 1.5  # between two looks: whoever is well has beaten
LOOK_MAX_S = 5.0  # many members beat seldom; nobody waits longer than this to see a table
FRESH_BEATS = 5  # a member this young may not have settled on a ring


def weights_of(members: Mapping[str, "Member"]) -> dict[str, int]:
    """Those who take partitions, with their weights."""
    from crawler.rules.liveness import DeclaredState, takers

    taking = takers({session: DeclaredState(m.state) for session, m in members.items()})
    return {members[session].node: members[session].weight for session in taking}


def by_number(node: str) -> tuple[tuple[int, str], ...]:
    """Sort key for names of nodes: web-2 before web-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", node))


async def ring_of(crawl: "OpenCrawl", weights: Mapping[str, int]) -> "Ring":
    """The ring over nodes, with the crawl's pins."""
    from crawler.frontier.members import Pins, by_partition
    from crawler.rules.ring import build

    settings, partitions = crawl.settings.membership, crawl.record.partitions
    return build(
        weights,
        partitions=partitions,
        virtual_nodes=settings.virtual_nodes,
        load_bound=settings.load_bound,
        pins=by_partition(await Pins(crawl.engine, crawl.keys).read(), partitions),
    )


async def observed(crawl: "OpenCrawl") -> tuple[dict[str, "Member"], dict[str, str]]:
    """Members, and the state of each by two looks at its heartbeat."""
    from crawler.membership.nodes import is_lock_free

    first = await crawl.members.read()
    waited_s = await _wait(crawl, first)
    members = await crawl.members.read()
    states = {}
    for session, member in members.items():
        same = session in first and first[session].counter == member.counter
        silent = same and waited_s >= _look_s(crawl, member)
        states[session] = "dead" if is_lock_free(member) else "silent" if silent else member.state
    return members, states


def _look_s(crawl: "OpenCrawl", member: "Member") -> float:
    return LOOK_BEATS * crawl.settings.membership.beat_s * member.time_scale


async def _wait(crawl: "OpenCrawl", members: Mapping[str, "Member"]) -> float:
    """Give all members the time to beat; how long that was."""
    wait_s = min(LOOK_MAX_S, max((_look_s(crawl, m) for m in members.values()), default=0.0))
    await asyncio.sleep(wait_s)
    return wait_s


async def disagreeing(crawl: "OpenCrawl", members: Mapping[str, "Member"], ours: str) -> dict[str, list[str]]:
    """Ring -> nodes that follow it, if it is not one for all: the ring of most comes first, `ours` among equals.

    A change takes a moment to get around, so a ring counts that a member still follows at another look.
    """
    fresh_s = FRESH_BEATS * crawl.settings.membership.beat_s
    now = time.time()
    settled = {s: m for s, m in members.items() if m.ring and now - m.started_at >= fresh_s * m.time_scale}
    if len({m.ring for m in settled.values()}) <= 1:
        return {}
    await _wait(crawl, settled)
    again = await crawl.members.read()
    groups = defaultdict(list)
    for session, member in settled.items():
        if session in again and again[session].ring == member.ring:
            groups[member.ring].append(member.node)
    if len(groups) <= 1:
        return {}
    by_size = sorted(groups, key=lambda ring: (-len(groups[ring]), ring != ours, ring))
    return {ring: sorted(groups[ring], key=by_number) for ring in by_size}


async def members(crawl: "OpenCrawl") -> dict[str, Any]:
    """Every session on the list: how it is, what the ring suggests for it, what it holds."""
    listed, states = await observed(crawl)
    living = {s: m for s, m in listed.items() if states[s] not in ("dead", "silent")}
    weights = weights_of({s: m for s, m in listed.items() if states[s] != "dead"})
    ring = await ring_of(crawl, weights)
    rings = await disagreeing(crawl, living, ring.digest)
    odd = {node for nodes in list(rings.values())[1:] for node in nodes}
    suggested = Counter(ring.owners)
    leases = await crawl.leases.read(range(crawl.record.partitions))
    held = Counter(lease.session for lease in leases if lease.session)
    now = time.time()
    rows = [
        {
            "node": m.node,
            "state": states[s],
            "disagrees": m.node in odd,
            "session": s,
            "age_s": round(max(0.0, now - m.started_at), 1),
            "host": m.host.partition("/")[0],
            "pid": m.pid,
            "weight": m.weight,
            "in_flight": m.in_flight,
            "suggested": suggested[m.node] if states[s] != "dead" else 0,
            "held": held[s],
        }
        for s, m in sorted(listed.items(), key=lambda item: by_number(item[1].node))
    ]
    unowned = sum(1 for lease in leases if not lease.session)
    strangers = sum(n for session, n in held.items() if session not in listed)
    return {
        "crawl": crawl.settings.crawl.name, "partitions": crawl.record.partitions, "members": rows,
        "free": unowned, "held_by_gone": strangers, "rings": rings,
    }  # fmt: skip


def members_text(found: Mapping[str, Any]) -> str:
    from crawler.reports.tables import table
    from crawler.reports.wording import duration, number

    total = found["partitions"]
    if not found["members"]:
        return f"No instance is running; {number(total)} partitions wait. Start one: crawler run"
    rows = [
        (
            m["node"],
            m["state"].replace("_", " ") + (", disagrees" if m["disagrees"] else ""),
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
    if found["rings"]:
        lines.append(f"\n{_rings_text(found['rings'])}")
    return "\n".join(lines)


def _rings_text(rings: Mapping[str, list[str]]) -> str:
    shown = "; ".join(
        f"{ring} by {', '.join(nodes[:5])}{' and more' if len(nodes) > 5 else ''}" for ring, nodes in rings.items()
    )
    return (
        f"{len(rings)} different rings are followed: {shown}.\n"
        "Start all with the same membership.virtual_nodes and membership.load_bound, and of the same release.\n"
        "Until then nothing is fetched twice, as leases decide; but what each gives to another stays free."
    )
