import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from archive_samples import folder_in

import crawler
from crawler.archive import folder as folder_module
from crawler.archive.crawl_binding import FILE, Bound, bind, bound_to
from crawler.archive.folder import Holder, Life, life_at, open_existing, open_or_create
from crawler.archive.session_locks import SessionLock, is_abandoned, life_of, sessions
from crawler.errors import ArchiveError, ConflictError, UsageError


def test_a_new_folder_names_its_crawl_and_keeps_it_when_opened_again(tmp_path: Path) -> None:
    first = open_or_create(tmp_path / "a" / "b", clock=lambda: 7.5)
    again = open_or_create(tmp_path / "a" / "b", clock=lambda: 9.0)
    assert first.crawl == again.crawl
    assert len(first.crawl) == 16
    assert again.created_at == 7.5
    assert json.loads((first.root / "crawl.json").read_text())["layout"] == folder_module.LAYOUT
    assert {p.name for p in first.root.iterdir()} == {"crawl.json", *folder_module.SUBFOLDERS}


def test_two_folders_are_two_crawls(tmp_path: Path) -> None:
    assert open_or_create(tmp_path / "a").crawl != open_or_create(tmp_path / "b").crawl


def test_concurrent_creations_give_one_crawl(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(open_or_create(tmp_path / "x").crawl)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize(("layout", "word"), [(1, "older"), (4, "newer"), (99, "newer")])
def test_a_folder_of_another_release_is_refused_in_one_line_and_left_alone(
    tmp_path: Path, layout: int, word: str
) -> None:
    made = folder_in(tmp_path)
    file = made.root / "crawl.json"
    file.write_text(json.dumps({"crawl": "c", "layout": layout, "created_at": 1.0}))
    (made.root / "tmp").rmdir()
    with pytest.raises(ConflictError, match=word) as caught:
        open_or_create(made.root)
    assert "\n" not in str(caught.value)
    assert not (made.root / "tmp").exists()


def test_a_folder_of_the_release_before_is_read_and_gets_our_layout_once_it_is_written(tmp_path: Path) -> None:
    file = folder_in(tmp_path).root / "crawl.json"
    file.write_text(json.dumps({"crawl": "c", "layout": 2, "created_at": 1.0}))
    assert folder_module.open_existing(file.parent).description.layout == 2
    assert open_or_create(file.parent).description.crawl == "c"
    assert json.loads(file.read_text())["layout"] == folder_module.LAYOUT
    assert [path.name for path in file.parent.glob(".*")] == []


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        open_or_create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_lost_its_description_is_not_taken_for_a_new_crawl(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    (made.root / "crawl.json").unlink()
    with pytest.raises(UsageError, match="not empty"):
        open_or_create(made.root)


def test_the_root_of_a_fresh_file_system_is_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert open_or_create(tmp_path).crawl


def test_a_file_in_the_place_of_the_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for path in (tmp_path / "f", tmp_path / "f" / "sub"):
        with pytest.raises(UsageError, match="is a file"):
            open_or_create(path)


def test_each_flipped_bit_of_what_identifies_a_folder_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    bound = Bound(name="main", begun_at=1.5, record={"hash_key": "AAECAw==", "partitions": 64})
    bind(made, bound)
    for path in (made.root / "crawl.json", made.root / FILE):
        whole, noticed = path.read_bytes(), 0
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with contextlib.suppress(ArchiveError):
                assert open_existing(made.root).description == made.description
                assert bound_to(made) in (bound, None)
                noticed -= bound_to(made) == bound
            noticed += 1
        path.write_bytes(whole)
        assert noticed > len(whole) * 0.8  # the others hit the name of the checksum, or blanks


def test_reading_asks_for_a_crawl_folder_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a crawl folder"):
        open_existing(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_or_read_only_disk_is_said_before_the_crawl_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder_in(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder_module.os, "fsync", full)
    with pytest.raises(ArchiveError, match=r"No space left.*free some space"):
        open_or_create(made.root)
    assert list(made.tmp.iterdir()) == []


def test_a_named_lock_excludes_others_and_is_free_afterwards(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    with made.exclusive("engine"):
        with made.exclusive("other"):
            pass
        with pytest.raises(ConflictError, match=r"engine\.lock"), made.exclusive("engine", timeout_s=0.05):
            pass
    with made.exclusive("engine", timeout_s=0.0):
        pass


def test_a_living_session_is_not_dead_and_one_that_ended_well_leaves_nothing(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    lock = SessionLock(made, "aa11", node="host-1", clock=lambda: 5.0)
    assert life_of(made, "aa11") is Life.ALIVE
    assert not is_abandoned(made, "aa11")
    holder = msgspec.json.decode(lock.path.read_bytes(), type=Holder)
    assert (holder.pid, holder.node, holder.started) == (os.getpid(), "host-1", 5.0)
    lock.close()
    lock.close()
    assert sessions(made) == []
    assert list(made.tmp.iterdir()) == []


def test_a_session_counts_whatever_a_full_disk_left_in_its_lock_file(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    lock = SessionLock(made, "aa11")
    os.truncate(lock.path, 0)
    assert sessions(made) == ["aa11"]
    assert life_of(made, "aa11") is Life.ALIVE
    lock.close()


def test_a_missing_lock_file_does_not_prove_death_but_frees_the_files(tmp_path: Path) -> None:
    """A lease may name a session of another machine: its lock file is in another folder."""
    made = folder_in(tmp_path)
    assert life_of(made, "elsewhere") is Life.UNKNOWN
    assert is_abandoned(made, "elsewhere")


def test_the_same_session_can_not_start_twice(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    lock = SessionLock(made, "aa11")
    with pytest.raises(ConflictError, match="exists already"):
        SessionLock(made, "aa11")
    assert life_of(made, "aa11") is Life.ALIVE
    lock.close()


def test_two_concurrent_checks_both_see_death(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    (made.sessions / "aa11.lock").write_text("{}")
    with (made.sessions / "aa11.lock").open("rb") as another:
        fcntl.flock(another, fcntl.LOCK_SH)
        assert life_of(made, "aa11") is Life.DEAD


def test_a_killed_process_is_proven_dead_at_once_though_a_zombie_of_it_remains(tmp_path: Path) -> None:
    made = folder_in(tmp_path)
    program = (
        "import sys, time\n"
        "from crawler.archive.folder import open_existing\n"
        "from crawler.archive.session_locks import SessionLock\n"
        "lock = SessionLock(open_existing(sys.argv[1]), 'bb22')\n"
        "print('locked', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(made.root)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert life_of(made, "bb22") is Life.ALIVE
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped
        assert life_of(made, "bb22") is Life.DEAD


def test_a_session_can_be_judged_from_another_folder_of_this_machine(tmp_path: Path) -> None:
    lock = SessionLock(folder_in(tmp_path), "aa11")
    assert life_at(lock.path) is Life.ALIVE
    (tmp_path / "killed.lock").write_text("{}")
    assert life_at(tmp_path / "killed.lock") is Life.DEAD
    assert life_at(tmp_path / "nowhere" / "aa11.lock") is Life.UNKNOWN
    lock.close()


ELSEWHERE = (
    "cli/init.py",
    "outputs/files.py",
    "outputs/forgetting.py",
    "outputs/markdown_files.py",
    "outputs/wacz_package.py",  # files in a ZIP
    "audit/judge_replay.py",  # the folder of pictures that people name
    "audit/replay_page.py",
    "audit/chromium.py",  # of a temporary folder
    "engine/embedded.py",
    "testing/",
    "views/identity.py",  # its files are outside of any crawl folder
)  # a user's project; what -o names; under a umask; temporary folders


def test_all_that_is_made_in_a_crawl_folder_is_made_where_its_mode_is_set() -> None:
    """tempfile makes what it makes for its owner alone, too."""
    package = Path(crawler.__file__).parent
    makes = re.compile(r"""O_CREAT|\.mkdir\(|\bopen\([^\n]*"[wxa]b?"|write_text|write_bytes|FileHandler\(""")
    for path in package.rglob("*.py"):
        name = str(path.relative_to(package))
        for line in path.read_text("utf-8").splitlines() if not name.startswith(ELSEWHERE) else ():
            if makes.search(line):
                is_private = "open_private(" in line or "opener=open_private" in line
                assert is_private or "mode=PRIVATE_FOLDER" in line or "_PrivateFile" in line, f"{name}: {line.strip()}"
