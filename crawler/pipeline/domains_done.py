"""Tells those who listen of which domains nothing is left: the engine is asked, soon after something ended there."""

import asyncio
from collections.abc import Sequence
from itertools import islice

from crawler.errors import EngineError
from crawler.frontier.stats import Stats
from crawler.pipeline.hooks import Hooks
from crawler.runtime.clock import ENGINE_PAUSE_S

EVERY_S = 1.0
ASKED_MAX = 100  # domains at a time


class DomainsDone:
    """Of the domains in which claims have ended here. A domain may be told again: links to it may be found later."""

    def __init__(self, stats: Stats, hooks: Hooks) -> None:
        self._stats = stats
        self._hooks = hooks

    async def run(self) -> None:
        """Ask some, the longest known first, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._check(list(islice(self._hooks.ended, ASKED_MAX)))
            except EngineError:
                await asyncio.sleep(ENGINE_PAUSE_S)

    async def check_all(self) -> None:
        """For the end. What an engine that is away does not tell is left out."""
        try:
            while known := list(islice(self._hooks.ended, ASKED_MAX)):
                await self._check(known)
                for domain in known:
                    self._hooks.ended.pop(domain, None)
        except EngineError:
            return

    async def _check(self, domains: Sequence[str]) -> None:
        """Those with something left are asked again, after all others."""
        places = {domain: self._hooks.ended.pop(domain) for domain in domains}
        asked = [(queue, partition) for queues in places.values() for queue, partition in queues.items()]
        try:
            found = await self._stats.domains(asked)
        except EngineError:
            self._hooks.ended.update(places)
            raise
        pending = {one.domain for one in found if one.pending}
        for domain, queues in places.items():
            if pending.isdisjoint(queues):
                self._hooks.notify("domain_done", domain)
            else:
                self._hooks.ended.setdefault(domain, {}).update(queues)
