"""Binds a folder to one crawl: its name, when it began, and its record in the engine.

A folder holds the archive of one crawl. An engine that was wiped, or another engine, would start a crawl of the same
name again and silently fetch everything into the same archive a second time. This module refuses that.
"""

import secrets
from typing import Any

import msgspec

from crawler.archive.checked_lines import is_right, with_checksum
from crawler.archive.folder import CrawlFolder, archive_error, replace_durably
from crawler.archive.job_journal import JobJournal
from crawler.archive.seed_journal import SeedJournal
from crawler.errors import ConflictError

FILE = "bound.json"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The content of bound.json, behind which is a checksum. Times are wall clock, s, from the engine's record.

    `begun_at` is when the crawl began in this engine; `origin` is when it first began, before any rebuild (0: older
    releases did not write it).
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
    """The crawl that the folder is bound to; None when it is new, or bound.json is damaged."""
    path = folder.root / FILE
    try:
        line = path.read_bytes().removesuffix(b"\n")
        return None if is_right(line) is False else msgspec.json.decode(line, type=Bound)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise archive_error("read", path, error) from None
    except msgspec.MsgspecError:
        return None


def holds_results(folder: CrawlFolder) -> bool:
    """Are there results in the folder?"""
    return any(any(where.glob("*")) for where in (folder.index, folder.warc))


def holds_seeds(folder: CrawlFolder, bound: Bound) -> bool:
    """Are there seeds or jobs of this crawl in the folder's journals?"""
    crawl = folder, bound.name, bound.first_begun_at
    return SeedJournal(*crawl).has_lines or JobJournal(*crawl).has_lines


def check_name(folder: CrawlFolder, name: str) -> None:
    """Refuse another crawl's folder before anything is created in the engine. Raises ConflictError."""
    bound = bound_to(folder)
    if bound is not None and bound.name != name and holds_results(folder):
        raise ConflictError(
            f"{folder.root} holds the crawl {bound.name!r}, not {name!r}: use another --dir, or --name {bound.name}"
        )


def check_known(folder: CrawlFolder, name: str, now: Bound | None) -> None:
    """Refuse to continue in an engine that does not have the crawl of this folder. `now`: the engine's crawl, or None.

    A folder without results may be bound to another crawl; if the folder has seeds, only to one with another name.
    Raises ConflictError.
    """
    check_name(folder, name)
    bound = bound_to(folder)
    if bound is None and now is None and holds_results(folder):
        raise ConflictError(
            f"{folder.root} holds results, but its {FILE} is missing or damaged: restore it from a copy, or use "
            "another --dir"
        )
    if bound is None or bound.name != name or not (holds_results(folder) or holds_seeds(folder, bound)):
        return
    if now is None or bound.begun_at != now.begun_at:
        raise ConflictError(_unknown(folder, bound, now))


def check_present(folder: CrawlFolder, now: Bound) -> None:
    """Raises ConflictError when the folder belongs to the same crawl with a later begin: it was rebuilt elsewhere, or a
    move of it was taken back without its target.
    """
    bound = bound_to(folder)
    if bound is not None and bound.first_begun_at == now.first_begun_at and bound.begun_at > now.begun_at:
        raise ConflictError(_older(folder, bound))


def _older(folder: CrawlFolder, bound: Bound) -> str:
    return (
        f"the engine has an older copy of the crawl {bound.name!r} than the one of {folder.root}: name the engine that "
        "has the crawl; without another one, 'crawler rebuild' adds what this copy lacks"
    )


def _unknown(folder: CrawlFolder, bound: Bound, now: Bound | None) -> str:
    if now is not None and now.first_begun_at == bound.first_begun_at:
        if now.begun_at < bound.begun_at:
            return _older(folder, bound)
        return (
            f"the crawl {bound.name!r} was rebuilt in the engine without {folder.root}: "
            "'crawler rebuild' with this folder adds what it holds"
        )
    what = "results are" if holds_results(folder) else "seeds were noted"
    has = f"does not have the crawl {bound.name!r}" if now is None else f"has another crawl {bound.name!r} than that"
    return (
        f"the engine {has} whose {what} in {folder.root} (wiped, or another engine?): "
        "'crawler rebuild' restores it from them; or name its engine, or use another --dir"
    )


def bind(folder: CrawlFolder, bound: Bound) -> None:
    """Store which crawl the folder belongs to, with the crawl's record. Raises ArchiveError."""
    if bound_to(folder) == bound:
        return
    path = folder.root / FILE
    draft = folder.tmp / f"{FILE}.{secrets.token_hex(4)}"
    try:
        replace_durably(path, draft, [with_checksum(msgspec.json.encode(bound)), b"\n"])
    except OSError as error:
        raise archive_error("write", path, error) from None
