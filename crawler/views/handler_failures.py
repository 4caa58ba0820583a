"""Handlers that failed: which, on how many pages, and with what, for the end of a crawl."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.stats import Totals
from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.model import FailureKind
from crawler.rules.text import one_line
from crawler.terminal.words import counted, number
from crawler.views.dead_letter_changes import LetterFilter, dead_letters
from crawler.views.dead_letters import Letter

SHOWN = 5  # handlers
LETTERS_LOOKED_AT = 1_000
RETRY = "mend it, then 'crawler dead retry --reason handler' and the same command"


class HandlerFailures(msgspec.Struct, frozen=True):
    """`lines`: one for each handler that failed. `of_all`: which one failed on each of its pages; "": none."""

    lines: list[str] = []
    of_all: str = ""


async def handler_failures(crawl: OpenCrawl, totals: Totals) -> HandlerFailures:
    """Judge by some of the dead letters, and by how many pages each handler has taken."""
    known, target = totals.dead_by.get(FailureKind.HANDLER, 0), crawl.settings.handlers.app
    if not target or known <= 0:
        return HandlerFailures()
    wanted, letters = LetterFilter(reason=FailureKind.HANDLER), list[Letter]()
    async for some in dead_letters(crawl, wanted, LETTERS_LOOKED_AT):
        letters += some
    return judged(load_app(target), totals.handled, letters, known)


def judged(app: Crawler, handled: Mapping[str, int], letters: Sequence[Letter], known: int) -> HandlerFailures:
    """Pure. `handled`: pages by handler; `letters`: at most LETTERS_LOOKED_AT of `known` ones."""
    failed: dict[str, Counter[str]] = {}
    for letter in letters:
        handler = app.handler_for(letter.url, letter.label)
        failed.setdefault(handler.name if handler else "", Counter())[letter.detail] += 1
    beyond = f" ({number(len(letters))} of {number(known)} failures)" if known > len(letters) else ""
    ordered = sorted(failed, key=lambda name: (-failed[name].total(), name))
    lines = [f"{_line(name, failed[name], handled.get(name, 0))}{beyond}" for name in ordered]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"{counted(len(lines) - SHOWN, 'more handler')} failed: crawler dead list --reason handler"]
    hopeless = next((name for name in ordered if name and not handled.get(name)), "")
    return HandlerFailures(lines, f"handler {hopeless} failed on each of its pages; {RETRY}" if hopeless else "")


def _line(name: str, details: Counter[str], good: int) -> str:
    n, (detail, most) = details.total(), details.most_common(1)[0]
    who = f"Handler {name}" if name else "A function of the app"
    pages = f"{number(n)} of {counted(n + good, 'page')}" if good else f"{counted(n, 'page')}, all that it got"
    return one_line(f"{who}: failed on {pages}: {f'{number(most)} times ' if most > 1 else ''}{detail}")
