"""Gives a commit the places of its record, its items and its original in files that were written again. Pure."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from crawler.model import CommitEntry, ItemsLocation, WarcLocation

WARC, ITEMS = "warc", "items"  # kinds of files; also the folders in which they are
# Kind, name and offset -> name and offset now; None: it is where it was, or nowhere.
Now = Callable[[str, str, int], tuple[str, int] | None]
_Place = TypeVar("_Place", WarcLocation, ItemsLocation)


def at_new_places(entry: CommitEntry, now: Now) -> CommitEntry:
    """The same commit, with all places as they are now; the entry itself where none has changed."""
    warc, items, original = entry.warc, entry.items, entry.original
    new_warc, new_items, new_original = _at(WARC, warc, now), _at(ITEMS, items, now), _at(WARC, original, now)
    if new_original is not original:
        entry = entry.referring(new_original)
    if new_warc is not warc or new_items is not items:
        entry = entry.placed(new_warc, new_items)
    return entry


def _at(kind: str, place: _Place | None, now: Now) -> _Place | None:
    found = now(kind, place.file, place.offset) if place is not None else None
    if place is None or found is None:
        return place
    return msgspec.structs.replace(place, file=found[0], offset=found[1])
