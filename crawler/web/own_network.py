"""Our own network: asks witnesses whether it works when nobody is answered, and later whether it is back.

They are asked by a question to a DNS server for their name, or by a connection, which no request follows.
`rules/outage.py` decides whom, when, and what it means.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from crawler.model import Failure, FailureKind
from crawler.rules.outage import NetworkHealth, Way, Witness
from crawler.rules.urls import host_of
from crawler.web.resolver import CachingResolver, LookupFailedError

FIRST_S = 1.0  # until the other witnesses are asked, too
PANEL = {Way.NAMES: 3, Way.HOSTS: 1}  # who is asked first; a DNS server may answer now and then, a line does not
LATELY_MS = 60_000  # a server that answered now and then, or not at all, may do so for this long
WHAT_FAILS = {Way.NAMES: "no DNS server answers", Way.HOSTS: "no host answers"}


class OwnNetwork:
    """That of one instance. `reach` opens a connection to an origin, by its URL, and tells why there is none."""

    def __init__(self, resolver: CachingResolver, reach: Callable[[str], Awaitable[Failure | None]]) -> None:
        self._resolver = resolver
        self._reach = reach
        self._health = NetworkHealth()
        self._heard = 0  # answers of hosts
        self._heard_again = asyncio.Event()  # since somebody waits for it
        self._doubts: dict[Way, asyncio.Task[bool]] = {}  # which begin with the first failure after a check has begun
        self._checks: dict[Way, asyncio.Task[bool]] = {}
        self._running: set[asyncio.Task[bool]] = set()
        self._heard_before: dict[Way, int] = {}  # answers until it failed
        self._away_ms: dict[Way, int] = {}  # when it was last found not to work
        self._flapped_ms: int | None = None  # when the DNS servers were last seen to answer now and then
        self._refused = frozenset[str]()  # to which the last name led that may not be connected to
        self._details: dict[Way, str] = {}  # what is wrong, by the failures by which it was noticed

    def answered(self, domain: str, origin: str, *, is_name: bool, delay_ms: int) -> None:
        """A host answered a request that no proxy carried. `delay_ms`: between two requests to it."""
        self._heard += 1
        if self._doubts:
            self._heard_again.set()
        self._health.answered(domain, origin, is_name=is_name, delay_ms=delay_ms, now_ms=_now_ms())

    def waits(self, domain: str, origin: str, *, is_name: bool) -> None:
        """A request to this origin, which may be sent there, waits for the way to hosts."""
        self._health.waits(domain, origin, is_name=is_name)

    def wait_ms(self, way: Way) -> int:
        """How long what needs this way waits; 0: it works, as far as is known."""
        return self._health.wait_ms(way, now_ms=_now_ms())

    @property
    def is_away(self) -> bool:
        """Does anything not work?"""
        return self._health.is_any_away

    @property
    def trouble(self) -> str:
        """What does not work; "" for nothing."""
        return "; ".join(self._said(way) for way in Way if self._health.is_away(way))

    async def lookup(self, host: str) -> tuple[str, ...]:
        """As `CachingResolver.lookup`. A failure of our own network has the kind NETWORK, and is not cached."""
        try:
            return await self._resolver.lookup(host)
        except LookupFailedError as error:
            ours = None
            if error.kind is FailureKind.DNS_ERROR:
                ours = await self.failure(Way.NAMES, error.detail)
            elif error.kind is FailureKind.ADDRESS_REFUSED:
                self._refused = frozenset(error.refused)
                where = f"all names lead to {', '.join(sorted(self._refused))}, as before a login to a network"
                ours = await self.failure(Way.NAMES, error.detail, said=where)
            if ours is None and self._was_away_lately(Way.NAMES):  # it may have come back since this name failed
                self._resolver.forget(host)
                return await self._resolver.lookup(host)
            if ours is None:
                raise
            self._resolver.forget(host)
            raise LookupFailedError(ours.kind, ours.detail) from None

    async def failure(self, way: Way, detail: str, *, said: str = "") -> Failure | None:
        """That of our own network, if it is why a request has just failed; None if that is its host's. `detail`: how it
        failed. `said`: what is wrong then.
        """
        if not self._health.is_away(way):
            if self._health.check_wait_ms(way, now_ms=_now_ms()) is None:
                return None
            self._details[way] = said or f"{WHAT_FAILS[way]} ({detail})"
            doubt = self._doubts.get(way)
            if doubt is None:
                doubt = self._doubts[way] = self._begun(self._resolved(way))
            if await asyncio.shield(doubt):  # a waiter that is cancelled must not cancel that of the others
                return None
        return Failure(kind=FailureKind.NETWORK, detail=self._said(way))

    async def _resolved(self, way: Way) -> bool:
        """Is anybody answered from now on? Who fails before witnesses are asked waits for the same."""
        heard = self._heard_of(way)
        self._heard_again.clear()
        if (before := self._checks.get(way)) is not None:  # it may have had its answer earlier
            await asyncio.wait([before])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((self._health.check_wait_ms(way, now_ms=_now_ms()) or 0) / 1000):
                await self._heard_again.wait()
        del self._doubts[way]
        if self._health.is_away(way):
            return False
        if way is Way.HOSTS and self._is_proven(way, heard):
            return True
        witnesses = self._health.to_check(way, now_ms=_now_ms())
        return await self._begin(way, witnesses) if witnesses else True

    def look(self) -> None:
        """Ask somebody whether what failed works again, if it is time. Called again and again."""
        for way in Way:
            if self._answers(way) > self._heard_before.get(way, self._answers(way)):
                self._health.works(way)
            if way not in self._checks and (witness := self._health.to_probe(way, now_ms=_now_ms())) is not None:
                self._begin(way, [witness])

    async def close(self) -> None:
        """End what is under way."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _answers(self, way: Way) -> int:
        """How many there have been."""
        return self._resolver.answers if way is Way.NAMES else self._heard

    def _begun(self, work: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        task = asyncio.create_task(work, name="own network")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _begin(self, way: Way, witnesses: Sequence[Witness]) -> asyncio.Task[bool]:
        check = self._checks[way] = self._begun(self._check(way, witnesses))
        check.add_done_callback(lambda _: self._checks.pop(way))
        return check

    def _was_away_lately(self, way: Way) -> bool:
        return way in self._away_ms and _now_ms() - self._away_ms[way] <= LATELY_MS

    def _heard_of(self, way: Way) -> tuple[int, int]:
        """Answers, and look-ups without one."""
        return self._answers(way), self._resolver.unanswered if way is Way.NAMES else 0

    def _is_proven(self, way: Way, before: tuple[int, int]) -> bool:
        """Was there an answer since there were so many? One is not enough among many look-ups that had none."""
        answers, unanswered = (now - then for now, then in zip(self._heard_of(way), before, strict=True))
        return answers > 2 * unanswered

    async def _check(self, way: Way, witnesses: Sequence[Witness]) -> bool:
        """Does anybody answer? The first of them are asked alone for a while, enough where all is well."""
        heard, was_away = self._heard_of(way), self._health.is_away(way)
        panel = PANEL[way]
        asked = [asyncio.ensure_future(self._ask(way, one)) for one in witnesses[:panel]]
        try:
            done, late = await asyncio.wait(asked, timeout=FIRST_S)
            found = [task.result() for task in done]
            answered = found[0] if not late and all(found) else None
            if answered is None:
                asked += [asyncio.ensure_future(self._ask(way, one)) for one in witnesses[panel:]]
                answered = await (self._any(asked) if way is Way.HOSTS else self._steady(witnesses, asked))
        finally:
            for task in asked:
                task.cancel()
        if answered is None and self._is_proven(way, heard):
            return True
        self._health.checked(way, answered=answered, now_ms=_now_ms())
        if answered is None:
            self._away_ms[way] = _now_ms()
        if answered is None and not was_away:
            self._heard_before[way] = self._answers(way)
        if was_away and answered is not None and way is Way.NAMES:
            self._resolver.renew()
        return answered is not None

    async def _any(self, asked: Sequence[asyncio.Future[Witness | None]]) -> Witness | None:
        """The first that answers."""
        for one in asyncio.as_completed(asked):
            if (answered := await one) is not None:
                return answered
        return None

    async def _steady(
        self, witnesses: Sequence[Witness], asked: Sequence[asyncio.Future[Witness | None]]
    ) -> Witness | None:
        """One that answers, of DNS servers that answer the same names again. Many names without an answer that then
        have one, or had one, tell of servers that answer now and then.
        """
        first = await asyncio.gather(*asked)
        answered = next((one for one in first if one is not None), None)
        if answered is None or 3 * first.count(None) <= len(first):
            return answered
        if self._flapped_ms is None or _now_ms() - self._flapped_ms > LATELY_MS:
            again = await asyncio.gather(*(self._ask(Way.NAMES, one) for one in witnesses))
            if again == first:
                return answered
        self._flapped_ms = _now_ms()
        self._details[Way.NAMES] = "the DNS servers answer only now and then"
        return None

    async def _ask(self, way: Way, witness: Witness) -> Witness | None:
        """The witness, if it answers."""
        witness.asked_ms, url = _now_ms(), f"{witness.origin}/"
        if way is Way.NAMES:
            found = await self._resolver.ask_again(host_of(url))
            is_portal = found and self._refused.issuperset(found)  # it had another address when it answered
            return None if found is None or is_portal else witness
        with contextlib.suppress(LookupFailedError):
            return witness if await self._reach(url) is None else None
        return None

    def _said(self, way: Way) -> str:
        return self._details.get(way, WHAT_FAILS[way])


def _now_ms() -> int:
    """Stands still while the machine sleeps."""
    return int(asyncio.get_running_loop().time() * 1000)
