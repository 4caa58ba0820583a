"""Which bodies of this session are archived already: the same body again is a `revisit` record with its own headers.

An original is in the file in which the revisit is written, of the same domain, user and session, and its index line is
on disk. So whatever happens to one file or one domain later, happens to both: a file is replayed alone, a prune or a
rebuild gives both their new places at once, and a forgotten domain takes nothing from another one. A domain has one
owner, so a table that all processes of a machine share would find little more, and would have to be believed.

What is forgotten here, with the process or for want of room, is archived again.
"""

from collections import OrderedDict
from hashlib import sha256

import msgspec

from crawler.archive.folder import iso_ms
from crawler.archive.warc import Original
from crawler.archive.warc_writer import WarcWriter
from crawler.model import NO_MEDIA_TYPE, CommitEntry, Response, WarcLocation

BYTES_MIN = 1024  # a smaller body takes no more room than what refers to it
ORIGINALS_MAX = 8_192  # that are known, and half as many that wait for their index line: 9 MB, with long URLs 14
URL_MAX = 512  # characters, of an original's


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """A body that was archived, and is not in the index yet."""

    key: bytes
    original: Original


class Duplicates:
    """The bodies in the WARC file that is being written. Of one thread."""

    def __init__(self, *, originals_max: int = ORIGINALS_MAX) -> None:
        self._originals_max = originals_max
        self._file = ""
        self._originals: OrderedDict[bytes, Original] = OrderedDict()
        self._waiting: OrderedDict[int, _Stored] = OrderedDict()  # by offset

    def find(self, key: bytes, writer: WarcWriter) -> Original | None:
        """The original of a body that the next record of this writer may refer to."""
        self._follow(writer.current)
        found = self._originals.get(key)
        if found is not None:
            self._originals.move_to_end(key)
        return found

    def stored(self, key: bytes, response: Response, place: WarcLocation, digest: str, record_id: str) -> None:
        """A whole body was archived."""
        self._follow(place.file)
        if len(response.url) > URL_MAX:
            return
        original = Original(
            place=place, record_id=record_id, date=iso_ms(response.started_at), digest=digest,
            mime=response.content_type or NO_MEDIA_TYPE, url=response.url,
        )  # fmt: skip
        self._waiting[place.offset] = _Stored(key, original)
        if len(self._waiting) > self._originals_max // 2:
            self._waiting.popitem(last=False)

    def indexed(self, entry: CommitEntry) -> None:
        """The index line of a page is on disk."""
        place = entry.warc
        if not self._waiting or place is None or place.file != self._file:
            return
        found = self._waiting.pop(place.offset, None)
        if found is not None:
            self._originals.setdefault(found.key, found.original)
            if len(self._originals) > self._originals_max:
                self._originals.popitem(last=False)

    def _follow(self, file: str) -> None:
        """Another file is written: what is in others is not referred to."""
        if file != self._file:
            self._file = file
            self._originals.clear()
            self._waiting.clear()


def body_key(user: str, domain: str, body: bytes) -> bytes:
    """What tells bodies apart: whose they are, of which domain, and what is in them. Hostile bodies may have the same
    SHA-1.
    """
    digest = sha256(f"{user}\0{domain}\0".encode("utf-8", "surrogatepass"))
    digest.update(body)
    return digest.digest()
