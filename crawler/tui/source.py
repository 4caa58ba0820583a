"""Where the screens of `top` get what they show, and what their keys do. Tests give them another one."""

from collections.abc import Sequence
from typing import Protocol

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.operator_log import Actor, LogEntry
from crawler.terminal.words import counted
from crawler.views import (
    dead_letter_changes,
    domain_reads,
    operator,
    pins,
    shares,
)
from crawler.views.attempts import recent_attempts
from crawler.views.dead_letter_changes import LetterFilter, LetterList
from crawler.views.domains import DomainDetail
from crawler.views.explain import ShownAttempt
from crawler.views.operator import CommandResult
from crawler.views.ring_text import members_text, pins_text
from crawler.views.snapshot import DomainRows, Overview, SeriesView, Snapshot
from crawler.views.values import delay_ms_of, domain_of
from crawler.views.whole import crawl_series, overview, snapshot

LETTERS_SHOWN = 200
ATTEMPTS_SHOWN = 200
LOG_SHOWN = 500


class Source(Protocol):
    """All raise EngineError; those that take text of the user UsageError."""

    async def overview(self) -> Overview: ...
    async def snapshot(self, sort: str, limit: int) -> Snapshot: ...
    async def series(self) -> SeriesView: ...
    async def by_name(self, after: str, limit: int) -> DomainRows: ...
    async def matching(self, text: str, limit: int) -> DomainRows: ...
    async def detail(self, name: str) -> DomainDetail: ...
    async def members(self) -> str: ...
    async def letters(self, domain: str) -> LetterList: ...
    async def log(self) -> Sequence[LogEntry]: ...
    async def attempts(self, domain: str) -> Sequence[ShownAttempt]: ...
    async def pause(self, domain: str, *, undo: bool) -> str: ...
    async def block(self, domain: str, *, undo: bool) -> str: ...
    async def boost(self, domain: str, boost: int) -> str: ...
    async def delay(self, domain: str, text: str) -> str: ...
    async def retry(self, domain: str, reason: str) -> str: ...


class CrawlSource:
    """The functions of the service on one open crawl, for one user."""

    def __init__(self, crawl: OpenCrawl, actor: Actor) -> None:
        self._crawl = crawl
        self._actor = actor

    async def overview(self) -> Overview:
        return await overview(self._crawl)

    async def snapshot(self, sort: str, limit: int) -> Snapshot:
        return await snapshot(self._crawl, sort, limit)

    async def series(self) -> SeriesView:
        return await crawl_series(self._crawl)

    async def by_name(self, after: str, limit: int) -> DomainRows:
        return await domain_reads.domain_page(self._crawl, after, limit)

    async def matching(self, text: str, limit: int) -> DomainRows:
        return await domain_reads.domains_matching(self._crawl, text, limit)

    async def detail(self, name: str) -> DomainDetail:
        return await domain_reads.domain_detail(self._crawl, name)

    async def members(self) -> str:
        pinned = await pins.pins(self._crawl)
        text = members_text(await shares.members(self._crawl))
        return f"{text}\n\n{pins_text(pinned)}" if pinned.pins else text

    async def letters(self, domain: str) -> LetterList:
        wanted = LetterFilter(domain=domain_of(domain) if domain else "")
        return await dead_letter_changes.dead_letter_list(self._crawl, wanted, LETTERS_SHOWN)

    async def log(self) -> Sequence[LogEntry]:
        return await self._crawl.operator_log.newest(LOG_SHOWN)

    async def attempts(self, domain: str) -> Sequence[ShownAttempt]:
        return await recent_attempts(self._crawl, domain=domain_of(domain), limit=ATTEMPTS_SHOWN)

    async def pause(self, domain: str, *, undo: bool) -> str:
        act = operator.resume if undo else operator.pause
        return _told(await act(self._crawl, domain_of(domain) if domain else "", actor=self._actor))

    async def block(self, domain: str, *, undo: bool) -> str:
        act = operator.unblock if undo else operator.block
        return _told(await act(self._crawl, domain_of(domain), actor=self._actor))

    async def boost(self, domain: str, boost: int) -> str:
        return _told(await operator.set_boost(self._crawl, domain_of(domain), boost, actor=self._actor))

    async def delay(self, domain: str, text: str) -> str:
        delay_ms = delay_ms_of(text)
        return _told(await operator.set_delay(self._crawl, domain_of(domain), delay_ms, actor=self._actor))

    async def retry(self, domain: str, reason: str) -> str:
        wanted = LetterFilter(domain=domain_of(domain) if domain else "", reason=reason)
        found = await dead_letter_changes.retry(self._crawl, wanted, actor=self._actor)
        alone = "" if found.is_running else "; no instance is running: start one with 'crawler crawl'"
        return f"{counted(found.letters, 'URL')} back in the queues{alone}"


def _told(result: CommandResult) -> str:
    return result.text
