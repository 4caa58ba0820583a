"""What is written of a commit: the record of its page, or the items that its handler gave. Knows fields, no targets."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from crawler.archive.crawl_binding import bound_to
from crawler.archive.folder import CrawlFolder, iso_ms
from crawler.archive.index_reader import IndexReader, MissingFile
from crawler.archive.items import ItemFiles
from crawler.archive.run_changes import OK, answer_of
from crawler.errors import ArchiveError
from crawler.model import LINK_RULES, CommitEntry
from crawler.outputs.columns import ColumnType
from crawler.outputs.sink import Key, OutputAway, Record, Row
from crawler.rules.json_depth import DEPTH_MAX, is_nested_too_deep
from crawler.rules.page_columns import COLUMNS
from crawler.rules.rights import PURPOSES, answer, statement_text
from crawler.terminal.words import counted

if TYPE_CHECKING:
    from concurrent.futures import Future

    from crawler.content.page_columns import Found
    from crawler.parsing.column_pool import ColumnPool, ColumnWorker

_decode = msgspec.json.Decoder(Record).decode
Decode = Callable[[bytes, str], bytes]  # (payload, Content-Encoding) -> body; raises ArchiveError, UndecodableError

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

FINGERPRINT, DUPLICATE_OF = "fingerprint", "duplicate_of"  # of pages, if asked for
MORE_COLUMNS = (FINGERPRINT, DUPLICATE_OF)
COLUMN_TYPES = {  # of those that are found in the body
    **dict.fromkeys(COLUMNS, ColumnType.TEXT),
    **dict.fromkeys(("links", "metadata", "jsonld"), ColumnType.JSON),
}
AHEAD = 8  # pages that are begun before the one whose record is written
_WITH_TEXT = frozenset({"application/xhtml+xml", "application/xml"})
_EMPTY = frozenset(("", "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"))  # no digest, and that of no byte
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
    def prepare(self, entry: CommitEntry) -> None:
        """Its records are asked for soon."""
        ...

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


def ahead(source: RecordSource, entries: Iterable[CommitEntry]) -> Iterator[CommitEntry]:
    """The same entries, while the source is told of the next ones."""
    waiting: deque[CommitEntry] = deque()
    for entry in entries:
        source.prepare(entry)
        waiting.append(entry)
        if len(waiting) >= AHEAD:
            yield waiting.popleft()
    yield from waiting


PAGES = Shape(name="pages", columns=PAGE_COLUMNS)


ITEMS = Shape(name="items", columns={})


class Pages:
    """One record for each committed page.

    `columns`: those that are found in its body, in processes that may be killed, need the archive, and `decode`, which
    undoes a content coding; those of `MORE_COLUMNS` are filled by an export that looks for duplicates, but for
    fingerprints where `has_fingerprints`.
    """

    def __init__(
        self, folder: CrawlFolder, *, columns: Collection[str] = (), decode: Decode | None = None,
        has_fingerprints: bool = False,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._columns = tuple(name for name in columns if name in COLUMNS)
        self._has_fingerprints = has_fingerprints
        self._asked = (*self._columns, *((FINGERPRINT,) if has_fingerprints else ()))
        self._decode = decode or _refuse_coding
        self._unreadable: Counter[str] = Counter()
        self._undecodable: list[str] = []  # the first of them
        self._undecodable_count = self._without_body = 0
        self._failed: Counter[tuple[str, str]] = Counter()
        self._first_failed: dict[tuple[str, str], str] = {}
        self._begun: dict[tuple[str, int], Future[Found]] = {}
        more = {name: COLUMN_TYPES[name] for name in self._columns}
        more |= {name: ColumnType.TEXT for name in MORE_COLUMNS if name in columns}
        self.shape = Shape(name="pages", columns=PAGE_COLUMNS | more)

    def prepare(self, entry: CommitEntry) -> None:
        """Begin with what takes long; `records_of` is called soon."""
        if self._asked and entry.is_page and entry.content is not None and has_columns(entry):
            self._begun[entry.fingerprint, entry.visit] = self._begin(entry, self._asked)

    def records_of(self, entry: CommitEntry) -> Iterable[Record]:
        if not entry.is_page:
            return ()
        record = page_record(entry, self._folder)
        if self._asked:
            record |= self._content(entry)
        return (record,)

    def fingerprint(self, entry: CommitEntry) -> int:
        """That of the page's main text; 0: it has none, or too little, or its record can't be read, or no content."""
        if not has_content(entry):
            return 0
        found = self._found(entry, (FINGERPRINT,), is_counted=not self._asked)
        if found is None:
            return 0
        self._count_failed(entry, found)
        return int(found.columns[FINGERPRINT] or 0)

    def _count_failed(self, entry: CommitEntry, found: "Found") -> None:
        for one in found.failed.items():
            self._failed[one] += 1
            self._first_failed.setdefault(one, entry.url)

    def count_of(self, entry: CommitEntry) -> int:
        return int(entry.is_page)

    @cached_property
    def _pool(self) -> "ColumnPool":
        from crawler.parsing.column_pool import ColumnPool

        return ColumnPool()

    @cached_property
    def _link_rules(self) -> int:
        """Those of the crawl; of a folder whose crawl nobody knows, today's."""
        bound = bound_to(self._folder)
        return int(bound.record.get("link_rules", 0)) if bound and bound.record else LINK_RULES

    def _begin(self, entry: CommitEntry, names: tuple[str, ...]) -> "Future[Found]":
        return self._pool.submit(partial(self._find, entry, names))

    def _find(self, entry: CommitEntry, names: tuple[str, ...], worker: "ColumnWorker") -> "Found":
        from crawler.content.page_columns import Found  # brings the HTML parser
        from crawler.outputs.page_content import page_body

        body = page_body(self._folder, entry, self._decode, link_rules=self._link_rules)
        if isinstance(body, tuple):
            links = {"links": list(body)} if "links" in names else {}
            return Found(columns=dict.fromkeys(names) | links, failed={})
        return worker.columns(body, names)

    def _content(self, entry: CommitEntry) -> Record:
        """The columns of its body; null when there is none, its record can't be read, or nothing of it decoded."""
        if entry.content is None:
            self._without_body += 1
        if (found := self._found(entry, self._asked, is_counted=True)) is None:
            return dict.fromkeys(self._asked)
        self._count_failed(entry, found)
        if self._has_fingerprints:
            return found.columns | {FINGERPRINT: fingerprint_shown(found.columns[FINGERPRINT] or 0)}
        return found.columns

    def _found(self, entry: CommitEntry, names: tuple[str, ...], *, is_counted: bool) -> "Found | None":
        """None when there is nothing, or it can't be read, which is counted once for each page. Raises OutputAway."""
        if entry.content is None or not has_columns(entry):
            return None
        from crawler.parsing.column_pool import NoProcessError

        try:
            begun = self._begun.pop((entry.fingerprint, entry.visit), None) if names is self._asked else None
            return (begun or self._begin(entry, names)).result()
        except NoProcessError as error:
            raise OutputAway(f"columns of pages can't be found here: {error}") from None
        except ArchiveError:
            self._unreadable[f"{self._folder.warc.name}/{entry.content.file}"] += is_counted
        except UndecodableError as error:
            self._undecodable_count += is_counted
            if is_counted and len(self._undecodable) < UNDECODABLE_SHOWN:
                self._undecodable.append(f"{entry.url}: no content, its body can't be decoded ({error})")
        return None

    def missing(self, index: IndexReader) -> list[MissingFile]:
        return [*index.missing, *self.lost()]

    def lost(self) -> list[MissingFile]:
        return _named(self._unreadable, "records not readable")

    def remarks(self) -> list[str]:
        lines = list(self._undecodable)
        if more := self._undecodable_count - len(lines):
            lines.append(f"{more:,} more pages whose bodies can't be decoded")
        if self._without_body:
            lines.append(f"{counted(self._without_body, 'page')} without a body in the archive: no {self._asked[0]}")
        for (name, why), number in sorted(self._failed.items()):
            lines.append(f"{counted(number, 'page')} without {name}: {why} (first: {self._first_failed[name, why]})")
        return lines

    def close(self) -> None:
        """End the processes."""
        if "_pool" in self.__dict__:
            self._pool.close()
            del self.__dict__["_pool"]
        self._begun.clear()


def fingerprint_shown(fingerprint: int) -> str | None:
    """As records have it: 16 hexadecimal digits; None for none."""
    return f"{fingerprint:016x}" if fingerprint else None


class Items:
    """What the handlers of each committed page yielded, in that order."""

    shape = ITEMS

    def __init__(self, folder: CrawlFolder) -> None:
        self._files = ItemFiles(folder)
        self._unreadable: Counter[str] = Counter()

    def prepare(self, entry: CommitEntry) -> None:
        """Nothing takes long."""

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


def has_columns(entry: CommitEntry) -> bool:
    """May its body have text, by its media type?"""
    kind = entry.content_type
    return entry.is_withheld or "/" not in kind or kind.startswith("text/") or kind in _WITH_TEXT


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
    if entry.rights is not None:  # something was said
        record |= {f"rights.{purpose}": answer(entry.rights, purpose) for purpose in PURPOSES}
        record["rights.license"] = entry.rights.license
        record["rights.sources"] = [statement_text(one) for one in entry.rights.sources]
    if entry.is_withheld:
        record["withheld"] = True
    if entry.run:
        record["run"] = entry.run
    if entry.request is not None:  # more than the URL
        record |= {"method": entry.request.method, "body_digest": entry.request.digest, "meta": entry.request.meta}
    return record


def has_content(entry: CommitEntry) -> bool:
    """Is it an answer 200 (of this visit, or of the one that it is unchanged from), its body neither empty nor cut?"""
    return answer_of(entry).status == OK and not entry.truncated and entry.digest not in _EMPTY


def committed_at(entry: CommitEntry) -> float:
    """Wall time, seconds: when its record was on disk; of older entries, when it was fetched."""
    return entry.times.get("archived", entry.fetched_at)


def _refuse_coding(payload: bytes, coding: str) -> bytes:
    if coding.strip().lower() not in {"", "identity"}:
        raise ArchiveError(f"can't undo content coding {coding}")
    return payload
