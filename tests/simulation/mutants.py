"""The crawler with one of its rules left out: what the simulation must notice.

Each change is a context in which runs are made.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from crawler.archive.items import ItemWriter
from crawler.errors import EngineError
from crawler.frontier import scripts
from crawler.frontier.arguments import with_positions
from crawler.frontier.leases import Acquired, Leases
from crawler.frontier.owner import Frontier, Settlement
from crawler.frontier.runs import Runs
from crawler.hosts.robots_gate import RobotsGate
from crawler.instance import finish
from crawler.instance.raised_budgets import RaisedBudgets
from crawler.instance.rebalance import PartitionRebalance
from crawler.instance.retelling import Retelling
from crawler.instance.usage import BudgetUsage
from crawler.jobs import runs
from crawler.jobs.clock_check import ClockCheck
from crawler.membership.failover import Failover
from crawler.membership.heartbeat import Heartbeat, SessionLiveness
from crawler.routing.runs_known import RunBook
from crawler.rules import job_plan
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.worker import claim
from crawler.worker.archive import ArchiveStage
from crawler.worker.before_page import RobotsTurns
from crawler.worker.outcomes import Committable
from crawler.worker.route import RouteStage
from tests.simulation import overflow
from tests.simulation.disk import Disks
from tests.simulation.holding import Limits
from tests.simulation.plan import SLOW_CALLS_S, plan_of, rng_of, with_failovers
from tests.simulation.run import Outcome, simulate
from tests.simulation.web import Kind
from tests.simulation.wire import RealEngine


@contextlib.contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _scripts_without(wanted: str, instead: str) -> Iterator[None]:
    """Replace a text in the Lua scripts; at least one must contain it."""
    before = scripts._read
    names = (*scripts.SHARED, *scripts.NAMES)
    assert any(wanted in before(name) for name in names), f"the scripts have changed: {wanted}"
    scripts.forget()
    try:
        with _patched(scripts, "_read", lambda name: before(name).replace(wanted, instead)):
            yield
    finally:
        scripts.forget()


def no_hold() -> contextlib.AbstractContextManager[None]:
    """A takeover does not wait for what the dead session may have fetched."""
    return _scripts_without("call('HSET', ctx.meta_key, 'hold', clock)", "")


def no_fence() -> contextlib.AbstractContextManager[None]:
    """Writes pass whatever lease they name."""
    return _scripts_without("lease.session ~= session or lease.epoch ~= args[2]", "false")


def no_note() -> contextlib.AbstractContextManager[None]:
    """A claim does not tell that its POST was sent."""
    return _scripts_without(
        "pack_record(score, row, domain, Sent.noted(member))", "pack_record(score, row, domain, member)"
    )


def no_token() -> contextlib.AbstractContextManager[None]:
    """An ack passes whatever delivery it names."""
    return _scripts_without("if claimed[i] and not is_ended[token] and", "if not is_ended[token] or")


def ack_before_sync() -> contextlib.AbstractContextManager[None]:
    """Pages are acked while their records are still on the way to the disk."""

    async def store(self: ArchiveStage, group: Any) -> Any:
        return [self._place(outcome) for outcome in group]

    return _patched(ArchiveStage, "store", store)


def items_not_synced() -> contextlib.AbstractContextManager[None]:
    """Pages are acked while their items are only in memory."""
    return _patched(ItemWriter, "sync", lambda self: None)


def drain_before_index() -> contextlib.AbstractContextManager[None]:
    """The engine forgets commits before they are in an index on disk."""

    async def unwritten(self: ArchiveStage) -> None:
        for partition, entries in self._work.backlog.undrained.items():
            self._work.backlog.indexed[partition] += entries
        self._work.backlog.undrained.clear()

    return _patched(ArchiveStage, "_write_index", unwritten)


def no_lease_loss() -> contextlib.AbstractContextManager[None]:
    """A beat that was answered too late is as good as any."""
    return _patched(Heartbeat, "_lose_all_leases", lambda self, *, removed: None)


def no_self_stop() -> contextlib.AbstractContextManager[None]:
    """Requests are started however long ago the last beat was."""
    stack = contextlib.ExitStack()
    stack.enter_context(_patched(SessionLiveness, "may_start", lambda self: self.sent_ms is not None))
    stack.enter_context(_patched(SessionLiveness, "must_abort", lambda self: False))
    return stack


def one_pass() -> contextlib.AbstractContextManager[None]:
    """One quiet reading of the counters is taken for the end."""
    return _patched(finish, "is_finished", lambda passes: bool(passes) and passes[-1].is_quiet)


def anchor_at_send() -> contextlib.AbstractContextManager[None]:
    """The partition clock is anchored when the acquire is sent, not when its reply arrives."""
    acquire = Leases.acquire

    async def early(self: Leases, *arguments: Any) -> Any:
        sent_ms = monotonic_ms()
        replies = await acquire(self, *arguments)
        late_ms = monotonic_ms() - sent_ms
        return [_ahead(reply, late_ms) for reply in replies]

    return _patched(Leases, "acquire", early)


def _ahead(reply: Any, by_ms: int) -> Any:
    if not isinstance(reply, Acquired):
        return reply
    fields = {name: getattr(reply, name) for name in Acquired.__slots__}
    return Acquired(**(fields | {"clock_ms": reply.clock_ms + by_ms}))


def no_drain() -> contextlib.AbstractContextManager[None]:
    """A partition is handed over while its pages are being fetched."""
    return _patched(PartitionRebalance, "is_idle", lambda self, partition: True)


def clock_not_stored() -> contextlib.AbstractContextManager[None]:
    """What a queue must wait is known to its owner only."""
    stack = contextlib.ExitStack()
    pack = Frontier.pack_ack

    def packed(self: Frontier, a: Any) -> bytes:
        return pack(
            self, msgspec.structs.replace(a, settlement=Settlement(next_fetch_ms=0, delay_ms=a.settlement.delay_ms))
        )

    stack.enter_context(_patched(Frontier, "pack_ack", packed))
    return stack


def delay_not_stored() -> contextlib.AbstractContextManager[None]:
    """The delay that robots.txt asks for is known to its reader only."""

    async def share(self: RobotsGate, *_: Any, **__: Any) -> bool:
        return True

    async def learn(self: RobotsTurns, turn: Any, entry: Any) -> None:
        turn.slot.delay_ms = self._gate.delay_of(turn.claim, entry)

    stack = contextlib.ExitStack()
    stack.enter_context(_patched(RobotsGate, "share", share))
    stack.enter_context(_patched(RobotsTurns, "learn_delay", learn))
    return stack


def no_recovery() -> contextlib.AbstractContextManager[None]:
    """After a restart of the engine all that was known of it is still believed."""
    return _patched(Failover, "noticed", lambda self, change: None)


def files_not_synced() -> contextlib.AbstractContextManager[None]:
    """The engine is told of spilled blocks whose file a power cut may still take."""
    return _patched(Disks, "sync_data", lambda self, descriptor: None)


def files_go_at_once() -> contextlib.AbstractContextManager[None]:
    """A file goes as soon as the engine does not name it any more."""
    stack = contextlib.ExitStack()
    stack.enter_context(_patched(overflow, "KEEP_MS", 0))
    stack.enter_context(_patched(overflow, "SWEEP_MS", 0))
    return stack


def ends_with_room() -> contextlib.AbstractContextManager[None]:
    """At the end, room for deferred URLs is not checked."""

    async def has_more(self: BudgetUsage) -> bool:
        return False

    return _patched(BudgetUsage, "has_more", has_more)


def moves_not_marked() -> contextlib.AbstractContextManager[None]:
    """A count of a partition misses that URLs moved back to their queues, or to files, meanwhile."""
    return _scripts_without("count(ctx.total, 'moves', 1)", "")


def nothing_is_raised() -> contextlib.AbstractContextManager[None]:
    """An instance with larger budgets of domains does not release what smaller ones deferred."""

    async def release(self: RaisedBudgets, partitions: Any) -> int:
        return 0

    return _patched(RaisedBudgets, "release", release)


def shown_early() -> contextlib.AbstractContextManager[None]:
    """Scheduled URLs are visible two seconds before their time."""
    return _patched(claim, "wall_s", lambda: wall_s() + 2.0)


def job_unchecked() -> contextlib.AbstractContextManager[None]:
    """A change of a job is stored whoever changed it meanwhile."""
    return _scripts_without(with_positions("if seen ~= one[JobChange.seen] then return {'CHANGED'} end"), "")


def job_unfenced() -> contextlib.AbstractContextManager[None]:
    """Who has lost a partition still decides its jobs."""
    return _scripts_without("  if not fence(ARGV) then return {'FENCED'} end\nelse\n", "else\n")


def run_of_one_pass() -> contextlib.AbstractContextManager[None]:
    """A run has ended when one look finds nothing pending."""
    return _patched(runs, "is_run_finished", lambda passes: passes[-1].is_quiet)


def touch_after_add() -> contextlib.AbstractContextManager[None]:
    """A partition gets URLs of a run, and only then it is noted that it has some."""
    touch = Runs.touch

    async def later(self: Runs, *arguments: Any) -> None:
        await asyncio.sleep(0.3)
        with contextlib.suppress(EngineError):
            await touch(self, *arguments)

    async def at_once(self: Runs, *arguments: Any) -> bool:
        tasks.append(asyncio.ensure_future(later(self, *arguments)))
        return True

    tasks: list[Any] = []
    return _patched(Runs, "touch", at_once)


def links_untouched() -> contextlib.AbstractContextManager[None]:
    """Links of runs are added to partitions that were not noted as touched."""

    async def touch_all(self: RunBook, partitions: Mapping[str, Any]) -> set[str]:
        return await before(self, dict.fromkeys(partitions, ()))

    before = RunBook.touch_all
    return _patched(RunBook, "touch_all", touch_all)


def touched_is_remembered() -> contextlib.AbstractContextManager[None]:
    """After a restart of the engine, what was noted as touched is believed to be there."""
    return _patched(RunBook, "forget", lambda self: None)


def run_of_crawl() -> contextlib.AbstractContextManager[None]:
    """Links of a run's page belong to the crawl."""
    return _patched(RunBook, "router_of", lambda self, run: self._router)


def no_tombstone() -> contextlib.AbstractContextManager[None]:
    """What was long on its way is added to runs that were closed."""
    return _scripts_without("call('ZADD', closed, meta().clock, run)", "")


def miss_undecided() -> contextlib.AbstractContextManager[None]:
    """A range of missed times is written, and its last one may be decided again."""
    miss = job_plan._Draft._miss

    def stay(self: Any, *arguments: Any) -> None:
        before = self._done_to
        miss(self, *arguments)
        self._done_to = max(before, self._done_to - 1)

    return _patched(job_plan._Draft, "_miss", stay)


def clock_unchecked() -> contextlib.AbstractContextManager[None]:
    """Jobs are decided by whatever an instance takes for the time."""
    return _patched(ClockCheck, "is_right", property(lambda _: True))


def held_links_left_out() -> contextlib.AbstractContextManager[None]:
    """A page is acked without the links that its domain may not introduce now."""
    grant = RouteStage._grant

    def grant_and_forget(self: RouteStage, outcome: Committable, *rest: Any) -> Any:
        granted = grant(self, outcome, *rest)
        outcome.left = []
        return granted

    return _patched(RouteStage, "_grant", grant_and_forget)


def nothing_told_again() -> contextlib.AbstractContextManager[None]:
    """What a shard lost of what others sent is not sent again."""
    return _patched(Retelling, "_may_be_lost", lambda *_: False)


def dead_not_told() -> contextlib.AbstractContextManager[None]:
    """The same of what a session sent that died."""
    return _patched(Retelling, "adopt", lambda *_: None)


def ends_untold() -> contextlib.AbstractContextManager[None]:
    """A crawl ends although a shard may lack what somebody sent."""
    return _patched(finish.FinishWatcher, "_is_untold", lambda *_: False)


async def _at_once(*_: Any) -> None:
    pass


def leaves_untold() -> contextlib.AbstractContextManager[None]:
    """A session leaves although no replica has what it sent last."""
    return _patched(Retelling, "settle", _at_once)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule left out, the kind of runs that show it soonest (empty: as drawn), and what is then seen to be broken."""

    change: Callable[[], contextlib.AbstractContextManager[None]]
    shape: str
    mix: str
    breaks: str
    overflows: bool = False  # queues lie in files
    budgets: Mapping[str, int] = field(default_factory=dict)
    has_jobs: bool = False
    held: Limits = field(default_factory=dict)  # by which pages are held back
    shards: int = 0
    weather: Mapping[str, float] = field(default_factory=dict)  # what of it is not as drawn
    posts_s: float = 0.0  # how long pages that take a POST need to answer; 0: as drawn


# anchor_at_send stands here for completeness: no reply is waited for longer than the silence outlasts the self-stop, so
# the anchor has nothing left to do.
MUTANTS = {
    mutant.change.__name__: mutant
    for mutant in (
        Mutant(no_hold, "graph", "kills", "I5"),
        Mutant(no_fence, "graph", "pauses", "I2"),
        Mutant(no_token, "graph", "", "I4"),
        Mutant(no_note, "graph", "kills", "POST", posts_s=4.0),
        Mutant(ack_before_sync, "", "", "archive"),
        Mutant(items_not_synced, "", "", "archive"),
        Mutant(drain_before_index, "", "", "I3"),
        Mutant(no_lease_loss, "graph", "pauses", "owner"),
        Mutant(no_self_stop, "graph", "pauses", "owner"),
        Mutant(one_pass, "chain", "nothing", "I12"),
        Mutant(anchor_at_send, "graph", "kills", "I5"),
        Mutant(no_drain, "graph", "planned", "duplicate"),
        Mutant(clock_not_stored, "graph", "planned", "I5"),
        Mutant(delay_not_stored, "graph", "kills", "I5"),
        Mutant(no_recovery, "graph", "engine", "I12"),
        Mutant(files_not_synced, "graph", "kills", "I3", overflows=True),
        Mutant(files_go_at_once, "graph", "engine", "I3", overflows=True),
        Mutant(ends_with_room, "graph", "", "I12", budgets={"crawl_urls": 12}),
        Mutant(moves_not_marked, "graph", "kills", "audit"),
        Mutant(nothing_is_raised, "graph", "", "I12", budgets={"urls": 3}),
        Mutant(shown_early, "graph", "kills", "schedule"),
        Mutant(job_unchecked, "graph", "", "I9", has_jobs=True, weather={"latency_max_s": SLOW_CALLS_S}),
        Mutant(job_unfenced, "graph", "cuts", "I2", has_jobs=True),
        Mutant(run_of_one_pass, "chain", "nothing", "run", has_jobs=True),
        Mutant(touch_after_add, "chain", "nothing", "run", has_jobs=True),
        Mutant(links_untouched, "chain", "nothing", "run", has_jobs=True),
        Mutant(touched_is_remembered, "graph", "engine", "run", has_jobs=True),
        Mutant(run_of_crawl, "graph", "", "I4", has_jobs=True),
        Mutant(
            no_tombstone, "graph", "nothing", "left", has_jobs=True, weather={"late_requests": 0.03, "late_max_s": 15.0}
        ),
        Mutant(miss_undecided, "graph", "engine", "I9", has_jobs=True),
        Mutant(clock_unchecked, "graph", "kills", "clock", has_jobs=True),
        Mutant(nothing_told_again, "chain", "nothing", "I3", shards=3),
        Mutant(dead_not_told, "chain", "kills", "I3", shards=3),
        Mutant(leaves_untold, "chain", "planned", "I3", shards=3),
        Mutant(ends_untold, "chain", "nothing", "I12", shards=3),
        Mutant(held_links_left_out, "graph", "nothing", "I3", held={"BURST_BYTES": 1, "BYTES_PER_S": 2000}),
    )
}


def first_caught(name: str, seeds: Iterable[int], real: RealEngine) -> Outcome | None:
    """The first of these runs in which the rule's absence shows as it should."""
    for seed in seeds:
        outcome = mutated(name, seed, real)
        if any(violation.startswith(MUTANTS[name].breaks) for violation in outcome.violations):
            return outcome
    return None


def mutated(name: str, seed: int, real: RealEngine) -> Outcome:
    """One run of a mutant."""
    mutant = MUTANTS[name]
    with mutant.change():
        plan = plan_of(seed, shape=mutant.shape, mix=mutant.mix, has_jobs=mutant.has_jobs)
        overflows, budgets = mutant.overflows or plan.overflows, mutant.budgets or plan.budgets
        climate, held = dataclasses.replace(plan.climate, **mutant.weather), mutant.held or plan.held
        changed = dataclasses.replace(plan, overflows=overflows, budgets=budgets, climate=climate, held=held)
        for page in changed.web.urls.values() if mutant.posts_s else ():
            if page.kind is Kind.POSTED:
                page.seconds = mutant.posts_s
        if mutant.shards:
            changed = with_failovers(changed, mutant.shards, rng_of(seed, "failovers"))
        return simulate(seed, real, plan=changed)
