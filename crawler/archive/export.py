"""Exports: one record per committed page, as JSON Lines or CSV, each (URL, visit) once.

Knows fields and formats. A file appears whole or not at all. Memory is bounded by the index reader's.
"""

import contextlib
import csv
import io
import os
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, Self

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.item_reader import ItemReader
from crawler.archive.reader import IndexReader, MissingFile
from crawler.archive.stamps import iso_ms
from crawler.errors import ArchiveError, UsageError
from crawler.model import CommitEntry

FIELDS = (
    "url",
    "status",
    "fetched_at",
    "content_type",
    "bytes",
    "title",
    "depth",
    "digest",
    "redirect_to",
    "truncated",
    "warc_file",
    "warc_offset",
    "visit",
)
STDOUT = "-"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".jl")

Record = dict[str, Any]
Line = Record | msgspec.Raw  # JSON text goes through as it is
Decode = Callable[[bytes, str], bytes]  # (payload, Content-Encoding) -> body; raises ArchiveError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """What was written, and what could not be reached (by name: never passed over)."""

    pages: int
    by_status: dict[int, int]
    missing: list[MissingFile] = field(default_factory=list)


class _Format(Protocol):
    def write(self, record: Any) -> None: ...


def export(
    folder: CrawlFolder,
    targets: Sequence[str],
    *,
    text: bool = False,
    links: bool = False,
    decode: Decode | None = None,
    stdout: IO[bytes] | None = None,
) -> ExportSummary:
    """Write all committed pages to each target: FILE.jsonl, FILE.csv, or "-" (JSON Lines to `stdout`).

    `text` and `links` read the archive and need `decode`, which undoes a content coding. Raises UsageError
    for a target that can't be written, before any work, and ArchiveError when a disk fails. A reader that
    closes stdout early ends the export without an error.
    """
    columns = [*FIELDS, *(["text"] if text else []), *(["links"] if links else [])]
    reader = IndexReader(folder)
    unreadable: Counter[str] = Counter()
    by_status: Counter[int] = Counter()
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(_Output(target, columns, stdout)) for target in targets]
        with contextlib.suppress(BrokenPipeError):
            for entry in reader.entries():
                record = _record(entry, folder)
                if text or links:
                    record |= _content(folder, entry, decode, unreadable, text=text, links=links)
                for output in outputs:
                    output.write(record)
                by_status[entry.status] += 1
        for output in outputs:
            output.commit()
    lost = [MissingFile(name, "records not readable", count) for name, count in sorted(unreadable.items())]
    return ExportSummary(
        pages=by_status.total(), by_status=dict(sorted(by_status.items())), missing=[*reader.missing, *lost]
    )


def export_items(
    folder: CrawlFolder, targets: Sequence[str], *, stdout: IO[bytes] | None = None
) -> tuple[int, list[MissingFile]]:
    """Write what handlers yielded to each target, as JSON Lines; how many items, and what could not be reached.

    Raises as `export` does.
    """
    for target in targets:
        if Path(target).suffix.lower() == ".csv":
            raise UsageError(f"{target}: items have no columns in common; name it .jsonl, or - for stdout")
    reader, written = ItemReader(folder), 0
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(_Output(target, [], stdout)) for target in targets]
        with contextlib.suppress(BrokenPipeError):
            for _, _, item in reader.items():
                for output in outputs:
                    output.write(msgspec.Raw(item))
                written += 1
        for output in outputs:
            output.commit()
    return written, reader.missing


def _record(entry: CommitEntry, folder: CrawlFolder) -> Record:
    warc = entry.warc
    return {
        "url": entry.url,
        "status": entry.status,
        "fetched_at": iso_ms(entry.fetched_at),
        "content_type": entry.content_type,
        "bytes": entry.body_bytes,
        "title": entry.title,
        "depth": entry.depth,
        "digest": entry.digest,
        "redirect_to": entry.redirect_to,
        "truncated": entry.truncated,
        "warc_file": f"{folder.warc.name}/{warc.file}" if warc else None,
        "warc_offset": warc.offset if warc else None,
        "visit": entry.visit,
    }


def _content(
    folder: CrawlFolder,
    entry: CommitEntry,
    decode: Decode | None,
    unreadable: Counter[str],
    *,
    text: bool,
    links: bool,
) -> Record:
    """The columns that need the archive; null when its record can't be read."""
    from crawler.archive.export_content import page_content  # brings the HTML parser: only when asked for

    found: Record = {}
    try:
        content = page_content(folder, entry, decode or _refuse_coding, text=text, links=links)
    except ArchiveError:
        unreadable[f"{folder.warc.name}/{entry.warc.file if entry.warc else ''}"] += 1
        content = None
    if text:
        found["text"] = content.text if content else None
    if links:
        found["links"] = list(content.links) if content else None
    return found


def _refuse_coding(payload: bytes, coding: str) -> bytes:
    if coding.strip().lower() not in {"", "identity"}:
        raise ArchiveError(f"can't undo content coding {coding}")
    return payload


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._write = file.write
        self._encode = msgspec.json.Encoder().encode

    def write(self, record: Line) -> None:
        self._write(self._encode(record) + b"\n")


class _Csv:
    def __init__(self, file: IO[bytes], columns: list[str]) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        self._rows = csv.DictWriter(self._text, columns, lineterminator="\n")
        self._rows.writeheader()

    def write(self, record: Record) -> None:
        row = dict(record)
        if row.get("links") is not None:
            row["links"] = " ".join(row.get("links", ()))
        self._rows.writerow(row)

    def detach(self) -> None:
        self._text.detach()


class _Output:
    """One target. A file is written beside its place and moved there by `commit`; without it nothing remains."""

    def __init__(self, target: str, columns: list[str], stdout: IO[bytes] | None) -> None:
        self._draft: Path | None = None
        self._target = Path(target).resolve() if target != STDOUT else Path("standard output")
        as_csv = self._target.suffix.lower() == ".csv"
        if target == STDOUT:
            self._file = stdout or sys.stdout.buffer
        else:
            if not as_csv and self._target.suffix.lower() not in _JSON_SUFFIXES and not self._is_device():
                raise UsageError(f"can't tell the format of {target}: name it .jsonl or .csv, or - for stdout")
            self._file = self._open(target)
        self._format: _Format = _Csv(self._file, columns) if as_csv else _JsonLines(self._file)

    def _is_device(self) -> bool:
        return self._target.exists() and not self._target.is_file() and not self._target.is_dir()

    def _open(self, target: str) -> IO[bytes]:
        try:
            if self._target.is_dir():
                raise UsageError(f"{target} is a folder; name a file in it")
            if self._is_device():  # a pipe or a terminal takes bytes, but nothing may be renamed over it
                return self._target.open("wb")
            self._draft = self._target.with_name(f".{self._target.name}.{secrets.token_hex(4)}.part")
            return self._draft.open("xb")
        except OSError as error:
            raise UsageError(f"can't write {target}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def write(self, record: Line) -> None:
        self._guarded(lambda: self._format.write(record))

    def commit(self) -> None:
        """All bytes on disk, then the name."""
        self._guarded(self._finish)

    def _finish(self) -> None:
        if isinstance(self._format, _Csv):
            self._format.detach()
        with contextlib.suppress(BrokenPipeError):
            self._file.flush()
        if self._draft is not None:
            os.fsync(self._file.fileno())
            if self._target.exists():
                shutil.copymode(self._target, self._draft)
            self._draft.replace(self._target)
            self._draft = None

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise archive_error("write", self._target, error) from None

    def __exit__(self, *_: object) -> None:
        if isinstance(self._format, _Csv):
            with contextlib.suppress(OSError, ValueError):
                self._format.detach()
        if self._target != Path("standard output"):
            with contextlib.suppress(OSError):
                self._file.close()
        if self._draft is not None:
            self._draft.unlink(missing_ok=True)
