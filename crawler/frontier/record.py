"""The record of a crawl, which all instances must agree on: layout, partitions, scope, order. And its counters."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from crawler.engine.client import Engine
from crawler.errors import ConflictError, EngineFull
from crawler.frontier.arguments import ReplaceArgs
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import CRAWLS, LAYOUT, Keys
from crawler.frontier.messages import BudgetReached
from crawler.model import LINK_RULES
from crawler.rules.forgotten import Forgotten, ForgottenDomain, forgotten_of
from crawler.rules.places import HASH_KEY_BYTES, Fingerprints
from crawler.settings import OrderSettings, ScopeSettings, Settings
from crawler.settings.kept import Kept, class_of, kept_of
from crawler.settings.schema import LoadedSettings


class Needs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What each machine has to permit or to bring, or the results would be others. `app` is the name of its file or
    module, and of its object if it was named; `app_digest` is the SHA-256 of that file. `key`: the id of the key that
    requests are signed with.
    """

    allow_private: bool = False
    insecure_tls: bool = False
    app: str = ""
    app_digest: str = ""
    key: str = ""


class CrawlRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Stored once per crawl. `version` is that of `Crawls.version`, set by `shared`; `begun_at` is wall clock, s.

    `begun_at` identifies a crawl. A rebuilt crawl has a new one, and keeps its first one in `origin`. `hash_key` is
    secret (see rules/urls.py); a rebuilt crawl keeps it. `move`: of the move by which the crawl came into this engine,
    until the other one is closed (`Mark`).
    """

    layout: int
    partitions: int
    begun_at: float
    queue_by: str
    hash_key: bytes
    scope: ScopeSettings
    ordering: OrderSettings = OrderSettings()
    version: int = 0
    origin: float = 0.0
    link_rules: int = 0  # see LINK_RULES; earlier releases did not write it
    sitemaps: bool = False  # sitemaps that robots.txt names are fetched, and entries of sitemaps and feeds are links
    settings: dict[str, Any] | None = None  # others that belong to the crawl, by name; earlier releases wrote none
    needs: Needs = Needs()
    move: str = ""
    forgotten_domains: tuple[ForgottenDomain, ...] = ()  # what stays of them (rules/forgotten.py)

    @property
    def stored_settings(self) -> dict[str, Any]:
        """All settings that are stored with the crawl, by name, as JSON has them."""
        scope, ordering = msgspec.to_builtins(self.scope), msgspec.to_builtins(self.ordering)
        return {
            "crawl.partitions": self.partitions,
            "frontier.queue_by": self.queue_by,
            **{f"frontier.{name}": value for name, value in ordering.items()},
            **{f"scope.{name}": value for name, value in scope.items()},
            **(self.settings or {}),
        }

    @property
    def first_begun_at(self) -> float:
        return self.origin or self.begun_at

    @property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(self.hash_key)

    @property
    def forgotten(self) -> Forgotten | None:
        """What tells whether a URL is of a forgotten domain; None when there is none."""
        return forgotten_of(self.forgotten_domains, self.hash_key)

    def __repr__(self) -> str:
        """Without the key, because this may be logged."""
        return f"CrawlRecord(begun_at={self.begun_at})"


REMOVED, MOVED, ARRIVING = 0, -1, -2  # layouts of marks: no release has them


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stored in the place of a record, so that nobody opens its crawl: it is being removed (`CrawlList`), has moved to
    `place` or is on its way there, or arrives from there (recovery/move.py).

    `layout` is one that no release has, so that each refuses the crawl. `was`: what was stored there.
    """

    layout: int
    was: str
    place: str = ""  # an engine, as it is shown
    is_done: bool = False  # of a move
    move: str = ""  # id of this move, the same at both ends
    at: float = 0.0  # when it began, wall clock, s

    def why(self, name: str) -> str:
        """Why the crawl of this name can't be opened here, and what to do."""
        if self.layout == REMOVED:
            return f"is being removed: run 'crawler crawls rm {name}' again"
        if self.layout == ARRIVING:
            return (
                f"is on its way here from {self.place}: run that command again, or remove what has arrived with "
                f"'crawler crawls rm {name}'"
            )
        if self.is_done:
            return f"has moved to {self.place}: name that engine"
        return (
            f"is on its way to {self.place}: run that 'crawler move' again, or take it back with --undo; if that "
            "engine is gone, with --undo --without-target"
        )


def mark_in(raw: bytes) -> Mark | None:
    """What is stored in the place of a record, if it is a mark."""
    if msgspec.json.decode(raw).get("layout") not in (REMOVED, MOVED, ARRIVING):
        return None
    return msgspec.json.decode(raw, type=Mark)


def plain_record(raw: bytes) -> bytes:
    """The record that is stored there, or that the mark in its place keeps."""
    while mark := mark_in(raw):
        raw = mark.was.encode()
    return raw


def scope_of(stored: Mapping[str, Any]) -> ScopeSettings:
    """A stored scope."""
    return msgspec.convert(stored, ScopeSettings)


def record_of(stored: Mapping[str, Any]) -> CrawlRecord:
    """A stored record, which may be of an earlier release. Raises ValidationError for what is none."""
    if not isinstance(stored.get("scope"), Mapping):
        raise msgspec.ValidationError("a crawl's record without a scope")
    return msgspec.convert({**stored, "scope": msgspec.structs.asdict(scope_of(stored["scope"]))}, CrawlRecord)


def usable_record(name: str, raw: bytes) -> CrawlRecord:
    """A stored record. Raises ConflictError for one of another layout, and for a mark in its place."""
    if mark := mark_in(raw):
        raise ConflictError(f"crawl {name!r} {mark.why(name)}")
    stored = msgspec.json.decode(raw)
    if stored.get("layout") != LAYOUT:
        raise ConflictError(
            f"crawl {name!r} has layout {stored.get('layout')}, this release needs layout {LAYOUT}: "
            "use the release that created it, or another --name"
        )
    return record_of(stored)


class PartitionCount(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's progress: URLs that became pending, URLs that ended, and entries not yet indexed.

    `run_added` and `run_done`: those of the URLs that are of runs of jobs.
    """

    added: int
    done: int
    run_added: int
    run_done: int
    log_entries: int

    @property
    def own(self) -> tuple[int, int]:
        """The first two without runs."""
        return self.added - self.run_added, self.done - self.run_done


encoded = msgspec.json.Encoder().encode


class ScopeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Former scopes: the version in which each root was added, and rules that were valid up to a version, oldest first.

    A root without a version has been there since the start.
    """

    roots: Mapping[str, int]
    rules: tuple[tuple[int, ScopeSettings], ...]


def _record_of(settings: Settings, was: CrawlRecord | None, *, partitions_min: int = 0) -> CrawlRecord:
    is_given = not isinstance(settings, LoadedSettings) or "crawl.partitions" in settings.given
    return CrawlRecord(
        layout=LAYOUT,
        partitions=max(settings.crawl.partitions, 0 if was or is_given else partitions_min),
        begun_at=time.time(),
        queue_by=settings.frontier.queue_by,
        hash_key=was.hash_key if was else secrets.token_bytes(HASH_KEY_BYTES),
        scope=settings.scope,
        ordering=_ordering_of(settings),
        origin=was.first_begun_at if was else 0.0,
        link_rules=was.link_rules if was else LINK_RULES,
        sitemaps=was.sitemaps if was else _reads_sitemaps(settings),
        settings=was.settings if was else _others(kept_of(settings)),
        needs=was.needs if was else Needs(),
        forgotten_domains=was.forgotten_domains if was else (),
    )


def _others(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have no field of their own in the record."""
    return {
        key: value for key, value in kept.items() if class_of(key) is not Kept.FIXED and not key.startswith("scope.")
    }


def _reads_sitemaps(settings: Settings) -> bool:
    """For a new crawl."""
    if settings.robots.sitemaps != "auto":
        return settings.robots.sitemaps == "yes"
    return settings.scope.mode in ("domain", "host") and settings.scope.follow == "links"


def _ordering_of(settings: Settings) -> OrderSettings:
    return OrderSettings(**{key: getattr(settings.frontier, key) for key in OrderSettings.__struct_fields__})


BORN = "born"  # field of a partition, where the engine may lose a part of it
MARK_LOOKS = 3  # for a replica that has all marks; without, they are not relied on


def marks_of(engine: Engine) -> tuple[str, ...]:
    """The fields that each partition has, used or not: a shard that was wiped has none of them."""
    return (BORN,) if engine.fails_in_parts else ()


async def check_marks(engine: Engine, keys: Keys, unmarked: Sequence[int]) -> None:
    """Raises ConflictError when partitions lack the mark that all were given: their shard was wiped."""
    if not unmarked or not await engine.command("HGET", keys.crawl, "marked"):
        return
    shards = sorted({engine.shard_of(keys.meta(p)) for p in unmarked})
    raise ConflictError(
        f"the engine lost {len(unmarked)} partitions of the crawl {keys.crawl_name!r}: {', '.join(shards)} was wiped; "
        "nothing more is crawled; 'crawler rebuild' restores it from the archive"
    )


class Crawls:
    """The crawl's shared record, its scope roots, and the counters that tell whether it is finished."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self.keys = keys

    async def load(self) -> CrawlRecord | None:
        """The stored crawl, or None. Raises ConflictError for another layout, and for one that is being removed."""
        raw = await self._engine.command("HGET", self.keys.crawl, "record")
        if raw is None:
            return None
        return usable_record(self.keys.crawl_name, raw)

    async def create_or_load(self, settings: Settings, was: CrawlRecord | None = None) -> CrawlRecord:
        """The stored crawl, created from the settings when there is none. The number of partitions never changes.

        The engine's list of crawls has it then, also one that an earlier release created.
        `was`: the record of a crawl to rebuild, of which it keeps the key and the rules of its release.
        """
        stored, listing = await self.load(), ("SADD", CRAWLS, self.keys.crawl_name)
        if stored is not None:
            with contextlib.suppress(EngineFull):  # what is in a full engine can be opened
                await self._engine.command(*listing)
            return stored
        record = encoded(_record_of(settings, was, partitions_min=self._engine.partitions_min))
        await self._engine.commands([listing, ("HSETNX", self.keys.crawl, "record", record)])
        stored = await self.load()
        if stored is None:
            raise ConflictError("the crawl's record vanished from the engine while it was created: try again")
        await self.mark_partitions(stored.partitions)
        return stored

    async def mark_partitions(self, partitions: int) -> None:
        """On a cluster, note in each partition that it is one of this crawl: a shard that is wiped has no mark, where
        an unused partition of a whole shard has one. Raises EngineError.
        """
        if not marks_of(self._engine):
            return
        metas = [self.keys.meta(p) for p in range(partitions)]
        await self._engine.commands([("HSET", meta, BORN, 1) for meta in metas])
        for _ in range(MARK_LOOKS):
            if len(await self._engine.written(metas)) == len(metas):
                await self._engine.command("HSET", self.keys.crawl, "marked", 1)
                return

    async def start_over(self, settings: Settings, was: CrawlRecord) -> None:
        """Replace a crawl to which nothing was added yet by one to rebuild."""
        record = encoded(_record_of(settings, was))
        await self._engine.command("HSET", self.keys.crawl, "record", record)

    async def change_settings(self, changes: Mapping[str, Any]) -> CrawlRecord:
        """Store other settings, by name; FIXED ones are left as they are. Running instances take the scope with their
        next heartbeat, and the rest when they start again.
        """
        scope = {key.removeprefix("scope."): value for key, value in changes.items() if key.startswith("scope.")}
        others = _others(changes)

        def changed(record: CrawlRecord) -> CrawlRecord:
            wanted = msgspec.convert(msgspec.to_builtins(record.scope) | scope, ScopeSettings)
            named = others.get("robots.sitemaps", "auto")
            sitemaps = record.sitemaps if named == "auto" else named == "yes"
            return msgspec.structs.replace(
                record, scope=wanted, sitemaps=sitemaps, settings=(record.settings or {}) | others
            )

        return await self.update(changed)

    async def update(self, change: Callable[[CrawlRecord], CrawlRecord]) -> CrawlRecord:
        """Replace the record by what `change` makes of it; the scope's version grows with it. Raises ConflictError."""
        while True:
            seen = await self._engine.command("HGET", self.keys.crawl, "record")
            record = await self.load()
            if record is None:
                raise self._lost()
            changed = change(record)
            if changed == record:
                return record
            if changed.scope != record.scope:
                until = await self.version()
                await self._engine.command("HSETNX", self.keys.history, f"rules {until}", encoded(record.scope))
            (reply,) = await self._engine.run(
                "replace_record", (self.keys.crawl,), *ReplaceArgs(seen, encoded(changed))
            )
            if reply == b"COMMITTED":
                return msgspec.structs.replace(changed, version=await self._changed())

    async def _changed(self) -> int:
        return int(await self._engine.command("HINCRBY", self.keys.crawl, "version", 1))

    async def still(self, record: CrawlRecord) -> int:
        """The version of the scope; raises like `versions`."""
        return (await self.versions(record))[0]

    async def versions(self, record: CrawlRecord) -> tuple[int, int, int]:
        """The versions of the scope, the overrides and the jobs, if the engine still has the crawl of this record.

        Raises ConflictError when it has moved, was wiped or recreated: an empty engine looks like a finished crawl.
        """
        version, overrides, jobs, raw = await self._engine.command(
            "HMGET", self.keys.crawl, "version", "overrides", "jobs", "record"
        )
        if raw is None or msgspec.json.decode(raw).get("begun_at") != record.begun_at:
            if raw is not None and (mark := mark_in(raw)):
                raise ConflictError(f"crawl {self.keys.crawl_name!r} {mark.why(self.keys.crawl_name)}")
            raise self._lost()
        return int(version or 0), int(overrides or 0), int(jobs or 0)

    def _lost(self) -> ConflictError:
        return ConflictError(
            f"the engine lost the crawl {self.keys.crawl_name!r} while it ran (it was wiped or recreated): nothing "
            "more is crawled; 'crawler rebuild' restores it from the archive"
        )

    async def note_end(self, digest: str) -> None:
        """Tell others the pass that proved the end. Raises EngineError."""
        await self._engine.command("HSET", self.keys.crawl, "ended", digest)

    async def end(self) -> str:
        """The last pass that proved an end, maybe an earlier one; "" for none. Raises EngineError."""
        return (await self._engine.command("HGET", self.keys.crawl, "ended") or b"").decode()

    async def version(self) -> int:
        """Grows with each change of scope rules or roots."""
        return int(await self._engine.command("HGET", self.keys.crawl, "version") or 0)

    async def count_from(self, version: int) -> None:
        """Make sure that the next change gets a higher version than this one, which a committed page has."""
        behind = version - await self.version()
        if behind > 0:
            await self._engine.command("HINCRBY", self.keys.crawl, "version", behind)

    async def add_roots(self, roots: Iterable[str]) -> int:
        """Add roots ("domain:example.com") to the scope; how many are new."""
        wanted = sorted(set(roots))
        fresh = int(await self._engine.command("SADD", self.keys.scope, *wanted)) if wanted else 0
        if fresh:
            version = await self._changed()
            await self._engine.commands([("HSETNX", self.keys.history, f"root {root}", version) for root in wanted])
        return fresh

    async def roots(self) -> frozenset[str]:
        """All scope roots."""
        return frozenset(root.decode() for root in await self._engine.command("SMEMBERS", self.keys.scope))

    async def history(self) -> ScopeHistory:
        """All changes of the scope."""
        raw = await self._engine.command("HGETALL", self.keys.history)
        roots: dict[str, int] = {}
        rules: list[tuple[int, ScopeSettings]] = []
        for name, value in pairs_of(raw):
            kind, _, what = name.decode().partition(" ")
            if kind == "root":
                roots[what] = int(value)
            else:
                rules.append((int(what), scope_of(msgspec.json.decode(value))))
        return ScopeHistory(roots=roots, rules=tuple(sorted(rules, key=lambda rule: rule[0])))

    async def shared(self) -> tuple[CrawlRecord, frozenset[str]]:
        """Record and roots as they are now; the version is read first, so it is never too new.

        Raises ConflictError when the engine has lost the crawl.
        """
        version = await self.version()
        record, roots = await self.load(), await self.roots()
        if record is None:
            raise self._lost()
        return msgspec.structs.replace(record, version=version), roots

    async def budget_reached(self) -> BudgetReached | None:
        """The budget of the whole crawl that is used up, or None."""
        raw = await self._engine.command("HGET", self.keys.crawl, "budget_reached")
        return msgspec.json.decode(raw, type=BudgetReached) if raw else None

    async def note_budget_reached(self, budget_reached: BudgetReached | None) -> None:
        """Store the used-up budget; None deletes it."""
        if budget_reached is None:
            await self._engine.command("HDEL", self.keys.crawl, "budget_reached")
        else:
            await self._engine.command("HSET", self.keys.crawl, "budget_reached", encoded(budget_reached))

    async def counts(self, partitions: int) -> list[PartitionCount]:
        """The counts of every partition; not a snapshot (see rules/membership.py)."""
        return await self.counts_of(range(partitions))

    async def counts_of(self, partitions: Sequence[int]) -> list[PartitionCount]:
        """The same of some partitions."""
        fields = ("added", "done", "run_added", "run_done", *marks_of(self._engine))
        metas = await self._engine.commands([("HMGET", self.keys.meta(p), *fields) for p in partitions])
        found = dict(zip(partitions, metas, strict=True))
        await check_marks(self._engine, self.keys, [p for p, meta in found.items() if None in meta[4:]])
        used = [p for p, meta in found.items() if meta[0]]
        logs = dict(zip(used, await self._engine.commands([("HLEN", self.keys.of(p, "l")) for p in used]), strict=True))
        numbers = {p: [int(n or 0) for n in meta[:4]] for p, meta in found.items()}
        return [
            PartitionCount(
                added=added, done=done, run_added=run_added, run_done=run_done, log_entries=int(logs.get(p, 0))
            )
            for p, (added, done, run_added, run_done) in numbers.items()
        ]
