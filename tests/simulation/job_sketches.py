"""Which jobs a run has, and what a person does with them and when. Drawn from a generator, and from nothing else."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from crawler.rules.cron import Schedule
from crawler.rules.job_runs import RunSpec
from crawler.rules.jobs import JobSpec
from tests.simulation.clocks import EPOCH_NS
from tests.simulation.loop import NS
from tests.simulation.web import Kind, Web

SPAN_S = 25.0  # in which people change jobs
SLOW_S = 2  # sites with a longer Crawl-delay have no jobs: their queues would never be empty
LATER = {"edit": 4, "pause": 2, "resume": 3, "run": 3, "retry": 3, "remove": 1}
CATCHUP_WINDOW_S = 20.0  # after a clock was set an hour ahead and back, not thousands of runs
CLOCKS = ("wall clock jump", "engine clock step", "all clocks step")


@dataclass(frozen=True, kw_only=True)
class Act:
    """What a person does with a job. `spec`: of `add` and `edit`."""

    at_s: float
    kind: str
    job: str
    spec: JobSpec | None = None

    def spec_at(self, now_s: float) -> JobSpec:
        """The definition; an interval counts from when it is given."""
        assert self.spec is not None
        schedule = self.spec.schedule
        return replace(self.spec, schedule=replace(schedule, anchor_s=int(now_s))) if schedule.every_s else self.spec


def acts_of(rng: random.Random, web: Web, shape: str) -> tuple[Act, ...]:
    """One to four jobs, and what becomes of them."""
    acts: list[Act] = []
    for name in (f"job{n}" for n in range(rng.randint(1, 4))):
        begun_s = rng.choice((0.0, 0.0, rng.uniform(0.5, 10.0)))
        acts.append(Act(at_s=begun_s, kind="add", job=name, spec=_spec(rng, web, shape)))
        for at_s in sorted(rng.uniform(begun_s + 0.5, begun_s + SPAN_S) for _ in range(rng.randint(0, 8))):
            kind = rng.choices(list(LATER), list(LATER.values()))[0]
            acts.append(Act(at_s=at_s, kind=kind, job=name, spec=_spec(rng, web, shape) if kind == "edit" else None))
            if kind == "remove":
                again_s = at_s + rng.choice((0.1, 2.0))
                acts.append(Act(at_s=again_s, kind="add", job=name, spec=_spec(rng, web, shape)))
                if rng.random() < 0.5:  # runs of one second
                    acts += [Act(at_s=run_s, kind="run", job=name) for run_s in (at_s - 0.3, again_s + 0.1)]
    return tuple(sorted(acts, key=lambda act: act.at_s))


def clock_steps_of(rng: random.Random, until_s: float) -> list[tuple[float, str]]:
    """Steps of wall clocks, an hour or a day either way."""
    return [(rng.uniform(0.5, until_s), rng.choice(CLOCKS)) for _ in range(rng.randint(0, 3))]


def _spec(rng: random.Random, web: Web, shape: str) -> JobSpec:
    schedule, can_pile_up = _schedule(rng)
    seeds, run = _chains(rng, web) if shape == "chain" else _pages(rng, web)
    return JobSpec(
        schedule=schedule, seeds=seeds, run=run,
        overlap=rng.choice(("skip", "queue") if can_pile_up or shape == "chain" else ("skip", "queue", "allow")),
        catchup=rng.choice(("none", "latest", "all")), catchup_window_s=CATCHUP_WINDOW_S,
        retries=rng.choice((0, 0, 1, 2)), retry_delay_s=rng.choice((0.5, 3.0, (0.5, 2.0))),
    )  # fmt: skip


def _schedule(rng: random.Random) -> tuple[Schedule, bool]:
    """And whether runs would pile up if they could."""
    options: Sequence[tuple[int, dict[str, Any]]] = (
        (6, {"every_s": rng.choice((1, 2, 3, 5, 8))}),
        (2, {"cron": rng.choice(("* * * * *", "*/2 * * * *"))}),
        (1, {"at_s": EPOCH_NS // NS + rng.randint(2, 30)}),
    )
    (kind,) = rng.choices([option for _, option in options], [weight for weight, _ in options])
    jitter_s = rng.choice((0.0, 0.0, 0.7))
    return Schedule(**kind, jitter_s=jitter_s), 0 < kind.get("every_s", 0) < 5


def _chains(rng: random.Random, web: Web) -> tuple[tuple[str, ...], RunSpec]:
    return (rng.choice(web.seeds),), RunSpec(priority=rng.choice((0.0, 5.0)))


def _pages(rng: random.Random, web: Web) -> tuple[tuple[str, ...], RunSpec]:
    """Seeds and limits whose outcome does not depend on the order in which pages come."""
    quick = [u for u in web.urls.values() if max(0, web.delay_of(web.sites[u.queue]) or 0) <= SLOW_S and u.seconds < 1]
    plain = [u.url for u in quick if u.url.endswith("/p0")] or web.seeds
    luck = rng.random()
    if luck < 0.15 and (bad := [u.url for u in quick if u.kind in (Kind.BROKEN, Kind.HIDDEN, Kind.MISSING)]):
        return (rng.choice(bad),), RunSpec(depth=0)
    if luck < 0.5:
        return tuple(rng.sample(plain, min(len(plain), rng.randint(1, 4)))), RunSpec(depth=0)
    if luck < 0.85:
        limits = rng.choice(({}, {}, {"pages": 2}, {"urls": 3}))
        return (rng.choice(plain),), RunSpec(depth=1, scope=rng.choice(("", "host")), **limits)
    return (rng.choice(plain),), RunSpec(scope="host")
