"""The in-flight log shows what a dead session worked on; URLs that waited are not blamed."""

import asyncio
import contextlib
import mmap
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crawler.archive.folder import open_or_create
from crawler.archive.inflight_log import SUFFIX, Aside, InflightLog, InflightMark, dead_sessions, loop_line
from crawler.archive.session_locks import SessionLock

PROGRAM = """
import os, signal, sys
from crawler.archive.folder import open_existing
from crawler.archive.inflight_log import Aside, InflightLog
from crawler.archive.session_locks import SessionLock
folder = open_existing(sys.argv[1])
lock, log = SessionLock(folder, "ann"), InflightLog(folder, "ann", slots=4)
waits, ran, runs, threaded = (log.mark() for _ in range(4))
waits.set(7, "1", "http://a.test/waits")
ran.set(8, "12", "http://a.test/ran")
runs.set(7, "-9223372036854775808", "http://a.test/" + 300 * "x")
threaded.set(1023, "9223372036854775807", "http://a.test/t")
with ran:
    pass
with runs, threaded.aside(Aside.THREAD):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_session_leaves_behind_what_it_worked_on(tmp_path: Path) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder.root)], check=False)
    assert done.returncode == -signal.SIGKILL
    (dead,) = dead_sessions(folder.sessions)
    assert (dead.session, dead.stacks, dead.is_certain) == ("ann", "", False)
    found = {(s.partition, s.fingerprint, s.url, s.in_loop) for s in dead.suspects}
    assert found == {
        (7, "-9223372036854775808", "http://a.test/" + 222 * "x", True),
        (1023, "9223372036854775807", "http://a.test/t", False),
    }
    dead.forget()
    assert list(dead_sessions(folder.sessions)) == []


def test_the_log_of_a_living_session_is_left_alone(tmp_path: Path) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    lock, log = SessionLock(folder, "ann"), InflightLog(folder, "ann", slots=1)
    mark = log.mark()
    mark.set(7, "1", "http://a.test/")
    with mark:
        assert list(dead_sessions(folder.sessions)) == []
        lock.close()
        assert [s.fingerprint for dead in dead_sessions(folder.sessions) for s in dead.suspects] == ["1"]
    log.close()
    assert list(dead_sessions(folder.sessions)) == []


def test_a_damaged_record_is_left_out_and_counted_and_the_others_stay(tmp_path: Path) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    log = InflightLog(folder, "ann", slots=2)
    marks = [log.mark(), log.mark()]
    for number, mark in enumerate(marks):
        mark.set(number, str(-7 - number), f"http://a.test/{number}")
    path = folder.sessions / f"ann{SUFFIX}"
    with marks[0], marks[1]:
        whole = path.read_bytes()
    log.close()
    for at in range(256, 256 + whole[256:].index(b"\0" * 30)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        (dead,) = dead_sessions(folder.sessions)
        assert ([s.fingerprint for s in dead.suspects], dead.damaged) == (["-7"], 1), at
    for length, counts in {0: (0, 0), 100: (1, 0), 256: (1, 0), 270: (1, 1), len(whole): (2, 0)}.items():
        path.write_bytes(whole[:length])
        (dead,) = dead_sessions(folder.sessions)
        assert (len(dead.suspects), dead.damaged) == counts


LOOP, THREAD = 0x7F01, 0x7F02
RAN = {
    "the loop": f"{loop_line(LOOP)}Current thread {LOOP:#018x} (most recent call first):",
    "a thread": f"{loop_line(LOOP)}Current thread {THREAD:#018x} (most recent call first):",
    "no stall": loop_line(LOOP),
}


@pytest.mark.parametrize(
    ("ran", "marked", "blamed", "is_certain"),
    [
        ("the loop", {"1": None, "2": Aside.THREAD, "3": Aside.HANDLER}, {"1"}, True),
        ("the loop", {"2": Aside.THREAD}, set(), False),
        ("a thread", {"1": None, "2": Aside.THREAD}, {"2"}, True),  # the loop waited for the interpreter's lock
        ("a thread", {"1": None, "2": Aside.THREAD, "3": Aside.THREAD}, {"2", "3"}, False),
        ("a thread", {"2": Aside.THREAD, "3": Aside.HANDLER}, {"2"}, True),
        ("a thread", {"1": None, "3": Aside.HANDLER}, {"3"}, True),
        ("a thread", {}, set(), False),
        ("no stall", {"1": None, "2": Aside.THREAD, "3": Aside.HANDLER}, {"1", "2"}, False),
        ("no stall", {"3": Aside.HANDLER}, {"3"}, False),
    ],
)
def test_what_ran_is_blamed_and_a_clear_stall_is_proof(
    ran: str, marked: dict[str, Aside | None], blamed: set[str], is_certain: bool, tmp_path: Path
) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    log = InflightLog(folder, "ann", slots=4)
    log.stall_path.write_text(RAN[ran])
    with contextlib.ExitStack() as stack:
        for fingerprint, aside in marked.items():
            mark = log.mark()
            mark.set(7, fingerprint, "http://a.test/")
            stack.enter_context(mark if aside is None else mark.aside(aside))
        (dead,) = dead_sessions(folder.sessions)
    assert {one.fingerprint for one in dead.blamed} == blamed
    assert dead.is_certain is is_certain
    dead.forget()
    assert not log.stall_path.exists()


async def test_work_is_marked_while_it_runs_and_not_while_it_waits() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    mark, waits, seen = InflightMark(memory, 0), asyncio.Event(), list[int]()

    async def work() -> str:
        seen.append(memory[0])
        try:
            async with asyncio.timeout(0.001):
                await waits.wait()
        except TimeoutError:
            seen.append(memory[0])
        await waits.wait()
        seen.append(memory[0])
        return "done"

    async def look() -> None:
        await asyncio.sleep(0.01)
        seen.append(memory[0])
        waits.set()

    looking = asyncio.create_task(look())
    assert await mark.during(work()) == "done"
    await looking
    assert (seen, memory[0]) == ([1, 1, 0, 1], 0)


async def test_work_that_is_cancelled_or_fails_is_not_marked_any_more() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)

    async def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        await InflightMark(memory, 0).during(fails())
    assert memory[0] == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await InflightMark(memory, 0).during(asyncio.sleep(60))
    assert memory[0] == 0
