"""`crawler ring` with words: plans, pins, members that disagree. Members are entered by hand; no instance runs."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.cli.main import main
from crawler.crawl.opening import open_crawl
from crawler.engine.client import Engine as Door
from crawler.frontier.keys import Keys
from crawler.frontier.members import Member, Members
from crawler.frontier.scripts import library
from crawler.rules.places import partition_of
from crawler.settings import Settings, load
from crawler.views.ring import RingMembers, Shard
from crawler.views.ring_text import members_text
from crawler.views.shares import disagreeing, members
from tests.cli.cli_lab import exit_code
from tests.support.cluster import Cluster
from tests.support.engine import Engine

PARTITIONS = 64
BEAT_S = 0.05
BEATS = 7.0 / BEAT_S

Ring = Callable[..., dict[str, Any]]
Words = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A crawl with one seed in each of eight domains, and nobody at work."""
    given = ["--redis", engine.url, "--dir", str(tmp_path / "c")]
    seeds = [f"http://d{n}.test/" for n in range(8)]
    beat = ["--set", f"internals.membership.beats={BEATS}"]
    assert main(["seed", *seeds, *given, "--set", f"crawl.partitions={PARTITIONS}"]) == 0
    capsys.readouterr()
    return [*given, *beat]


@pytest.fixture
def words(place: list[str], capsys: pytest.CaptureFixture[str]) -> Words:
    """Runs `crawler ring WORDS`: exit code, output, errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = exit_code(["ring", *arguments, *place])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def ring(words: Words) -> Ring:
    """Runs `crawler ring WORDS --json`."""

    def run(*arguments: str) -> dict[str, Any]:
        code, out, err = words(*arguments, "--json")
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    return run


def enter(engine: Engine, *nodes: str, **fields: Any) -> None:
    """Put nodes on the member list."""

    async def join() -> None:
        door = Door(engine.url, library())
        await door.connect()
        for node in nodes:
            await Members(door, Keys("main")).join(member(node, **fields))
        await door.close()

    asyncio.run(join())


def member(node: str, **fields: Any) -> Member:
    return Member(**{"session": f"s-{node}", "node": node, "counter": 1, "state": "alive", **fields})


# --- plans ---


def test_a_plan_counts_what_would_move_and_changes_nothing(engine: Engine, ring: Ring, words: Words) -> None:
    enter(engine, "web-0", "web-1")
    plan = ring("plan", "--add", "2", "--remove", "web-0")
    assert (plan["now"], len(plan["then"])) == ({"web-0": 1, "web-1": 1}, 3)
    assert plan["moved"] == sum(pair["partitions"] for pair in plan["moves"]) >= PARTITIONS / 2
    assert plan["share_changed"] == round(2 / 3, 4)
    rows = {row["node"]: row for row in plan["nodes"]}
    assert rows["web-0"]["gives"] == rows["web-0"]["now"] == PARTITIONS - rows["web-1"]["now"]
    assert all(row["now"] - row["gives"] + row["gets"] == row["then"] for row in rows.values())
    assert sum(row["then"] for row in rows.values()) == PARTITIONS
    assert plan["pending"] == sum(pair["pending"] for pair in plan["moves"])
    assert 0 < plan["pending"] == plan["domains"] <= 8
    assert ring("plan", "--add", "2", "--remove", "web-0") == plan
    text = words("plan", "--add", "2", "--remove", "web-0")[1]
    assert "now 2 nodes, then 3: -web-0, +" in text
    assert f"{plan['moved']} of {PARTITIONS} partitions would move" in text


def test_all_is_moved_by_the_first_to_come_and_the_last_to_go(engine: Engine, ring: Ring, words: Words) -> None:
    first = ring("plan", "--add", "web-0")
    assert (first["moved"], first["share_changed"], first["pending"]) == (PARTITIONS, 1.0, 8)
    assert "nobody  web-0" in words("plan", "--add", "web-0")[1]
    enter(engine, "web-0")
    last = ring("plan", "--remove", "1")
    assert (last["moved"], last["share_changed"], last["domains"]) == (PARTITIONS, 1.0, 8)


def test_a_plan_of_nothing_says_so(engine: Engine, words: Words) -> None:
    enter(engine, "web-0")
    code, out, _ = words("plan", "--add", "web-0:5")
    assert code == 0
    assert "web-0 weight 1 -> 5" in out
    assert f"0 of {PARTITIONS} partitions would move (0.0 %; the shares change by 0.0 %)" in out
    assert out.count("\n") == 2, "no empty tables"


# --- pins ---


def test_a_pin_is_shown_wherever_it_matters(engine: Engine, ring: Ring, words: Words) -> None:
    enter(engine, "web-0", "web-1")
    before = ring("show", "d0.test")
    other = {"web-0": "web-1", "web-1": "web-0"}[before["suggested"]]
    pinned = ring("pin", "http://www.d0.test/a", other)
    assert (pinned["domain"], pinned["partition"], pinned["running"]) == ("d0.test", before["partition"], True)
    assert pinned["domains"] >= 1
    after = ring("show", "d0.test")
    assert (after["suggested"], after["pinned"], before["pinned"]) == (other, other, "")
    assert f"{other} (the partition is pinned to {other})" in words("show", "d0.test")[1]
    assert ring("pins")["pins"] == [
        {"domain": "d0.test", "node": other, "partition": before["partition"], "owner": "", "state": "moving"}
    ]
    assert ring("unpin", "d0.test")["still_pinned_by"] == []
    assert ring("show", "d0.test") == before
    assert words("pins")[1].startswith("Nothing is pinned.")


def test_a_pin_to_a_node_that_is_not_there_waits(engine: Engine, words: Words) -> None:
    enter(engine, "web-0")
    code, out, _ = words("pin", "d0.test", "later")
    assert code == 0
    assert "later does not take part now; until it does, the ring decides" in out
    assert "its node does not take part" in words("pins")[1]
    assert "suggested  web-0 (the partition is pinned to later)" in words("show", "d0.test")[1]


def test_a_pin_weighs_in_a_plan(engine: Engine, ring: Ring) -> None:
    enter(engine, "web-0")
    ring("pin", "d0.test", "web-1")
    plan = ring("plan", "--add", "web-1", "--add", "other:100")
    assert plan["then"] == {"web-0": 1, "web-1": 1, "other": 100}
    assert {"from": "web-0", "to": "web-1"}.items() <= plan["moves"][-1].items(), "alone with its pinned partition"


def test_neighbours_in_a_partition_cant_be_pinned_apart(ring: Ring, words: Words) -> None:
    ring("pin", "d0.test", "web-0")
    partition = ring("show", "d0.test")["partition"]
    twin = next(f"t{n}.test" for n in range(10_000) if ring_partition(f"t{n}.test") == partition)
    code, _, err = words("pin", twin, "web-1")
    assert code == 4
    assert err.count("\n") == 1
    assert f"{twin} shares partition {partition} with d0.test, which is pinned to web-0" in err
    ring("pin", twin, "web-0")
    assert f"partition {partition} stays where it is pinned, by {twin}" in words("unpin", "d0.test")[1]


def ring_partition(domain: str) -> int:
    return partition_of(domain, PARTITIONS)


# --- words ---


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["pin"], "the following arguments are required: DOMAIN, NODE (see 'crawler ring pin --help')"),
        (["pin", "a.test"], "the following arguments are required: NODE"),
        (["pins", "a.test"], "unexpected argument 'a.test' (see 'crawler ring pins --help')"),
        (["evict"], "the following arguments are required: NODE"),
        (["a.test"], "invalid choice: 'a.test' (choose from 'show', 'plan'"),
        (["show", "a.test", "b.test"], "unexpected argument 'b.test'"),
        (["plan"], "a plan needs a change: --add 2"),
        (["plan", "--add", "2", "web-0"], "unexpected argument 'web-0'"),
        (["plan", "--add", ""], "--add : write a number, or the name of a node"),
        (["unpin", "d0.test"], "d0.test is not pinned"),
        (["pin", "not a url", "web-0"], "invalid URL"),
        (["evict", "web-9"], "no node 'web-9' takes part (web-0, web-10)"),
    ],
)
def test_words_that_mean_nothing_are_one_line(engine: Engine, words: Words, given: list[str], said: str) -> None:
    enter(engine, "web-10", "web-0")
    code, out, err = words(*given)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_options_may_stand_between_the_words(engine: Engine, place: list[str]) -> None:
    assert main(["ring", "pin", *place, "d0.test", "--json", "web-0"]) == 0


def test_a_host_may_be_called_like_an_action(ring: Ring) -> None:
    assert ring("show", "pins")["domain"] == "pins"


# --- members ---


def settings_of(engine: Engine, folder: Path) -> Settings:
    options = {"frontier.redis": engine.url, "archive.dir": str(folder / "c"), "internals.membership.beats": BEATS}
    return load(environment={}, options=options)


async def test_members_that_follow_another_ring_are_named(engine: Engine, place: list[str], tmp_path: Path) -> None:
    """Row 28: two weights side by side. All beat; one follows another ring, and one is too young to have settled."""
    async with open_crawl(settings_of(engine, tmp_path), create=False) as crawl:
        old = {"started_at": 1.0}
        sessions = [
            member("web-0", ring="aaa", **old), member("web-1", ring="aaa", **old), member("web-2", ring="bbb", **old),
            member("web-3", ring="ccc", started_at=9e9), member("web-4", ring="", state="quarantined", **old),
        ]  # fmt: skip
        for one in sessions:
            await crawl.members.join(one)
        beating = asyncio.create_task(beat(crawl.members, sessions))
        try:
            found = await members(crawl)
        finally:
            beating.cancel()
        assert found.rings == {"aaa": ["web-0", "web-1"], "bbb": ["web-2"]}
        rows = {row.node: row for row in found.members}
        assert [node for node, row in rows.items() if row.disagrees] == ["web-2"]
        assert {node: row.state for node, row in rows.items() if row.state != "alive"} == {"web-4": "quarantined"}
        assert (rows["web-4"].suggested, sum(row.suggested for row in rows.values())) == (0, PARTITIONS)
        text = members_text(found)
        assert "alive, disagrees" in text
        assert "quarantined" in text
        assert "2 different rings are followed: aaa by web-0, web-1; bbb by web-2." in text


async def beat(listed: Members, sessions: list[Member]) -> None:
    count = 1
    while True:
        count += 1
        for one in sessions:
            await listed.heartbeat(msgspec.structs.replace(one, counter=count))
        await asyncio.sleep(BEAT_S / 2)


async def test_one_ring_that_is_on_its_way_is_no_disagreement(engine: Engine, place: list[str], tmp_path: Path) -> None:
    async with open_crawl(settings_of(engine, tmp_path), create=False) as crawl:
        slow, quick = member("web-0", ring="old", started_at=1.0), member("web-1", ring="new", started_at=1.0)
        for one in (slow, quick):
            await crawl.members.join(one)
        seen = await crawl.members.read()
        await crawl.members.heartbeat(member("web-0", ring="new", started_at=1.0, counter=2))
        assert await disagreeing(crawl, seen, "new") == {}


async def test_among_equals_the_ring_of_our_own_settings_is_right(
    engine: Engine, place: list[str], tmp_path: Path
) -> None:
    async with open_crawl(settings_of(engine, tmp_path), create=False) as crawl:
        for one in (member("web-0", ring="aaa", started_at=1.0), member("web-1", ring="bbb", started_at=1.0)):
            await crawl.members.join(one)
        seen = await crawl.members.read()
        assert list(await disagreeing(crawl, seen, "bbb")) == ["bbb", "aaa"]
        assert list(await disagreeing(crawl, seen, "ccc")) == ["aaa", "bbb"]


def test_the_shards_of_a_cluster_are_listed_with_what_they_lack() -> None:
    one = Shard(name="a:7100", is_up=True, has_replica=True, slots=8192, partitions=2048, used_bytes=3 << 20)
    two = Shard(name="b:7101", is_up=False, has_replica=False, slots=8192, partitions=2048, used_bytes=0)
    found = RingMembers(crawl="main", partitions=4096, members=(), free=0, held_by_gone=0, rings={}, shards=[one, two])
    lines = members_text(found).splitlines()
    assert lines[0] == "No instance is running; 4,096 partitions wait. Start one: crawler run"
    assert [line.split() for line in lines[-2:]] == [
        ["a:7100", "up", "yes", "8,192", "2,048", "3.00", "MiB"],
        ["b:7101", "down", "none", "that", "works", "8,192", "2,048", "-"],
    ]


@pytest.mark.cluster
def test_the_shards_of_a_real_cluster_have_all_partitions_between_them(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--redis", cluster.url, "--dir", str(tmp_path / "c"))
    assert main(["seed", "http://a.test/", *where]) == 0
    capsys.readouterr()
    assert main(["ring", "--json", *where]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [shard["name"] for shard in shown["shards"]] == [f"127.0.0.1:{node.port}" for node in cluster.nodes]
    assert sum(shard["partitions"] for shard in shown["shards"]) == shown["partitions"] == 4096
