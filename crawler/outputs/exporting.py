"""One export: all committed records, each once, into every target. Nothing is left of one that fails.

Memory is bounded by the index reader's and by a batch of rows.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.reader import IndexReader, MissingFile
from crawler.outputs.naming import Target
from crawler.outputs.opening import open_whole
from crawler.outputs.records import Source, committed_at, rows_of
from crawler.outputs.sink import OutputEnded, Row

BATCH_ROWS = 1000


class ExportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and what could not be reached (by name: never passed over)."""

    records: int
    by_status: dict[int, int]  # of the pages that they are of
    missing: list[MissingFile] = msgspec.field(default_factory=list)


def export(
    folder: CrawlFolder,
    targets: Sequence[Target],
    source: Source,
    *,
    since: float = 0.0,
    stdout: IO[bytes] | None = None,
) -> ExportSummary:
    """Write the records of all pages that were committed at `since` (wall time, seconds) or later.

    Raises UsageError for a target that can't be written, before any work; OutputError and ArchiveError when one
    fails. A reader that closes standard output early ends the export without an error.
    """
    reader = IndexReader(folder)
    by_status: Counter[int] = Counter()
    records = 0
    with contextlib.ExitStack() as stack:
        sinks = [stack.enter_context(contextlib.closing(open_whole(one, source.shape, stdout))) for one in targets]
        rows = _rows(reader, source, since, by_status)
        with contextlib.suppress(OutputEnded):
            while batch := list(islice(rows, BATCH_ROWS)):
                for sink in sinks:
                    sink.write(batch)
                records += len(batch)
        for sink in sinks:
            with contextlib.suppress(OutputEnded):
                sink.commit()
    return ExportSummary(records=records, by_status=dict(sorted(by_status.items())), missing=source.missing(reader))


def _rows(reader: IndexReader, source: Source, since: float, by_status: Counter[int]) -> Iterator[Row]:
    for entry in reader.entries():
        if committed_at(entry) >= since:
            by_status[entry.status] += 1
            yield from rows_of(source, entry)
