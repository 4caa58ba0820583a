"""Instances that trigger jobs in simulated time, by the real rules, scripts, engine and loops; nothing is fetched.

Time is virtual, and what computing takes counts in it. A process is busy for as long as its callbacks really took, by
the CPU clock. The engine does one pipeline after another, each for as long as its process really computed meanwhile.
Who owns which partition is decided here: survivors acquire those of a dead instance when its death would be known.
"""

import heapq
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from crawler.crawl.runs import JobRunner
from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import FenceArgs, JobChange
from crawler.frontier.jobs import Jobs
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Acquired, Leases
from crawler.frontier.owner import Frontier
from crawler.frontier.runs import Runs
from crawler.jobs.runs import JobStore
from crawler.membership.held import HeldPartitions
from crawler.rules.job_runs import RunCounts, RunRecord
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import Settings
from tests.simulation.clocks import EPOCH_NS
from tests.simulation.engine import Job, Server, SimEngine
from tests.simulation.loop import NS, PROCESS, Process, VirtualLoop
from tests.simulation.weather import CALM, Weather
from tests.simulation.wire import RealEngine

PARTITIONS = 1024
KNOWN_DEAD_S = {"process": 1.0, "machine": 7.0}  # its lock file is free; its heartbeats stop
SEEN = RunCounts(added=1, done=1, s2=1, bytes=30_000)  # of each run: one page, at once


class BusyLoop(VirtualLoop):
    """A virtual loop in which computing takes time."""

    def __init__(self) -> None:
        super().__init__(thread_delay_s=lambda: 0.001)
        self.busy_ns: Counter[Process] = Counter()  # until when
        self.spent_ns: Counter[Process] = Counter()

    def step(self) -> None:
        self.steps += 1
        if not self._ready:
            self._pass_time()
        handle = self._ready.popleft()
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # noqa: SLF001 - as the loop itself
        if handle.cancelled() or (process is not None and process.is_dead):
            return
        if process is None:
            handle._run()  # noqa: SLF001
        elif process.is_paused:
            process.set_aside.append(handle)
        elif self.busy_ns[process] > self.now_ns:
            self._serial += 1
            heapq.heappush(self._timers, (self.busy_ns[process], self._serial, cast("Any", handle)))
        else:
            begun = time.thread_time_ns()
            handle._run()  # noqa: SLF001
            took = time.thread_time_ns() - begun
            self.busy_ns[process] = self.now_ns + took
            self.spent_ns[process] += took


class BusyServer(Server):
    """An engine that does one thing at a time, and takes its time."""

    def __init__(self, real: RealEngine, loop: BusyLoop, weather: Weather) -> None:
        super().__init__(real, loop, weather)
        fields = dict(line.split(":", 1) for line in real.wire.one("INFO", "server").decode().split() if ":" in line)
        self._cpu_clock = ~int(fields["process_id"]) << 3 | 2  # as clock_getcpuclockid(3) makes it
        self.busy_ns = 0
        self.spent_ns = 0

    def _arrive(self, job: Job) -> None:
        if self.busy_ns > self.loop.now_ns:
            self.loop.after((self.busy_ns - self.loop.now_ns) / NS, self._arrive, job)
        else:
            super()._arrive(job)

    def _work(self, job: Job) -> None:
        begun = time.clock_gettime_ns(self._cpu_clock)
        super()._work(job)
        self.spent_ns += (took := time.clock_gettime_ns(self._cpu_clock) - begun)
        self.busy_ns = self.loop.now_ns + took

    def _reply(self, job: Job) -> None:
        self.loop.after(0.0, self._reply_when_done, job)

    def _reply_when_done(self, job: Job) -> None:
        self.loop.after(max(0, self.busy_ns - self.loop.now_ns) / NS, super()._reply, job)


class _Runs(Runs):
    """Runs that have fetched their page as soon as they are looked at; the looks cost what they cost."""

    async def passes(self, runs: Sequence[str]) -> list[dict[int, RunCounts]]:
        await super().passes(runs)
        return [{0: SEEN} for _ in runs]


class _Runner(JobRunner):
    """Seeds nothing."""

    async def _seed(self, record: RunRecord, urls: Sequence[str]) -> int:
        return len(urls) if record.run else 0


class Instance(Process):
    """A process with the parts for jobs."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(name, boot_ns=hash(name) % 10**6 * NS)
        self.world = world
        self.held: HeldPartitions | None = None
        world.loop.start(self, self._run())

    async def _run(self) -> None:
        engine = cast("Engine", SimEngine(self.world.server, "", 2.0))
        await engine.connect()
        keys = self.world.keys
        self.leases = Leases(engine, keys, hash_key=bytes(16))
        self.held = HeldPartitions(self.name)
        jobs, runs = Jobs(engine, keys, PARTITIONS, rows_max=200), _Runs(engine, keys, PARTITIONS)
        nothing = cast("Any", None)
        frontier = cast("Frontier", None)
        store = JobStore(jobs=jobs, runs=runs, engine=engine)
        self.runner = _Runner(store, frontier, nothing, self.held, nothing, nothing, self.world.settings.jobs)
        for loop in self.runner.loops().values():
            self.world.loop.create_task(loop(), context=self.context)
        self.runner.follow(1)

    def take(self, partitions: Iterable[int]) -> None:
        self.world.loop.create_task(self._take(list(partitions)), context=self.context)

    async def _take(self, partitions: Sequence[int]) -> None:
        assert self.held is not None
        found = await self.leases.read(partitions)
        for won in await self.leases.acquire(self.name, self.name, [(one, 0) for one in found]):
            if isinstance(won, Acquired):
                self.held.add(won, monotonic_ms(), is_wanted=True)

    async def give(self, partitions: Sequence[int]) -> None:
        assert self.held is not None
        fences = [fence for p in partitions if (fence := self.held.let_go(p)) is not None]
        await self.leases.release(fences)


class World:
    """Instances, their partitions, and what they triggered: run -> when, by the true wall clock (s)."""

    def __init__(self, real: RealEngine, settings: Settings, rng: Any) -> None:
        self.loop = BusyLoop()
        self.server = BusyServer(real, self.loop, Weather(rng, CALM))
        self.keys = Keys("main")
        self.settings = settings
        self.rng = rng
        self.instances: list[Instance] = []
        self.owner: dict[int, Instance] = {}
        self.started: dict[str, float] = {}
        self.twice: list[str] = []
        self.faults: Counter[str] = Counter()
        self.server.observe = self._observe

    @property
    def wall_s(self) -> float:
        return (EPOCH_NS + self.loop.now_ns) / NS

    def _observe(self, _: Process, call: Call | tuple[Any, ...], reply: Any) -> None:
        if not isinstance(call, Call) or call.name != "change_job" or reply[0] != b"OK":
            return
        change = JobChange(*msgspec.msgpack.decode(call.args[len(FenceArgs._fields)]))
        for run in change.starts[::2]:
            if run in self.started:
                self.twice.append(run)
            self.started[run] = self.wall_s

    # --- who owns what ---

    def join(self) -> None:
        """One more instance, which takes its share from the others."""
        self.faults["joins"] += 1
        new = Instance(self, f"i{len(self.instances)}")
        self.instances.append(new)
        self.loop.after(0.5, self._share, new)

    def _share(self, new: Instance) -> None:
        share = PARTITIONS // max(1, len(self.alive))
        for other in self.alive:
            mine = [p for p, owner in self.owner.items() if owner is other]
            if other is not new and len(mine) > share and not other.is_paused:
                self._move(other, new, mine[share:])
        self._give_out([p for p in range(PARTITIONS) if p not in self.owner])

    def _move(self, giver: Instance, taker: Instance, partitions: Sequence[int]) -> None:
        self.owner.update(dict.fromkeys(partitions, taker))

        async def handed_over() -> None:
            await giver.give(partitions)
            self.loop.after(0.0, taker.take, partitions)

        self.loop.create_task(handed_over(), context=giver.context)

    def _give_out(self, partitions: Sequence[int]) -> None:
        able = [one for one in self.alive if not one.is_paused and one.held is not None]
        for n, one in enumerate(able):
            if some := partitions[n :: len(able)]:
                self.owner.update(dict.fromkeys(some, one))
                one.take(some)

    @property
    def alive(self) -> list[Instance]:
        return [one for one in self.instances if not one.is_dead]

    def _someone(self) -> Instance:
        return cast("Instance", self.rng.choice([one for one in self.alive if not one.is_paused]))

    # --- what goes wrong ---

    def kill(self, kind: str) -> None:
        one = self._someone()
        self.faults[f"deaths of a {kind}"] += 1
        one.is_dead = True
        self.loop.after(KNOWN_DEAD_S[kind], self._bequeath, one)

    def _bequeath(self, dead: Instance) -> None:
        self._give_out([p for p, owner in self.owner.items() if owner is dead])

    def pause(self, seconds: float) -> None:
        """Stop a process; if it is for long, it is taken for dead, and drops its leases soon after it wakes."""
        one = self._someone()
        self.faults["pauses"] += 1
        one.is_paused = True
        if seconds > KNOWN_DEAD_S["machine"]:
            self.loop.after(KNOWN_DEAD_S["machine"], self._bequeath, one)
            self.loop.after(seconds + 0.05, self._loses, one)
        self.loop.after(seconds, self.loop.resume, one)

    def _loses(self, one: Instance) -> None:
        if one.held is not None:
            one.context.copy().run(one.held.lose_all)

    def step_clock(self, seconds: float, hours: float) -> None:
        """Set a wall clock; it is put right after some seconds."""
        one = self._someone()
        self.faults["clock steps"] += 1
        one.wall_ns += int(hours * 3600 * NS)
        self.loop.after(seconds, setattr, one, "wall_ns", 0)
