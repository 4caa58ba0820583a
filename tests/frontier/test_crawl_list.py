"""The list of an engine's crawls, and the removal of one: whole, of that crawl alone, whatever interrupts it."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import pytest

from crawler.engine import client
from crawler.engine.client import Engine
from crawler.errors import ConflictError, EngineDown, NoCrawlError
from crawler.frontier.crawls import CrawlList
from crawler.frontier.keys import CRAWLS, LAYOUT, Keys
from crawler.frontier.members import Member, Members
from crawler.frontier.owner import Frontier
from crawler.frontier.record import Crawls, _record_of
from crawler.rules.places import Fingerprints, partition_of
from crawler.settings import MembershipSettings, Settings, load
from crawler.views.crawl_list import CrawlCondition, crawl_row, crawl_rows, remove_crawl
from tests.frontier.door import HASH_KEY, Door, found

PARTITIONS = 8
NAMES = ("a", "a.1", "a-1", "ab", "A", "aa")
MEMBERSHIP = MembershipSettings(beats=700.0)


def settings() -> Settings:
    return load(environment={}, options={"crawl.partitions": PARTITIONS})


async def make(engine: Engine, name: str, urls: int = 12) -> None:
    """A crawl with something in most partitions."""
    await Crawls(engine, Keys(name)).create_or_load(settings())
    await Crawls(engine, Keys(name)).add_roots(["any:*"])
    frontier = Frontier(engine, Keys(name), session="s", hash_key=HASH_KEY, default_delay_ms=1000)
    hosts = [f"h{n}.test" for n in range(urls)]
    for host in hosts:
        partition = partition_of(host, PARTITIONS)
        one = found(1, host=host, partition=partition, fingerprint=Fingerprints(HASH_KEY).of(f"http://{host}/1"))
        await frontier.add({partition: [one]})


def keys_of(door: Door) -> dict[bytes, bytes | None]:
    """All keys of the engine with what they hold."""
    found = {}
    for node in door.nodes():
        with contextlib.closing(node):
            found |= {key: node.dump(key) for key in node.scan_iter(count=1000)}
    return found


def of(name: str, keys: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    tags = (f"{{{name}}}:".encode(), f"{{{name}:".encode())
    return {key: value for key, value in keys.items() if key.startswith(tags)}


class Dying:
    """The engine, which is gone after a number of calls."""

    def __init__(self, engine: Engine, calls: int) -> None:
        self._engine, self._left = engine, calls
        self.run_id = engine.run_id

    def _one(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise EngineDown("killed")

    async def command(self, *command: Any) -> Any:
        self._one()
        return await self._engine.command(*command)

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self._one()
        return await self._engine.commands(commands)

    async def run(self, *call: Any) -> Any:
        self._one()
        return await self._engine.run(*call)

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        async for some in self._engine.scan(pattern):
            self._one()
            yield some


async def test_a_crawl_is_listed_with_its_numbers_once_it_is_created_or_opened(door: Door) -> None:
    assert await crawl_rows(door.engine) == []
    await make(door.engine, "b")
    await make(door.engine, "a", urls=3)
    assert [(one.name, one.pending, one.pages, one.instances) for one in await crawl_rows(door.engine)] == [
        ("a", 3, 0, 0), ("b", 12, 0, 0),
    ]  # fmt: skip
    await door.engine.command("UNLINK", CRAWLS)  # as an earlier release left the engine
    assert await crawl_rows(door.engine) == []
    assert (await crawl_row(door.engine, "b")).pending == 12
    await Crawls(door.engine, Keys("b")).create_or_load(settings())
    assert [one.name for one in await crawl_rows(door.engine)] == ["b"]


async def test_a_removal_deletes_all_keys_of_its_crawl_and_none_of_another(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SCAN_COUNT", 5)
    for name in NAMES:
        await make(door.engine, name)
    before = keys_of(door)
    removed = await remove_crawl(door.engine, "a", MEMBERSHIP)
    after = keys_of(door)
    assert removed.keys == len(of("a", before)) > PARTITIONS
    assert of("a", after) == {}
    assert {key: value for key, value in before.items() if key not in of("a", before) and key != CRAWLS.encode()} == {
        key: value for key, value in after.items() if key != CRAWLS.encode()
    }
    assert [one.name for one in await crawl_rows(door.engine)] == sorted(set(NAMES) - {"a"})
    with pytest.raises(NoCrawlError, match=r"no crawl 'a' \(it has: A, a-1"):
        await remove_crawl(door.engine, "a", MEMBERSHIP)
    await make(door.engine, "a", urls=2)
    assert (await crawl_row(door.engine, "a")).pending == 2


async def test_a_removal_that_is_killed_anywhere_is_finished_by_the_next(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SCAN_COUNT", 20)
    await make(door.engine, "other", urls=4)
    other = of("other", keys_of(door))
    await make(door.engine, "x", urls=6)
    marked_once = killed = 0
    while True:
        dying = cast("Engine", Dying(door.engine, killed))
        try:
            await remove_crawl(dying, "x", MEMBERSHIP)
            break
        except EngineDown:
            killed += 1
        left = await CrawlList(door.engine).find("x")
        if left is None:
            break
        if left.mark:
            marked_once += 1
            assert (await crawl_row(door.engine, "x")).condition is CrawlCondition.BEING_REMOVED
            with pytest.raises(ConflictError, match="'x' is being removed: run 'crawler crawls rm x' again"):
                await Crawls(door.engine, Keys("x")).create_or_load(settings())
            await remove_crawl(door.engine, "x", MEMBERSHIP)
        else:
            assert (await Crawls(door.engine, Keys("x")).create_or_load(settings())).partitions == PARTITIONS
        assert of("other", keys_of(door)) == other
        if left.mark:
            assert of("x", keys_of(door)) == {}
            assert [one.name for one in await crawl_rows(door.engine)] == ["other"]
            await make(door.engine, "x", urls=6)
    assert marked_once > 5
    assert of("x", keys_of(door)) == {}


async def test_a_crawl_with_instances_is_not_removed(door: Door) -> None:
    await make(door.engine, "x", urls=1)
    members = Members(door.engine, Keys("x"))
    ann = Member(session="ann", node="node-0", counter=0, state="alive")
    before = of("x", keys_of(door))
    await members.join(ann)

    class Beating(Dying):
        """Whose member beats between two looks."""

        beats = 0

        async def command(self, *command: Any) -> Any:
            if command[0] == "HGETALL":
                self.beats += 1
                await members.heartbeat(msgspec.structs.replace(ann, counter=self.beats))
            return await super().command(*command)

    beating = cast("Engine", Beating(door.engine, 1000))
    assert (await crawl_row(door.engine, "x")).instances == 1
    with pytest.raises(ConflictError, match="running on crawl 'x': node-0; stop them first"):
        await remove_crawl(beating, "x", MEMBERSHIP)
    assert before.items() <= of("x", keys_of(door)).items()
    await remove_crawl(door.engine, "x", MEMBERSHIP)  # it is silent now
    assert of("x", keys_of(door)) == {}


async def test_an_instance_that_joins_as_the_removal_begins_ends_it_and_nothing_is_lost(door: Door) -> None:
    await make(door.engine, "x", urls=2)
    before = of("x", keys_of(door))

    class Late(Dying):
        """Somebody joins after the first looks, just as the mark is written."""

        async def run(self, *call: Any) -> Any:
            if call[0] == "replace_record":
                await Members(door.engine, Keys("x")).join(Member(session="late", node="node-7", counter=0))
            return await super().run(*call)

    with pytest.raises(ConflictError, match="node-7"):
        await remove_crawl(cast("Engine", Late(door.engine, 1000)), "x", MEMBERSHIP)
    assert before.items() <= of("x", keys_of(door)).items()


async def test_a_second_removal_spares_the_crawl_that_was_created_after_the_first(door: Door) -> None:
    await make(door.engine, "x")
    crawls = CrawlList(door.engine)
    assert await crawls.mark("x")
    assert not await crawls.mark("x")
    await crawls.erase("x")
    await make(door.engine, "x", urls=2)
    before = of("x", keys_of(door))
    assert await crawls.erase("x") == 0
    assert of("x", keys_of(door)) == before


async def test_a_crawl_of_another_layout_is_listed_and_can_be_removed(door: Door) -> None:
    await make(door.engine, "old", urls=2)
    record = await Crawls(door.engine, Keys("old")).load()
    assert record is not None
    raw = msgspec.json.encode(msgspec.structs.replace(record, layout=LAYOUT - 1))
    await door.engine.command("HSET", Keys("old").crawl, "record", raw)
    (row,) = await crawl_rows(door.engine)
    assert (row.condition, row.layout, row.pages) == (CrawlCondition.OTHER_LAYOUT, LAYOUT - 1, None)
    assert row.created_at == record.begun_at
    await remove_crawl(door.engine, "old", MEMBERSHIP)
    assert of("old", keys_of(door)) == {}


async def test_a_full_engine_gives_up_a_crawl_and_lets_others_be_opened(door: Door) -> None:
    await make(door.engine, "x", urls=2)
    await make(door.engine, "y", urls=1)
    nodes = door.nodes()
    try:
        for node in nodes:
            node.config_set("maxmemory", 1)
        assert (await Crawls(door.engine, Keys("y")).create_or_load(settings())).partitions == PARTITIONS
        await remove_crawl(door.engine, "x", MEMBERSHIP)
        assert [one.name for one in await crawl_rows(door.engine)] == ["y"]
    finally:
        for node in nodes:
            node.config_set("maxmemory", 0)
            node.close()


def test_a_pattern_takes_no_character_of_a_name_for_a_wildcard() -> None:
    assert Keys("a.b-c_1").pattern == "{a.b-c_1[:}]*"
    assert Keys("a*[b]?\\").pattern == "{a\\*\\[b\\]\\?\\\\[:}]*"


@pytest.mark.parametrize(
    ("given", "partitions_min", "partitions"),
    [({}, 0, 1024), ({}, 4096, 4096), ({"crawl.partitions": 1024}, 4096, 1024), ({"crawl.partitions": 7}, 4096, 7)],
)
def test_a_crawl_on_a_cluster_has_more_partitions_unless_a_number_is_named(
    given: dict[str, int], partitions_min: int, partitions: int
) -> None:
    made = _record_of(load(environment={}, options=given), None, partitions_min=partitions_min)
    assert made.partitions == partitions
    assert _record_of(load(environment={}), made, partitions_min=4096).partitions == 1024  # a rebuild names what it was
