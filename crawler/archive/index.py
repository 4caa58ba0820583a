"""The index: CDXJ lines of commits, written in segments, as pywb reads them, with additional fields of our own."""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes
from zlib import crc32

import msgspec

from crawler.archive.appender import OPEN_SUFFIX, Appender
from crawler.archive.checked_lines import is_right, number_in, number_line, with_checksum, without_checksum
from crawler.archive.folder import CrawlFolder, archive_error, digits14, open_private, replace_durably, write_durably
from crawler.errors import ConflictError
from crawler.model import NO_MEDIA_TYPE, SITEMAP, CommitEntry

# Converts commit entries to index lines and back: CDXJ as pywb reads it, with additional fields of our own.
#
# A line is: SURT key, blank, 14-digit time, blank, JSON. The standard fields are strings, as other tools write them.
# The SURT key is the URL with its host reversed, as Wayback machines look it up (com,example)/path); it follows the
# rules of pywb and the Wayback tools, for canonical URLs. The last field is a checksum of all before it (see
# `checked_lines`); lines of earlier releases have none.
#
# A closed segment of such lines ends with a footer, `~ 00000000000000 {"lines": ..., "sum": ..., "crc": ...}`: how many
# lines are before it, and their CRC-32. Its key sorts behind those of all URLs, and no look-up asks for it.

_YEAR_10000_S = 253_402_300_800
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CommitEntry).decode


def to_line(entry: CommitEntry) -> bytes:
    """The entry as one line, with its line feed."""
    line = b"%b %b %b" % (surt(entry.url).encode(), digits14(entry.fetched_at).encode(), _encode(entry))
    return with_checksum(line) + b"\n"


def to_entry(line: bytes) -> CommitEntry | None:
    """The entry of a line (with or without line feed); None when the line is damaged, or a footer. Raises ConflictError
    for a line of a newer release.
    """
    line = line.removesuffix(b"\n")
    proof = is_right(line)
    if proof is False or is_footer(line):
        return None
    try:
        entry = _decode((without_checksum(line) if proof else line).split(b" ", 2)[2])
        return entry if proof or _is_possible(entry) else None
    except (IndexError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        if proof:
            raise ConflictError(f"the index was written by a newer release of the program ({error})") from None
        return None


def _is_possible(entry: CommitEntry) -> bool:
    """Can these values of a line without a checksum be used? ValueError: no."""
    is_fingerprint = -(2**63) <= int(entry.fingerprint) < 2**63
    is_one = entry.status >= 0 and all(place is None or place.offset >= 0 for place in (entry.warc, entry.original))
    return is_fingerprint and is_one and 0 <= entry.visit < 2**63 and 0 <= entry.fetched_at < _YEAR_10000_S


def pruned(entry: CommitEntry) -> CommitEntry:
    """What stays of a commit whose record and items are removed: its page remains done, and a rebuild can count it."""
    return msgspec.structs.replace(
        entry.placed(None, None).referring(None), mime=NO_MEDIA_TYPE, original_mime="", head_digest="", digest="",
        title="", truncated="", decode_error="",
        noindex=False, node="", sequence=0, label=SITEMAP if entry.is_sitemap else "", times={}, pruned=True,
    )  # fmt: skip


def is_whole(line: bytes) -> bool:
    """Whether a line (without line feed) is complete: by its checksum, or as far as its form shows."""
    proof = is_right(line)
    return proof if proof is not None else line.endswith(b"}") and b" {" in line and b"\0" not in line


def without_torn_tail(lines: list[bytes]) -> list[bytes]:
    """The lines of a file that was being written, without the incomplete ones at its end. What is damaged before a
    complete line was not torn, and stays, so that it is reported.
    """
    while lines and not (lines[-1].endswith(b"\n") and is_whole(lines[-1][:-1])):
        lines.pop()
    return lines


_FOOTER = b"~ "


class _Footer(msgspec.Struct):
    lines: int
    sum: str


def is_footer(line: bytes) -> bool:
    """Is it the last line of a closed segment?"""
    return line.startswith(_FOOTER)


def with_footer(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Sorted lines of a segment, and its footer; a footer among them is left out."""
    number = total = 0
    for line in lines:
        if not is_footer(line):
            number, total = number + 1, crc32(line, total)
            yield line
    yield with_checksum(b'%b00000000000000 {"lines":%d,"sum":"%08x"}' % (_FOOTER, number, total)) + b"\n"


class SegmentCheck:
    """Looks at the lines of one closed segment as they are read, from the first to the last."""

    def __init__(self) -> None:
        self._lines = self._sum = 0
        self._footer = b""
        self._needs_footer = False  # there are lines with checksums

    def is_entry(self, line: bytes) -> bool:
        """Is it a line of the index, damaged or not?"""
        if is_footer(line):
            self._footer = line
            return False
        self._needs_footer = self._needs_footer or is_right(line[:-1]) is not None
        self._lines, self._sum = self._lines + 1, crc32(line, self._sum)
        return True

    def flaw(self) -> str:
        """At the end: what is wrong with the segment as a whole; "": nothing."""
        if not self._footer:
            return "its end is missing" if self._needs_footer or not self._lines else ""
        if not is_right(self._footer[:-1]):
            return "its last line is damaged"
        footer = msgspec.json.decode(self._footer.split(b" ", 2)[2], type=_Footer)
        if self._lines != footer.lines:
            return f"it has {self._lines:,} lines, and had {footer.lines:,}"
        return "" if footer.sum == f"{self._sum:08x}" else "its lines are not those that were written"


_WWW = re.compile(r"www\d*\.")
_HEX = frozenset(b"0123456789ABCDEFabcdef")
_SLASHES = re.compile(r"//+")


def surt(url: str) -> str:
    """The sort key of a canonical http(s) URL. Different URLs may share one (letter case, `www.`, scheme)."""
    authority, _, rest = url.partition("://")[2].partition("/")
    path, mark, query = rest.partition("?")
    if "//" in path or path.startswith("/"):
        path = _SLASHES.sub("/", "/" + path)[1:]
    if not url.isascii() or not url.isprintable() or "%" in rest or " " in rest:
        path, query = _requoted(path), _requoted(query)
    path = path.lower().removesuffix("/")
    if not mark or not query:
        return f"{_reversed_host(authority)})/{path}"
    return f"{_reversed_host(authority)})/{path}?{_sorted_query(query.lower())}"


def _reversed_host(authority: str) -> str:
    authority = authority.rpartition("@")[2].lower()
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        return host + port
    if authority.startswith("www"):
        authority = _WWW.sub("", authority, count=1)
    host, colon, port = authority.partition(":")
    return ",".join(reversed(host.split("."))) + colon + port


def _sorted_query(query: str) -> str:
    if "&" not in query:
        return query
    return "&".join("=".join(pair) for pair in sorted(part.split("=", 1) for part in query.split("&")))


def _requoted(text: str) -> str:
    """Unescape until nothing changes, then escape blanks, controls, non-ASCII bytes, `#` and `%`."""
    raw = unquote_to_bytes(text.encode("utf-8", "surrogatepass"))
    if b"%" in raw:
        raw = _unescaped(raw)
    return "".join(chr(b) if 0x20 < b < 0x7F and b not in b"#%" else f"%{b:02X}" for b in raw)


def _unescaped(raw: bytes) -> bytes:
    """Unescape until nothing changes, in one pass: repeated passes over %252525... take quadratic time."""
    out = bytearray()
    for byte in raw:
        out.append(byte)
        while len(out) >= 3 and out[-3] == 0x25 and out[-2] in _HEX and out[-1] in _HEX:
            out[-3:] = bytes.fromhex(out[-2:].decode("ascii"))
    return bytes(out)


# Writes the index of one session: CDXJ segments, append-only while open, sorted when sealed.
#
# Lines (see `cdxj`) are sorted by bytes (LC_ALL=C), as every CDX tool expects. An open segment is in order of arrival
# and has the name `<session>-<serial>.cdxj.open`. `sessions/<session>.last` has the serial of the last one: no other
# segment would show that it is missing.


SUFFIX = ".cdxj"
LAST_SUFFIX = ".last"
DROPPED = "refetched.cdxj"  # lines that a rebuild removed from the index; in the folder of logs
# Sorting holds the interpreter lock, and all lines in memory: 0.02 s and 10 MB for this number. With 50,000 the
# allocator kept the 30 MB that they had taken, once for each thread that sorted.
SEGMENT_LINES = 16_384


class IndexWriter:
    """The index segments of one session. `add` is memory only; the others may run in another thread."""

    def __init__(self, folder: CrawlFolder, session: str, *, lines_max: int = SEGMENT_LINES) -> None:
        self._folder = folder
        self._session = session
        self._lines_max = lines_max
        self._serial = 0  # of the next segment
        self._noted = -1  # the last one in the file of the session
        self._lines = 0
        self._current: Appender | None = None
        self._full: list[Appender] = []
        self._lock = threading.Lock()

    def add(self, entry: CommitEntry) -> None:
        """Append one committed entry. It is durable when `sync` has returned."""
        line = to_line(entry)
        with self._lock:
            if self._current is None:
                self._current = self._next_segment()
            elif self._lines >= self._lines_max:
                self._full.append(self._current)
                self._current = self._next_segment()
            self._lines += 1
            self._current.add(line)

    def sync(self) -> None:
        """Make durable all that was added before, and seal full segments. Raises ArchiveError."""
        with self._lock:
            full, current, last = list(self._full), self._current, self._serial - 1
        for segment in full:
            self._seal(segment)
            with self._lock:
                self._full.remove(segment)
        if current is not None:
            current.sync()
            if current.durable:
                self._note(last)

    def drop_unwritten(self) -> None:
        """After a NoRoomError: keep the lines that are durable, to be sealed later. The others have to be added again,
        to a new segment.
        """
        with self._lock:
            segments = [*self._full, *([self._current] if self._current else [])]
            for segment in segments:
                segment.give_up()
            self._full, self._current = [one for one in segments if one.durable and one.path.exists()], None
            for segment in reversed(segments):
                if segment.durable:
                    break
                segment.path.unlink(missing_ok=True)
                self._serial -= 1  # numbers have no gaps

    def close(self) -> None:
        """Sync and seal all segments. Raises ArchiveError; segments that could not be sealed stay readable."""
        with self._lock:
            segments = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
        for segment in segments:
            self._seal(segment)
        if segments:
            self._note(self._serial - 1)

    def _note(self, last: int) -> None:
        """Note the last segment, which exists, once."""
        if self._noted < last:
            note_last(self._folder, self._session, last)
            self._noted = last

    def _seal(self, segment: Appender) -> None:
        if not segment.failed:
            segment.sync()
        segment.close()
        seal(self._folder, segment.path)

    def _next_segment(self) -> Appender:
        name = f"{self._session}-{self._serial:05d}{SUFFIX}"
        self._serial += 1
        self._lines = 0
        return Appender(self._folder.index / name)


def seal(folder: CrawlFolder, path: Path) -> int:
    """Sort an open segment into its final file, then remove it; returns the number of lines.

    An incomplete last line is dropped. May be repeated after a crash at any point: the final file appears atomically.
    Raises ArchiveError.
    """
    try:
        lines = sorted_lines(path)
        replace_segment(folder, path.with_name(path.name.removesuffix(OPEN_SUFFIX)), lines, of=path)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise archive_error("sort", path, error) from None
    return len(lines)


def note_last(folder: CrawlFolder, session: str, serial: int) -> None:
    """Note the last segment of a session, which exists. Raises ArchiveError."""
    path = folder.sessions / f"{session}{LAST_SUFFIX}"
    try:
        replace_durably(path, folder.tmp / path.name, [number_line(serial)])
    except OSError as error:
        raise archive_error("write", path, error) from None


def _noted_last(folder: CrawlFolder) -> dict[str, int]:
    """Sessions and their last segments, as far as noted."""
    found = {}
    for path in folder.sessions.glob(f"*{LAST_SUFFIX}"):
        with contextlib.suppress(OSError):
            if (serial := number_in(path)) is not None:
                found[path.name.removesuffix(LAST_SUFFIX)] = serial
    return found


def change_lines(
    folder: CrawlFolder, change: Callable[[CommitEntry], CommitEntry | None], *, mends: bool = False
) -> None:
    """Replace entries in all sealed segments: one that `change` returns itself stays, one without a result goes.

    With `mends` damaged lines go, too, and in place of a missing segment comes one without lines; what goes is written
    to `log/refetched.cdxj` before. Else segments with damage are left alone. May be repeated after a crash at any
    point: each segment is replaced atomically. Raises ArchiveError.
    """
    names = {path.name.removesuffix(OPEN_SUFFIX) for path in folder.index.glob(f"*{SUFFIX}*")}
    missing = map(folder.index.joinpath, serials_missing(folder, names) if mends else ())
    for path in sorted([*folder.index.glob(f"*{SUFFIX}"), *missing]):
        left, gone = list[bytes](), list[bytes]()
        check, is_changed, is_damaged = SegmentCheck(), False, False
        try:
            with path.open("rb") if path.exists() else contextlib.nullcontext(()) as lines:
                for line in filter(check.is_entry, lines):
                    entry = to_entry(line) if line.endswith(b"\n") else None
                    after = change(entry) if entry is not None else None
                    is_damaged |= entry is None
                    is_changed |= after is not entry
                    if after is None:
                        gone.append(line)
                    else:
                        left.append(line if after is entry else to_line(after))
            is_damaged = is_damaged or bool(check.flaw())
            if is_damaged and not mends:
                continue
            if gone:
                with open(folder.log / DROPPED, "ab", opener=open_private) as kept:
                    write_durably(kept, gone)
            if is_changed or is_damaged:
                replace_segment(folder, path, sorted(set(left)))  # a line may have been copied over another
        except OSError as error:
            raise archive_error("write", path, error) from None


def replace_segment(folder: CrawlFolder, path: Path, lines: Sequence[bytes], *, of: Path | None = None) -> None:
    """Write a segment with these sorted lines and a footer, atomically replacing an existing one. It keeps the time of
    that one, or of the file that the lines are `of`: when the last of them was written. Raises OSError.
    """
    try:
        written_ns = (of or path).stat().st_mtime_ns
    except FileNotFoundError:
        written_ns = 0
    replace_durably(path, folder.tmp / path.name, with_footer(lines))
    os.utime(path, ns=(written_ns, written_ns))


def written_lines(path: Path) -> list[bytes]:
    """The lines of an open segment as they stand, without a torn tail, each with its line feed. Raises OSError."""
    with path.open("rb") as file:
        return without_torn_tail(list(file))


def sorted_lines(path: Path) -> list[bytes]:
    """The same in byte order."""
    return sorted(written_lines(path))


def serials_missing(folder: CrawlFolder, names: Collection[str]) -> list[str]:
    """Segments that are missing among those with these names: a session numbers its segments without gaps."""
    highest = {session: last + 1 for session, last in _noted_last(folder).items()}  # behind which there are none
    present = set()
    for name in names:
        session, _, serial = name.removesuffix(OPEN_SUFFIX).removesuffix(SUFFIX).rpartition("-")
        if serial.isdigit():
            present.add((session, int(serial)))
            highest[session] = max(highest.get(session, 0), int(serial))
    missing = [
        f"{session}-{serial:05d}{SUFFIX}"
        for session, last in sorted(highest.items())
        for serial in range(last)
        if (session, serial) not in present
    ]
    # One may have come since they were listed, and get its final name at any moment: that is looked for last.
    paths = map(folder.index.joinpath, missing)
    return [path.name for path in paths if not path.with_name(path.name + OPEN_SUFFIX).exists() and not path.exists()]
