"""Users' code fails its own page or hook, whatever it does: the crawl goes on to its end."""

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import pytest

from crawler.handlers import loop_end
from tests.crawl.handlers_lab import HOST, Lab, lab, page
from tests.crawl.harness import crawl
from tests.support.serving import serve_resources

NAMES = [f"/{n}" for n in range(8)]
BAD = [f"/bad/{n}" for n in range(16)]
WEB = {(HOST, name): page(title=name) for name in (*NAMES, *BAD)} | {(HOST, "/"): page(*NAMES, *BAD)}
WITHIN_S = 40.0
PRELUDE = """
import asyncio, sys
from decimal import Decimal

class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Exits(Exception):
    def __str__(self):
        sys.exit(3)

    __repr__ = __str__

class Deep(Exception):
    def __str__(self):
        return str(self)

class Named(Exception, metaclass=type("Meta", (type,), {"__name__": property(lambda cls: sys.exit(5))})):
    pass

class Lies(Exception):
    def __str__(self):
        class Text(str):
            def split(self):
                raise SystemExit(4)
        return Text("\\ud800 lies")

async def clings():
    for _ in range(300):  # without end, it would spin where nothing can be awaited any more: when Python ends
        try:
            await asyncio.sleep(60)
        except GeneratorExit:  # what is left of it after a test is nobody's complaint
            raise
        except BaseException:
            pass

@app.page()
async def others(page):
    yield {"url": page.url}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_end, "GRACE_S", 0.05)


async def crawled(tmp_path: Path, app: str, **options: Any) -> Lab:
    """All pages but the bad ones are committed, with an item each; nothing is left."""
    made = lab(tmp_path, PRELUDE + app, retry__handler__attempts=1, **options)
    with serve_resources(WEB) as site:
        async with asyncio.timeout(WITHIN_S):
            done = await made.crawl(site.url(HOST))
        fine = {site.url(HOST, name) for name in ("/", *NAMES)}
        bad = {site.url(HOST, name) for name in BAD}
    assert done.statuses.keys() - bad == fine
    assert {item["url"] for item in made.items if "url" in item} >= fine
    assert (await made.totals()).pending == 0
    return made


def rows(text: str) -> list[list[str]]:
    """Lines of parts."""
    return [line.split(" | ") for line in text.strip().splitlines()]


FAILING = rows(r"""
raise ValueError("\ud800 " + page.title) | ValueError: ? /bad/0 (shop.py:
raise Silent() | Silent (shop.py:
raise Exits() | Exits (shop.py:
raise Deep() | Deep (shop.py:
raise Lies() | Lies: ? lies (shop.py:
page.follow("/0", label=None) | TypeError: page.follow: label is a str, not NoneType (shop.py:
page.follow("/0", priority="1") | TypeError: page.follow: priority is a number, not str (shop.py:
sys.exit(3) | SystemExit: 3 (shop.py:
raise asyncio.CancelledError | CancelledError (shop.py:
raise KeyboardInterrupt | KeyboardInterrupt (shop.py:
raise GeneratorExit | GeneratorExit (shop.py:
raise Named() | Named (shop.py:
""")
LEFT_OUT = """
    page.follow("/0", priority=Decimal("1.5"))
    yield {"\\ud800": 1}
    yield {"fine": 2}
    yield Silent
"""


def handler(number: int, kind: str, does: str) -> str:
    written, _, processes = kind.partition(", ")
    return f'@app.page("*/bad/{number}", processes={bool(processes)})\n{written} bad{number}(page):\n    {does}\n'


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", ["def", "async def", "def, processes", "async def, processes"])
async def test_what_a_handler_does_is_its_pages_failure_alone(tmp_path: Path, kind: str) -> None:
    bad = "".join(handler(n, kind, does) for n, (does, _) in enumerate(FAILING))
    made = await crawled(tmp_path, bad + handler(len(FAILING), kind, LEFT_OUT))
    letters = {url.rpartition("/")[2]: letter for url, letter in (await made.letters()).items()}
    assert {int(number) for number in letters} == set(range(len(FAILING)))
    for number, (_, says) in enumerate(FAILING):
        letter = letters[str(number)]
        assert (letter.reason, letter.detail[: len(says)]) == ("handler", says)
        assert letter.trace
    assert {"fine": 2} in made.items
    assert (await made.totals()).items_invalid == 2


HOOKS = {
    "awaits a cancelled task": "task = asyncio.create_task(asyncio.sleep(60)); task.cancel(); await task",
    "raises the cancellation": "raise asyncio.CancelledError",
    "exits": "sys.exit(3)",
    "interrupts": "raise KeyboardInterrupt",
    "exits in a task": "async def exits():\n    sys.exit(3)\nawait asyncio.create_task(exits())",
    "exits in a task that nobody awaits": "async def exits():\n    sys.exit(3)\nasyncio.create_task(exits())",
    "cancels itself": "asyncio.current_task().cancel()",
    "cancels itself and waits": "asyncio.current_task().cancel()\nawait asyncio.sleep(60)",
    "cancels itself later": "asyncio.get_running_loop().call_later(0.01, asyncio.current_task().cancel)",
    "cancels all": "for task in asyncio.all_tasks():\n    if 'ours' not in task.get_name():\n        task.cancel()",
    "cancels all in a callback": "loop = asyncio.get_running_loop()\nfor task in asyncio.all_tasks():\n"
    "    if 'ours' not in task.get_name():\n        loop.call_soon(task.cancel)",
    "times out": "async with asyncio.timeout(0.01):\n    await asyncio.sleep(60)",
    "has a text that exits": "raise Exits()",
    "yields": "yield 1\nraise ValueError",
}
QUIET = {
    "exits in a task that nobody awaits", "cancels itself", "cancels itself later", "cancels all",
    "cancels all in a callback",
}  # fmt: skip


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("event", ["fetch", "domain_done", "finish"])
async def test_what_a_hook_does_is_its_own_failure_and_counted(
    tmp_path: Path, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.set_name("ours: made before there was an app")
    hooks = "".join(
        f"@app.on_{event}\nasync def {what.replace(' ', '_')}(heard):\n{textwrap.indent(does, '    ')}\n"
        for what, does in HOOKS.items()
    )
    made = await crawled(tmp_path, hooks)
    assert await made.letters() == {}
    failed = [vars(record) for record in caplog.records if record.getMessage() == "hook.failed"]
    assert {one["hook"].replace("_", " ") for one in failed} == HOOKS.keys() - QUIET
    assert all(one["failures"] == number for number, one in enumerate((f for f in failed if f["hook"] == "exits"), 1))


@pytest.mark.slow(seconds=10)
async def test_hooks_of_all_kinds_that_live_through_cancellations_hold_up_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.worker.hooks.TIMEOUT_S", 0.2)
    hooks = """
@app.on_fetch
async def bad(page):
    if page.url.endswith("/bad/0"):
        await clings()

@app.on_domain_done
async def worse(domain):
    await asyncio.gather(clings(), asyncio.create_task(clings()))

@app.on_finish
async def worst(why):
    async with asyncio.TaskGroup() as group:
        group.create_task(clings())
        await asyncio.shield(clings())

@app.page("*/bad/0", timeout_s=0.2)
async def handler(page):
    try:
        yield {}
    finally:
        await clings()
"""
    letters = await (await crawled(tmp_path, hooks)).letters()
    assert [letter.detail[:20] for letter in letters.values()] == ["not done after 0.2 s"]


async def test_user_code_that_ignores_cancellation_does_not_delay_a_stop(tmp_path: Path) -> None:
    code = """
@app.on_fetch
async def bad(page):
    await clings()

@app.page("*/bad/0")
async def handler(page):
    await clings()
"""
    made = lab(tmp_path, PRELUDE + code, membership__drain_timeout_s=0.2)

    async def stop(instances: list[Any]) -> None:
        while not instances[0].stages.fetching.in_turn:
            await asyncio.sleep(0.01)
        instances[0].stop()

    with serve_resources(WEB) as site:
        async with asyncio.timeout(WITHIN_S):
            done = await crawl(made.settings, [site.url(HOST)], meanwhile=stop)
    assert done.errors == []
    assert done.instances[0].stopped_because == "signal"
