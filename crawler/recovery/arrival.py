"""The end where a crawl arrives, of a move or a restore: what is there already, and the proof that all has come."""

import contextlib
import enum
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Sequence

import msgspec

from crawler.errors import ConflictError, EngineError
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import CRAWLS
from crawler.frontier.record import ARRIVING, MOVED, CrawlRecord, Mark, mark_in, marks_of, plain_record, record_of
from crawler.recovery.copying import (
    CRAWL_WIDE,
    Digest,
    Entry,
    KeyNames,
    digest_of,
    drop_entries,
    name_of,
    place_of,
    unmarked,
    write_entries,
)
from crawler.recovery.side import Side
from crawler.rules.progress import Meter

LISTINGS_MAX = 5  # of all keys of the target, while its primaries fail
BY = b"by"  # a field beside the groups: the command that goes on now
COMMAND_ID_BYTES = 6

_encode = msgspec.json.Encoder().encode


class Stand(enum.Enum):
    """What an engine has of a crawl that is to arrive."""

    NOTHING = enum.auto()
    LEFT = enum.auto()  # it was there, and comes back
    ARRIVING = enum.auto()  # a part of it, by this move
    ARRIVED = enum.auto()  # all of it, by this move


class Arrival:
    """The end where a crawl arrives, from a place.

    `done`: the digest of each group that was written here, as it was read; `alone`: servers whose part no replica has
    in the end.
    """

    def __init__(self, side: Side, came_from: str) -> None:
        self.side = side
        self._from = came_from
        self.done: dict[int, str] = {}
        self.alone: set[str] = set()
        self._move = ""
        self._command = secrets.token_hex(COMMAND_ID_BYTES)
        self._keys: dict[int, int] = {}  # by group that was written since this process began
        self._proven: set[int] = set()
        self._wrong_at: dict[int, tuple[str, str]] = {}  # where a group was not as it had been written

    @property
    def keys(self) -> int:
        return sum(self._keys.values())

    async def stand(self, was: bytes, move: str) -> Stand:
        """What is here. `move`: the id of the move; "" for one that has not begun. Raises ConflictError for another
        crawl, and for what did not come by this move: neither of the two may be overwritten.
        """
        side, name = self.side, self.side.keys.crawl_name
        if (raw := await side.raw()) is None:
            return Stand.NOTHING
        mark, there = mark_in(raw), plain_record(raw)
        if not is_same(there, was):
            raise ConflictError(
                f"{side.place} has {_kind_of(there, was)} crawl {name!r}: take another engine, or remove it there "
                f"('crawler crawls rm {name}')"
            )
        if move and move_of(there) == move and (mark is None or mark.layout == MOVED):
            return Stand.ARRIVED
        if mark is None:
            raise ConflictError(
                f"{side.place} has the crawl {name!r} already, which did not come there by this move. Remove the copy "
                f"that you do not want ('crawler crawls rm {name}')"
            )
        if mark.layout == ARRIVING and move and mark.move == move:
            return Stand.ARRIVING
        if mark.layout == ARRIVING:
            raise ConflictError(
                f"{side.place} has a part of the crawl {name!r}, from {mark.place}, by another move or restore: run "
                f"that command again, or remove what has arrived with 'crawler crawls rm {name}'"
            )
        if mark.layout == MOVED and mark.is_done:
            return Stand.LEFT
        raise ConflictError(f"the crawl {name!r} of {side.place} {mark.why(name)}")

    async def begin(self, was: bytes, move: str) -> bool:
        """Put a mark here; False when the crawl has arrived already. Raises ConflictError as `stand`."""
        side, engine, name = self.side, self.side.engine, self.side.keys.crawl_name
        while (stand := await self.stand(was, move)) is Stand.ARRIVED:
            await self._confirm([CRAWL_WIDE])
            if await self.stand(was, move) is Stand.ARRIVED:  # its primary may have failed before that
                await engine.command("UNLINK", side.keys.moving)
                return False
        arriving = _encode(Mark(layout=ARRIVING, was=was.decode(), place=self._from, move=move, at=time.time()))
        await engine.command("SADD", CRAWLS, name)
        if stand is Stand.NOTHING:
            await engine.commands([("UNLINK", side.keys.moving), ("HSETNX", side.keys.crawl, "record", arriving)])
        elif stand is Stand.LEFT and (raw := await side.raw()):
            await self.clear()
            await side.replace(raw, arriving)
        await self._check_mark(move)
        self._move = move
        await engine.command("HSET", side.keys.moving, BY, self._command)
        await self._confirm([CRAWL_WIDE])
        found = await engine.command("HGETALL", side.keys.moving)
        self.done = {int(group): digest.decode() for group, digest in pairs_of(found) if group != BY}
        return True

    async def _check_alone(self) -> None:
        """Raises ConflictError when another command has gone on with this: it may have ended it, and what this one
        writes would be written over what the crawl has done since.
        """
        engine, keys = self.side.engine, self.side.keys
        by = await engine.command("HGET", keys.moving, BY)
        if by is None:  # it is done, or its primary failed
            await self._check_mark(self._move)
            await engine.command("HSETNX", keys.moving, BY, self._command)
            by = await engine.command("HGET", keys.moving, BY)
        if by != self._command.encode():
            raise ConflictError(
                f"another command goes on with what this one brings to {self.side.place}: wait until it has ended"
            )

    async def _check_mark(self, move: str) -> bytes:
        """What is in the place of the record: the mark of this move. Raises ConflictError for anything else."""
        raw = await self.side.raw()
        mark = mark_in(raw) if raw else None
        if raw is None or mark is None or mark.layout != ARRIVING or mark.move != move:
            raise ConflictError(
                f"the record of crawl {self.side.keys.crawl_name!r} in {self.side.place} was changed at this moment: "
                "try again"
            )
        return raw

    async def clear(self) -> None:
        """Delete all of the crawl but for the mark, with plain commands, which a full engine takes."""
        engine, keys = self.side.engine, self.side.keys
        async for some in engine.scan(keys.pattern):
            await engine.commands([("UNLINK", key) for key in some if key != keys.crawl.encode()])
        await drop_entries(engine, keys, CRAWL_WIDE, ())
        await engine.command("HDEL", keys.crawl, "marked")

    async def write(self, group: int, entries: Sequence[Entry]) -> None:
        await self._check_alone()
        await write_entries(self.side.engine, self.side.keys, group, entries)

    async def note(self, group: int, read: Digest) -> None:
        """A group was written as it was read."""
        await self.side.engine.command("HSET", self.side.keys.moving, group, read.text)
        self.done[group], self._keys[group] = read.text, read.keys

    async def drop(self, record: CrawlRecord, groups: Collection[int]) -> None:
        """Delete all keys of groups that are to be copied again."""
        names = await self._names(record)
        for group in groups:
            await self._drop(group, names)

    async def _drop(self, group: int, names: KeyNames) -> None:
        await self._check_alone()
        await drop_entries(self.side.engine, self.side.keys, group, names.of(group))
        self._proven.discard(group)

    async def _names(self, record: CrawlRecord) -> KeyNames:
        for _ in range(LISTINGS_MAX):
            with contextlib.suppress(ConflictError):  # a primary failed meanwhile
                return await self.side.names(record)
        return await self.side.names(record)

    async def lost(self, record: CrawlRecord, meter: Meter) -> list[int]:
        """The groups that are not here as they were read; they are dropped. All others stay: where a replica works, it
        has them.

        A primary that fails loses what no replica has, and its successor answers as if nothing had been. So run ids are
        read before a group's digest and after the replica's word. Raises EngineError for a group that is wrong again
        although its server is the same.
        """
        engine, keys, lost = self.side.engine, self.side.keys, list[int]()
        left = [group for group in all_groups(record) if group not in self._proven]
        while left:
            meter.begin("reading back", "partition", len(left))
            before = {group: place_of(engine, keys, group) for group in left}
            names, wrong = await self._names(record), await unmarked(engine, keys, left)
            for i, group in enumerate(left, 1):
                if (await digest_of(engine, keys, group, names.of(group))).text != self.done.get(group):
                    wrong.add(group)
                meter.reached(i, i)
            await self._confirm(left)
            stayed = {group for group in left if place_of(engine, keys, group) == before[group]}
            self._proven |= stayed - wrong
            for group in sorted(wrong):
                if self._wrong_at.get(group) == before[group]:
                    raise EngineError(f"the copy of {name_of(group)} differs from what was read: try again")
                self._wrong_at[group] = before[group]
                await self._drop(group, names)
            lost += wrong
            left = [group for group in left if group not in stayed | wrong]
        return lost

    async def _confirm(self, groups: Iterable[int]) -> list[str]:
        """Wait for replicas of the servers of these groups; the names of servers without one that has all."""
        keys = self.side.keys
        return await self.side.engine.confirm([keys.crawl if g == CRAWL_WIDE else keys.meta(g) for g in groups])

    async def finish(self, was: bytes, move: str) -> None:
        """From here on the crawl is in this engine. The record keeps the id of the move until `forget`.

        Only after `lost` found nothing. Raises ConflictError when the mark is gone.
        """
        side, arrived = self.side, _with_move(was, move)
        while await side.raw() != arrived:
            seen = await self._check_mark(move)
            await self._check_alone()
            if marks_of(side.engine):  # all partitions have their marks
                await side.engine.command("HSET", side.keys.crawl, "marked", 1)
            await side.replace(seen, arrived)
            await self._confirm([CRAWL_WIDE])  # then it is read once more: its primary may have failed before
        self.alone = {*await self._confirm(all_groups(record_of(msgspec.json.decode(was))))}
        await side.engine.command("UNLINK", side.keys.moving)
        shutil.rmtree(side.work, ignore_errors=True)

    async def forget(self, move: str) -> None:
        """The other end is closed, or there is none."""
        raw = await self.side.raw()
        if raw is not None and mark_in(raw) is None and move_of(raw) == move:
            with contextlib.suppress(ConflictError):  # an instance changed it; the id does no harm
                await self.side.replace(raw, _with_move(raw, ""))


def all_groups(record: CrawlRecord) -> list[int]:
    return [CRAWL_WIDE, *range(record.partitions)]


def is_same(one: bytes, other: bytes) -> bool:
    """Are these records of the same crawl?"""
    first, second = msgspec.json.decode(one), msgspec.json.decode(other)
    return bool(first.get("begun_at") == second.get("begun_at") and first.get("hash_key") == second.get("hash_key"))


def _kind_of(there: bytes, was: bytes) -> str:
    """How a crawl that is not the same is related to it, for people."""
    first, second = msgspec.json.decode(there), msgspec.json.decode(was)
    if first.get("hash_key") != second.get("hash_key"):
        return "another"
    return "an older copy of the" if first["begun_at"] < second["begun_at"] else "a newer copy of the"


def move_of(record: bytes) -> str:
    return str(msgspec.json.decode(record).get("move", ""))


def _with_move(record: bytes, move: str) -> bytes:
    return _encode(msgspec.json.decode(record) | {"move": move})
