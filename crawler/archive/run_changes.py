"""What changed between runs of a job, by the index: pages that are new, gone, or have another answer. Streams.

The index is sorted by URL, so a run is compared with others in one pass, and only the lines of one URL are in memory.
Answers differ when the status, the digest of the body or the target of a redirect does. That of a page which its site
said to be unchanged is the archived one.
"""

import enum
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.index import key_of
from crawler.model import CommitEntry
from crawler.rules.job_runs import RunName, job_of, name_of

OK = 200
Page = tuple[str, str]  # URL, and what tells its request apart from a GET


def no_page_of(run: str, folder: CrawlFolder) -> str:
    """What is said of a run that is not known, or whose pages were never here."""
    return f"no page of run {run} in {folder.root}: 'crawler jobs history NAME' has the runs of a job"


class Change(enum.StrEnum):
    """What became of a page from one run to another."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"  # one of both was removed by a prune


class Answer(NamedTuple):
    """What pages are compared by."""

    status: int
    digest: str
    redirect_to: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A page of two runs, with the status that it had in each; 0: it was not in that one."""

    url: str
    change: Change
    status_before: int = 0
    status: int = 0


def answer_of(entry: CommitEntry) -> Answer:
    """The answer that a site gave, if not now, then to an earlier run."""
    status = entry.status if entry.original is None else OK
    return Answer(status, entry.digest, entry.redirect_to)


def order_of(run: str) -> tuple[int, bool, int]:
    """By which runs of a job follow each other."""
    name = name_of(run) or RunName("", 0, 0, is_manual=False, attempt=0)
    return name.nominal, name.is_manual, name.attempt


def changed_pages(entries: Iterable[CommitEntry], run: str) -> Iterator[CommitEntry]:
    """The pages of a run that no earlier run of its job had, or the last one of these otherwise; with what is left of
    those that were pruned. `entries` are in the order of the index.
    """
    job, place = job_of(run), order_of(run)
    for group in _by_url(one for one in entries if job_of(one.run) == job):
        mine, earlier = list[CommitEntry](), dict[Page, CommitEntry]()
        for entry in group:
            if entry.run == run:
                mine.append(entry)
            elif not entry.pruned and order_of(entry.run) < place:
                known = earlier.get(_page(entry))
                if known is None or order_of(known.run) < order_of(entry.run):
                    earlier[_page(entry)] = entry
        for entry in mine:
            before = earlier.get(_page(entry))
            if entry.pruned or before is None or answer_of(before) != answer_of(entry):
                yield entry


def differences(entries: Iterable[CommitEntry], before: str, after: str) -> Iterator[Difference]:
    """Each page of two runs, and what became of it. `entries` are in the order of the index, with the pruned ones."""
    for group in _by_url(one for one in entries if one.run in (before, after) and one.is_page):
        found: dict[Page, dict[str, CommitEntry]] = {}
        for entry in group:
            found.setdefault(_page(entry), {})[entry.run] = entry
        for (url, _), runs in found.items():
            one, other = runs.get(before), runs.get(after)
            yield Difference(
                url=url, change=_change(one, other), status_before=answer_of(one).status if one else 0,
                status=answer_of(other).status if other else 0,
            )  # fmt: skip


def _change(before: CommitEntry | None, after: CommitEntry | None) -> Change:
    if before is None:
        return Change.ADDED
    if after is None:
        return Change.REMOVED
    if before.pruned or after.pruned:
        return Change.UNKNOWN
    return Change.UNCHANGED if answer_of(before) == answer_of(after) else Change.CHANGED


def _by_url(entries: Iterable[CommitEntry]) -> Iterator[Iterable[CommitEntry]]:
    """Groups of lines with one key: those of one URL and request are in one group."""
    for _, group in groupby(entries, key=key_of):
        yield group


def _page(entry: CommitEntry) -> Page:
    return entry.url, entry.request.identity if entry.request else ""
