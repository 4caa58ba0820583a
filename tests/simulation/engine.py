"""The simulated engine: real scripts on a real server, reached over a network that delays, loses and cuts.

`Server` is the far side: it runs what arrives, at one virtual moment each. `SimEngine` is what an instance is given for
`crawler.engine.client.Engine`: the same face and the same behaviour at time-outs, new connections and restarts.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis
import redis.exceptions as rex

from crawler.engine.client import Call, Engine, EngineInfo, Memory, RestartSignal, translate
from crawler.engine.cluster import slot_of
from crawler.engine.server import Change
from crawler.errors import EngineDown, EngineError
from crawler.frontier.scripts import script
from tests.simulation.clocks import EPOCH_NS
from tests.simulation.loop import NS, PROCESS, Process, VirtualLoop
from tests.simulation.weather import Weather
from tests.simulation.wire import RealEngine

INFO, TIME = ("INFO",), ("TIME",)


CLUSTERDOWN = "CLUSTERDOWN no primary that the caller knows has this key"


@dataclass(slots=True, eq=False)
class Shard:
    """A primary of a cluster. `is_cut`: what it gets reaches no replica."""

    run_id: str
    is_up: bool = True
    is_cut: bool = False


@dataclass(slots=True, eq=False)
class Job:
    """A pipeline under way: what was asked, by whom, and how far the server has come with it. `known`: the run ids of
    the primaries that the caller knows.
    """

    process: Process
    calls: Sequence[Call | tuple[Any, ...]]
    answer: "asyncio.Future[list[Any]]"
    generation: int
    known: Sequence[str] = ()
    replies: list[Any] = field(default_factory=list)
    reply_lost: bool = False


class Server:
    """One engine for all. `observe(process, call, reply)` hears of each call at the moment it was executed."""

    def __init__(self, real: RealEngine, loop: VirtualLoop, weather: Weather) -> None:
        self.real = real
        self.loop = loop
        self.weather = weather
        self.is_up = True
        self.is_stopped = False
        self.memory = Memory(0, 0.0)
        self.shards: list[Shard] = []  # more than one of a cluster; its data are in one real engine all the same
        self.generation = 1  # of connections: those of an earlier one are broken
        self.run_id = "run-1"
        self.wall_ns = 0  # its wall clock minus virtual time
        self.observe: Callable[[Process, Call | tuple[Any, ...], Any], None] = lambda *_: None
        self.on_sent: Callable[[Job], None] = lambda _: None
        self.on_executed: Callable[[Job, int], None] = lambda *_: None  # from which call on is new
        self.executed = 0
        self._waiting: list[Job] = []  # arrived while the server was stopped
        self._ears: dict[str, tuple[Process, asyncio.Queue[bytes | None]]] = {}

    # --- what happens to it ---

    def kill(self) -> None:
        """All connections break; what was on its way is lost."""
        self.is_up = self.is_stopped = False
        self.generation += 1
        lost, self._waiting = self._waiting, []
        for job in lost:
            self._reset(job)
        for _, ear in self._ears.values():
            ear.put_nowait(None)
        self._ears.clear()

    def split(self, shards: int) -> None:
        """Be a cluster from the start."""
        self.shards = [Shard(f"run-1.{n}") for n in range(shards)]
        self.run_id = "+".join(shard.run_id for shard in self.shards)

    def shard_of(self, key: str) -> int:
        return slot_of(key) % len(self.shards) if self.shards else 0

    def promote(self, shard: Shard) -> None:
        """Its replica has taken over."""
        number, _, place = shard.run_id.removeprefix("run-").partition(".")
        shard.run_id, shard.is_up, shard.is_cut = f"run-{int(number) + 1}.{place}", True, False
        self.run_id = "+".join(one.run_id for one in self.shards)

    def _serves(self, call: Call | tuple[Any, ...], job: Job) -> bool:
        """Is the primary there that the caller means?"""
        if not self.shards or call in (INFO, TIME):
            return True
        place = self.shard_of(call.keys[0] if isinstance(call, Call) else call[1])
        return self.shards[place].is_up and self.shards[place].run_id == job.known[place]

    def start(self) -> None:
        """Up again with all its data, and a new run id."""
        self.is_up = True
        self.run_id = f"run-{self.generation}"
        for shard in self.shards:
            self.promote(shard)

    def stop(self) -> None:
        self.is_stopped = self.is_up

    def go_on(self) -> None:
        """Run what has arrived meanwhile, also for callers that have given up waiting."""
        self.is_stopped = False
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._work(job)

    @property
    def is_reachable(self) -> bool:
        return self.is_up and not self.is_stopped

    # --- the way there and back ---

    def carry(self, job: Job) -> None:
        delivery = self.weather.request_delivery(
            job.process, [c.name if isinstance(c, Call) else c[0] for c in job.calls]
        )
        self.on_sent(job)
        if delivery.request_lost:
            self._fail(job, delivery.silent)
            return
        job.reply_lost = delivery.reply_lost
        if self.weather.hold(job.process, lambda: self._arrive(job)):
            return
        self.loop.after(delivery.request_s, self._arrive, job)

    def _arrive(self, job: Job) -> None:
        if not self.is_up or job.generation != self.generation:
            self._reset(job)
        elif self.is_stopped:
            self._waiting.append(job)
        else:
            self._work(job)

    def _work(self, job: Job) -> None:
        """Run the next calls of a pipeline; others may come in between two parts of it."""
        if not self.is_up or job.generation != self.generation:
            self._reset(job)
            return
        if self.is_stopped:
            self._waiting.append(job)
            return
        begin = len(job.replies)
        part = job.calls[begin : begin + self.weather.part_of(len(job.calls) - begin)]
        served = [self._serves(c, job) for c in part]
        asked = [_command(c) for c, is_served in zip(part, served, strict=True) if is_served and c not in (INFO, TIME)]
        answers = iter(self.real.wire.ask(asked) if asked else ())
        for call, is_served in zip(part, served, strict=True):
            if not is_served:
                job.replies.append(hiredis.ReplyError(CLUSTERDOWN))
                continue
            job.replies.append(self._own_answer(call) if call in (INFO, TIME) else next(answers))
            self.observe(job.process, call, job.replies[-1])
        self.executed += len(part)
        if any(isinstance(c, Call) and c.name == "add" for c in part):
            self._publish()
        self.on_executed(job, begin)
        if job.generation != self.generation:
            self._reset(job)
        elif len(job.replies) < len(job.calls):
            self.loop.after(self.weather.gap_s(), self._work, job)
        else:
            self._reply(job)

    def _own_answer(self, call: Call | tuple[Any, ...]) -> Any:
        """What the real engine knows nothing of: its run id and its wall clock."""
        if call == INFO:
            return self.run_id.encode()
        seconds, nanos = divmod(EPOCH_NS + self.loop.now_ns + self.wall_ns, NS)
        return [b"%d" % seconds, b"%d" % (nanos // 1000)]

    def _reply(self, job: Job) -> None:
        delivery = self.weather.reply_delivery(job.process, job.calls)
        if job.reply_lost or self.weather.is_deaf(job.process):
            self._fail(job, delivery.silent)
        else:
            self.loop.after(delivery.reply_s, _answer, job)

    def _fail(self, job: Job, silent: bool) -> None:
        if not silent:
            self.loop.after(self.weather.latency_s(), self._reset, job)

    def _reset(self, job: Job) -> None:
        if not job.answer.done():
            job.answer.set_exception(EngineDown("no answer from the engine: connection lost"))

    # --- hints ---

    def listen(self, process: Process, channel: str) -> "asyncio.Queue[bytes | None]":
        ear: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._ears[channel] = (process, ear)
        return ear

    def _publish(self) -> None:
        for channel, message in self.real.ear.published():
            if channel in self._ears and not self.weather.is_deaf(self._ears[channel][0]):
                self.loop.after(self.weather.latency_s(), self._ears[channel][1].put_nowait, message)


def _answer(job: Job) -> None:
    if not job.answer.done():
        job.answer.set_result(job.replies)


def _command(call: Call | tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(call, Call):
        return ("FCALL", script(call.name).function, len(call.keys), *call.keys, *call.args)
    return tuple(call)


class SimEngine:
    """The engine as one instance sees it."""

    def __init__(self, server: Server, url: str, call_timeout_s: float) -> None:
        process = PROCESS.get()
        assert process is not None, "engines are opened by processes"
        self.url = url
        self.run_id = ""
        self._patience_s = 0.0
        self.restarts = RestartSignal()
        self.fails_in_parts = len(server.shards) > 1
        self.partitions_min = 0
        self._looking: asyncio.Task[None] | None = None
        self._server = server
        self._process = process
        self._timeout_s = call_timeout_s
        self._idle: list[int] = []  # generations of open connections that are not in use

    async def connect(self) -> EngineInfo:
        info = await self.info()
        self.run_id = info.run_id
        return info

    async def close(self) -> None:
        self._idle.clear()

    async def info(self) -> EngineInfo:
        (raw,) = await self._pipeline([INFO])
        return EngineInfo(
            product="valkey", version=(9, 1), run_id=raw.decode(), policy="noeviction", persistent=True, used_bytes=0,
            max_bytes=0, cpu_s=0.0,
        )  # fmt: skip

    async def memory(self) -> Memory:
        await self._pipeline([INFO])
        return self._server.memory

    async def written(self, keys: Collection[str]) -> set[str]:
        (run_id,) = await self._pipeline([INFO])
        if self.fails_in_parts:
            self._learn(run_id.decode())
            shards = self._server.shards
            return {key for key in keys if not shards[self._server.shard_of(key)].is_cut}
        return set(keys) if self._server.weather.is_written() else set()

    def run_id_of(self, key: str) -> str:
        return self.run_id.split("+")[self._server.shard_of(key)]

    async def is_confirmed(self) -> bool:
        return True

    is_in_doubt = False  # a server that is replaced is gone: nobody answers in its place

    def doubt(self) -> None:
        if self.fails_in_parts and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        with contextlib.suppress(EngineError):
            (run_id,) = await self._pipeline([INFO])
            self._learn(run_id.decode())

    def _learn(self, run_id: str) -> bool:
        """Told before another call goes to a primary that is another one. Is one?"""
        if not self.run_id or run_id == self.run_id:
            return False
        both = zip(self.run_id.split("+"), run_id.split("+"), strict=True)
        changed = {place for place, (before, now) in enumerate(both) if before != now}
        self.run_id = run_id
        self.restarts(Change(lambda key: self._server.shard_of(key) in changed))
        return True

    def shard_of(self, key: str) -> str:
        return str(self._server.shard_of(key))

    async def run(self, name: str, keys: tuple[str, ...], *args: Any) -> Any:
        (reply,) = await self.run_many([Call(name, keys, args)])
        if isinstance(reply, EngineError):
            raise reply
        return reply

    run_all = Engine.run_all
    dependable, change_at, may_exist = Engine.dependable, Engine.change_at, Engine.may_exist
    run_repeatable, _tried = Engine.run_repeatable, Engine._tried

    async def run_many(self, calls: Sequence[Call]) -> list[Any]:
        return [_translated(reply) for reply in await self._pipeline(calls)]

    async def replies_of(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [_translated(reply) for reply in await self._pipeline(commands)]

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        replies = await self.replies_of(commands)
        for reply in replies:
            if isinstance(reply, EngineError):
                raise reply
        return replies

    async def command(self, *command: Any) -> Any:
        return (await self.commands([command]))[0]

    async def subscribe(self, channel: str) -> AsyncIterator[bytes]:
        await self._connection()
        ear = self._server.listen(self._process, channel)
        while True:
            message = await ear.get()
            if message is None:
                raise EngineDown("no answer from the engine: connection lost")
            yield message

    async def _pipeline(self, calls: Sequence[Any]) -> list[Any]:
        if not calls:
            return []
        try:
            async with asyncio.timeout(self._timeout_s):
                generation = self._idle.pop() if self._idle else 0
                if generation != self._server.generation:  # a broken connection is noticed before it is used
                    generation = await self._connection()
                replies = await self._exchange(calls, generation)
        except TimeoutError:
            raise EngineDown(f"no answer from the engine within {self._timeout_s:g} s") from None
        self._idle.append(generation)
        return replies

    async def _connection(self) -> int:
        """Open a connection; the first one to a restarted engine fails after the instance was told."""
        generation = self._server.generation
        (run_id,) = await self._exchange([INFO], generation)
        if self._learn(run_id.decode()):
            raise EngineDown("no answer from the engine: it was restarted")
        return generation

    async def _exchange(self, calls: Sequence[Any], generation: int) -> list[Any]:
        answer: asyncio.Future[list[Any]] = self._server.loop.create_future()
        self._server.carry(Job(self._process, calls, answer, generation, self.run_id.split("+")))
        replies = await answer
        if self.fails_in_parts and any(isinstance(reply, hiredis.ReplyError) for reply in replies):
            self.doubt()
        return replies


def _translated(reply: Any) -> Any:
    return translate(rex.ResponseError(str(reply))) if isinstance(reply, hiredis.ReplyError) else reply
