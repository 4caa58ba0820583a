"""Dead letters for operators: listed, read page by page, put back into their queues, purged.

All raise EngineError. What changes something is written to the operator log before it acts.
"""

import heapq
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from crawler.crawl.opening import OpenCrawl
from crawler.errors import NotMetError, UsageError
from crawler.frontier.dead_letters import StoredLetter
from crawler.frontier.operator_log import Actor
from crawler.model import FailureKind, RefusalReason
from crawler.rules.login_pace import paths_of
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of
from crawler.terminal.words import counted
from crawler.views.dead_letters import Letter
from crawler.views.operator import alone_text

# One page reads so much at most, where few dead letters are wanted.
SCANNED_MAX = 2_000  # dead letters: some 600 kB
SCANS_MAX = 200  # calls


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters: of these URLs, or of a domain and a reason; without any of it all.

    `run`: those of this run of a job. URLs without a run are those of the crawl itself.
    """

    domain: str = ""  # as `domain_of` of views/values.py returns it
    reason: str = ""  # as `letter_reason_of` there returns it
    urls: Sequence[str] = ()  # canonical
    run: str = ""

    def wants(self, one: StoredLetter) -> bool:
        """Is it of this domain, reason and run?"""
        letter = one.letter
        return (
            self.domain in ("", letter.domain) and self.reason in ("", letter.reason) and self.run in ("", letter.run)
        )

    @property
    def target(self) -> str:
        """What the operator log calls its target."""
        return self.urls[0] if len(self.urls) == 1 else self.domain

    @property
    def detail(self) -> str:
        """What the operator log has besides."""
        words = [f"{len(self.urls):,} URLs"] if len(self.urls) > 1 else []
        words += [f"reason {self.reason}"] * bool(self.reason)
        return ", ".join(words + [f"run {self.run}"] * bool(self.run))


class LetterList(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters there are, and the newest of them."""

    total: int
    reasons: Mapping[str, int]  # reason -> dead letters
    newest: Sequence[Letter]  # the newest first


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, in no order. `next`: the cursor of the next page, None after the last one."""

    letters: Sequence[Letter]
    next: str | None


class LetterChange(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters were put back or purged."""

    letters: int
    is_running: bool  # is there an instance that would fetch them?
    text: str  # for people


async def dead_letter_list(crawl: OpenCrawl, wanted: LetterFilter, newest_max: int) -> LetterList:
    """The newest dead letters, and how many there are for each reason. It reads all of the domain, or of the crawl."""
    reasons: Counter[str] = Counter()
    newest: list[tuple[float, str, StoredLetter]] = []
    async for some in _found(crawl, wanted):
        reasons.update(one.letter.reason for one in some)
        keyed = [(one.letter.failed_at, one.fingerprint, one) for one in some]
        newest = heapq.nlargest(newest_max, [*newest, *keyed], key=lambda one: one[:2])
    letters = [Letter.of(one.letter) for _, _, one in newest]
    return LetterList(total=sum(reasons.values()), reasons=dict(reasons), newest=letters)


async def dead_letters(crawl: OpenCrawl, wanted: LetterFilter, limit: int | None = None) -> AsyncIterator[list[Letter]]:
    """At most so many dead letters, some at a time, in no order."""
    async for some in _found(crawl, wanted, limit):
        yield [Letter.of(one.letter) for one in some]


async def dead_letter_page(crawl: OpenCrawl, wanted: LetterFilter, *, cursor: str = "", limit: int = 50) -> LetterPage:
    """About `limit` dead letters from a cursor on: a dozen more where they are stored together, fewer where few fit.

    One that is written meanwhile may be missed or come twice; no other. Raises UsageError for a bad cursor or limit.
    """
    if limit < 1:
        raise UsageError(f"limit {limit}: expected a number of dead letters")
    if wanted.urls:
        return LetterPage(letters=[Letter.of(one.letter) for one in await _of_urls(crawl, wanted)], next=None)
    partition, at = _place_of(cursor, crawl.record.partitions) if cursor else (0, 0)
    end = crawl.record.partitions
    if wanted.domain:
        own = crawl.operator.partition_of(wanted.domain)
        partition, at, end = own, at if partition == own else 0, own + 1
    found: list[StoredLetter] = []
    scanned = scans = 0
    counts = await crawl.letters.counts(range(partition, end))
    while partition < end and len(found) < limit and scanned < SCANNED_MAX and scans < SCANS_MAX:
        if counts[partition]:
            some, at = await crawl.letters.some(partition, at, limit - len(found))
            found += filter(wanted.wants, some)
            scanned, scans = scanned + len(some), scans + 1
        if not at or not counts[partition]:
            partition, at = partition + 1, 0
    while partition < end and not counts[partition]:
        partition, at = partition + 1, 0
    following = f"{partition}.{at}" if partition < end else None
    return LetterPage(letters=[Letter.of(one.letter) for one in found], next=following)


def _place_of(cursor: str, partitions: int) -> tuple[int, int]:
    place, _, at = cursor.partition(".")
    is_whole = all(text.isdecimal() and text.isascii() and len(text) <= 20 for text in (place, at))
    if not is_whole or int(place) >= partitions or int(at) >= 2**64:
        raise UsageError(f"{cursor[:50]!r} is not a cursor: use the one of the page before")
    return int(place), int(at)


async def dead_letter(crawl: OpenCrawl, wanted: LetterFilter) -> Letter:
    """That of the one URL. Raises UsageError when it has none."""
    return Letter.of((await _of_urls(crawl, wanted))[0].letter)


async def retry(crawl: OpenCrawl, wanted: LetterFilter, *, limit: int | None = None, actor: Actor) -> LetterChange:
    """Put URLs back into their queues, with all their attempts; their paths do not count as ending sessions any more.
    Raises UsageError for a URL without a dead letter.
    """
    await _check_and_log(crawl, wanted, actor, "dead retry", limit)
    n = 0
    async for some in _found(crawl, wanted, limit):
        await _acquit(crawl, [one.letter.url for one in some if one.letter.reason == FailureKind.ENDS_SESSION])
        n += await crawl.letters.requeue(some)
    ended = ": no such dead letter, or the run has ended" if wanted.run and not n else ""
    return await _changed(crawl, n, f"{counted(n, 'URL')} put back{ended or (await alone_text(crawl) if n else '')}")


async def _acquit(crawl: OpenCrawl, urls: Sequence[str]) -> None:
    """Take the paths of these off the lists of those that end sessions, or none of them would be requested."""
    paths: dict[str, set[str]] = {}
    for url in urls:
        paths.setdefault(registrable_domain(host_of(url)), set()).update(paths_of(url))
    for site, those in paths.items():
        record = await crawl.operator.book.login_record(site)
        ends = tuple([path for path in record.ends if path not in those])
        if ends != record.ends:
            await crawl.operator.book.note_logins(site, msgspec.structs.replace(record, ends=ends))


async def purge(crawl: OpenCrawl, wanted: LetterFilter, *, limit: int | None = None, actor: Actor) -> LetterChange:
    """Drop dead letters; their URLs stay seen. Raises UsageError for a URL without a dead letter."""
    await _check_and_log(crawl, wanted, actor, "dead purge", limit)
    n = sum([await crawl.letters.discard(some, RefusalReason.PURGED) async for some in _found(crawl, wanted, limit)])
    return await _changed(crawl, n, f"{counted(n, 'dead letter')} purged")


async def _check_and_log(crawl: OpenCrawl, wanted: LetterFilter, actor: Actor, action: str, limit: int | None) -> None:
    if wanted.urls:
        await _of_urls(crawl, wanted)
    words = [wanted.detail] * bool(wanted.detail) + [f"at most {limit:,}" for _ in range(limit is not None)]
    await crawl.operator_log.add(actor, action, wanted.target, ", ".join(words))


async def _changed(crawl: OpenCrawl, n: int, text: str) -> LetterChange:
    return LetterChange(letters=n, is_running=bool(await crawl.members.read()), text=text)


async def _found(crawl: OpenCrawl, wanted: LetterFilter, limit: int | None = None) -> AsyncIterator[list[StoredLetter]]:
    """Those that the filter wants, some at a time."""
    if wanted.urls:
        yield await _of_urls(crawl, wanted)
        return
    left = limit
    async for some in crawl.letters.read(crawl.operator.partition_of(wanted.domain) if wanted.domain else -1):
        found = [one for one in some if wanted.wants(one)]
        yield found[:left]
        if left is not None:
            left -= min(left, len(found))
            if not left:
                return


async def _of_urls(crawl: OpenCrawl, wanted: LetterFilter) -> list[StoredLetter]:
    """The letters of the URLs, several of one that was requested in several ways. NotMetError when one has none."""
    found = []
    for url in wanted.urls:
        _, _, partition = crawl.placement.of(url)
        one = await crawl.letters.find(partition, crawl.frontier.fingerprints.of_run(wanted.run).of(url))
        letters = [one] if one is not None else await _of_url(crawl, partition, url, wanted.run)
        if not letters:
            if wanted.run:
                raise NotMetError(f"{url} is not a dead letter of run {wanted.run[:80]}")
            raise NotMetError(f"{url} is not a dead letter (see: crawler explain {url})")
        found += letters
    return found


async def _of_url(crawl: OpenCrawl, partition: int, url: str, run: str) -> list[StoredLetter]:
    """Those of other requests than a plain GET: nobody knows their fingerprints, so all of the partition are read."""
    return [
        one
        async for some in crawl.letters.read(partition)
        for one in some
        if (one.letter.url, one.letter.run) == (url, run)
    ]
