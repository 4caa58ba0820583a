"""Recreates the jobs that the engine lost, from the journals of jobs.

A job comes back as it was last defined. Its history is lost. The newest nominal time that a page in the archive belongs
to was decided, so it is not decided again; what came after it is decided now: missed, or caught up with.

Its definition has a new revision, above all that the journals and the archive know of this job. The same holds for
jobs that are added later under a name that was used before. So no run gets the id of an earlier one.
"""

import contextlib
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from crawler.archive.job_journal import JobJournal, JobLine
from crawler.errors import ConflictError
from crawler.frontier.jobs import Jobs, job_id
from crawler.rules.jobs import OPEN, Job
from crawler.rules.runs import job_of, nominal_of, revision_of
from crawler.runtime.clock import wall_s


class Newest:
    """The newest revision and nominal time (wall clock, s) of each job, as the ids of its runs tell."""

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}
        self.nominal: dict[str, int] = {}

    def note(self, run: str) -> None:
        """A page of this run is in the archive."""
        job, number, nominal = job_of(run), revision_of(run), nominal_of(run)
        if number is not None:
            self.revisions[job] = max(number, self.revisions.get(job, 0))
        if nominal is not None:
            self.nominal[job] = max(nominal, self.nominal.get(job, 0))


async def restore_jobs(jobs: Jobs, journals: Sequence[JobJournal], newest: Newest) -> int:
    """Recreate those that the engine does not have; how many.

    Raises EngineError, and ArchiveError for a journal that can't be read.
    """
    lines = _latest(journals)
    revisions = dict(newest.revisions)
    for line in lines:
        number = job_id(line.user, line.name)
        revisions[number] = max(_number(line), revisions.get(number, 0))
    await jobs.note_removed(revisions)
    restored = 0
    for line in lines:
        if line.removed:
            continue
        number = job_id(line.user, line.name)
        job = _job_of(line, await jobs.first_revision(number), newest.nominal.get(number, 0))
        if (await jobs.read([job.id]))[0] is not None:
            continue
        if key := job.spec.seeds_key:
            await jobs.drop_seeds(job.id, [key])
            for journal in journals:
                for one in journal.read():
                    if one.seeds_key == key:
                        await jobs.keep_seeds(job.id, key, one.seeds)
        with contextlib.suppress(ConflictError):  # somebody else was first
            await jobs.create(job, due=wall_s())
            restored += 1
    if restored:
        await jobs.notify()
    return restored


def _latest(journals: Iterable[JobJournal]) -> list[JobLine]:
    """The last line of each job; earlier revisions lost against later ones, whichever folder they are in."""
    found: dict[tuple[str, str], JobLine] = {}
    for journal in journals:
        for name, line in _latest_of(journal).items():
            before = found.get(name)
            if before is None or (_number(line), line.removed) >= (_number(before), before.removed):
                found[name] = line
    return list(found.values())


def _latest_of(journal: JobJournal) -> dict[tuple[str, str], JobLine]:
    found: dict[tuple[str, str], JobLine] = {}
    for line in journal.read():
        before = found.get((line.user, line.name))
        if line.revision is not None and (before is None or before.removed or _number(line) >= _number(before)):
            found[line.user, line.name] = line
    return found


def _number(line: JobLine) -> int:
    assert line.revision is not None
    return line.revision.number


def _job_of(line: JobLine, number: int, newest: int) -> Job:
    """The job with this revision. `newest`: nominal time of a run."""
    assert line.revision is not None
    done_to = max(line.revision.since, newest)
    job = Job(
        id=job_id(line.user, line.name), user=line.user, name=line.name, created_at=line.created_at,
        revisions=(replace(line.revision, number=number),), done_to=done_to,
    )  # fmt: skip
    return replace(job, pauses=((done_to, OPEN),)) if line.paused else job
