"""Watches a run from outside and reports what was broken: each call when the engine executes it, each request at
the moment it is sent. Believes the engine's answers and its own notes, never what instances say of themselves.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import hiredis
import msgspec

from crawler.engine.client import Call
from crawler.frontier.arguments import AckArgs
from crawler.frontier.keys import Keys
from crawler.frontier.scripts import NAMES, script
from crawler.model import REQUISITE
from crawler.rules.places import partition_of
from tests.simulation.browsing import Request
from tests.simulation.clocks import EPOCH_NS
from tests.simulation.disturbance import Disturbances
from tests.simulation.loop import NS, Process, VirtualLoop
from tests.simulation.web import Kind, Web, as_requisite

FENCED = frozenset(name for name in NAMES if "if not fence(ARGV)" in script(name).source)
ENDS = {"refuse": "refused", "dead_letter": "dead"}  # script -> what becomes of the URL
assert {"ack", "claim", *ENDS} <= FENCED
TAKEOVER_S = 10.0  # I8
LEAVE_S = 2.0  # I8

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a URL ended, when, by whom."""

    at_ns: int
    how: str  # committed | dead | refused
    url: str
    session: str
    status: int = 0
    run: str = ""
    partition: int = -1


@dataclass(slots=True)
class Tenure:
    """A partition's lease as it follows from the engine's answers."""

    session: str = ""
    epoch: int = 0
    since_ns: int = 0
    restored: bool = False  # by an engine that fell back: the owner since then does not know yet


@dataclass(slots=True)
class Judge:
    """Notes and verdicts. `trace` is called with each line of what happened."""

    loop: VirtualLoop
    web: Web
    delay_s: float
    partitions: int
    disturbances: Disturbances
    trace: Callable[[str], None]
    violations: list[str] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)
    tenures: dict[int, Tenure] = field(default_factory=dict)
    endings: dict[Key, Ending] = field(default_factory=dict)
    commits: Counter[Key] = field(default_factory=Counter)
    takeover_max_s: float = 0.0
    is_witnessed: Callable[[int], bool] = lambda _: True  # was some other process up and well since that time?
    session_of: Callable[[Process], str] = lambda _: ""
    on_acquired: Callable[[str], None] = lambda _: None
    on_rolled_back: Callable[[int, Collection[int]], None] = lambda *_: None
    deaths: Counter[str] = field(default_factory=Counter)  # URL -> processes that were killed while they were at it
    died_ns: dict[str, int] = field(default_factory=dict)  # session -> when its process was killed
    has_jobs: bool = False  # pages are requested again for each run
    holds_pages: bool = False  # a page whose links wait is requested again when there is no room for it
    scheduled: dict[str, float] = field(default_factory=dict)  # URL -> wall time (s) before which it is not fetched
    _ahead_ns: int = 0  # by how much a wall clock was ahead of virtual time, at most
    _holders: dict[tuple[int, int], set[str]] = field(default_factory=dict)  # (partition, epoch) -> sessions
    _asked: dict[str, Request] = field(default_factory=dict)
    _last: dict[str, Request] = field(default_factory=dict)  # by queue
    _paged: set[str] = field(default_factory=set)
    rolled_back_ns: int = 0  # when the engine lost something last; 0: never

    def blame(self, invariant: str, what: str) -> None:
        line = f"{invariant} broken at {self.loop.time():.3f} s: {what}"
        self.trace(f"!!! {line}")
        self.violations.append(line)

    # --- the engine's calls ---

    def executed(self, process: Process, call: Call | tuple[Any, ...], reply: Any) -> None:
        self._ahead_ns = max(self._ahead_ns, process.wall_ns)
        if not isinstance(call, Call):
            if isinstance(reply, hiredis.ReplyError):
                self.blame("script", f"{call}: {reply}")
            return
        if isinstance(reply, hiredis.ReplyError):
            self.blame("script", f"{call.name} of {process.name}: {reply}")
            return
        first = reply[0] if isinstance(reply, list) else reply
        status = first.decode(errors="replace") if isinstance(first, bytes) else str(first)  # or a record
        where = call.keys[0].partition("}")[0].rpartition(":")[2]
        self.trace(f"{process.name} {call.name} {where} {call.args[1] if call.name in FENCED else ''} -> {status}")
        if call.name in FENCED and not (call.name == "change_job" and call.args[0] == ""):  # people have no lease
            self._fence(process, call, status)
        if call.name == "acquire":
            self._lease(call, reply, status)
        elif call.name == "release_lease" and status == "COMMITTED":
            self.tenures[Keys.partition_of_meta(call.keys[0])].session = ""
        elif status == "OK" and call.name == "ack":
            for packed, answer in zip(call.args[len(AckArgs._fields) :], reply[2:], strict=True):
                if answer.startswith(b"COMMITTED "):
                    self._committed(call, msgspec.msgpack.decode(packed))
        elif status == "COMMITTED" and call.name in ENDS:
            fp = msgspec.msgpack.decode(call.args[3])[0]
            partition = Keys.partition_of_meta(call.keys[0])
            self._ended((fp, 1), Ending(self.loop.now_ns, ENDS[call.name], "", call.args[0], partition=partition))

    def _fence(self, process: Process, call: Call, status: str) -> None:
        partition = Keys.partition_of_meta(call.keys[0])
        tenure = self.tenures.setdefault(partition, Tenure())
        session, epoch = call.args[0], int(call.args[1])
        is_holder = bool(session) and (session, epoch) == (tenure.session, tenure.epoch)
        if status == "FENCED":
            self.stats["writes refused"] += 1
            if is_holder:
                self.blame("I1", f"{call.name} of the holder {process.name} of partition {partition} was refused")
        elif not is_holder:
            self.blame(
                "I2",
                f"{call.name} of {process.name} ({session}, {epoch}) passed in partition {partition}, which "
                f"({tenure.session}, {tenure.epoch}) holds",
            )

    def _lease(self, call: Call, reply: Any, status: str) -> None:
        if status != "ACQUIRED":
            return
        partition, session, epoch = Keys.partition_of_meta(call.keys[0]), call.args[0], int(reply[1])
        tenure = self.tenures.setdefault(partition, Tenure())
        if epoch <= tenure.epoch:
            self.blame("I1", f"partition {partition}: epoch {epoch} after {tenure.epoch}")
        had = self._holders.setdefault((partition, epoch), set())
        if session in had or (had and not self.rolled_back_ns):
            self.blame("I1", f"partition {partition}: epoch {epoch} of {sorted(had)} and of {session}")
        had.add(session)
        if tenure.session and tenure.session != session:
            self._taken_over(partition, tenure.session)
        self.tenures[partition] = Tenure(session, epoch, self.loop.now_ns)
        self.on_acquired(session)

    def _taken_over(self, partition: int, dead: str) -> None:
        self.stats["takeovers"] += 1
        died_ns = self.died_ns.get(dead)
        if died_ns is not None and self._is_judged(died_ns):
            seconds = (self.loop.now_ns - died_ns) / NS
            self.stats["takeovers measured"] += 1
            self.takeover_max_s = max(self.takeover_max_s, seconds)
            if seconds > TAKEOVER_S:
                self.blame("I8", f"partition {partition} had no owner for {seconds:.1f} s after a crash")

    def _is_judged(self, since_ns: int) -> bool:
        return self.disturbances.is_calm(since_ns + 1, self.loop.now_ns) and self.is_witnessed(since_ns)

    def _committed(self, call: Call, packed: Any) -> None:
        entry = msgspec.json.decode(packed[9])
        key = packed[0], int(packed[2].rpartition(":")[2])
        self.commits[key] += 1
        self.trace(f"  committed {entry['url']}")
        run = entry.get("run", "")
        status, partition = int(entry["status"]), Keys.partition_of_meta(call.keys[0])
        url = as_requisite(entry["url"]) if entry.get("label") == REQUISITE else entry["url"]
        ending = Ending(self.loop.now_ns, "committed", url, call.args[0], status, run, partition)
        self._ended(key, ending)

    def _ended(self, key: Key, ending: Ending) -> None:
        before = self.endings.get(key)
        if before is not None:
            what = f"{ending.url or key[0]} was {before.how} by {before.session}"
            self.blame("I4", f"{what} and is {ending.how} by {ending.session}")
        self.endings[key] = ending

    def rolled_back(
        self, to_ns: int, leases: dict[int, tuple[str, int]], partitions: Collection[int] | None = None
    ) -> None:
        """The engine, or the shard of these partitions, has lost what happened after that time: so do these notes."""
        lost = range(self.partitions) if partitions is None else partitions
        self.rolled_back_ns = self.loop.now_ns
        self.on_rolled_back(to_ns, lost)
        self.endings = {
            key: ending for key, ending in self.endings.items() if ending.at_ns <= to_ns or ending.partition not in lost
        }
        now_ns, unowned = self.loop.now_ns, ("", 0)  # also of a partition that had not been leased yet
        self.tenures |= {p: Tenure(*leases.get(p, unowned), now_ns, restored=True) for p in lost}

    # --- the web's requests ---

    def requested(self, request: Request) -> None:
        self.stats["requests"] += 1
        self.trace(f"{request.process.name} GET {request.url}{' late' if request.late else ''}")
        site = self.web.site_of(request.url)
        if site is None:
            self.blame("scope", f"{request.process.name} asked for {request.url}")
            return
        self._polite(request)
        if not request.robots:
            self._entitled(request)
            self._permitted(request)
            self._repeated(request)
            self._timely(request)
        self._last[request.queue] = request

    def _timely(self, request: Request) -> None:
        """A wall clock that jumped may show a URL early; none may be fetched before any clock had its time."""
        at_s = self.scheduled.get(request.url, 0.0)
        latest_s = (EPOCH_NS + self.loop.now_ns + max(self._ahead_ns, request.process.wall_ns)) / NS
        if at_s > latest_s:
            self.blame("schedule", f"{request.process.name} asked for {request.url} {at_s - latest_s:.1f} s too early")
        self.stats["scheduled"] += at_s > 0

    def _polite(self, request: Request) -> None:
        if not request.robots:
            self._paged.add(request.queue)
        last = self._last.get(request.queue)
        if last is None or request.late:
            self.stats["late requests"] += request.late
            return
        own = self.web.delay_of(self.web.sites[request.queue]) or 0
        delay_s = max(self.delay_s, own if request.queue in self._paged else 0)
        gap_s = (request.at_ns - last.at_ns) / NS
        if gap_s < delay_s and not last.late:
            self.blame(
                "I5",
                f"{request.process.name} asked for {request.url} {gap_s:.3f} s after {last.process.name} asked for "
                f"{last.url}; the delay is {delay_s} s",
            )

    def _entitled(self, request: Request) -> None:
        """Only the owner starts requests: the self-stop ends before anybody takes over."""
        tenure = self.tenures.get(partition_of(request.queue, self.partitions), Tenure())
        if tenure.session != self.session_of(request.process) and not (request.late or tenure.restored):
            self.blame("owner", f"{request.process.name} asked for {request.url}, whose partition {tenure.session} has")

    def _permitted(self, request: Request) -> None:
        site, host = self.web.sites[request.queue], request.url.split("/", 3)[2]
        if host not in site.read or (site.redirected_to and not self.web.sites[site.redirected_to].read):
            self.blame("I6", f"{request.process.name} asked for {request.url} before its robots.txt was read")
        page = self.web.urls.get(request.url)
        if page is not None and page.kind is Kind.HIDDEN:
            self.blame("I6", f"{request.process.name} asked for {request.url}, which robots.txt forbids")

    def cut_off(self, url: str) -> None:
        """A slow request made way for others, or its sender stopped: it may be repeated."""
        self._asked.pop(url, None)

    def _repeated(self, request: Request) -> None:
        """A page with a good answer may be fetched again only if its instance was disturbed."""
        page, before = self.web.urls[request.url], self._asked.get(request.url)
        self._asked[request.url] = request
        had = page.took  # answers so far, this one not included
        if page.kind is Kind.POSTED:
            self.stats["posts"] += 1
            if had and not self.rolled_back_ns:
                self.blame("POST", f"{request.process.name} sent again to {request.url}")
        failed = page.kind is Kind.BROKEN or (page.kind is Kind.FLAKY and had <= page.failures)
        is_shown = page.kind is not Kind.PICTURE and self.web.is_shown(request.url)  # it may be elsewhere
        if is_shown or before is None or failed or request.late or self.has_jobs or self.holds_pages:
            return
        self.stats["duplicates"] += 1
        self.trace(f"  again: {before.process.name} had it at {before.at_ns / NS:.3f} s")
        if not self.disturbances.befell(before.process, before.at_ns):
            self.blame(
                "duplicate",
                f"{request.process.name} asked again for {request.url}, which {before.process.name} had asked for at "
                f"{before.at_ns / NS:.3f} s undisturbed",
            )

    # --- which session must own what, and when ---

    def owned_by(self, session: str) -> list[int]:
        return [p for p, tenure in self.tenures.items() if tenure.session == session]

    def check_taken_over(self, session: str, since_ns: int, limit_s: float, why: str) -> None:
        """Called `limit_s` after `since_ns`: does the dead or gone session still have partitions?"""
        if self._is_judged(since_ns):
            left = self.owned_by(session)
            if left:
                self.blame("I8", f"{limit_s} s after {why}, {len(left)} partitions are still in the name of {session}")

    def check_handed_over(self, partitions: list[int], left_ns: int, due_s: float, who: str) -> None:
        """Called when a leaver has ended, at `due_s` or later: did its partitions have other owners by `due_s`?"""
        # A session that died shortly before may be assigned the leaver's share; one that has just joined takes its own.
        before_ns, just_before_ns = left_ns - round(TAKEOVER_S * NS), left_ns - round(LEAVE_S * NS)
        now_ns, what = self.loop.now_ns, self.disturbances
        settled = what.is_settled(just_before_ns, left_ns - 1) and what.is_settled(left_ns + 1, now_ns)
        if not (settled and what.is_calm(before_ns, now_ns) and self.is_witnessed(left_ns)):
            return
        self.stats["hand-overs measured"] += 1
        due_ns = round(due_s * NS)
        late = [p for p in partitions if not left_ns < self.tenures[p].since_ns <= due_ns]
        if late:
            self.blame("I8", f"{who} left; {len(late)} partitions had no owner {LEAVE_S} s after its last request")
