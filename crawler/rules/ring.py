"""The consistent-hash ring: partition -> node, the same wherever it is computed. Pure.

Each node has 150 virtual nodes (times its weight) on uhashring's ring; partitions are placed at even distances. Loads
are bounded: a full node keeps the partitions nearest before it, and the rest go to the next node that is not full.
Pinned partitions go to their nodes first. The ring suggests; the lease decides. So instances of two releases with
different rings may share a crawl: `crawler ring` reports that they disagree.

I7 promises, with at least 80 partitions a node, at most 1.1 times its share to each node, and at most 1.5/n of the
partitions moved by a change of one node in n. Two choices hold it. Partition p is at (p + 1/2) / P of the circle:
domains are hashed to partitions already, and a second hash only spread these unevenly, so that every fifth node was
full. And the partition that is nearest to its point is placed first, not the one with the lowest number: what walks on
from a full node then displaces nobody. With both hashed and by number, 14 of 240 changes of 50 nodes with 4,096
partitions moved more, the worst 1.69/n; now none does, the worst 1.34/n (docs/internals/ring-figures.md).
"""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from math import ceil, floor
from types import MappingProxyType

NO_PINS: Mapping[int, str] = MappingProxyType({})
RINGS_KEPT = 8  # a node that flaps brings the same few rings again; 0.3 MB each at 16,384 partitions
CIRCLE = 2**64
NOBODY = ""  # owns everything while no node takes part


@dataclass(frozen=True, slots=True)
class Ring:
    """Owners of all partitions by a member list. `owners[p]` is a node's name; empty without nodes.

    `digest` identifies the ring: two that differ come from different members, weights, pins or settings.
    """

    owners: tuple[str, ...]
    caps: Mapping[str, int] = field(default_factory=dict)
    digest: str = field(init=False)
    _shares: Mapping[str, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shares = defaultdict(list)
        for partition, owner in enumerate(self.owners):
            shares[owner].append(partition)
        named = blake2b("\n".join(self.owners).encode(), digest_size=6).hexdigest()
        object.__setattr__(self, "_shares", dict(shares))
        object.__setattr__(self, "digest", named if self.owners else "")

    def share_of(self, node: str) -> list[int]:
        """The partitions that the ring suggests for a node, in order."""
        return list(self._shares.get(node, ()))


def build(
    weights: Mapping[str, int],
    *,
    partitions: int,
    virtual_nodes: int = 150,
    load_bound: float = 1.1,
    pins: Mapping[int, str] = NO_PINS,
) -> Ring:
    """The ring over nodes with integer weights; those of weight 0 get what is pinned to them, and nothing else.

    A partition in `pins` goes to its node, full or not, while that node is in `weights`, and else where the ring puts
    it. Pinned partitions count against their node's cap first.
    """
    heard = {p: node for p, node in pins.items() if node in weights and p < partitions}
    listed = tuple(sorted(weights.items()))
    return _built(listed, partitions, virtual_nodes, load_bound, tuple(sorted(heard.items())))


@lru_cache(maxsize=RINGS_KEPT)
def _built(
    listed: tuple[tuple[str, int], ...],
    partitions: int,
    virtual_nodes: int,
    load_bound: float,
    pins: tuple[tuple[int, str], ...],
) -> Ring:
    weights = dict(listed)
    if not weights:
        return Ring(())
    nodes = {node: {"weight": weight, "vnodes": virtual_nodes} for node, weight in listed if weight}
    from uhashring import HashRing  # not by those who only judge who is alive: 25 ms

    points = HashRing(nodes=nodes, hash_fn=_hash).ring
    caps = _caps(weights, partitions, load_bound)
    return Ring(_placed(points, caps, partitions, dict(pins)), caps)


def _hash(key: object) -> int:
    return int.from_bytes(blake2b(str(key).encode(), digest_size=8).digest(), "big")


def _placed(
    points: Mapping[int, str], caps: Mapping[str, int], partitions: int, pins: Mapping[int, str]
) -> tuple[str, ...]:
    """The owner of each partition. Of the partitions before a point, the nearest is placed first."""
    places = sorted(points)
    waiting = []
    for partition in range(partitions):
        if partition not in pins:
            at = (2 * partition + 1) * CIRCLE // (2 * partitions)
            position = bisect(places, at) % len(places)
            waiting.append(((places[position] - at) % CIRCLE, partition, position))
    owners = dict(pins)
    room = Counter(caps)
    room.subtract(pins.values())
    for _, partition, first in sorted(waiting):
        position = first
        while room[points[places[position]]] <= 0:
            position = (position + 1) % len(places)
        owners[partition] = points[places[position]]
        room[owners[partition]] -= 1
    return tuple(owners[partition] for partition in range(partitions))


def _caps(weights: Mapping[str, int], partitions: int, load_bound: float) -> dict[str, int]:
    """The maximum of partitions of each node: max(floor(bound x fair share), ceil(fair share)) by weight."""
    total = sum(weights.values())
    caps = {}
    for node, weight in weights.items():
        fair = partitions * weight / total
        caps[node] = max(floor(load_bound * fair), ceil(fair))
    return caps


def moves(before: Sequence[str], after: Sequence[str], partitions: int) -> dict[int, tuple[str, str]]:
    """Partition -> (old owner, new owner), for the owners of two rings; either may be empty."""
    givers = before or (NOBODY,) * partitions
    getters = after or (NOBODY,) * partitions
    pairs = enumerate(zip(givers, getters, strict=True))
    return {partition: (giver, getter) for partition, (giver, getter) in pairs if giver != getter}


def share_changed(now: Mapping[str, int], then: Mapping[str, int]) -> float:
    """The share of all partitions that has to move to give each node its fair share by weight; 1.0 is all of them."""
    if not now or not then:
        return float(bool(now) != bool(then))
    total_now, total_then = sum(now.values()), sum(then.values())
    return sum(max(0.0, weight / total_then - now.get(node, 0) / total_now) for node, weight in then.items())
