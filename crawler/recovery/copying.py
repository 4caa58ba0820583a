"""What the engine has of a crawl, in a form that any engine takes, by group: a partition, or what is crawl-wide.

A key is read and written by its type, with plain commands, so that versions and products do not matter. While nothing
runs on a crawl, its keys do not change: so each group has a digest, by which a copy is compared with what it is of.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crawler.archive.folder import open_private
from crawler.engine.client import Engine
from crawler.errors import ConflictError, EngineError
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.frontier.record import BORN, marks_of

CRAWL_WIDE = -1  # the group beside the partitions
KEYS_AT_ONCE = 200  # of which types and values are asked in one go
ELEMENTS_AT_ONCE = 500  # of one key in one command
NAMES_IN_MEMORY_BYTES = 64 << 20
DIGEST_BYTES = 16
_ANY = Keys("any")


def _name(key: str) -> bytes:
    """Without its hash tag."""
    return key.partition("}:")[2].encode()


# Crawl-wide: who takes part at this moment, what supervisors say, and how far a move is.
LEFT_OUT = {
    _name(key)
    for key in (
        _ANY.members, _ANY.nodes, _ANY.returns, _ANY.evicted, _ANY.supervisors, _ANY.wanted, _ANY.moving,
    )
}  # fmt: skip
CRAWL, META = _name(_ANY.crawl), _name(_ANY.meta(0))  # keys of the crawl, and of a partition, that have
OF_THIS_ENGINE = {
    CRAWL: (b"record", b"marked"),
    META: (BORN.encode(), b"session", b"node", b"engine"),
}  # fields that are not copied: each end has its own

_encode = msgspec.msgpack.Encoder().encode


class Entry(NamedTuple):
    """A key without its hash tag, its type, and its value: bytes of a string; elements of a list or a set; pairs of a
    hash or a sorted set (member, score); of a stream pairs of an id and the fields of an entry. What the engine keeps
    in no order is sorted.
    """

    name: bytes
    type: str
    value: Any


class KeyNames:
    """The names of all keys of a crawl, without their hash tags, by group; in files where they are many."""

    def __init__(self, keys: Keys, folder: Path) -> None:
        """`folder`: for the files; it exists."""
        self._keys = keys
        self._folder = folder
        self._found: dict[int, bytearray] = {}
        self._bytes = 0
        self._wide, self._of_partition = keys.tag.encode(), f"{{{keys.crawl_name}:".encode()

    async def read(self, engine: Engine, partitions: int) -> None:
        """Look at all keys of the engine, whatever they belong to. Raises EngineError, OSError, and ConflictError when
        a slot moved meanwhile: its keys may have been overlooked.
        """
        where = _places(engine, self._keys, partitions)
        async for some in engine.scan(self._keys.pattern):
            for key in some:
                number, _, name = key.removeprefix(self._of_partition).partition(b"}:")
                if key.startswith(self._wide):
                    self._add(CRAWL_WIDE, key.removeprefix(self._wide))
                elif number.isdigit():
                    self._add(int(number), name)
        if where != _places(engine, self._keys, partitions):
            raise ConflictError("slots moved, or a primary failed, while the keys were listed: try again")

    def _add(self, group: int, name: bytes) -> None:
        self._found.setdefault(group, bytearray()).extend(len(name).to_bytes(4, "little") + name)
        self._bytes += 4 + len(name)
        if self._bytes > NAMES_IN_MEMORY_BYTES:
            for some, data in self._found.items():
                with open(self._folder / str(some), "ab", opener=open_private) as file:
                    file.write(data)
            self._found, self._bytes = {}, 0

    def of(self, group: int) -> list[bytes]:
        """Sorted, each once: a scan may give a key twice. Raises OSError."""
        file = self._folder / str(group)
        data = (file.read_bytes() if file.exists() else b"") + self._found.get(group, b"")
        names, at = set[bytes](), 0
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            names.add(data[at + 4 : end])
            at = end
        return sorted(names - LEFT_OUT if group == CRAWL_WIDE else names)


def name_of(group: int) -> str:
    """For people."""
    return "what is crawl-wide" if group == CRAWL_WIDE else f"partition {group}"


def place_of(engine: Engine, keys: Keys, group: int) -> tuple[str, str]:
    """The server that has a group, and the run id of its process."""
    key = keys.crawl if group == CRAWL_WIDE else keys.meta(group)
    return engine.shard_of(key), engine.run_id_of(key)


def _places(engine: Engine, keys: Keys, partitions: int) -> list[tuple[str, str]]:
    return [place_of(engine, keys, group) for group in (CRAWL_WIDE, *range(partitions))]


def tagged(keys: Keys, group: int, name: bytes) -> bytes:
    """The whole key."""
    return (keys.tag if group == CRAWL_WIDE else keys.of(group, "")).encode() + name


# Reading.

_READS: dict[bytes, Callable[[bytes], tuple[Any, ...]]] = {
    b"string": lambda key: ("GET", key),
    b"hash": lambda key: ("HGETALL", key),
    b"list": lambda key: ("LRANGE", key, 0, -1),
    b"set": lambda key: ("SMEMBERS", key),
    b"zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
    b"stream": lambda key: ("XRANGE", key, "-", "+"),
}
_VALUES: dict[bytes, Callable[[Any], Any]] = {
    b"string": lambda raw: raw,
    b"hash": lambda raw: sorted(pairs_of(raw)),
    b"list": list,
    b"set": sorted,
    b"zset": lambda raw: [(member, float(score)) for member, score in pairs_of(raw)],
    b"stream": lambda raw: [(number, [*fields.items()]) for number, fields in raw],
}


async def read_entries(engine: Engine, keys: Keys, group: int, names: Sequence[bytes]) -> AsyncIterator[list[Entry]]:
    """The entries of these keys, some at a time; one that is gone is left out. Raises EngineError, also for a type
    that no crawl has.
    """
    for start in range(0, len(names), KEYS_AT_ONCE):
        some = names[start : start + KEYS_AT_ONCE]
        full = [tagged(keys, group, name) for name in some]
        types = await engine.commands([("TYPE", key) for key in full])
        there = [(name, key, kind) for name, key, kind in zip(some, full, types, strict=True) if kind != b"none"]
        if strange := [(key, kind) for _, key, kind in there if kind not in _READS]:
            raise EngineError(f"the key {strange[0][0]!r} has the type {strange[0][1].decode()}, which no crawl has")
        values = await engine.commands([_READS[kind](key) for _, key, kind in there])
        yield [
            entry
            for (name, _, kind), value in zip(there, values, strict=True)
            if (entry := Entry(name, kind.decode(), _copied_of(group, name, _VALUES[kind](value)))).value
            or kind == b"string"
        ]


def own_fields(group: int, name: bytes) -> tuple[bytes, ...]:
    """Fields of a key that are not copied."""
    return OF_THIS_ENGINE.get(name, ()) if (name == CRAWL) == (group == CRAWL_WIDE) else ()


def _copied_of(group: int, name: bytes, value: Any) -> Any:
    """Without a lease: who held it is not there. Nobody knows when that one fetched last, so whoever acquires the
    partition holds as after a takeover.
    """
    own = own_fields(group, name)
    if not own:
        return value
    fields = dict(value)
    if name == META and fields.get(b"session") and b"clock" in fields:
        fields[b"hold"] = fields[b"clock"]
    return sorted((field, one) for field, one in fields.items() if field not in own)


class Digest:
    """Of the entries of a group, in the order of their names."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.keys = 0

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._hash.update(_encode(entry))
            self.keys += 1

    @property
    def text(self) -> str:
        return self._hash.hexdigest()


async def digest_of(engine: Engine, keys: Keys, group: int, names: Sequence[bytes]) -> Digest:
    """Of these keys as they are now. Raises EngineError."""
    digest = Digest()
    async for entries in read_entries(engine, keys, group, names):
        digest.add(entries)
    return digest


# Writing.


async def write_entries(engine: Engine, keys: Keys, group: int, entries: Sequence[Entry]) -> None:
    """Each key becomes what the entry says, whatever it was. On a cluster a partition's mark comes before its keys: no
    shard that lost it has them. Raises EngineError.
    """
    born = [("HSET", keys.meta(group), mark, 1) for mark in marks_of(engine) if group != CRAWL_WIDE]
    commands: list[tuple[Any, ...]] = [*born]
    for entry in entries:
        key = tagged(keys, group, entry.name)
        if own_fields(group, entry.name) != OF_THIS_ENGINE[CRAWL]:  # whose record stays
            commands.append(("UNLINK", key))
        if born and entry.name == META:
            commands += born
        commands += _writes(key, entry)
    await engine.commands(commands)


async def drop_entries(engine: Engine, keys: Keys, group: int, names: Sequence[bytes]) -> None:
    """Delete these keys; of the crawl's own one all but what is not copied. Raises EngineError."""
    if group != CRAWL_WIDE:
        await engine.commands([("UNLINK", tagged(keys, group, name)) for name in names])
        return
    fields = await engine.command("HKEYS", keys.crawl)
    if copied := [field for field in fields if field not in OF_THIS_ENGINE[CRAWL]]:
        await engine.command("HDEL", keys.crawl, *copied)
    await engine.commands([("UNLINK", tagged(keys, group, name)) for name in names if name != CRAWL])


async def unmarked(engine: Engine, keys: Keys, groups: Iterable[int]) -> set[int]:
    """Those of these groups that lack the mark that all partitions on a cluster have. Raises EngineError."""
    asked = [(group, mark) for group in groups if group != CRAWL_WIDE for mark in marks_of(engine)]
    there = await engine.commands([("HEXISTS", keys.meta(group), mark) for group, mark in asked])
    return {group for (group, _), is_there in zip(asked, there, strict=True) if not is_there}


def _writes(key: bytes, entry: Entry) -> Iterator[tuple[Any, ...]]:
    if entry.type == "string":
        yield "SET", key, entry.value
    for start in range(0, len(entry.value) if entry.type != "string" else 0, ELEMENTS_AT_ONCE):
        some = entry.value[start : start + ELEMENTS_AT_ONCE]
        match entry.type:
            case "hash":
                yield "HSET", key, *(part for pair in some for part in pair)
            case "list":
                yield "RPUSH", key, *some
            case "set":
                yield "SADD", key, *some
            case "zset":
                yield "ZADD", key, *(part for member, score in some for part in (repr(score), member))
            case "stream":
                for number, fields in some:
                    yield "XADD", key, number, *(part for pair in fields for part in pair)
