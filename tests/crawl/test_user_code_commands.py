"""Users' hooks and handlers under the commands: no failure of theirs ends a crawl early, or keeps it from ending."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import read_entries
from tests.crawl.handlers_lab import HOST, page
from tests.crawl.lab import QUICK, name_server
from tests.support.processes import Program, nursery
from tests.support.serving import GeneratedSite, serve_resources, serve_web

pytestmark = pytest.mark.processes

APP = """
import asyncio, os, sys, threading, time
from crawler import Crawler

app = Crawler()

@app.page()
async def every(page):
    yield {"url": page.url}

@app.on_fetch
async def waits(page):
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task

@app.on_fetch
async def exits(page):
    sys.exit(3)

@app.on_fetch
async def cancels(page):
    for task in asyncio.all_tasks():
        task.cancel()

@app.on_fetch
async def stops(page):
    loop = asyncio.get_running_loop()
    loop.call_soon(sys.exit)
    loop.call_later(0.001, loop.stop)

@app.on_domain_done
def blocks(domain):
    sys.exit(3)

@app.on_finish
async def begins(why):
    asyncio.create_task(asyncio.to_thread(time.sleep, 1000))
    threading.Thread(target=time.sleep, args=(1000,)).start()

@app.on_finish
async def stays(why):
    async def clings():
        while True:
            try:
                await asyncio.sleep(60)
            except BaseException:
                pass
    async def yields():
        while True:
            try:
                yield await clings()
            except BaseException:
                pass
    asyncio.create_task(clings())
    asyncio.create_task(anext(yields()))
"""


@contextmanager
def crawling(place: Path, app: str, *options: str, **environment: str) -> Iterator[tuple[Program, GeneratedSite]]:
    """The command on a generated web, with such an app."""
    (file := place / "shop.py").write_text(app)
    with name_server() as dns, serve_web(seed=8, domains=3, pages=5) as site, nursery(QUICK) as programs:
        where = ("--dir", str(place / "c"), "--app", str(file), "--nameserver", dns, "--scope", "any", "--delay", "0")
        yield programs.crawler("crawl", *site.web.seeds, *where, *options, **environment), site


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("instances", [pytest.param((), marks=pytest.mark.slow), ("-n", "3")])
def test_hooks_neither_end_a_crawl_nor_hold_up_its_end(tmp_path: Path, instances: tuple[str, ...]) -> None:
    with crawling(tmp_path, APP, *instances) as (program, site):
        assert program.wait() == 0, program.err
        assert "this is a bug" not in program.err
        assert re.search(r"the hook exits \(on_fetch\) failed \d+ times; the log says why", program.err)
        expected = site.web.expected(site.web.seeds, "any").committed
        assert {entry.url for entry in read_entries(open_existing(tmp_path / "c"))} == set(expected)


LIVES_ON = """
from crawler import Crawler
import asyncio, sys

app = Crawler()

async def clings():
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass

@app.page("*/nothing-has-this")
async def page(page):
    pass

@app.on_fetch
async def fetched(page):
    asyncio.get_running_loop().call_soon(sys.exit)
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
    await asyncio.gather(clings(), clings())
"""


@pytest.mark.slow(ci=True)
def test_ctrl_c_ends_a_crawl_whose_hooks_live_through_it(tmp_path: Path) -> None:
    with crawling(tmp_path, LIVES_ON, CRAWLER_MEMBERSHIP_DRAIN_TIMEOUT_S="0.2") as (program, site):
        while not any(not request.is_robots for request in site.requests()):
            time.sleep(0.02)
        program.process.send_signal(signal.SIGINT)
        assert program.wait() == 10, program.err


READS_AND_DIES = """
import os, sys, threading
from crawler import Crawler

app = Crawler()
here = os.getpid()

@app.page(processes=True)
def every(page):
    assert sys.stdin.read() == ""
    print("to nobody")
    yield {"url": page.url}

@app.on_fetch
def dies(page):
    if page.url.endswith("/dies"):
        os._exit(7)
"""


@pytest.mark.slow(seconds=10)
def test_a_hook_that_ends_the_process_costs_its_page(tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    app.write_text(READS_AND_DIES)
    names = ["/dies", *(f"/{n}" for n in range(20))]
    web = {(HOST, name): page() for name in names} | {(HOST, "/"): page(*names)}
    with serve_resources(web) as site, nursery(QUICK) as programs:
        where = ("--dir", str(tmp_path / "c"), "--app", str(app), "--delay", "0")
        codes = [programs.crawler("crawl", site.url(HOST), *where).wait(30) for _ in range(4)]
        assert codes == [7, 7, 7, 0]
        fine = {site.url(HOST, name) for name in ("/", *names[1:])}
    assert {entry.url for entry in read_entries(open_existing(tmp_path / "c"))} == fine
