"""The headline of a crawl in words, as all views in terminals show it. Pure."""

import math
from collections.abc import Iterator

from msgspec.structs import replace

from crawler.terminal.words import counted, duration, number, rate, size
from crawler.views.overview import STALL_S, left_text, next_visible_text, stall_text
from crawler.views.report import one_shape_text, waits_text
from crawler.views.snapshot import (
    CrawlState,
    JobsAhead,
    Overview,
)


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
    if o.requisites:
        parts.append(counted(o.requisites, "requisite"))
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
