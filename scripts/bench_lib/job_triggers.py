"""Triggers of jobs: their cost on the real engine, and how late they are while instances join, die and pause.

`cost`: CPU of the engine and of the client for triggers and ends of runs. `minute`: 100,000 jobs of every minute.
`day`: 100,000 jobs of once or twice a day. These two run in simulated time, see job_world.py; each nominal time must
have one run. Exit code 1 if one has none or two, or, unless --no-judge, if one in a hundred is 2 s late.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.frontier.jobs import Jobs, StoredJob
from crawler.rules.cron import Schedule
from crawler.rules.job_runs import run_id
from crawler.rules.jobs import Row, State
from crawler.settings import load
from scripts.bench_lib import arguments
from scripts.bench_lib.frontier_session import FrontierSession, embedded_engine
from scripts.bench_lib.job_cost import HEAD, PARTITIONS, JobCosts, a_job, store
from scripts.bench_lib.job_world import PARTITIONS as WORLD_PARTITIONS
from scripts.bench_lib.job_world import World
from tests.simulation import loop as virtual_loop
from tests.simulation.clocks import EPOCH_NS, virtual_time
from tests.simulation.engine import SimEngine
from tests.simulation.loop import NS, Process
from tests.simulation.wire import RealEngine

EPOCH_S = EPOCH_NS // NS
LATE_MAX_S = 2.0
BEFORE_S = 60  # jobs are stored and instances start
MINUTE_S, DAY_S = 60, 86_400
LAST_S = 15  # until what was due at the end is triggered


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("jobs", __doc__)
    parser.add_argument("parts", nargs="*", default=["cost", "minute", "day"], metavar="PART", help="cost, minute, day")
    parser.add_argument("--jobs", type=arguments.positive_int, default=100_000, help="of the minute and the day")
    parser.add_argument("--instances", type=arguments.positive_int, default=20, help="of the minute")
    parser.add_argument("--hours", type=arguments.positive_int, default=24, help="of the day")
    parser.add_argument("--no-judge", action="store_true", help="late triggers do not fail it")
    parser.add_argument("--seed", type=int, default=1, help="of what goes wrong")
    options = parser.parse_args(words)
    is_good, late_max_s = True, math.inf if options.no_judge else LATE_MAX_S
    for part in options.parts:
        if part == "cost":
            with embedded_engine() as url:
                asyncio.run(_cost(url))
        elif part == "minute":
            is_good &= Trial(options.seed, options.jobs, minute=True, span_s=MINUTE_S).run(
                options.instances, late_max_s
            )
        elif part == "day":
            span_s = options.hours * 3600
            is_good &= Trial(options.seed, options.jobs, minute=False, span_s=span_s).run(4, late_max_s)
        else:
            parser.error(f"'{part}' is not a part (use cost, minute, day)")
    return 0 if is_good else 1


async def _cost(url: str) -> None:
    print(HEAD)
    for title, jobs, rounds, warm in (("20,000 jobs", 20_000, 1, 0), ("500 jobs, 200 rows each", 500, 220, 200)):
        session = FrontierSession(url, partitions=PARTITIONS, delay_ms=0, crawl=f"bench-{jobs}")
        await session.open()
        costs = JobCosts(session)
        await costs.measure(jobs, rounds, warm)
        await session.close()
        print(f"{title}:")
        print("\n".join(cost.line() for cost in costs.costs))


class Trial:
    """Jobs, instances, and what goes wrong with them."""

    def __init__(self, seed: int, n: int, *, minute: bool, span_s: int) -> None:
        self.rng = random.Random(seed)
        self.name = "minute" if minute else "day"
        self.span_s = span_s
        make = self._of_a_minute if minute else self._of_a_day
        self.jobs = [make(number, n) for number in range(n)]

    def _of_a_minute(self, number: int, n: int) -> StoredJob:
        """Every 60 s; in all they are spread over the minute, half of them by jitter."""
        since_s = EPOCH_S + BEFORE_S - MINUTE_S + number * MINUTE_S // n
        jitter_s = self.rng.choice((0.0, 2.0))
        one = a_job(number, since_s=since_s)
        return self._with(one, Schedule(every_s=MINUTE_S, anchor_s=since_s, jitter_s=jitter_s))

    def _of_a_day(self, number: int, _: int) -> StoredJob:
        """Once or twice a day, by cron and jitter."""
        hours = ",".join(str(hour) for hour in sorted(self.rng.sample(range(24), self.rng.choice((1, 2)))))
        one = a_job(number, since_s=EPOCH_S + BEFORE_S)
        return self._with(one, Schedule(cron=f"{self.rng.randrange(60)} {hours} * * *", jitter_s=50.0))

    def _with(self, one: StoredJob, schedule: Schedule) -> StoredJob:
        (first,) = one.job.revisions
        return StoredJob(replace(one.job, revisions=(replace(first, spec=replace(first.spec, schedule=schedule)),)), "")

    def run(self, instances: int, late_max_s: float) -> bool:
        """Is each nominal time accounted for once, and in time?"""
        with _real_engine() as real:
            world = World(real, load(environment={}), self.rng)
            with virtual_time(world.loop), _quiet():
                world.loop.run_until_complete(self._main(world, instances))
                late_s = self._judge(world, world.loop.run_until_complete(self._histories(world)))
                return late_s < late_max_s

    async def _main(self, world: World, instances: int) -> None:
        await world.loop.start(Process("people"), self._store(world))
        for n in range(instances):
            world.loop.after(20.0 + 0.2 * n, world.join)
        self._plan_faults(world)
        await asyncio.sleep(BEFORE_S + self.span_s + LAST_S - world.loop.time())

    async def _store(self, world: World) -> None:
        engine = cast("Engine", SimEngine(world.server, "", 600.0))
        jobs = Jobs(engine, world.keys, WORLD_PARTITIONS, rows_max=200)
        dues = [float(one.job.spec.schedule.next_after(one.job.done_to) or 0) for one in self.jobs]
        await store(jobs, self.jobs, dues)
        assert world.loop.time() < 20.0, "storing the jobs took too long"

    def _plan_faults(self, world: World) -> None:
        def at() -> float:
            return BEFORE_S + self.rng.uniform(0.02, 0.9) * self.span_s

        for _ in range(2 if self.name == "minute" else 12):
            world.loop.after(at(), world.kill, "process")
            world.loop.after(at(), world.join)
            world.loop.after(at(), world.pause, self.rng.uniform(0.5, 3.0))
            world.loop.after(at(), world.step_clock, 3.0, self.rng.choice((-1.0, 1.0)))
        for _ in range(1 if self.name == "minute" else 6):
            world.loop.after(when := at(), world.kill, "machine")
            world.loop.after(when + 9.0, world.join)
        for _ in range(0 if self.name == "minute" else 6):
            world.loop.after(at(), world.pause, 12.0)

    async def _histories(self, world: World) -> dict[str, list[tuple[int, int, State]]]:
        found = {}
        for start in range(0, len(self.jobs), 1000):
            ids = [one.job.id for one in self.jobs[start : start + 1000]]
            homes = Jobs(cast("Engine", None), world.keys, WORLD_PARTITIONS, rows_max=0)
            asked = [("ZRANGE", world.keys.of(homes.home_of(job), f"ledger:{job}"), 0, -1) for job in ids]
            for job, rows in zip(ids, world.server.real.wire.ask(asked), strict=True):
                found[job] = [_row_of(raw) for raw in rows]
        return found

    def _judge(self, world: World, histories: dict[str, list[tuple[int, int, State]]]) -> float:
        """Print what became of the nominal times. How late are they (p99, s)? Infinitely, if one is wrong."""
        begin, end = EPOCH_S + BEFORE_S, EPOCH_S + BEFORE_S + self.span_s
        late, wrong, missed = list[float](), 0, 0
        for one in self.jobs:
            schedule, rows = one.job.spec.schedule, histories[one.job.id]
            for nominal in schedule.times(begin - 1, end - 1):
                mine = [row for row in rows if row[0] <= nominal <= row[1]]
                wrong += len(mine) != 1
                missed += len(mine) == 1 and mine[0][2] is not State.STARTED
                started = world.started.get(run_id(one.job.id, 1, nominal))
                if started is not None:
                    late.append(started - nominal - schedule.jitter_of(one.job.id, nominal))
        late.sort()
        shown = {f"p{q}": late[min(len(late) - 1, len(late) * q // 100)] for q in (50, 90, 99)}
        shown["most"] = late[-1]
        print(f"{self.name}: {len(self.jobs):,} jobs, {len(late):,} triggers in {self.span_s:,} s of simulated time")
        print(f"  with {', '.join(f'{count} {kind}' for kind, count in sorted(world.faults.items()))}")
        print(f"  late, s: {', '.join(f'{name} {seconds:.3f}' for name, seconds in shown.items())}")
        print(f"  nominal times without exactly one row {wrong}, not started {missed}, runs twice {len(world.twice)}")
        total_s = world.loop.time()
        busiest = max(world.loop.spent_ns.values()) / NS
        print(f"  the engine was busy for {world.server.spent_ns / NS:.1f} of {total_s:,.0f} s, ", end="")
        print(f"the busiest instance for {busiest:.1f} s")
        return math.inf if wrong or missed or world.twice else shown["p99"]


def _row_of(raw: bytes) -> tuple[int, int, State]:
    row = msgspec.json.decode(raw, type=Row)
    return row.nominal, row.to, row.state


@contextlib.contextmanager
def _real_engine() -> Iterator[RealEngine]:
    with embedded_engine() as url:
        real = RealEngine(url.removeprefix("unix://"))
        real.reset()
        try:
            yield real
        finally:
            real.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without log lines, and without the bound on the steps of a simulation."""
    before, virtual_loop.STEPS_MAX = virtual_loop.STEPS_MAX, 10**12
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        virtual_loop.STEPS_MAX = before
        logging.disable(logging.NOTSET)
