"""The ring: fair, steady, the same wherever it is computed."""

from collections import Counter

import pytest

from crawler.rules import ring as ring_module
from crawler.rules.ring import build


def names(n: int) -> list[str]:
    return [f"host-{i}/0" for i in range(n)]


def ring_of(n: int, partitions: int) -> tuple[str, ...]:
    return build(dict.fromkeys(names(n), 1), partitions=partitions).owners


# P >= 80 n: up to 12 nodes at the default 1024 partitions, 50 at 4096.
SIZES = [*((n, 1024) for n in (2, 3, 5, 8, 12)), (30, 4096), (50, 4096)]


@pytest.mark.parametrize(("n", "partitions"), SIZES)
def test_no_node_has_more_than_a_tenth_above_its_share(n: int, partitions: int) -> None:
    loads = Counter(ring_of(n, partitions))
    assert len(loads) == n
    assert max(loads.values()) <= 1.10 * partitions / n


@pytest.mark.parametrize(("n", "partitions"), SIZES)
def test_a_join_or_leave_moves_at_most_one_and_a_half_shares(n: int, partitions: int) -> None:
    before = ring_of(n, partitions)
    for changed in ([*names(n), "host-new/0"], names(n)[1:], names(n)[:-1]):
        after = build(dict.fromkeys(changed, 1), partitions=partitions).owners
        moved = sum(a != b for a, b in zip(before, after, strict=True))
        larger = max(n, len(changed))
        assert moved <= 1.5 * partitions / larger, f"{moved} of {partitions} with {n} -> {len(changed)}"


def test_weights_are_respected() -> None:
    loads = Counter(build({"small": 1, "big": 3}, partitions=1024).owners)
    assert 1024 * 3 / 4 * 0.9 <= loads["big"] <= 1024 * 3 / 4 * 1.1


def test_the_order_in_which_nodes_are_listed_does_not_matter() -> None:
    listed = {name: 1 + i % 3 for i, name in enumerate(names(9))}
    reverse = dict(reversed(list(listed.items())))
    assert build(listed, partitions=1024) == build(reverse, partitions=1024)


def test_owners_never_change_between_releases() -> None:
    """Frozen: an instance of one release and one of the next must agree."""
    assert build({"a": 1, "b": 1, "c": 2}, partitions=16).owners == tuple("cccbccacacacbbba")


def test_the_ring_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    plain = ring_module.HashRing

    def noting(*args: object, **kwargs: object) -> object:
        made.append(plain(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(ring_module, "HashRing", noting)
    owners = build({"a": 1, "b": 2}, partitions=8).owners
    assert len(made) == 1
    assert Counter(node for _, node in made[0].get_points()) == {"a": 150, "b": 300}
    assert set(owners) == {"a", "b"}


def test_every_partition_has_an_owner_with_more_nodes_than_partitions() -> None:
    assert len(Counter(ring_of(20, 4))) == 4
    assert ring_of(0, 4) == ()
    assert set(ring_of(1, 4)) == {"host-0/0"}


def test_a_share_is_what_the_owners_say() -> None:
    ring = build({"a": 1, "b": 1}, partitions=64)
    assert sorted(ring.share_of("a") + ring.share_of("b")) == list(range(64))


def test_pinned_partitions_go_to_their_node_and_the_rest_stays_fair() -> None:
    weights = dict.fromkeys(names(5), 1)
    pins = {7: "host-0/0", 11: "host-0/0", 500: "host-3/0", 3: "gone"}
    plain, pinned = build(weights, partitions=1024), build(weights, partitions=1024, pins=pins)
    assert [pinned.owners[p] for p in (7, 11, 500)] == ["host-0/0", "host-0/0", "host-3/0"]
    assert pinned.owners[3] == plain.owners[3], "a pin to a node that is not there changes nothing"
    assert sum(a != b for a, b in zip(plain.owners, pinned.owners, strict=True)) <= 2 * len(pins)
    loads = Counter(pinned.owners)
    assert all(loads[node] <= pinned.caps[node] for node in weights)


def test_more_pins_than_a_node_may_have_are_all_heard() -> None:
    pins = dict.fromkeys(range(600), "host-0/0")
    owners = build(dict.fromkeys(names(4), 1), partitions=1024, pins=pins).owners
    assert all(owner == "host-0/0" for owner in owners[:600])
    assert "host-0/0" not in owners[600:], "a node that is full of pins gets nothing else"
    assert len(set(owners[600:])) == 3
