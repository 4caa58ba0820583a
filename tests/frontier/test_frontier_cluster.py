"""The router of a cluster, before nodes with programmed answers: what is sent where and how often, who waits."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from crawler.engine.client import PIPELINE_MAX, Call, Engine, Gathering
from crawler.engine.cluster import MAP_AGE_S, slot_of
from crawler.errors import EngineDown, EngineError, EngineFull, EngineUnfit
from crawler.frontier.scripts import library
from tests.frontier.resp_server import bulk, command_from, serving
from tests.support.patience import others_run

CALL_S = 1.0
KEYS = ("{c:1}:m", "{c:4}:m", "{c:7}:m")  # one on each node
SCRIPT = "heartbeat"


class FakeNode:
    """A node of a cluster. `answers`: what it says to commands, by their names; it may be changed at any time."""

    def __init__(self, number: int, fake: "FakeCluster") -> None:
        self.run_id = f"run{number}"
        self.role = "master"
        self.is_silent = False
        self.epoch = 1
        self.state = "ok"
        self.told: list[tuple[int, list[bytes]]] = []  # connection, command; without what a new connection says
        self.answers: dict[str, bytes | Callable[[list[bytes]], bytes]] = {}
        self.names: list[tuple[int, int, str, int]] | None = None  # a map of its own
        self.replica: FakeNode | None = None
        self.attached = ""  # the state of a replica, whether or not the map has it
        self._fake = fake
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._connections += 1
        connection = self._connections
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while parts := await command_from(reader):
                reply = self._reply(connection, parts)
                while self.is_silent:
                    await asyncio.sleep(0.01)
                writer.write(reply)
        self._writers.discard(writer)
        writer.close()

    def _reply(self, connection: int, parts: list[bytes]) -> bytes:
        name = parts[0].decode().upper()
        if name == "CLUSTER":
            if parts[1].upper() == b"INFO":
                return bulk(f"cluster_state:{self.state}\r\ncluster_current_epoch:{self.epoch}\r\n")
            return self._fake.slots(self)
        if name == "INFO":
            known = {
                "redis_version": "7.4.0", "run_id": self.run_id, "role": self.role, "maxmemory": "0",
                "cluster_enabled": "1",
            }  # fmt: skip
            if self.attached:
                known["slave0"] = f"ip=127.0.0.1,port=1,state={self.attached},offset=1,lag=0"
            return bulk("\r\n".join(f"{k}:{v}" for k, v in known.items()))
        if name in ("CLIENT", "SUBSCRIBE"):
            return b"+OK\r\n"
        answer = self.answers.get(name)
        if name not in ("PING", "CONFIG"):
            self.told.append((connection, parts))
        if callable(answer):
            return answer(parts)
        return answer if answer is not None else b"+PONG\r\n" if name == "PING" else b"$2\r\nok\r\n"

    def count(self, name: str) -> int:
        return sum(parts[0].decode() == name for _, parts in self.told)


class FakeCluster:
    """Three nodes with a third of the slots each, as far as the nodes say."""

    def __init__(self) -> None:
        self.nodes = [FakeNode(n, self) for n in range(4)]  # the last one has no slots
        self.owners = [(0, 5460, 0), (5461, 10922, 1), (10923, 16383, 2)]

    def slots(self, node: FakeNode) -> bytes:
        rows = []
        for first, last, place in self.owners if node.names is None else node.names:  # type: ignore[misc]
            other = self.nodes[place]
            host = b"" if other is node else b"127.0.0.1"  # a node may not know its own address
            places = [b"*3\r\n$%d\r\n%s\r\n:%d\r\n%s" % (len(host), host, other.port, bulk("id" * 20))]
            if other.replica is not None:
                places.append(b"*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n%s" % (other.replica.port, bulk("id" * 20)))
            rows.append(b"*%d\r\n:%d\r\n:%d\r\n%s" % (2 + len(places), first, last, b"".join(places)))
        return b"*%d\r\n%s" % (len(rows), b"".join(rows))

    def move(self, key: str, place: int) -> None:
        slot = slot_of(key)
        found = []
        for first, last, owner in self.owners:
            if first <= slot <= last:
                found += [(first, slot - 1, owner), (slot, slot, place), (slot + 1, last, owner)]
            else:
                found.append((first, last, owner))
        self.owners = [row for row in found if row[0] <= row[1]]

    def node_of(self, key: str) -> FakeNode:
        slot = slot_of(key)
        return next(self.nodes[place] for first, last, place in self.owners if first <= slot <= last)


@contextlib.asynccontextmanager
async def fake_cluster() -> AsyncIterator[FakeCluster]:
    fake = FakeCluster()
    for node in fake.nodes:
        await node.start()
    try:
        yield fake
    finally:
        for node in fake.nodes:
            node.is_silent = False
            with contextlib.suppress(AssertionError):
                await node.stop()


@contextlib.asynccontextmanager
async def opened(
    *, url: Callable[[FakeCluster], str] | None = None, patience_s: float = 0.0
) -> AsyncIterator[tuple[FakeCluster, Engine, list[Any]]]:
    """A cluster, an engine that is connected to it, and the changes that it told of: none to who is patient."""
    async with fake_cluster() as fake:
        place = url(fake) if url else f"redis+cluster://127.0.0.1:{fake.nodes[0].port}"
        engine, changes = Engine(place, library(), call_timeout_s=CALL_S, patience_s=patience_s), list[Any]()
        with contextlib.nullcontext() if patience_s else engine.restarts.listen(changes.append):
            await engine.connect()
            for node in fake.nodes:
                node.told.clear()
            try:
                yield fake, engine, changes
            finally:
                await engine.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def moved(key: str, node: FakeNode, word: str = "MOVED") -> bytes:
    return b"-%s %d 127.0.0.1:%d\r\n" % (word.encode(), slot_of(key), node.port)


async def run(engine: Engine, key: str) -> Any:
    (reply,) = await engine.run_many([Call(SCRIPT, (key,), ())])
    return reply


async def test_each_call_goes_once_to_the_primary_of_its_slot_with_the_spare_key() -> None:
    async with opened() as (fake, engine, changes):
        assert await engine.run_many([Call(SCRIPT, (key,), ("x",)) for key in KEYS]) == [b"ok"] * 3
        assert await engine.commands([("GET", key) for key in reversed(KEYS)]) == [b"ok"] * 3
        assert len({fake.node_of(key).port for key in KEYS}) == 3
        for key in KEYS:
            told = [parts for _, parts in fake.node_of(key).told]
            assert [parts[0] for parts in told] == [b"FCALL", b"GET"]
            assert told[0][2:] == [b"2", key.encode(), f"{key}~".encode(), b"x"]
        assert engine.run_id == "run0+run1+run2"
        assert [engine.run_id_of(key) for key in KEYS] == [fake.node_of(key).run_id for key in KEYS]
        assert changes == []


REFUSED = {
    "MOVED": lambda key, other: moved(key, other),
    "ASK": lambda key, other: moved(key, other, "ASK"),
    "TRYAGAIN": lambda *_: b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "CLUSTERDOWN": lambda *_: b"-CLUSTERDOWN Hash slot not served\r\n",
    "READONLY": lambda *_: b"-READONLY You can't write against a read only replica.\r\n",
    "MASTERDOWN": lambda *_: b"-MASTERDOWN Link with MASTER is down\r\n",
}


@pytest.mark.parametrize("word", REFUSED)
async def test_a_script_that_is_refused_is_not_sent_again_and_others_are_not_disturbed(word: str) -> None:
    async with opened() as (fake, engine, _):
        first = fake.node_of(KEYS[0])
        first.answers["FCALL"] = REFUSED[word](KEYS[0], fake.nodes[3])
        refused, *others = await engine.run_many([Call(SCRIPT, (key,), ()) for key in KEYS])
        assert isinstance(refused, EngineDown)
        assert others == [b"ok"] * 2
        assert sum(node.count("FCALL") for node in fake.nodes) == 3
        del first.answers["FCALL"]
        await until_answered(engine, KEYS[0])


async def until_answered(engine: Engine, key: str) -> None:
    async with asyncio.timeout(60):
        while await run(engine, key) != b"ok":
            await asyncio.sleep(0.01)


async def test_a_plain_command_follows_a_redirect_once_and_asking_is_said_on_its_connection() -> None:
    async with opened() as (fake, engine, _):
        first, other = fake.node_of(KEYS[0]), fake.nodes[3]
        for word in ("MOVED", "ASK"):
            first.answers["GET"] = moved(KEYS[0], other, word)
            other.told.clear()
            assert await engine.commands([("GET", key) for key in KEYS]) == [b"ok"] * 3
            asked = [(connection, parts[0]) for connection, parts in other.told]
            assert [name for _, name in asked] == ([b"ASKING", b"GET"] if word == "ASK" else [b"GET"])
            assert len({connection for connection, _ in asked}) == 1
            if word == "MOVED":
                await until(lambda: engine.run_id_of(KEYS[0]) == first.run_id)  # the map was read again
        other.answers["GET"] = moved(KEYS[0], first)
        with pytest.raises(EngineDown):
            await engine.commands([("GET", KEYS[0])])


async def test_a_moved_slot_is_told_before_a_call_goes_to_its_new_primary() -> None:
    async with opened() as (fake, engine, changes):
        first, other = fake.node_of(KEYS[0]), fake.nodes[3]
        other.answers["FCALL"] = lambda _: b"$2\r\nok\r\n" if changes else b"-ERR nobody was told\r\n"
        fake.move(KEYS[0], 3)
        first.answers["FCALL"] = moved(KEYS[0], other)
        assert isinstance(await run(engine, KEYS[0]), EngineDown)
        await until(lambda: bool(changes))
        assert [changes[0].affects(key) for key in KEYS] == [True, False, False]
        assert not changes[0].may_have_lost
        first.answers.clear()
        await until_answered(engine, KEYS[0])
        assert engine.run_id_of(KEYS[0]) == "run3"
        assert len(changes) == 1
        assert other.count("FCALL") == 1


@pytest.mark.parametrize("how", ["dead", "silent", "loading", "replica"])
async def test_calls_to_a_node_that_fails_fail_at_once_and_others_do_not_wait(how: str) -> None:
    async with opened() as (fake, engine, changes):
        first = fake.node_of(KEYS[0])
        assert await run(engine, KEYS[0]) == b"ok"
        match how:
            case "dead":
                await first.stop()
            case "silent":
                first.is_silent = True
            case "loading":
                loading = b"-LOADING the dataset in memory\r\n"
                first.answers |= {"FCALL": loading, "PING": loading, "GET": loading}
            case "replica":
                first.role = "slave"
                for writer in list(first._writers):
                    writer.transport.abort()
        assert isinstance(await run(engine, KEYS[0]), EngineDown)
        began, sent = time.monotonic(), first.count("FCALL")
        for _ in range(50):
            down, *others = await engine.run_many([Call(SCRIPT, (key,), ()) for key in KEYS])
            assert isinstance(down, EngineDown)
            assert others == [b"ok"] * 2
        assert time.monotonic() - began < 50 * CALL_S  # none of them waited for an answer
        assert first.count("FCALL") == sent
        match how:
            case "dead":
                await first.start()
            case "silent":
                first.is_silent = False
            case "loading":
                first.answers.clear()
            case "replica":
                first.role = "master"
        await until_answered(engine, KEYS[0])
        assert changes == []  # it is the same process


async def test_gathered_calls_of_other_shards_do_not_wait_for_a_silent_one() -> None:
    async with opened() as (fake, engine, _):
        gathered = Gathering(engine)
        fake.node_of(KEYS[0]).is_silent = True
        silent = asyncio.create_task(gathered.run(Call(SCRIPT, (KEYS[0],), ())))
        await asyncio.sleep(0)
        for _ in range(20):
            assert await gathered.run(Call(SCRIPT, (KEYS[1],), ())) == b"ok"
        assert not silent.done()
        with pytest.raises(EngineDown, match="nothing within 1 s"):
            await silent


async def test_a_restarted_node_affects_its_own_slots_only_and_is_told_before_it_gets_a_call() -> None:
    async with opened() as (fake, engine, changes):
        first = fake.node_of(KEYS[0])
        await run(engine, KEYS[0])
        await first.stop()
        first.run_id = "later"
        first.answers["FCALL"] = lambda _: b"$2\r\nok\r\n" if changes else b"-ERR nobody was told\r\n"
        await first.start()
        while isinstance(reply := await run(engine, KEYS[0]), EngineDown):
            await asyncio.sleep(0.01)
        assert reply == b"ok"
        assert [[change.affects(key) for key in KEYS] for change in changes] == [[True, False, False]]
        assert changes[0].may_have_lost
        assert engine.run_id_of(KEYS[0]) == "later"


async def test_after_a_failover_the_dead_nodes_slots_are_served_by_another() -> None:
    async with opened() as (fake, engine, changes):
        first = fake.node_of(KEYS[0])
        place = fake.nodes.index(first)
        await first.stop()
        assert isinstance(await run(engine, KEYS[0]), EngineDown)
        fake.owners = [(a, b, 3 if owner == place else owner) for a, b, owner in fake.owners]
        for node in fake.nodes:
            node.epoch = 2
        await until_answered(engine, KEYS[0])
        assert [[change.affects(key) for key in KEYS] for change in changes] == [[True, False, False]]
        assert changes[0].may_have_lost
        assert engine.run_id_of(KEYS[0]) == "run3"
        await first.start()


async def test_the_map_of_the_node_that_knows_most_is_believed() -> None:
    async with opened() as (fake, engine, changes):
        first = fake.node_of(KEYS[0])
        old = list(fake.owners)
        for n, node in enumerate(fake.nodes):  # two are cut off: one knows it, one has not heard of the newer epoch
            node.names, node.state, node.epoch = (old, "fail" if n == 0 else "ok", 7 if n == 0 else 2)  # type: ignore[assignment]
        knows = fake.nodes[2]
        fake.move(KEYS[0], 3)
        knows.names, knows.state, knows.epoch = None, "ok", 5
        first.answers["FCALL"] = REFUSED["CLUSTERDOWN"]()
        assert isinstance(await run(engine, KEYS[0]), EngineDown)
        await until(lambda: engine.run_id_of(KEYS[0]) == "run3")
        assert len(changes) == 1


async def test_a_replicas_run_id_never_counts() -> None:
    """Messages may be read from any node; a storm of restarts came of that."""
    async with opened() as (fake, engine, changes):
        fake.nodes[3].role = "slave"
        first = fake.node_of(KEYS[0])
        first.answers["GET"] = moved(KEYS[0], fake.nodes[3])
        with pytest.raises(EngineDown):
            await engine.commands([("GET", KEYS[0])])
        assert fake.nodes[3].count("GET") == 0
        assert engine.run_id == "run0+run1+run2"
        assert changes == []


async def test_a_command_of_people_waits_while_a_slot_moves_or_a_node_fails_over() -> None:
    async with opened(patience_s=60.0) as (fake, engine, _):
        first = fake.node_of(KEYS[0])
        for word in ("TRYAGAIN", "ASK", "CLUSTERDOWN"):
            refusals = [REFUSED[word](KEYS[0], fake.nodes[3])] * 3
            first.answers["FCALL"] = lambda _, left=refusals: left.pop() if left else b"$2\r\nok\r\n"
            assert await engine.run(SCRIPT, (KEYS[0],)) == b"ok"
        calls = first.count("FCALL")
        assert calls == 3 * 4
        await first.stop()
        await others_run()  # the client hears of it before it uses its connection
        waiting = asyncio.create_task(engine.run(SCRIPT, (KEYS[0],)))
        await asyncio.sleep(0.3)
        await first.start()
        assert await waiting == b"ok"
        assert first.count("FCALL") == calls + 1


async def test_a_command_waits_once_for_a_shard_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make a crawl on a cluster without one of its shards took 40 s to fail: eight times five."""
    async with opened(patience_s=0.3) as (fake, engine, _):
        first, asked, ask = fake.node_of(KEYS[0]), list[int](), engine._servers.replies_of
        await first.stop()
        await others_run()

        async def asks(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
            asked.append(len(commands))
            return await ask(commands)

        monkeypatch.setattr(engine._servers, "replies_of", asks)
        replies = await engine.replies_of([("GET", KEYS[0])] * 5 * PIPELINE_MAX)
        assert {type(reply) for reply in replies} == {EngineDown}
        assert len(asked) > 5
        assert asked[-5:] == [PIPELINE_MAX] * 5
        await first.start()
        await until_answered(engine, KEYS[0])
        engine._of_people_s = 60.0
        refusals = [REFUSED["TRYAGAIN"](KEYS[0], first)] * 3
        first.answers["FCALL"] = lambda _: refusals.pop() if refusals else b"$2\r\nok\r\n"
        assert await engine.run(SCRIPT, (KEYS[0],)) == b"ok"


async def test_a_command_whose_outcome_is_unknown_is_not_sent_again() -> None:
    async with opened(patience_s=60.0) as (fake, engine, _):
        first = fake.node_of(KEYS[0])
        assert await engine.run(SCRIPT, (KEYS[0],)) == b"ok"
        first.is_silent = True
        with pytest.raises(EngineDown, match="nothing within 1 s"):
            await engine.run(SCRIPT, (KEYS[0],))
        assert first.count("FCALL") == 2


async def test_a_replica_is_waited_for_before_what_was_written_counts_as_safe() -> None:
    async with opened() as (fake, engine, _):
        for node in fake.nodes:
            node.replica = fake.nodes[3]
        engine.doubt()
        await until(lambda: all(node.has_replica for node in engine._servers.primaries))  # type: ignore[attr-defined]
        fake.node_of(KEYS[0]).answers["WAIT"] = b":1\r\n"
        fake.node_of(KEYS[1]).answers["WAIT"] = b":0\r\n"
        fake.node_of(KEYS[2]).answers["SET"] = moved(KEYS[2], fake.nodes[3])
        assert await engine.written(KEYS) == {KEYS[0]}
        assert slot_of(fake.node_of(KEYS[0]).told[0][1][1].decode()) == slot_of(KEYS[0])
        untagged = next(f"k{n}" for n in range(99) if fake.node_of(f"k{n}") is fake.node_of(KEYS[0]))
        assert await engine.written([untagged]) == {untagged}
        assert slot_of(fake.node_of(KEYS[0]).told[2][1][1].decode()) == slot_of(untagged)
        del fake.node_of(KEYS[0]).told[2:]
        (first, write), (second, wait) = fake.node_of(KEYS[0]).told
        assert (first, write[0], wait[:2]) == (second, b"SET", [b"WAIT", b"1"])
        for node in fake.nodes:
            node.replica = None
        await until_written(engine)  # none is left: nothing can be waited for


async def test_a_replica_that_came_after_the_map_was_read_is_waited_for() -> None:
    """A map leaves out a replica that has just come, and nobody reads it again while all is well."""
    async with opened() as (fake, engine, _):
        nodes = [fake.node_of(key) for key in KEYS]
        assert await engine.written(KEYS) == {*KEYS}
        nodes[0].attached, nodes[2].attached = "online", "send_bulk"
        nodes[1].replica = fake.nodes[3]
        for node in nodes:
            node.answers["WAIT"] = b":0\r\n"
        engine._servers._read_s -= MAP_AGE_S  # type: ignore[union-attr]
        assert await engine.written(KEYS) == {KEYS[2]}
        assert [node.count("WAIT") for node in nodes] == [1, 1, 0]


async def test_a_refused_wait_confirms_nothing() -> None:
    """So it is when the primary becomes a replica meanwhile."""
    async with opened() as (fake, engine, _):
        fake.node_of(KEYS[0]).attached = "online"
        fake.node_of(KEYS[0]).answers["WAIT"] = b"-UNBLOCKED force unblock from blocking operation\r\n"
        assert await engine.written(KEYS[:1]) == set()


async def until_written(engine: Engine) -> None:
    async with asyncio.timeout(60):
        while await engine.written(KEYS[:2]) != {*KEYS[:2]}:
            await asyncio.sleep(0.01)


async def test_people_are_told_whether_a_replica_has_what_they_wrote() -> None:
    async with opened(patience_s=60.0) as (fake, engine, _):
        for node in fake.nodes:
            node.replica = fake.nodes[3]
            node.answers["WAIT"] = b":0\r\n"
        engine.doubt()
        await until(lambda: all(node.has_replica for node in engine._servers.primaries))  # type: ignore[attr-defined]
        await engine.run("url_states", (KEYS[0],))
        await engine.command("HGET", KEYS[0], "x")
        assert await engine.is_confirmed()  # nothing was written
        await engine.command("HSET", KEYS[0], "x", 1)
        await engine.run(SCRIPT, (KEYS[1],))
        assert not await engine.is_confirmed()
        assert [fake.node_of(key).count("WAIT") for key in KEYS] == [1, 1, 0]
        assert await engine.is_confirmed()  # it is said once


async def test_scripts_wait_for_a_replica_where_that_is_wanted() -> None:
    async with fake_cluster() as fake:
        for node in fake.nodes:
            node.replica = fake.nodes[3]
            node.answers["WAIT"] = b":0\r\n"
        url = f"redis+cluster://127.0.0.1:{fake.nodes[0].port}"
        engine = Engine(url, library(), call_timeout_s=CALL_S, durability="replicated")
        await engine.connect()
        assert await engine.run_many([Call(SCRIPT, (key,), ()) for key in KEYS]) == [b"ok"] * 3
        assert [fake.node_of(key).count("WAIT") for key in KEYS] == [1, 1, 1]
        await engine.close()


async def test_each_address_of_the_url_is_tried() -> None:
    def two(fake: FakeCluster) -> str:
        return f"redis+cluster://127.0.0.1:1,127.0.0.1:{fake.nodes[1].port}"

    async with opened(url=two) as (_, engine, _changes):
        assert await run(engine, KEYS[0]) == b"ok"


async def test_a_cluster_that_is_none_and_a_node_that_is_one_are_said_as_such() -> None:
    async with fake_cluster() as fake:
        fake.nodes[0].names = []
        for scheme, said in (("redis", "use redis[+]cluster://"), ("redis+cluster", "no node of the cluster")):
            engine = Engine(f"{scheme}://127.0.0.1:{fake.nodes[0].port}", library(), call_timeout_s=CALL_S)
            with pytest.raises((EngineUnfit, EngineDown), match=said):
                await engine.connect()
            await engine.close()


async def test_a_server_that_is_no_cluster_is_said_to_be_none() -> None:
    def alone(parts: list[bytes]) -> bytes:
        return b"-ERR This instance has cluster support disabled\r\n" if parts[0] == b"CLUSTER" else b"+OK\r\n"

    async with serving(alone) as url:
        opened_engine = Engine(url.replace("redis://", "redis+cluster://"), library(), call_timeout_s=CALL_S)
        with pytest.raises(EngineUnfit, match="use redis:// instead"):
            await opened_engine.connect()
        await opened_engine.close()


async def test_an_error_of_one_script_stands_in_its_place() -> None:
    async with opened() as (fake, engine, _):
        fake.node_of(KEYS[1]).answers["FCALL"] = b"-ERR wrong\r\n"
        replies = await engine.run_many([Call(SCRIPT, (key,), ()) for key in KEYS])
        assert [isinstance(reply, EngineError) for reply in replies] == [False, True, False]


async def test_a_shard_that_does_not_take_our_scripts_says_why_and_others_go_on() -> None:
    async with opened() as (fake, engine, _):
        fake.node_of(KEYS[1]).answers |= {
            "FCALL": b"-ERR Function not found\r\n",
            "FUNCTION": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        }
        replies = await engine.run_many([Call(SCRIPT, (key,), ()) for key in KEYS])
        assert [isinstance(reply, EngineError) for reply in replies] == [False, True, False]
        assert isinstance(replies[1], EngineFull)
