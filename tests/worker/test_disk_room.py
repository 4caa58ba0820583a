"""When an instance claims by the room on its disk, when it may have partitions, and what the ring makes of that."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crawler.archive.folder import UNKNOWN
from crawler.errors import NoRoomError
from crawler.frontier.members import Member, weights_of
from crawler.rules.ring import build
from crawler.settings import ArchiveSettings
from crawler.views.instances import full_nodes
from crawler.views.report import waits_text
from crawler.worker import disk_room
from crawler.worker.counters import Counters
from crawler.worker.disk_room import DiskRoom, can_write
from crawler.worker.open_claims import OpenClaims

MIN = 1_000
LOOKS: dict[str, tuple[int, list[tuple[int, int, bool, bool]]]] = {
    # seconds since the look before, free bytes: does it claim, may it have partitions?
    "room": (MIN, [(0, 5_000, True, True), (1, MIN, True, True)]),
    "full": (MIN, [(0, 999, False, False), (1, 0, False, False)]),
    "a little room": (MIN, [(0, 999, False, False), (1, 1_000, True, False), (600, 1_999, True, False)]),
    "twice, for a minute": (MIN, [(0, 999, False, False), (1, 2_000, True, False), (59, 2_000, True, False),
                                  (1, 2_000, True, True), (1, 1_500, True, True)]),
    "flapping": (MIN, [(0, 999, False, False), (1, 2_000, True, False), (59, 1_999, True, False),
                       (1, 2_000, True, False), (59, 999, False, False), (1, 2_000, True, False),
                       (60, 2_000, True, True)]),
    "never full": (MIN, [(0, 1_500, True, True), (1, 1_000, True, True)]),
    "off": (0, [(0, 0, True, True)]),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKS)
def test_partitions_come_back_only_after_ample_room_for_a_minute(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms, (free_min, looks) = 1_000, LOOKS[case]
    monkeypatch.setattr(disk_room, "monotonic_ms", lambda: now_ms)
    counters, due = Counters(OpenClaims(10)), SimpleNamespace(room_changed=lambda: None)
    room, found = DiskRoom(counters, due, ArchiveSettings(disk_free_bytes_min=free_min)), []  # type: ignore[arg-type]
    for after_s, free, _, _ in looks:
        now_ms += 1000 * after_s
        room.judge(free)
        found.append((after_s, free, not counters.is_disk_full, room.is_enough))
    assert found == looks


# What free bytes are found, does a trial succeed; what is usable: does it claim, may it have partitions?
FAILED: dict[str, tuple[int, int, list[tuple[int, bool, int, bool, bool]]]] = {
    "room above the minimum": (MIN, 0, [(1 << 30, False, 0, False, False), (1 << 30, True, 1 << 30, True, False)]),
    "without a minimum": (0, 0, [(1 << 30, False, 0, False, False), (1 << 30, True, 1 << 30, True, False)]),
    "too little for a trial": (MIN, 0, [((1 << 20) - 1, True, 0, False, False), (1 << 20, True, 1 << 20, True, False)]),
    "a large group": (MIN, 5 << 20, [((10 << 20) - 1, True, 0, False, False), (10 << 20, True, 10 << 20, True, False)]),
    "a huge group": (MIN, 1 << 40, [(64 << 20, True, 64 << 20, True, False)]),
    "unknown": (MIN, 0, [(UNKNOWN, False, 0, False, False), (UNKNOWN, True, 2 * MIN, True, False)]),
    "room, but less than the minimum": (1 << 40, 0, [(1 << 30, True, 1 << 30, False, False)]),
}


@pytest.mark.parametrize("case", FAILED)
@pytest.mark.parametrize("room_s", [0.0, 60.0])
def test_after_a_write_without_room_a_trial_of_its_size_decides(
    case: str, room_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_min, size, looks = FAILED[case]
    counters, due = Counters(OpenClaims(10)), SimpleNamespace(room_changed=lambda: None)
    settings = ArchiveSettings(disk_free_bytes_min=free_min, room_s=room_s)
    room, found, is_free = DiskRoom(counters, due, settings), [], False  # type: ignore[arg-type]
    monkeypatch.setattr(disk_room, "can_write", lambda *_: is_free)
    room.failed(NoRoomError("full", tmp_path), size)
    assert (room.refuses, counters.is_disk_full, room.is_enough) == (True, True, False)
    for free, is_free, *_ in looks:
        usable = room.usable(free)
        room.judge(usable)
        found.append((free, is_free, usable, not counters.is_disk_full, room.is_enough and room_s > 0))
    assert found == looks
    assert not room.refuses
    assert room.is_enough == (room_s == 0 and not counters.is_disk_full)


@pytest.mark.parametrize(
    ("code", "takes"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True), (0, True)]
)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_trial_leaves_no_file_and_only_lack_of_room_fails_it(
    call: str, code: int, takes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        if code:
            patched.setattr(os, call, full)
        assert can_write(tmp_path, 3_000_000) is takes
    assert list(tmp_path.iterdir()) == []
    assert can_write(tmp_path / "gone", 1), "what else is wrong with a folder is for the next write to say"


def member(node: str, state: str = "alive", **fields: Any) -> Member:
    return Member(session=f"s-{node}", node=node, counter=1, state=state, **fields)


FULL = {"state": "quarantined", "lacks_room": True}
RINGS: dict[str, tuple[list[Member], dict[str, int]]] = {
    "nobody": ([], {}),
    "all have room": ([member("a"), member("b", weight=2)], {"a": 1, "b": 2}),
    "one has none": ([member("a", **FULL), member("b")], {"a": 0, "b": 1}),
    "nobody has": ([member("a", **FULL), member("b", **FULL, weight=3)], {"a": 1, "b": 3}),
    "one alone": ([member("a", **FULL)], {"a": 1}),
    "one came back too often": ([member("a", "quarantined"), member("b")], {"b": 1}),
    "one is full, one came back too often": ([member("a", **FULL), member("b", "quarantined")], {"a": 1, "b": 1}),
    "one is about to join": ([member("a", **FULL), member("b", "joining")], {"a": 1}),
    "a full one leaves": ([member("a", "leaving", lacks_room=True), member("b")], {"b": 1}),
    "a command adds seeds": ([member("a", **FULL), member("b", "seeding")], {"a": 1}),
}


@pytest.mark.parametrize("case", RINGS)
def test_who_has_no_room_is_off_the_ring_while_others_have(case: str) -> None:
    members, weights = RINGS[case]
    assert weights_of({one.session: one for one in members}) == weights


def test_who_has_no_room_gets_what_is_pinned_to_it_and_nothing_else() -> None:
    pins = {3: "a", 7: "a", 9: "b"}
    owners = build({"a": 0, "b": 1, "c": 1}, partitions=64, pins=pins).owners
    assert [p for p, owner in enumerate(owners) if owner == "a"] == [3, 7]
    assert owners[9] == "b"
    assert {"b", "c"} < set(owners)


def test_the_ring_of_all_that_have_no_room_is_that_of_all_that_have() -> None:
    members = [member("a"), member("b"), member("c", weight=2)]
    full = [msgspec.structs.replace(one, state="quarantined", lacks_room=True) for one in members]
    rings = [build(weights_of({one.session: one for one in some}), partitions=64) for some in (members, full)]
    assert rings[0].digest == rings[1].digest


def test_who_has_no_room_is_named_where_people_look() -> None:
    rest = "(archive.disk_free_bytes_min); 'crawler prune' removes old results"
    assert waits_text("disk") == f"waits for free disk space {rest}"
    assert waits_text("disk", ["a"]) == f"waits for free disk space on a {rest}"
    assert waits_text("disk", list("abcde")) == f"waits for free disk space on a, b, c and 2 more {rest}"
    waiting = [
        member("b", waits_for="disk"),
        member("a", waits_for="disk"),
        member("c"),
        member("d", waits_for="paused"),
    ]
    assert full_nodes(waiting) == ["a", "b"]
