"""Files of spilled URLs: blocks that a partition's owner moved out of the engine's memory.

    FOLDER/PARTITION/EPOCH-SESSION-SERIAL    frames: length, CRC-32 of the payload (both u32, little-endian), payload

A file is written once and never changed; only the engine knows which of its blocks are valid.
"""

import contextlib
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from crawler.archive.appender import Appender, finish_all
from crawler.archive.folder import archive_error, make_private, sync_directory
from crawler.errors import ArchiveError

FRAME = struct.Struct("<II")
_CRC_SEED = 0x5EED  # so that zeros, which a power cut may leave, are not a valid frame

Place = tuple[str, int, int]  # file, offset, length of the frame in bytes


class SpillFiles:
    """The spill files of one crawl: one session writes, all read. All methods block."""

    def __init__(self, root: Path, session: str) -> None:
        self.root = root
        self._session = session
        self._serial = 0

    def write(self, partition: int, epoch: int, payloads: Sequence[bytes]) -> list[Place]:
        """Write a new file with these payloads, durable when this returns; the place of each. Raises ArchiveError."""
        folder = self.root / str(partition)
        _make(folder)
        self._serial += 1
        name = f"{epoch}-{self._session}-{self._serial}"
        file, places = Appender(folder / name), list[Place]()
        for payload in payloads:
            frame = FRAME.pack(len(payload), zlib.crc32(payload, _CRC_SEED)) + payload
            places.append((name, file.add(frame), len(frame)))
        finish_all([file])
        return places

    @staticmethod
    def root_of(folder: Path, crawl: str, begun_at: float) -> Path:
        """Where the files of a crawl are, in the folder that settings name."""
        return folder / f"{crawl}-{begun_at * 1000:.0f}"

    def store(self, partition: int, name: str, data: bytes) -> None:
        """Put a file as it was elsewhere in its place. Raises ArchiveError."""
        folder = self.root / str(partition)
        _make(folder)
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
        file = Appender(folder / name)
        file.add(data)
        finish_all([file])

    def data(self, partition: int, name: str) -> bytes:
        """A whole file. Raises ArchiveError."""
        path = self.root / str(partition) / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise archive_error("read spilled URLs from", path, error) from None

    def read(self, partition: int, places: Sequence[Place]) -> list[bytes]:
        """The payloads at these places. Raises ArchiveError for missing or damaged ones."""
        return [self._read(self.root / str(partition) / name, offset, length) for name, offset, length in places]

    def _read(self, path: Path, offset: int, length: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                frame = file.read(length)
        except OSError as error:
            raise archive_error("read spilled URLs from", path, error) from None
        payload = frame[FRAME.size :]
        if len(frame) != length or FRAME.unpack_from(frame) != (len(payload), zlib.crc32(payload, _CRC_SEED)):
            raise ArchiveError(f"{path} is damaged at byte {offset}: the URLs there can't be read")
        return payload

    def partitions(self) -> list[int]:
        """The partitions that have files here."""
        try:
            return sorted(int(path.name) for path in self.root.iterdir() if path.name.isdigit())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise archive_error("read the folder", self.root, error) from None

    def names(self, partition: int) -> list[str]:
        """Names of a partition's files; unfinished ones end in .open."""
        folder = self.root / str(partition)
        try:
            return sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise archive_error("read the folder", folder, error) from None

    def remove(self, partition: int, names: Sequence[str]) -> None:
        """Delete files that no stub names any more."""
        folder = self.root / str(partition)
        with contextlib.suppress(OSError):  # tried again later
            for name in names:
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def _make(folder: Path) -> None:
    """Create the folder and its parents, durably: their names must survive a power cut, too."""
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            make_private(path)
            sync_directory(path.parent)
    except OSError as error:
        raise archive_error("make the folder", folder, error) from None
