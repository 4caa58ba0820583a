"""The jobs of a crawl in the engine: definitions, what is due, their history, their seeds.

A job is in the partition of its id, which follows from its user and name: so a name is there once, and found without a
look-up. The crawl-wide list of names serves for listing alone. A name in it without a job is not listed.
"""

import secrets
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import ConflictError, EngineError, NotMetError
from crawler.frontier.arguments import FenceArgs, JobChange
from crawler.frontier.codec import pack, pairs_of
from crawler.frontier.keys import Keys
from crawler.frontier.owner import Fence
from crawler.rules.job_plan import Plan
from crawler.rules.job_runs import JOB_DIGITS, base36, home_of
from crawler.rules.jobs import FAILED_MAX, Job, Outcome, Revision, Row, seed_blocks

REVISIONS_MAX = 100  # definitions of a job that are kept
DUE_MAX = 64  # jobs of a partition that one look reads
LIST_SEPARATOR = "\x00"  # in the crawl-wide list: user, name, id

_encode = msgspec.json.Encoder().encode
job_from = msgspec.json.Decoder(Job)
row_from = msgspec.json.Decoder(Row)
revision_from = msgspec.json.Decoder(Revision)
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
        return [row_from.decode(one) for one in raw]

    async def revisions(self, job: str) -> dict[int, Revision]:
        """All definitions that a job has had, by their numbers."""
        raw = await self._engine.command("HGETALL", self._keys.of(self.home_of(job), f"revisions:{job}"))
        return {int(number): revision_from.decode(text) for number, text in pairs_of(raw)}

    async def failed(self, jobs: Sequence[str]) -> list[list[Row]]:
        """The runs of each of these jobs that used up their attempts, newest first: the dead letters of jobs."""
        found = await self._engine.commands([("ZREVRANGE", self._failed_key(job), 0, -1) for job in jobs])
        return [[row_from.decode(one) for one in rows] for rows in found]

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
    return StoredJob(job_from.decode(text), nonce.decode())


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
