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
from crawler.archive.folder import CrawlFolder
from crawler.errors import ConflictError, NoCrawlError, UsageError
from crawler.frontier.record import CrawlRecord, Crawls, record_of
from crawler.settings import Settings


def bound_of(name: str, record: CrawlRecord) -> Bound:
    """What a folder of this crawl is to note."""
    plain = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(record, version=0)))
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
    bind(folder, bound_of(name, record))
    return record, roots


async def admit_rebuild(
    folders: Sequence[CrawlFolder], crawls: Crawls, settings: Settings
) -> tuple[CrawlRecord, frozenset[str]]:
    """Record and roots of the crawl that these folders hold, recreated if the engine lost it. Binds no folder.

    Raises UsageError when they hold nothing, ConflictError when they, or they and the engine, are of different crawls.
    """
    name = settings.crawl.name
    for folder in folders:
        check_name(folder, name)
    bounds = _bounds(folders, name)
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
        await crawls.create_or_load(_as_it_was(settings, was), was[-1])
    elif was and stored.first_begun_at != first_begun_at:
        await _replace(crawls, name, stored, _as_it_was(settings, was), was[-1])
    elif was and stored.hash_key != was[-1].hash_key:
        raise ConflictError(
            f"the crawl {name!r} in the engine has another hash key than {folders[0].root}: they are different crawls; "
            "empty the engine, or use another --name"
        )
    return await crawls.shared()


def _bounds(folders: Sequence[CrawlFolder], name: str) -> list[Bound]:
    """What the folders are bound to, the latest last. Raises UsageError for one that holds nothing of this crawl."""
    found = []
    for folder in folders:
        bound = bound_to(folder)
        if bound is not None and bound.name == name and (holds_results(folder) or holds_seeds(folder, bound)):
            found.append(bound)
        elif not holds_results(folder):
            raise UsageError(f"{folder.root} has nothing to rebuild the crawl {name!r} from")
    return sorted(found, key=lambda bound: bound.begun_at)


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


def _as_it_was(settings: Settings, records: Sequence[CrawlRecord]) -> Settings:
    """The settings that the latest of the folders knows of the crawl's record; others as given."""
    if not records:
        return settings
    was = records[-1]
    replace = msgspec.structs.replace
    return replace(
        settings,
        scope=was.scope,
        crawl=replace(settings.crawl, partitions=was.partitions),
        frontier=replace(settings.frontier, queue_by=was.queue_by, **msgspec.structs.asdict(was.ordering)),
    )
