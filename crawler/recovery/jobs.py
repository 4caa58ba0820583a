"""Recreates what the engine lost of jobs, from the journals of jobs and from the pages of their runs.

A job comes back as it was last defined. Its history has a row for each run that has pages in the archive, and rows
for the times between them; how these runs ended is not known. Nothing up to the newest of them is decided again; what
came after it is decided now: missed, or caught up with. The same for a job of an engine that fell back: what it knows
stays, and what it forgot is added. So no run is triggered twice.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.job_journal import JobJournal, JobLine
from crawler.errors import ConflictError
from crawler.frontier.jobs import Changed, Jobs, job_id
from crawler.recovery.page_book import PageBook
from crawler.rules.job_plan import FoundRun, Plan, recovered
from crawler.rules.jobs import OPEN, Job, Revision
from crawler.runtime.clocks import wall_s

TRIES = 10  # people may change jobs meanwhile


class RestoredJobs(msgspec.Struct, kw_only=True):
    """`jobs`: those that the engine did not have; `runs`: those that got a row of history."""

    jobs: int = 0
    runs: int = 0


class Defined(msgspec.Struct, frozen=True, kw_only=True):
    """What the journals have of a job. `lines`: of the one that there is now, if there is one."""

    user: str
    name: str
    lines: Sequence[JobLine]
    removed: int  # the highest revision of a job of that name that was removed; 0: none was

    @property
    def id(self) -> str:
        return job_id(self.user, self.name)

    @property
    def newest(self) -> int:
        """The highest revision that is known of any job of that name."""
        return max((self.removed, *map(_number, self.lines)))

    @property
    def last(self) -> JobLine:
        """The definition in force. A later line of an earlier definition lost against it."""
        return max(reversed(self.lines), key=_number)

    @property
    def revisions(self) -> tuple[Revision, ...]:
        known = {_number(line): line.revision for line in self.lines if line.revision is not None}
        return tuple(known[number] for number in sorted(known))

    def new_job(self, least: int) -> Job:
        """The job without any history. Its revision is at least that one: others had, or have, those below."""
        *earlier, last = self.revisions
        revisions = (*earlier, replace(last, number=max(last.number, least)))
        return Job(
            id=self.id, user=self.user, name=self.name, created_at=self.last.created_at, revisions=revisions,
            done_to=revisions[0].since,
        )  # fmt: skip


async def restore_jobs(jobs: Jobs, journals: Sequence[JobJournal], book: PageBook) -> RestoredJobs:
    """Recreate jobs, and add to their histories what the book knows. Raises EngineError, and ArchiveError for a journal
    that can't be read.
    """
    report = RestoredJobs()
    defined = {one.id: one for one in _defined(journals)}
    known = {*defined, *book.jobs()}
    newest = dict[str, int]()
    for job in sorted(known):
        found, one = book.runs_of(job, jobs.rows_max), defined.get(job)
        ran = book.revision_of(job)
        newest[job] = max(ran, one.newest if one else 0)
        is_new = False
        for _ in range(TRIES):
            with contextlib.suppress(Changed, ConflictError):
                if one is not None and not is_new:
                    is_new = await _restore_definition(jobs, one, journals, ran)
                    report.jobs += is_new
                report.runs += await _restore_runs(jobs, job, one, found, is_new=is_new)
                break
        else:
            raise ConflictError(f"job {job} changed at every try: stop who changes it, and rebuild again")
    await jobs.note_removed(newest)  # those that are not there; so a new one of that name has no run of an earlier one
    if known:
        await jobs.notify()
    return report


async def _restore_definition(jobs: Jobs, defined: Defined, journals: Sequence[JobJournal], newest: int) -> bool:
    """Have the engine know the job as it was last defined; True when it did not know the job. `newest`: the highest
    revision that its runs in the archive had.

    Raises Changed, or ConflictError, when somebody else changed it meanwhile.
    """
    (stored,) = await jobs.read([defined.id])
    if stored is not None and stored.job.revision <= defined.removed:
        await jobs.remove(stored)
        stored = None
    if not defined.lines:
        return False
    if stored is None:
        await _restore_seeds(jobs, defined, journals)
        beyond = newest + 1 if newest > _number(defined.last) else 0  # a definition that no journal has
        await jobs.create(defined.new_job(max(beyond, await jobs.first_revision(defined.id))), due=wall_s())
        return True
    newer = tuple(revision for revision in defined.revisions if revision.number > stored.job.revision)
    if newer:
        await _restore_seeds(jobs, defined, journals)
        job = replace(stored.job, revisions=(*stored.job.revisions, *newer))
        await jobs.change(stored, Plan(job=job, due=wall_s()), None, new_revision=True)
    return False


async def _restore_runs(
    jobs: Jobs, job: str, defined: Defined | None, found: Sequence[FoundRun], *, is_new: bool
) -> int:
    """Add runs of which there are pages to the history of a job; how many. Raises Changed."""
    (stored,) = await jobs.read([job])
    if stored is None:
        return 0  # nobody knows how it was defined, or it was removed
    made = recovered(stored.job, found, wall_s())
    if defined and defined.lines and (is_new or _number(defined.last) >= made.job.revision):
        made = replace(made, job=_paused(made.job, is_paused=defined.last.paused))
    if made.job != stored.job or made.put:
        await jobs.change(stored, made, None)
    return sum(bool(row.run) for row in made.put)


def _paused(job: Job, *, is_paused: bool) -> Job:
    """The job, paused or not from now on."""
    if job.is_paused == is_paused:
        return job
    return replace(job, pauses=(*job.pauses, (job.done_to, OPEN)) if is_paused else job.pauses[:-1])


async def _restore_seeds(jobs: Jobs, defined: Defined, journals: Sequence[JobJournal]) -> None:
    revision = defined.last.revision
    if revision is None or not (key := revision.spec.seeds_key):
        return
    await jobs.drop_seeds(defined.id, [key])
    for journal in journals:
        for one in journal.read():
            if one.seeds_key == key:
                await jobs.keep_seeds(defined.id, key, one.seeds)


def _defined(journals: Iterable[JobJournal]) -> Iterator[Defined]:
    """Each job of these journals once. The lines of a job that was removed count no more, in whatever journal: one that
    was added later has higher revisions.
    """
    lines: dict[tuple[str, str], list[JobLine]] = {}
    removed: dict[tuple[str, str], int] = {}
    for journal in journals:
        for line in journal.read():
            key = line.user, line.name
            if line.removed:
                removed[key] = max(_number(line), removed.get(key, 0))
            elif line.revision is not None:
                lines.setdefault(key, []).append(line)
    for user, name in sorted({*lines, *removed}):
        before = removed.get((user, name), 0)
        left = [line for line in lines.get((user, name), ()) if _number(line) > before]
        yield Defined(user=user, name=name, lines=left, removed=before)


def _number(line: JobLine) -> int:
    return line.revision.number if line.revision else 0
