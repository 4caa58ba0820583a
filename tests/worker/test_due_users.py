"""The order of partitions by boosts and users, against a plain one that looks at all of them."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.turns import FairTurns
from crawler.worker.due_users import PLAIN, DueUsers

PARTITIONS = range(6)
USERS = ("", "ann", "ben")
keys = st.tuples(st.sampled_from((0, 0, 2)), st.sampled_from(USERS))
times = st.integers(0, 40)
steps = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from(PARTITIONS), times),
    st.tuples(st.just("reply"), st.sampled_from(PARTITIONS), st.dictionaries(keys, times, max_size=4)),
    st.tuples(st.just("note"), st.sampled_from(PARTITIONS), st.sampled_from(USERS), times),
    st.tuples(st.just("drop"), st.sampled_from(PARTITIONS)),
    st.tuples(st.just("take"), st.integers(0, 15), st.integers(1, 3)),
)


class Plain:
    """What is due, found by a look at all partitions."""

    def __init__(self) -> None:
        self.scheduled: dict[int, int] = {}
        self.waits: dict[int, dict[tuple[int, str], int]] = {}

    def is_held_back(self) -> bool:
        """Is a partition to be left alone for longer than its queues would have to wait? That changes its place."""
        return any(at > due for p, at in self.scheduled.items() for due in self.waits.get(p, {}).values())

    def due(self, now: int) -> dict[tuple[int, str], dict[int, int]]:
        found: dict[tuple[int, str], dict[int, int]] = {}
        for partition, at in self.scheduled.items():
            if at <= now:
                known = {key: due for key, due in self.waits.get(partition, {}).items() if due <= now}
                for key, due in (known or {PLAIN: at}).items():
                    found.setdefault(key, {})[partition] = due
        return found


@given(st.lists(steps, max_size=60))
def test_what_is_due_is_taken_in_the_order_of_its_user_and_nothing_is_lost(given_steps: list[tuple]) -> None:
    plain, now, is_held_back = Plain(), 0, False
    users = DueUsers(plain.scheduled, FairTurns(lambda _: 1.0))
    for what, *values in given_steps:
        if what == "schedule":
            partition, at = values
            if plain.scheduled.get(partition, at + 1) > at:
                plain.scheduled[partition] = at
                users.scheduled(partition)
        elif what == "reply":
            plain.waits[values[0]] = dict(values[1])
            users.replace(*values)
        elif what == "note":
            partition, user, at = values
            known = plain.waits.setdefault(partition, {})
            known[0, user] = min(at, known.get((0, user), at))
            users.note(*values)
        elif what == "drop":
            plain.waits.pop(values[0], None)
            users.drop(values[0])
        elif users:
            passed, most = values
            now += passed
            due = plain.due(now)
            taken = users.take(now, most)
            highest = max((boost for boost, _ in due), default=0)
            there = {p for (boost, _), some in due.items() if boost == highest for p in some}
            assert set(taken) <= there
            assert len(taken) == min(most, len(there)), "as many as there are"
            if taken and not is_held_back:
                firsts = [min(some.values()) for (boost, _), some in due.items() if boost == highest]
                since = [some[taken[0]] for (b, _), some in due.items() if b == highest and taken[0] in some]
                assert set(since) & set(firsts), "the one that has been due for longest of some user"
            for partition in taken:
                del plain.scheduled[partition]
        is_held_back = is_held_back or plain.is_held_back()
        assert bool(users) == bool(plain.waits)
