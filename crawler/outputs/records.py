"""What is written of a commit: the record of its page, or the items that its handler gave. Knows fields, no targets."""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from crawler.archive.crawl_binding import bound_to
from crawler.archive.folder import CrawlFolder, iso_ms
from crawler.archive.index_reader import IndexReader, MissingFile
from crawler.archive.items import ItemFiles
from crawler.archive.warc import read_content
from crawler.content.html import extract_text, main_text, parse_page
from crawler.content.sniff import decode as decode_charset
from crawler.content.sniff import detect_charset
from crawler.errors import ArchiveError, OutputError
from crawler.media_type import declared_type, is_html, is_text, media_type
from crawler.model import LINK_RULES, CommitEntry
from crawler.redaction import bears_login
from crawler.rules.text import DEPTH_MAX, is_nested_too_deep
from crawler.rules.urls import BYTES_MAX, JoinCache

# What every open target can do, and what a row is. Must not know any kind of target.

Record = dict[str, Any]  # as JSON has it: null, true, numbers, strings, arrays, objects
COLUMNS_MAX = 1000  # of a table; PostgreSQL ends at 1600, SQLite at 2000


class Key(NamedTuple):
    """What makes a record the same record: of all that an output is given, each key counts once."""

    fingerprint: int  # of the URL
    visit: int
    number: int  # among the records of this visit


class Row(NamedTuple):
    """A record and its key."""

    key: Key
    record: Record


class Mark(NamedTuple):
    """How far a file is durably written: its length in bytes, and a digest of its last bytes."""

    length: int
    digest: str


class Wanted(NamedTuple):
    """How many records of one visit a target must have."""

    fingerprint: int
    visit: int
    records: int


class OutputAway(OutputError):
    """The target does not take anything now; it may do so later."""


class TargetChanged(OutputError):
    """Somebody else replaced the target, or wrote to it: what it was said to have may not be there."""


class OutputEnded(Exception):
    """The reader of the target has closed it (a closed pipe)."""


class Sink(Protocol):
    """One open target. Blocks: call it in a thread.

    `write` may keep rows back; `commit` makes all of them last and says where the target ends then (None where only
    the target itself knows). `found`, after a commit, counts the records that the target really has: a file all of
    them, a table those that are wanted (in order; it may have others). `close` leaves what there was at the last
    commit; after an error nothing else may be called. Raises OutputAway where a later try may succeed, OutputError
    where the rows don't fit the target, TargetChanged where somebody else wrote there, ArchiveError where a disk fails.
    """

    def write(self, rows: Sequence[Row]) -> None: ...
    def commit(self) -> Mark | None: ...
    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int: ...
    def close(self) -> None: ...


@runtime_checkable
class TableSink(Sink, Protocol):
    """One of a database. `remove` takes away all rows of visits (fingerprint, visit); it lasts from the next commit."""

    def remove(self, visits: Sequence[tuple[int, int]]) -> None: ...


# What a table needs to know of records that have no schema: which columns there are, and of what kind.
#
# A column is as narrow as all its values allow. Where they disagree, whole numbers become floating ones, and all else
# becomes text; what is nested is JSON. Pure; must not know any kind of table.


INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
EXACT_MAX = 1 << 53  # whole numbers up to here are themselves as floating ones
_json = msgspec.json.Encoder().encode


class ColumnType(enum.Enum):
    """Kinds of values. A time is text that is known to be one (ISO 8601, UTC): only declared, never guessed."""

    BOOL = "bool"
    INT = "int"  # of 64 bits
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"
    TIME = "time"


def kind_of(value: Any) -> ColumnType | None:
    """The narrowest kind of one value; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return ColumnType.BOOL
    if isinstance(value, int):
        return ColumnType.INT if INT_MIN <= value <= INT_MAX else ColumnType.TEXT
    if isinstance(value, float):
        return ColumnType.FLOAT
    return ColumnType.TEXT if isinstance(value, str) else ColumnType.JSON


def joined(one: ColumnType, other: ColumnType) -> ColumnType:
    """The kind of a column that has values of both."""
    if one is other:
        return one
    return ColumnType.FLOAT if {one, other} == {ColumnType.INT, ColumnType.FLOAT} else ColumnType.TEXT


def as_kind(value: Any, kind: ColumnType) -> Any:
    """A value as a column of this kind has it; `kind` is that of the value or joined with it."""
    if value is None:
        return None
    if kind is ColumnType.JSON:
        return _json(value).decode()
    if kind is ColumnType.FLOAT:
        return float(value)
    if kind in (ColumnType.TEXT, ColumnType.TIME):
        return value if isinstance(value, str) else _json(value).decode()
    return value


def grown(known: Mapping[str, ColumnType | None], records: Iterable[Record]) -> dict[str, ColumnType | None]:
    """The columns that it takes to hold these records too, in order of appearance; None: no value so far.

    Raises OutputError when they are too many.
    """
    columns = dict(known)
    for record in records:
        for name, value in record.items():
            before, kind = columns.get(name), kind_of(value)
            if before is None:
                columns[name] = kind
            elif kind is not None and kind is not before and before is not ColumnType.TIME:
                columns[name] = joined(before, kind)
    check_count(columns)
    return columns


def is_inexact(value: Any) -> bool:
    """Is this a whole number that no floating one equals, as far as its size tells?"""
    return isinstance(value, int) and abs(value) > EXACT_MAX


def check_count(columns: Iterable[str]) -> None:
    """Raises OutputError for more columns than a table can have."""
    if len(list(columns)) > COLUMNS_MAX:
        raise OutputError(f"the records have more than {COLUMNS_MAX:,} different fields: write them as .jsonl")


# Text and links of an archived page, for exports: read from its WARC record.
#
# How content codings are undone is handed in: that knowledge sits behind the door to the web. Must not know
# formats of exports.

_WITH_TEXT = frozenset({"application/xhtml+xml", "application/xml"})
_LINKS_MAX = 100_000


class PageContent(msgspec.Struct, frozen=True, kw_only=True):
    """What people may ask for beyond the index."""

    text: str = ""
    links: tuple[str, ...] = ()


def page_content(
    folder: CrawlFolder,
    entry: CommitEntry,
    decode: Callable[[bytes, str], bytes],
    *,
    text: str,
    links: bool,
    joins: JoinCache,
    link_rules: int,
) -> PageContent:
    """The page's text ("visible", "main" or "": none) and links. Raises ArchiveError when its record can't be read."""
    kind = entry.content_type
    if entry.content is None or not ("/" not in kind or kind.startswith("text/") or kind in _WITH_TEXT):
        return PageContent()
    record = read_content(folder, entry)
    body = decode(record.payload, record.listed("content-encoding"))
    content_type = declared_type(record)
    charset = detect_charset(body, content_type)
    if not is_html(content_type, body):
        is_shown = media_type(content_type).startswith("text/") or (not media_type(content_type) and is_text(body))
        return PageContent(text=decode_charset(body, charset) if text and is_shown else "")
    found: tuple[str, ...] = ()
    if links:
        found = parse_page(
            entry.url,
            content_type,
            "",
            body,
            links_max=_LINKS_MAX,
            obey_nofollow=False,
            bytes_max=BYTES_MAX,
            agent="",
            refresh=record.header("refresh"),
            joins=joins,
            link_rules=link_rules,
        ).links
        found = tuple([url for url in found if not bears_login(url)])
    extract = {"visible": extract_text, "main": main_text}.get(text)
    return PageContent(text=extract(body, charset) if extract else "", links=found)


PAGE_COLUMNS = {
    "url": ColumnType.TEXT,
    "status": ColumnType.INT,
    "fetched_at": ColumnType.TIME,
    "content_type": ColumnType.TEXT,
    "bytes": ColumnType.INT,
    "title": ColumnType.TEXT,
    "depth": ColumnType.INT,
    "digest": ColumnType.TEXT,
    "redirect_to": ColumnType.TEXT,
    "truncated": ColumnType.TEXT,
    "decode_error": ColumnType.TEXT,
    "noindex": ColumnType.BOOL,
    "warc_file": ColumnType.TEXT,
    "warc_offset": ColumnType.INT,
    "visit": ColumnType.INT,
}

_decode = msgspec.json.Decoder(Record).decode

Decode = Callable[[bytes, str], bytes]  # (payload, Content-Encoding) -> body; raises ArchiveError, UndecodableError
UNDECODABLE_SHOWN = 5  # pages that are named


class UndecodableError(Exception):
    """Nothing of a body can be decoded, though its record can be read: as the site sent it."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What records are called, and the columns that all of them have."""

    name: str
    columns: Mapping[str, ColumnType]


class RecordSource(Protocol):
    """Records of a commit."""

    @property
    def shape(self) -> Shape: ...
    def records_of(self, entry: CommitEntry) -> Iterable[Record]: ...
    def count_of(self, entry: CommitEntry) -> int:
        """How many these are, by the index alone."""
        ...

    def missing(self, index: IndexReader) -> list[MissingFile]:
        """What could not be reached: of the index, as its reader met it, and of what is next to it."""
        ...

    def lost(self) -> list[MissingFile]:
        """The latter alone."""
        ...

    def remarks(self) -> list[str]:
        """Lines on what records lack, though the archive is whole."""
        ...

    def close(self) -> None: ...


def rows_of(source: RecordSource, entry: CommitEntry) -> Iterator[Row]:
    """The records of a commit with their keys: numbered from 0 in their order."""
    for number, record in enumerate(source.records_of(entry)):
        yield Row(Key(int(entry.fingerprint), entry.visit, number), record)


PAGES = Shape(name="pages", columns=PAGE_COLUMNS)
ITEMS = Shape(name="items", columns={})


class Pages:
    """One record for each committed page.

    `text` ("visible", "main" or "") and `links` need the archive, and `decode`, which undoes a content coding.
    """

    def __init__(
        self, folder: CrawlFolder, *, text: str = "", links: bool = False, decode: Decode | None = None
    ) -> None:
        self._folder, self._text, self._links = folder, text, links
        self._decode = decode or _refuse_coding
        self._unreadable: Counter[str] = Counter()
        self._undecodable: list[str] = []  # the first of them
        self._undecodable_count = 0
        more = {"text": ColumnType.TEXT} if text else {}
        self.shape = Shape(name="pages", columns=PAGE_COLUMNS | more | ({"links": ColumnType.JSON} if links else {}))

    def records_of(self, entry: CommitEntry) -> Iterable[Record]:
        if entry.is_sitemap:
            return ()
        record = page_record(entry, self._folder)
        if self._text or self._links:
            record |= self._content(entry)
        return (record,)

    def count_of(self, entry: CommitEntry) -> int:
        return 0 if entry.is_sitemap else 1

    @cached_property
    def _joins(self) -> "JoinCache":
        from crawler.rules.urls import JoinCache

        return JoinCache()

    @cached_property
    def _link_rules(self) -> int:
        """Those of the crawl; of a folder whose crawl nobody knows, today's."""
        bound = bound_to(self._folder)
        return int(bound.record.get("link_rules", 0)) if bound and bound.record else LINK_RULES

    def _content(self, entry: CommitEntry) -> Record:
        """The columns that need the archive; null when its record can't be read, or nothing of its body decoded."""
        # brings the HTML parser: only when asked for

        try:
            content = page_content(
                self._folder, entry, self._decode, text=self._text, links=self._links, joins=self._joins,
                link_rules=self._link_rules,
            )  # fmt: skip
        except ArchiveError:
            self._unreadable[f"{self._folder.warc.name}/{entry.content.file if entry.content else ''}"] += 1
            content = None
        except UndecodableError as error:
            self._undecodable_count += 1
            if len(self._undecodable) < UNDECODABLE_SHOWN:
                self._undecodable.append(f"{entry.url}: no content, its body can't be decoded ({error})")
            content = None
        found: Record = {}
        if self._text:
            found["text"] = content.text if content else None
        if self._links:
            found["links"] = list(content.links) if content else None
        return found

    def missing(self, index: IndexReader) -> list[MissingFile]:
        return [*index.missing, *self.lost()]

    def lost(self) -> list[MissingFile]:
        return _named(self._unreadable, "records not readable")

    def remarks(self) -> list[str]:
        more = self._undecodable_count - len(self._undecodable)
        return [*self._undecodable, f"{more:,} more pages whose bodies can't be decoded"] if more else self._undecodable

    def close(self) -> None:
        """Nothing is held."""


class Items:
    """What the handlers of each committed page yielded, in that order."""

    shape = ITEMS

    def __init__(self, folder: CrawlFolder) -> None:
        self._files = ItemFiles(folder)
        self._unreadable: Counter[str] = Counter()

    def records_of(self, entry: CommitEntry) -> Iterable[Record]:
        if entry.items is None or not entry.items.count:
            return ()
        try:
            return [_record(item) for item in self._files.items(entry.items)]
        except ArchiveError:
            self._unreadable[self._files.path(entry.items.file)] += 1
            return ()

    def count_of(self, entry: CommitEntry) -> int:
        return entry.items.count if entry.items else 0

    def missing(self, index: IndexReader) -> list[MissingFile]:
        return [*index.segments_missing, *self.lost()]

    def lost(self) -> list[MissingFile]:
        return _named(self._unreadable, "items not readable")

    def remarks(self) -> list[str]:
        return []

    def close(self) -> None:
        self._files.close()


def _record(item: bytes) -> Record:
    """Raises ArchiveError for what no output could take: it is not what was yielded, or older than the limit."""
    try:
        record = _decode(item)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ArchiveError(f"an item can't be read: {error}") from None
    if is_nested_too_deep(item, record):
        raise ArchiveError(f"an item is nested more than {DEPTH_MAX} deep")
    return record


def _named(unreadable: Counter[str], why: str) -> list[MissingFile]:
    return [MissingFile(file, why, pages) for file, pages in sorted(unreadable.items())]


def page_record(entry: CommitEntry, folder: CrawlFolder) -> Record:
    """What the index says of a page, under the names that exports have."""
    warc = entry.warc
    record: Record = {
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
        "decode_error": entry.decode_error,
        "noindex": entry.noindex,
        "warc_file": f"{folder.warc.name}/{warc.file}" if warc else None,
        "warc_offset": warc.offset if warc else None,
        "visit": entry.visit,
    }
    if entry.run:
        record["run"] = entry.run
    if entry.request is not None:  # more than the URL
        record |= {"method": entry.request.method, "body_digest": entry.request.digest, "meta": entry.request.meta}
    return record


def committed_at(entry: CommitEntry) -> float:
    """Wall time, seconds: when its record was on disk; of older entries, when it was fetched."""
    return entry.times.get("archived", entry.fetched_at)


def _refuse_coding(payload: bytes, coding: str) -> bytes:
    if coding.strip().lower() not in {"", "identity"}:
        raise ArchiveError(f"can't undo content coding {coding}")
    return payload
