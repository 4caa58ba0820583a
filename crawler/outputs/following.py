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

from crawler.archive.folder import CrawlFolder
from crawler.archive.tail import new_chunks
from crawler.errors import ArchiveError, CrawlerError, UsageError
from crawler.outputs.cursor import Cursor, cursor_path
from crawler.outputs.exporting import export
from crawler.outputs.files import is_at
from crawler.outputs.naming import Kind, Target
from crawler.outputs.opening import open_growing
from crawler.outputs.records import Source, rows_of
from crawler.outputs.sink import OutputAway, OutputEnded, Sink

log = logging.getLogger(__name__)

EVERY_S = 1.0
PAUSE_MAX_S = 30.0  # between two tries while a target is away
FINISH_S = 10.0  # at the end a target that is away is waited for so long
JOIN_S = 60.0  # and one that takes what it is given, but not a part of it in such a time
BATCH_ROWS = 1000
LOCK_TIMEOUT_S = 2.0

Warn = Callable[[str], None]


class Follower:
    """One target. `open` where its errors are wanted, `start`, and `finish` once the index is complete."""

    def __init__(
        self, folder: CrawlFolder, target: Target, source: Source, *, warn: Warn, stdout: IO[bytes] | None = None
    ) -> None:
        self.target = target
        self.problem: Exception | None = None  # what keeps it from being complete now
        self._folder, self._source, self._warn, self._stdout = folder, source, warn, stdout
        self._held = contextlib.ExitStack()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"output {target.shown}", daemon=True)
        self._is_over = False
        self._chunks_done = 0
        self._sink: Sink | None = None  # after an error it is opened anew

    def open(self) -> None:
        """Go on where the last writer came to. Blocks; raises as opening does, ConflictError, ArchiveError."""
        path = None
        if self.target.kind is not Kind.STREAM:
            path = cursor_path(self._folder.outputs, self.target, self._source.shape.name)
            self._held.enter_context(self._folder.exclusive(f"output-{path.stem}", LOCK_TIMEOUT_S))
        self._cursor = self._held.enter_context(contextlib.closing(Cursor(path)))
        self._sink = self._opened()

    def _opened(self) -> Sink:
        """The target where the cursor says that it ends; the cursor begins anew when it is another target now."""
        mark = self._cursor.mark
        if self.target.kind is Kind.LINES and not (mark and self.target.path and is_at(self.target.path, mark)):
            mark = None
            self._cursor.reset()
        sink = open_growing(self.target, self._source.shape, mark, self._stdout)
        if getattr(sink, "is_new_table", False):
            self._cursor.reset()
        return sink

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
        self.close()
        return self.problem or _of_lost(self._source)

    def close(self) -> None:
        """Let go of target, cursor and lock."""
        if self._sink is not None:
            self._sink.close()
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
            except OutputEnded:
                self._is_over = True
            except (OutputAway, ArchiveError) as error:
                self._is_away(error)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
                # A stream took a part, and nobody knows which.
                self._is_over = self.target.kind is Kind.STREAM or time.monotonic() >= deadline_s
                if is_last and not self._is_over:
                    time.sleep(EVERY_S)
            except Exception as error:  # noqa: BLE001 - a thread has nobody above it: `finish` hands it on
                self.problem, self._is_over = error, True
                if isinstance(error, CrawlerError):
                    self._warn(f"{error}; this output has ended, the crawl goes on")

    def step(self, *, is_last: bool = False) -> None:
        """Write what is new. What was not committed when an error is raised is new again."""
        if self._sink is None:
            self._sink = self._reopened()
        try:
            self._cursor.begin()
            self._write_all(self._sink, is_last=is_last)
        except BaseException:
            self._sink.close()
            self._sink = None
            self._cursor.rollback()
            raise

    def _write_all(self, sink: Sink, *, is_last: bool) -> None:
        rows = 0
        for chunk in new_chunks(self._folder, self._cursor.places):
            batch = [row for entry in self._cursor.news(chunk) for row in rows_of(self._source, entry)]
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
            return self._opened()
        except UsageError as error:  # it could be written before: that may come back
            raise OutputAway(str(error)) from None

    def _is_away(self, error: CrawlerError) -> None:
        if self.problem is None:
            log.warning("output.away", extra={"target": self.target.shown, "why": str(error)})
            self._warn(f"{error}; the crawl goes on, and what is found waits in the crawl folder")
        self.problem = error

    def _goes_on(self) -> None:
        if self.problem is not None:
            self._warn(f"{self.target.shown} goes on")
        self.problem = None


class AtTheEnd:
    """A target that can only be written whole: done when the crawl has ended."""

    def __init__(self, folder: CrawlFolder, target: Target, source: Source) -> None:
        self.target = target
        self._folder, self._source = folder, source

    def open(self) -> None:
        """There is nothing to go on with."""

    def start(self) -> None:
        """Nor to be done meanwhile."""

    def close(self) -> None:
        self._source.close()

    def finish(self) -> Exception | None:
        try:
            export(self._folder, [self.target], self._source)
        except CrawlerError as error:
            return error
        return _of_lost(self._source)


def _of_lost(source: Source) -> ArchiveError | None:
    lost = source.lost()
    if not lost:
        return None
    pages = sum(one.entries for one in lost)
    return ArchiveError(f"{source.shape.name} of {pages:,} pages could not be read ({lost[0].file}: {lost[0].reason})")


class Outputs:
    """All targets of a command, each with a source of its own. Blocks; `warn` may be called from other threads."""

    def __init__(
        self, folder: CrawlFolder, targets: Sequence[Target], source_of: Callable[[], Source], *, warn: Warn
    ) -> None:
        self._all = [
            AtTheEnd(folder, target, source_of())
            if target.kind is Kind.PARQUET
            else Follower(folder, target, source_of(), warn=warn)
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
