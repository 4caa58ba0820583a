"""The consistent-hash ring: partition -> node, the same wherever it is computed. Pure.

150 virtual nodes a node (times its weight) on uhashring's ring; loads are bounded: a node takes at most its cap and
the partition walks on to the next node on the ring. Pinned partitions go to their nodes first. The ring suggests; the
lease decides.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil, floor
from types import MappingProxyType

from uhashring import HashRing

NO_PINS: Mapping[int, str] = MappingProxyType({})


def _hash(key: object) -> int:
    return int.from_bytes(blake2b(str(key).encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Ring:
    """Owners of all partitions by a member list. `owners[p]` is a node's name; empty without nodes."""

    owners: tuple[str, ...]
    caps: Mapping[str, int] = field(default_factory=dict)

    def share_of(self, node: str) -> list[int]:
        """The partitions that the ring suggests for a node."""
        return [p for p, owner in enumerate(self.owners) if owner == node]


def build(
    weights: Mapping[str, int],
    *,
    partitions: int,
    virtual_nodes: int = 150,
    load_bound: float = 1.1,
    pins: Mapping[int, str] = NO_PINS,
) -> Ring:
    """The ring over nodes with integer weights (>= 1).

    A partition in `pins` goes to its node, full or not, while that node is on the ring, else where the ring puts it.
    Pins count against their node's cap before anything else does.
    """
    if not weights:
        return Ring(())
    caps = _caps(weights, partitions, load_bound)
    pinned = {partition: node for partition, node in pins.items() if node in weights and partition < partitions}
    nodes = {node: {"weight": weight, "vnodes": virtual_nodes} for node, weight in sorted(weights.items())}
    points = HashRing(nodes=nodes, hash_fn=_hash).get_points()
    keys = [point for point, _ in points]
    loads = dict.fromkeys(weights, 0) | Counter(pinned.values())
    owners = []
    for partition in range(partitions):
        owner = pinned.get(partition)
        if owner is None:
            position = bisect(keys, _hash(f"partition-{partition}")) % len(points)
            while loads[points[position][1]] >= caps[points[position][1]]:
                position = (position + 1) % len(points)
            owner = points[position][1]
            loads[owner] += 1
        owners.append(owner)
    return Ring(tuple(owners), caps)


def _caps(weights: Mapping[str, int], partitions: int, load_bound: float) -> dict[str, int]:
    """Most partitions a node may have: max(floor(bound x fair share), ceil(fair share)) by weight."""
    total = sum(weights.values())
    caps = {}
    for node, weight in weights.items():
        fair = partitions * weight / total
        caps[node] = max(floor(load_bound * fair), ceil(fair))
    return caps
