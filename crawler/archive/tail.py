"""What is new in the index: entries that were not read before, of all sessions, while they write.

A segment that is being written is read in order of arrival, up to its last whole line. Sealed, it is sorted, so a place
in it means nothing any more: it is read once more from its beginning, and who asks knows which entries it has had.
Must not know what is done with the entries.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.cdxj import to_entry
from crawler.archive.crawl_folder import CrawlFolder, archive_error
from crawler.archive.index_reader import segment_names
from crawler.model import CommitEntry

CHUNK_LINES = 500


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a segment has been read: bytes, of its open or its sealed file. `is_done`: nothing more comes."""

    offset: int = 0
    is_sealed: bool = False
    is_done: bool = False


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one segment, by its final name, and the place after them."""

    segment: str
    entries: list[CommitEntry]
    place: Place
    damaged: int = 0  # lines that are no entries


def new_chunks(folder: CrawlFolder, places: Mapping[str, Place]) -> Iterator[Chunk]:
    """What stands behind these places now, in chunks, a segment after the other. Raises ArchiveError.

    A line that is damaged is left out, and counted: exports and audits name it.
    """
    names = segment_names(folder)
    sealed = {name for name in names if not name.endswith(OPEN_SUFFIX)}
    for name in sorted(sealed | {name.removesuffix(OPEN_SUFFIX) for name in names}):
        place = places.get(name, Place())
        if not place.is_done:
            yield from _chunks_of(folder, name, place, is_sealed=name in sealed)


def _chunks_of(folder: CrawlFolder, name: str, place: Place, *, is_sealed: bool) -> Iterator[Chunk]:
    path = folder.index / (name if is_sealed else name + OPEN_SUFFIX)
    offset = place.offset if place.is_sealed is is_sealed else 0
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while lines := [line for line in islice(file, CHUNK_LINES) if line.endswith(b"\n")]:
                offset += sum(map(len, lines))
                entries = [entry for entry in map(to_entry, lines) if entry is not None]
                place = Place(offset=offset, is_sealed=is_sealed)
                yield Chunk(segment=name, entries=entries, place=place, damaged=len(lines) - len(entries))
    except FileNotFoundError:
        return  # sealed between two looks: the next one finds it
    except OSError as error:
        raise archive_error("read", path, error) from None
    if is_sealed:
        yield Chunk(segment=name, entries=[], place=Place(offset=offset, is_sealed=True, is_done=True))
