"""What a change of nodes would move: `crawler ring --plan +2`. Computed; nothing is changed."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crawler.errors import UsageError
from crawler.reports.ring_members import by_number

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl

ROWS = 20  # of each table; --json has all
WEIGHT_MAX = 100  # as settings have it
DIGITS_MAX = 12  # thousands would not be read as a number
NODES_MAX = 1_000
_NUMBER = re.compile(r"[+-]\d+")


async def planned(crawl: "OpenCrawl", words: Sequence[str]) -> dict[str, Any]:
    """What would move from whom to whom, with the domains and pending URLs in it."""
    from crawler.membership.nodes import Slots
    from crawler.reports.ring_members import ring_of, weights_of
    from crawler.rules.ring import moves, share_changed

    now = weights_of(await crawl.members.read())
    if any(_NUMBER.fullmatch(word) and (len(word) > DIGITS_MAX or int(word) > NODES_MAX) for word in words):
        raise UsageError(f"--plan: at most +{NODES_MAX:,} nodes at a time")
    more = sum(int(word) for word in words if _NUMBER.fullmatch(word) and word[0] == "+")
    named = [word[1:].rpartition(":")[0] or word[1:] for word in words]
    then = changed(now, words, await Slots(crawl.members).free(more, besides={*now, *named}))
    before, after = await ring_of(crawl, now), await ring_of(crawl, then)
    moved = moves(before.owners, after.owners, crawl.record.partitions)
    domains = dict(zip(moved, await crawl.stats.domain_counts(moved), strict=True))
    pending = dict(zip(moved, await crawl.stats.pending_counts(moved), strict=True))
    loads = {"now": Counter(before.owners), "then": Counter(after.owners)}
    return {
        "crawl": crawl.settings.crawl.name,
        "partitions": crawl.record.partitions,
        "now": now,
        "then": then,
        "moved": len(moved),
        "share_moved": round(len(moved) / crawl.record.partitions, 4),
        "share_changed": round(share_changed(now, then), 4),
        "domains": sum(domains.values()),
        "pending": sum(pending.values()),
        "nodes": _nodes(now, then, loads, moved.values()),
        "moves": _pairs(moved, domains, pending),
    }


def _nodes(
    now: Mapping[str, int],
    then: Mapping[str, int],
    loads: Mapping[str, Counter[str]],
    moved: Iterable[tuple[str, str]],
) -> list[dict[str, Any]]:
    gives, gets = Counter[str](), Counter[str]()
    for giver, getter in moved:
        gives[giver] += 1
        gets[getter] += 1
    return [
        {
            "node": node, "weight": then.get(node, 0), "now": loads["now"][node], "then": loads["then"][node],
            "gives": gives[node], "gets": gets[node],
        }
        for node in sorted({*now, *then}, key=by_number)
    ]  # fmt: skip


def _pairs(
    moved: Mapping[int, tuple[str, str]], domains: Mapping[int, int], pending: Mapping[int, int]
) -> list[dict[str, Any]]:
    sums: dict[tuple[str, str], list[int]] = {}
    for partition, pair in moved.items():
        row = sums.setdefault(pair, [0, 0, 0])
        for n, count in enumerate((1, domains[partition], pending[partition])):
            row[n] += count
    return [
        {"from": giver, "to": getter, "partitions": row[0], "domains": row[1], "pending": row[2]}
        for (giver, getter), row in sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    ]


def changed(now: Mapping[str, int], words: Sequence[str], new_names: Sequence[str]) -> dict[str, int]:
    """The weights after the changes, in order; +N takes its names from `new_names`. Raises UsageError."""
    then, names = dict(now), iter(new_names)
    for word in words:
        if _NUMBER.fullmatch(word) and word[0] == "+":
            then |= {next(names): 1 for _ in range(int(word))}
        elif _NUMBER.fullmatch(word):
            then = _without_last(then, int(word[1:]))
        elif word[0] == "-" and len(word) > 1:
            if word[1:] not in then:
                raise UsageError(f"--plan {word}: no such node ({', '.join(sorted(then, key=by_number)) or 'none'})")
            del then[word[1:]]
        elif word[0] == "+" and len(word) > 1:
            node, weight = _weighted(word, then)
            then[node] = weight
        else:
            raise UsageError(f"--plan {word}: write +2, -1, -NODE or +NODE:WEIGHT")
    return then


def _without_last(nodes: Mapping[str, int], count: int) -> dict[str, int]:
    """Without those with the highest numbers: they are the ones that scaling down stops."""
    if count > len(nodes):
        raise UsageError(f"--plan -{count}: only {len(nodes)} take part")
    kept = sorted(nodes, key=by_number)[: len(nodes) - count]
    return {node: nodes[node] for node in kept}


def _weighted(word: str, now: Mapping[str, int]) -> tuple[str, int]:
    node, colon, text = word[1:].rpartition(":")
    if not colon:
        if word[1:] in now:
            raise UsageError(f"--plan {word}: it takes part already; {word}:{now[word[1:]] + 1} gives it more")
        return word[1:], 1
    if not (node and text.isdecimal() and 1 <= int(text) <= WEIGHT_MAX):
        raise UsageError(f"--plan {word}: write +NODE:WEIGHT with a weight from 1 to {WEIGHT_MAX}")
    return node, int(text)


def plan_text(found: Mapping[str, Any]) -> str:
    from crawler.reports.wording import counted, number

    total, now, then = found["partitions"], found["now"], found["then"]
    lines = [f"now {counted(len(now), 'node')}, then {number(len(then))}: {_difference(now, then)}"]
    lines.append(
        f"{number(found['moved'])} of {number(total)} partitions would move ({100 * found['share_moved']:.1f} %; "
        f"the shares change by {100 * found['share_changed']:.1f} %), "
        f"with {counted(found['domains'], 'domain')} and {counted(found['pending'], 'pending URL')}"
    )
    if found["moved"]:
        lines += ["", *_node_table(found["nodes"]), "", *_pair_table(found["moves"])]
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


def _node_table(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    from crawler.reports.tables import or_nothing, table
    from crawler.reports.wording import number

    columns = ("now", "then", "gives", "gets")
    moving = [row for row in nodes if row["gives"] or row["gets"]]
    rows = [(row["node"], *(or_nothing(number(row[c]), row[c]) for c in columns)) for row in moving[:ROWS]]
    return [table(("node", *columns), rows), *_more(len(moving), "nodes that give or get")]


def _pair_table(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    from crawler.reports.tables import or_nothing, table
    from crawler.reports.wording import number

    columns = ("partitions", "domains", "pending")
    rows = [
        (row["from"] or "nobody", row["to"] or "nobody", *(or_nothing(number(row[c]), row[c]) for c in columns))
        for row in pairs[:ROWS]
    ]
    return [table(("from", "to", *columns), rows, left=2), *_more(len(pairs), "pairs")]


def _more(count: int, noun: str) -> list[str]:
    return [f"... and {count - ROWS:,} more {noun}: --json has all"] if count > ROWS else []
