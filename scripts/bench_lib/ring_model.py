"""A model of the partition ring at any size: balance, movement, time and memory, computed with the crawler's own code.

    scripts/bench ring --instances 1000 --domains 10000000 --churn 20

It starts no process of the crawler. Domains are made-up names, hashed by `partition_of`; nodes are named like machines.
The same arguments give the same figures, except for times and memory.
"""

import argparse
import random
import statistics
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle, islice

from crawler.rules import ring as ring_module
from crawler.rules.places import partition_of
from crawler.rules.ring import Ring, build, moves, share_changed
from crawler.terminal.tables import table
from crawler.terminal.words import size
from scripts.bench_lib import arguments

PARTITIONS_MAX = 16384  # what settings allow
PER_NODE_PROMISED = 80  # I7 holds from this many partitions a node on
CHUNK = 250_000  # domains a task
SIZES = [*((n, 1024) for n in (2, 3, 4, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50)), (50, 4096)]
SIZES += [(100, 8192), (150, PARTITIONS_MAX), (200, PARTITIONS_MAX)]
KINDS = ("join", "leave", "weight", "weight")  # the second weight undoes the first one


@dataclass(frozen=True)
class Step:
    """One change of members: what moved, and what had to move."""

    kind: str
    nodes: int
    moved: int
    domains: int
    needed: float  # partitions
    balance: float  # max/mean afterwards, by weight
    seconds: float


@dataclass
class Study:
    """One size: the first ring and every step after it."""

    nodes: int
    partitions: int
    balance: float
    domain_balance: float
    seconds: float
    steps: list[Step] = field(default_factory=list)

    def of(self, kind: str) -> list[Step]:
        return [step for step in self.steps if step.kind == kind]


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    begun = time.perf_counter()
    counts = domains_by_partition(options.domains, options.jobs)
    print(f"{options.domains:,} domains hashed in {time.perf_counter() - begun:.1f} s by {options.jobs} processes\n")
    sizes = SIZES if options.table else []
    studies = [study(n, p, counts, options.churn, options.seed) for n, p in sizes]
    deep = study(options.instances, options.partitions, counts, options.churn, options.seed)
    print(sizes_text([*studies, deep]), end="\n\n")
    print(steps_text(deep, options.domains), end="\n\n")
    print(memory_text(options.instances, options.partitions))
    if options.lists:
        print("\n" + lists_text(options.instances, options.partitions, options.lists, options.seed))
    return 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    p, one = arguments.parser("ring", __doc__), arguments.positive_int
    p.add_argument("--instances", type=one, default=1000, metavar="N", help="nodes on the ring")
    p.add_argument("--domains", type=one, default=10_000_000, metavar="M", help="number of domains")
    p.add_argument("--partitions", type=one, default=PARTITIONS_MAX, metavar="P", help="number of partitions")
    p.add_argument("--churn", type=int, default=20, metavar="K", help="changes of members at each size")
    p.add_argument("--seed", type=int, default=1, help="of names and of which members change")
    p.add_argument("--jobs", type=one, default=2, help="processes that hash domains")
    p.add_argument(
        "--lists", type=int, default=0, metavar="L", help="also a join and a leave in L lists of other names"
    )
    p.add_argument("--no-table", dest="table", action="store_false", help="leave out the smaller sizes")
    options = p.parse_args(words)
    if options.instances < 2:
        p.error("--instances must be at least 2")
    if PARTITIONS_MAX % options.partitions:
        p.error(f"--partitions must divide {PARTITIONS_MAX}: domains are counted once for all sizes")
    return options


# --- domains ---


def domains_by_partition(domains: int, jobs: int) -> list[int]:
    """The number of domains in each of PARTITIONS_MAX partitions.

    A partition is the remainder of a hash, so smaller numbers of partitions that divide this one are sums of these.
    """
    chunks = [range(at, min(at + CHUNK, domains)) for at in range(0, domains, CHUNK)]
    total = Counter[int]()
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for found in pool.map(_count, chunks):
            total.update(found)
    return [total[p] for p in range(PARTITIONS_MAX)]


def _count(numbers: range) -> Counter[int]:
    return Counter(partition_of(f"site-{n}.example", PARTITIONS_MAX) for n in numbers)


def folded(counts: Sequence[int], partitions: int) -> list[int]:
    return [sum(counts[p::partitions]) for p in range(partitions)]


# --- rings ---


def names(seed: int) -> Iterator[str]:
    """Machines with four slots each, with random numbers as in a cloud."""
    rng = random.Random(seed)
    for number in rng.sample(range(100_000), 50_000):
        for slot in range(4):
            yield f"crawler-{number:05d}-{slot}"


def timed(weights: dict[str, int], partitions: int) -> tuple[Ring, float]:
    ring_module._built.cache_clear()  # noqa: SLF001 - measured is a ring that is not cached
    begun = time.process_time()
    ring = build(weights, partitions=partitions)
    return ring, time.process_time() - begun


def balance(ring: Ring, weights: dict[str, int], amounts: Sequence[int]) -> float:
    """The load of the fullest node over its fair share by weight."""
    loads = dict.fromkeys(weights, 0)
    for partition, owner in enumerate(ring.owners):
        loads[owner] += amounts[partition]
    total, whole = sum(weights.values()), sum(amounts)
    return max(loads[node] * total / (whole * weight) for node, weight in weights.items())


def study(nodes: int, partitions: int, counts: Sequence[int], churn: int, seed: int) -> Study:
    """Compute the ring, then change its members `churn` times: join, leave, new weight, old weight, and so on."""
    rng, fresh, amounts = random.Random(seed), names(seed), folded(counts, partitions)
    weights = dict.fromkeys(islice(fresh, nodes), 1)
    ring, seconds = timed(weights, partitions)
    ones = [1] * partitions
    result = Study(nodes, partitions, balance(ring, weights, ones), balance(ring, weights, amounts), seconds)
    for kind in islice(cycle(KINDS), churn):
        then = changed(weights, kind, rng, fresh)
        after, seconds = timed(then, partitions)
        moved = moves(ring.owners, after.owners, partitions)
        result.steps.append(
            Step(
                kind=kind,
                nodes=max(len(weights), len(then)),
                moved=len(moved),
                domains=sum(amounts[p] for p in moved),
                needed=share_changed(weights, then) * partitions,
                balance=balance(after, then, ones),
                seconds=seconds,
            )
        )
        ring, weights = after, then
    return result


def changed(weights: dict[str, int], kind: str, rng: random.Random, fresh: Iterator[str]) -> dict[str, int]:
    if kind == "join":
        return {**weights, next(fresh): 1}
    one = rng.choice(sorted(weights))
    if kind == "leave":
        return {node: weight for node, weight in weights.items() if node != one}
    heavy = [node for node, weight in sorted(weights.items()) if weight != 1]
    return {**weights, heavy[0]: 1} if heavy else {**weights, one: rng.choice((2, 3))}


# --- output ---


def sizes_text(studies: Sequence[Study]) -> str:
    headers = (
        "nodes", "partitions", "per node", "max/mean", "of domains", "join moves", "worst", "leave moves", "worst",
        "weight", "worst", "1.5/n", "ring",
    )  # fmt: skip
    return "\n".join(
        [
            table(headers, [_row(s) for s in studies], left=0),
            "",
            "join, leave: partitions moved, in shares of 1/n. weight: partitions moved over the change of the shares.",
            f"1.5/n: whether all joins and leaves kept to it; promised from {PER_NODE_PROMISED} partitions a node on.",
            "ring: CPU time to compute one.",
        ]
    )


def _row(s: Study) -> tuple[str, ...]:
    joins, leaves = _in_shares(s, "join"), _in_shares(s, "leave")
    weights = [step.moved / step.needed for step in s.of("weight")]
    promised = s.partitions >= PER_NODE_PROMISED * s.nodes
    held = all(ratio <= 1.5 for ratio in (*joins, *leaves))
    return (
        f"{s.nodes:,}",
        f"{s.partitions:,}",
        f"{s.partitions / s.nodes:.0f}",
        f"{max(s.balance, *(step.balance for step in s.steps), 0):.3f}",
        f"{s.domain_balance:.3f}",
        *_mean_and_worst(joins),
        *_mean_and_worst(leaves),
        *_mean_and_worst(weights),
        "kept" if held else "exceeded" if promised else "-",
        f"{1000 * statistics.median([s.seconds, *(step.seconds for step in s.steps)]):.0f} ms",
    )


def _in_shares(s: Study, kind: str) -> list[float]:
    return [step.moved * step.nodes / s.partitions for step in s.of(kind)]


def _mean_and_worst(values: Sequence[float]) -> tuple[str, str]:
    return (f"{statistics.mean(values):.2f}", f"{max(values):.2f}") if values else ("-", "-")


def steps_text(s: Study, domains: int) -> str:
    """The largest size, by kind of change."""
    rows = []
    for kind in dict.fromkeys(KINDS):
        steps = s.of(kind)
        if steps:
            moved = statistics.mean(step.moved for step in steps)
            needed = statistics.mean(step.needed for step in steps)
            rows.append(
                (
                    kind,
                    str(len(steps)),
                    f"{moved:,.1f}",
                    f"{needed:,.1f}",
                    f"{100 * moved / s.partitions:.3f} %",
                    f"{100 * needed / s.partitions:.3f} %",
                    f"{statistics.mean(step.domains for step in steps):,.0f}",
                )
            )
    headers = ("change", "times", "partitions moved", "least possible", "of all", "least", "domains moved")
    title = f"{s.nodes:,} nodes, {s.partitions:,} partitions, {domains:,} domains, one change after the other:"
    return f"{title}\n\n{table(headers, rows)}"


def lists_text(nodes: int, partitions: int, lists: int, seed: int) -> str:
    """How much the names matter: a join and a leave in each of many member lists."""
    found = []
    for number in range(lists):
        fresh = names(1000 * seed + number)
        weights = dict.fromkeys(islice(fresh, nodes), 1)
        leaver = random.Random(number).choice(sorted(weights))
        before = build(weights, partitions=partitions).owners
        for then in ({**weights, next(fresh): 1}, {n: 1 for n in weights if n != leaver}):
            after = build(then, partitions=partitions).owners
            found.append(len(moves(before, after, partitions)) * max(nodes, len(then)) / partitions)
    return (
        f"{len(found)} joins and leaves in {lists} lists of names: {statistics.mean(found):.2f} shares of 1/n moved "
        f"in the mean, {max(found):.2f} at worst, {sum(share > 1.5 for share in found)} times more than 1.5"
    )


def memory_text(nodes: int, partitions: int) -> str:
    """Memory of a ring while it is computed, and afterwards."""
    weights = dict.fromkeys(islice(names(0), nodes), 1)
    ring_module._built.cache_clear()  # noqa: SLF001 - as above
    tracemalloc.start()
    ring = build(weights, partitions=partitions)
    stays, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ring.owners
    return f"memory of one ring: {size(peak)} while it is computed, {size(stays)} kept"
