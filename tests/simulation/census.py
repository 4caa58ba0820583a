"""Looks straight into the engine's keys and into the crawl folders: is every URL in exactly one state, and does what
was exported equal the truth?
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from crawler.archive.folder import open_existing
from crawler.archive.reader import read_entries
from crawler.frontier.keys import Keys
from crawler.frontier.records import unpack_letter, unpack_record
from crawler.model import CommitEntry
from tests.simulation.wire import RealEngine


class Census:
    """Reads a crawl's keys at one moment, without any script."""

    def __init__(self, real: RealEngine, partitions: int) -> None:
        self._wire = real.wire
        self._keys = Keys("main")
        self._partitions = partitions

    def leases(self) -> dict[int, tuple[str, int]]:
        """(session, epoch) of every partition that ever had an owner."""
        asked = [("HMGET", self._keys.meta(p), "session", "epoch") for p in range(self._partitions)]
        found = self._wire.ask(asked)
        return {p: ((m[0] or b"").decode(), int(m[1])) for p, m in enumerate(found) if m[1]}

    def pending(self) -> int:
        """URLs that are neither done nor given up."""
        return sum(self._wire.ask([("HLEN", self._keys.of(p, "u")) for p in range(self._partitions)]))

    def left(self) -> dict[int, tuple[int, str]]:
        """Partitions with work left: pending URLs and commits that are not indexed; and the session of the lease."""
        of, partitions = self._keys.of, range(self._partitions)
        asked = [
            (c, of(p, k), *f)
            for p in partitions
            for c, k, *f in (("HLEN", "u"), ("HLEN", "l"), ("HGET", "m", "session"))
        ]
        found = self._wire.ask(asked)
        counts = {p: (found[3 * p] + found[3 * p + 1], (found[3 * p + 2] or b"").decode()) for p in partitions}
        return {p: (n, session) for p, (n, session) in counts.items() if n}

    def dead_letters(self) -> dict[str, str]:
        """URL -> reason."""
        found = self._wire.ask([("HVALS", self._keys.of(p, "dead")) for p in range(self._partitions)])
        letters = [unpack_letter(blob) for blobs in found for blob in blobs]
        return {letter.url: letter.reason for letter in letters}

    def faults(self) -> list[str]:
        """What is wrong with the states of URLs; nothing, it is hoped."""
        return [fault for p in range(self._partitions) for fault in self._faults_of(p)]

    def _faults_of(self, p: int) -> Iterable[str]:
        of = self._keys.of
        records, claims, expiring, overtaken, retries, meta = self._wire.ask([
            ("HGETALL", of(p, "u")), ("HKEYS", of(p, "c")), ("ZRANGE", of(p, "x"), 0, -1),
            ("ZRANGE", of(p, "o"), 0, -1), ("ZRANGE", of(p, "r"), 0, -1),
            ("HMGET", of(p, "m"), "added", "done", "seen0", "buckets0"),
        ])  # fmt: skip
        pending = dict(zip(records[::2], records[1::2], strict=True))
        queues = sorted({unpack_record(record).queue for record in pending.values()})
        buckets = [of(p, f"s0:{n}") for n in range(int(meta[3] or 1))]
        answers = self._wire.ask(
            [("ZRANGE", of(p, f"q:{q}"), 0, -1) for q in queues] + [("SCARD", bucket) for bucket in buckets]
        )
        waiting = [fp for found in answers[: len(queues)] for fp in found]
        seen = sum(answers[len(queues) :])
        places = Counter([*waiting, *claims, *retries])
        if any(n > 1 for n in places.values()):
            yield f"partition {p}: in two states at once: {[fp for fp, n in places.items() if n > 1]}"
        if set(places) != set(pending):
            lost = [unpack_record(pending[fp]).url for fp in pending if fp not in places]
            yield f"partition {p}: pending in no state: {lost}; in a state without record: {set(places) - set(pending)}"
        if sorted([*expiring, *overtaken]) != sorted(claims):
            yield f"partition {p}: claims {claims} but deadlines {expiring} and overtaken {overtaken}"
        added, done = int(meta[0] or 0), int(meta[1] or 0)
        if added - done != len(pending):
            yield f"partition {p}: {added} added, {done} done, {len(pending)} pending"
        if seen != added or int(meta[2] or 0) != seen:
            yield f"partition {p}: {added} added, {seen} seen, {meta[2]} counted as seen"


def exported(folders: Iterable[Path]) -> tuple[dict[tuple[str, int], CommitEntry], list[str]]:
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
    return merged, faults


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
