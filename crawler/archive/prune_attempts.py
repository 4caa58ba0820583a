"""Removes attempts from the history: it is for people, never synced, and read while it is written.

A segment is deleted, or replaced by one with the lines that stay. What a living session writes to stays.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from crawler.archive.folder import CrawlFolder, archive_error, open_private
from crawler.archive.history import CLOCK_SLACK_S, Attempt, needle_of, segments, session_of, to_attempt
from crawler.archive.prune_records import PruneRule


class AttemptFigures(NamedTuple):
    """What goes of the history. The bytes of its lines."""

    attempts: int = 0
    bytes: int = 0


def prune_attempts(
    folder: CrawlFolder, rule: PruneRule, *, is_alive: Callable[[str], bool], dry_run: bool
) -> AttemptFigures:
    """Remove attempts by time and domain; may be repeated after a crash at any point. Blocks. Raises ArchiveError.

    Where a rule is about runs, nothing goes: an attempt does not tell its run, and the history is bounded anyway.
    """
    if rule.runs is not None:
        return AttemptFigures()
    attempts = size = 0
    for path in _complete_segments(folder, is_alive):
        try:
            found = _prune_segment(folder, path, rule, dry_run=dry_run)
        except FileNotFoundError:
            continue  # the oldest go when a session needs room
        except OSError as error:
            raise archive_error("write", path, error) from None
        attempts, size = attempts + found.attempts, size + found.bytes
    return AttemptFigures(attempts, size)


def _complete_segments(folder: CrawlFolder, is_alive: Callable[[str], bool]) -> Iterator[Path]:
    for session, paths in groupby(segments(folder), key=session_of):
        mine = list(paths)
        yield from mine[:-1] if is_alive(session) else mine


def _prune_segment(folder: CrawlFolder, path: Path, rule: PruneRule, *, dry_run: bool) -> AttemptFigures:
    before = path.stat()
    attempts = size = 0
    draft = folder.tmp / path.name
    with path.open("rb") as old, contextlib.ExitStack() as stack:
        if not _may_match(old.readline(), rule):
            return AttemptFigures()
        old.seek(0)
        new = None if dry_run else stack.enter_context(open(draft, "wb", opener=open_private))
        for line in old:
            if _goes(line, rule):
                attempts, size = attempts + 1, size + len(line)
            elif new is not None:
                new.write(line)
    if not dry_run:
        if not attempts:
            draft.unlink()
        elif size == before.st_size:
            draft.unlink()
            path.unlink()
        else:
            os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))  # segments are sorted by their last write
            draft.replace(path)
    return AttemptFigures(attempts, size)


def _may_match(first: bytes, rule: PruneRule) -> bool:
    """Can a segment that begins with this line have any that go? A session writes them by time, but for the slack."""
    attempt = to_attempt(first)
    return attempt is None or not rule.before or attempt.last_at < rule.before + CLOCK_SLACK_S


def _goes(line: bytes, rule: PruneRule) -> bool:
    if rule.domain and needle_of("domain", rule.domain) not in line:
        return False
    attempt = to_attempt(line)
    return attempt is not None and _matches(attempt, rule)


def _matches(attempt: Attempt, rule: PruneRule) -> bool:
    if rule.before and attempt.last_at >= rule.before:
        return False
    return not rule.domain or attempt.domain == rule.domain
