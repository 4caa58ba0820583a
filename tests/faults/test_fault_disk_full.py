"""The disk takes no more in mid-crawl: nothing is acked without its record, and the crawl goes on later."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.warc import read_record
from tests.crawl.harness import crawl, entries_of, lab_names, settings_of
from tests.faults.instance_lab import (
    SETTINGS,
    EngineView,
    assert_archive_whole,
    assert_exact,
    assert_exported_once,
    little_web,
    wait_until,
)
from tests.faults.torn_writes import crawl_until_it_fails, tear_write
from tests.support.disks import fill, resize, small_disk
from tests.support.engine import Engine
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "127.0.0.1"
UNGUARDED = SETTINGS | {"CRAWLER_ARCHIVE_DISK_FREE_BYTES_MIN": "0"}
DISK_FULL = 5
ENGINE_UNFIT = 3
PAGES = 60
PAGE_BYTES = 200_000  # of digits that pack to half of it: more than the disk takes


@pytest.mark.processes
def test_a_crawl_stopped_by_a_full_disk_finishes_once_there_is_room(disk: Path, engine: Engine) -> None:
    pages = {(HOST, f"/{n}"): Resource(body=os.urandom(PAGE_BYTES // 2).hex()) for n in range(PAGES)}
    pages[HOST, "/"] = Resource(body="".join(f'<a href="/{n}">x</a>' for n in range(PAGES)))
    folder = disk / "c"
    with serve_resources(pages) as site, nursery(UNGUARDED) as programs, engine.client() as client:
        command = ("crawl", site.url(HOST), "--dir", str(folder), "--redis", engine.url, "--delay", "0", "--quiet")
        full = programs.crawler(*command)
        assert full.wait(60) == DISK_FULL, full.err
        assert full.err.splitlines()[-1].startswith(f"crawler: can't write {folder}")
        assert "No space left on device; free some space and start again" in full.err.splitlines()[-1]
        assert "Traceback" not in full.err
        committed = assert_all_committed_is_on_disk(EngineView(client), folder)
        assert 0 < committed < PAGES
        resize(disk, "64m")
        again = programs.crawler(*command)
        assert again.wait(60) == 0, again.err
    urls = Counter(e.url for e in entries_of(folder))
    assert urls == Counter({site.url(host, target): 1 for host, target in pages})
    assert_archive_whole(folder)


@pytest.mark.slow(seconds=10)
@pytest.mark.processes
def test_a_crawl_waits_before_the_disk_is_full_and_goes_on_by_itself(disk: Path, engine: Engine) -> None:
    pages = {(HOST, f"/{n}"): Resource(body=os.urandom(PAGE_BYTES // 2).hex()) for n in range(PAGES)}
    pages[HOST, "/"] = Resource(body="".join(f'<a href="/{n}">x</a>' for n in range(PAGES)))
    folder = disk / "c"
    guarded = SETTINGS | {
        "CRAWLER_ARCHIVE_DISK_FREE_BYTES_MIN": "1500000", "CRAWLER_FRONTIER_CLAIM_URLS_MAX": "1",
        "CRAWLER_INTERNALS_FRONTIER_CLAIM_AHEAD_S": "0.1",
    }  # fmt: skip
    with serve_resources(pages) as site, nursery(guarded) as programs, engine.client() as client:
        where = ("--dir", str(folder), "--redis", engine.url)
        crawling = programs.crawler("crawl", site.url(HOST), *where, "--delay", "0.15")
        crawling.wait_for("waits for free disk space")
        assert 0 < len(EngineView(client).log()) + len(entries_of(folder)) < PAGES
        stats = programs.crawler("stats", "--json", *where)
        assert stats.wait() == 0
        assert json.loads(stats.out)["totals"]["disk_full"]
        resize(disk, "64m")
        assert crawling.wait(60) == 0, crawling.err
    assert Counter(e.url for e in entries_of(folder)) == Counter({site.url(host, target): 1 for host, target in pages})
    assert_archive_whole(folder)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("where", "pages_left", "says"),
    [
        # less than the guard wants, and room for what is in flight
        pytest.param("c", 300, "waits for free disk space", marks=pytest.mark.slow),
        ("c/engine", 0, r"waits for free space on the engine's disk: it can't be written \(MISCONF\)"),
        pytest.param("results", 0, "No space left on device.*the crawl continues", marks=pytest.mark.slow),
    ],
)
def test_a_crawl_goes_on_by_itself_when_any_of_its_disks_has_room_again(
    tmp_path: Path, where: str, pages_left: int, says: str
) -> None:
    folder, results = tmp_path / "c", tmp_path / "results"
    results.mkdir()
    pages = {(HOST, f"/{n}"): Resource(body=os.urandom(500).hex()) for n in range(PAGES)}
    pages[HOST, "/"] = Resource(body="".join(f'<a href="/{n}">x</a>' for n in range(PAGES)))
    guarded = SETTINGS | {"CRAWLER_ARCHIVE_DISK_FREE_BYTES_MIN": "1500000"}
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(serve_resources(pages))
        programs = stack.enter_context(nursery(guarded))
        seeding = programs.crawler("seed", site.url(HOST), "--dir", str(folder))
        assert seeding.wait(60) == 0, seeding.err
        copy = shutil.copytree(tmp_path / where, tmp_path / "copy")
        disk = stack.enter_context(small_disk(tmp_path / where, "8m"))
        shutil.copytree(copy, disk, dirs_exist_ok=True)
        output = results / "pages.jsonl"
        crawling = programs.crawler("crawl", "--dir", str(folder), "--delay", "0.1", "-o", str(output))
        wait_until(lambda: output.exists() and output.read_bytes().count(b"\n") > 5, "the first pages")
        ballast = fill(disk, pages_left=pages_left)
        crawling.wait_for(says)
        ballast.unlink()
        assert crawling.wait(90) == 0, crawling.err
        assert "Traceback" not in crawling.err
        wanted = Counter({site.url(host, target): 1 for host, target in pages})
        assert Counter(e.url for e in entries_of(folder)) == wanted
        assert Counter(json.loads(line)["url"] for line in output.read_text().splitlines()) == wanted
        assert_archive_whole(folder)


@pytest.mark.processes
@pytest.mark.parametrize("pages_left", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
def test_no_command_takes_a_full_disk_for_a_bug_or_leaves_its_engine(disk: Path, pages_left: int) -> None:
    folder = disk / "c"
    web = {(HOST, "/"): Resource(body="x")}
    with serve_resources(web) as site, nursery(UNGUARDED) as programs:
        first = programs.crawler("crawl", site.url(HOST), "--dir", str(folder), "--delay", "0")
        assert first.wait(60) == 0, first.err
        fill(disk, pages_left=pages_left)
        commands: list[tuple[str, ...]] = [
            ("stats",), ("audit",), ("seed", site.url(HOST, "/new")), ("export", "-o", str(disk / "pages.csv")),
            ("prune", "--older-than", "0s"), ("crawl", "--time", "1", "-o", str(disk / "pages.sqlite")),
        ]  # fmt: skip
        for command in commands:
            done = programs.crawler(*command, "--dir", str(folder))
            assert done.wait(60) in (0, ENGINE_UNFIT, DISK_FULL), (command, done.err)
            assert "bug" not in done.err
            assert programs.left() == [], command


def test_output_to_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "crawler", "completion", "bash"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "crawler: can't write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (DISK_FULL, said)


def assert_all_committed_is_on_disk(view: EngineView, folder: Path) -> int:
    """Each commit, indexed or still in the engine's log, has its record; how many there are."""
    indexed = {e.url: e.warc for e in entries_of(folder)}
    logged = {url: entry.warc for url, entry in view.log().items()}
    opened = open_existing(folder)
    for url, place in (indexed | logged).items():
        assert place is not None
        assert read_record(opened, place).uri == url
    (committed,) = view.totals("sequence")
    assert len(indexed | logged) == committed
    return committed


@pytest.mark.parametrize(
    ("suffix", "room", "code"),
    [
        (".warc.gz", 100, errno.ENOSPC),  # in the first record
        (".warc.gz", 8_000, errno.EIO),
        (".cdxj", 100, errno.EIO),
        (".cdxj", 5_000, errno.ENOSPC),
    ],
)
async def test_a_failed_write_prevents_the_ack_and_the_crawl_ends_exact(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, suffix: str, room: int, code: int
) -> None:
    """A write to the archive or the index reaches the disk in part and then fails."""
    came = tear_write(monkeypatch, suffix, room, code)
    folder = tmp_path / "c"
    with little_web(domains=4, pages=4) as web, engine.client() as client:
        async with lab_names() as dns:
            settings = settings_of(
                folder, dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.02, archive__sync_s=0.05,
                crawl__partitions=16, frontier__redis=engine.url,
            )  # fmt: skip
            await crawl_until_it_fails(settings, [web.seed], code, came)
            assert_all_committed_is_on_disk(EngineView(client), folder)
            assert {node for node, _ in EngineView(client).leases().values()} == {""}, "a lease was kept"
            done = await crawl(settings, [web.seed])
    assert done.errors == []
    assert_exact(web, done.entries)
    assert_exported_once(web, folder)
    assert_archive_whole(folder)
