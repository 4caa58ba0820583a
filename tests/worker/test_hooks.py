"""Listeners of events are called one after another, and when the instance ends none is left out."""

import asyncio
import contextlib

from crawler.handlers.crawler import Crawler
from crawler.handlers.threads import Threads
from crawler.worker.hooks import Hooks


async def test_a_listener_that_is_called_when_the_instance_ends_and_those_behind_it_are_called_once() -> None:
    app, called, may_end = Crawler(), list[str](), asyncio.Event()

    @app.on_skip
    async def first(url: str, reason: str) -> None:
        called.append(f"first begins {url}")
        await may_end.wait()
        called.append(f"first ends {url}")

    @app.on_skip
    async def second(url: str, reason: str) -> None:
        called.append(f"second {url}")

    hooks = Hooks(app, Threads(1))
    running = asyncio.create_task(hooks.run())
    hooks.notify("skip", "a", "robots")
    hooks.notify("skip", "b", "robots")
    while not called:
        await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    may_end.set()
    await hooks.finish("finished")
    assert called == ["first begins a", "first ends a", "second a", "first begins b", "first ends b", "second b"]
