"""The crawl as a whole: read from the engine, with what is worth a note, and as text that is repainted."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.members import Awaited, Awaits
from crawler.frontier.series import FINE, STALE_SLOTS, Sample, Samples
from crawler.frontier.stats import Totals
from crawler.redaction import redact
from crawler.rules.text import one_line
from crawler.runtime.process import wall_s
from crawler.terminal.text import counted, duration, number, rate, say, size
from crawler.views.domains import domain_rows
from crawler.views.figures import (
    CrawlState,
    JobsAhead,
    Overview,
    SeriesView,
    Snapshot,
    TotalsView,
    domain_grid,
    jobs_ahead,
    series_view,
)
from crawler.views.losses import Loss, losses_of
from crawler.views.report import one_shape_text, waits_text
from crawler.views.ring import alive, full_nodes, running_since, waits_for

if TYPE_CHECKING:
    from rich.text import Text


STALL_S = 10.0  # without any progress, before it is explained
HOSTS_COUNTED_MAX = 100  # beyond it, several are in one partition: their number is not known
TREND_S = 60.0  # over which the queue's decrease is measured
TREND_MIN_S = 30.0
FOUND_MAX = 0.5  # URLs that are found for each that is done, while the time left is told


def still_s(samples: Samples) -> float:
    """How long no attempt has finished, as far as an unbroken row of samples tells: at most 5 s too little."""
    now, since_s = samples.now, samples.now.at_s
    for sample in _unbroken(samples):
        if (sample.pages, sample.failures) != (now.pages, now.failures):
            break
        since_s = sample.at_s
    return now.at_s - since_s


def left_s(samples: Samples, *, scheduled: int = 0) -> float | None:
    """How long the pending URLs last, if they decrease as in the last minute; None while they don't.

    Also None while about as many URLs are found as are done: the small difference of the two tells nothing.
    `scheduled`: how many of them become visible later.
    """
    now, older = samples.now, samples.now
    for sample in _unbroken(samples):
        if sample.at_s < now.at_s - TREND_S:
            break
        older = sample
    seconds, fewer = now.at_s - older.at_s, older.pending - now.pending
    left, found, done = now.pending - scheduled, now.added - older.added, now.done - older.done
    is_told = seconds >= TREND_MIN_S and fewer > 0 and left > 0 and found <= FOUND_MAX * done
    if not is_told or still_s(samples) >= STALL_S:
        return None
    return left * seconds / fewer


def _unbroken(samples: Samples) -> Iterator[Sample]:
    """The samples before now, newest first, as long as instances ran all the time."""
    last_s = samples.now.at_s
    for sample in reversed(samples.fine):
        if last_s - sample.at_s > STALE_SLOTS * FINE.slot_s:
            return
        last_s = sample.at_s
        yield sample


def left_text(seconds: float) -> str:
    """Like "about 3 min left": no more exact than it is known."""
    if seconds < 55:
        return "less than a minute left"
    if seconds < 90 * 60:
        return f"about {number(seconds / 60)} min left"
    if seconds < 48 * 3600:
        return f"about {number(seconds / 3600)} h left"
    return f"about {number(seconds / 86400)} days left"


def next_visible_text(in_s: float) -> str:
    """Like "next URL visible in 3 h 00 m"."""
    return f"next URL visible {'now' if in_s <= 0 else f'in {duration(in_s)}'}"


def stall_text(still_s: float, awaited: Sequence[Awaited], *, busy: int) -> str:
    """Like "nothing for 40 s: all 3 hosts wait for their next fetch, first docs.example in 12 s".

    `busy`: partitions that have pending URLs. An instance may also wait for some that have none.
    """
    why = _awaited_text(awaited, busy)
    return f"nothing for {duration(still_s)}" + (f": {why}" if why else "")


def _awaited_text(awaited: Sequence[Awaited], busy: int) -> str:
    """What several instances wait for: the most telling of it, summed up."""
    for what in Awaits:
        same = [one for one in awaited if one.what == what]
        if same:
            count, first = sum(one.count for one in same), min(same, key=lambda one: one.in_s)
            return _next_text(min(count, busy), first) if what is Awaits.NEXT else _TEXTS[what](first.host, count)
    return ""


def _with_others(text: str, count: int, noun: str) -> str:
    return text if count == 1 else f"{text} and {counted(count - 1, 'other ' + noun)}"


def _next_text(count: int, first: Awaited) -> str:
    soon = f"in {duration(math.ceil(first.in_s))}"
    if count <= 1:
        return f"{first.host or 'a host'} waits for its next fetch {soon}"
    hosts = f"all {number(count)} hosts" if count <= HOSTS_COUNTED_MAX else "all hosts"
    return f"{hosts} wait for their next fetch, first {f'{first.host} ' if first.host else ''}{soon}"


_TEXTS = {
    Awaits.ANSWER: lambda host, n: _with_others(f"waits for an answer from {host}", n, "request"),
    Awaits.ROBOTS: lambda host, n: _with_others(f"waits for robots.txt of {host}", n, "host"),
    Awaits.PAGE: lambda host, n: _with_others(f"works on a page of {host}", n, "page"),
}


# The headline of a crawl in words, as all views in terminals show it. Pure.


def overview_parts(o: Overview) -> list[str]:
    """Like "1,204 pages", "98/s", "3,411 queued", "64 in flight", "2 errors", "31.2 MiB"."""
    parts = [
        counted(o.pages, "page"),
        *([f"{rate(o.rates.pages)}/s"] if o.rates else []),
        f"{number(max(0, o.pending - o.in_flight - o.scheduled))} queued",
        f"{number(o.in_flight)} in flight",
        counted(o.dead, "error"),
        size(o.bytes),
    ]
    if o.scheduled:
        parts.insert(3, f"{number(o.scheduled)} scheduled")
    if o.retries:
        parts.insert(-1, counted(o.retries, "retry", "retries"))
    if o.instances > 1:
        parts.append(counted(o.instances, "instance"))
    return parts


def state_text(o: Overview) -> str:
    """Like "running" or "paused by an operator"."""
    return {
        CrawlState.PAUSED: "paused by an operator",
        CrawlState.SPENT: f"its budget of {o.spent.partition(':')[2]} is used up",
        CrawlState.IDLE: "no instance is running",
        CrawlState.WAITING: "waiting for jobs",
    }.get(o.state, str(o.state))


def sentence(o: Overview) -> str:
    """Like "Paused by an operator: 12 URLs wait for 'crawler resume'."."""
    wait = f"{counted(o.pending, 'URL')} wait{'s' * (o.pending == 1)}"
    more = {
        CrawlState.RUNNING: f" on {counted(o.instances, 'instance')}",
        CrawlState.PAUSED: f": {wait} for 'crawler resume'",
        CrawlState.SPENT: ": raise it to continue",
        CrawlState.IDLE: f", and {wait}: start one with 'crawler crawl'",
        CrawlState.FINISHED: ": nothing is pending",
    }.get(o.state, "")
    if o.state is CrawlState.FINISHED and not o.added:
        return "Nothing to do yet: add a seed."
    text = state_text(o)
    return f"{text[0].upper()}{text[1:]}{more}."


def with_notes(o: Overview) -> Overview:
    """The same, with its sentence and notes."""
    return replace(o, sentence=sentence(o), notes=[*waits(o), *notes(o)])


def notes(o: Overview, *, is_limited: bool = False) -> Iterator[str]:
    """What explains the numbers. `is_limited`: the crawl ends before its queue does."""
    if o.set_back_pages:
        yield f"the engine lost its last writes: {counted(o.set_back_pages, 'page is', 'pages are')} fetched again"
    if o.left_s is not None and not is_limited:
        yield left_text(o.left_s)
    if o.state is CrawlState.RUNNING and not o.waits_for:
        if o.first_visible_at is not None and o.scheduled == o.pending:
            yield next_visible_text(o.first_visible_at - o.at)
        elif o.still_s >= STALL_S:
            yield stall_text(o.still_s, o.awaited, busy=o.busy_partitions)
    if o.one_shape:
        yield one_shape_text(o.one_shape)
    yield from jobs_notes(o.jobs, o.at, is_idle=not o.pending)
    if o.last_error:
        yield f"last error: {o.last_error}"


def jobs_notes(jobs: JobsAhead, now_s: float, *, is_idle: bool) -> Iterator[str]:
    """Like "next job in 41 m 07 s", where nothing else is to be done; and whose clock is too wrong to trigger jobs."""
    if jobs.next_at and is_idle:
        yield f"next job in {duration(max(0, math.ceil(jobs.next_at - now_s)))}"
    if jobs.clock_off:
        which = "behind" if jobs.clock_off_s > 0 else "ahead of"
        off = duration(abs(jobs.clock_off_s))
        yield f"{jobs.clock_off} triggers no jobs: its clock is {off} {which} the engine's"


def waits(o: Overview) -> Iterator[str]:
    """Why instances claim no more URLs, or few at a time, where that is so."""
    for why in sorted(o.waits_for):
        yield waits_text(why, o.full_nodes)


# What a crawl looks like while it runs: a calm live view on a terminal, plain lines elsewhere.
#
# Takes snapshots and shows them; must not know where they come from.


LINE_EVERY_S = 5.0
LINES_AT_FIRST, LINE_SLOWEST = 12, 12  # so many at this pace; then slower and slower, to one a minute
LINES_BESIDE = 5  # that a live view has beside its rows: headline, notes, an empty one, titles, the cursor's


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl at one moment; `at_s` since the start of this command."""

    at_s: float
    snapshot: Snapshot
    is_limited: bool = False  # does the crawl end before its queue does?


class View(Protocol):
    """Shows snapshots with at most `rows` domains; `say` prints a line without disturbing them."""

    @property
    def rows(self) -> int: ...
    def show(self, shown: Shown) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


def summary_line(shown: Shown) -> str:
    """Like "12 s: 1,204 pages, 98/s, 3,411 queued, 64 in flight, 2 errors, 31.2 MiB"."""
    o = shown.snapshot.overview
    waiting = "".join(f"; {why}" for why in waits(o))
    return f"{duration(shown.at_s)}: {', '.join(overview_parts(o))}{waiting}"


def notes_line(shown: Shown) -> str:
    """What explains the numbers; "" when nothing does."""
    return "; ".join(notes(shown.snapshot.overview, is_limited=shown.is_limited))


class Quiet:
    """Shows nothing."""

    rows = 0

    def show(self, shown: Shown) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass


class PlainLines:
    """One line every few seconds, for logs and pipes; later one a minute, or a week would be 120,000 lines."""

    rows = 0

    def __init__(self, stream: IO[str], *, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._next_s = every_s

    def show(self, shown: Shown) -> None:
        if shown.at_s >= self._next_s:
            slower_s = min(shown.at_s / LINES_AT_FIRST, self._every_s * LINE_SLOWEST)
            self._next_s = shown.at_s + max(self._every_s, slower_s)
            self.say("; ".join([summary_line(shown), *notes(shown.snapshot.overview, is_limited=shown.is_limited)]))

    def say(self, line: str) -> None:
        say(line, stream=self._stream)

    def close(self) -> None:
        pass


class LiveView:
    """Redraws one block at the bottom of the terminal: the totals, and the busiest domains."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    @property
    def rows(self) -> int:
        return max(0, self._console.height - LINES_BESIDE)

    def show(self, shown: Shown) -> None:
        self._live.update(self._drawn(shown), refresh=True)

    def _drawn(self, shown: Shown) -> "Text":
        from rich.text import Text

        explained = notes_line(shown)
        lines = [(one_line(summary_line(shown)), "bold"), *([(one_line(redact(explained)), "")] if explained else [])]
        if rows := shown.snapshot.domains.rows[: self.rows]:
            titles, *texts = domain_grid(rows, self._console.width).lines()
            lines += [("", ""), (titles, "dim"), *((text, "") for text in texts)]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(Text(*line) for line in lines)

    def say(self, line: str) -> None:
        self._console.print(one_line(line), markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


def view_for(stream: IO[str], *, quiet: bool, verbose: bool) -> View:
    """The view that fits: nothing, lines (no terminal, or log events are shown there), or live."""
    if quiet:
        return Quiet()
    if verbose or not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(stream)
    return LiveView(stream)


# Reads a crawl as a whole: its headline, totals and rates over time. Bounded by the number of partitions.


async def overview(crawl: OpenCrawl) -> Overview:
    """The headline. Raises EngineError, as all functions here do."""
    progress, now_s = await crawl.inspect.progress(), wall_s()
    members = await alive(crawl)
    samples = (await crawl.series.read(Sample.of(now_s, progress))).since(running_since(members, now_s))
    overrides, quota_reached = await crawl.operator.overrides(), await crawl.crawls.quota_reached()
    spent, jobs = quota_reached.reason if quota_reached else "", jobs_ahead(members)
    state = _state(
        progress.pending, len(members), is_paused=overrides.is_paused, is_spent=bool(spent), has_jobs=bool(jobs.next_at)
    )
    return with_notes(
        Overview(
            crawl=crawl.settings.crawl.name,
            at=now_s,
            began_at=crawl.record.begun_at,
            state=state,
            instances=len(members),
            pages=progress.fetched,
            redirected=progress.redirected,
            client_errors=progress.client_errors,
            server_errors=progress.server_errors,
            added=progress.added,
            pending=progress.pending,
            scheduled=progress.scheduled,
            first_visible_at=progress.first_visible_at,
            in_flight=min(progress.pending, sum(m.in_flight for m in members)),
            retries=progress.retries,
            dead=progress.dead,
            bytes=progress.bytes,
            rates=samples.rates,
            busy_partitions=progress.busy,
            still_s=still_s(samples) if progress.pending else 0.0,
            left_s=left_s(samples, scheduled=progress.scheduled),
            waits_for=await waits_for(crawl, members),
            full_nodes=full_nodes(members),
            awaited=[m.awaited for m in members if m.awaited],
            last_error=max(members, key=lambda m: m.last_error_at).last_error if members else "",
            set_back_pages=sum(m.set_back_pages for m in members),
            logins=sum(one.logins for one in overrides.logins.values()),
            one_shape=", ".join(filter(None, (m.one_shape for m in members))),
            jobs=jobs,
            spent=spent,
        )
    )


async def snapshot(crawl: OpenCrawl, sort: str, limit: int) -> Snapshot:
    """Headline and the first domains by one of SORTS."""
    return Snapshot(overview=await overview(crawl), domains=await domain_rows(crawl, sort, limit))


async def totals(crawl: OpenCrawl) -> TotalsView:
    """All totals."""
    return await totals_view(crawl, await crawl.stats.totals())


async def totals_view(crawl: OpenCrawl, found: Totals) -> TotalsView:
    """The same, of totals that were read."""
    members = await alive(crawl)
    in_flight = min(found.pending, sum(m.in_flight for m in members))
    return TotalsView(
        totals=found, pending=found.pending, domains=await crawl.stats.domain_count(), in_flight=in_flight
    )


async def losses(crawl: OpenCrawl) -> list[Loss]:
    """What is missing in the results, by reason."""
    return losses_of(*await crawl.stats.totals_and_examples())


async def overview_with_losses(crawl: OpenCrawl) -> Overview:
    """The headline with its losses, which cost another pass over the counters."""
    return replace(await overview(crawl), losses=await losses(crawl))


async def crawl_series(crawl: OpenCrawl) -> SeriesView:
    """Rates of the last 15 minutes and of the last day."""
    return series_view(await crawl.series.read(Sample.of(wall_s(), await crawl.inspect.progress())))


def _state(pending: int, instances: int, *, is_paused: bool, is_spent: bool, has_jobs: bool) -> CrawlState:
    if not pending and not has_jobs:
        return CrawlState.FINISHED
    if is_paused:
        return CrawlState.PAUSED
    if is_spent:
        return CrawlState.SPENT
    if not pending:
        return CrawlState.WAITING
    return CrawlState.RUNNING if instances else CrawlState.IDLE
