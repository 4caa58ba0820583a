"""Looks straight into the engine's keys and into the crawl folders: is every URL in exactly one state, and does what
was exported equal the truth?
"""

import contextlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from crawler.archive.folder import open_existing
from crawler.archive.index_reader import read_entries
from crawler.archive.items import ItemFiles
from crawler.errors import ArchiveError
from crawler.frontier.codec import pairs_of, parts_of, read_stamp, unpack_letter
from crawler.frontier.keys import Keys
from crawler.frontier.spilling import Stub, is_row
from crawler.model import REQUISITE, CommitEntry
from tests.frontier.declared import faults_of
from tests.simulation.overflow import Files
from tests.simulation.web import as_requisite
from tests.simulation.wire import RealEngine


class Census:
    """Reads a crawl's keys at one moment, without any script."""

    def __init__(self, real: RealEngine, partitions: int, files: Files) -> None:
        self._wire = real.wire
        self._files = files
        self._unreadable: list[str] = []
        self._keys = Keys("main")
        self._partitions = partitions

    def leases(self) -> dict[int, tuple[str, int]]:
        """(session, epoch) of every partition that ever had an owner."""
        asked = [("HMGET", self._keys.meta(p), "session", "epoch") for p in range(self._partitions)]
        found = self._wire.ask(asked)
        return {p: ((m[0] or b"").decode(), int(m[1])) for p, m in enumerate(found) if m[1]}

    def pending(self) -> int:
        """URLs that are neither done nor given up."""
        return sum(len(self._waiting(p)) + len(self._delivered(p)) for p in range(self._partitions))

    def deferred(self) -> int:
        """URLs that are kept and not to be fetched."""
        return sum(len(self._deferred(p)) for p in range(self._partitions))

    def _waiting(self, p: int) -> list[str]:
        """URLs in queues, and those that become visible later."""
        return [url for queue, url in self._in_blocks(p) if not is_row(queue)] + self._scheduled(p)

    def _scheduled(self, p: int) -> list[str]:
        stored = [entry.decode().split(" ", 2) for entry in self._wire.one("ZRANGE", self._keys.of(p, "at"), 0, -1)]
        return [self._url(p, queue, member) for _, queue, member in stored]

    def _deferred(self, p: int) -> list[str]:
        """URLs in rows."""
        return [url for queue, url in self._in_blocks(p) if is_row(queue)]

    def _in_blocks(self, p: int) -> list[tuple[str, str]]:
        """(queue or row, URL), in memory and in files."""
        of = self._keys.of
        names = sorted(name.decode() for kind in "qb" for name in self._wire.ask([("KEYS", of(p, f"{kind}:*"))])[0])
        found = []
        for name, members in zip(names, self._wire.ask([("ZRANGE", name, 0, -1) for name in names]), strict=True):
            is_head = name.startswith(of(p, "q:"))
            queue = name.removeprefix(of(p, "q:")) if is_head else name.removeprefix(of(p, "b:")).rpartition(":")[0]
            found += [(queue, self._url(p, queue, member.decode())) for member in members]
        return found + self._in_files(p)

    def _in_files(self, p: int) -> list[tuple[str, str]]:
        """Those of blocks that are in files; a name for each of the URLs that can't be read."""
        prefix, found = self._keys.of(p, "t:"), list[tuple[str, str]]()
        for name in sorted(name.decode() for name in self._wire.one("KEYS", f"{prefix}*")):
            for stub in filter(None, (Stub.of(block.decode()) for block in self._wire.one("ZRANGE", name, 0, -1))):
                queue = name.removeprefix(prefix)
                try:
                    found += [(queue, self._url(p, queue, m)) for m in self._files.members(p, stub)]
                except ArchiveError as error:
                    self._unreadable.append(f"partition {p}: {error}")
                    found += [(queue, f"{name} {stub.name} #{n}") for n in range(stub.urls)]
        return found

    def _delivered(self, p: int) -> dict[str, str]:
        """Token -> URL of claims and retries."""
        (records,) = self._wire.ask([("HGETALL", self._keys.of(p, "u"))])
        found = {}
        for token, packed in zip(records[::2], records[1::2], strict=True):
            _, queue, _, member = packed.decode().split(" ", 3)
            found[token.decode()] = self._url(p, queue, member)
        return found

    def _url(self, p: int, queue: str, member: str) -> str:
        """The URL of a member; one of a run is another one, with the run behind it."""
        origin, queue = "", queue.partition("|")[0]
        if member[0] == "\x01":  # set aside: the user is before it
            member = member.split(" ", 1)[1]
        if member[0] >= "%":
            (letter,) = self._wire.ask([("HGET", self._keys.of(p, f"g:{queue}"), member[0])])
            origin = letter.decode()
        url, stamp = parts_of(member, queue, origin)
        known = read_stamp(stamp, 0.0)
        if known.label == REQUISITE:
            return as_requisite(url)
        return f"{url} {known.run}" if known.run else url

    def pending_of(self, run: str) -> list[str]:
        """URLs of a run that wait or are claimed."""
        partitions = range(self._partitions)
        return [
            u for p in partitions for u in (*self._waiting(p), *self._delivered(p).values()) if u.endswith(f" {run}")
        ]

    def left(self) -> dict[int, tuple[int, str]]:
        """Partitions with work left: pending URLs and commits that are not indexed; and the session of the lease."""
        of, partitions = self._keys.of, range(self._partitions)
        asked = [(c, of(p, k), *f) for p in partitions for c, k, *f in (("HLEN", "l"), ("HGET", "m", "session"))]
        found = self._wire.ask(asked)
        pending = [len(self._waiting(p)) + len(self._delivered(p)) for p in partitions]
        counts = {p: (pending[p] + found[2 * p], (found[2 * p + 1] or b"").decode()) for p in partitions}
        return {p: (n, session) for p, (n, session) in counts.items() if n}

    def dead_letters(self) -> dict[str, str]:
        """URL -> reason, of the crawl itself."""
        found = self._wire.ask([("HVALS", self._keys.of(p, "dead")) for p in range(self._partitions)])
        letters = [unpack_letter(blob) for blobs in found for blob in blobs]
        return {
            as_requisite(letter.url) if letter.label == REQUISITE else letter.url: letter.reason
            for letter in letters
            if not letter.run
        }

    def faults(self) -> list[str]:
        """What is wrong with the states of URLs; nothing, it is hoped."""
        self._unreadable = []
        found = [fault for p in range(self._partitions) for fault in self._faults_of(p)]
        return found + self._unreadable + self._undeclared()

    def _undeclared(self) -> list[str]:
        """Keys and fields that no table of keys has."""
        names = [name.decode() for name in self._wire.one("KEYS", self._keys.pattern)]
        kinds = [kind.decode() for kind in self._wire.ask([("TYPE", name) for name in names])]
        reads = {"hash": "HGETALL", "string": "GET"}
        asked = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind in reads]
        values = dict(zip(asked, self._wire.ask([(reads[kind], name) for name, kind in asked]), strict=True))
        whole = {(name, kind): values.get((name, kind)) for name, kind in zip(names, kinds, strict=True)}
        return list(
            faults_of(
                self._keys,
                {
                    name: (kind, dict(pairs_of(value)) if kind == "hash" else value)
                    for (name, kind), value in whole.items()
                },
            )
        )

    def _faults_of(self, p: int) -> Iterable[str]:
        of, waiting, deferred, delivered = self._keys.of, self._waiting(p), self._deferred(p), self._delivered(p)
        expiring, retries, meta = self._wire.ask([
            ("ZRANGE", of(p, "x"), 0, -1), ("ZRANGE", of(p, "r"), 0, -1), ("HGETALL", of(p, "m")),
        ])  # fmt: skip
        counts = {name.decode(): value for name, value in pairs_of(meta)}
        runs = [name.removeprefix("seen") for name in counts if name.startswith("seen")]
        buckets = [of(p, f"s{run}:{n}") for run in runs for n in ("split", *range(int(counts.get(f"buckets{run}", 1))))]
        dropped = int(counts.get("dropped", 0))
        seen = dropped + sum(self._wire.ask([("SCARD", bucket) for bucket in buckets]))
        counted = dropped + sum(int(counts[f"seen{run}"]) for run in runs)
        pending = Counter([*waiting, *delivered.values()])
        if twice := [url for url, n in (pending + Counter(deferred)).items() if n > 1]:
            yield f"partition {p}: in two states at once: {twice}"
        tokens = Counter(token.decode() for token in (*expiring, *retries))
        if tokens != Counter(delivered.keys()):
            yield f"partition {p}: deliveries {delivered} but deadlines {tokens}"
        added, done = int(counts.get("added", 0)), int(counts.get("done", 0))
        if added - done != pending.total():
            yield f"partition {p}: {added} added, {done} done, {pending.total()} pending"
        released, deferrals = int(counts.get("released", 0)), int(counts.get("deferrals", 0))
        if seen != added - released or counted != seen:
            yield f"partition {p}: {added} added, {released} released, {seen} seen, {counted} counted as seen"
        if deferrals - released != len(deferred):
            yield f"partition {p}: {deferrals} deferred, {released} released, {len(deferred)} are"


def exported(folders: Sequence[Path]) -> tuple[dict[tuple[str, int], CommitEntry], list[str]]:
    """The merged index of all crawl folders, and what is wrong with it or with the records it names."""
    merged: dict[tuple[str, int], CommitEntry] = {}
    faults: list[str] = []
    archives = {path.name.removesuffix(".open"): path for folder in folders for path in (folder / "warc").glob("*")}
    for folder in folders:
        for entry in read_entries(open_existing(folder)):
            key = (entry.fingerprint, entry.visit)
            if key not in merged:
                merged[key] = entry
                if not _has_record(archives, entry):
                    faults.append(f"{entry.url}: indexed by {entry.session}, but there is no record of it")
                if entry.status == 200 and entry.is_page and not _has_items(folders, entry):
                    faults.append(f"{entry.url}: indexed by {entry.session}, but its items are not there")
    return merged, faults


def _has_items(folders: Iterable[Path], entry: CommitEntry) -> bool:
    """Both, as the app of all simulations yields them, in whatever folder; with the label that links get there."""
    if entry.items is None or entry.items.count != 2:
        return False
    for folder in folders:
        with ItemFiles(open_existing(folder)) as files, contextlib.suppress(ArchiveError):
            found = msgspec.json.decode(files.items(entry.items)[0])
            return bool(found == {"url": entry.url, "label": "followed" if entry.depth else ""})
    return False


def _has_record(archives: dict[str, Path], entry: CommitEntry) -> bool:
    if entry.warc is None or entry.warc.file not in archives:
        return False
    with archives[entry.warc.file].open("rb") as file:
        file.seek(entry.warc.offset)
        member = file.read(entry.warc.length)
    try:
        record = zlib.decompress(member, 31)
    except zlib.error:
        return False
    return f"WARC-Target-URI: {entry.url}\r\n".encode() in record
