"""Does the crawl that the engine has belong to this folder? May it be recreated from it?

Nothing is made in an engine that lacks the crawl of a folder with results: only a rebuild does that.
"""

from collections.abc import Sequence

import msgspec

from crawler.archive.crawl_binding import (
    FILE,
    Bound,
    bind,
    bound_to,
    check_known,
    check_name,
    holds_results,
    holds_seeds,
)
from crawler.archive.folder import (
    CrawlFolder,
)
from crawler.errors import ConflictError, NoCrawlError, UsageError
from crawler.frontier.record import CrawlRecord, Crawls, record_of
from crawler.rules.forgotten import ForgottenDomain, united
from crawler.settings import Settings
from crawler.terminal.output import say
from crawler.terminal.words import counted


def bound_of(name: str, record: CrawlRecord) -> Bound:
    """What a folder of this crawl is to note."""
    plain = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(record, version=0, move="")))
    return Bound(name=name, begun_at=record.begun_at, origin=record.first_begun_at, record=plain)


async def admit(
    folder: CrawlFolder, crawls: Crawls, settings: Settings, *, create: bool
) -> tuple[CrawlRecord, frozenset[str]]:
    """Record and roots of the crawl that the settings name, made with `create` if the engine has none.

    Raises ConflictError when the folder has results of another one, UsageError when there is none.
    """
    name = settings.crawl.name
    stored = await crawls.load()
    check_known(folder, name, bound_of(name, stored) if stored else None)
    if stored is None and not create:
        raise NoCrawlError(f"crawl {name!r} does not exist yet: start it with 'crawler crawl URL'")
    await crawls.create_or_load(settings)
    record, roots = await crawls.shared()
    check_known(folder, name, bound_of(name, record))  # begun by somebody else meanwhile?
    if (more := _forgotten_in([folder], record)) and await keep_out(crawls, more):
        record, roots = await crawls.shared()
        say(
            f"the engine's data is from before this crawl forgot {counted(len(more), 'domain')}, which stay out of it: "
            "'crawler forget' again, of each, takes out what has come back"
        )
    bind(folder, bound_of(name, record))
    return record, roots


def _forgotten_in(folders: Sequence[CrawlFolder], record: CrawlRecord) -> list[ForgottenDomain]:
    """Domains that these folders of the crawl know as forgotten, and its record does not."""
    known = {one.digest for one in record.forgotten_domains}
    bounds = (bound for folder in folders if (bound := bound_to(folder)) is not None)
    noted = (
        msgspec.convert(bound.record.get("forgotten_domains", ()), tuple[ForgottenDomain, ...])
        for bound in bounds
        if bound.first_begun_at == record.first_begun_at
    )
    return [one for one in united(*noted) if one.digest not in known]


async def keep_out(crawls: Crawls, domains: Sequence[ForgottenDomain]) -> bool:
    """Let the crawl's record have these, too; was there one that it lacked?"""
    before = (await crawls.shared())[0].forgotten_domains
    after = await crawls.update(
        lambda record: msgspec.structs.replace(record, forgotten_domains=united(record.forgotten_domains, domains))
    )
    return after.forgotten_domains != before


async def admit_rebuild(
    folders: Sequence[CrawlFolder], crawls: Crawls, settings: Settings, *, partitions: int = 0
) -> tuple[CrawlRecord, frozenset[str]]:
    """Record and roots of the crawl that these folders hold, recreated if the engine lost it. Binds no folder.
    `partitions`: another number of them; 0: as many as it had.

    Raises UsageError when they hold nothing, ConflictError when they, or they and the engine, are of different crawls,
    and when the engine has the crawl with another number of partitions.
    """
    name = settings.crawl.name
    for folder in folders:
        check_name(folder, name)
    folders, _ = holding(folders, name)
    bounds = [bound for folder in folders if (bound := _bound_of(folder, name))]
    bounds.sort(key=lambda bound: bound.begun_at)
    if len({bound.first_begun_at for bound in bounds}) > 1:
        raise ConflictError(f"these folders hold different crawls {name!r}: rebuild each of them separately")
    first_begun_at = bounds[0].first_begun_at if bounds else 0.0
    was = _records(folders, bounds)
    if len({record.hash_key for record in was}) > 1:
        raise ConflictError(
            f"these folders have different hash keys of the crawl {name!r}: rebuild each of them separately"
        )
    stored = await crawls.load()
    if stored is None:
        await crawls.create_or_load(_as_it_was(settings, was, partitions), was[-1])
    elif was and stored.first_begun_at != first_begun_at:
        await _replace(crawls, name, stored, _as_it_was(settings, was, partitions), was[-1])
    elif partitions not in (0, stored.partitions):
        raise ConflictError(
            f"the engine has the crawl {name!r} already, with {stored.partitions:,} partitions: another number needs "
            "an engine that lacks it (another one, or this one after 'crawler backup' and 'crawler crawls rm')"
        )
    elif was and stored.hash_key != was[-1].hash_key:
        raise ConflictError(
            f"the crawl {name!r} in the engine has another hash key than {folders[0].root}: they are different crawls; "
            "empty the engine, or use another --name"
        )
    record, roots = await crawls.shared()
    if (more := _forgotten_in(folders, record)) and await keep_out(crawls, more):
        record, roots = await crawls.shared()
    return record, roots


def holding(folders: Sequence[CrawlFolder], name: str) -> tuple[list[CrawlFolder], list[CrawlFolder]]:
    """The folders that hold something of this crawl, and those that hold nothing. Raises UsageError when none does."""
    found = [folder for folder in folders if holds_results(folder) or _bound_of(folder, name) or _is_unreadable(folder)]
    if not found:
        raise UsageError(f"{folders[0].root} has nothing to rebuild the crawl {name!r} from")
    return found, [folder for folder in folders if folder not in found]


def _bound_of(folder: CrawlFolder, name: str) -> Bound | None:
    """What a folder is bound to, if it holds something of this crawl."""
    bound = bound_to(folder)
    if bound is None or bound.name != name or not (holds_results(folder) or holds_seeds(folder, bound)):
        return None
    return bound


def _is_unreadable(folder: CrawlFolder) -> bool:
    """Does nobody know of which crawl it has seeds?"""
    return bound_to(folder) is None and (folder.root / FILE).exists()


def _records(folders: Sequence[CrawlFolder], bounds: Sequence[Bound]) -> list[CrawlRecord]:
    """What the folders know of the crawl's record. Raises ConflictError when none of them has it: nobody could tell by
    the index which URLs were seen.
    """
    try:
        records = [record_of(bound.record) for bound in bounds]
    except msgspec.MsgspecError:
        records = []
    if not records:
        where = folders[0].root / FILE
        raise ConflictError(
            f"{where} is missing or damaged, and without the crawl's hash key nothing can be rebuilt: restore it from "
            "a backup, or also name another folder of this crawl"
        )
    return records


async def _replace(crawls: Crawls, name: str, other: CrawlRecord, settings: Settings, was: CrawlRecord) -> None:
    """The crawl was created again in the engine that lost it: its record may be deleted if nothing was added."""
    if any(count.added for count in await crawls.counts(other.partitions)):
        raise ConflictError(
            f"another crawl {name!r} was started in the engine: empty the engine, and rebuild before anything crawls"
        )
    await crawls.start_over(settings, was)


def _as_it_was(settings: Settings, records: Sequence[CrawlRecord], partitions: int) -> Settings:
    """The settings that the latest of the folders knows of the crawl's record; others as given. `partitions`: another
    number of them, or 0.
    """
    if not records:
        return settings
    was = records[-1]
    replace = msgspec.structs.replace
    return replace(
        settings,
        scope=was.scope,
        crawl=replace(settings.crawl, partitions=partitions or was.partitions),
        frontier=replace(settings.frontier, queue_by=was.queue_by, **msgspec.structs.asdict(was.ordering)),
    )
