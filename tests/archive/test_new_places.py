"""Commits get the places of files that were written again, and only those."""

import pytest

from crawler.archive.new_places import ITEMS, WARC, at_new_places
from crawler.model import ItemsLocation, WarcLocation
from tests.archive.archive_samples import entry

NEW = {(WARC, "a", 0): ("ap1", 7), (WARC, "b", 5): ("bp1", 3), (ITEMS, "a", 5): ("xp1", 0)}


def now(kind: str, name: str, offset: int) -> tuple[str, int] | None:
    return NEW.get((kind, name, offset))


@pytest.mark.parametrize(
    ("warc", "items", "original", "places"),
    [
        (("a", 0), None, None, (("ap1", 7), None, None)),
        (("a", 5), ("a", 5), ("b", 5), (("a", 5), ("xp1", 0), ("bp1", 3))),
        (("a", 0), ("a", 0), ("a", 0), (("ap1", 7), ("a", 0), ("ap1", 7))),
        (None, ("a", 5), None, (None, ("xp1", 0), None)),
    ],
)
def test_each_place_is_looked_up_by_its_own_kind_and_file(warc, items, original, places) -> None:  # type: ignore[no-untyped-def]
    before = (
        entry(1)
        .placed(
            WarcLocation(file=warc[0], offset=warc[1], length=9) if warc else None,
            ItemsLocation(items[0], items[1], 9, 2) if items else None,
        )
        .referring(WarcLocation(file=original[0], offset=original[1], length=9) if original else None)
    )
    after = at_new_places(before, now)
    assert tuple(place and (place.file, place.offset) for place in (after.warc, after.items, after.original)) == places
    assert all(place is None or place.length == 9 for place in (after.warc, after.items, after.original))
    assert after.url == before.url


def test_a_commit_of_which_nothing_moved_is_the_same_object() -> None:
    before = entry(1)
    assert at_new_places(before, now) is before
