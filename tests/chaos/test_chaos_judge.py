"""The judges of the chaos runs find what they are there for; a judge that can't say no proves nothing."""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos import judging
from tests.chaos.fleet import TIED, Incident
from tests.chaos.lease_watch import Seen
from tests.chaos.schedule import ENGINE_KINDS, WEIGHTS, faults
from tests.support.engine import wait_for
from tests.support.serving import Request


def request(
    start: float, node: str = "node-0", *, target: str = "/", host: str = "d1.test", status: int = 200
) -> Request:
    agent = f"chaos/1 (+http://chaos.test/{node})"
    return Request(start=start, end=start + 0.01, host=host, target=target, agent=agent, status=status, port=1)


def incident(
    kind: str, start: float, end: float = float("inf"), *, node: str = "node-0", session: str = ""
) -> Incident:
    return Incident(kind, node, start, end, session)


def seen(at: float, session: str, node: str = "", epoch: int = 1) -> Seen:
    return Seen(at - 0.25, at, session, node or f"node-{session}", epoch)


# --- requests ---


def test_requests_to_one_domain_below_the_delay_are_found_whoever_sent_them() -> None:
    asked = [request(1.0), request(1.05, host="d2.test"), request(1.09, "node-1", host="a1.d1.test"), request(1.5)]
    closest, near = judging.near_pairs(asked, 0.1)
    assert closest == pytest.approx(0.09)
    assert [(pair.first, pair.second) for pair in near] == [(asked[0], asked[2])]


def test_only_a_request_just_after_its_own_sender_woke_was_on_its_way() -> None:
    pause = [incident("pause", 10, 20)]
    assert judging.was_on_its_way(request(20.3), pause)
    assert not judging.was_on_its_way(request(20.3, "node-1"), pause)
    assert not judging.was_on_its_way(request(22.0), pause)
    assert not judging.was_on_its_way(request(20.3), [incident("kill", 10, 20)])


def test_a_second_fetch_is_explained_by_a_fault_of_the_first_fetcher_or_of_the_engine() -> None:
    twice = [request(5.0), request(20.0, "node-1")]
    for kind, at, node, explained in [
        ("kill", 5.5, "node-0", True),
        ("kill", 9.0, "node-0", False),  # acked long before
        ("kill", 5.5, "node-1", False),  # somebody else's
        ("engine kill", 5.5, "", True),
        ("leave", 5.5, "node-0", False),  # a hand-over in order repeats nothing
    ]:
        found = judging.duplicates(twice, [incident(kind, at, at + 1, node=node)])
        assert (found.count, found.unexplained == []) == (1, explained), (kind, at, node)


def test_failures_and_robots_files_may_be_asked_for_again() -> None:
    again = [request(1, status=500), request(2), request(3, target="/robots.txt"), request(4, target="/robots.txt")]
    assert judging.duplicates(again, []).count == 0


def test_a_request_under_the_lease_of_another_node_is_found() -> None:
    history = {7: [seen(0, "0"), seen(10, "1")]}
    asked = [request(5.0), request(9.9), request(10.2), request(12.0), request(12.0, "node-1")]
    found = judging.strangers(asked, history, lambda domain: 7, [])
    assert [(r.start, node) for r, node in found] == [(12.0, "node-1")]
    assert judging.strangers(asked, history, lambda domain: 7, [incident("pause", 2, 11.9)]) == []


# --- leases ---


def test_a_takeover_is_timed_from_the_death_to_the_next_lease() -> None:
    history = {
        1: [seen(0, "0"), seen(18, "", "none"), seen(19, "1")],
        2: [seen(0, "2")],
        3: [seen(0, "0"), seen(4, "2")],
    }
    (found,) = judging.takeovers(history, [incident("kill", 10, session="0")], {}, until=60)
    assert (found.partition, found.seconds, found.fair_s, found.to) == (1, 9, 9, "node-1")
    assert found.was_undisturbed


def test_a_partition_that_nobody_took_is_timed_to_the_end() -> None:
    (found,) = judging.takeovers({1: [seen(0, "0")]}, [incident("kill", 10, session="0")], {}, until=60)
    assert (found.seconds, found.fair_s) == (50, 50)


def test_what_keeps_the_taker_or_the_engine_busy_is_not_held_against_a_takeover() -> None:
    history = {1: [seen(0, "0"), seen(30, "1")]}
    death = incident("kill", 10, session="0")
    for other, fair_s in [
        (incident("engine kill", 12, 22, node=""), 8),
        (incident("cut", 12, 25, node="node-1"), 5),
        (incident("cut", 12, 25, node="node-2"), 18),
        (incident("pause", 27, node="node-2"), 3),
    ]:
        (found,) = judging.takeovers(history, [death, other], {}, until=60)
        assert (found.seconds, found.fair_s) == (20, fair_s)


def test_a_pause_must_be_noticed_when_it_is_long_and_may_pass_unnoticed_when_it_is_short() -> None:
    history = {1: [seen(0, "0")]}
    assert judging.takeovers(history, [incident("pause", 10, 19, session="0")], {}, until=60) == []
    assert len(judging.takeovers(history, [incident("pause", 10, 30, session="0")], {}, until=60)) == 1


# --- files ---

URL = "http://d1.test/"


def folder_of(path: Path, *lines: dict[str, object], record: str = URL) -> Path:
    """A crawl folder with one WARC record and these index lines; the last of them is torn."""
    for name in ("index", "warc"):
        (path / name).mkdir(parents=True)
    blob = gzip.compress(f"WARC/1.1\r\nWARC-Target-URI: {record}\r\n\r\n".encode())
    (path / "warc" / "a.warc.gz.open").write_bytes(blob)
    found = {"url": URL, "filename": "a.warc.gz", "offset": "0", "length": str(len(blob)), "status": "200"}
    text = "".join(f"key 20260101000000 {json.dumps(found | line)}\n" for line in lines)
    (path / "index" / "s-00000.cdxj").write_text(
        f'{text}~ 00000000000000 {{"lines": {len(lines)}}}\nkey 20260101000000 {{"url": "torn'
    )
    return path


def test_one_commit_on_two_lines_counts_once_and_two_commits_are_found(tmp_path: Path) -> None:
    same = (
        folder_of(tmp_path / "a", {"session": "s", "at": 1.0}),
        folder_of(tmp_path / "b", {"session": "s", "at": 1.0}),
    )
    other = folder_of(tmp_path / "c", {"session": "t", "at": 2.0})
    assert judging.committed_twice(judging.index_lines(same)) == {}
    assert judging.committed_twice(judging.index_lines([*same, other])) == {URL: [1.0, 2.0]}


def test_a_commit_just_before_the_engine_was_killed_may_be_lost_by_it() -> None:
    kills = [incident("engine kill", 10, 12, node=""), incident("kill", 20)]
    assert [at for at in (5, 9.9, 10.1, 19.9) if judging.was_lost_by_the_engine(at, kills)] == [9.9]


def test_a_line_whose_record_is_missing_or_another_is_found(tmp_path: Path) -> None:
    whole = folder_of(tmp_path / "a", {})
    assert judging.unreadable(judging.index_lines([whole]), [whole]) == []
    other = folder_of(tmp_path / "b", {}, record="http://d2.test/")
    assert judging.unreadable(judging.index_lines([other]), [other]) == [URL]
    cut = folder_of(tmp_path / "c", {"offset": "3"})
    assert judging.unreadable(judging.index_lines([cut]), [cut]) == [URL]


def item_frame(path: Path, text: str) -> list[object]:
    """Write a frame of a page's items into the folder: what an index line says of it."""
    (path / "items").mkdir(exist_ok=True)
    blob = gzip.compress(text.encode())
    (path / "items" / "a.jsonl.gz").write_bytes(b"before" + blob)
    return ["a.jsonl.gz", 6, len(blob), 1]


def test_a_page_whose_item_is_missing_doubled_or_that_of_another_is_found(tmp_path: Path) -> None:
    for number, (text, count, is_wrong) in enumerate(
        [
            (f'{{"url":"{URL}"}}\n["http://d1.test/next"]\n', 1, False),
            (f'{{"url":"{URL}"}}\n{{"url":"{URL}"}}\n', 2, True),
            ('{"url":"http://d2.test/"}\n', 1, True),
            ("", 1, True),
        ]
    ):
        path = tmp_path / str(number)
        path.mkdir()
        (place := item_frame(path, text))[-1] = count
        whole = folder_of(path, {"items": place})
        assert judging.wrong_items(judging.index_lines([whole]), [whole]) == [URL] * is_wrong, text
    bare = folder_of(tmp_path / "bare", {}, {"status": "404"})
    assert judging.wrong_items(judging.index_lines([bare]), [bare]) == [URL]


# --- the faults themselves ---


def test_the_same_seed_gives_the_same_faults_and_every_kind_comes() -> None:
    first, again, other = (list(itertools.islice(faults(s, homes=4, pace_s=(1, 2)), 300)) for s in ("7", "7", "8"))
    assert first == again != other
    assert {fault.kind for fault in first} == set(WEIGHTS)
    assert set(ENGINE_KINDS) < set(WEIGHTS)
    assert all(sorted(fault.places) == [0, 1, 2, 3] for fault in first)


def test_what_is_tied_dies_with_its_parent() -> None:
    started = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); input()"
    command = [sys.executable, "-c", started, sys.executable, str(TIED), "sleep", "60"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes()[:6], "the program to be started")
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
