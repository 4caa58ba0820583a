"""One end of a move, a backup or a restore: an engine, and the folder where its crawls keep URLs on disk."""

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crawler.archive.folder import archive_error, make_private
from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Engine
from crawler.frontier.crawls import CrawlList
from crawler.frontier.keys import Keys
from crawler.frontier.members import Members
from crawler.frontier.record import CrawlRecord
from crawler.membership.node_names import check_no_instance_runs, is_lock_free
from crawler.recovery.copying import Entry, KeyNames, digest_of
from crawler.rules.progress import Meter
from crawler.settings import MembershipSettings

NO_FOLDER = (
    "URLs of this crawl are in files: name a folder for them that all machines can reach, with --set "
    "frontier.spill_folder=DIR"
)


class Copied(NamedTuple):
    """What a move, a backup or a restore has copied since it was started or went on."""

    partitions: int
    keys: int
    spill_files: int


@dataclass(frozen=True, kw_only=True)
class Side:
    """An engine at one end. `place`: as people are told it; `spill_folder`: where its crawls keep URLs on disk, or None
    when no folder is named; `spill_before`: where they may have kept them until now; `work`: a folder for files of this
    move.
    """

    engine: Engine
    keys: Keys
    place: str
    spill_folder: Path | None
    work: Path
    spill_before: Path | None = None

    async def raw(self) -> bytes | None:
        """What is stored in the place of the record."""
        found: bytes | None = await self.engine.command("HGET", self.keys.crawl, "record")
        return found

    async def replace(self, seen: bytes, record: bytes) -> None:
        await CrawlList(self.engine).replace(self.keys.crawl_name, seen, record)

    def files(self, record: CrawlRecord) -> SpillFiles | None:
        if self.spill_folder is None:
            return None
        return SpillFiles(SpillFiles.root_of(self.spill_folder, self.keys.crawl_name, record.begun_at), "")

    def files_now(self, record: CrawlRecord) -> SpillFiles | None:
        """Where the files are that a crawl has already."""
        before = self.spill_before
        if before is not None and (root := SpillFiles.root_of(before, self.keys.crawl_name, record.begun_at)).is_dir():
            return SpillFiles(root, "")
        return self.files(record)

    async def names(self, record: CrawlRecord) -> KeyNames:
        """Of all keys of the crawl. Raises ConflictError, EngineError and ArchiveError."""
        shutil.rmtree(self.work, ignore_errors=True)
        names = KeyNames(self.keys, self.work)
        try:
            make_private(self.work, parents=True)
            await names.read(self.engine, record.partitions)
        except OSError as error:
            raise archive_error("write", self.work, error) from None
        return names

    async def spilling(self, record: CrawlRecord) -> bool:
        """Are URLs of the crawl in files?"""
        asked = [("EXISTS", self.keys.of(p, "files")) for p in range(record.partitions)]
        return any(await self.engine.commands(asked))


def without_replica(servers: Collection[str]) -> str:
    """For people, of servers whose part of a crawl no replica has."""
    which = ", ".join(sorted(servers))
    return f"no replica has what came to {which}: without a working one, it is lost when that server fails"


def spill_names(entries: Iterable[Entry]) -> list[str]:
    """The spill files that a partition's entries name."""
    return [name.decode() for entry in entries if entry.name == b"files" for name, _ in entry.value]


async def check_stopped(side: Side, membership: MembershipSettings) -> None:
    """Raises ConflictError while an instance or a command that adds seeds works on the crawl."""
    await check_no_instance_runs(Members(side.engine, side.keys), is_lock_free, membership, may_seed=False)


async def changed_since(
    side: Side, record: CrawlRecord, digests: Mapping[int, str], meter: Meter
) -> tuple[KeyNames, list[int]]:
    """All names as they are now, and the groups whose digests are others. Raises as `names`."""
    meter.begin("comparing", "partition", len(digests))
    names, changed = await side.names(record), list[int]()
    for i, (group, before) in enumerate(digests.items(), 1):
        if (await digest_of(side.engine, side.keys, group, names.of(group))).text != before:
            changed.append(group)
        meter.reached(i, i)
    return names, changed
