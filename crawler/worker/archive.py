"""Step 7, archive: records are on disk before an ack, index lines before the engine forgets a commit.

What a dead session committed and did not index is indexed by the next owner of the partition.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.duplicates import BYTES_MIN, Duplicates, body_key
from crawler.archive.history import HistoryWriter
from crawler.archive.index_writer import IndexWriter
from crawler.archive.inflight_log import InflightLog
from crawler.archive.items import ItemWriter
from crawler.archive.told_log import ToldLog
from crawler.archive.warc import payload_digest
from crawler.archive.warc_writer import WarcWriter
from crawler.errors import EngineError, NoRoomError
from crawler.frontier.owner import Frontier
from crawler.media_type import declared_type, is_html
from crawler.model import REQUISITE, SITEMAP, CommitEntry, Followed, ItemsLocation, Response, WarcLocation
from crawler.redaction import bears_login
from crawler.runtime.clocks import monotonic_ms
from crawler.runtime.crash_points import reached
from crawler.runtime.ticks import tick
from crawler.settings import ArchiveSettings
from crawler.web.fetcher import KEPT_OUT
from crawler.worker.disk_room import DiskRoom
from crawler.worker.internal_errors import ContentSteps
from crawler.worker.outcomes import Committable
from crawler.worker.work import Work

log = logging.getLogger(__name__)


OK = 200
DETAIL_MAX = 200  # characters
WRITE_EVERY_S = 1.0  # a killed process loses this much


DRAIN_EVERY_S = 0.5
DRAIN_BYTES = 512 << 10  # of entries: drained at once, as thousands of pages a second would fill the engine's memory
ENTRY_BYTES = 300  # without what sites decide
DRAIN_PAUSE_S = 0.2
SETTLE_PAUSE_S = 0.02
# 2 to 4 ms of digests and compression: heartbeats and due queues don't wait for a whole group.
BYTES_BEFORE_YIELD, RECORDS_BEFORE_YIELD = 1 << 20, 32


class Placed(msgspec.Struct, frozen=True):
    """Where the record and the items of a page are, and the digest of its payload."""

    warc: WarcLocation | None
    digest: str
    items: ItemsLocation | None = None


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What one session writes into the crawl folder."""

    warc: WarcWriter
    exchanges: WarcWriter
    index: IndexWriter
    items: ItemWriter
    inflight_log: InflightLog
    history: HistoryWriter
    told: ToldLog


class ArchiveStage:
    """WARC records, index lines, and the drain of the engine's log."""

    def __init__(
        self,
        frontier: Frontier,
        work: Work,
        files: Files,
        content: ContentSteps,
        room: DiskRoom,
        settings: ArchiveSettings,
        *,
        log_entries_max: int,
    ) -> None:
        self._room = room
        self._frontier = frontier
        self._work = work
        self._files = files
        self._content = content
        self._writes_warc = settings.warc
        self._duplicates = Duplicates() if settings.warc and not settings.duplicates else None
        self._log_entries_max = log_entries_max
        self._draining = asyncio.Lock()
        self._undrained_bytes = 0
        self._has_many = asyncio.Event()

    async def store(self, group: Sequence[Committable]) -> list[Placed | None] | None:
        """Records and items of a group, on disk when this returns; None for a page whose content failed. No list where
        the disk has no room for the group. Raises ArchiveError.
        """
        if self._room.refuses:
            return None
        placed, of_bytes, of_records = list[Placed | None](), 0, 0
        for outcome in group:
            if of_bytes >= BYTES_BEFORE_YIELD or of_records == RECORDS_BEFORE_YIELD:
                of_bytes = of_records = 0
                await asyncio.sleep(0)
            placed.append(self._content.attempt(outcome, self._place, outcome))
            of_bytes, of_records = of_bytes + len(outcome.response.raw_body), of_records + 1
        if self._writes_warc or any(one is not None and one.items for one in placed):
            reached("archive.written")
            try:
                await _to_its_end(self._sync)
            except NoRoomError as error:
                self._files.items.drop_unwritten()
                self._files.warc.drop_unwritten()
                self._room.failed(error, sum(len(outcome.response.raw_body) for outcome in group))
                _go_on_with_cancellation()
                return None
            reached("archive.synced")
        return placed

    def _place(self, outcome: Committable) -> Placed:
        handled, response = (
            outcome.handled,
            without_cookies(outcome.response) if outcome.is_private or outcome.withheld else outcome.response,
        )
        items = None
        if handled.items or handled.followed:
            items = self._files.items.add(handled.items, [encode_followed(one) for one in handled.followed])
        if not self._writes_warc:
            return Placed(None, payload_digest(response.raw_body), items)
        request = outcome.claim.request
        is_told = outcome.claim.label == REQUISITE or (request is not None and request.identity)
        fingerprint = outcome.claim.fingerprint if is_told else ""  # what the URL alone does not tell
        if outcome.withheld is not None:
            links = outcome.withheld.links
            added = self._files.warc.add_withheld(response, rights=outcome.rights, links=links, fingerprint=fingerprint)
            return Placed(*added, items)
        if outcome.duplicate_of is not None:  # it was archived as a requisite
            return Placed(*self._files.warc.add_duplicate(response, outcome.duplicate_of, fingerprint), items)
        if self._duplicates is not None and _may_refer(outcome):
            return Placed(*self._body_once(outcome, self._duplicates, fingerprint), items)
        return Placed(*self._files.warc.add(response, fingerprint, outcome.original), items)

    def _body_once(self, outcome: Committable, duplicates: Duplicates, fingerprint: str) -> tuple[WarcLocation, str]:
        """Archive the head of a page whose body the file has, or all of it."""
        claim, response, warc = outcome.claim, outcome.response, self._files.warc
        key = body_key(claim.user, claim.domain, response.raw_body)
        outcome.duplicate_of = duplicates.find(key, warc)
        if outcome.duplicate_of is not None:
            return warc.add_duplicate(response, outcome.duplicate_of, fingerprint)
        place, digest = warc.add(response, fingerprint)
        duplicates.stored(key, response, place, digest, warc.last_id)
        return place, digest

    def _sync(self) -> None:
        self._files.items.sync()
        self._files.warc.sync()

    @property
    def refuses(self) -> bool:
        """Is nothing written, for lack of room on the disk? Then pages are given back, and others may index commits."""
        return self._room.refuses

    def committed(self, partition: int, entry: CommitEntry) -> None:
        """Index a commit and clear it from the engine's log with the next drain."""
        self._work.backlog.undrained[partition].append(entry)
        self._undrained_bytes += ENTRY_BYTES + len(entry.url) + len(entry.title) + len(entry.redirect_to)
        self._undrained_bytes += len(entry.request_body)
        if entry.rights is not None:
            self._undrained_bytes += sum([len(one.value) for one in entry.rights.sources])
        if self._undrained_bytes >= DRAIN_BYTES:
            self._has_many.set()

    async def adopt(self, partition: int) -> None:
        """Index what an earlier owner committed in this partition and did not index."""
        for entry in await self._frontier.undrained(partition):
            self.committed(partition, entry)

    @property
    def wants_drain(self) -> bool:
        return not self._work.backlog.is_empty

    async def run(self) -> None:
        """Drain regularly, and when there is much, until cancelled. Raises ArchiveError."""
        while True:
            await tick(DRAIN_EVERY_S, self._has_many)
            if self.wants_drain or self._work.activity.is_due:
                await self.drain()

    async def have_room(self) -> None:
        """Wait until no partition's log is at its limit: acks wait for this."""
        while self._is_log_full():
            await self.drain()
            if self._is_log_full():
                await asyncio.sleep(DRAIN_PAUSE_S)

    def _is_log_full(self) -> bool:
        return self._work.backlog.longest() >= self._log_entries_max

    async def settle(self, timeout_s: float) -> None:
        """Drain until nothing is left, or until the timeout. Raises ArchiveError."""
        deadline_ms = monotonic_ms() + int(timeout_s * 1000)
        self._work.activity.end()
        await self.drain()
        while self.wants_drain and monotonic_ms() < deadline_ms:
            await asyncio.sleep(SETTLE_PAUSE_S)
            await self.drain()

    async def write_all(self) -> None:
        """Drain what there is, with the counts of activity. Raises ArchiveError."""
        if self.wants_drain or self._work.activity.has_any:
            await self.drain(all_activity=True)

    async def drain(self, *, all_activity: bool = False) -> None:
        """Sync the index, then clear what it holds from the engine. Raises ArchiveError."""
        async with self._draining:
            self._undrained_bytes = 0
            self._has_many.clear()
            try:
                await self._write_index()
                await self._clear_log(all_activity=all_activity)
            except EngineError as error:
                log.warning("drain.engine_error", extra={"error": str(error)})

    async def _write_index(self) -> None:
        """Write lines to disk, but only of commits that a killed engine can't forget: it would deliver them again."""
        if self._room.refuses:
            return
        asked = {partition: len(entries) for partition, entries in self._work.backlog.undrained.items()}
        safe = await self._frontier.written(asked) if asked else ()
        if not safe:
            return
        written: dict[int, list[CommitEntry]] = {}
        for partition, count in asked.items():  # in an order that a simulation repeats
            if partition not in safe:
                continue
            entries = self._work.backlog.undrained.get(partition, [])  # gone when the partition was lost meanwhile
            taken, left = entries[:count], entries[count:]
            if taken:
                written[partition] = taken
                self._work.backlog.undrained[partition] = left
            if not left:
                self._work.backlog.undrained.pop(partition, None)
            for entry in taken:
                self._files.index.add(entry)
        try:
            await _to_its_end(self._files.index.sync)
        except NoRoomError as error:
            self._files.index.drop_unwritten()
            self._room.failed(error)
            for partition, taken in written.items():
                if partition in self._work.held:
                    self._work.backlog.undrained[partition][:0] = taken
            _go_on_with_cancellation()
            return
        except asyncio.CancelledError:
            self._indexed(written)
            raise
        reached("index.synced")
        self._indexed(written)

    def _indexed(self, written: dict[int, list[CommitEntry]]) -> None:
        """Noted after the sync, not before: a line that was not written must stay in the log."""
        for partition, taken in written.items():
            self._work.backlog.indexed[partition] += taken
            if self._duplicates is not None:
                for entry in taken:
                    self._duplicates.indexed(entry)

    async def _clear_log(self, *, all_activity: bool) -> None:
        """Remove from the engine's log what is in the index."""
        indexed, self._work.backlog.indexed = self._work.backlog.indexed, defaultdict(list)
        activity = self._work.activity.take() if all_activity or self._work.activity.is_due else {}
        ended = {p: indexed.get(p, []) for p in (*indexed, *activity)}
        fenced = [(fence, entries) for p, entries in ended.items() if (fence := self._work.held.fence_of(p))]
        try:
            if fenced:
                await self._frontier.drain_log(fenced, activity)
                reached("drain.answered")
        except (EngineError, asyncio.CancelledError):  # a loop that ends is cancelled, and `settle` drains the rest
            for fence, entries in fenced:
                self._work.backlog.indexed[fence.partition] += entries
            raise


def _may_refer(outcome: Committable) -> bool:
    """May the body of a page be in the record of another one, or be that of another one? HTML is read again and again,
    so it stays with its page. What a session or a password brought is nobody else's.
    """
    claim, response = outcome.claim, outcome.response
    is_whole = response.status == OK and not (response.truncated or response.decode_error)
    if not is_whole or len(response.raw_body) < BYTES_MIN or outcome.original is not None or outcome.is_private:
        return False
    is_plain = claim.request is None and claim.label != SITEMAP and not (outcome.page.links or outcome.page.title)
    if not is_plain or is_html(declared_type(response), response.body):
        return False
    return not _bears_secret(response.request_head)


def _bears_secret(head: bytes) -> bool:
    """Has a request a cookie, or a secret of [[sites]]?"""
    head = head.lower()
    return b"\r\ncookie:" in head or b"\r\nauthorization:" in head or KEPT_OUT.encode() in head


async def _to_its_end(write: Callable[[], None]) -> None:
    """Write in a thread, and wait for it even when cancelled: the error of a failed write must not get lost."""
    writing = asyncio.get_running_loop().run_in_executor(None, write)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        writing.result()
        raise


def _go_on_with_cancellation() -> None:
    """An error of `_to_its_end` that was handled may have come in place of a cancellation. Raises CancelledError."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def without_cookies(response: Response) -> Response:
    """As it is archived where its cookies are those of a session. Headers with the password of a login are left out."""
    hidden, lines = KEPT_OUT.encode(), list[tuple[bytes, bytes]]()
    for key, value in response.headers:
        if key.lower() == b"set-cookie":
            lines.append((key, hidden))
        elif not bears_login(value.decode("latin-1")):
            lines.append((key, value))
    return replace(response, headers=tuple(lines))


def encode_followed(one: Followed) -> bytes:
    """A line behind the items of a page."""
    request = one.request
    return msgspec.json.encode(replace(one, request=request.without_body()) if request and request.is_secret else one)
