"""Outputs of a running crawl: each target is kept up to date by a thread that follows the index of the folder.

One writer for each target and folder, under a lock. A target that does not take anything for a while is tried again,
and the records wait in the crawl folder meanwhile. Must not know how pages get into the index.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index_reader import MissingFile, new_chunks, segment_names
from crawler.archive.index_writer import serials_missing
from crawler.errors import ArchiveError, ConflictError, CrawlerError, OutputError, UsageError
from crawler.outputs.cursor import Cursor, cursor_path, lock_of
from crawler.outputs.export import difference, export
from crawler.outputs.files import GrowingSink, is_at
from crawler.outputs.opening import open_growing
from crawler.outputs.records import RecordSource, ahead, rows_of
from crawler.outputs.sink import OutputAway, OutputEnded, Row, Sink, TableSink, TargetChanged
from crawler.outputs.target import Target, TargetKind
from crawler.outputs.writer_lock import set_aside, writing
from crawler.terminal.words import counted

log = logging.getLogger(__name__)

EVERY_S = 1.0
PAUSE_MAX_S = 30.0  # between two attempts while a target is not available
FINISH_S = 10.0  # how long the end waits for a target that is not available
JOIN_S = 60.0  # and one that takes what it is given, but not a part of it in such a time
BATCH_ROWS = 1000
CHANGES_MAX = 3  # by other programs, in one look
LOCK_TIMEOUT_S = 2.0

Warn = Callable[[str], None]


class Follower:
    """One target. `open` where its errors are wanted, `start`, and `finish` once the index is complete."""

    def __init__(
        self, folder: CrawlFolder, target: Target, source: RecordSource, *, warn: Warn, stdout: IO[bytes] | None = None
    ) -> None:
        self.target = target
        self.problem: Exception | None = None  # what keeps it from being complete now
        self.notes: list[str] = []  # what people should know of it at the end, though it is complete
        self._folder, self._source, self._warn, self._stdout = folder, source, warn, stdout
        self._held = contextlib.ExitStack()
        self._is_alone: Callable[[], bool] = lambda: True
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"output {target.shown}", daemon=True)
        self._changed = ""  # how, by another program, since the last look
        self._is_over = False
        self._chunks_done = 0
        self._sink: Sink | None = None  # after an error it is opened again

    def open(self) -> None:
        """Go on where the last writer came to. Blocks; raises as opening does, ConflictError, ArchiveError."""
        path = None
        if self.target.kind is TargetKind.LINES and self.target.path is not None:
            self._is_alone = self._held.enter_context(_alone(self.target, self._folder))
        if self.target.kind is not TargetKind.STREAM:
            path = cursor_path(self._folder.outputs, self.target, self._source.shape.name)
            self._held.enter_context(self._folder.exclusive(lock_of(path), LOCK_TIMEOUT_S))
        self._cursor = self._held.enter_context(contextlib.closing(Cursor(path)))
        self._cursor.retry_lost()
        self._sink = self._opened(was_closed=self._cursor.was_closed)
        self._cursor.set_closed(is_closed=False)

    def _opened(self, *, was_closed: bool) -> Sink:
        """The target where the cursor says that it ends; the cursor starts over when it is another target now.

        `was_closed`: nothing behind that is ours.
        """
        cursor, mark, path = self._cursor, self._cursor.mark, self.target.path
        if self.target.kind is not TargetKind.LINES or path is None:
            sink = open_growing(self.target, self._source.shape, None, self._stdout)
            if getattr(sink, "is_new_table", False):
                cursor.reset()
            if self._changed:
                self._tell(f"{self._changed}: all its records are written again")
            return sink
        if mark is not None and not is_at(path, mark, ends=was_closed):
            after = cursor.successor()
            if after is not None and is_at(path, after, ends=was_closed):
                cursor.begin()
                cursor.commit(after)
                mark = after
        if mark is not None and is_at(path, mark, ends=was_closed):
            return open_growing(self.target, self._source.shape, mark, on_replace=cursor.note_next)
        may_replace = cursor.ours is not None and is_at(path, cursor.ours, ends=True)
        lines = open_growing(
            self.target, self._source.shape, None, may_replace=may_replace, on_replace=cursor.note_next
        )
        assert isinstance(lines, GrowingSink)
        cursor.reset()
        cursor.begin()
        cursor.commit(lines.mark)
        if lines.moved_to is not None or (mark is not None and mark.length and not may_replace):
            kept = f"; the old content is now {lines.moved_to}" if lines.moved_to else ""
            why = self._changed or f"{self.target.shown} was changed since this crawl wrote it"
            self._tell(f"{why}: all its records are written again{kept}")
        elif self._changed:
            self._tell(f"{self._changed}: all its records are written again")
        return lines

    def _tell(self, line: str) -> None:
        self._changed = ""
        log.warning("output.changed", extra={"target": self.target.shown, "what": line})
        self.notes.append(line)
        self._warn(line)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> Exception | None:
        """Write what is left and close; blocks. Why it is not complete, if it is not."""
        self._stopping.set()
        done = -1
        while self._thread.is_alive():
            if done == self._chunks_done:
                return OutputAway(f"no answer from {self.target.shown}")
            done = self._chunks_done
            self._thread.join(JOIN_S)
        self.notes += self._source.remarks()
        self.close()
        return self.problem or _of_lost(self._source)

    def close(self) -> None:
        """Let go of target, cursor and lock."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
            with contextlib.suppress(ArchiveError):
                self._cursor.set_closed(is_closed=True)
        self._source.close()
        self._held.close()

    # --- the thread ---

    def _run(self) -> None:
        pause_s, deadline_s = EVERY_S, float("inf")
        while not self._is_over:
            is_last = self._stopping.wait(pause_s)
            if is_last:
                deadline_s = min(deadline_s, time.monotonic() + FINISH_S)
            try:
                self.step(is_last=is_last)
                self._goes_on()
                self._is_over, pause_s = is_last, EVERY_S
                if is_last:
                    self._conclude()
            except OutputEnded:
                self._is_over = True
            except (OutputAway, ArchiveError) as error:
                self._is_away(error)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
                # A stream took a part, and nobody knows which.
                self._is_over = self.target.kind is TargetKind.STREAM or time.monotonic() >= deadline_s
                if is_last and not self._is_over:
                    time.sleep(EVERY_S)
            except Exception as error:  # noqa: BLE001 - a thread has nobody above it: `finish` hands it on
                self.problem, self._is_over = error, True
                if isinstance(error, CrawlerError):
                    self._warn(f"{error}; this output has ended, the crawl continues")

    def _conclude(self) -> None:
        """Problems at the end are returned by `finish`."""
        try:
            self._reconcile()
        except OutputAway:
            raise
        except (OutputError, ArchiveError) as error:
            self.problem = error

    def step(self, *, is_last: bool = False) -> None:
        """Write what is new. What was not committed when an error is raised is new again."""
        for _ in range(CHANGES_MAX):
            try:
                self._step(is_last=is_last)
                return
            except TargetChanged as error:
                self._start_over(error)
        raise OutputAway(f"{self.target.shown} is repeatedly changed by another program")

    def _step(self, *, is_last: bool) -> None:
        if self._sink is None:
            self._sink = self._reopened()
        try:
            self._cursor.begin()
            with self._folder.reading():
                self._write_all(self._sink, is_last=is_last)
        except BaseException:
            self._sink.close()
            self._sink = None
            self._cursor.rollback()
            raise

    def _start_over(self, error: TargetChanged) -> None:
        """Somebody else wrote there: nobody knows what of ours is left."""
        self._changed = str(error)
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._cursor.reset(self._cursor.ours)

    def _reconcile(self) -> None:
        """Count what is there. Raises OutputError when it is not what was taken from the index, and ArchiveError when
        that was not all that the index must have: each segment, and as many lines as its footer says.
        """
        for _ in range(CHANGES_MAX):
            try:
                self._compare()
                return
            except TargetChanged as error:
                self._start_over(error)
                self.step(is_last=True)
        raise OutputAway(f"{self.target.shown} is repeatedly changed by another program")

    def _compare(self) -> None:
        if self._sink is None:
            return
        total, found = self._cursor.total(), self._sink.found(self._cursor.wanted(), self._pulse)
        if found != total:
            self._sink.close()
            self._sink = None
            self._cursor.reset(self._cursor.mark or self._cursor.ours)  # the next one starts over
            raise difference(self.target, self._source.shape.name, found, total)
        records, pages = self._cursor.lost()
        if records:  # now, or when another command met them
            raise _of_lost(self._source) or ArchiveError(
                f"{records:,} {self._source.shape.name} of {pages:,} pages could not be read"
            )
        if missing := serials_missing(self._folder, segment_names(self._folder)):
            raise ArchiveError(f"{self._folder.index.name}/{missing[0]}: not found: 'crawler rebuild' mends it")
        for name, flaws in self._cursor.damaged().items():
            raise ArchiveError(
                f"{self._folder.index.name}/{name} has {counted(flaws, 'flaw')}: 'crawler rebuild' names and mends them"
            )

    def _pulse(self) -> None:
        """Counting takes its time, too."""
        self._chunks_done += 1

    def _write_all(self, sink: Sink, *, is_last: bool) -> None:
        rows, count_of = 0, self._source.count_of
        for chunk in new_chunks(self._folder, self._cursor.places):
            batch: list[Row] = []
            news = self._cursor.news(chunk, count_of)
            if self._cursor.has_old_rows and isinstance(sink, TableSink):
                news = iter(found := list(news))
                sink.remove([(int(entry.fingerprint), entry.visit) for entry in found])
                rows += len(found)
            for entry in ahead(self._source, news):
                before = len(batch)
                batch += rows_of(self._source, entry)
                if lost := count_of(entry) - (len(batch) - before):
                    self._cursor.note_lost(entry, len(batch) - before, lost)
            if batch:
                sink.write(batch)
            rows += len(batch)
            self._chunks_done += 1
            if rows >= BATCH_ROWS:
                self._cursor.commit(sink.commit())
                self._cursor.begin()
                rows = 0
        self._cursor.commit(sink.commit() if rows or is_last else None)

    def _reopened(self) -> Sink:
        try:
            if not self._is_alone():
                self._is_alone = self._held.enter_context(_alone(self.target, self._folder))
            return self._opened(was_closed=True)  # a sink that is closed leaves nothing behind its mark
        except (UsageError, ConflictError) as error:  # it could be written before: that may come back
            raise OutputAway(str(error)) from None

    def _is_away(self, error: CrawlerError) -> None:
        if self.problem is None:
            log.warning("output.away", extra={"target": self.target.shown, "why": str(error)})
            self._warn(f"{error}; the crawl continues, and its results wait in the crawl folder")
        self.problem = error

    def _goes_on(self) -> None:
        if self.problem is not None:
            self._warn(f"{self.target.shown} is being written again")
        self.problem = None


class AtTheEnd:
    """A target that can only be written whole: done when the crawl has ended."""

    def __init__(self, folder: CrawlFolder, target: Target, source: RecordSource, *, warn: Warn) -> None:
        self.target = target
        self.notes: list[str] = []
        self._folder, self._source, self._warn = folder, source, warn
        self._held = contextlib.ExitStack()

    def open(self) -> None:
        """Be its only writer from now on."""
        self._is_alone = self._held.enter_context(_alone(self.target, self._folder))
        path = cursor_path(self._folder.outputs, self.target, self._source.shape.name)
        self._cursor = self._held.enter_context(contextlib.closing(Cursor(path)))

    def start(self) -> None:
        """There is nothing to be done meanwhile."""

    def close(self) -> None:
        self._source.close()
        self._held.close()

    def finish(self) -> Exception | None:
        try:
            if not self._is_alone():
                self._held.enter_context(_alone(self.target, self._folder))
            self._make_room()
            summary = export(self._folder, [self.target], self._source, is_alone=True)
            self._cursor.reset(summary.marks.get(self.target.shown))
            self._cursor.note_whole()
            self.notes += self._source.remarks()
        except CrawlerError as error:
            return error
        finally:
            self.close()
        return _of_lost(self._source) or _of_index(summary.missing)

    def _make_room(self) -> None:
        """Somebody else's file is not overwritten. Raises ArchiveError."""
        path, ours = self.target.path, self._cursor.ours
        if path is None or not path.exists() or not path.stat().st_size or (ours and is_at(path, ours, ends=True)):
            return
        try:
            moved_to = set_aside(path.resolve())
        except OSError as error:
            raise archive_error("write", path, error) from None
        line = f"{self.target.shown} was changed since this crawl wrote it; the old content is now {moved_to}"
        log.warning("output.changed", extra={"target": self.target.shown, "what": line})
        self.notes.append(line)
        self._warn(line)


def _alone(target: Target, folder: CrawlFolder) -> contextlib.AbstractContextManager[Callable[[], bool]]:
    assert target.path is not None
    return writing(target.path, target.shown, str(folder.root.resolve()))


def _of_index(missing: Sequence[MissingFile]) -> ArchiveError | None:
    index = [one for one in missing if not one.entries]
    return ArchiveError(f"{index[0].file}: {index[0].reason}: 'crawler audit' names what is damaged") if index else None


def _of_lost(source: RecordSource) -> ArchiveError | None:
    lost = source.lost()
    if not lost:
        return None
    pages = sum(one.entries for one in lost)
    return ArchiveError(f"{source.shape.name} of {pages:,} pages could not be read ({lost[0].file}: {lost[0].reason})")


class Outputs:
    """All targets of a command, each with a source of its own. Blocks; `warn` may be called from other threads."""

    def __init__(
        self,
        folder: CrawlFolder,
        targets: Sequence[Target],
        source_of: Callable[[], RecordSource],
        *,
        warn: Warn,
        stdout: IO[bytes] | None = None,
    ) -> None:
        self._all = [
            AtTheEnd(folder, target, source_of(), warn=warn)
            if target.kind is TargetKind.PARQUET
            else Follower(folder, target, source_of(), warn=warn, stdout=stdout)
            for target in targets
        ]

    def start(self) -> None:
        """Open all, then start all. Raises CrawlerError kinds; nothing runs then."""
        with contextlib.ExitStack() as opened:
            for one in self._all:
                opened.callback(one.close)
                one.open()
            opened.pop_all()
        for one in self._all:
            one.start()

    def finish(self) -> list[Exception]:
        """Write what is left; what kept a target from being complete, for each that is not."""
        problems = [one.finish() for one in self._all]
        return [problem for problem in problems if problem is not None]

    @property
    def notes(self) -> list[str]:
        """What people should know of targets that are complete."""
        return [line for one in self._all for line in one.notes]
