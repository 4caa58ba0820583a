"""The disk takes no more in mid-crawl: nothing is acked without its record, and the crawl goes on later."""

import asyncio
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
from crawler.archive.items import ItemReader
from crawler.archive.warc_reader import read_record
from crawler.crawl.instance import Instance
from crawler.instance import vitals
from crawler.worker import disk_room
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
APP = """
from crawler import Crawler, Page

app = Crawler()


@app.page()
async def each(page: Page) -> object:
    yield {"url": page.url}
"""
PAGE_BYTES = 200_000  # of digits that pack to half of it: more than the disk takes


@pytest.mark.slow(seconds=12)
@pytest.mark.processes
def test_a_write_without_room_stops_nobody_and_the_crawl_goes_on_by_itself(disk: Path, engine: Engine) -> None:
    """No minimum keeps the disk from getting full, as where a quota is used up."""
    pages = {(HOST, f"/{n}"): Resource(body=os.urandom(PAGE_BYTES // 2).hex()) for n in range(PAGES)}
    pages[HOST, "/"] = Resource(body="".join(f'<a href="/{n}">x</a>' for n in range(PAGES)))
    folder = disk / "c"
    with serve_resources(pages) as site, nursery(UNGUARDED) as programs, engine.client() as client:
        where = ("--dir", str(folder), "--redis", engine.url)
        full = programs.crawler("crawl", site.url(HOST), *where, "--delay", "0", "--node", "vm-3")
        full.wait_for(r"waits for free disk space on vm-3 \(")
        assert 0 < assert_all_committed_is_on_disk(EngineView(client), folder) < PAGES
        stats = programs.crawler("stats", "--json", *where)
        assert stats.wait(60) == 0
        totals = json.loads(stats.out)["totals"]
        assert (totals["disk_full"], totals["full_nodes"], totals["dead"]) == (True, ["vm-3"], 0)
        stats = programs.crawler("stats", *where)
        assert stats.wait(60) == 0
        assert "for free disk space on vm-3 (archive.disk_free_bytes_min)" in stats.out
        resize(disk, "64m")
        assert full.wait(60) == 0, full.err
        assert "Traceback" not in full.err
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


@pytest.mark.slow(ci=True)
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


@pytest.mark.slow(ci=True)
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


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("suffix", "room", "code"),
    [
        (".warc.gz", 100, errno.EIO),  # in the first record
        (".warc.gz", 8_000, errno.EIO),
        (".cdxj", 100, errno.EIO),
        (".cdxj", 5_000, errno.EIO),
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


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("suffix", "room", "code"),
    [
        (".warc.gz", 100, errno.ENOSPC),  # in the first record
        (".warc.gz", 8_000, errno.EDQUOT),
        (".items.gz", 100, errno.EDQUOT),
        (".items.gz", 600, errno.ENOSPC),
        (".cdxj", 100, errno.EDQUOT),
        (".cdxj", 5_000, errno.ENOSPC),
    ],
)
async def test_a_write_without_room_gives_its_pages_back_and_the_same_crawl_ends_exact(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, suffix: str, room: int, code: int
) -> None:
    """A write to a file of the folder reaches the disk in part, then finds no room; a trial does, some time later."""
    came, trials, waiting = tear_write(monkeypatch, suffix, room, code), list[tuple[Path, int]](), list[bool]()
    monkeypatch.setattr(vitals, "DISK_EVERY_S", 0.02)
    monkeypatch.setattr(disk_room, "can_write", lambda *tried: trials.append(tried) or len(trials) > 5)
    folder, app = tmp_path / "c", tmp_path / "app.py"
    app.write_text(APP)

    async def look(instances: list[Instance]) -> None:
        while not trials:
            await asyncio.sleep(0)
        (instance,) = instances
        waiting.append(instance.counters.waits_for == "disk" and instance.membership.heartbeat._calls.has_room())

    with little_web(domains=4, pages=4) as web, engine.client() as client:
        async with lab_names() as dns:
            settings = settings_of(
                folder, dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.02, archive__sync_s=0.05,
                crawl__partitions=16, frontier__redis=engine.url, handlers__app=str(app), archive__room_s=0.0,
            )  # fmt: skip
            done = await crawl(settings, [web.seed], meanwhile=look)
            assert assert_all_committed_is_on_disk(EngineView(client), folder) == len(done.entries)
    assert done.errors == [], came
    assert {where for where, _ in trials} == {folder / suffix.split(".")[1].replace("cdxj", "index")}
    assert waiting == [False]
    assert_exact(web, done.entries)
    assert_exported_once(web, folder)
    assert_archive_whole(folder)
    reader = ItemReader(open_existing(folder))
    fine = [url for url, status in web.expected().items() if status == 200]
    assert Counter(json.loads(text)["url"] for _, _, text in reader.items()) == Counter(fine)
    assert reader.missing == []
