"""Reads the history of crawl folders: the attempts at one URL, or at the URLs of one domain, in the order of time.

Looks for the bytes first and decodes the lines that have them. Torn lines are passed over. Works while sessions write.
"""

import contextlib
import heapq
import mmap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from crawler.archive.crawl_folder import CrawlFolder
from crawler.archive.history import segments, session_of
from crawler.archive.history_lines import Attempt, needle_of, to_attempt


def attempts(folders: Sequence[CrawlFolder], *, url: str = "", domain: str = "") -> Iterator[Attempt]:
    """Attempts at a canonical URL, or at all URLs of a domain, as their ends became known: those of one moment in any
    order. Memory: a line of each session.
    """
    field, value = ("url", url) if url else ("domain", domain)
    needle = needle_of(field, value)
    found = (
        _of_session(list(mine), needle) for folder in folders for _, mine in groupby(segments(folder), key=session_of)
    )
    for attempt in heapq.merge(*found, key=lambda attempt: attempt.last_at):
        if getattr(attempt, field) == value:
            yield attempt


def kept_since(folders: Iterable[CrawlFolder]) -> float:
    """When the oldest attempt ended that is still there (wall clock, s); 0 when there is none."""
    begins = (_first(path) for folder in folders for path in segments(folder))
    return min((attempt.last_at for attempt in begins if attempt), default=0.0)


def _of_session(paths: Sequence[Path], needle: bytes) -> Iterator[Attempt]:
    for path in paths:
        for line in _lines_with(path, needle):
            attempt = to_attempt(line)
            if attempt is not None:
                yield attempt


def _lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    with _mapped(path) as data:
        at = data.find(needle)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if end < 0:
                return  # torn, or not yet written to its end
            yield bytes(data[begin:end])
            at = data.find(needle, end)


def _mapped(path: Path) -> "mmap.mmap | contextlib.nullcontext[bytes]":
    """The bytes of a segment: none when it has gone, or nothing stands in it yet."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # an empty file can't be mapped
        return contextlib.nullcontext(b"")


def _first(path: Path) -> Attempt | None:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return to_attempt(file.readline())
    return None
