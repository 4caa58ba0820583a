"""The texts of `crawler ring`: members and shares, the place of a URL, a plan, pins, an eviction."""

from collections.abc import Mapping, Sequence

from crawler.terminal.tables import NOTHING, facts, or_nothing, table
from crawler.terminal.words import by_number, counted, duration, number, size
from crawler.views.ring import (
    Eviction,
    NewPin,
    PinList,
    PlanMove,
    PlanNode,
    RemovedPin,
    RingMembers,
    RingPlan,
    Shard,
    UrlPlace,
)

ROWS = 20  # of each table of a plan; --json has all
PIN_STATES = {
    "heard": "heard",
    "moving": "on its way",
    "waiting": "its node does not take part",
    "full": "waits: the disk of its node is full",
}


def members_text(found: RingMembers) -> str:
    total = found.partitions
    if not found.members:
        none = f"No instance is running; {number(total)} partitions wait. Start one: crawler run"
        return f"{none}\n\n{shards_text(found.shards)}" if found.shards else none
    rows = [
        (
            m.node,
            m.state + (", disk full" if m.waits_for_room else "") + (", disagrees" if m.disagrees else ""),
            duration(m.age_s),
            str(m.weight),
            number(m.in_flight),
            number(m.suggested),
            number(m.held),
            f"{100 * m.held / total:.1f} %",
            f"{m.host} {m.pid}",
        )
        for m in found.members
    ]
    headers = ("node", "state", "age", "weight", "in flight", "suggested", "held", "share", "host, pid")
    lines = [table(headers, rows, left=2)]
    if found.free or found.held_by_gone:
        lines.append(
            f"\nof {number(total)} partitions {number(found.free)} are free, "
            f"{number(found.held_by_gone)} held by sessions that are gone"
        )
    if found.rings:
        lines.append(f"\n{_rings_text(found.rings)}")
    if found.shards:
        lines.append(f"\n{shards_text(found.shards)}")
    return "\n".join(lines)


def shards_text(found: Sequence[Shard]) -> str:
    headers = ("shard", "state", "replica", "slots", "partitions", "memory")
    rows = [
        (
            one.name,
            "up" if one.is_up else "down",
            "yes" if one.has_replica else "none that works",
            number(one.slots),
            number(one.partitions),
            size(one.used_bytes) if one.is_up else NOTHING,
        )
        for one in found
    ]
    return table(headers, rows, left=3)


def _rings_text(rings: Mapping[str, Sequence[str]]) -> str:
    shown = "; ".join(
        f"{ring} by {', '.join(nodes[:5])}{' and more' if len(nodes) > 5 else ''}" for ring, nodes in rings.items()
    )
    return (
        f"{len(rings)} different rings are followed: {shown}.\n"
        "Start all of the same release of the program.\n"
        "Until then nothing is fetched twice, as leases decide; but what each gives to another stays free."
    )


def place_text(found: UrlPlace) -> str:
    suggested = found.suggested or "nobody: no instance is running"
    if found.pinned:
        suggested += f" (the partition is pinned to {found.pinned})"
    return facts(
        [
            ("url", found.url),
            ("domain", found.domain),
            ("queue", found.queue),
            ("partition", str(found.partition)),
            ("owner", f"{found.owner} (session {found.session})" if found.owner else "none now"),
            ("epoch", str(found.epoch)),
            ("suggested", suggested),
        ]
    )


def plan_text(found: RingPlan) -> str:
    total, now, then = found.partitions, found.now, found.then
    lines = [f"now {counted(len(now), 'node')}, then {number(len(then))}: {_difference(now, then)}"]
    lines.append(
        f"{number(found.moved)} of {number(total)} partitions would move ({100 * found.share_moved:.1f} %; "
        f"the shares change by {100 * found.share_changed:.1f} %), "
        f"with {counted(found.domains, 'domain')} and {counted(found.pending, 'pending URL')}"
    )
    if found.moved:
        lines += ["", *_node_table(found.nodes), "", *_pair_table(found.moves)]
    return "\n".join(lines)


def _difference(now: Mapping[str, int], then: Mapping[str, int]) -> str:
    words = [f"-{node}" for node in sorted(set(now) - set(then), key=by_number)]
    for node in sorted(then, key=by_number):
        if node not in now:
            words.append(f"+{node}" + (f" (weight {then[node]})" if then[node] != 1 else ""))
        elif now[node] != then[node]:
            words.append(f"{node} weight {now[node]} -> {then[node]}")
    shown = words if len(words) <= ROWS else [*words[:ROWS], f"and {len(words) - ROWS:,} more"]
    return ", ".join(shown) or "no change"


def _node_table(nodes: Sequence[PlanNode]) -> list[str]:
    columns = ("now", "then", "gives", "gets")
    moving = [row for row in nodes if row.gives or row.gets]
    rows = [(row.node, *(or_nothing(number(n), n) for n in _numbers(row, columns))) for row in moving[:ROWS]]
    return [table(("node", *columns), rows), *_more(len(moving), "nodes that give or get")]


def _pair_table(pairs: Sequence[PlanMove]) -> list[str]:
    columns = ("partitions", "domains", "pending")
    rows = [
        (row.giver or "nobody", row.getter or "nobody", *(or_nothing(number(n), n) for n in _numbers(row, columns)))
        for row in pairs[:ROWS]
    ]
    return [table(("from", "to", *columns), rows, left=2), *_more(len(pairs), "pairs")]


def _numbers(row: PlanNode | PlanMove, columns: Sequence[str]) -> list[int]:
    return [getattr(row, column) for column in columns]


def _more(count: int, noun: str) -> list[str]:
    return [f"... and {count - ROWS:,} more {noun}: --json has all"] if count > ROWS else []


def pin_text(found: NewPin) -> str:
    text = (
        f"{found.domain} is pinned to {found.node}, and with it partition {found.partition}: "
        f"1 of {number(found.partitions)}, {number(found.domains)} of the domains met so far"
    )
    if not found.running:
        text += f"\n{found.node} does not take part now; until it does, the ring decides"
    return text


def unpin_text(found: RemovedPin) -> str:
    others = ", ".join(found.still_pinned_by)
    decides = f"partition {found.partition} stays where it is pinned, by {others}" if others else "the ring decides"
    return f"{found.domain} is no longer pinned: {decides}"


def pins_text(found: PinList) -> str:
    if not found.pins:
        return "Nothing is pinned. To give a domain to a node: crawler ring pin DOMAIN NODE"
    rows = [
        (row.domain, row.node, row.owner or NOTHING, PIN_STATES[row.state], str(row.partition)) for row in found.pins
    ]
    return table(("domain", "pinned to", "owner now", "state", "partition"), rows, left=4)


def evict_text(found: Eviction) -> str:
    what, took = counted(found.partitions, "partition"), duration(found.seconds)
    if found.by_itself:
        ended = f"it let go of {what} and left after {took}"
    else:
        ended = f"it did not answer; others took over its {what}, after {took} in all"
    text = f"{found.node} ({found.host} {found.pid}) is evicted: {ended}"
    return text if found.others else f"{text}\nNobody else takes part; its partitions wait. Start one: crawler run"
