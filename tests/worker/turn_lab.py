"""Turns for tests, without an instance around them."""

import mmap
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.archive.inflight_log import InflightMark
from crawler.frontier.leases import Acquired
from crawler.membership.held import Dependent, HeldPartitions
from crawler.model import Claim
from crawler.routing.traps_learned import TrapMemory
from crawler.settings import ArchiveSettings, Settings
from crawler.worker import address_limit, schedule
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.archive import Files
from crawler.worker.before_page import Hosts, Means, SessionNotes
from crawler.worker.claim import Claimer
from crawler.worker.counters import Counters
from crawler.worker.disk_room import DiskRoom
from crawler.worker.exchanges import Exchanges
from crawler.worker.fetch import FetchStage
from crawler.worker.internal_errors import ContentSteps
from crawler.worker.open_claims import OpenClaims
from crawler.worker.page_requests import OpenRequests
from crawler.worker.response_policy import ResponsePolicy
from crawler.worker.schedule import QueueSlot, Scheduler
from crawler.worker.turn import Turn, TurnRunner
from crawler.worker.work import DuePartitions, Work

BUSY: Any = SimpleNamespace(active=1)  # a scheduler, of which a request is in flight


class StoppedClock:
    """The clock of schedulers, ms: it goes on when the test says so, however slow the machine is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        for module in (schedule, address_limit):
            monkeypatch.setattr(module, "monotonic_ms", lambda: self.now)


def mark() -> InflightMark:
    """A mark in a log that is not read."""
    return InflightMark(mmap.mmap(-1, mmap.PAGESIZE), 0)


def turn_of(scheduler: Scheduler, slot: QueueSlot, claim: Claim) -> Turn:
    return Turn(scheduler, slot, claim, mark())


def runner_of(scheduler: Scheduler, **callbacks: Any) -> TurnRunner:
    """Fails when a turn ends without one of the given callbacks."""
    open_claims = callbacks.pop("open_claims", OpenClaims(1000))
    unused: Any = SimpleNamespace(fence_of=lambda _: None, failed=_raised)
    return TurnRunner(
        scheduler, unused, open_claims, unused,
        **{"deliver": never, "return_claim": never, "set_aside": never, "delay_ms": 0} | callbacks,
    )  # fmt: skip


def held_with(*partitions: int, clock_ms: int = 0, dependents: Sequence[Dependent] = ()) -> HeldPartitions:
    """These partitions are held by session "s" in epoch 1; their time stands still."""
    held = HeldPartitions("s", dependents, clock_ms=lambda: 0)
    for partition in partitions:
        won = Acquired(partition=partition, epoch=1, clock_ms=clock_ms, log_entries=0, pending=0)
        held.add(won, 0, is_wanted=True)
    return held


def claimer_with(
    frontier: Any, held: HeldPartitions, counters: Counters, *, scheduler: Scheduler | None = None
) -> tuple[Claimer, DuePartitions]:
    """A claimer over this frontier, and its due partitions."""
    due = DuePartitions(counters.open_claims)
    scheduler = scheduler or Scheduler(counters.open_claims, concurrency_per_queue=1)
    claimer = Claimer(
        frontier, work_of(held=held, due=due, scheduler=scheduler, counters=counters), Settings(),
        pages_left=counters.pages_left, on_short=lambda *_: None, on_set_back=lambda _: None, on_runs=never,
        on_probe=never,
    )  # fmt: skip
    return claimer, due


def claims_open(claims: Collection[Claim], *, claims_max: int = 1000) -> OpenClaims:
    """Open claims with these."""
    open_claims = OpenClaims(claims_max)
    open_claims.opened(claims)
    return open_claims


def stage_with(scheduler: Scheduler, settings: Settings, callbacks: Mapping[str, Any], **parts: Any) -> FetchStage:
    """A fetch stage; any use of a part that is not given fails. `callbacks`: as for `runner_of`."""
    defaults = {
        "policy": ResponsePolicy(settings), "recall": never, "inflight_log": SimpleNamespace(mark=mark),
        "addresses": AddressLimiter(scheduler, limit=settings.politeness.concurrency_per_address),
        "traps": TrapMemory(settings.traps), "scheduler": scheduler, "requests": OpenRequests(),
        "sessions": SimpleNamespace(wants=lambda _: False), "handling": SimpleNamespace(prepares=False),
        "fetcher": fetcher_of(), "give_up": never, "exchanges": Exchanges(None),
    }  # fmt: skip
    known: dict[str, Any] = defaultdict(SimpleNamespace, defaults | parts)
    runs: Any = SimpleNamespace(
        refusal_of=known.get("run_refuses", never),
        excludes=known.get("excludes", lambda _: False),
        may_lead_to=known.get("in_scope", lambda *_: False),
    )

    def of(record: Any) -> Any:
        return record(**{name: known[name] for name in record.__struct_fields__})

    turns = runner_of(scheduler, **callbacks)
    return FetchStage(turns, of(Work), of(Means), of(Hosts), of(SessionNotes), runs, settings)


def fetcher_of(**parts: Any) -> Any:
    """Any use of a part that is not given fails; there are no proxies, and our own network works."""
    network = SimpleNamespace(look=lambda: None, trouble="")
    return SimpleNamespace(own_wait_ms=lambda _: 0, proxy_trouble=str, network=network, **parts)


def work_of(**parts: Any) -> Work:
    """Any use of a part that is not given fails."""
    return Work(**{name: parts.get(name, SimpleNamespace()) for name in Work.__struct_fields__})


def files_of(**files: Any) -> Files:
    """Any use of a file that is not given fails."""
    return Files(**{name: files.get(name, SimpleNamespace()) for name in Files.__struct_fields__})


def room_of() -> DiskRoom:
    """A disk that has room, until a write fails."""
    due: Any = SimpleNamespace(room_changed=lambda: None)
    return DiskRoom(Counters(OpenClaims(10)), due, ArchiveSettings())


def hosts_of(policy: Any) -> Hosts:
    """Nothing is put back."""
    return Hosts(policy=policy, addresses=SimpleNamespace(), recall=never)  # type: ignore[arg-type]


def content_steps() -> ContentSteps:
    return ContentSteps(mark())


def never(*_: object) -> Any:
    """A callback that is not to be called."""
    raise AssertionError


def _raised(claim: Claim, error: Exception, *_: object, **__: object) -> Any:
    raise error
