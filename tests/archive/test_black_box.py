"""What a session was at when it died can be read by whoever comes after."""

import signal
import subprocess
import sys
from pathlib import Path

from crawler.archive.black_box import BlackBox, fallen_sessions
from crawler.archive.folder import open_or_create
from crawler.archive.sessions import SessionLock

PROGRAM = """
import os, signal, sys
from crawler.archive.black_box import BlackBox
from crawler.archive.folder import open_existing
from crawler.archive.sessions import SessionLock
folder = open_existing(sys.argv[1])
lock, box = SessionLock(folder, "ann"), BlackBox(folder, "ann", slots=4)
box.started(7, "-9223372036854775808")
ended = box.started(8, "12")
box.started(1023, "9223372036854775807")
box.ended(ended)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_session_leaves_behind_what_it_was_at(tmp_path: Path) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder.root)], check=False)
    assert done.returncode == -signal.SIGKILL
    (fallen,) = fallen_sessions(folder.sessions)
    assert fallen.session == "ann"
    assert set(fallen.started) == {(7, "-9223372036854775808"), (1023, "9223372036854775807")}
    fallen.forget()
    assert list(fallen_sessions(folder.sessions)) == []


def test_the_box_of_a_living_session_is_nobodys_business(tmp_path: Path) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    lock, box = SessionLock(folder, "ann"), BlackBox(folder, "ann", slots=1)
    box.started(7, "1")
    assert list(fallen_sessions(folder.sessions)) == []
    lock.close()
    assert [fallen.started for fallen in fallen_sessions(folder.sessions)] == [((7, "1"),)]
    box.close()
    assert list(fallen_sessions(folder.sessions)) == []


def test_slots_are_used_again_and_the_file_does_not_grow(tmp_path: Path) -> None:
    folder = open_or_create(str(tmp_path / "c"))
    box = BlackBox(folder, "ann", slots=2)
    size = (folder.sessions / "ann.started").stat().st_size
    for n in range(100):
        box.ended(box.started(n, str(n)))
    box.started(1, "1")
    box.started(2, "2")
    (fallen,) = fallen_sessions(folder.sessions)
    assert set(fallen.started) == {(1, "1"), (2, "2")}
    assert (folder.sessions / "ann.started").stat().st_size == size
    box.close()
