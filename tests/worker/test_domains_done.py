"""A domain is reported when none of its queues has anything left, and checked again until then."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.errors import EngineDown
from crawler.handlers.crawler import Crawler
from crawler.worker.hooks import ASKED_MAX, DomainsDone, Hooks


class Lab:
    """Pending URLs by queue; `reported` are the domains of the events that wait."""

    def __init__(self) -> None:
        app, threads = Crawler(), SimpleNamespace()
        app.on_domain_done(lambda _: None)
        self.hooks = Hooks(app, threads)  # type: ignore[arg-type]
        self.pending: dict[str, int] = {}
        self.is_down = False
        stats: Any = self
        self.done = DomainsDone(stats, self.hooks)

    async def domains(self, asked: list[tuple[str, int]]) -> list[Any]:
        if self.is_down:
            raise EngineDown("down")
        return [SimpleNamespace(domain=queue, pending=self.pending.get(queue, 0)) for queue, _ in asked]

    async def check(self) -> None:
        """One look at the domains that have waited for longest."""
        await self.done._check(self.hooks.ended.take(ASKED_MAX))

    @property
    def reported(self) -> list[str]:
        return [arguments[0] for _, arguments in self.hooks._waiting]


async def test_a_domain_with_a_pending_queue_is_checked_again() -> None:
    lab = Lab()
    lab.hooks.ended.add("a.test", {"a.test": 1, "www.a.test": 1})
    lab.hooks.ended.add("b.test", {"b.test": 2})
    lab.pending["www.a.test"] = 3
    await lab.check()
    assert (lab.reported, lab.hooks.ended.count) == (["b.test"], 2)
    lab.pending.clear()
    await lab.check()
    assert (lab.reported, lab.hooks.ended.count) == (["b.test", "a.test"], 0)


async def test_no_domain_is_lost_while_the_engine_is_down() -> None:
    lab = Lab()
    lab.hooks.ended.add("a.test", {"a.test": 1, "www.a.test": 1})
    lab.is_down = True
    with pytest.raises(EngineDown):
        await lab.check()
    await lab.done.check_all()
    assert lab.hooks.ended.count == 2
    lab.is_down = False
    await lab.check()
    assert lab.reported == ["a.test"]


async def test_no_domain_is_lost_when_the_crawl_ends_during_a_check() -> None:
    lab, domains = Lab(), Lab.domains
    lab.hooks.ended.add("a.test", {"a.test": 1})
    lab.domains = lambda _: asyncio.sleep(60, [])  # type: ignore[method-assign, assignment]
    checking = asyncio.create_task(lab.check())
    await asyncio.sleep(0)
    checking.cancel()
    await asyncio.wait([checking])
    lab.domains = partial(domains, lab)  # type: ignore[method-assign]
    await lab.done.check_all()
    assert lab.reported == ["a.test"]


async def test_the_last_check_looks_at_each_domain_once() -> None:
    lab = Lab()
    for n in range(3 * ASKED_MAX):
        lab.hooks.ended.add(f"h{n}.test", {f"h{n}.test": n})
        lab.pending[f"h{n}.test"] = n % 2
    await lab.done.check_all()
    assert lab.reported == [f"h{n}.test" for n in range(0, 3 * ASKED_MAX, 2)]
    assert lab.hooks.ended.count == 0
