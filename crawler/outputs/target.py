"""How people name a target: what kind it is, where it lies, and what is wrong with the name. Opens nothing."""

import enum
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import msgspec

from crawler import given_path
from crawler.errors import UsageError
from crawler.redaction import learn, secrets_of_url
from crawler.redaction import shown as without_password

STDOUT = "-"
STDOUT_SHOWN = "standard output"
_LINES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".jl": "jsonl", ".csv": "csv"}
_PACKED = (".gz", ".zst")
_SQLITE = (".sqlite", ".sqlite3", ".db")
_POSTGRES = ("postgresql://", "postgres://")
_TABLE = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)?")
KNOWN = ".jsonl or .csv (also with .gz or .zst), .parquet, .sqlite, a postgresql:// URL, or - for standard output"


class TargetKind(enum.Enum):
    """Kinds of targets."""

    STREAM = "stream"  # standard output, a pipe, a device: takes bytes, and nothing can be taken back
    LINES = "lines"  # a file that can be appended to
    PARQUET = "parquet"
    SQLITE = "sqlite"
    POSTGRES = "postgresql"
    FOLDER = "folder"  # of Markdown, a file for each page


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One target. `shown` is its name without a password."""

    kind: TargetKind
    shown: str
    path: Path | None = None  # of files
    format: str = "jsonl"  # of streams and lines: jsonl or csv
    csv_safe: bool = True  # of CSV: no cell of text is a formula
    packed: str = ""  # of lines: "", ".gz" or ".zst"
    url: str = ""  # of servers, without the table
    table: str = ""  # of databases; "": as what is written is called

    @property
    def is_file(self) -> bool:
        return self.kind in (TargetKind.LINES, TargetKind.PARQUET, TargetKind.SQLITE)


def target_of(text: str) -> Target:
    """What -o names. Raises UsageError when nothing can be written there, as far as its name and place tell."""
    if not text.strip():
        raise UsageError(f"the name of an output is empty: name it {KNOWN}")
    if text == STDOUT:
        return Target(kind=TargetKind.STREAM, shown=STDOUT_SHOWN)
    if text.startswith(_POSTGRES):
        return _server(text)
    target = _file(text)
    _check_place(target, text)
    return target


def folder_of(text: str) -> Target:
    """A folder for a file a page. Raises UsageError when nothing can be written there."""
    path = Path(text).absolute()
    if not text.strip() or text == STDOUT:
        raise UsageError("Markdown is a file for each page: name a folder, -o OUT")
    if given_path.exists(path) and not path.is_dir():
        raise UsageError(f"{text} is not a folder; name a folder for a file a page")
    if not path.parent.is_dir():
        raise UsageError(f"can't write {text}: folder does not exist: {Path(text).parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"can't write {text}: permission denied")
    return Target(kind=TargetKind.FOLDER, shown=text, path=path)


def _server(text: str) -> Target:
    learn(secrets_of_url(text))
    try:
        parts = urlsplit(text)
        fields = dict(parse_qsl(parts.query, keep_blank_values=True))
        shown_user = f"{parts.username}@" if parts.username else ""
        place = parts.netloc.rpartition("@")[2]
        if "," not in place:
            _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        raise UsageError(
            f"can't read the URL of the database {without_password(text)}: its host or port is not valid "
            "(write / @ : in a password as %2F %40 %3A)"
        ) from None
    table = fields.get("table", "")
    _check_table(table, text)
    # The rest stays as it was written: libpq reads it, by rules of its own.
    query = "&".join(one for one in parts.query.split("&") if not one.startswith("table="))
    if not parts.path.strip("/") and "dbname" not in fields:
        raise UsageError(f"which database? Name it: postgresql://{shown_user}{place or 'localhost'}/NAME?table=TABLE")
    shown = f"postgresql://{shown_user}{place}{parts.path}" + (f"?table={table}" if table else "")
    shown = without_password(shown)  # which may stand where none should
    return Target(kind=TargetKind.POSTGRES, shown=shown, url=urlunsplit(parts._replace(query=query)), table=table)


def _file(text: str) -> Target:
    name, _, query = text.partition("?")
    if Path(name).suffix.lower() in _SQLITE and (not query or query.startswith("table=")):
        table = unquote(query.removeprefix("table="))
        _check_table(table, text)
        return Target(kind=TargetKind.SQLITE, shown=text, path=Path(name).absolute(), table=table)
    path = Path(text).absolute()
    if given_path.exists(path) and not path.is_file() and not path.is_dir():
        return Target(
            kind=TargetKind.STREAM, shown=text, path=path, format="csv" if path.suffix.lower() == ".csv" else "jsonl"
        )
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".parquet"]:
        return Target(kind=TargetKind.PARQUET, shown=text, path=path)
    packed = suffixes.pop() if suffixes[-1:] and suffixes[-1] in _PACKED else ""
    if not suffixes or suffixes[-1] not in _LINES:
        if path.is_dir():
            raise UsageError(f"{text} is a folder; name a file in it")
        raise UsageError(f"can't tell the format of {text}: name it {KNOWN}")
    return Target(kind=TargetKind.LINES, shown=text, path=path, format=_LINES[suffixes[-1]], packed=packed)


def _check_table(table: str, text: str) -> None:
    if table and not _TABLE.fullmatch(table):
        raise UsageError(f"{text.rpartition('?')[2]}: not the name of a table (letters, digits and _)")


def _check_place(target: Target, text: str) -> None:
    path = target.path
    assert path is not None
    if path.is_dir():
        raise UsageError(f"{text} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"can't write {text}: folder does not exist: {Path(text.partition('?')[0]).parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"can't write {text}: permission denied")
    if target.is_file and not os.access(path.parent, os.W_OK):
        raise UsageError(f"can't write {text}: no permission to create files in {path.parent}")
