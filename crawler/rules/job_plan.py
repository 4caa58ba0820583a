"""Decides the nominal times of jobs: which runs start, and what becomes of the others. Pure.

A plan is what one step changes. The caller stores all of it at once, if the job is still as it was read. So a step
happens once or not at all, whoever takes it.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from crawler.errors import ConflictError
from crawler.rules.cron import Schedule, as_iso
from crawler.rules.job_runs import ENDED, RunName, RunRecord, name_of, run_id
from crawler.rules.jobs import OPEN, Job, JobSpec, Repeat, Revision, Row, State, retry_delays
from crawler.settings.schema import JobSettings

STEPS_MAX = 100  # decisions in one plan
QUEUED_MAX = 100  # runs of a job that wait for the one before them
REQUESTED_MAX = 100
REPEATS_MAX = 100
UNDECIDED_MAX = 20  # definitions, or pauses, of which nominal times are to be decided
LATE_S = (15.0, 60.0)  # a nominal time that is decided as late as this is on time: a takeover takes ten seconds
DEFAULTS = JobSettings()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a step changes. `due`: wall clock (s) when there is something to decide again; None: not by time alone."""

    job: Job
    put: tuple[Row, ...] = ()  # each in the place of the one that is there
    settled: tuple[Row, ...] = ()  # failed runs that need nobody's attention any more
    starts: tuple[RunRecord, ...] = ()
    ends: tuple[str, ...] = ()  # runs
    due: float | None = None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    run: str
    is_success: bool
    limit: str = ""  # the one that it reached
    has_started: bool = True  # False: it had no seed
    started_at: float = 0.0
    pages: int = 0
    errors: int = 0
    bytes: int = 0
    unchanged: int = 0
    reason: str = ""


class FoundRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the archive has it. `began`, `last`: when its first and its last page were fetched (wall clock, s)."""

    run: str
    pages: int
    errors: int
    bytes: int
    began: float
    last: float


def plan(job: Job, now_s: float, settings: JobSettings = DEFAULTS) -> Plan:
    """Decide what is due."""
    return _Draft(job, now_s, settings).finished()


def ended(job: Job, result: RunResult, now_s: float, settings: JobSettings = DEFAULTS, *, decides: bool = True) -> Plan:
    """A run has ended; then decide what is due. A run that the job does not know of changes nothing.

    `decides`: False for an instance whose clock is wrong. Then somebody else decides at once.
    """
    draft = _Draft(job, now_s, settings)
    draft.end(result)
    return draft.finished() if decides else draft.undecided()


def recovered(job: Job, found: Iterable[FoundRun], now_s: float) -> Plan:
    """The job as it must have been when these runs of it were triggered: a rebuild found them in the archive.

    They are not triggered again, and nothing before the newest of them is. Runs that the job takes for active go on.
    """
    draft = _Draft(job, now_s, DEFAULTS)
    draft.recover(found)
    return draft.undecided()


def undecided(job: Job, now_s: float) -> Plan:
    """Change nothing and decide nothing: what is due is decided at the next look.

    What was decided last may be later than now, if clocks were set back.
    """
    return Plan(job=job, due=min(float(job.done_to), now_s))


def created(job_id: str, user: str, name: str, spec: JobSpec, now_s: float, *, revision: int = 1) -> Job:
    """A new job. Its first nominal time is after now."""
    now = int(now_s)
    first = Revision(number=revision, since=now, spec=spec)
    return Job(id=job_id, user=user, name=name, created_at=now_s, revisions=(first,), done_to=now)


def edited(job: Job, spec: JobSpec, now_s: float) -> Job:
    """The job with another definition, in force for nominal times after now. It takes the place of the last one if that
    had no nominal time. Raises ConflictError when too many have some that were not decided.
    """
    *earlier, latest = job.revisions
    since, done_to = max(int(now_s), latest.since, job.done_to), job.done_to
    if not _has_times(latest, max(latest.since, done_to), since):
        new = Revision(number=latest.number + 1, since=latest.since, spec=spec)
        if done_to >= latest.since:
            done_to, new = since, replace(new, since=since)  # there was nothing to decide
        if done_to >= new.since or not _has_times(new, new.since, since):
            kept = (*earlier, latest) if latest.number in _needed(job) else earlier
            return replace(job, revisions=(*kept, new), done_to=done_to)
    if len(job.revisions) - len(_needed(job)) >= UNDECIDED_MAX:
        raise ConflictError(
            f"job {job.name} has {UNDECIDED_MAX} definitions with times that were not decided: is an instance running?"
        )
    return replace(job, revisions=(*job.revisions, Revision(number=latest.number + 1, since=since, spec=spec)))


def _has_times(revision: Revision, after: int, until: int) -> bool:
    following = revision.spec.schedule.next_after(after)
    return following is not None and following <= until


def _needed(job: Job) -> set[int]:
    """The revisions of runs that are active, wait, or are to be repeated."""
    return {row.revision for row in (*job.active, *job.queued, *(one.row for one in job.repeats))}


def paused(job: Job, now_s: float) -> Job:
    """The job, paused from now on. Raises ConflictError when it is."""
    if job.is_paused:
        raise ConflictError(f"job {job.name} is paused already")
    if len(job.pauses) >= UNDECIDED_MAX:
        raise ConflictError(f"job {job.name} has {UNDECIDED_MAX} pauses that were not decided: is an instance running?")
    return replace(job, pauses=(*job.pauses, (max(int(now_s), job.done_to), OPEN)))


def resumed(job: Job, now_s: float) -> Job:
    """The job, paused no longer; the times of the pause become one row. Raises ConflictError if it is not paused."""
    if not job.is_paused:
        raise ConflictError(f"job {job.name} is not paused")
    *earlier, (begun, _) = job.pauses
    return replace(job, pauses=(*earlier, (begun, max(begun, int(now_s)))))


def requested(job: Job, now_s: float) -> Job:
    """The job with one manual run more, which starts whatever else runs. Its time is a second of its own."""
    if len(job.requested) >= REQUESTED_MAX:
        raise ConflictError(
            f"job {job.name} has {REQUESTED_MAX} manual runs that have not started: is an instance running?"
        )
    at = max(int(now_s), job.requested_last + 1)
    return replace(job, requested=(*job.requested, at), requested_last=at)


def retried(job: Job, failed: Sequence[Row], now_s: float) -> Plan:
    """Repeat failed runs: at once, whatever else runs, and with the definition that the job has now."""
    if len(job.repeats) + len(failed) > REPEATS_MAX:
        raise ConflictError(
            f"job {job.name} has {len(job.repeats)} runs to be repeated, and takes up to {REPEATS_MAX}: is an instance "
            "running?"
        )
    again = (Repeat(row=replace(row, revision=job.revision), at=now_s) for row in failed)
    return Plan(job=replace(job, repeats=(*job.repeats, *again)), settled=tuple(failed), due=now_s)


def dismissed(job: Job, failed: Sequence[Row], now_s: float) -> Plan:
    """Forget that runs used up their attempts; the history still has them."""
    return replace(undecided(job, now_s), settled=tuple(failed))


def stopped(job: Job, records: Iterable[RunRecord], now_s: float) -> Plan:
    """Have active runs end: their URLs are refused, and their owner sees that nothing of them is left."""
    return replace(undecided(job, now_s), starts=tuple(replace(one, stopped=ENDED) for one in records))


def next_time(job: Job, after_s: float) -> int | None:
    """The next nominal time that a run may start for; None when there is none, or the job is paused."""
    if job.is_paused:
        return None
    after = max(int(after_s), job.done_to)
    if job.pauses:
        after = max(after, job.pauses[-1][1])
    return job.spec.schedule.next_after(after)


class _Draft:
    """A plan in the making."""

    def __init__(self, job: Job, now_s: float, settings: JobSettings) -> None:
        self._job = job
        self._settings = settings
        self._counted = 0  # the revision whose times were counted for that
        self._is_catching_up = False  # what passed while no instance ran is decided: these times wait for each other
        self._now_s = now_s
        self._now = math.floor(now_s)
        self._done_to = job.done_to
        self._pauses = list(job.pauses)
        self._active = {row.run: row for row in job.active}
        self._queued = list(job.queued)
        self._repeats = list(job.repeats)
        self._requested = list(job.requested)
        self._newest = job.newest
        self._put: dict[float, Row] = {}
        self._starts: list[RunRecord] = []
        self._ends: list[str] = []
        self._due: float | None = None

    def finished(self) -> Plan:
        """Decide all that is due, and return the plan."""
        self._start_waiting()
        for _ in range(STEPS_MAX + self._settings.catchup_max):
            if not self._decide():
                break
        else:
            self._due = self._now_s  # there is more
        repeats = [one.at for one in self._repeats] if self._has_room else []  # else the end of a run is waited for
        dues = [due for due in (self._due, *repeats) if due is not None]
        return Plan(
            job=self._new_job(), put=tuple(self._put.values()), starts=tuple(self._starts), ends=tuple(self._ends),
            due=min(dues, default=None),
        )  # fmt: skip

    def undecided(self) -> Plan:
        """The plan without deciding: somebody looks at once."""
        plan = undecided(self._new_job(), self._now_s)
        return replace(plan, put=tuple(self._put.values()), ends=tuple(self._ends))

    def _new_job(self) -> Job:
        rows = [*self._active.values(), *self._queued, *(one.row for one in self._repeats)]
        needed = {row.revision for row in rows}
        in_force = self._revision()[0]
        revisions = tuple(r for r in self._job.revisions if r.number in needed or r.number >= in_force.number)
        return replace(
            self._job, revisions=revisions, done_to=self._done_to, pauses=tuple(self._pauses), newest=self._newest,
            active=tuple(self._active.values()), queued=tuple(self._queued), repeats=tuple(self._repeats),
            requested=tuple(self._requested),
        )  # fmt: skip

    # Nominal times, one after another.

    def _revision(self) -> tuple[Revision, float]:
        """The revision in force for the next nominal time, and until when it is."""
        revisions = self._job.revisions
        at = max((i for i, r in enumerate(revisions) if r.since <= self._done_to), default=0)
        return revisions[at], revisions[at + 1].since if at + 1 < len(revisions) else math.inf

    def _decide(self) -> bool:
        """Decide the next nominal time, or a range of them; False when none is due. Then `due` is known."""
        self._due = None
        revision, until = self._revision()
        while self._pauses and self._pauses[0][1] != OPEN and self._pauses[0][1] <= self._done_to:
            self._pauses.pop(0)
        if self._pauses and self._pauses[0][0] <= self._done_to:
            return self._pass_over(revision, until, self._pauses[0][1])
        if self._pauses:
            until = min(until, self._pauses[0][0])
        horizon = math.floor(min(until, self._now))
        schedule = revision.spec.schedule
        nominal = schedule.next_after(self._done_to)
        if nominal is None or nominal > until:
            if until > self._now:
                self._due = until if math.isfinite(until) else None
                return False
            self._done_to = int(until)
            return True
        fire = nominal + schedule.jitter_of(self._job.id, nominal)
        if fire > self._now_s:
            self._due = fire
            return False
        if (limit := self._now_s - _late_s(revision.spec, nominal)) > fire:
            sure = max(nominal, min(horizon, math.floor(limit - schedule.jitter_s)))
            self._miss(revision, sure, State.MISSED_WINDOW, "")
        elif (end := self._beyond_catchup(revision, nominal, fire, horizon)) is not None:
            reason = f"of the times that passed, the newest {self._settings.catchup_max} run"
            self._miss(revision, end, State.MISSED_WINDOW, reason)
        elif revision.spec.catchup == "latest" and (later := self._superseded_to(schedule, nominal, horizon)):
            self._miss(revision, later, State.MISSED_WINDOW, "a later one was due")
        else:
            self._take(revision, nominal)
        return True

    def _pass_over(self, revision: Revision, until: float, end: int) -> bool:
        """Nominal times of a pause; one that goes on is decided when it ends."""
        if end == OPEN:
            return False
        end = int(min(end, until))
        if end > self._now:  # a clock was set back
            self._due = float(end)
            return False
        self._miss(revision, end, State.PAUSED, "")
        return True

    def _beyond_catchup(self, revision: Revision, nominal: int, fire: float, horizon: int) -> int | None:
        """The last nominal time that is not caught up with, because later ones fill the room; None: there is none.

        All times that are due with one that is late are caught up with: they wait for each other. Late is what is not
        on time, and what is decided when the next one is due, too: nobody was there to decide it.
        """
        spec = revision.spec
        if spec.catchup != "all" or self._counted == revision.number:
            return None
        following = spec.schedule.next_after(nominal)
        is_next_due = following is not None and following + spec.schedule.jitter_s <= self._now_s
        if not (self._is_catching_up or is_next_due or self._now_s - fire > _on_time_s(spec.schedule, nominal)):
            return None
        self._is_catching_up, self._counted = True, revision.number
        room = self._settings.catchup_max - len(self._queued)
        last = min(horizon, math.floor(self._now_s - spec.schedule.jitter_s))
        if room <= 0:
            return max(nominal, last)
        reach = 64
        while reach < last - nominal and spec.schedule.span(last - reach, last).count <= room:
            reach *= 2
        newest = deque(spec.schedule.times(max(nominal - 1, last - reach), last), maxlen=room + 1)
        return newest[0] if len(newest) > room else None

    def _superseded_to(self, schedule: Schedule, nominal: int, horizon: int) -> int | None:
        """The last nominal time before the latest that is due; None when this is the latest."""
        due = schedule.span(nominal, min(horizon, math.floor(self._now_s - schedule.jitter_s)))
        return None if due.last is None else due.last - 1

    def _miss(self, revision: Revision, end: int, state: State, reason: str) -> None:
        """All nominal times up to `end` were missed, as far as one step counts; `done_to` is where it stopped."""
        span = revision.spec.schedule.span(self._done_to, end)
        self._done_to = end if span.is_complete else span.reached
        if span.first is None or span.last is None:
            return
        row = Row(
            nominal=span.first, to=span.last, count=span.count, state=state, revision=revision.number,
            picked_at=self._now_s, reason=reason,
        )  # fmt: skip
        self._add_gap(row)

    def _add_gap(self, row: Row) -> None:
        """Add a row of misses, or extend the newest row if it is of the same kind."""
        last = self._newest
        if last and (last.state, last.revision, last.reason) == (row.state, row.revision, row.reason):
            row = replace(row, nominal=last.nominal, count=last.count + row.count)
        self._store(row)
        self._newest = row

    def _take(self, revision: Revision, nominal: int) -> None:
        """A nominal time is due: start its run, unless an earlier one has not ended."""
        self._done_to = nominal
        row = Row(
            nominal=nominal, to=nominal, count=1, state=State.STARTED, revision=revision.number, picked_at=self._now_s
        )
        overlap, before = revision.spec.overlap, self._before()
        most = self._settings.catchup_max if self._is_catching_up else QUEUED_MAX if overlap == "queue" else 0
        if not before or (overlap == "allow" and self._has_room):
            self._newest = None
            self._start(row)
        elif len(self._queued) < most:
            row = replace(row, state=State.QUEUED)
            self._newest = None
            self._store(row)
            self._queued.append(row)
        elif overlap == "allow":
            self._add_gap(replace(row, state=State.SKIPPED_LIMIT, reason=f"{len(self._active)} runs were active"))
        else:
            reason = f"{most} runs are queued" if most else before
            self._add_gap(replace(row, state=State.SKIPPED_OVERLAP, reason=reason))

    def _before(self) -> str:
        """Which run keeps another one from starting; "": none."""
        if self._active:
            return f"run {next(reversed(self._active))} had not ended"
        if self._repeats:
            return f"run {self._repeats[-1].row.run} is to be repeated"
        return f"the run of {as_iso(self._queued[0].nominal)} was queued" if self._queued else ""

    @property
    def _has_room(self) -> bool:
        """May one more run be active?"""
        return len(self._active) < self._settings.active_max

    # Runs.

    def _start_waiting(self) -> None:
        """Start manual runs, repeats that are due, and the next one of the queue, as far as there is room."""
        while self._requested and self._has_room:
            at = self._requested.pop(0)
            row = Row(
                nominal=at, to=at, count=1, state=State.STARTED, revision=self._job.revision, is_manual=True,
                picked_at=self._now_s,
            )  # fmt: skip
            self._start(row)
        for one in [one for one in self._repeats if one.at <= self._now_s]:
            if self._has_room:
                self._repeats.remove(one)
                self._start(one.row)
        while self._queued and self._may_start(self._queued[0]):
            self._start(self._queued.pop(0))

    def _may_start(self, queued: Row) -> bool:
        if self._job.spec_of(queued.revision).overlap == "allow":
            return self._has_room
        return not self._active and not self._repeats

    def _start(self, row: Row) -> None:
        attempt = row.attempts + 1
        run = run_id(self._job.id, row.revision, row.nominal, attempt=attempt, is_manual=row.is_manual)
        new = replace(
            row, state=State.STARTED, run=run, attempts=attempt, picked_at=self._now_s, started_at=0.0,
            completed_at=0.0, failed_at=0.0, retry_at=0.0, limit="",
        )  # fmt: skip
        self._store(new)
        self._active[run] = new
        spec = self._job.spec_of(row.revision)
        self._starts.append(
            RunRecord(
                run=run, user=self._job.user, name=self._job.name, nominal=row.nominal, started_at=self._now_s,
                spec=spec.run, sitemap=spec.sitemap,
            )
        )  # fmt: skip

    def end(self, result: RunResult) -> None:
        """A run has ended: its row has the figures, or it is repeated."""
        row = self._active.pop(result.run, None)
        if row is None:
            return
        self._ends.append(result.run)
        spec = self._job.spec_of(row.revision)
        state, delays = State.STARTED if result.has_started else State.FAILED_TO_START, retry_delays(spec)
        new = replace(
            row, state=state, started_at=result.started_at, pages=result.pages, errors=result.errors,
            bytes=result.bytes, unchanged=result.unchanged, reason=result.reason,
        )  # fmt: skip
        if result.is_success:
            new = replace(new, completed_at=self._now_s, limit=result.limit)
        elif row.attempts <= spec.retries:
            again = self._now_s + delays[min(row.attempts, len(delays)) - 1]
            new = replace(new, failed_at=self._now_s, retry_at=again)
            self._repeats.append(Repeat(row=new, at=again))
        else:
            new = replace(new, failed_at=self._now_s)
        self._store(new)

    # Runs that the engine lost.

    def recover(self, found: Iterable[FoundRun]) -> None:
        """Give each run that the job does not know a row: the last attempt at each time counts."""
        latest: dict[tuple[int, bool], tuple[RunName, FoundRun]] = {}
        for one in found:
            if (name := name_of(one.run)) is None:
                continue
            other = latest.get((name.nominal, name.is_manual))
            if other is None or other[0].attempt < name.attempt:
                latest[name.nominal, name.is_manual] = name, one
        for (nominal, is_manual), (name, one) in sorted(latest.items()):
            row = Row(
                nominal=nominal, to=nominal, count=1, state=State.STARTED, revision=name.revision, is_manual=is_manual,
                run=one.run, attempts=name.attempt, started_at=one.began, completed_at=one.last,
                pages=one.pages, errors=one.errors, bytes=one.bytes,
            )  # fmt: skip
            if (before := self._row_of(nominal, is_manual=is_manual)) is not None:
                if before.attempts < name.attempt:
                    self._forget(before)
                    self._store(row)
            elif is_manual:
                if nominal > self._job.requested_last or nominal in self._requested:
                    self._requested = [at for at in self._requested if at != nominal]
                    self._store(row)
            elif nominal > self._done_to:
                self._lose(nominal - 1)
                self._done_to, self._newest = nominal, None
                self._store(row)
        asked = (nominal for nominal, is_manual in latest if is_manual)
        self._job = replace(self._job, requested_last=max(self._job.requested_last, *asked, 0))

    def _row_of(self, nominal: int, *, is_manual: bool) -> Row | None:
        """The row of a run that is active, waits, or is to be repeated."""
        rows = (*self._active.values(), *self._queued, *(one.row for one in self._repeats))
        return next((row for row in rows if (row.nominal, row.is_manual) == (nominal, is_manual)), None)

    def _forget(self, row: Row) -> None:
        """A later attempt than this one was made."""
        if self._active.pop(row.run, None):
            self._ends.append(row.run)
        self._queued = [one for one in self._queued if one != row]
        self._repeats = [one for one in self._repeats if one.row != row]

    def _lose(self, end: int) -> None:
        """Nobody knows what became of the nominal times up to this one."""
        while self._done_to < end:
            revision, until = self._revision()
            self._miss(revision, int(min(end, until)), State.UNKNOWN, "")

    def _store(self, row: Row) -> None:
        self._put[row.place] = row


def _late_s(spec: JobSpec, nominal: int) -> float:
    """How late a nominal time may be decided and still start a run, s."""
    return _on_time_s(spec.schedule, nominal) if spec.catchup == "none" else spec.catchup_window_s


def _on_time_s(schedule: Schedule, nominal: int) -> float:
    following = schedule.next_after(nominal)
    least, most = LATE_S
    return most if following is None else max(least, min(most, following - nominal))
