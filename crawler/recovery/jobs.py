"""Recreates the jobs that the engine lost, from the journals of jobs.

A job comes back as it was last defined. Its history is lost. The newest nominal time that a page in the archive belongs
to was decided, so it is not decided again; what came after it is decided now: missed, or caught up with.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from crawler.archive.job_journal import JobJournal, JobLine
from crawler.errors import ConflictError
from crawler.frontier.jobs import Jobs, job_id
from crawler.rules.jobs import OPEN, Job
from crawler.runtime.clock import wall_s


async def restore_jobs(jobs: Jobs, journals: Sequence[JobJournal], newest: Mapping[str, int]) -> int:
    """Recreate those that the engine does not have; how many. `newest`: nominal times of runs, by ids of jobs.

    Raises EngineError, and ArchiveError for a journal that can't be read.
    """
    lines = _latest(line for journal in journals for line in journal.read() if line.revision is not None)
    restored = 0
    for line in lines:
        job = _job_of(line, newest)
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


def _latest(lines: Iterable[JobLine]) -> list[JobLine]:
    """The last line of each job; later lines of an earlier definition lost against it."""
    found: dict[tuple[str, str], JobLine] = {}
    for line in lines:
        before = found.get((line.user, line.name))
        if before is None or before.removed or _number(line) >= _number(before):
            found[line.user, line.name] = line
    return [line for line in found.values() if not line.removed]


def _number(line: JobLine) -> int:
    assert line.revision is not None
    return line.revision.number


def _job_of(line: JobLine, newest: Mapping[str, int]) -> Job:
    assert line.revision is not None
    number = job_id(line.user, line.name)
    done_to = max(line.revision.since, newest.get(number, 0))
    job = Job(
        id=number, user=line.user, name=line.name, created_at=line.created_at, revisions=(line.revision,),
        done_to=done_to,
    )  # fmt: skip
    return replace(job, pauses=((done_to, OPEN),)) if line.paused else job
