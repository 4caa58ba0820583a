"""What does not fit into memory: in a file of the crawl folder that is gone with its process. Bytes, or a database."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from crawler.archive.folder import archive_error

if TYPE_CHECKING:
    import sqlite3


CACHE_KIB = 32 * 1024


def scratch_file(home: Path) -> IO[bytes]:
    """A new file without a name; elsewhere if the crawl folder is read-only. Raises OSError."""
    return tempfile.TemporaryFile("w+b", dir=home if os.access(home, os.W_OK) else None)


def open_scratch(home: Path, prefix: str, tables: str) -> "sqlite3.Connection":
    """A new database in this folder, in a transaction, with these tables (SQL). Raises ArchiveError."""
    import sqlite3

    try:
        descriptor, path = tempfile.mkstemp(prefix=prefix, dir=home)
    except OSError as error:
        raise archive_error("write", home, error) from None
    os.close(descriptor)
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            db.execute(f"PRAGMA {pragma}")
        db.executescript(tables)
        db.execute("BEGIN")
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()  # it is open: its room is given back when this process ends, however it ends
    return db
