"""Who takes part in a crawl and has which share, whose a URL is, what a change of nodes would move. Changes nothing."""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from crawler.crawl.opening import OpenCrawl
from crawler.crawl.url_input import url_of_site
from crawler.errors import UsageError
from crawler.frontier.members import Member, Members, Pins, by_partition, weights_of
from crawler.membership.node_names import Slots, is_lock_free
from crawler.rules.ring import Ring, build, moves, share_changed
from crawler.terminal.words import by_number, counted
from crawler.views.ring import PlanMove, PlanNode, RingMember, RingMembers, RingPlan, Shard, UrlPlace

LOOK_BEATS = 1.5  # heartbeats between two reads of the members: whoever is well has written in between
LOOK_MAX_S = 5.0  # with many members heartbeats are rare; nobody waits longer than this for a table
FRESH_BEATS = 5  # a member this young may not have settled on a ring
WEIGHT_MAX = 100  # as in the settings
DIGITS_MAX = 12  # thousands of digits would not be read as a number
NODES_MAX = 1_000
_NUMBER = re.compile(r"[+-]\d+")


def pins_of(crawl: OpenCrawl) -> Pins:
    """The pins of a crawl."""
    return Pins(crawl.engine, crawl.keys)


async def ring_of(crawl: OpenCrawl, weights: Mapping[str, int]) -> Ring:
    """The ring over nodes, with the crawl's pins."""
    settings, partitions = crawl.settings.membership, crawl.record.partitions
    return build(
        weights,
        partitions=partitions,
        virtual_nodes=settings.virtual_nodes,
        pins=by_partition(await pins_of(crawl).read(), partitions),
    )


async def observed(crawl: OpenCrawl) -> tuple[dict[str, Member], dict[str, str]]:
    """Members of a crawl, and the state of each by two looks at its heartbeat."""
    return await observed_members(crawl.members, crawl.settings.membership.beat_s)


async def observed_members(listed: Members, beat_s: float) -> tuple[dict[str, Member], dict[str, str]]:
    """The same of a crawl that need not be open."""
    first = await listed.read()
    waited_s = await _wait(beat_s, first)
    members = await listed.read()
    states = {}
    for session, member in members.items():
        same = session in first and first[session].counter == member.counter
        silent = same and waited_s >= _look_s(beat_s, member)
        states[session] = "dead" if is_lock_free(member) else "silent" if silent else member.state
    return members, states


def _look_s(beat_s: float, member: Member) -> float:
    return LOOK_BEATS * beat_s * member.time_scale


async def _wait(beat_s: float, members: Mapping[str, Member]) -> float:
    """Give all members the time to beat; how long that was."""
    wait_s = min(LOOK_MAX_S, max((_look_s(beat_s, m) for m in members.values()), default=0.0))
    await asyncio.sleep(wait_s)
    return wait_s


async def disagreeing(crawl: OpenCrawl, members: Mapping[str, Member], ours: str) -> dict[str, list[str]]:
    """Ring -> nodes that follow it, if it is not one for all: the ring of most comes first, `ours` among equals.

    A change takes a moment to get around, so a ring counts that a member still follows at another look.
    """
    fresh_s = FRESH_BEATS * crawl.settings.membership.beat_s
    now = time.time()
    settled = {s: m for s, m in members.items() if m.ring and now - m.started_at >= fresh_s * m.time_scale}
    if len({m.ring for m in settled.values()}) <= 1:
        return {}
    await _wait(crawl.settings.membership.beat_s, settled)
    again = await crawl.members.read()
    groups = defaultdict(list)
    for session, member in settled.items():
        if session in again and again[session].ring == member.ring:
            groups[member.ring].append(member.node)
    if len(groups) <= 1:
        return {}
    by_size = sorted(groups, key=lambda ring: (-len(groups[ring]), ring != ours, ring))
    return {ring: sorted(groups[ring], key=by_number) for ring in by_size}


async def members(crawl: OpenCrawl) -> RingMembers:
    """Every session on the list: how it is, what the ring suggests for it, what it holds."""
    listed, states = await observed(crawl)
    living = {s: m for s, m in listed.items() if states[s] not in ("dead", "silent")}
    weights = weights_of({s: m for s, m in listed.items() if states[s] != "dead"})
    ring = await ring_of(crawl, weights)
    rings = await disagreeing(crawl, living, ring.digest)
    odd = {node for nodes in list(rings.values())[1:] for node in nodes}
    suggested = Counter(ring.owners)
    leases = await crawl.leases.read_there(range(crawl.record.partitions))
    held = Counter(lease.session for lease in leases if lease.session)
    now = time.time()
    rows = [
        RingMember(
            node=m.node,
            state=states[s],
            waits_for_room=m.waits_for_room,
            disagrees=m.node in odd,
            session=s,
            age_s=round(max(0.0, now - m.started_at), 1),
            host=m.host.partition("/")[0],
            pid=m.pid,
            weight=m.weight,
            in_flight=m.in_flight,
            suggested=suggested[m.node] if states[s] != "dead" else 0,
            held=held[s],
        )
        for s, m in sorted(listed.items(), key=lambda item: by_number(item[1].node))
    ]
    unowned = sum(1 for lease in leases if not lease.session)
    strangers = sum(n for session, n in held.items() if session not in listed)
    return RingMembers(
        crawl=crawl.settings.crawl.name, partitions=crawl.record.partitions, members=rows,
        free=unowned, held_by_gone=strangers, rings=rings, shards=await shards(crawl),
    )  # fmt: skip


async def shards(crawl: OpenCrawl) -> list[Shard]:
    """Of a cluster, in the order of their names; [] of one server. Raises EngineError."""
    found = await crawl.engine.shards()
    metas = map(crawl.keys.meta, range(crawl.record.partitions)) if found else ()
    partitions = Counter(map(crawl.engine.shard_of, metas))
    return [
        Shard(
            name=one.name, is_up=not one.error, has_replica=one.has_replica, slots=one.slots,
            partitions=partitions[one.name], used_bytes=one.used_bytes,
        )
        for one in found
    ]  # fmt: skip


def located(crawl: OpenCrawl, text: str) -> tuple[str, str, str, int]:
    """(URL, domain, queue, partition) of a URL, host or domain as people write it. Raises UsageError."""
    url = url_of_site(text)
    return (url, *crawl.placement.of(url))


async def place(crawl: OpenCrawl, text: str) -> UrlPlace:
    """Where a URL belongs, who owns it now, and who should."""
    url, domain, queue, partition = located(crawl, text)
    (lease,) = await crawl.leases.read([partition])
    owners = (await ring_of(crawl, weights_of(await crawl.members.read()))).owners
    pinned = by_partition(await pins_of(crawl).read(), crawl.record.partitions)
    return UrlPlace(
        url=url, domain=domain, queue=queue, partition=partition,
        owner=lease.node if lease.session else "", session=lease.session, epoch=lease.epoch,
        suggested=owners[partition] if owners else "", pinned=pinned.get(partition, ""),
    )  # fmt: skip


async def planned(crawl: OpenCrawl, words: Sequence[str]) -> RingPlan:
    """What would move from whom to whom, with the domains and pending URLs in it.

    `words` are changes in order: +2, -1 (nodes), +NODE, +NODE:WEIGHT, -NODE. Raises UsageError.
    """
    now = weights_of(await crawl.members.read())
    if any(_NUMBER.fullmatch(word) and (len(word) > DIGITS_MAX or int(word) > NODES_MAX) for word in words):
        raise UsageError(f"add: at most {NODES_MAX:,} nodes at a time")
    more = sum(int(word) for word in words if _NUMBER.fullmatch(word) and word[0] == "+")
    named = [word[1:].rpartition(":")[0] or word[1:] for word in words]
    then = changed(now, words, await Slots(crawl.members).free(more, besides={*now, *named}))
    before, after = await ring_of(crawl, now), await ring_of(crawl, then)
    moved = moves(before.owners, after.owners, crawl.record.partitions)
    domains = dict(zip(moved, await crawl.stats.domain_counts(moved), strict=True))
    pending = dict(zip(moved, await crawl.stats.pending_counts(moved), strict=True))
    loads = {"now": Counter(before.owners), "then": Counter(after.owners)}
    return RingPlan(
        crawl=crawl.settings.crawl.name,
        partitions=crawl.record.partitions,
        now=now,
        then=then,
        moved=len(moved),
        share_moved=round(len(moved) / crawl.record.partitions, 4),
        share_changed=round(share_changed(now, then), 4),
        domains=sum(domains.values()),
        pending=sum(pending.values()),
        nodes=_nodes(now, then, loads, moved.values()),
        moves=_pairs(moved, domains, pending),
    )


def _nodes(
    now: Mapping[str, int],
    then: Mapping[str, int],
    loads: Mapping[str, Counter[str]],
    moved: Iterable[tuple[str, str]],
) -> list[PlanNode]:
    gives, gets = Counter[str](), Counter[str]()
    for giver, getter in moved:
        gives[giver] += 1
        gets[getter] += 1
    return [
        PlanNode(
            node=node, weight=then.get(node, 0), now=loads["now"][node], then=loads["then"][node],
            gives=gives[node], gets=gets[node],
        )
        for node in sorted({*now, *then}, key=by_number)
    ]  # fmt: skip


def _pairs(
    moved: Mapping[int, tuple[str, str]], domains: Mapping[int, int], pending: Mapping[int, int]
) -> list[PlanMove]:
    sums: dict[tuple[str, str], list[int]] = {}
    for partition, pair in moved.items():
        row = sums.setdefault(pair, [0, 0, 0])
        for n, count in enumerate((1, domains[partition], pending[partition])):
            row[n] += count
    return [
        PlanMove(giver=giver, getter=getter, partitions=row[0], domains=row[1], pending=row[2])
        for (giver, getter), row in sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    ]


def _shown(word: str) -> str:
    """A change in words."""
    return f"{'add' if word[:1] == '+' else 'remove'} {word[1:]}"


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
                raise UsageError(f"{_shown(word)}: no such node ({', '.join(sorted(then, key=by_number)) or 'none'})")
            del then[word[1:]]
        elif word[0] == "+" and len(word) > 1:
            node, weight = _weighted(word, then)
            then[node] = weight
        else:
            raise UsageError(f"{_shown(word)}: write a number, or the name of a node")
    return then


def _without_last(nodes: Mapping[str, int], count: int) -> dict[str, int]:
    """Without those with the highest numbers: they are the ones that scaling down stops."""
    if count > len(nodes):
        raise UsageError(f"remove {count}: only {counted(len(nodes), 'node takes', 'nodes take')} part")
    kept = sorted(nodes, key=by_number)[: len(nodes) - count]
    return {node: nodes[node] for node in kept}


def _weighted(word: str, now: Mapping[str, int]) -> tuple[str, int]:
    node, colon, text = word[1:].rpartition(":")
    if not colon:
        if word[1:] in now:
            more = f"{word[1:]}:{now[word[1:]] + 1}"
            raise UsageError(f"{_shown(word)}: it takes part already; {more} gives it more")
        return word[1:], 1
    if not (node and text.isdecimal() and 1 <= int(text) <= WEIGHT_MAX):
        raise UsageError(f"{_shown(word)}: write NODE:WEIGHT with a weight from 1 to {WEIGHT_MAX}")
    return node, int(text)
