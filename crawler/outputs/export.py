"""One export: all committed records, each once, into every target. Nothing is left of one that fails.

Memory is bounded by the index reader's and by a batch of rows.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader, MissingFile, index_bytes
from crawler.archive.run_changes import changed_pages, no_page_of
from crawler.errors import OutputError, UsageError
from crawler.model import CommitEntry
from crawler.outputs.cursor import note_ours
from crawler.outputs.opening import open_whole
from crawler.outputs.records import (
    DUPLICATE_OF,
    FINGERPRINT,
    RecordSource,
    ahead,
    committed_at,
    fingerprint_shown,
    rows_of,
)
from crawler.outputs.sink import Mark, OutputEnded, Row, Sink
from crawler.outputs.target import Target, TargetKind
from crawler.outputs.writer_lock import writing
from crawler.rules.page_columns import COLUMNS
from crawler.rules.progress import SILENT, Meter

if TYPE_CHECKING:
    from crawler.outputs.unique import Counts, Duplicates, Page

BATCH_ROWS = 1000
PULSE_PAGES = 16  # pages between two reports of progress: one takes from 10 us to 50 ms


class ExportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and what could not be reached (by name: never passed over)."""

    records: int
    by_status: dict[int, int]  # of the pages that they are of
    pruned: int = 0  # pages that are not there any more: of the run, or all where columns of bodies were asked for
    left_out: int = 0  # pages with a mark
    unique: "Counts | None" = None
    missing: list[MissingFile] = msgspec.field(default_factory=list)
    unchecked: int = 0  # lines of the index without a checksum
    marks: dict[str, Mark] = {}  # of files, by the names of their targets
    renamed: dict[str, str] = {}  # fields whose columns in a table have other names
    said: list[str] = []  # what targets have to say of what they wrote
    kept: list[str] = []  # targets that stay as they were: nothing was found, and something is in their files


def export(
    folder: CrawlFolder,
    targets: Sequence[Target],
    source: RecordSource,
    *,
    since: float = 0.0,
    run: str = "",
    changed: bool = False,
    unless: Sequence[str] = (),
    of_url: Callable[[str], bool] | None = None,
    unique: "Duplicates | None" = None,
    stdout: IO[bytes] | None = None,
    is_alone: bool = False,
    meter: Meter = SILENT,
) -> ExportSummary:
    """Write the records of all pages that were committed at `since` (wall time, seconds) or later; with `run`, only
    those of this run of a job, and with `changed` the ones of these that are new or other than in an earlier run;
    `unless`: without those that have one of these marks (noindex, truncated); `of_url`: only URLs of which this is
    true; `unique`: without duplicates among all these, or with them if the source has the column `duplicate_of`.

    Raises UsageError for a target that can't be written and ConflictError for one that another process is writing,
    before any work, and for a run of which nothing is known, before any target has changed; OutputError and
    ArchiveError when one fails, or lacks what it was given. A file that has something is not replaced by nothing: that
    of `is_alone` has what was written for this crawl, and is. A reader that closes
    standard output early ends the export without an error. `is_alone`: the caller has the locks of all targets.
    """
    reader = IndexReader(folder)
    by_status: Counter[int] = Counter()
    records = 0
    marks: dict[str, Mark] = {}
    renamed: dict[str, str] = {}
    said: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.reading())
        for one in targets if not is_alone else ():
            if one.kind in (TargetKind.LINES, TargetKind.PARQUET, TargetKind.FOLDER) and one.path is not None:
                stack.enter_context(writing(one.path, one.shown, str(folder.root.resolve())))
        sinks = [stack.enter_context(contextlib.closing(open_whole(one, source.shape, stdout))) for one in targets]
        going = list(zip(targets, sinks, strict=True))
        pruned, left_out = Counter[str](), Counter[str]()
        wanted = Wanted(since=since, run=run, changed=changed, unless=unless, of_url=of_url)
        entries = wanted_entries(
            reader, wanted, pruned, left_out, meter,
            counts_pruned=not COLUMNS.keys().isdisjoint(source.shape.columns),
        )  # fmt: skip
        rows = (
            _rows(source, by_status, entries)
            if unique is None
            else _unique_rows(source, by_status, unique.pages(entries, meter))
        )
        while going and (batch := list(islice(rows, BATCH_ROWS))):
            going = [(target, sink) for target, sink in going if _takes(sink, batch)]
            records += len(batch) if going else 0
        missing = source.missing(reader)
        if run and not (by_status or pruned[run] or changed or missing):
            raise UsageError(no_page_of(run, folder))
        kept = [target for target, _ in going if not (records or is_alone) and _has_something(target)]
        for target, sink in going:
            if target in kept:
                continue
            meter.begin(f"finishing {target.path.name if target.path else target.shown}")
            with contextlib.suppress(OutputEnded):
                mark = sink.commit()
                if mark is not None:
                    _check(target, source, sink, records)
                    marks[target.shown] = mark
                    if not is_alone:
                        note_ours(folder.outputs, target, source.shape.name, mark)
                renamed |= getattr(sink, "renamed", {})
                said += [line] if (line := getattr(sink, "said", "")) else []
    return ExportSummary(
        records=records,
        by_status=dict(sorted(by_status.items())),
        pruned=pruned[run] if run else pruned.total(),
        left_out=left_out.total(),
        unique=unique.counts if unique is not None else None,
        missing=missing,
        unchecked=reader.unchecked,
        marks=marks,
        renamed=renamed,
        said=said,
        kept=[target.shown for target in kept],
    )


def _has_something(target: Target) -> bool:
    return target.path is not None and target.path.is_file() and target.path.stat().st_size > 0


def _takes(sink: Sink, batch: list[Row]) -> bool:
    """Write rows; False when nobody reads the target any more. The others go on."""
    try:
        sink.write(batch)
    except OutputEnded:
        return False
    return True


def _check(target: Target, source: RecordSource, sink: Sink, records: int) -> None:
    """Read back how many records are in a file. Raises OutputError."""
    found = sink.found((), lambda: None)
    if found != records:
        raise difference(target, source.shape.name, found, records)


def difference(target: Target, what: str, found: int, wanted: int) -> OutputError:
    """What is said of a target that lacks records, or has too many."""
    return OutputError(f"{target.shown} has {found:,} {what} where the crawl has {wanted:,}")


def _rows(source: RecordSource, by_status: Counter[int], entries: Iterable[CommitEntry]) -> Iterator[Row]:
    """Counts pages by status."""
    for entry in ahead(source, entries):
        by_status[entry.status] += entry.is_page
        yield from rows_of(source, entry)


def _unique_rows(source: RecordSource, by_status: Counter[int], pages: "Iterable[Page]") -> Iterator[Row]:
    """Their columns are filled here, as far as the source has them."""
    columns = source.shape.columns
    for page in pages:
        if page.duplicate_of and DUPLICATE_OF not in columns:
            continue
        for row in _rows(source, by_status, (page.entry,)):
            if DUPLICATE_OF in columns:
                row.record[DUPLICATE_OF] = page.duplicate_of or None
            if FINGERPRINT in columns and FINGERPRINT not in row.record:
                row.record[FINGERPRINT] = fingerprint_shown(page.fingerprint)
            yield row


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which commits an export is of; as it is made, all of them. `since`: wall time, seconds. `run`: of a job; with
    `changed` what is new or other than in an earlier run. `unless`: marks (noindex, truncated).
    """

    since: float = 0.0
    run: str = ""
    changed: bool = False
    unless: Sequence[str] = ()
    of_url: Callable[[str], bool] | None = None


def wanted_entries(
    reader: IndexReader,
    wanted: Wanted,
    pruned: Counter[str],
    left_out: Counter[str],
    meter: Meter,
    *,
    counts_pruned: bool,
) -> Iterator[CommitEntry]:
    """Counts those that are left out by mark, and by run those that were pruned, if they are of the `run` that is asked
    for, or `counts_pruned`.
    """
    meter.begin("exporting", "page", index_bytes(reader.folder))
    entries = reader.entries(pruned=bool(wanted.run) or counts_pruned)
    for number, entry in enumerate(changed_pages(entries, wanted.run) if wanted.changed else entries, 1):
        if wanted.of_url is not None and not wanted.of_url(entry.url):
            pass
        elif entry.pruned:
            pruned[entry.run] += 1
        elif committed_at(entry) >= wanted.since and wanted.run in ("", entry.run):
            if mark := next((one for one in wanted.unless if getattr(entry, one)), ""):
                left_out[mark] += 1
            else:
                yield entry
        if number % PULSE_PAGES == 0:
            meter.reached(number, reader.bytes_read)
