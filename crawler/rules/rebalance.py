"""What a change of members moves on the ring, and how much of it had to move. Pure."""

from collections.abc import Mapping, Sequence

NOBODY = ""  # owns everything while no node takes part


def moves(before: Sequence[str], after: Sequence[str], partitions: int) -> dict[int, tuple[str, str]]:
    """Partition -> (who gives, who gets), for two rings' owners; either may be empty."""
    givers = before or (NOBODY,) * partitions
    getters = after or (NOBODY,) * partitions
    pairs = enumerate(zip(givers, getters, strict=True))
    return {partition: (giver, getter) for partition, (giver, getter) in pairs if giver != getter}


def share_changed(now: Mapping[str, int], then: Mapping[str, int]) -> float:
    """The part of everything that has to move for each node to have its fair share by weight; 1.0 is all of it."""
    if not now or not then:
        return float(bool(now) != bool(then))
    total_now, total_then = sum(now.values()), sum(then.values())
    return sum(max(0.0, weight / total_then - now.get(node, 0) / total_now) for node, weight in then.items())
