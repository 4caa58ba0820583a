"""Reads jobs with all that is stored of each, as it was at one moment: for audits. Reads only."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.jobs import job_from, revision_from, row_from
from crawler.frontier.keys import Keys
from crawler.rules.job_runs import job_of
from crawler.rules.jobs import Job, Revision, Row

LOOKS_MAX = 5  # at a job that is changed meanwhile
BATCH = 50  # jobs; each with up to `jobs.history_rows` rows


class JobBook(msgspec.Struct, frozen=True, kw_only=True):
    """A job (None: it is gone, and runs of it are not), its history by nominal time, its definitions by number.

    `runs`: those with a record, `left`: runs of the history that have ended, were closed, and still have a key.
    """

    id: str
    job: Job | None
    rows: Sequence[Row] = ()
    revisions: dict[int, Revision] = {}
    runs: frozenset[str]
    left: tuple[str, ...] = ()


class JobBooks:
    """The jobs of one crawl. Every call raises EngineError."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def read(self) -> AsyncIterator[list[JobBook | str]]:
        """All jobs, some at a time; in the place of one that changed at every look, its id."""
        for partition in range(self._partitions):
            stored, runs = await self._engine.commands(
                [("HKEYS", self._keys.of(partition, "jobs")), ("HKEYS", self._keys.of(partition, "runs"))]
            )
            ids = dict.fromkeys(sorted(raw.decode() for raw in stored))
            ids |= dict.fromkeys(job_of(raw.decode()) for raw in runs)  # a job may be gone, and its runs not
            names = list(ids)
            for start in range(0, len(names), BATCH):
                yield [one for one in await self._some(partition, names[start : start + BATCH]) if one is not None]

    async def _some(self, partition: int, ids: Sequence[str]) -> list[JobBook | str | None]:
        found: dict[str, JobBook | None] = {}
        for _ in range(LOOKS_MAX):
            for job in [one for one in ids if one not in found]:
                is_steady, book = await self._one(partition, job)
                if is_steady:
                    found[job] = book
            if len(found) == len(ids):
                break
        return [found.get(job, job) for job in ids]

    async def _one(self, partition: int, job: str) -> tuple[bool, JobBook | None]:
        """Was it unchanged from the first command to the last? Each change of a job gives it another mark; an engine
        that was restarted meanwhile may have gone back to an earlier one.
        """
        run_id = self._engine.run_id_of(self._keys.meta(partition))
        jobs, runs = self._keys.of(partition, "jobs"), self._keys.of(partition, "runs")
        before, rows, revisions, active, closing, after = await self._engine.commands([
            ("HGET", jobs, job), ("ZRANGE", self._keys.of(partition, f"ledger:{job}"), 0, -1),
            ("HGETALL", self._keys.of(partition, f"revisions:{job}")), ("HKEYS", runs),
            ("SMEMBERS", self._keys.of(partition, "closing")), ("HGET", jobs, job),
        ])  # fmt: skip
        if before != after or self._engine.run_id_of(self._keys.meta(partition)) != run_id:
            return False, None
        mine = frozenset(run for run in (raw.decode() for raw in active) if job_of(run) == job)
        if before is None:
            return True, JobBook(id=job, job=None, runs=mine) if mine else None
        history = [row_from.decode(raw) for raw in rows]
        ended = sorted({row.run for row in history if row.run} - mine - {raw.decode() for raw in closing})
        kept = await self._engine.commands([("EXISTS", self._keys.of(partition, f"touched:{run}")) for run in ended])
        return True, JobBook(
            id=job, job=job_from.decode(before.partition(b" ")[2]), rows=history,
            revisions={int(number): revision_from.decode(text) for number, text in pairs_of(revisions)},
            runs=mine, left=tuple(run for run, is_there in zip(ended, kept, strict=True) if is_there),
        )  # fmt: skip
