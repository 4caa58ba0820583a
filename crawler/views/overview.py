"""The crawl as a whole: read from the engine, with what is worth a note, and as text that is repainted."""

import math
from collections.abc import Iterator, Sequence

from crawler.frontier.members import Awaited, Awaits
from crawler.frontier.series import FINE, STALE_SLOTS, Sample, Samples
from crawler.terminal.words import counted, duration, number

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
