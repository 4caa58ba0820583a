"""Dead letters as text and as JSON."""

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

import msgspec

from crawler.frontier.codec import DeadLetter
from crawler.reports.crawl_report import named
from crawler.terminal.tables import facts, table
from crawler.terminal.wording import counted, moment, number


def letters_table(letters: Sequence[DeadLetter], reasons: Mapping[str, int]) -> str:
    """Some dead letters, the newest first, and how many there are for each reason."""
    total = sum(reasons.values())
    if not total:
        return "No dead letters."
    rows = [(moment(one.failed_at), one.reason, str(one.attempts), one.url) for one in letters]
    lines = [table(("failed at", "reason", "attempts", "URL"), rows, left=4), ""]
    lines.append(f"{counted(total, 'dead letter')}: {named(reasons)}")
    if len(letters) < total:
        lines.append(f"shown: the newest {number(len(letters))} (--limit N for more; --json has all)")
    return "\n".join(lines)


def letter_text(letter: DeadLetter) -> str:
    """Everything about one dead letter, with each attempt, and the traceback of a handler's failure."""
    pairs = [
        ("url", letter.url),
        ("reason", f"{letter.reason}{f' ({letter.detail})' if letter.detail else ''}"),
        ("failed at", moment(letter.failed_at)),
        ("attempts", str(letter.attempts)),
        ("domain", letter.domain if letter.queue == letter.domain else f"{letter.domain}, queue {letter.queue}"),
        ("depth", f"{letter.depth}{', a seed' if letter.seed else ''}"),
        *([("label", letter.label)] if letter.label else []),
    ]
    rows = [
        (str(n), moment(failure.at), failure.kind, failure.detail) for n, failure in enumerate(letter.failures, start=1)
    ]
    attempts = f"\n\n{table(('attempt', 'failed', 'kind', 'detail'), rows, left=4)}" if rows else ""
    # Indented: what an exception quotes of a page can't look like one of the lines above.
    trace = f"\n\n{indent(letter.trace, '  ')}" if letter.trace else ""
    return facts(pairs) + attempts + trace


def letter_json(letter: DeadLetter) -> dict[str, Any]:
    """Everything, with names; times in s since 1970."""
    failures = [msgspec.structs.asdict(failure) for failure in letter.failures]
    return msgspec.structs.asdict(letter) | {"failures": failures}
