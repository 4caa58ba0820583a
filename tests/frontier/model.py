"""A partition as plain dicts: what the scripts should do, said without Redis. It knows no key and no script.

Times are ms on the partition clock. `PartitionModel` changes as the operations of the same names do and answers what
the engine should answer; `view` is everything that people and other sessions can see of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from crawler.frontier.deferred import CRAWL_URLS
from crawler.frontier.states import PENDING, State
from crawler.model import REQUISITE, Candidate
from tests.frontier.model_aside import AsideModel, Silence
from tests.frontier.model_kept import KeptUrls
from tests.frontier.model_urls import (
    AHEAD_MS,
    BORROWED_MS,
    GRANTED,
    LEFT_MS,
    LOOK_MS,
    OUT_MAX,
    PER_QUEUE_MAX,
    UNENDED,
    VISIBILITY_MS,
    Queue,
    Url,
)


@dataclass
class PartitionModel(KeptUrls, AsideModel):
    clock: int = 0
    wall: int = 0  # of the last claim
    session: str = ""
    epoch: int = 0
    hold: int | None = None
    sequence: int = 0
    request: str = ""
    urls: dict[str, Url] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    log: dict[str, str] = field(default_factory=dict)  # fingerprint:visit -> token, until drained
    committed: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=dict)  # by queue
    hosts: dict[str, list[str]] = field(default_factory=dict)  # by domain, those that were taken in
    closed: set[str] = field(default_factory=set)  # runs
    silences: dict[str, dict[str, Silence]] = field(default_factory=dict)

    # Who may

    def fence(self, session: str, epoch: int, now_ms: int) -> bool:
        if (session, epoch) != (self.session, self.epoch):
            return False
        self.clock = max(self.clock, now_ms)
        return True

    def lease(self, session: str, seen: tuple[str, int], floor: int) -> int | None:
        """The new epoch, or None when the lease is not the one that was seen."""
        if seen != (self.session, self.epoch):
            return None
        open_claims = [u for u in self.urls.values() if u.state is State.CLAIMED]
        if self.session or open_claims:
            self.hold = self.clock
        self.session, self.epoch = session, max(self.epoch, floor) + 1
        for url in open_claims:
            url.until_ms = 0
        return self.epoch

    def release(self) -> None:
        self.session = ""

    # Queues

    def queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue())

    def of_queue(self, name: str, *states: State) -> list[str]:
        """Fingerprints of a queue in these states, best first."""
        found = [f for f, u in self.urls.items() if u.candidate.queue == name and u.state in states]
        return sorted(found, key=lambda f: self.urls[f].score, reverse=True)

    def of_row(self, name: str, user: str) -> list[str]:
        """Those of a user that wait in a queue, best first."""
        return [f for f in self.of_queue(name, State.QUEUED) if self.urls[f].user == user]

    def users(self) -> Counter[str]:
        """How many URLs of each user wait in queues; the crawl itself is none."""
        return Counter(u.user for u in self.urls.values() if u.state is State.QUEUED and u.user)

    def out(self, name: str) -> int:
        return len(self.of_queue(name, State.CLAIMED))

    def due_ms(self, name: str) -> int:
        queue = self.queue(name)
        held = 0 if self.hold is None else self.hold + queue.patience_ms
        due_ms = max(queue.next_ms, held)
        if not queue.patience_ms:
            return due_ms
        if queue.borrower:
            return max(due_ms, self.clock + LOOK_MS, queue.left_until_ms)
        if queue.waiter in ("", GRANTED) or (queue.borrower_seen is None and due_ms > self.clock):
            return due_ms
        return max(due_ms, (self.clock if queue.borrower_seen is None else queue.borrower_seen) + LEFT_MS)

    def _is_waited_for(self, queue: Queue) -> bool:
        waits = queue.borrower_seen is None or self.clock - queue.borrower_seen < LEFT_MS
        return bool(queue.waiter and queue.waiter != GRANTED and not queue.borrower and queue.patience_ms and waits)

    def names(self) -> Iterator[str]:
        yield from sorted({u.candidate.queue for u in self.urls.values()})

    def is_claimable(self, name: str) -> bool:
        """Whenever it is due: has it URLs, and none out (or no delay to keep), and are they not stopped?"""
        return any(self.is_claimable_by(name, self.urls[f].user) for f in self.of_queue(name, State.QUEUED))

    def is_claimable_by(self, name: str, user: str) -> bool:
        queue = self.queue(name)
        return queue.stop != "paused" and not queue.defers(user) and (self.out(name) == 0 or queue.patience_ms == 0)

    def settle(self, name: str, next_ms: int, delay_ms: int) -> None:
        queue = self.queue(name)
        queue.next_ms = max(queue.next_ms, next_ms)
        if delay_ms >= 0:
            queue.delay_ms = delay_ms

    def borrow(self, name: str, waiter: str, seen_ms: int, clock: int) -> bool:
        """Is a slot granted to a waiter that has seen the present mark for `seen_ms`, and knows that it is `clock`?"""
        queue, patience = self.queue(name), self.queue(name).patience_ms
        held = 0 if self.hold is None else self.hold + patience
        due_ms = max(queue.next_ms, held)
        if not patience:
            return due_ms <= clock
        if queue.borrower == waiter:
            return True
        if queue.borrower:
            is_free = seen_ms >= patience + (0 if queue.borrower.startswith("done:") else BORROWED_MS)
        else:
            is_free = due_ms <= clock
        if self.out(name) or not is_free:
            queue.waiter = queue.waiter or waiter
            return False
        queue.borrower, queue.borrower_seen, queue.waiter = waiter, None, GRANTED
        queue.next_ms = max(due_ms, clock + patience)
        return True

    def borrower_looked_at(self, name: str, *, is_there: bool, seen_ms: int | None) -> None:
        """A claim may have looked at a queue with a mark or a waiter: the engine says whether it did, not what."""
        queue = self.queue(name)
        if not queue.borrower:
            if not is_there:
                assert not self._is_waited_for(queue), "a waiter was forgotten before its time"
                queue.waiter, queue.borrower_seen = "", None
            elif seen_ms != queue.borrower_seen:
                assert (queue.borrower_seen, seen_ms) == (None, self.clock)
                queue.borrower_seen, queue.left_until_ms = seen_ms, self.clock + LEFT_MS
        elif not is_there:
            patience = 1 if queue.borrower.startswith("done:") else BORROWED_MS
            is_over = queue.borrower_seen is not None and self.clock - queue.borrower_seen >= patience
            assert is_over, "a borrower was forgotten while its request may run, or by a claim from before it"
            queue.borrower, queue.borrower_seen = "", None
            queue.next_ms = max(queue.next_ms, self.clock + queue.patience_ms)
        elif seen_ms is None and queue.waiter and not queue.patience_ms:
            queue.borrower_seen = None  # handed out meanwhile, as no delay is to be kept: it is looked at again
        elif seen_ms != queue.borrower_seen:
            assert (queue.borrower_seen, seen_ms) == (None, self.clock)
            queue.borrower_seen = seen_ms

    # Adding

    def add(self, candidates: Sequence[Candidate]) -> str:
        """A digit per candidate: 1 new, 0 seen, 2 depth lowered, 3 its run is closed."""
        return "".join(str(self._add(c)) for c in candidates)

    def _add(self, c: Candidate) -> int:
        if c.run in self.closed:
            return 3
        url = self.urls.get(c.fingerprint)
        if url is None:
            self.urls[c.fingerprint] = Url(candidate=c, depth=c.depth, user=c.user)
            self.totals["added"] += 1
            self._meet(c)
            self.place(self.urls[c.fingerprint])
            return 1
        if url.state not in UNENDED or url.depth <= c.depth:
            return 0
        self.lift(url, c)
        return 2

    def _meet(self, c: Candidate) -> None:
        counts, is_requisite = self.counts.setdefault(c.queue, Counter()), c.label == REQUISITE and not c.deferred
        counts.update(urls=1, requisites=int(is_requisite))
        self.totals["requisites"] += is_requisite

    # Claiming

    def expire(self, wall_ms: int) -> None:
        """What comes (back) to the queues before a claim hands out anything."""
        self.wall = wall_ms
        for url in self.urls.values():
            if url.state is State.CLAIMED and url.until_ms <= self.clock:
                self._wait(url)
                url.deliveries += f".{self.session}-" not in url.token
                self.totals["expired"] += 1
            elif url.until_ms <= {State.RETRYING: self.clock, State.SCHEDULED: wall_ms}.get(url.state, -1):
                self._wait(url)

    def allowance(self, name: str, left: int = 1) -> int:
        """How many URLs of a due queue one call may hand out that may hand out so many more."""
        queue = self.queue(name)
        wanted = 1
        if queue.delay_ms is not None:
            wanted = max(1, AHEAD_MS // queue.delay_ms) if queue.delay_ms else PER_QUEUE_MAX
        wanted = max(wanted, min(queue.quick, -(-left // 2)))
        return min(wanted, PER_QUEUE_MAX, OUT_MAX - self.out(name), self._not_stopped(name))

    def _not_stopped(self, name: str) -> int:
        return sum(not self.queue(name).defers(self.urls[f].user) for f in self.of_queue(name, State.QUEUED))

    def due_queues(self, lead_ms: int = 0) -> list[str]:
        """Queues of which a claim with room enough must hand out something now, if they are due so long after it."""
        due = (n for n in self.names() if self.is_claimable(n) and self.due_ms(n) <= self._horizon(n, lead_ms))
        return [name for name in due if self.allowance(name) > 0]

    def _horizon(self, name: str, lead_ms: int) -> int:
        """A queue that a borrower has, or waits for, is never handed out before its time."""
        queue = self.queue(name)
        is_shared = queue.borrower or queue.waiter not in ("", GRANTED)
        return self.clock + (0 if is_shared else lead_ms)

    def start_ms(self, name: str) -> int:
        """When the next request on a queue that is handed out may start; 0 for now."""
        due_ms = max(self.queue(name).next_ms, 0 if self.hold is None else self.hold + self.queue(name).patience_ms)
        return due_ms if due_ms > self.clock else 0

    def hand_out(self, fingerprint: str, token: str) -> None:
        url = self.urls[fingerprint]
        url.state, url.token, url.until_ms = State.CLAIMED, token, self.clock + VISIBILITY_MS

    def claimed_by(self, request: str) -> set[str]:
        """What a repeated request gets: its own claims that are still out."""
        claimed = (f for f, u in self.urls.items() if u.state is State.CLAIMED)
        return {f for f in claimed if f".{request}." in f".{self.urls[f].token}"}

    def soonest(self, spilled: Collection[str] = ()) -> tuple[int, int]:
        """When something is due next: not before, and at the latest; -1 for never. Queues that lie in files may wait.

        Not before: a hold put on the partition is looked at when the queue's own time has come, and so is a borrower.
        """
        claimable = [n for n in self.names() if self.is_claimable(n)]
        waiting = [u.until_ms for u in self.urls.values() if u.state in (State.RETRYING, State.CLAIMED)]
        scheduled = [self.urls[f].until_ms for f in self.in_state(State.SCHEDULED)]
        waiting += [self.clock + until_ms - self.wall for until_ms in scheduled]
        waiting += [queue.aside_ms for queue in self.queues.values() if queue.aside_ms is not None]
        first = min([0 if self.queue(n).borrower else self.queue(n).next_ms for n in claimable] + waiting, default=-1)
        last = min(
            [self.due_ms(n) for n in claimable if self.allowance(n) > 0 and n not in spilled] + waiting, default=-1
        )
        return first, last

    def extend(self, fingerprint: str, until_ms: int) -> None:
        url = self.urls[fingerprint]
        url.until_ms = max(url.until_ms, until_ms)

    def note_sent(self, fingerprint: str) -> None:
        self.urls[fingerprint].is_sent = True

    def record_crash(self, fingerprint: str, session: str) -> int:
        """1 if this death was news."""
        url = self.urls[fingerprint]
        if url.died_with == session:
            return 0
        url.deaths, url.died_with = url.deaths + 1, session
        return 1

    # Ends

    def is_claimed(self, fingerprint: str, token: str) -> bool:
        url = self.urls.get(fingerprint)
        if url is None or url.state is not State.CLAIMED:
            return False
        return url.token == token and token.startswith(f"{self.epoch}.")

    def commit(self, fingerprint: str, *, status: int, body_bytes: int, fetch_ms: int) -> int:
        url = self._count_page(fingerprint, status, body_bytes, fetch_ms)
        self.sequence += 1
        self.committed[f"{fingerprint}:1"] += 1
        self.log[f"{fingerprint}:1"] = url.token
        self.answered(url.candidate.queue)
        return self.sequence

    def restore(self, found: Iterable[Candidate], *, status: int, body_bytes: int, fetch_ms: int) -> int:
        """Commits that are on disk; how many of their URLs are not known."""
        unknown = 0
        for c in found:
            self.log.pop(f"{c.fingerprint}:1", None)
            if c.fingerprint not in self.urls and c.run not in self.closed:
                self.urls[c.fingerprint] = Url(candidate=c, depth=c.depth)
                self.totals["added"] += 1
                self._meet(c)
                self._count_page(c.fingerprint, status, body_bytes, fetch_ms)
                unknown += 1
        return unknown

    def withdraw(self, fingerprint: str, *, status: int, body_bytes: int, fetch_ms: int) -> None:
        """The commit of a pending URL is on disk."""
        url = self.urls[fingerprint]
        is_deferred = url.state is State.QUEUED and self.queue(url.candidate.queue).defers(url.user)
        self.totals.update(released=int(is_deferred), added=int(is_deferred))
        self._count_page(fingerprint, status, body_bytes, fetch_ms)
        self.forget_silences(url.candidate.queue)

    def _count_page(self, fingerprint: str, status: int, body_bytes: int, fetch_ms: int) -> Url:
        url = self._end(fingerprint, State.COMMITTED)
        url.status = status
        if url.candidate.label == REQUISITE:
            self._count(url, s9=1, requisite_bytes=body_bytes)
            return url
        self._count(url, **{f"s{status // 100}": 1, "bytes": body_bytes})
        self.counts[url.candidate.queue]["fetch_ms"] += fetch_ms
        return url

    def retry(self, fingerprint: str, *, due_ms: int, kind: str) -> None:
        url = self.urls[fingerprint]
        url.state, url.until_ms, url.attempts = State.RETRYING, due_ms, url.attempts + 1
        url.failures.append(kind)
        url.is_sent = False
        url.retries += url.candidate.run not in self.closed
        self.note_end(url.candidate.queue, kind)
        self._count(url, **{"retries": 1, f"e:{kind}": 1})

    def bury(self, fingerprint: str, *, kind: str, is_attempt: bool) -> None:
        failures = [*self.urls[fingerprint].failures, *([kind] if is_attempt else [])]
        url = self._end(fingerprint, State.DEAD)
        url.failures = failures
        url.dead_for = kind
        self.note_end(url.candidate.queue, kind)
        self._count(url, **{"dead": 1, f"e:{kind}": 1})

    def refuse(self, fingerprint: str, *, reason: str) -> None:
        url = self._end(fingerprint, State.REFUSED)
        self._count(url, **{f"refused:{reason}": 1})

    def _end(self, fingerprint: str, state: State) -> Url:
        url = self.urls[fingerprint]
        url.state, url.deaths, url.died_with, url.failures = state, 0, "", []
        return url

    # Counts

    def refused_links(self, fingerprint: str, reasons: dict[str, int]) -> None:
        self._count(self.urls[fingerprint], **{f"refused:{reason}": n for reason, n in reasons.items()})

    def give_back(self, fingerprint: str) -> None:
        self._wait(self.urls[fingerprint])

    def _count(self, url: Url, **fields: int) -> None:
        self.totals.update(fields)
        self.counts[url.candidate.queue].update(fields)

    # What can be seen

    def of_run(self, run: str) -> set[str]:
        """Fingerprints of its URLs, "" for the crawl's own."""
        return {f for f, u in self.urls.items() if u.candidate.run == run}

    def in_state(self, *states: State) -> set[str]:
        return {f for f, u in self.urls.items() if u.state in states}

    def queue_view(self, name: str) -> dict[str, int]:
        """What is counted of a queue, and how many URLs it has: n in blocks, out as claims, retrying, at a time."""
        places = {State.QUEUED: "n", State.CLAIMED: "out", State.RETRYING: "retrying"}
        places |= {State.SCHEDULED: "at", State.ASIDE: "aside"}
        counts = Counter(self.counts[name]) + self.aside_view(name)
        counts.update(self._of_runs(u for u in self.urls.values() if u.candidate.queue == name))
        counts.update(places[u.state] for u in self.urls.values() if u.candidate.queue == name and u.state in PENDING)
        return {k: n for k, n in counts.items() if n}

    def _of_runs(self, urls: Iterable[Url]) -> Counter[str]:
        """What budgets leave out."""
        mine = [u for u in urls if u.candidate.run]
        pages = sum(u.state is State.COMMITTED for u in mine)
        return Counter({"run_urls": len(mine), "run_fetched": pages, "run_bytes": 100 * pages})

    def _deferred_by(self) -> Counter[str]:
        """How many URLs are deferred now, by the name of their total."""
        found = Counter[str]()
        for url in self.urls.values():
            queue = self.queue(url.candidate.queue)
            reason = url.deferred if url.state is State.DEFERRED else queue.stop if queue.defers(url.user) else ""
            if reason and url.state in (State.DEFERRED, State.QUEUED):
                found[f"deferred:{'depth' if reason.startswith('depth:') else reason}"] += 1
        return found

    def totals_view(self) -> dict[str, int]:
        done = len(self.urls) - len(self.in_state(*UNENDED)) + self.totals["revived"] + self.totals["deferrals"]
        beyond = sum(self.urls[f].deferred == CRAWL_URLS for f in self.in_state(State.DEFERRED))
        pages = sum(u.state is State.COMMITTED and bool(u.candidate.run) for u in self.urls.values())
        dead = Counter(f"dead:{self.urls[f].dead_for}" for f in self.in_state(State.DEAD))
        counts = {
            **self.totals,
            **dead,
            **self._deferred_by(),
            "scheduled": len(self.in_state(State.SCHEDULED)),
            "run_pages": pages,
            **self._of_runs(self.urls.values()),
            "beyond": beyond,
            "done": done,
            "sequence": self.sequence,
            "queues": len(self.counts),
        }
        return {k: n for k, n in counts.items() if n}
