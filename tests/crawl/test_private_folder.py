"""Other users of a machine read nothing of a crawl: not its pages, its log, its engine."""

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.spill_files import SpillFiles
from crawler.settings import load
from crawler.views.doctor import Level, check_disk
from tests.crawl.lab import QUICK, name_server
from tests.crawl.test_handlers_crash import APP
from tests.support.processes import nursery
from tests.support.serving import serve_web

ANYBODY = 0o077


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """As most systems set it: files are for all to read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(root: Path) -> dict[str, str]:
    """What is not for its owner alone, the folder itself left out."""
    found = {}
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # drafts are renamed while we look
            mode = path.lstat().st_mode
            if mode & ANYBODY and not stat.S_ISLNK(mode):
                found[str(path.relative_to(root))] = oct(stat.S_IMODE(mode))
    return found


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("instances", "is_there"),
    [("1", False), pytest.param("2", True, marks=pytest.mark.slow)],
    ids=["one, new folder", "two, empty folder"],
)
def test_what_a_crawl_makes_in_its_folder_is_for_its_owner_alone(
    tmp_path: Path, instances: str, is_there: bool
) -> None:
    folder, app, out = tmp_path / "c", tmp_path / "shop.py", tmp_path / "items.jsonl"
    app.write_text(APP)
    if is_there:
        folder.mkdir(mode=0o755)
    with name_server() as dns, serve_web(seed=9, domains=2, pages=4) as site, nursery(QUICK) as programs:
        where = ("--dir", str(folder), "--app", str(app), "--nameserver", dns, "-n", instances, "-o", str(out))
        program = programs.crawler("crawl", *site.web.seeds, *where, "--scope", "any", "--delay", "0.01", "-vv")
        seen, names = {}, set()
        while program.process.poll() is None:  # files that are renamed or removed later, too
            seen |= open_to_others(folder)
            names |= {path.parent.name for path in folder.rglob("*")}
            time.sleep(0.005)
        assert program.wait(60) == 0, program.err
    assert {"warc", "index", "items", "history", "sessions", "engine", "log", "outputs", "journal"} <= names
    assert seen | open_to_others(folder) == {}
    assert stat.S_IMODE(folder.stat().st_mode) == (0o755 if is_there else 0o700)
    assert stat.S_IMODE(out.stat().st_mode) == 0o644, "results follow the umask"
    check = check_disk(load(environment={}, options={"archive.dir": str(folder)}))
    assert (check.level is Level.WARN and "other users" in check.found) == is_there
    assert (check.mend == f"chmod 700 {folder}") == is_there


def test_files_of_spilled_urls_are_for_their_owner_alone(tmp_path: Path) -> None:
    files = SpillFiles(tmp_path / "crawl" / "spill", "session")
    files.write(1, 1, [b"some"])
    assert open_to_others(tmp_path / "crawl") == {}
    assert (tmp_path / "crawl" / "spill").exists()


def test_a_folder_of_others_rights_is_used_as_it_is(tmp_path: Path) -> None:
    """A folder that is shared with a group keeps its mode."""
    from crawler.archive.folder import open_or_create

    open_or_create(tmp_path / "c")
    (tmp_path / "c").chmod(0o750)
    open_or_create(tmp_path / "c")
    assert stat.S_IMODE(open_existing(tmp_path / "c").root.stat().st_mode) == 0o750
