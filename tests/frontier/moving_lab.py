"""A crawl with keys of every type in one engine, and another engine for it to go to."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from crawler.engine.client import Engine
from crawler.errors import ConflictError, EngineDown
from crawler.frontier.keys import Keys
from crawler.frontier.operator_log import Actor, OperatorLog, Via
from crawler.frontier.owner import Frontier
from crawler.frontier.record import BORN, CrawlRecord, Crawls
from crawler.frontier.scripts import library
from crawler.recovery import copying
from crawler.recovery.arrival import Arrival
from crawler.recovery.move import Departure, move
from crawler.recovery.side import Copied, Side
from crawler.rules.places import Fingerprints, partition_of
from crawler.settings import MembershipSettings, load
from tests.frontier.door import CALL_S, HASH_KEY, found

PARTITIONS, URLS = 8, 40
NAME = "m"
ANN = Actor(who="ann", via=Via.CLI)
MEMBERSHIP = MembershipSettings(beats=700.0)
Dump = dict[bytes, tuple[str, Any]]


class Dying(Engine):
    """An engine that is gone after a number of calls. `failed`: how often each shard was replaced by its replica."""

    left = 1_000_000

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.failed: Counter[str] = Counter()

    def run_id_of(self, key: str) -> str:
        return f"{super().run_id_of(key)}-{self.failed[self.shard_of(key)]}"

    async def replies_of(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self._one()
        return await super().replies_of(commands)

    async def run(self, *call: Any) -> Any:
        self._one()
        return await super().run(*call)

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        async for some in super().scan(pattern):
            self._one()
            yield some

    def _one(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise EngineDown("killed")


class Lab:
    """A server with a crawl, and a cluster without."""

    here: Side
    there: Side

    def __init__(self, here: str, there: str, folder: Path) -> None:
        self.here, self.there = (self._side(url, folder / name) for name, url in (("a", here), ("b", there)))
        self.folder = folder

    def _side(self, url: str, folder: Path) -> Side:
        engine = Dying(url, library(), call_timeout_s=CALL_S)
        return Side(engine=engine, keys=Keys(NAME), place=folder.name, spill_folder=folder / "spill", work=folder / "w")

    async def close(self) -> None:
        for side in (self.here, self.there):
            await side.engine.close()

    def ends(self, *, back: bool = False) -> tuple[Departure, Arrival]:
        source, target = (self.there, self.here) if back else (self.here, self.there)
        return Departure(source, target.place, MEMBERSHIP), Arrival(target, source.place)

    async def move(self, *, back: bool = False) -> Copied:
        return await move(*self.ends(back=back))


async def make(side: Side, partitions: int = PARTITIONS, urls: int = URLS) -> CrawlRecord:
    """A crawl with keys of every type, some with more elements than one command takes."""
    engine, keys = side.engine, side.keys
    crawls = Crawls(engine, keys)
    await crawls.create_or_load(load(environment={}, options={"crawl.partitions": partitions}))
    await crawls.add_roots(["any:*", "domain:ä.example"])
    frontier = Frontier(engine, keys, session="s", hash_key=HASH_KEY, default_delay_ms=1000)
    for n in range(urls):
        host = f"h{n % (urls // 4)}.test"
        partition = partition_of(host, partitions)
        one = found(n, host=host, partition=partition, fingerprint=Fingerprints(HASH_KEY).of(f"http://{host}/{n}"))
        await frontier.add({partition: [one]})
    for n in range(3):
        await OperatorLog(engine, keys).add(ANN, f"do {n}")
    many = copying.ELEMENTS_AT_ONCE + 7
    await engine.commands(
        [("RPUSH", keys.takeovers, *(f"t{n % 5}" for n in range(many))),
         ("HSET", keys.overrides, *itertools.chain.from_iterable((f"delay d{n}", n) for n in range(many))),
         ("ZADD", keys.of(1, "ready"), *itertools.chain.from_iterable((repr(n / 7), f"q{n}") for n in range(many))),
         ("ZADD", keys.of(1, "t:x"), "-inf", "lowest", "+inf", b"\xff\x00", repr(2.0**53), "x", "1e-17", "small"),
         ("SET", keys.of(1, "w:x"), bytes(range(256)))]
    )  # fmt: skip
    record = await crawls.load()
    assert record is not None
    return record


async def dump(side: Side) -> Dump:
    """All that the engine has of the crawl, but for the mark of a partition on a cluster."""
    found: Dump = {}
    async for some in side.engine.scan(side.keys.pattern):
        for key in some:
            if key.endswith(b"}~w"):  # what was written to wait for a replica, for a second
                continue
            kind = (await side.engine.command("TYPE", key)).decode()
            value = copying._VALUES[kind.encode()](await side.engine.command(*copying._READS[kind.encode()](key)))
            if kind == "hash":
                value = [pair for pair in value if pair[0] not in (BORN.encode(), b"marked")]
            if value:
                found[key] = (kind, value)
    return found


async def opened(side: Side) -> bool:
    """May an instance go on there?"""
    try:
        return await Crawls(side.engine, side.keys).load() is not None
    except ConflictError:
        return False
