"""The commits that were written to an index last: what an engine knows, unless it was set back, and who answered."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index import to_entry
from crawler.archive.index_reader import segment_names

SAMPLED_SEGMENTS, SAMPLED_LINES = 4, 128
TOGETHER_S = 10.0  # what several sessions wrote within this time is read at once


class LastCommit(NamedTuple):
    """A line of the index; `number`: of the commit in its partition. `at_s`: wall clock."""

    url: str
    number: int
    at_s: float


def newest_first(folder: CrawlFolder) -> Iterator[list[LastCommit]]:
    """The commits of whole segments, those first that were written to last. Raises ArchiveError.

    A segment's time is that of its file: no line of it is newer. Lines of pruned pages have no number and are left out.
    """
    written = sorted(_times(folder), reverse=True)
    newest_s = written[0][0] if written else 0.0
    together = [name for at_s, name in written if at_s >= newest_s - TOGETHER_S]
    groups = itertools.chain([together] if together else [], ([name] for _, name in written[len(together) :]))
    for names in groups:
        yield [commit for name in names for commit in _commits(folder.index / name)]


def sample(folder: CrawlFolder, *, since_s: float) -> list[LastCommit]:
    """Some commits since then (wall clock), of all over the newest segments, and only a few of their lines are read.
    Raises ArchiveError.
    """
    found: list[LastCommit] = []
    for _, name in sorted(_times(folder), reverse=True)[:SAMPLED_SEGMENTS]:
        path = folder.index / name
        try:
            lines = _some_lines(path)
        except OSError as error:
            raise archive_error("read", path, error) from None
        found += _numbered(lines)
    return [one for one in found if one.at_s >= since_s]


def _some_lines(path: Path) -> Iterable[bytes]:
    size, lines = path.stat().st_size, dict[bytes, None]()
    with path.open("rb") as file:
        for n in range(SAMPLED_LINES):
            file.seek(size * n // SAMPLED_LINES)
            file.readline()  # the rest of one
            lines[file.readline()] = None
    return lines


def _times(folder: CrawlFolder) -> Iterator[tuple[float, str]]:
    for name in segment_names(folder):
        try:
            yield (folder.index / name).stat().st_mtime, name
        except FileNotFoundError:  # sealed since
            yield _sealed(folder.index / name).stat().st_mtime, _sealed(folder.index / name).name


def _sealed(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(OPEN_SUFFIX))


def _commits(path: Path) -> Iterator[LastCommit]:
    """Damaged lines are left out: they tell nothing, and others report them."""
    try:
        lines = _lines(path)
    except OSError as error:
        raise archive_error("read", path, error) from None
    yield from _numbered(lines)


def _numbered(lines: Iterable[bytes]) -> Iterator[LastCommit]:
    for line in lines:
        entry = to_entry(line)
        if entry is not None and entry.sequence:
            yield LastCommit(entry.url, entry.sequence, entry.times.get("archived", entry.fetched_at))


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return _sealed(path).read_bytes().splitlines(keepends=True)
