"""The ZIP of a WACZ file (WACZ 1.1.1): WARC files, their index, a list of pages, and the digests of all. No crawl.

Whoever writes it adds records in the order of their keys, then closes it. Memory: one record, and a block of the index.
"""

import calendar
import hashlib
import json
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import IO, Any

VERSION = "1.1.1"
PART_BYTES = 1_000_000_000  # of a WARC file in it
BLOCK_LINES = 3000  # of the index, as other tools write it
_DEFLATE_LEVEL = 6
_MODE = 0o644 << 16
_GZIP = 31
_TIMESTAMP = 0x5455  # the extended timestamp of Info-ZIP


class _Resource:
    """An open file in the ZIP."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.digest = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """How many bytes were before."""
        before = self.bytes
        self._out.write(data)
        self.digest.update(data)
        self.bytes += len(data)
        return before


class WaczPackage:
    """What is written raises OSError."""

    def __init__(self, file: IO[bytes], lines: IO[bytes], warcinfo: Callable[[str], bytes]) -> None:
        """`lines`: an empty file for those of the index. `warcinfo`: the first member of a WARC file of this name."""
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._at = time.gmtime()
        self._resources: list[dict[str, Any]] = []
        self._lines, self._warcinfo = lines, warcinfo
        self._parts = 0
        self._part: _Resource | None = None
        self._open = ExitStack()  # what ends the part
        self.records = 0

    def add(self, key: str, moment: str, fields: Mapping[str, str], member: bytes, request: bytes) -> None:
        """A record and its line in the index: its fields without its place. In the order of keys and moments."""
        if self._part is None or self._part.bytes >= PART_BYTES:
            self._open.close()
            self._part = self._next_part()
        offset = self._part.write(member)
        if request:
            self._part.write(request)
        place = {"length": str(len(member)), "offset": str(offset), "filename": _part_name(self._parts)}
        self._lines.write(f"{key} {moment} {json.dumps({**fields, **place})}\n".encode())
        self.records += 1

    def finish(self, pages: Mapping[str, Iterator[bytes]], facts: Mapping[str, str]) -> None:
        """All that is behind the archive. `pages`: lines by name of the list; `facts`: of the crawl, for people."""
        self._open.close()
        self._write_index()
        for name, lines in pages.items():
            with self._resource(f"pages/{name}.jsonl", packed=True) as out:
                for line in lines:
                    out.write(line)
        said = {
            "profile": "data-package", "wacz_version": VERSION, **facts,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", self._at), "resources": self._resources,
        }  # fmt: skip
        package = json.dumps(said, indent=2).encode()
        digest = {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(package).hexdigest()}"}
        for name, data in (("datapackage.json", package), ("datapackage-digest.json", json.dumps(digest).encode())):
            self._zip.writestr(self._info(name), data)
        self._zip.close()

    def close(self) -> None:
        """Of a package that was not finished nothing is of use, and a disk that is full says so again."""
        for end in (self._open.close, self._zip.close):
            with suppress(OSError, ValueError):
                end()

    def _next_part(self) -> _Resource:
        self._parts += 1
        name = _part_name(self._parts)
        part = self._open.enter_context(self._resource(f"archive/{name}"))
        part.write(self._warcinfo(name))
        return part

    def _write_index(self) -> None:
        """Blocks of lines, each a gzip member, and where they begin."""
        self._lines.seek(0)
        places = ['!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}']
        with self._resource("indexes/index.cdx.gz") as out:
            while block := list(islice(self._lines, BLOCK_LINES)):
                packer = zlib.compressobj(_DEFLATE_LEVEL, wbits=_GZIP)
                data = packer.compress(b"".join(block)) + packer.flush()
                place = {
                    "offset": out.write(data), "length": len(data),
                    "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "filename": "index.cdx.gz",
                }  # fmt: skip
                places.append(f"{block[0].partition(b' {')[0].decode()} {json.dumps(place)}")
        with self._resource("indexes/index.idx", packed=True) as out:
            out.write("".join(f"{line}\n" for line in places).encode())

    @contextmanager
    def _resource(self, path: str, *, packed: bool = False) -> Iterator[_Resource]:
        """A file in the ZIP, one at a time. What is compressed already is not compressed again, to be read by place."""
        with self._zip.open(self._info(path, packed=packed), "w", force_zip64=True) as out:
            resource = _Resource(out)
            yield resource
        name, said = path.rpartition("/")[2].lower(), f"sha256:{resource.digest.hexdigest()}"
        self._resources.append({"name": name, "path": path, "hash": said, "bytes": resource.bytes})

    def _info(self, path: str, *, packed: bool = True) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(path, self._at[:6])
        info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
        info.external_attr = _MODE
        # Local headers have a field for ZIP64. Readers look for it there only if the directory has some field, too.
        info.extra = struct.pack("<HHBL", _TIMESTAMP, 5, 1, calendar.timegm(self._at))
        return info


def _part_name(number: int) -> str:
    return f"data-{number:05d}.warc.gz"
