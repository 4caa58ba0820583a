"""Dead letters: listed, counted, repeated, purged."""

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Self

import msgspec

from crawler.frontier.codec import DeadLetter, FailedAttempt
from crawler.model import GET
from crawler.terminal.tables import facts, table
from crawler.terminal.words import counted, moment, number
from crawler.views.report import named, request_text


class LetterFailure(FailedAttempt, array_like=False, frozen=True):
    """A failed attempt, with names."""


class Letter(DeadLetter, array_like=False, frozen=True, kw_only=True):
    """A dead letter with names, as JSON has it."""

    failures: Sequence[LetterFailure] = ()  # type: ignore[assignment]

    @classmethod
    def of(cls, letter: DeadLetter) -> Self:
        """The same, with names."""
        failures = tuple(LetterFailure(one.at, one.kind, one.detail) for one in letter.failures)
        return cls(**msgspec.structs.asdict(letter) | {"failures": failures})


def letters_table(letters: Sequence[Letter], reasons: Mapping[str, int]) -> str:
    """Some dead letters, the newest first, and how many there are for each reason."""
    total = sum(reasons.values())
    if not total:
        return "No dead letters."
    has_runs = any(one.run for one in letters)
    rows = [
        (moment(one.failed_at), one.reason, str(one.attempts), *([one.run or "-"] if has_runs else ()), _named(one))
        for one in letters
    ]
    headings = ("failed at", "reason", "attempts", *(["run"] if has_runs else ()), "URL")
    lines = [table(headings, rows, left=len(headings)), ""]
    lines.append(f"{counted(total, 'dead letter')}: {named(reasons)}")
    if len(letters) < total:
        lines.append(f"shown: the newest {number(len(letters))} (--limit N for more; --json has all)")
    return "\n".join(lines)


def _named(letter: DeadLetter) -> str:
    """Its URL, and the method that is no GET."""
    method = letter.request.method if letter.request else GET
    return letter.url if method == GET else f"{method} {letter.url}"


def letter_text(letter: Letter) -> str:
    """Everything about one dead letter, with each attempt, and the traceback of a handler's failure."""
    pairs = [
        ("url", letter.url),
        ("reason", f"{letter.reason}{f' ({letter.detail})' if letter.detail else ''}"),
        ("failed at", moment(letter.failed_at)),
        ("attempts", str(letter.attempts)),
        ("domain", letter.domain if letter.queue == letter.domain else f"{letter.domain}, queue {letter.queue}"),
        ("depth", f"{letter.depth}{', a seed' if letter.seed else ''}"),
        *([("request", request_text(letter.request))] if letter.request else []),
        *([("label", letter.label)] if letter.label else []),
        *([("run", letter.run)] if letter.run else []),
    ]
    rows = [
        (str(n), moment(failure.at), failure.kind, failure.detail) for n, failure in enumerate(letter.failures, start=1)
    ]
    attempts = f"\n\n{table(('attempt', 'failed', 'kind', 'detail'), rows, left=4)}" if rows else ""
    # Indented: what an exception quotes of a page can't look like one of the lines above.
    trace = f"\n\n{indent(letter.trace, '  ')}" if letter.trace else ""
    return facts(pairs) + attempts + trace
