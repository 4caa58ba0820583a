"""One run: a seed becomes a plan, the plan a crawl with faults, and the judge reports what was broken."""

import asyncio
import contextlib
import hashlib
import logging
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.engine.client import Call
from crawler.model import REQUISITE, FailureKind
from crawler.rules.poison import GIVEN_UP_AT
from crawler.rules.urls import host_of
from tests.simulation.audits import Auditor
from tests.simulation.browsing import Internet, Request
from tests.simulation.census import Census, exported
from tests.simulation.clocks import EPOCH_NS, virtual_time
from tests.simulation.disk import Disks, mounted
from tests.simulation.disturbance import Disturbances
from tests.simulation.engine import Server
from tests.simulation.faults import CALLS, OF_JOBS, Faults
from tests.simulation.holding import HELD_MAX_S, holding
from tests.simulation.job_census import JobCensus
from tests.simulation.job_course import JobCourse
from tests.simulation.judge import LEAVE_S, Judge
from tests.simulation.loop import NS, PROCESS, Process, StuckError, VirtualLoop
from tests.simulation.machines import Fleet, Life, replaced, simulated_doors
from tests.simulation.overflow import FOLDER, USED, Files, overflowing, with_files
from tests.simulation.plan import GIVE_UP_S, Plan, plan_of, rng_of
from tests.simulation.weather import CALM, Weather
from tests.simulation.web import as_requisite
from tests.simulation.wire import RealEngine

TAIL = 400  # lines of the trace that a failure shows
TMPFS = Path("/dev/shm")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one run came to. `digest` is that of the whole trace, `outside` of what others see: requests and commits
    with their times, and how URLs ended.
    """

    seed: int
    violations: list[str]
    stats: Counter[str]
    faults: Counter[str]
    takeover_max_s: float
    virtual_s: float
    steps: int
    digest: str
    outside: str
    tail: list[str]


class Simulation:
    """The parts of one run."""

    def __init__(self, plan: Plan, real: RealEngine, folder: Path, say: Callable[[str], None]) -> None:
        seed = plan.seed
        self.plan, self.folder, self._say = plan, folder, say
        disk_rng, net_rng = rng_of(seed, "threads"), rng_of(seed, "web")
        self.loop = VirtualLoop(thread_delay_s=lambda: plan.disk_s * (0.5 + disk_rng.random()))
        self.weather = Weather(rng_of(seed, "weather"), CALM)
        self.server = Server(real, self.loop, self.weather)
        if plan.shards:
            self.server.split(plan.shards)
        self.disturbances = Disturbances(self.loop)
        filed = with_files(plan.settings, folder) if plan.overflows else plan.settings
        self._without_budgets = replaced(filed, budget=dict.fromkeys(plan.budgets, 0))
        s = self.settings = replaced(self._without_budgets, budget=dict(plan.budgets))
        self.server.memory = USED if plan.overflows else self.server.memory
        self.judge = Judge(
            self.loop, plan.web, s.politeness.delay_s, s.crawl.partitions, self.disturbances, self.trace,
            session_of=lambda process: process.session if isinstance(process, Life) else "",
        )  # fmt: skip
        self.judge.holds_pages = bool(plan.held)
        self.disks = Disks(self.loop, rng_of(seed, "disks"))
        internet = Internet(plan.web, self.loop, connect_s=lambda: 0.001 + 0.02 * net_rng.random())
        internet.on_request, internet.on_cut_off = self._requested, self.judge.cut_off
        self.fleet = Fleet(self.loop, self.server, internet, self.disks, folder, s, rng_of(seed, "lives"), self._event)
        files = Files(folder)
        self.fleet.files_of = files.of
        self.census = Census(real, s.crawl.partitions, files)
        self.auditor = Auditor(
            self.server, s.crawl.partitions, rng_of(seed, "audits"), self.judge.blame, has_jobs=bool(plan.acts)
        )
        calls = (*CALLS, *OF_JOBS) if plan.acts else CALLS
        self.faults = Faults(
            self.loop, self.server, self.fleet, self.disks, self.judge, self.census, rng_of(seed, "faults"), calls
        )
        self.jobs: JobCourse | None = None
        if plan.acts:
            self._have_jobs(JobCensus(real, s.crawl.partitions, self.census))
        self.server.observe = self._observe
        self.judge.is_witnessed, self.judge.on_acquired = self._is_witnessed, self._acquired
        self.weather.on_mishap = self.disturbances.happened
        self._unbudgeted: set[Life] = set()
        self._unbudgeted_ns = 0  # when we heard of one of them last
        self._leaving: dict[Life, tuple[int, list[int]]] = {}
        self._proved_ns: dict[str, int] = {}  # by name of a life, when it had proved the end of the crawl
        self._digest, self._outside = hashlib.sha256(), hashlib.sha256()
        self.tail: deque[str] = deque(maxlen=TAIL)

    def _have_jobs(self, census: JobCensus) -> None:
        rng = rng_of(self.plan.seed, "person")
        jobs = JobCourse(self.plan, self.loop, self.server, self.fleet, self.judge, census, rng, self.trace)
        self.jobs, self.judge.has_jobs, self.fleet.until_finished = jobs, True, False
        self.judge.on_rolled_back, self.faults.on_engine_clock = jobs.judge.rolled_back, jobs.judge.engine_stepped

    def _observe(self, process: Process, call: Call | tuple[Any, ...], reply: Any) -> None:
        self.judge.executed(process, call, reply)
        if isinstance(call, tuple) and call[0] == "HSET" and call[2] == "ended":
            self._proved_ns[process.name] = self.loop.now_ns
        if self.jobs is not None and isinstance(call, Call):
            self.jobs.judge.executed(process, call, reply)

    def trace(self, line: str) -> None:
        text = f"{self.loop.now_ns / NS:10.4f} {line}"
        self._digest.update(text.encode())
        if " GET " in line or line.startswith("  committed "):
            self._outside.update(text.encode())
        self.tail.append(text)
        self._say(text)

    def _acquired(self, session: str) -> None:
        life = self.fleet.sessions.get(session)
        if life is not None and life.joined_ns < 0:
            life.joined_ns = self.loop.now_ns

    def _is_witnessed(self, since_ns: int) -> bool:
        return any(0 <= life.joined_ns < since_ns and not life.is_paused for life in self.fleet.up)

    def _requested(self, request: Request) -> None:
        self.judge.requested(request)

    def _event(self, event: str, life: Life) -> None:
        if event in ("start", "finished", "leave"):
            self.disturbances.moved()
        self.trace(f"{life.name} {event} {life.ended if event == 'failed' else ''}")
        if event == "start":
            self.judge.stats["sessions"] += 1
            if self.fleet.settings is self._without_budgets:
                self._unbudgeted.add(life)
        if life in self._unbudgeted:
            self._unbudgeted_ns = self.loop.now_ns
        is_excused = self._is_outspent(life) or self._is_undone(life)
        if event == "finished" and not is_excused and (left := self.census.pending()):
            self.judge.blame("I12", f"{life.name} reports that the crawl is finished; {left} URLs are pending")
        elif event == "failed":
            when = "starting" if life.joined_ns < 0 else "running"
            self.judge.stats[f"ended while {when} by {life.ended.partition(':')[0]}"] += 1
            self.disturbances.happened("failed", life)
        elif event == "leave":
            self.judge.stats["left"] += 1
            self._leaving[life] = (self.loop.now_ns, self.judge.owned_by(life.session))
        elif event == "stopped" and life in self._leaving:
            self._watch_leaver(life)

    def _is_outspent(self, life: Life) -> bool:
        """Is there, or was there a moment ago, an instance without its budgets, which released what was deferred?"""
        if life in self._unbudgeted:
            return False
        was_there = self._unbudgeted_ns > 0 and self.loop.now_ns - self._unbudgeted_ns < LEAVE_S * NS
        return was_there or any(other in self._unbudgeted for other in self.fleet.up)

    def _is_undone(self, life: Life) -> bool:
        """Had it proved the end when the engine lost what was before? It was leaving then, and could not know."""
        return 0 < self._proved_ns.get(life.name, 0) < self.judge.rolled_back_ns

    def _watch_leaver(self, life: Life) -> None:
        """Its partitions must have other owners soon after its last request was answered."""
        left_ns, partitions = self._leaving.pop(life)
        last_ns = max(left_ns, self.fleet.internet.answered_ns.get(life, 0))
        due_s = last_ns / NS + LEAVE_S
        if partitions:
            wait_s = max(0.0, due_s - self.loop.time())
            self.loop.after(wait_s, self.judge.check_handed_over, partitions, left_ns, due_s, life.name)

    def _look_closely(self) -> None:
        """I3 at a moment of no special meaning."""
        if self.server.is_up:
            for fault in self.census.faults():
                self.judge.blame("I3", fault)
            if self.jobs is not None:
                self.jobs.look()

    # --- the course of a run ---

    async def main(self) -> None:
        """Seed, start, let the faults happen, heal, and wait for the end."""
        seeder = Process("seeder")
        await self.loop.start(seeder, self._seed())
        self.loop.start(Process("auditor"), self.auditor.watch())
        self.weather.climate = self.plan.climate
        for at_s, machine, shows_death in self.plan.starts:
            self.loop.after(at_s, self.fleet.start, self.fleet.add(machine, shows_death=shows_death))
        for at_s, kind in self.plan.faults:
            self.loop.after(at_s, self._strike, kind)
        if self.plan.budgets:
            self.loop.after(self.plan.raised_at_s, self._raise)
        if self.jobs is not None:
            self.jobs.begin()
        looks = rng_of(self.plan.seed, "looks")
        for _ in range(LOOKS):
            self.loop.after(looks.uniform(0.5, self.plan.heal_at_s + 10.0), self._look_closely)
        healed_s = self.loop.time() + self.plan.heal_at_s
        last_start_s = max(at for at, _, _ in self.plan.starts)
        await asyncio.sleep(last_start_s + 0.01)
        while self.loop.time() < healed_s and not self._is_over():
            await asyncio.sleep(0.25)
        self._heal()
        if self.jobs is not None and not (await self.jobs.wind_up(self._is_idle) and await self._all_leave()):
            return
        if not await self._ends():
            return
        self.judge.stats["deferred at the end"] += self.census.deferred()
        if self.census.deferred():  # by instances with budgets; instances that start now release them
            self._raise()
            self.fleet.start(self.fleet.nodes[0])
            if not await self._ends():
                return
            if left := self.census.deferred():
                self.judge.blame("I12", f"finished without budgets, and {left} URLs are deferred")
        self._close()

    def _is_idle(self) -> bool:
        """Is there nothing to fetch, and somebody who would?"""
        if not self.fleet.up:
            self.fleet.start(self.fleet.nodes[0])
        return not self.census.left()

    async def _all_leave(self) -> bool:
        """Instances that wait for work end when they are told to; False if they do not."""
        limit_s = self.loop.time() + 60.0
        while self.fleet.up:
            for life in self.fleet.up:
                self.fleet.leave(life)
            if self.loop.time() > limit_s:
                self.judge.blame("I12", f"do not leave: {[life.name for life in self.fleet.up]}")
                return False
            await asyncio.sleep(1.0)
        return True

    async def _ends(self) -> bool:
        """Wait until the crawl has ended; False if it does not."""
        limit_s = self.loop.time() + 60.0 + 2 * self.plan.web.work_s(self.plan.settings.politeness.delay_s)
        limit_s += self.plan.settings.frontier.visibility_timeout_s + (HELD_MAX_S if self.plan.held else 0.0)
        while not self._is_over():
            if self.loop.time() > limit_s:
                self.judge.blame("I12", f"not at its end; up: {[life.name for life in self.fleet.up]}; {self._stuck()}")
                return False
            if not self.fleet.up:  # the last one had been told to leave
                self.fleet.start(self.fleet.nodes[0])
            await asyncio.sleep(0.25)
        return True

    def _raise(self) -> None:
        self.trace("--- instances that start now have no budgets")
        self.fleet.settings = self._without_budgets

    async def _seed(self) -> None:
        life = Life(self.fleet.add("seeding"), 0, rng_of(self.plan.seed, "seeder"))
        self.fleet.nodes.remove(life.node)
        PROCESS.set(life)
        settings = replaced(self.settings, archive={"dir": str(self.folder / life.node.machine)})
        async with open_crawl(settings, create=True) as crawl:
            at_s = {url: EPOCH_NS / NS + after_s for url, after_s in self.plan.scheduled.items()}
            seeds = [GivenUrl("seed", url, visible_at=at_s.get(url, 0.0)) for url in self.plan.web.seeds]
            await make_seeder(crawl).add_all(seeds)
            self.judge.scheduled = at_s

    def _strike(self, kind: str) -> None:
        self.trace(f"--- {kind}")
        self.faults.strike(kind)

    def _heal(self) -> None:
        self.trace("--- all faults end")
        self.weather.climate = CALM
        self.faults.heal()
        for node in self.fleet.nodes:
            if node.comes_back and not node.is_up:
                self.fleet.start(node)
        if not self.fleet.up:
            self.fleet.start(self.fleet.nodes[0])

    def _stuck(self) -> str:
        """The owners of partitions in which something is left."""
        names = {session: life.name for session, life in self.fleet.sessions.items()}
        left = self.census.left()
        return ", ".join(f"partition {p}: {n} left, leased to {names.get(s, 'nobody')}" for p, (n, s) in left.items())

    def _is_over(self) -> bool:
        return not self.fleet.up and not self.census.left()

    # --- the verdict ---

    def _close(self) -> None:
        judge = self.judge
        for fault in self.census.faults():
            judge.blame("I3", fault)
        letters = self.census.dead_letters()
        in_doubt = {url for url, reason in letters.items() if reason == FailureKind.OUTCOME_UNKNOWN}
        judge.stats["posts in doubt"] += len(in_doubt)
        others = (url for url in letters if self._is_poison_url(url) or self._is_late(url))
        dead_too = frozenset({*others, *(in_doubt if self._may_be_in_doubt else ())})
        truth = self.plan.web.truth(dead_too)
        shown, may_be = self.plan.web.shown(truth.committed, dead_too)
        truth.committed.update(shown)
        truth.dead |= {name for name in dead_too if name.endswith(REQUISITE)}
        committed = {
            e.url: e.status
            for e in judge.endings.values()
            if e.how == "committed" and not e.run and e.url not in may_be
        }
        self._compare("committed", committed, truth.committed)
        self._compare("dead", dict.fromkeys(letters, 0), dict.fromkeys(truth.dead, 0))
        twice = [key for key, n in judge.commits.items() if n > 1 and not judge.rolled_back_ns]
        if twice:
            judge.blame("I4", f"committed twice: {twice}")
        folders = sorted(path for path in self.folder.iterdir() if path.name not in ("seeding", FOLDER))
        entries, faults = exported(folders)
        for fault in faults:
            judge.blame("archive", fault)
        named = {as_requisite(e.url) if e.is_requisite else e.url: e.status for e in entries.values() if not e.run}
        found = {name: status for name, status in named.items() if name not in may_be}
        self._compare("exported", found, truth.committed)
        if self.jobs is not None:
            self.jobs.close(entries)
        judge.stats["pages"] = len(committed)
        if self.plan.is_planned and judge.stats["duplicates"]:
            judge.blame("duplicate", f"{judge.stats['duplicates']} although nothing happened but joins and leaves")

    def _is_poison_url(self, url: str) -> bool:
        """The rule against poison URLs may hit an innocent page that was in progress at three crashes."""
        return self.judge.deaths[url.partition(" ")[0]] >= GIVEN_UP_AT

    @property
    def _may_be_in_doubt(self) -> bool:
        """Did anything happen that may keep an answer from its commit?"""
        plan = self.plan
        return bool(plan.faults or plan.held) or not plan.climate.is_calm

    def _is_late(self, url: str) -> bool:
        """A host that comes back is given up when nobody asked it often enough in time, as while all are paused. What
        an attempt has found may be noted in the next turn of its site.
        """
        web = self.plan.web
        dead, site = web.dead.get(host_of(url)), web.site_of(url)
        if dead is None or site is None:
            return False
        return dead.silent_s + (web.delay_of(site) or 0) >= GIVE_UP_S - 1

    def _compare(self, what: str, found: dict[str, int], wanted: dict[str, int]) -> None:
        self._outside.update(repr((what, sorted(found.items()))).encode())
        if lost := sorted(set(wanted) - set(found)):
            self.judge.blame("I3", f"not {what}: {lost[:5]} ({len(lost)})")
        if strange := sorted(set(found) - set(wanted)):
            self.judge.blame("I3", f"{what} for no reason: {strange[:5]} ({len(strange)})")
        if other := [u for u in wanted if u in found and found[u] != wanted[u]]:
            self.judge.blame("I3", f"{what} with another status: {other[:5]}")

    def outcome(self) -> Outcome:
        return Outcome(
            seed=self.plan.seed, violations=self.judge.violations, stats=self.judge.stats,
            faults=self.disturbances.counts, takeover_max_s=self.judge.takeover_max_s, virtual_s=self.loop.time(),
            steps=self.loop.steps, digest=self._digest.hexdigest(), outside=self._outside.hexdigest(),
            tail=list(self.tail),
        )  # fmt: skip


LOOKS = 4  # at all states of all URLs, during a run


def simulate(
    seed: int, real: RealEngine, *, say: Callable[[str], None] = lambda _: None, plan: Plan | None = None
) -> Outcome:
    """Run one seed on this engine, which is emptied before."""
    plan = plan or plan_of(seed)
    with overflowing() if plan.overflows else contextlib.nullcontext(), holding(plan.held):
        return _simulate(plan, real, say)


def _simulate(plan: Plan, real: RealEngine, say: Callable[[str], None]) -> Outcome:
    real.reset()
    parent = TMPFS if TMPFS.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=parent))
    logging.disable(logging.CRITICAL)
    try:
        simulation = Simulation(plan, real, folder, say)
        _run(simulation)
        return simulation.outcome()
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(folder, ignore_errors=True)


def _run(simulation: Simulation) -> None:
    loop, judge = simulation.loop, simulation.judge
    with (
        virtual_time(loop),
        mounted(simulation.disks),
        simulated_doors(simulation.server, simulation.fleet.internet, simulation.disks),
    ):
        try:
            loop.run_until_complete(simulation.main())
        except StuckError as error:
            judge.blame("I12", str(error))
        for error in simulation.fleet.unexpected:
            judge.blame("program", repr(error))
        for context in loop.errors:
            judge.blame("program", f"{context.get('message')}: {context.get('exception')!r}")

        loop.bury()
