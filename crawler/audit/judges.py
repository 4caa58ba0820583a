"""The judges of dead letters, robots.txt, runs, takeovers and jobs: each compares what was kept with what happened."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.inflight_log import beginning_of
from crawler.archive.warc import payload_digest
from crawler.audit.findings import Report
from crawler.audit.ledger import Ledger, LoggedRequest
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.job_audit import JobBook, JobBooks
from crawler.frontier.leases import Takeover
from crawler.frontier.runs import Runs
from crawler.model import FailureKind
from crawler.rules.health import GIVEN_UP_AT
from crawler.rules.jobs import Job, Outcome, Row
from crawler.rules.robots import RobotsRules, SharedRobots
from crawler.rules.schedules import Schedule, as_iso
from crawler.rules.urls import authority_of, host_of, registrable_domain
from crawler.settings import Settings
from crawler.terminal.text import counted, duration

# What the instances have shared of the robots.txt of origins, as judges need it.


class OriginRobots(msgspec.Struct, frozen=True):
    """An origin, the rules for our agent, and when they were read last (wall clock, s)."""

    url: str
    rules: RobotsRules
    read_at: float

    @property
    def host(self) -> str:
        return host_of(f"{self.url}/")

    def serves(self, host: str, port: int) -> bool:
        """Is it this host's, and of this port if one is told (0: it is not)?"""
        authority = authority_of(f"{self.url}/")
        if self.host != host:
            return False
        if not port:
            return True
        return authority == f"{host}:{port}" or (authority == host and port in (80, 443))


async def origins_of(states: BulkLookup, partition: int) -> list[OriginRobots]:
    """All origins of a partition whose robots.txt somebody has read."""
    found = []
    for url, blob in (await states.robots(partition)).items():
        stored = SharedRobots.unpack(blob)
        if stored is not None:
            found.append(OriginRobots(url, stored.rules, stored.read_at))
    return found


# Does one page come from many domains? A captive portal, a parked name or a poisoned name server does that.
#
# Pages of status 200 with the same bytes, by the digests of the index. A page under many URLs of one domain is what the
# trap rules see (soft_404).

DOMAINS_MIN = 20  # software's own first page is on some sites of any large crawl
DOMAINS_MAX = 100_000  # of one page: no more are counted


_PAGES = """
SELECT digest, url FROM commits WHERE status = 200 AND digest IN (
    SELECT digest FROM commits WHERE status = 200 AND digest NOT IN ('', ?) GROUP BY digest HAVING count(*) >= ?
) ORDER BY digest
"""


def judge_same_pages(ledger: Ledger, report: Report) -> None:
    """One finding for each such page, with one of its URLs."""
    rows = ledger.db.execute(_PAGES, (payload_digest(b""), DOMAINS_MIN))
    for digest, pages in itertools.groupby(rows, key=lambda row: row[0]):
        domains: set[str] = set()
        for _, page in pages:
            if len(domains) < DOMAINS_MAX:
                domains.add(registrable_domain(host_of(page)))
        if len(domains) >= DOMAINS_MIN:
            report.findings.same_pages.add(url=page, domains=len(domains), digest=digest)


# Judges dead letters that are the program's fault: a page is given up as the end of processes only if some crash is on
# record that names it, in the logs of the instances that found the dead session.
#
# Must not know who wrote the letters.

STALLED, DIED = "session.stalled", "session.died"  # events of membership/peers.py
FAULTS = frozenset({FailureKind.INTERNAL, FailureKind.POISON_URL})


async def judge_dead(letters: DeadLetters, folders: Sequence[CrawlFolder], report: Report) -> None:
    """Pages that were given up although nothing is on record against them; how many the program failed on, and how many
    were never requested because their host was silent.
    """
    crashes: Counter[str] | None = None
    async for some in letters.read():
        for one in some:
            url = one.letter.url
            if one.letter.reason == FailureKind.HOST_DEAD:
                report.findings.unrequested.add(url=url, reason=one.letter.detail)
            if one.letter.reason not in FAULTS:
                continue
            report.findings.faults.add(url=url, reason=f"{one.letter.reason}: {one.letter.detail}")
            if one.letter.reason == FailureKind.POISON_URL:
                crashes = _crashes(folders) if crashes is None else crashes
                if (known := crashes[beginning_of(url).decode("utf-8", "replace")]) < GIVEN_UP_AT:
                    reason = f"dead letter for crashes, and {known} of {GIVEN_UP_AT} crashes are on record"
                    report.findings.blamed.add(url=url, reason=reason)


def _crashes(folders: Sequence[CrawlFolder]) -> Counter[str]:
    """By URL: how many are on record. A stall counts as all that it takes."""
    found: Counter[str] = Counter()
    for folder in folders:
        for file in sorted(folder.log.glob("*.log")):
            with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
                for event, urls in _events(lines):
                    found.update(dict.fromkeys(urls, GIVEN_UP_AT if event == STALLED else 1))
    return found


def _events(lines: Iterator[str]) -> Iterator[tuple[str, list[str]]]:
    for line in lines:
        if STALLED in line or DIED in line:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                if event["event"] in (STALLED, DIED):
                    yield event["event"], [str(url) for url in event["urls"]]


# Was anything asked for that robots.txt forbids, or before it was read? By the web server's log.
#
# Judged by what robots.txt said when it was read last: what an earlier version said is nowhere kept.


ROBOTS = "/robots.txt"
WALL_CLOCK_FROM_S = 1e8  # smaller times are of a clock that began with the machine

Host = tuple[str, int]


async def judge_robots(ledger: Ledger, report: Report, states: BulkLookup, settings: Settings) -> None:
    """Notes each page request that was not allowed."""
    if not settings.robots.obey:
        report.findings.robots.not_judged("robots.obey is off")
        return
    rows = ledger.db.execute(
        "SELECT host, port, min(started) FROM requests WHERE target = ? AND status < 500 AND status <> 429 "
        "GROUP BY host, port",
        (ROBOTS,),
    )
    read_at: dict[Host, float] = {(host, port): started for host, port, started in rows}
    requests = ledger.requests("WHERE target <> ? ORDER BY partition, host, port, started", ROBOTS)
    for partition, of_partition in groupby(requests, key=lambda request: request.partition):
        origins = await origins_of(states, partition)
        for (host, port), group in groupby(of_partition, key=lambda request: (request.host, request.port)):
            its_origins = [origin for origin in origins if origin.serves(host, port)]
            for request in group:
                judge_request(request, its_origins, read_at.get((host, port)), report)
    if report.findings.unjudged.count == ledger.number("SELECT count(*) FROM requests WHERE target <> ?", ROBOTS):
        report.findings.robots.not_judged("no request for a page could be judged")


def judge_request(request: LoggedRequest, origins: list[OriginRobots], read_at: float | None, report: Report) -> None:
    """One page request. `read_at` is when the log has the first answer of its host's robots.txt."""
    findings = report.findings
    if origins and not any(origin.rules.allows(f"{origin.url}{request.target}") for origin in origins):
        verdict = origins[0].rules.verdict(f"{origins[0].url}{request.target}")
        why = f"line {verdict.line_number}: {verdict.line}"
        findings.robots.add(request=request.shown, at=request.started, reason=f"forbidden by {why}")
        return
    if read_at is not None and read_at <= request.started + request.blur:
        return
    if request.started > WALL_CLOCK_FROM_S and any(origin.read_at <= request.started for origin in origins):
        return
    if read_at is None and origins:
        findings.unjudged.add(request=request.shown, reason="its robots.txt was read, but not in this log")
    else:
        findings.robots.add(request=request.shown, at=request.started, reason="before robots.txt was read")


# Judges runs by what partitions have of them: where an active one has URLs it must be noted, and one that has ended
# must be forgotten.


async def still_active(runs: Runs, asked: Collection[str]) -> frozenset[str]:
    """Those of the runs that have not ended. Raises EngineError."""
    return frozenset(run for run, active in (await runs.look(asked)).items() if active is not None)


async def judge_runs(runs: Runs, seen: Mapping[str, Collection[int]], report: Report) -> None:
    """`seen`: partitions that have seen URLs of runs. Runs may begin and end meanwhile. Raises EngineError."""
    active = await still_active(runs, seen)
    touched, closing = {run: await runs.touched(run) for run in sorted(active)}, await runs.all_closing()
    going_on, found = await still_active(runs, seen), report.findings.runs
    for run in sorted(going_on & active):
        if run in closing:
            found.add(run=run, reason="it goes on, and is noted as one to be removed")
        for partition in sorted({*seen[run]} - touched[run]):
            found.add(run=run, partition=partition, reason="it has URLs there, and the partition is not noted for it")
    for run in sorted({*seen} - going_on):
        if run in (await runs.closing_in([runs.home(run)]))[runs.home(run)]:
            continue
        for partition in sorted(await runs.seen_in(run, seen[run])):
            found.add(run=run, partition=partition, reason="it has ended, and the partition has not forgotten it")
    if left := closing - going_on:
        what = "ended run is" if len(left) == 1 else "ended runs are"
        report.notes.append(f"{len(left):,} {what} still to be removed from partitions: instances do so within seconds")


# Whose partitions went to whom after a death, and after how long a silence: as those noted it who took over.


def judge_takeovers(takeovers: Sequence[Takeover], report: Report) -> None:
    """Notes each, the longest first. A silence is no death: it began before it, by up to a heartbeat."""
    finding = report.findings.takeovers
    for one in sorted(takeovers, key=lambda takeover: -takeover.silent_ms):
        silent_s = one.silent_ms / 1000 if one.silent_ms >= 0 else None
        finding.add(
            died=one.node,
            session=one.session,
            by=one.by_node,
            partitions=one.partitions,
            silent_s=silent_s,
            at=one.at,
        )
    if takeovers:
        report.takeover_max_s = max(max(one.silent_ms for one in takeovers) / 1000, 0.0)
        partitions = counted(sum(one.partitions for one in takeovers), "partition")
        finding.note = f"{partitions}, the longest after {duration(report.takeover_max_s)} of silence"


# Judges the histories of jobs: has each nominal time exactly one row, is each run that goes on in its job, and has the
# index the pages that the row of a run counts?
#
# The times are counted again from the definitions that were in force. They are known from the oldest row on: what is
# older was dropped.

CLOCK_S = 10.0  # by which clocks may differ
COUNTED = (Outcome.FINISHED, Outcome.LIMITED, Outcome.STOPPED, Outcome.FAILED)


async def judge_jobs(
    books: JobBooks, report: Report, pages_of: Callable[[str], int] | None = None, *, before_s: float = 0.0
) -> None:
    """Read and judge all jobs. Raises EngineError.

    `pages_of`: how many pages of a run the index has; `before_s`: it has all of runs that ended before this time (wall
    clock).
    """
    unsteady = 0
    async for some in books.read():
        for book in some:
            if isinstance(book, str):
                unsteady += 1
                continue
            _judge(book, report)
            if pages_of is not None:
                _judge_pages(book, report, pages_of, before_s - CLOCK_S)
    if unsteady:
        report.notes.append(f"{counted(unsteady, 'job')} changed at every look and not judged")


def _judge(book: JobBook, report: Report) -> None:
    report.jobs += 1
    report.nominal_times += sum(row.count for row in book.rows if not row.is_manual)
    if book.job is None:
        for run in sorted(book.runs):
            report.findings.runs.add(job=book.id, run=run, reason="it has a record, and its job is gone")
        return
    for at, reason in _wrong_times(book, book.job):
        report.findings.nominal.add(job=book.job.name, time=as_iso(at), reason=reason)
    for run, reason in _wrong_runs(book, book.job):
        report.findings.runs.add(job=book.job.name, run=run, reason=reason)


def _judge_pages(book: JobBook, report: Report, pages_of: Callable[[str], int], before_s: float) -> None:
    """Does the index have as many pages of each run as its row says?"""
    name = book.job.name if book.job else book.id
    for row in book.rows:
        if row.outcome in COUNTED and row.ended_at < before_s and (pages := pages_of(row.run)) != row.pages:
            reason = f"its row has {counted(row.pages, 'page')}, the index and the engine's log have {pages:,}"
            report.findings.runs.add(job=name, run=row.run, reason=reason)


def _wrong_times(book: JobBook, job: Job) -> Iterator[tuple[int, str]]:
    """Nominal times without a row, with two, or with one that stands for other times; and why."""
    reached = _begin(book, job)
    for row in (row for row in book.rows if not row.is_manual):
        if row.nominal <= reached:
            yield row.nominal, "it has two rows"
        else:
            yield from _unwritten(book, reached, row.nominal - 1)
        yield from _wrong_row(book, row)
        reached = max(reached, row.to)
        if row.to > job.done_to:
            yield row.to, f"it has a row, but the job is decided up to {as_iso(job.done_to)} only"
    yield from _unwritten(book, reached, job.done_to)


def _begin(book: JobBook, job: Job) -> int:
    """Up to when nothing is known. Rows are dropped by when they begin, so one of a manual run tells nothing."""
    known = min((revision.since for revision in book.revisions.values()), default=job.done_to)
    if not book.rows:
        return known
    return max(known, next((row.nominal - 1 for row in book.rows if not row.is_manual), job.done_to))


def _unwritten(book: JobBook, after: int, until: int) -> Iterator[tuple[int, str]]:
    """Times in (after, until] that have no row."""
    revisions = [book.revisions[number] for number in sorted(book.revisions)]
    for n, revision in enumerate(revisions):
        last = revisions[n + 1].since if n + 1 < len(revisions) else until
        first, count = _times(revision.spec.schedule, max(after, revision.since), min(until, last))[:2]
        if count:
            yield first, "it has no row" if count == 1 else f"it and {count - 1:,} more have no row"


def _wrong_row(book: JobBook, row: Row) -> Iterator[tuple[int, str]]:
    in_force = [revision for revision in book.revisions.values() if revision.since < row.nominal]
    if not in_force:  # its definition was dropped
        return
    revision = max(in_force, key=lambda one: one.number)  # a run that was repeated by hand has a later one
    first, count, last = _times(revision.spec.schedule, row.nominal - 1, row.to)
    if (first, last) != (row.nominal, row.to):
        yield row.nominal, "its row begins or ends at a time that the job does not have"
    elif count != row.count:
        yield row.nominal, f"its row is for {row.count:,} times up to {as_iso(row.to)}, where the job has {count:,}"


def _times(schedule: Schedule, after: int, until: int) -> tuple[int, int, int]:
    """The first of the times in (after, until], how many, and the last."""
    first = last = count = 0
    while after < until:
        span = schedule.span(after, until)
        first, last, count = first or span.first or 0, span.last or last, count + span.count
        if span.is_complete:
            break
        after = span.reached
    return first, count, last


def _wrong_runs(book: JobBook, job: Job) -> Iterator[tuple[str, str]]:
    """Runs that only the job, only its history, or only the records of active runs take for active; and leftovers."""
    active = {row.run for row in job.active}
    oldest = book.rows[0].nominal if book.rows else job.done_to + 1
    shown = {row.run for row in book.rows if row.outcome is Outcome.RUNNING}
    wanted = {row.run for row in job.active if row.nominal > oldest}  # others may have been dropped
    for run in sorted(active - book.runs):
        yield run, "its job waits for it, but it has no record"
    for run in sorted(book.runs - active):
        yield run, "it has a record, but its job does not know it"
    for run in sorted(shown - active):
        yield run, "it has ended, and its row says that it runs"
    for run in sorted(wanted - shown):
        yield run, "it runs, and no row says so"
    for run in book.left:
        yield run, "it has ended, and was not removed from its partitions"
