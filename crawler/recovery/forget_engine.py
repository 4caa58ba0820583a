"""Takes a domain out of the engine. No instance may run meanwhile.

    waiting, deferred, retried, scheduled   dropped, refused as `purged`, by the script of `crawler purge`
    claimed by sessions that are gone       the same, by `restate`
    dead letters                            discarded
    pages, of the crawl and of active runs  unseen again: their fingerprints leave the seen-set, and the totals
    pages of ended runs, and those of which no line is in an index (an older engine)
                                            stay in the totals; how many is noted (forget_queue.lua)
    records of its queues, robots.txt, cookies, names, series, boosts, stops, examples of losses
                                            their keys and members are removed
    seeds, roots of scopes, jobs' seeds     removed
    operator commands, pins, operator log, answers to clients
                                            entries that name it are removed

What a URL counted as when it was refused or dropped stays in the totals of its partition, and its fingerprint in the
seen-set: a digest under the crawl's secret key. Each step may be repeated.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crawler.archive.forget_rest import spec_left
from crawler.crawl.opening import OpenCrawl
from crawler.errors import EngineDown, EngineError
from crawler.frontier.arguments import ForgetQueueArgs
from crawler.frontier.codec import pairs_of
from crawler.frontier.jobs import job_from, revision_from, row_from
from crawler.frontier.restore import DoneUrl, Restoring
from crawler.frontier.stats import lost_in, told_in
from crawler.model import CommitEntry, RefusalReason
from crawler.recovery.copying import read_entries
from crawler.rules.forgotten import ForgottenDomain, Named, without_name

BATCH = 2_000
REWRITE_S = 600.0  # of the append-only file
REWRITE_LOOK_S = 0.05
NEW_FILES = 2  # of an append-only file: its base, and what came since
# Keys of a partition whose names go on with that of a queue or row.
_OF_QUEUES = ("q:", "b:", "t:", "g:", "w:", "aside:", "j:", "v:", "d:")
_SORTED = ("idle", "boosts", "aside", "top")  # sorted sets with queues; and ready...
_HASHES = ("stops", "busy")
_ROWS = ("long", "long:deferred", "short")  # sorted sets with queues and rows
_encode = msgspec.json.Encoder().encode


class EngineFigures(msgspec.Struct, kw_only=True):
    """What goes of the engine, or would. `entries`: other records that name the domain."""

    waiting: int = 0
    dead_letters: int = 0
    pages: int = 0
    entries: int = 0


class ForgetEngine:
    """The work on one engine. All calls raise EngineError, and ArchiveError for URLs in files."""

    def __init__(self, crawl: OpenCrawl, named: Named, step: Callable[[str], None]) -> None:
        self._crawl = crawl
        self._named = named
        self._step = step
        self._partition = crawl.operator.partition_of(named.domain)
        self._restoring = Restoring(crawl.engine, crawl.keys, hash_key=crawl.record.hash_key, files=crawl.spill_files)
        self.figures = EngineFigures()
        self.left: list[str] = []  # what names the domain still, for people

    @property
    def partition(self) -> int:
        return self._partition

    # --- URLs ---

    async def drop_waiting(self, *, dry_run: bool) -> None:
        found = await self._crawl.operator.purge_matching(self._named.owns, self._named.domain, is_dry=dry_run)
        self.figures.waiting += found.left if dry_run else found.dropped
        if dry_run:
            return
        async for some in self._restoring.all_pending(self._partition):
            ours = [(fp, one) for fp, one in some if self._named.owns(one.url.url)]
            self.figures.waiting += await self._restoring.refuse(
                self._partition, self._named.domain, ours, RefusalReason.PURGED
            )
        self._step("waiting")

    async def drop_letters(self, *, dry_run: bool) -> None:
        async for some in self._crawl.letters.read(self._partition):
            ours = [one for one in some if self._named.owns(one.letter.url)]
            self.figures.dead_letters += (
                len(ours) if dry_run else await self._crawl.letters.discard(ours, RefusalReason.PURGED)
            )
        self._step("letters")

    async def reopen(self, entries: Iterable[CommitEntry]) -> None:
        """Pages of the domain, by lines of the index or of the log, are unseen again."""
        active = {"", *await self._crawl.runs.active()}
        some: dict[tuple[str, int], DoneUrl] = {}
        for entry in entries:
            if entry.run in active:
                some[entry.fingerprint, entry.visit] = self._done(entry)
            if len(some) >= BATCH:
                self.figures.pages += await self._restoring.reopen(some.values())
                some = {}
        self.figures.pages += await self._restoring.reopen(some.values())
        self._step("reopened")

    def _done(self, entry: CommitEntry) -> DoneUrl:
        domain, queue, partition = self._crawl.placement.of(entry.url)
        lost = lost_in(entry)
        return DoneUrl(
            fingerprint=entry.fingerprint, partition=partition, domain=domain, queue=queue,
            status=entry.counted_status, body_bytes=entry.body_bytes, fetch_ms=entry.fetch_ms,
            seed_number=entry.seed_number, run=entry.run, items=entry.items.count if entry.items else 0,
            lost={lost: 1} if lost else {}, url=entry.url, told=told_in(entry),
        )  # fmt: skip

    async def clear_log(self, entries: Sequence[CommitEntry]) -> None:
        await self._restoring.clear_log({self._partition: entries} if entries else {})

    # --- what a partition knows of the domain ---

    async def clear_partition(self) -> None:
        """All else that its partition has of the domain's queues."""
        key, names = self._crawl.keys.of, await self._key_names(self._partition)
        p = self._partition
        queues = await self._listed_names(names)
        doomed = list[str]()
        for name in names:
            prefix = next((one for one in _OF_QUEUES if name.startswith(one)), "")
            if prefix and (queue := self._queue_in(prefix, name[len(prefix) :])):
                doomed.append(name)
                queues.add(queue)
        known = sorted(queues)
        for queue in known:
            args = ForgetQueueArgs(queue)
            await self._crawl.engine.run("forget_queue", (self._crawl.keys.meta(p),), *args)
        await self._unlink([key(p, name) for name in doomed])
        for name in names:
            await self._clear_members(name, known)
        await self._clear_names([name for name in names if name.startswith("names:")])
        self._step("partition")

    async def _clear_members(self, name: str, queues: Collection[str]) -> None:
        """What a key with entries of many queues has of these."""
        key = self._crawl.keys.of(self._partition, name)
        if name in _SORTED or name.startswith("ready"):
            n = await self._remove("ZREM", key, queues)
            if n and name == "top":
                await self._command("HDEL", self._crawl.keys.meta(self._partition), "top_min")
        elif name in _HASHES:
            await self._remove("HDEL", key, queues)
        elif name in _ROWS:
            await self._remove("ZREM", key, self._rows(await self._command("ZRANGE", key, 0, -1)))
        elif name == "deferred":
            await self._remove("HDEL", key, self._rows(await self._command("HKEYS", key)))
        elif name[:2] in ("h:", "y:", "n:"):
            await self._clear_store(name)
        elif name == "losses":
            pairs = pairs_of(await self._command("HGETALL", key))
            await self._remove("HDEL", key, [one for one, url in pairs if self._named.is_in(url)])
        elif name == "jars":
            await self._remove("HDEL", key, self._naming(await self._command("HKEYS", key)))

    async def _key_names(self, partition: int) -> list[str]:
        """Names of a partition's keys, without their hash tag."""
        tag = self._crawl.keys.of(partition, "")
        pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in tag) + "*"
        found = set[str]()
        async for some in self._crawl.engine.scan(pattern):
            found.update(one.decode("utf-8", "surrogateescape").removeprefix(tag) for one in some)
        return sorted(found)

    def _queue_in(self, prefix: str, rest: str) -> str:
        """The queue of the domain that a key is of; "" if it is of another."""
        if prefix == "b:":
            rest = rest.rpartition(":")[0]
        queue = rest.partition("|")[0]
        return queue if self._named.owns_queue(queue) else ""

    def _rows(self, rows: Iterable[bytes]) -> list[bytes]:
        return [one for one in rows if self._named.owns_queue(one.decode().partition("|")[0])]

    def _naming(self, texts: Iterable[bytes]) -> list[bytes]:
        return [one for one in texts if self._named.is_in(one)]

    async def _clear_store(self, name: str) -> None:
        """A bucket of a compact store: records by queue, robots.txt by origin, hosts by domain."""
        key, meta = self._crawl.keys.of(self._partition, name), self._crawl.keys.meta(self._partition)
        fields = [one.decode() for one in await self._command("HKEYS", key)]
        if name[0] == "h":
            ours = [one for one in fields if self._named.owns_queue(one)]
        elif name[0] == "y":
            ours = [one for one in fields if self._named.owns(f"{one}/")]
        else:
            ours = [one for one in fields if one.partition(" ")[0] == self._named.domain]
        if ours:
            gone = await self._remove("HDEL", key, ours)
            await self._command("HINCRBY", meta, f"{name[0]}n", -gone)

    async def _listed_names(self, names: Sequence[str]) -> set[str]:
        blocks = [name for name in names if name.startswith("names:")]
        asked = [("ZRANGE", self._crawl.keys.of(self._partition, name), 0, -1) for name in blocks]
        found = {one.decode() for some in await self._crawl.engine.commands(asked) for one in some}
        return {one for one in found if self._named.owns_queue(one)} | {self._named.domain}

    async def _clear_names(self, blocks: Sequence[str]) -> None:
        """From the index of names. A block is listed by its first name: without that, by the next one."""
        key, p = self._crawl.keys.of, self._partition
        for block in blocks:
            listed = (await self._command("ZRANGE", key(p, block), 0, -1)) or []
            ours = [one for one in listed if self._named.owns_queue(one.decode())]
            first = block.removeprefix("names:")
            if ours:
                await self._remove("ZREM", key(p, block), ours)
            if first and self._named.owns_queue(first):
                left = [one.decode() for one in listed if one not in ours]
                commands: list[tuple[Any, ...]] = []
                if left:
                    commands += [("RENAME", key(p, block), key(p, f"names:{left[0]}"))]
                    commands += [("ZADD", key(p, "names"), 0, left[0])]
                await self._crawl.engine.commands([*commands, ("ZREM", key(p, "names"), first)])
        rest = self._rows(await self._command("ZRANGE", key(p, "names"), 0, -1) or ())  # of a block that was empty
        await self._remove("ZREM", key(p, "names"), rest)

    # --- what is crawl-wide ---

    async def clear_wide(self) -> None:
        """Seeds, roots, commands of operators, and what clients were answered."""
        keys, command = self._crawl.keys, self._command
        last = int(await command("HGET", keys.crawl, "seeds") or 0)
        for number in range(last // 256 + 1):
            name = f"{keys.seeds}{number}"
            pairs = pairs_of(await command("HGETALL", name))
            await self._remove("HDEL", name, [one for one, url in pairs if self._named.owns(url.decode())])
        await self._clear_roots(keys.scope)
        fields = [one for one, _ in pairs_of(await command("HGETALL", keys.history)) if one.startswith(b"root ")]
        await self._remove("HDEL", keys.history, self._naming(fields))
        for name in (keys.pins, keys.overrides):
            await self._remove("HDEL", name, self._naming(await command("HKEYS", name)))
        pairs = pairs_of(await command("HGETALL", keys.api_answers))
        await self._remove("HDEL", keys.api_answers, [one for one, text in pairs if self._named.is_in(text)])
        budget = await command("HGET", keys.crawl, "budget_reached")
        if budget and self._named.is_in(budget):
            await self._remove("HDEL", keys.crawl, ["budget_reached"])
        entries = await command("XRANGE", keys.operator_log, "-", "+")
        ours = [number for number, fields in entries if any(map(self._named.is_in, _values(fields)))]
        await self._remove("XDEL", keys.operator_log, ours)
        self._step("wide")

    async def _clear_roots(self, name: str) -> None:
        """A page to which a seed of the domain led stays in the scope, as one that was given."""
        for root in [one.decode() for one in await self._command("SMEMBERS", name)]:
            if not self._named.is_in(root.encode()):
                continue
            first, _, origin = root.partition(" ")
            if origin and not self._of_root(first):
                if self._of_root(f"page:{origin}"):
                    await self._command("SADD", name, first)
                    await self._remove("SREM", name, [root])
            elif self._of_root(first):
                await self._remove("SREM", name, [root])

    def _of_root(self, root: str) -> bool:
        place = root.partition(":")[2]
        url = place if "://" in place else f"http://{place}/"
        return root != "any:*" and self._named.owns(url)

    async def forget_in_jobs(self) -> None:
        """Definitions lose seeds and sitemaps of the domain, rows of their history the reasons that name it."""
        for partition in range(self._crawl.record.partitions):
            key = self._crawl.keys.of
            for job, raw in pairs_of(await self._command("HGETALL", key(partition, "jobs"))):
                await self._forget_in_job(partition, job.decode(), raw)
                if partition == self._crawl.jobs.home_of(job.decode()):
                    await self._forget_in_history(partition, job.decode())
        for partition in range(self._crawl.record.partitions):
            for run in await self._command("HKEYS", self._crawl.keys.of(partition, "runs")) or ():
                await self._clear_roots(self._crawl.keys.of(partition, f"roots:{run.decode()}"))
        self._step("jobs")

    async def _forget_in_job(self, partition: int, job: str, raw: bytes) -> None:
        if not self._named.is_in(raw):
            return
        mark, _, text = raw.partition(b" ")
        found = job_from.decode(text)
        revisions = tuple(
            msgspec.structs.replace(one, spec=spec_left(one.spec, self._named)) for one in found.revisions
        )
        found = msgspec.structs.replace(found, revisions=revisions)
        text = _encode(without_name(msgspec.json.decode(_encode(found)), self._named))
        with contextlib.suppress(msgspec.MsgspecError):  # else its name, or another text that it needs, is the domain's
            found = job_from.decode(text)
        await self._command("HSET", self._crawl.keys.of(partition, "jobs"), job, mark + b" " + _encode(found))
        self.figures.entries += 1
        spec = found.spec
        if not (spec.seeds or spec.seeds_kept or spec.sitemap):
            self.left.append(
                f"the job {found.name!r} has no seeds left, and fails to start: 'crawler jobs remove {found.name}'"
            )

    async def _forget_in_history(self, partition: int, job: str) -> None:
        key = self._crawl.keys.of
        name = key(partition, f"revisions:{job}")
        for number, raw in pairs_of(await self._command("HGETALL", name)):
            if self._named.is_in(raw):
                one = revision_from.decode(raw)
                one = msgspec.structs.replace(one, spec=spec_left(one.spec, self._named))
                await self._command("HSET", name, number, _encode(one))
                self.figures.entries += 1
        for name in (key(partition, f"ledger:{job}"), key(partition, f"failed:{job}")):
            for raw, place in pairs_of(await self._command("ZRANGE", name, 0, -1, "WITHSCORES")):
                if self._named.is_in(raw):
                    row = _encode(msgspec.structs.replace(row_from.decode(raw), reason=""))
                    commands = [("ZADD", name, repr(float(place)), row), ("ZREM", name, raw)]
                    await self._crawl.engine.commands(commands)
                    self.figures.entries += 1
        tag = key(partition, f"seeds:{job}:")
        for known in await self._key_names(partition):
            if not known.startswith(f"seeds:{job}:"):
                continue
            name = tag + known.removeprefix(f"seeds:{job}:")
            before = await self._command("LRANGE", name, 0, -1)
            blocks = [msgspec.json.decode(zlib.decompress(block), type=list[str]) for block in before]
            left = [[url for url in urls if not self._named.owns(url)] for urls in blocks]
            if left != blocks:
                draft = f"{name}~"
                packed = [zlib.compress(_encode(urls)) for urls in left]
                await self._crawl.engine.commands(
                    [("UNLINK", draft), ("RPUSH", draft, *packed), ("RENAME", draft, name)]
                )
                self.figures.entries += sum(map(len, blocks)) - sum(map(len, left))

    # --- afterwards ---

    async def look_again(self) -> None:
        """What is left of all that is no URL of others: people are told."""
        keys = self._crawl.keys
        for group in (-1, self._partition):
            names = [one.encode() for one in await self._key_names_of(group)]
            async for entries in read_entries(self._crawl.engine, keys, group, names):
                for entry in entries:
                    if _is_of_others(entry.name) and self._named.is_in(entry.name):
                        self.left.append(f"a key of the engine names it: {entry.name.decode('utf-8', 'replace')}")
                    elif _is_of_others(entry.name) and any(map(self._named.is_in, _texts(entry.value))):
                        self.left.append(f"{_SHOWN.get(entry.name, entry.name.decode('utf-8', 'replace'))} names it")

    async def _key_names_of(self, group: int) -> list[str]:
        if group >= 0:
            return await self._key_names(group)
        tag = self._crawl.keys.tag
        pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in tag) + "*"
        found = set[str]()
        async for some in self._crawl.engine.scan(pattern):
            found.update(one.decode("utf-8", "surrogateescape").removeprefix(tag) for one in some)
        return sorted(found)

    async def rewrite_file(self, folder: Path) -> None:
        """Have the embedded engine rewrite its append-only file without what was deleted. Raises EngineDown."""
        deadline = time.monotonic() + REWRITE_S
        with contextlib.suppress(EngineError):  # one that goes on already: the next one is waited for, too
            await self._is_rewritten(deadline)
        await self._command("bgrewriteaof")  # of our own server alone: no user of another engine needs the right
        await self._is_rewritten(deadline)
        await asyncio.to_thread(_settle_files, folder, deadline)
        self._step("rewritten")

    async def _is_rewritten(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            info = await self._crawl.engine.persistence()
            if not int(info.get("aof_rewrite_in_progress", 0)) and not int(info.get("aof_rewrite_scheduled", 0)):
                if info.get("aof_last_bgrewrite_status", "ok") != "ok":
                    raise EngineDown(
                        "the engine could not rewrite its append-only file (is the disk full?): make room, and "
                        "give the same command again"
                    )
                return
            await asyncio.sleep(REWRITE_LOOK_S)
        raise EngineDown("the engine still rewrites its append-only file: give the same command again later")

    # --- calls ---

    async def _command(self, *command: Any) -> Any:
        return await self._crawl.engine.command(*command)

    async def _unlink(self, names: Sequence[str]) -> None:
        await self._crawl.engine.commands([("UNLINK", name) for name in names])
        self.figures.entries += len(names)

    async def _remove(self, command: str, key: str, members: Collection[Any]) -> int:
        gone, rest = 0, list(members)
        for start in range(0, len(rest), BATCH):
            gone += int(await self._command(command, key, *rest[start : start + BATCH]))
        self.figures.entries += gone
        return gone


def _settle_files(folder: Path, deadline: float) -> None:
    """The server removes its old files a moment later; one that it left when it was killed is of nobody."""
    while len([*(folder / "appendonlydir").glob("*.aof")]) > NEW_FILES and time.monotonic() < deadline:
        time.sleep(REWRITE_LOOK_S)
    for path in folder.glob("temp-*"):
        path.unlink(missing_ok=True)


_SHOWN = {
    b"crawl": "a setting or a rule of the scope that is stored with the crawl",
    b"history": "a former rule of the scope",
    b"jobs": "the name of a job",
    b"supervisors": "the path or command of a supervisor",
}
# Of URLs that wait, are claimed, failed or were committed, and of robots.txt: those of other sites. And what is
# replaced by each who joins.
_OTHERS = (b"q:", b"b:", b"t:", b"u", b"at", b"s", b"z", b"dead", b"l", b"y:", b"a", b"m", b"members", b"folders")


def _is_of_others(name: bytes) -> bool:
    """Is it worth a look?"""
    return not any(name == one or (one.endswith(b":") and name.startswith(one)) for one in _OTHERS) and not (
        name[:1] in (b"s", b"z") and name[1:2].isdigit()
    )


def _values(fields: Any) -> list[bytes]:
    return [value for pair in pairs_of(fields) for value in pair]


def _texts(value: Any) -> list[bytes]:
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
    return []


async def note_forgotten(crawl: OpenCrawl, domains: Sequence[ForgottenDomain]) -> None:
    """The crawl's record has these domains from here on."""
    await crawl.crawls.update(lambda record: msgspec.structs.replace(record, forgotten_domains=tuple(domains)))
