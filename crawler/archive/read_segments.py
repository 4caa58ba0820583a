"""Which segments of the index each output has read completely: a small file next to the cursor of the output.

A cursor is a database that its writer locks, so others can't ask it. What no output waits for may be removed. The
file has one line, with a checksum: without it, or when it is damaged, nothing is read.
"""

from pathlib import Path

import msgspec

from crawler.archive.checked_lines import is_right, with_checksum
from crawler.archive.folder import CrawlFolder, archive_error, replace_durably
from crawler.errors import ArchiveError

CURSOR_SUFFIX = ".cursor"
SUFFIX = ".read"


class _Noted(msgspec.Struct):
    done: list[str] | None  # None: its target was written whole, and nothing waits for it


class ReadMarks:
    """The file of one cursor. Without it, nothing is read."""

    def __init__(self, cursor: Path) -> None:
        """Raises ArchiveError."""
        self._path = cursor.with_name(cursor.name + SUFFIX)
        self.noted = _noted(cursor)

    def note(self, done: frozenset[str] | None) -> None:
        """Replace what is noted, durably. None: nothing waits for this output. Raises ArchiveError."""
        if done == self.noted:
            return
        draft = self._path.with_name(self._path.name + ".draft")
        line = msgspec.json.encode(_Noted(None if done is None else sorted(done)))
        try:
            replace_durably(self._path, draft, [with_checksum(line), b"\n"])
        except OSError as error:
            raise archive_error("write", self._path, error) from None
        self.noted = done


class OutputsRead:
    """What all outputs of a folder have read, as it is when this is created. Raises ArchiveError."""

    def __init__(self, folder: CrawlFolder) -> None:
        self._read: dict[str, frozenset[str]] = {}
        cursors = sorted(folder.outputs.glob(f"*{CURSOR_SUFFIX}")) if folder.outputs.exists() else []
        for cursor in cursors:
            done = _noted(cursor)
            if done is not None:
                self._read[f"{folder.outputs.name}/{cursor.name}"] = done

    def waiting_for(self, segment: str) -> list[str]:
        """The cursors, relative to the crawl folder, of outputs that have not read this segment to its end."""
        return [name for name, done in self._read.items() if segment not in done]


def _noted(cursor: Path) -> frozenset[str] | None:
    path = cursor.with_name(cursor.name + SUFFIX)
    try:
        line = path.read_bytes().removesuffix(b"\n")
        if not line.startswith(b"{"):  # of an earlier release: a name a line
            names = line.decode("utf-8", "replace").splitlines()
            return None if names == ["*"] else frozenset(names)
        done = msgspec.json.decode(line, type=_Noted).done if is_right(line) else []
    except (FileNotFoundError, msgspec.MsgspecError):
        return frozenset()  # its program was killed at once, or is of an earlier release
    except OSError as error:
        raise ArchiveError(f"can't read {path}: {error}") from None
    return None if done is None else frozenset(done)
