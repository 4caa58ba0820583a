"""Which crawl a folder belongs to: its name, when it began, and its record, as the engine has it.

A folder holds the archive of one crawl. An engine that was wiped, or another engine, would start the same name anew
and silently crawl everything again into the same archive: that is said instead. Must not know what a record says.
"""

import os
import secrets
from typing import Any

import msgspec

from crawler.archive.crawl_folder import CrawlFolder, archive_error, open_private, sync_directory
from crawler.archive.seed_journal import SeedJournal
from crawler.errors import ConflictError

FILE = "bound.json"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What bound.json says. Wall clock, s, by the engine's record: `begun_at` is the crawl's begin in this engine;
    `origin` its first begin, before it was ever rebuilt (0: older releases did not write it).
    """

    name: str
    begun_at: float
    origin: float = 0.0
    record: dict[str, Any] = {}

    @property
    def first_begun_at(self) -> float:
        return self.origin or self.begun_at

    def __repr__(self) -> str:
        """Without the record, which has the crawl's hash key."""
        return f"Bound(name={self.name!r}, begun_at={self.begun_at})"


def bound_to(folder: CrawlFolder) -> Bound | None:
    """What the folder is bound to; None when it is new, or its note can't be read."""
    path = folder.root / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Bound)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise archive_error("read", path, error) from None
    except msgspec.MsgspecError:
        return None


def holds_results(folder: CrawlFolder) -> bool:
    """Is there anything in the folder that another crawl must not mix with?"""
    return any(any(where.glob("*")) for where in (folder.index, folder.warc))


def holds_seeds(folder: CrawlFolder, bound: Bound) -> bool:
    """Were seeds given to this crawl through the folder?"""
    return SeedJournal(folder, bound.name, bound.first_begun_at).has_lines


def check_name(folder: CrawlFolder, name: str) -> None:
    """Refuse another crawl's folder before anything is made in the engine. Raises ConflictError."""
    bound = bound_to(folder)
    if bound is not None and bound.name != name and holds_results(folder):
        raise ConflictError(
            f"{folder.root} holds the crawl {bound.name!r}, not {name!r}: use another --dir, or --name {bound.name}"
        )


def check_known(folder: CrawlFolder, name: str, now: Bound | None) -> None:
    """Refuse to go on in an engine that does not have the crawl of this folder. `now`: what it has, None for nothing.

    A folder without results may change hands; one through which a crawl was seeded goes on with another name only.
    Raises ConflictError.
    """
    check_name(folder, name)
    bound = bound_to(folder)
    if bound is None and now is None and holds_results(folder):
        raise ConflictError(
            f"{folder.root} holds results, but its {FILE} is missing or damaged: put it back from a copy, or use "
            "another --dir"
        )
    if bound is None or bound.name != name or not (holds_results(folder) or holds_seeds(folder, bound)):
        return
    if now is None or bound.begun_at != now.begun_at:
        raise ConflictError(_unknown(folder, bound, now))


def _unknown(folder: CrawlFolder, bound: Bound, now: Bound | None) -> str:
    if now is not None and now.first_begun_at == bound.first_begun_at:
        return (
            f"the crawl {bound.name!r} was rebuilt in the engine without {folder.root}: "
            "'crawler rebuild' with this folder adds what it holds"
        )
    what = "results are" if holds_results(folder) else "seeds were noted"
    has = f"does not have the crawl {bound.name!r}" if now is None else f"has another crawl {bound.name!r} than that"
    return (
        f"the engine {has} whose {what} in {folder.root} (wiped, or another engine?): "
        "'crawler rebuild' makes it anew from them; or name its engine, or use another --dir"
    )


def bind(folder: CrawlFolder, bound: Bound) -> None:
    """Note whose folder it is, and what the crawl's record says. Raises ArchiveError."""
    if bound_to(folder) == bound:
        return
    path = folder.root / FILE
    draft = folder.tmp / f"{FILE}.{secrets.token_hex(4)}"
    try:
        with open(draft, "xb", opener=open_private) as file:
            file.write(msgspec.json.encode(bound))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_directory(folder.root)
    except OSError as error:
        raise archive_error("write", path, error) from None
