"""What a seed stands for: the web, the crawl's settings, the machines, and what will go wrong and when."""

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from crawler.settings import Settings, load
from crawler.settings.schema import JobSettings
from tests.simulation.holding import Limits, limits_of
from tests.simulation.job_sketches import Act, acts_of, clock_steps_of
from tests.simulation.weather import Climate
from tests.simulation.web import Web, add_pictures, add_posts, chain_web, graph_web, kill_hosts

# How often each fault is drawn; faults.py defines what they do.
WEIGHTS = {
    "kill": 14, "kill at a call": 14, "power cut": 3, "blackout": 2, "flap": 3,
    "pause": 8, "pause at a call": 6, "pause before a request": 4, "pause until removed": 4, "wall clock jump": 3,
    "leave": 4, "leave at a call": 4, "join": 6,
    "engine restart": 6, "engine stop": 4, "engine rollback": 4,
    "cut": 7, "slow beats": 3, "reply lost at a call": 6, "disk full": 3, "disk low": 3,
    "outage": 3, "standstill": 3,
}  # fmt: skip
PLANNED = {"leave": 1, "leave at a call": 2, "join": 2}
KILLS = {"kill": 3, "kill at a call": 3, "power cut": 1, "flap": 1}
PAUSES = {
    "pause": 3,
    "pause at a call": 2,
    "pause before a request": 1,
    "pause until removed": 2,
    "cut": 2,
    "slow beats": 1,
}
ENGINE = {"engine restart": 2, "engine stop": 1, "engine rollback": 2, "blackout": 1}
NOTHING: dict[str, int] = {}
CUTS = {"cut": 1}
OUTAGES = {"outage": 3, "kill": 1, "pause": 1, "join": 1, "leave": 1, "wall clock jump": 1}
STANDSTILLS = {"standstill": 4, "kill": 1, "pause": 1, "join": 1, "leave": 1, "engine restart": 1, "outage": 1}
FULL_DISKS = {"disk full": 4, "disk low": 2, "kill": 1, "join": 1, "leave": 1}
MIXES = {
    "all": WEIGHTS, "planned": PLANNED, "kills": KILLS, "pauses": PAUSES, "engine": ENGINE, "nothing": NOTHING,
    "cuts": CUTS, "outages": OUTAGES, "standstills": STANDSTILLS, "full disks": FULL_DISKS,
}  # fmt: skip
DRAWN = ("all", "all", "all", "all", "planned", "kills", "pauses", "engine", "nothing")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Drawn from a seed, and from nothing else."""

    seed: int
    shape: str
    settings: Settings
    web: Web
    starts: tuple[tuple[float, str, bool], ...]  # seconds, machine, can its death be seen by its lock file
    climate: Climate
    faults: tuple[tuple[float, str], ...]
    heal_at_s: float
    disk_s: float
    overflows: bool  # queues lie in files
    held: Limits  # of introductions, by which pages are held back
    budgets: Mapping[str, int]  # what instances begin with
    raised_at_s: float  # instances that start later have none
    scheduled: Mapping[str, float]  # seeds for a later time, in seconds from the start
    acts: tuple[Act, ...] = ()  # on jobs; without any, the crawl has none
    shards: int = 0  # of the cluster that the engine is; 0: it is one server

    @property
    def is_planned(self) -> bool:
        """Does nothing happen but joins and leaves?"""
        return self.climate.is_calm and all(kind in PLANNED for _, kind in self.faults)


def rng_of(seed: int, what: str) -> random.Random:
    """A generator of its own for each purpose: one more draw in one place changes nothing elsewhere."""
    return random.Random(f"{seed}/{what}")


OVERFLOWING = 0.3  # share of runs whose queues lie in files
DYING = 0.4  # share of webs with hosts that do not answer
REDIRECTED = 0.2  # share of sites whose robots.txt is that of another site
SCHEDULED = 0.3  # share of runs with seeds for a later time
SCHEDULED_MAX_S = 20.0
BUDGETED = 0.25  # share of runs in which budgets defer URLs
SHARDED = 0.25  # share of runs on a cluster
POSTING = 0.4  # share of webs with pages that take a POST, in runs without jobs
SHOWING = 0.3  # share of webs whose pages show pictures, likewise; these have no budgets
JOBBED = 0.3  # share of runs with jobs; these have no budgets, and short delays
JOB_DELAY_S = 0.3
GIVE_UP_S = 60.0  # a host that is silent for so long
SLOW_CALLS_S = 0.05  # each way: changes of a job come between the two calls of another one
BUDGETS: tuple[dict[str, int], ...] = (
    {"urls": 3},
    {"urls": 2},
    {"crawl_urls": 12},
    {"urls": 4, "crawl_urls": 20},
)


def plan_of(seed: int, *, shape: str = "", mix: str = "", has_jobs: bool | None = None) -> Plan:
    """A seed's plan. `shape` of the web, `mix` of faults, and whether there are jobs, are drawn unless given."""
    jobs = rng_of(seed, "jobs")
    luck = jobs.random()
    plan = _sharded(_plan_of(seed, shape, mix), rng_of(seed, "shards"))
    if luck < JOBBED if has_jobs is None else has_jobs:
        return _with_jobs(plan, jobs)
    posting = rng_of(seed, "posts")
    if plan.shape != "chain" and posting.random() < POSTING:
        add_posts(plan.web, posting)
    showing = rng_of(seed, "pictures")
    if plan.shape != "chain" and showing.random() < SHOWING:
        add_pictures(plan.web, showing)
        settings = replace(plan.settings, requisites=replace(plan.settings.requisites, fetch=True))
        plan = dataclasses.replace(plan, settings=settings, budgets={})
    return plan


def _sharded(plan: Plan, rng: random.Random) -> Plan:
    """On a cluster now and then; if anything goes wrong, shards fail over, too."""
    if rng.random() >= SHARDED:
        return plan
    shards = rng.randint(2, 4)
    return dataclasses.replace(plan, shards=shards) if plan.is_planned else with_failovers(plan, shards, rng)


def with_failovers(plan: Plan, shards: int, rng: random.Random) -> Plan:
    """The same on a cluster of so many shards, some of which fail over."""
    last_s = max((at_s for at_s, _ in plan.faults), default=0.0)
    times = [rng.uniform(0.3, max(4.0, last_s)) for _ in range(rng.randint(1, 4))]
    faults = tuple(sorted((*plan.faults, *((at_s, "shard failover") for at_s in times))))
    heal_at_s = max(plan.heal_at_s, max(times) + 2.0)
    return dataclasses.replace(plan, shards=shards, faults=faults, heal_at_s=heal_at_s)


def _with_jobs(plan: Plan, rng: random.Random) -> Plan:
    """The same with jobs. If anything goes wrong in it, clocks do, too."""
    s = plan.settings
    delay_s = min(s.politeness.delay_s, JOB_DELAY_S)
    settings = replace(
        s, politeness=replace(s.politeness, delay_s=delay_s),
        jobs=_jobs_of(s, rng),
    )  # fmt: skip
    acts = acts_of(rng, plan.web, plan.shape)
    if plan.shards:  # a removal that a shard forgot: the job is there again, and what was left out of its run is not
        acts = tuple(act for act in acts if act.kind != "remove")
    last_s = max(act.at_s for act in acts)
    steps = [] if plan.is_planned else clock_steps_of(rng, last_s + 3.0)
    faults = tuple(sorted((*plan.faults, *steps)))
    heal_at_s = max(plan.heal_at_s, last_s + 1.0, *(at_s for at_s, _ in faults)) + rng.uniform(0.0, 5.0)
    climate = dataclasses.replace(plan.climate, latency_max_s=rng.choice((0.001, 0.001, SLOW_CALLS_S)))
    return dataclasses.replace(
        plan,
        settings=settings,
        climate=climate,
        faults=faults,
        heal_at_s=heal_at_s,
        budgets={},
        scheduled={},
        acts=acts,
    )


def _jobs_of(s: Settings, rng: random.Random) -> JobSettings:
    limits = {"active_max": rng.choice((100, 2)), "catchup_max": rng.choice((100, 3))}
    return replace(s.jobs, history_rows=rng.choice((1000, 1000, 30)), **limits)


def _plan_of(seed: int, shape: str, mix: str) -> Plan:
    rng = rng_of(seed, "plan")
    partitions = rng.choice((4, 8, 16, 24))
    shape = shape or ("chain" if seed % 5 == 4 else "graph")
    web = chain_web(rng, partitions) if shape == "chain" else graph_web(rng, redirected=REDIRECTED)
    dying = rng_of(seed, "hosts")
    if shape != "chain" and dying.random() < DYING:
        kill_hosts(web, dying)
    delay_s = rng.choice((0.0, 0.1)) if shape == "chain" else rng.choice((0.0, 0.3, 1.0, 1.0, 2.0))
    machines = [f"m{n}" for n in range(rng.randint(1, 3))]
    starts = [
        (rng.choice((0.0, 0.0, 0.5, 3.0)), rng.choice(machines), rng.random() < 0.7) for _ in range(rng.randint(1, 4))
    ]
    starts[0] = (0.0, *starts[0][1:])
    drawn = rng.choice(DRAWN)
    faults = MIXES[mix or drawn]
    busy_s = max(6.0, min(45.0, web.work_s(delay_s)))
    count = rng.randint(2, 9) if faults else 0
    schedule = sorted((rng.uniform(0.3, busy_s), _drawn(rng, faults)) for _ in range(count))
    budgeting = rng_of(seed, "budgets")
    return Plan(
        seed=seed,
        shape=shape,
        settings=_settings(rng, partitions, delay_s, "any" if shape == "chain" else "domain"),
        web=web,
        starts=tuple(starts),
        climate=_climate(rng, is_quiet=faults in (NOTHING, PLANNED), shape=shape),
        faults=tuple(schedule),
        heal_at_s=max((at for at, _ in schedule), default=0.0) + rng.uniform(1.0, 12.0),
        disk_s=rng.choice((0.002, 0.01, 0.05)),
        overflows=rng_of(seed, "overflow").random() < OVERFLOWING,
        held=limits_of(rng_of(seed, "held")),
        budgets=budgeting.choice(BUDGETS) if budgeting.random() < BUDGETED else {},
        raised_at_s=budgeting.uniform(0.5, busy_s),
        scheduled=_scheduled(rng_of(seed, "scheduled"), web.seeds),
    )


def _scheduled(rng: random.Random, seeds: list[str]) -> dict[str, float]:
    if rng.random() >= SCHEDULED:
        return {}
    return {url: rng.uniform(0.2, SCHEDULED_MAX_S) for url in seeds if rng.random() < 0.5}


def _drawn(rng: random.Random, mix: dict[str, int]) -> str:
    return rng.choices(list(mix), list(mix.values()))[0]


def _climate(rng: random.Random, *, is_quiet: bool, shape: str) -> Climate:
    if shape == "chain":  # the readers of counters take their time: children travel behind their backs
        return Climate(scattered=0.9, gap_max_s=rng.choice((0.02, 0.1, 0.5)))
    scattered = rng.choice((0.0, 0.3))
    if is_quiet or rng.random() < 0.5:
        return Climate(scattered=scattered)
    worst = rng.choice((0.005, 0.02))
    return Climate(
        lost_requests=worst * rng.random(),
        lost_replies=worst * rng.random(),
        late_requests=worst * rng.random(),
        late_replies=worst * rng.random(),
        late_max_s=rng.choice((3.0, 6.0, 15.0)),
        scattered=scattered,
    )


def _settings(rng: random.Random, partitions: int, delay_s: float, scope: str) -> Settings:
    options: dict[str, Any] = {
        "crawl.partitions": partitions,
        "scope.mode": scope,
        "politeness.delay_s": delay_s,
        "politeness.concurrency_per_address": 64,
        "fetch.concurrency": rng.choice((2, 8, 8)),
        "internals.frontier.claim_ahead_s": rng.choice((2.0, 2.0, 20.0)),
        "fetch.total_timeout_s": 15.0,
        "frontier.redis": "redis://simulated",
        "internals.frontier.visibility_timeout_s": 40.0,
        "internals.archive.room_s": 2.0,
        "frontier.claim_urls_max": rng.choice((4, 64)),
        "frontier.recent_urls": rng.choice((8, 1000)),
        "internals.frontier.log_entries_max": rng.choice((3, 10_000)),
        "handlers.app": "simulated",
        "retry.attempts": 6,
        "retry.backoff_s": 0.5,
        "retry.backoff_factor": 1.5,
        **{f"retry.{kind}.backoff_s": 0.5 for kind in ("dns_error", "connect")},
        "hosts.failures": 3,
        "internals.hosts.probe_s": 2.0,
        "hosts.give_up_s": GIVE_UP_S,
    }
    return load(environment={}, options=options)
