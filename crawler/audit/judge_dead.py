"""Judges dead letters that are the program's fault: a page is given up as the end of processes only if some crash is on
record that names it, in the logs of the instances that found the dead session.

Must not know who wrote the letters.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence

from crawler.archive.folder import CrawlFolder
from crawler.archive.inflight_log import beginning_of
from crawler.audit.findings import Report
from crawler.frontier.dead_letters import DeadLetters
from crawler.model import FailureKind
from crawler.rules.poison import GIVEN_UP_AT

STALLED, DIED = "session.stalled", "session.died"  # events of membership/peers.py

FAULTS = frozenset({FailureKind.INTERNAL, FailureKind.POISON_URL})


async def judge_dead(letters: DeadLetters, folders: Sequence[CrawlFolder], report: Report) -> None:
    """Pages that were given up although nothing is on record against them; how many the program failed on, and how many
    were never requested because their host was silent.
    """
    crashes: Counter[str] | None = None
    async for some in letters.read():
        for one in some:
            url = one.letter.url
            if one.letter.reason == FailureKind.HOST_DEAD:
                report.findings.unrequested.add(url=url, reason=one.letter.detail)
            if one.letter.reason not in FAULTS:
                continue
            report.findings.faults.add(url=url, reason=f"{one.letter.reason}: {one.letter.detail}")
            if one.letter.reason == FailureKind.POISON_URL:
                crashes = _crashes(folders) if crashes is None else crashes
                if (known := crashes[beginning_of(url).decode("utf-8", "replace")]) < GIVEN_UP_AT:
                    reason = f"dead letter for crashes, and {known} of {GIVEN_UP_AT} crashes are on record"
                    report.findings.blamed.add(url=url, reason=reason)


def _crashes(folders: Sequence[CrawlFolder]) -> Counter[str]:
    """By URL: how many are on record. A stall counts as all that it takes."""
    found: Counter[str] = Counter()
    for folder in folders:
        for file in sorted(folder.log.glob("*.log")):
            with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
                for event, urls in _events(lines):
                    found.update(dict.fromkeys(urls, GIVEN_UP_AT if event == STALLED else 1))
    return found


def _events(lines: Iterator[str]) -> Iterator[tuple[str, list[str]]]:
    for line in lines:
        if STALLED in line or DIED in line:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                if event["event"] in (STALLED, DIED):
                    yield event["event"], [str(url) for url in event["urls"]]
