"""The jobs of a crawl in the engine: definitions, what is due, their history, their seeds.

A job is in the partition of its id, which follows from its user and name: so a name is there once, and found without a
look-up. The crawl-wide list of names serves for listing alone. A name in it without a job is not listed.
"""

import secrets
import zlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import ConflictError, EngineError, NotMetError
from crawler.frontier.arguments import FenceArgs, JobChange, TouchArgs
from crawler.frontier.codec import pack, pairs_of
from crawler.frontier.owner import Fence
from crawler.frontier.record import Keys
from crawler.rules.job_plan import Plan
from crawler.rules.jobs import (
    FAILED_MAX,
    JOB_DIGITS,
    Job,
    Outcome,
    Revision,
    Row,
    RunCounts,
    RunRecord,
    base36,
    home_of,
    job_of,
    seed_blocks,
)

REVISIONS_MAX = 100  # definitions of a job that are kept
DUE_MAX = 64  # jobs of a partition that one look reads
LIST_SEPARATOR = "\x00"  # in the crawl-wide list: user, name, id

_encode = msgspec.json.Encoder().encode
_job = msgspec.json.Decoder(Job)
_row = msgspec.json.Decoder(Row)
_revision = msgspec.json.Decoder(Revision)
_urls = msgspec.json.Decoder(list[str])


class StoredJob(msgspec.Struct, frozen=True):
    """A job, and the mark by which a change is refused if somebody changed it meanwhile."""

    job: Job
    nonce: str


class Changed(Exception):
    """Somebody else changed the job since it was read."""


class NameTaken(ConflictError):
    """The name of a new job is that of another."""

    def __init__(self, user: str, name: str) -> None:
        super().__init__(f"there is a job {name!r}{_of(user)} already: edit it, or use another name")


def job_id(user: str, name: str) -> str:
    """The id of a job: the same for each user and name."""
    digest = blake2b(f"{user}{LIST_SEPARATOR}{name}".encode(), digest_size=8, person=b"job").digest()
    return base36(int.from_bytes(digest, "big") % 36**JOB_DIGITS).rjust(JOB_DIGITS, "0")


class Jobs:
    """The jobs of one crawl. Every call raises EngineError."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int, *, rows_max: int) -> None:
        """`rows_max`: rows of history that each job keeps."""
        self._engine = engine
        self._keys = keys
        self._partitions = partitions
        self.rows_max = rows_max

    def home_of(self, job: str) -> int:
        """The partition of a job, by the id of it or of one of its runs."""
        return home_of(job, self._partitions)

    async def find(self, user: str, name: str) -> StoredJob:
        """A job by its name. Raises NotMetError when there is none."""
        stored = (await self.read([job_id(user, name)]))[0]
        if stored is None:
            raise NotMetError(f"there is no job {name!r}{_of(user)}: 'crawler jobs list' has those there are")
        if (stored.job.user, stored.job.name) != (user, name):
            raise ConflictError(f"the name {name!r} has the same id as the job {stored.job.name!r}: use another name")
        return stored

    async def read(self, ids: Sequence[str]) -> list[StoredJob | None]:
        """Jobs by their ids."""
        commands = [("HGET", self._keys.of(self.home_of(one), "jobs"), one) for one in ids]
        return [_stored(raw) for raw in await self._engine.commands(commands)]

    async def first_revision(self, job: str) -> int:
        """The number of the first revision of a new job: no job that was removed ever had it."""
        return int(await self._engine.command("GET", self._keys.of(self.home_of(job), "removed")) or 0) + 1

    async def note_removed(self, revisions: Mapping[str, int]) -> None:
        """Note the newest revisions of jobs that are not there any more: new ones begin above them."""
        calls = [self._call(None, _removal(job, "", number)) for job, number in revisions.items()]
        await self._engine.run_all(calls)

    async def create(self, job: Job, *, due: float | None) -> None:
        """Store a new job with a `first_revision`. Raises NameTaken, and Changed when its revision is taken."""
        await self._engine.command("ZADD", self._keys.jobs, 0, _listed(job))
        await self.notify()  # before, too: without any job, nobody ever looks for one
        try:
            await self.change(StoredJob(job, ""), Plan(job=job, due=due), None, new_revision=True)
        except Changed:
            if (await self.read([job.id]))[0] is None:
                raise
            await self.find(job.user, job.name)  # tells of ids that are alike
            raise NameTaken(job.user, job.name) from None

    async def change(
        self, read: StoredJob, plan: Plan, fence: Fence | None, *, new_revision: bool = False
    ) -> StoredJob:
        """Store what a step changed, all or nothing. Raises Changed; EngineError when the outcome is unknown.

        `fence`: that of the owner of the job's partition, None for people.
        """
        (answer,) = await self.change_all([(read, plan, fence)], new_revisions=new_revision)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def change_all(
        self, steps: Sequence[tuple[StoredJob, Plan, Fence | None]], *, new_revisions: bool = False
    ) -> list[StoredJob | Changed | EngineError]:
        """Many steps at once; in the place of one that was not stored, why not.

        A step whose fence is gone counts as Changed: the job is another session's to decide.
        """
        nonces = [secrets.token_hex(4) for _ in steps]
        calls = [
            self._call(fence, self._args(read, plan, nonce, new_revisions))
            for (read, plan, fence), nonce in zip(steps, nonces, strict=True)
        ]
        replies = await self._engine.run_repeatable(calls)
        answers: list[StoredJob | Changed | EngineError] = []
        for (_, plan, _), nonce, raw in zip(steps, nonces, replies, strict=True):
            if isinstance(raw, EngineError):
                answers.append(raw)
            else:
                answers.append(StoredJob(plan.job, nonce) if raw[0] == b"OK" else Changed(plan.job.name))
        return answers

    def _call(self, fence: Fence | None, change: JobChange) -> Call:
        head = FenceArgs("", 0, 0) if fence is None else FenceArgs(fence.session, fence.epoch, fence.now_ms)
        return Call("change_job", (self._keys.meta(self.home_of(change.job)),), (*head, pack(change)))

    def _args(self, read: StoredJob, plan: Plan, nonce: str, new_revision: bool) -> JobChange:
        job = plan.job
        return JobChange(
            job=job.id, seen=read.nonce, nonce=nonce, definition=_encode(job).decode(),
            due_ms=-1 if plan.due is None else int(plan.due * 1000), revision=job.revision, put=_placed(plan.put),
            starts=[value for record in plan.starts for value in (record.run, _encode(record).decode())],
            ends=list(plan.ends), failed=_placed(row for row in plan.put if row.outcome is Outcome.FAILED),
            settled=[row.place for row in plan.settled],
            revisions=[value for one in job.revisions for value in (one.number, _encode(one).decode())]
            if new_revision
            else [],
            seed_keys=[], rows_max=self.rows_max, failed_max=FAILED_MAX,
        )  # fmt: skip

    async def remove(self, read: StoredJob) -> None:
        """Remove a job with its history and its seeds; its active runs end. Raises Changed."""
        job = read.job
        kept = {revision.spec.seeds_key for revision in (await self.revisions(job.id)).values()} - {""}
        change = _removal(job.id, read.nonce, job.revision)._replace(
            ends=[row.run for row in job.active], seed_keys=[self._seeds_key(job.id, key) for key in kept]
        )
        (answer,) = await self._engine.run_repeatable([self._call(None, change)])
        if isinstance(answer, EngineError):
            raise answer
        if answer[0] != b"OK":
            raise Changed(job.name)
        await self._engine.command("ZREM", self._keys.jobs, _listed(job))

    # What is due.

    async def notify(self) -> None:
        """Tell the owners that a job was changed by somebody else: each looks within a second."""
        await self._engine.command("HINCRBY", self._keys.crawl, "jobs", 1)

    async def first_due(self, partitions: Iterable[int]) -> dict[int, float]:
        """When something is due next in each partition (wall clock, s); those where nothing is are left out."""
        wanted = list(partitions)
        commands = [("ZRANGE", self._keys.of(p, "jobdue"), 0, 0, "WITHSCORES") for p in wanted]
        raw = await self._engine.commands(commands)
        return {p: float(first[1]) / 1000 for p, first in zip(wanted, raw, strict=True) if first}

    async def due(self, partitions: Sequence[int], now_s: float) -> list[StoredJob]:
        """Jobs of which something is due, some of each partition."""
        commands = [
            ("ZRANGEBYSCORE", self._keys.of(p, "jobdue"), "-inf", int(now_s * 1000), "LIMIT", 0, DUE_MAX)
            for p in partitions
        ]
        ids = [one.decode() for found in await self._engine.commands(commands) for one in found]
        return [stored for stored in await self.read(ids) if stored is not None]

    # Listing and history.

    async def page(self, user: str | None, *, after: str = "", limit: int) -> tuple[list[Job], str]:
        """Jobs by user and name, of one user or of all, and where the next page begins; "" behind the last one."""
        start = f"({after}" if after else f"[{user}{LIST_SEPARATOR}" if user is not None else "-"
        end = "+" if user is None else f"({user}\x01"
        raw = await self._engine.command("ZRANGEBYLEX", self._keys.jobs, start, end, "LIMIT", 0, limit + 1)
        names = [name.decode() for name in raw]
        found = await self.read([name.rpartition(LIST_SEPARATOR)[2] for name in names[:limit]])
        return [one.job for one in found if one is not None], names[limit - 1] if len(names) > limit else ""

    async def count(self) -> int:
        """How many names are listed."""
        return int(await self._engine.command("ZCARD", self._keys.jobs))

    async def history(self, job: str, *, before: int | None = None, limit: int) -> list[Row]:
        """Rows of a job, newest first; `before`: only those with an earlier nominal time (wall clock, s)."""
        most = "+inf" if before is None else f"({before}"
        key = self._keys.of(self.home_of(job), f"ledger:{job}")
        raw = await self._engine.command("ZREVRANGEBYSCORE", key, most, "-inf", "LIMIT", 0, limit)
        return [_row.decode(one) for one in raw]

    async def revisions(self, job: str) -> dict[int, Revision]:
        """All definitions that a job has had, by their numbers."""
        raw = await self._engine.command("HGETALL", self._keys.of(self.home_of(job), f"revisions:{job}"))
        return {int(number): _revision.decode(text) for number, text in pairs_of(raw)}

    async def failed(self, jobs: Sequence[str]) -> list[list[Row]]:
        """The runs of each of these jobs that used up their attempts, newest first: the dead letters of jobs."""
        found = await self._engine.commands([("ZREVRANGE", self._failed_key(job), 0, -1) for job in jobs])
        return [[_row.decode(one) for one in rows] for rows in found]

    async def failed_counts(self, jobs: Sequence[str]) -> list[int]:
        """How many there are of each of these jobs."""
        return [int(n) for n in await self._engine.commands([("ZCARD", self._failed_key(job)) for job in jobs])]

    def _failed_key(self, job: str) -> str:
        return self._keys.of(self.home_of(job), f"failed:{job}")

    # Seeds.

    def _seeds_key(self, job: str, key: str) -> str:
        return self._keys.of(self.home_of(job), f"seeds:{job}:{key}")

    async def keep_seeds(self, job: str, key: str, urls: Iterable[str]) -> int:
        """Keep seeds beside a job under a new name, before the definition that has this name; how many."""
        name, n = self._seeds_key(job, key), 0
        for block in seed_blocks(urls):
            await self._engine.command("RPUSH", name, zlib.compress(_encode(block)))
            n += len(block)
        return n

    async def drop_seeds(self, job: str, keys: Iterable[str]) -> None:
        """Drop seeds that no definition needs any more."""
        for key in keys:
            await self._engine.command("UNLINK", self._seeds_key(job, key))

    async def drop_old(self, job: Job) -> None:
        """Drop what no run of a job needs any more: seeds of former definitions, and the oldest of these."""
        needed = {revision.spec.seeds_key for revision in job.revisions}
        known = await self.revisions(job.id)
        await self.drop_seeds(job.id, {one.spec.seeds_key for one in known.values()} - needed - {""})
        old = [number for number in known if number <= job.revision - REVISIONS_MAX]
        if old:
            await self._engine.command("HDEL", self._keys.of(self.home_of(job.id), f"revisions:{job.id}"), *old)

    async def seeds(self, job: str, key: str) -> AsyncIterator[list[str]]:
        """The seeds that are kept under a name, in their order, a block at a time."""
        at = 0
        while (raw := await self._engine.command("LINDEX", self._seeds_key(job, key), at)) is not None:
            yield _urls.decode(zlib.decompress(raw))
            at += 1


def _stored(raw: bytes | None) -> StoredJob | None:
    if raw is None:
        return None
    nonce, _, text = raw.partition(b" ")
    return StoredJob(_job.decode(text), nonce.decode())


def _listed(job: Job) -> str:
    return LIST_SEPARATOR.join((job.user, job.name, job.id))


def _placed(rows: Iterable[Row]) -> list[str | float]:
    return [value for row in rows for value in (row.place, _encode(row).decode())]


def _removal(job: str, nonce: str, revision: int) -> JobChange:
    return JobChange(
        job=job, seen=nonce, nonce="", definition="", due_ms=-1, revision=revision, put=[], starts=[], ends=[],
        failed=[], settled=[], revisions=[], seed_keys=[], rows_max=0, failed_max=0,
    )  # fmt: skip


def _of(user: str) -> str:
    return f" of user {user}" if user else ""


# Reads jobs with all that is stored of each, as it was at one moment: for audits. Reads only.

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
        history = [_row.decode(raw) for raw in rows]
        ended = sorted({row.run for row in history if row.run} - mine - {raw.decode() for raw in closing})
        kept = await self._engine.commands([("EXISTS", self._keys.of(partition, f"touched:{run}")) for run in ended])
        return True, JobBook(
            id=job, job=_job.decode(before.partition(b" ")[2]), rows=history,
            revisions={int(number): _revision.decode(text) for number, text in pairs_of(revisions)},
            runs=mine, left=tuple(run for run, is_there in zip(ended, kept, strict=True) if is_there),
        )  # fmt: skip


# Active runs of jobs in the engine: their records, the partitions they touched, their counts, and their end.
#
# What concerns a run as a whole is in the partition of its job (rules/jobs.py home_of). Who writes the records there is
# not known here. A partition is noted as touched before any URL of the run is added to it. So a run costs what its
# partitions cost: when it has ended, each of these is closed, and nothing of the run is left.
#
# Any session may make any of these calls, and repeat them. Each raises EngineError.

_decode = msgspec.json.Decoder(RunRecord).decode
_counts = msgspec.msgpack.Decoder(tuple[int, ...]).decode


class ActiveRun(NamedTuple):
    """`roots`: how many were noted for it."""

    record: RunRecord
    roots: int


class Runs:
    """The runs of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def read(self, runs: Iterable[str]) -> dict[str, RunRecord | None]:
        """The record of each run, with all roots of its scope; None for one that is not active."""
        found: dict[str, RunRecord | None] = {}
        for run, active in (await self.look(runs)).items():
            found[run] = active and with_roots(active.record, await self.roots(run) if active.roots else ())
        return found

    async def look(self, runs: Iterable[str]) -> dict[str, ActiveRun | None]:
        """The same in one go, with the number of noted roots instead of the roots."""
        by_home: dict[int, list[str]] = {}
        for run in dict.fromkeys(runs):
            by_home.setdefault(self.home(run), []).append(run)
        asked = [run for mine in by_home.values() for run in mine]
        commands: list[tuple[object, ...]] = [("HMGET", self._keys.of(p, "runs"), *mine) for p, mine in by_home.items()]
        commands += [("SCARD", self._of(run, "roots")) for run in asked]
        replies = await self._engine.commands(commands)
        records = [raw for row in replies[: len(by_home)] for raw in row]
        return {
            run: None if raw is None else ActiveRun(_decode(raw), int(roots))
            for run, raw, roots in zip(asked, records, replies[len(by_home) :], strict=True)
        }

    async def roots(self, run: str) -> frozenset[str]:
        """The roots that were noted for a run, apart from those in its record."""
        return frozenset(root.decode() for root in await self._engine.command("SMEMBERS", self._of(run, "roots")))

    async def active(self) -> dict[str, RunRecord]:
        """All active runs, by a look at each partition."""
        rows = await self._engine.commands([("HKEYS", self._keys.of(p, "runs")) for p in range(self._partitions)])
        found = await self.read(run.decode() for row in rows for run in row)
        return {run: record for run, record in found.items() if record is not None}

    async def active_count(self) -> int:
        """How many runs are active."""
        counts = await self._engine.commands([("HLEN", self._keys.of(p, "runs")) for p in range(self._partitions)])
        return sum(int(n) for n in counts)

    async def touch(self, run: str, partitions: Iterable[int], roots: Iterable[str] = ()) -> bool:
        """Note that these partitions are to get URLs of the run, and roots of its scope; False when it has ended."""
        return not await self.touch_all({run: partitions}, roots)

    async def touch_all(self, partitions: Mapping[str, Iterable[int]], roots: Iterable[str] = ()) -> set[str]:
        """The same for several runs; those that have ended."""
        noted = sorted(roots)
        calls = [
            Call("touch_run", (self._keys.meta(self.home(run)),), TouchArgs(run, pack(sorted(mine)), pack(noted)))
            for run, mine in partitions.items()
        ]
        replies = await self._engine.run_all(calls)
        return {run for run, (answer,) in zip(partitions, replies, strict=True) if bytes(answer) == b"ENDED"}

    async def touched(self, run: str) -> frozenset[int]:
        """The partitions that have, or had, URLs of the run."""
        return frozenset(int(p) for p in await self._engine.command("SMEMBERS", self._of(run, "touched")))

    async def seen_in(self, run: str, partitions: Iterable[int]) -> set[int]:
        """Those of the partitions that have a seen-set of the run."""
        asked = list(partitions)
        found = await self._engine.commands([("HEXISTS", self._keys.meta(p), f"seen{run}") for p in asked])
        return {p for p, is_there in zip(asked, found, strict=True) if is_there}

    async def counts(self, run: str, partitions: Collection[int]) -> dict[int, RunCounts]:
        """What became of its URLs, by partition. Partitions are read one by one, so the sums are no snapshot."""
        calls = [Call("read_queues", (self._keys.meta(p),), ("counts", run)) for p in partitions]
        replies = await self._engine.run_all(calls)
        return {p: _run_counts(bytes(raw)) for p, (raw,) in zip(partitions, replies, strict=True)}

    async def passes(self, runs: Sequence[str]) -> list[dict[int, RunCounts]]:
        """One pass over each of these runs: the partitions it touched, then its counts in each of them."""
        raw = await self._engine.commands([("SMEMBERS", self._of(run, "touched")) for run in runs])
        touched = [sorted(int(p) for p in members) for members in raw]
        calls = [
            Call("read_queues", (self._keys.meta(p),), ("counts", run))
            for run, mine in zip(runs, touched, strict=True)
            for p in mine
        ]
        replies = iter(await self._engine.run_all(calls))
        return [{p: _run_counts(bytes(next(replies)[0])) for p in mine} for mine in touched]

    async def active_in(self, partitions: Iterable[int]) -> dict[int, list[RunRecord]]:
        """The active runs whose jobs are in these partitions, without the roots that were opened since."""
        wanted = list(partitions)
        raw = await self._engine.commands([("HVALS", self._keys.of(p, "runs")) for p in wanted])
        return {p: [_decode(one) for one in records] for p, records in zip(wanted, raw, strict=True)}

    async def closing_in(self, partitions: Iterable[int]) -> dict[int, list[str]]:
        """Ended runs of these partitions that may have left something."""
        wanted = list(partitions)
        raw = await self._engine.commands([("SMEMBERS", self._keys.of(p, "closing")) for p in wanted])
        return {p: sorted(run.decode() for run in members) for p, members in zip(wanted, raw, strict=True)}

    async def all_closing(self) -> frozenset[str]:
        """Ended runs that may have left something, by a look at each partition."""
        return frozenset(run for runs in (await self.closing_in(range(self._partitions))).values() for run in runs)

    async def close(self, what: Iterable[tuple[str, int]]) -> None:
        """Forget ended runs in these partitions: seen-sets and counts. Nothing is added for them there any more."""
        left = list(what)
        while left:
            calls = [Call("close_run", (self._keys.meta(p),), (run,)) for run, p in left]
            replies = await self._engine.run_all(calls)
            left = [one for one, is_more in zip(left, replies, strict=True) if int(is_more)]

    async def close_everywhere(self, runs: Sequence[str]) -> bool:
        """Forget ended runs, in all partitions that they touched and in those of their jobs. False: try again, as a
        failover may undo what was just done in some.
        """
        raw = await self._engine.commands([("SMEMBERS", self._of(run, "touched")) for run in runs])
        await self.close((run, int(p)) for run, members in zip(runs, raw, strict=True) for p in members)
        touched = {self._keys.meta(int(p)) for members in raw for p in members}
        if self._engine.is_cluster and touched and await self._engine.written(touched) != touched:
            return False
        commands: list[tuple[object, ...]] = []
        for run in runs:
            commands.append(("DEL", self._of(run, "touched"), self._of(run, "roots")))
            commands.append(("SREM", self._keys.of(self.home(run), "closing"), run))
        await self._engine.commands(commands)
        return True

    def home(self, run: str) -> int:
        """The partition of its job."""
        return home_of(run, self._partitions)

    def _of(self, run: str, name: str) -> str:
        return self._keys.of(self.home(run), f"{name}:{run}")


def with_roots(record: RunRecord, roots: Collection[str]) -> RunRecord:
    """The record with these roots, too."""
    more = {*roots} - {*record.roots}
    return msgspec.structs.replace(record, roots=tuple(sorted(more.union(record.roots)))) if more else record


def _run_counts(packed: bytes) -> RunCounts:
    return RunCounts(*_counts(packed)) if packed else RunCounts()
