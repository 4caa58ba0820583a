"""Which crawl a folder belongs to: its name, and when it began, as the engine has it.

A folder holds the archive of one crawl. An engine that was wiped, or another engine, would start the same name anew
and silently crawl everything again into the same archive: that is said instead.
"""

import os
import secrets

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.errors import ConflictError

FILE = "bound.json"


class Bound(msgspec.Struct, frozen=True):
    """What bound.json says: the crawl's name, and its begin (wall clock, s) by the engine's record."""

    name: str
    begun_at: float


def check_name(folder: CrawlFolder, name: str) -> None:
    """Refuse another crawl's folder before anything is made in the engine. Raises ConflictError."""
    bound = _read(folder)
    if bound is not None and bound.name != name and not _is_empty(folder):
        raise ConflictError(
            f"{folder.root} holds the crawl {bound.name!r}, not {name!r}: use another --dir, or --name {bound.name}"
        )


def bind(folder: CrawlFolder, name: str, begun_at: float) -> None:
    """Note whose folder it is; a folder without results may change hands. Raises ConflictError, ArchiveError."""
    check_name(folder, name)
    bound = _read(folder)
    if bound == Bound(name, begun_at):
        return
    if bound is not None and not _is_empty(folder):
        raise ConflictError(
            f"the engine knows another crawl {name!r} than the one whose results are in {folder.root} "
            "(wiped, or another engine?): name its engine, or use another --dir"
        )
    path = folder.root / FILE
    draft = folder.tmp / f"{FILE}.{secrets.token_hex(4)}"
    try:
        with draft.open("xb") as file:
            file.write(msgspec.json.encode(Bound(name, begun_at)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise archive_error("write", path, error) from None


def _read(folder: CrawlFolder) -> Bound | None:
    try:
        return msgspec.json.decode((folder.root / FILE).read_bytes(), type=Bound)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise archive_error("read", folder.root / FILE, error) from None
    except msgspec.MsgspecError:
        return None


def _is_empty(folder: CrawlFolder) -> bool:
    return not any(any(where.glob("*")) for where in (folder.index, folder.warc))
