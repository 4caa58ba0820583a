"""Server-sent events: one reader of the engine for all clients, and what each client has not seen yet.

Kinds: `overview` and `members` are snapshots, of which only the newest counts; `log` and `takeover` are entries, each
of which a client gets once. An event's id is a place in both logs, "ENTRY.TAKEOVER": a client that comes back with it
in Last-Event-ID gets the entries that it missed. `outage`: the engine does not answer.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from crawler.api.live_crawl import LiveCrawl
from crawler.api.problem import Limits
from crawler.errors import EngineError
from crawler.frontier.leases import Takeover, Takeovers
from crawler.frontier.operator_log import ENTRIES_MAX, LogEntry
from crawler.views.instances import member_views
from crawler.views.whole import overview_with_losses

log = logging.getLogger(__name__)


TAKEOVERS_LOOKED_AT = 20  # at each read; all where they are not enough


NO_TAKEOVER = "0"


Shown = Callable[[LogEntry], LogEntry | None]  # an entry as a client may read it


HEARTBEAT = b": heartbeat\n\n"


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """The engine does not answer, so no news come."""

    detail: str


class Place(NamedTuple):
    """What a client has seen last: the number of a log entry, and the digest of a takeover."""

    entry: int
    takeover: str

    @classmethod
    def read(cls, text: str) -> "Place | None":
        """A place from Last-Event-ID; None when it is not one."""
        entry, _, takeover = text.partition(".")
        is_number = entry.isascii() and entry.isdigit() and len(entry) < 16
        return cls(int(entry), takeover) if is_number and takeover else None

    def __str__(self) -> str:
        return f"{self.entry}.{self.takeover}"


class EventHub:
    """Reads the crawl while somebody listens."""

    def __init__(self, live: LiveCrawl, limits: Limits) -> None:
        self._live = live
        self._limits = limits
        self._clients = 0
        self._is_closed = False
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()  # replaced after each read: setting it wakes all who wait
        self._entries: list[tuple[LogEntry, bytes]] = []  # encoded, oldest first
        self._takeovers: list[tuple[str, bytes]] = []
        self._snapshots: dict[str, tuple[int, bytes]] = {}  # kind -> the read that it is of, its data
        self._reads = 0
        self._is_read = False

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._news.set()

    async def run(self) -> None:
        """Read, each second, while there are clients; until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                await self._read()
                self._snapshots.pop("outage", None)
            except EngineError as error:
                self._snapshot("outage", Outage(detail=str(error)), only_new=True)
            except Exception:
                log.exception("api.bug")
                self._snapshot("outage", Outage(detail="this is a bug of the server; its log has it"), only_new=True)
            self._is_read = True
            self._reads += 1
            news, self._news = self._news, asyncio.Event()
            news.set()
            await asyncio.sleep(self._limits.events_every_s)

    async def listen(self, last_id: str, shown: Shown) -> AsyncGenerator[bytes]:
        """The events of one client and heartbeats, as text to send; of the log, the entries that are shown to it."""
        self._clients += 1
        self._wanted.set()
        try:
            while not self._is_read and not self._is_closed:
                await self._news.wait()
            place, seen = self._begin(last_id), -1
            while not self._is_closed:
                news, reads = self._news, self._reads
                chunks, place = self._missing(place, seen, shown)
                seen = reads - 1
                if chunks:
                    yield b"".join(chunks)
                try:
                    async with asyncio.timeout(self._limits.heartbeat_s):
                        await news.wait()
                except TimeoutError:
                    yield HEARTBEAT
        finally:
            self._clients -= 1
            if not self._clients:
                self._wanted.clear()
                self._is_read = False  # what was read is old when the next one comes

    def _begin(self, last_id: str) -> Place:
        """Where a client goes on: where it was, or at the end."""
        end = self._end()
        place = Place.read(last_id) or end
        return place if place.entry <= end.entry else Place(end.entry, place.takeover)

    def _end(self) -> Place:
        return Place(
            self._entries[-1][0].id if self._entries else 0, self._takeovers[-1][0] if self._takeovers else NO_TAKEOVER
        )

    def _missing(self, place: Place, seen: int, shown: Shown) -> tuple[list[bytes], Place]:
        """What a client at a place has to get, and where it is then."""
        chunks, entry, takeover = [], place.entry, place.takeover
        if self._entries and self._entries[-1][0].id > entry:
            for one, data in self._entries:
                if one.id > entry:
                    entry = one.id
                    seen_so = shown(one)
                    if seen_so is not None:
                        text = data if seen_so is one else msgspec.json.encode(seen_so)
                        chunks.append(_event("log", text, Place(entry, takeover)))
        if self._takeovers and self._takeovers[-1][0] != takeover:
            known = [digest for digest, _ in self._takeovers]
            start = known.index(takeover) + 1 if takeover in known else 0
            for digest, data in self._takeovers[start:]:
                takeover = digest
                chunks.append(_event("takeover", data, Place(entry, takeover)))
        place = Place(entry, takeover)
        for kind, (of_read, data) in self._snapshots.items():
            if of_read > seen:
                chunks.append(_event(kind, data, place))
        return chunks, place

    async def _read(self) -> None:
        crawl = await self._live.current()
        await self._read_log()
        await self._read_takeovers()
        members = await member_views(crawl)
        self._snapshot("members", members, only_new=True)
        self._snapshot("overview", await overview_with_losses(crawl))

    async def _read_log(self) -> None:
        operator_log = (await self._live.current()).operator_log
        last = self._entries[-1][0].id if self._entries else 0
        new = await operator_log.read(last) if last else await operator_log.newest()
        self._entries += [(entry, msgspec.json.encode(entry)) for entry in new]
        del self._entries[:-ENTRIES_MAX]

    async def _read_takeovers(self) -> None:
        crawl = await self._live.current()
        takeovers = Takeovers(crawl.engine, crawl.keys)
        newest = _with_digests(await takeovers.read(TAKEOVERS_LOOKED_AT))
        last = self._takeovers[-1][0] if self._takeovers else NO_TAKEOVER
        known = [digest for digest, _ in newest]
        if last in known:
            self._takeovers += newest[known.index(last) + 1 :]
        elif newest:
            self._takeovers = _with_digests(await takeovers.read())

    def _snapshot(self, kind: str, value: object, *, only_new: bool = False) -> None:
        data = msgspec.json.encode(value)
        if not only_new or kind not in self._snapshots or self._snapshots[kind][1] != data:
            self._snapshots[kind] = self._reads, data


def _with_digests(takeovers: list[Takeover]) -> list[tuple[str, bytes]]:
    encoded = [msgspec.json.encode(one) for one in takeovers]
    return [(blake2b(data, digest_size=6).hexdigest(), data) for data in encoded]


def _event(kind: str, data: bytes, place: Place) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(place).encode(), kind.encode(), data)
