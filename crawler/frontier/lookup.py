"""Read-only queries for people: where a URL is, the progress of a crawl, some dead letters.

The work is bounded by the number of partitions, by what is shown, or by the queue of the one URL.
"""

from functools import partial

import msgspec
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.frontier.arguments import LocateArgs
from crawler.frontier.codec import (
    DeadLetter,
    PendingUrl,
    unpack_letter,
    unpack_log,
    unpack_queue,
)
from crawler.frontier.deferred import PAUSED
from crawler.frontier.keys import Keys
from crawler.frontier.pending import PendingUrls
from crawler.frontier.spilling import BlockFiles
from crawler.frontier.stats import first_visible_at
from crawler.model import REQUISITE, Candidate, CommitEntry

FULL_LOOK_EVERY = 10
_PROGRESS = ("added", "done", "bytes", "retries", "dead", "s1", "s2", "s3", "s4", "s5", "s9", "scheduled")


class UrlLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a partition knows about one URL. Times in ms on the partition's clock; None for missing values."""

    seen: bool
    record: PendingUrl | None  # if pending: queued, claimed, waiting for a retry, or scheduled
    claim_deadline_ms: int | None
    retry_at_ms: int | None
    visible_at: float | None = None  # if it is scheduled: wall clock, s
    probe_ms: int | None = None  # if it is set aside: when its origin is probed next
    silent_ms: int | None = None  # and since when it has been silent, if it is known to be
    place: int | None  # in its queue, 0 is the front
    letter: DeadLetter | None
    entry: CommitEntry | None  # committed, and not yet in an index segment
    clock_ms: int
    session: str
    node: str
    epoch: int
    next_fetch_ms: int
    delay_ms: int | None
    claims_out: int
    stop: str = ""  # why nothing of its queue is handed out
    deferred: str = ""  # why it is deferred, if it is


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all partitions. `redirected` counts responses of 3xx. `busy`: the partitions that have pending URLs."""

    added: int = 0
    done: int = 0
    fetched: int = 0
    redirected: int = 0
    client_errors: int = 0  # 4xx
    server_errors: int = 0  # 5xx
    bytes: int = 0
    requisites: int = 0  # responses that pages need to be shown; they are not in `fetched`
    retries: int = 0
    dead: int = 0
    scheduled: int = 0  # pending ones that become visible later
    first_visible_at: float | None = None  # the first of these; wall clock, s
    busy: int = 0

    @property
    def pending(self) -> int:
        return self.added - self.done

    @property
    def failed(self) -> int:
        """Responses of 4xx and 5xx."""
        return self.client_errors + self.server_errors

    @property
    def failures(self) -> int:
        """Attempts that brought no response, and URLs that were given up for another reason."""
        return self.retries + self.dead


class UrlLookup:
    """Queries of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int, files: BlockFiles | None = None) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions
        self._pending = PendingUrls(engine, keys, files)
        self._used: list[int] = []
        self._looks = 0

    async def locate(self, candidate: Candidate, *, visit: int = 1) -> UrlLocation:
        """Everything about one URL.

        Its queue is read block by block, so a URL that moves meanwhile may be missed.
        """
        c, pending = candidate, self._pending
        raw = await self._engine.run(
            "locate", (self._keys.meta(c.partition),), *LocateArgs(c.run, c.fingerprint, visit, c.queue)
        )
        is_requisite = c.label == REQUISITE
        place = await pending.place(c.partition, c.queue, c.url, run=c.run, now_s=c.found_at, is_requisite=is_requisite)
        if place is not None:
            return _location(raw, place[1], place=place[0])
        found = await pending.delivered(c.partition, c.url, c.run, is_requisite=is_requisite)
        if found is None:
            return await self._waiting(candidate, raw)
        key = partial(self._keys.of, c.partition)
        deadline, retried = await self._engine.commands([("ZSCORE", key(name), found.name) for name in ("x", "r")])
        return _location(raw, found.url, deadline=deadline, retry_at=retried)

    async def _waiting(self, c: Candidate, raw: list[bytes]) -> UrlLocation:
        """A URL that is neither queued nor claimed: it may be scheduled or deferred."""
        where, is_requisite = _location(raw), c.label == REQUISITE
        if not where.seen:
            return where
        known = unpack_queue(raw[-1])
        if known.get("aside") and (
            aside := await self._pending.set_aside(
                c.partition, c.queue, c.url, c.run, c.found_at, is_requisite=is_requisite
            )
        ):
            return replace(where, record=aside.url, probe_ms=aside.due_ms, silent_ms=aside.since_ms)
        if known.get("at") and (
            found := await self._pending.scheduled_one(c.partition, c.url, is_requisite=is_requisite)
        ):
            return replace(where, record=found.url, visible_at=found.visible_at)
        return replace(where, deferred=await self._deferred(c))

    async def _deferred(self, c: Candidate) -> str:
        """The reason of the row that a deferred URL is in, or ""."""
        key = self._keys.of(c.partition, "deferred")
        for row in await self._engine.command("HKEYS", key):
            queue, _, reason = row.decode().partition("|")
            if queue == c.queue and await self._pending.place(
                c.partition, queue, c.url, reason, now_s=c.found_at, is_requisite=c.label == REQUISITE
            ):
                return str(reason)
        return ""

    async def progress(self) -> Progress:
        """One pass over the counters of the partitions in use; every tenth time over all partitions.

        May run several times at once: until a pass over all has ended, each is one.
        """
        is_full = not self._used or self._looks % FULL_LOOK_EVERY == 0
        partitions = list(range(self._partitions)) if is_full else self._used
        self._looks += 1
        sums = [0] * len(_PROGRESS)
        found = await self._engine.commands([("HMGET", self._keys.meta(p), *_PROGRESS) for p in partitions])
        if is_full:
            self._used = [p for p, values in zip(partitions, found, strict=True) if values[0] is not None]
        for values in found:
            if values[0] is not None:
                sums = [total + int(value or 0) for total, value in zip(sums, values, strict=True)]
        holders = [p for p, values in zip(partitions, found, strict=True) if int(values[-1] or 0)]
        busy = sum(1 for values in found if int(values[0] or 0) > int(values[1] or 0))
        n = dict(zip(_PROGRESS, sums, strict=True))
        return Progress(
            added=n["added"], done=n["done"], fetched=sum(n[f"s{c}"] for c in range(1, 6)), redirected=n["s3"],
            client_errors=n["s4"], server_errors=n["s5"], bytes=n["bytes"], requisites=n["s9"],
            retries=n["retries"], dead=n["dead"], scheduled=n["scheduled"],
            first_visible_at=await first_visible_at(self._engine, self._keys, holders),
            busy=busy,
        )  # fmt: skip

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """Some of the URLs that were given up, at most `limit`; seeds first."""
        sizes = await self._engine.commands([("HLEN", self._keys.of(p, "dead")) for p in range(self._partitions)])
        holders = [p for p, n in enumerate(sizes) if n][:limit]
        commands = [("HRANDFIELD", self._keys.of(p, "dead"), limit, "WITHVALUES") for p in holders]
        found = [unpack_letter(blob) for flat in await self._engine.commands(commands) for blob in flat[1::2]]
        return sorted(found, key=lambda letter: (not letter.seed, letter.failed_at))[:limit]


def _location(
    raw: list[bytes],
    record: PendingUrl | None = None,
    *,
    place: int | None = None,
    deadline: bytes | float | None = None,
    retry_at: bytes | float | None = None,
) -> UrlLocation:
    seen, letter, entry, clock, session, node, epoch, queue = raw
    known = unpack_queue(queue)
    stop = known.get("stop", "")
    return UrlLocation(
        seen=seen == b"1",
        record=record,
        claim_deadline_ms=None if deadline is None else int(float(deadline)),
        retry_at_ms=None if retry_at is None else int(float(retry_at)),
        place=place,
        letter=unpack_letter(letter) if letter else None,
        entry=unpack_log(entry)[1] if entry else None,
        clock_ms=_ms(clock),
        session=session.decode(),
        node=node.decode(),
        epoch=int(epoch or 0),
        next_fetch_ms=known.get("next", 0),
        delay_ms=known["delay"] if known.get("delay", -1) >= 0 else None,
        claims_out=known.get("out", 0),
        stop=stop,
        deferred=stop if place is not None and stop != PAUSED else "",
    )


def _ms(text: bytes) -> int:
    return int(float(text or 0))
