"""`crawler export --wacz`: what a crawl committed, from one folder or several, as one file that replay programs open.

Each record is copied as it is, so that no record of a fetch that was not committed is in it. The file has another name
until it is whole.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
from isal import isal_zlib

from crawler import given_path
from crawler.archive.folder import CrawlFolder, archive_error, iso_ms
from crawler.archive.index_reader import MissingFile
from crawler.archive.method_query import is_by_url
from crawler.archive.scratch import scratch_file
from crawler.archive.warc import GZIP, record_ids, warcinfo
from crawler.archive.warc_reader import info_of
from crawler.errors import UsageError
from crawler.model import NOT_MODIFIED, CommitEntry
from crawler.outputs.export import Wanted
from crawler.outputs.files import take_place
from crawler.outputs.wacz_package import WaczPackage
from crawler.outputs.wacz_records import Counts, WantedRecords
from crawler.outputs.writer_lock import draft_of, unwritable, writing
from crawler.rules.progress import SILENT, Meter
from crawler.rules.urls import host_of
from crawler.runtime.crash_points import reached
from crawler.version import program_version

SUFFIX = ".wacz"
SHOWN = (200, NOT_MODIFIED)  # statuses of what is in the list of pages
# What people open by itself; all else is there for these.
PAGE_TYPES = frozenset(("text/html", "application/xhtml+xml", "application/pdf", "text/plain"))
KEPT = ("operator", "http-header-from", "http-header-user-agent", "robots")  # of what source files tell
SOFTWARE = f"crawler {program_version()}"
_LIST = {"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}


class WaczSummary(msgspec.Struct, kw_only=True):
    """What is in the file; `missing`: what could not be read."""

    records: int
    pages: int  # in the list of pages
    bytes: int
    counts: Counts
    missing: list[MissingFile]


def check_wacz(text: str) -> Path:
    """Where the file goes. Raises UsageError when nothing can be written there, as far as its name and place tell."""
    path = Path(text).absolute()
    if path.suffix.lower() != SUFFIX:
        raise UsageError(f"a WACZ file is named FILE{SUFFIX}: {text} is not")
    if given_path.exists(path) and not path.is_file():
        raise UsageError(f"{text} is not a file; name a file for the archive")
    if not path.parent.is_dir():
        raise UsageError(f"can't write {text}: folder does not exist: {Path(text).parent}")
    return path


def export_wacz(
    folders: Sequence[CrawlFolder], path: Path, shown: str, wanted: Wanted, meter: Meter = SILENT
) -> WaczSummary:
    """Write the file, or nothing; one that is there is replaced. Raises UsageError when it can't be written there, or
    when nothing is wanted that is there; ConflictError when another process is writing it, ArchiveError.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(folder.reading())
        stack.enter_context(writing(path, shown, str(folders[0].root.resolve())))
        path = path.resolve()
        draft = draft_of(path)
        try:
            with contextlib.ExitStack() as files:
                try:
                    file = files.enter_context(draft.open("x+b"))
                except OSError as error:
                    raise unwritable(shown, error) from None
                summary = _fill(file, files, folders, path, wanted, meter)
            reached("wacz.step", "whole")
            take_place(draft, path)
            reached("wacz.step", "named")
        except OSError as error:
            raise archive_error("write", path, error) from None
        finally:
            draft.unlink(missing_ok=True)
    return summary


def _fill(
    file: IO[bytes], files: contextlib.ExitStack, folders: Sequence[CrawlFolder], path: Path, wanted: Wanted,
    meter: Meter,
) -> WaczSummary:  # fmt: skip
    """Raises OSError and what `export_wacz` raises."""
    lines, seeds, others = [files.enter_context(scratch_file(path.parent)) for _ in range(3)]
    info = _warcinfo_of(folders)
    package = files.enter_context(contextlib.closing(WaczPackage(file, lines, info)))
    source, pages, main = WantedRecords(folders, wanted, path.parent, meter), 0, None
    for record in source.records():
        entry = record.entry
        package.add(record.key, record.moment, _fields(entry), record.copied.member, record.copied.request)
        reached("wacz.step", "record")
        if _is_listed(entry):
            is_seed = entry.depth == 0
            (seeds if is_seed else others).write(_page_line(entry, is_seed=is_seed))
            pages += 1
            main = _first(main, entry)
    missing = source.missing()
    if not package.records:
        raise UsageError(f"nothing was found to write{_why_nothing(source.counts)}; no file was made")
    meter.begin(f"finishing {path.name}")
    for one in (seeds, others):
        one.seek(0)
    listed = (line for part in ([_line(_LIST)], seeds, others) for line in part)
    package.finish({"pages": listed}, _facts(main))
    file.seek(0, 2)
    return WaczSummary(
        records=package.records, pages=pages, bytes=file.tell(), counts=source.counts, missing=missing
    )  # fmt: skip


def _why_nothing(counts: Counts) -> str:
    if counts.pruned:
        return f": {counts.pruned:,} removed by 'crawler prune'"
    return f": {counts.unarchived:,} without a record (archive.warc was off)" if counts.unarchived else ""


def _warcinfo_of(folders: Sequence[CrawlFolder]) -> Callable[[str], bytes]:
    """What the WARC files tell of themselves: of who crawled, and how, what those of all folders agree on."""
    ids, crawls = record_ids(), ", ".join(dict.fromkeys(folder.crawl for folder in folders))
    told = [info_of(path) for folder in folders if (path := min(folder.warc.iterdir(), default=None)) is not None]
    said = {name: {one.get(name, "") for one in told} for name in KEPT}
    fields = {name: values.pop() for name, values in said.items() if len(values) == 1}
    fields |= {"isPartOf": crawls, "description": "committed records of the crawl, in the order of their URLs"}
    at = max(folder.description.created_at for folder in folders)

    def member(name: str) -> bytes:
        record = warcinfo(next(ids), filename=name, at=at, software=SOFTWARE, fields=fields)
        packed: bytes = isal_zlib.compress(record, 1, GZIP)
        return packed

    return member


def _fields(entry: CommitEntry) -> dict[str, str]:
    """Of its line in the index, as replay programs know them."""
    # Of a page that is unchanged the status is that of the page: browsers that are given a 304 show nothing.
    status = "200" if entry.original is not None and entry.status == NOT_MODIFIED else entry.status_text
    fields = {"url": entry.url, "mime": entry.mime, "status": status, "digest": entry.digest}
    if entry.request is not None and not is_by_url(entry.request.method):
        fields |= {"method": entry.request.method, "requestBody": entry.request_body}
    return fields


def _is_listed(entry: CommitEntry) -> bool:
    """Is it a page that people open by itself?"""
    is_plain = entry.request is None or is_by_url(entry.request.method)
    return is_plain and entry.is_page and entry.status in SHOWN and entry.content_type in PAGE_TYPES


def _page_line(entry: CommitEntry, *, is_seed: bool) -> bytes:
    number = int(entry.fingerprint) & (1 << 64) - 1
    page = {"id": f"{number:016x}-{entry.visit}", "url": entry.url, "ts": iso_ms(entry.fetched_at)}
    if entry.title:
        page["title"] = entry.title
    return _line(page | ({"seed": True} if is_seed else {}))


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _first(main: CommitEntry | None, entry: CommitEntry) -> CommitEntry:
    """Of two pages the one to begin with: nearest to the seeds, then the first that was given."""
    return entry if main is None or _rank(entry) < _rank(main) else main


def _rank(entry: CommitEntry) -> tuple[int, int, float]:
    return entry.depth, entry.seed_number, entry.fetched_at


def _facts(main: CommitEntry | None) -> dict[str, str]:
    """What the package says of itself."""
    facts = {"software": SOFTWARE}
    if main is not None:
        facts |= {
            "title": main.title or host_of(main.url), "mainPageUrl": main.url, "mainPageDate": iso_ms(main.fetched_at),
        }  # fmt: skip
    return facts
