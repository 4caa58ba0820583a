"""The disk takes no more in mid-crawl: nothing is acked without its record, and the crawl goes on later."""

import errno
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.archive.crawl_folder import open_existing
from crawler.archive.warc_reader import read_record
from tests.crawl.harness import crawl, entries_of, lab_names, settings_of
from tests.faults.instance_lab import (
    SETTINGS,
    EngineView,
    assert_archive_whole,
    assert_exact,
    assert_exported_once,
    little_web,
)
from tests.faults.torn_writes import crawl_until_it_fails, tear_write
from tests.support.engine import Engine
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "127.0.0.1"
DISK_FULL = 5
PAGES = 60
PAGE_BYTES = 200_000  # of digits that pack to half of it: more than the disk takes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.processes
def test_a_crawl_stopped_by_a_full_disk_finishes_once_there_is_room(small_disk: Path, engine: Engine) -> None:
    pages = {(HOST, f"/{n}"): Resource(body=os.urandom(PAGE_BYTES // 2).hex()) for n in range(PAGES)}
    pages[HOST, "/"] = Resource(body="".join(f'<a href="/{n}">x</a>' for n in range(PAGES)))
    folder = small_disk / "c"
    unguarded = SETTINGS | {"CRAWLER_ARCHIVE_DISK_FREE_BYTES_MIN": "0"}
    with serve_resources(pages) as site, nursery(unguarded) as programs, engine.client() as client:
        command = ("crawl", site.url(HOST), "--dir", str(folder), "--redis", engine.url, "--delay", "0", "--quiet")
        full = programs.crawler(*command)
        assert full.wait(60) == DISK_FULL, full.err
        assert full.err.splitlines()[-1].startswith(f"crawler: can't write {folder}")
        assert "No space left on device; free some space and start again" in full.err.splitlines()[-1]
        assert "Traceback" not in full.err
        committed = assert_all_committed_is_on_disk(EngineView(client), folder)
        assert 0 < committed < PAGES
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        again = programs.crawler(*command)
        assert again.wait(60) == 0, again.err
    urls = Counter(e.url for e in entries_of(folder))
    assert urls == Counter({site.url(host, target): 1 for host, target in pages})
    assert_archive_whole(folder)


@pytest.mark.processes
def test_a_crawl_waits_before_the_disk_is_full_and_goes_on_by_itself(small_disk: Path, engine: Engine) -> None:
    pages = {(HOST, f"/{n}"): Resource(body=os.urandom(PAGE_BYTES // 2).hex()) for n in range(PAGES)}
    pages[HOST, "/"] = Resource(body="".join(f'<a href="/{n}">x</a>' for n in range(PAGES)))
    folder = small_disk / "c"
    guarded = SETTINGS | {
        "CRAWLER_ARCHIVE_DISK_FREE_BYTES_MIN": "1500000", "CRAWLER_FRONTIER_CLAIM_URLS_MAX": "1",
        "CRAWLER_FRONTIER_CLAIM_AHEAD_S": "0.1",
    }  # fmt: skip
    with serve_resources(pages) as site, nursery(guarded) as programs, engine.client() as client:
        where = ("--dir", str(folder), "--redis", engine.url)
        crawling = programs.crawler("crawl", site.url(HOST), *where, "--delay", "0.15")
        crawling.wait_for("waits for free disk space")
        assert 0 < len(EngineView(client).log()) + len(entries_of(folder)) < PAGES
        stats = programs.crawler("stats", "--json", *where)
        assert stats.wait(30) == 0
        assert json.loads(stats.out)["totals"]["disk_full"]
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        assert crawling.wait(60) == 0, crawling.err
    assert Counter(e.url for e in entries_of(folder)) == Counter({site.url(host, target): 1 for host, target in pages})
    assert_archive_whole(folder)


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
    ("suffix", "turn", "code"),
    [
        (".warc.gz", 1, errno.ENOSPC),
        (".warc.gz", 5, errno.EIO),
        (".cdxj", 1, errno.EIO),
        (".cdxj", 4, errno.ENOSPC),
    ],
)
async def test_a_failed_write_prevents_the_ack_and_the_crawl_ends_exact(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, suffix: str, turn: int, code: int
) -> None:
    """The n-th write to the archive or the index reaches the disk by half and then fails."""
    turns = tear_write(monkeypatch, suffix, turn, code)
    folder = tmp_path / "c"
    with little_web(domains=4, pages=4) as web, engine.client() as client:
        async with lab_names() as dns:
            settings = settings_of(
                folder, dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.02, archive__sync_s=0.05,
                crawl__partitions=16, frontier__redis=engine.url,
            )  # fmt: skip
            await crawl_until_it_fails(settings, [web.seed], code, turns)
            assert_all_committed_is_on_disk(EngineView(client), folder)
            assert {node for node, _ in EngineView(client).leases().values()} == {""}, "a lease was kept"
            done = await crawl(settings, [web.seed])
    assert done.errors == []
    assert_exact(web, done.entries)
    assert_exported_once(web, folder)
    assert_archive_whole(folder)
