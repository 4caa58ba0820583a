"""A folder of Markdown: a file for each page, with front matter.

    OUT/HOST/PATH-FINGERPRINT.md

A name depends on nothing but its page: the fingerprint makes it another one for each page, on file systems without
upper case too, whatever the order and the other pages. Files are written under a hidden name and renamed, so that none
is ever half there. A file that is not of this page is never replaced.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from crawler.archive.folder import archive_error
from crawler.errors import OutputError
from crawler.outputs.sink import Mark, Row, Wanted
from crawler.outputs.target import Target
from crawler.rules.urls import authority_of, split

FRONT = {  # of each file: its name there, and the column
    "url": "url",
    "title": "title",
    "fetched": "fetched_at",
    "language": "language",
}
BODIES = ("main_markdown", "markdown")  # the column of the text: the first of these that was asked for
RIGHTS = "rights."  # columns of what was said of them
DRAFT = ".page.part"
_SLUG_MAX = 80
_SHOWN = 3
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_HOST_UNSAFE = re.compile(r"[^a-z0-9_.-]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z)")
_YAML_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def path_of(url: str, fingerprint: int, visit: int) -> tuple[str, str]:
    """The folder and the name of a page's file."""
    host = _HOST_UNSAFE.sub("_", authority_of(url).lower()).strip(".") or "_"
    if _RESERVED.match(host):
        host = f"_{host}"
    slug = _UNSAFE.sub("-", split(url).target)[: 2 * _SLUG_MAX].strip("-.")[:_SLUG_MAX].strip("-.")
    number = f"-{visit}" if visit > 1 else ""
    return host, f"{slug or 'index'}-{fingerprint & (1 << 64) - 1:016x}{number}.md"


def front_matter(record: dict[str, Any], names: Sequence[str] = ()) -> str:
    """YAML that says of a page what `record` has of it, and of the columns `names`; what is empty is left out."""
    columns = {**FRONT, **{name: name for name in names if name not in FRONT.values()}}
    lines = [f"{name}: {_yaml(record[column])}" for name, column in columns.items() if record.get(column)]
    if rights := {name.removeprefix(RIGHTS): said for name, said in record.items() if name.startswith(RIGHTS) and said}:
        lines.append(f"rights: {_yaml(rights)}")
    return "\n".join(["---", *lines, "---", "", ""])


def _yaml(value: Any) -> str:
    """As JSON, which is YAML too, but for characters that YAML has escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return _YAML_UNSAFE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


class MarkdownFolder:
    """The open target. Each page is there when `write` returns."""

    def __init__(self, target: Target, columns: Sequence[str]) -> None:
        """`columns`: those that were asked for beside what the index has. Raises OutputError."""
        assert target.path is not None
        self._target, self._root = target, target.path
        self._body = next(name for name in BODIES if name in columns)
        self._front = [name for name in columns if name not in BODIES]
        self._written = self._without_text = 0
        self._foreign: list[str] = []
        self._foreign_count = 0
        self._folders: set[str] = set()
        try:
            self._root.mkdir(exist_ok=True)
        except OSError as error:
            raise archive_error("write", self._root, error) from None

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            text = row.record.get(self._body)
            if not text:
                self._without_text += 1
                continue
            self._write(row, text)

    def _write(self, row: Row, text: str) -> None:
        record = row.record
        folder, name = path_of(record["url"], row.key.fingerprint, row.key.visit)
        head = front_matter(record, self._front)
        place = self._root / folder
        path = place / name
        try:
            if folder not in self._folders:
                place.mkdir(exist_ok=True)
                if place.is_symlink():
                    raise OutputError(f"{place} is a symbolic link: remove it, or name another folder")
                self._folders.add(folder)
            if not _is_ours(path, record["url"]):
                self._foreign_count += 1
                self._foreign += [str(path)] if len(self._foreign) < _SHOWN else []
                return
            draft = place / DRAFT
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()  # of an export that was killed, or somebody's link
            with draft.open("x", encoding="utf-8", errors="replace", newline="\n") as file:
                file.write(head + text)
            draft.replace(path)
        except FileExistsError:
            raise OutputError(f"{place} is not a folder: nothing can be written there; name another one") from None
        except OSError as error:
            with contextlib.suppress(OSError):
                (place / DRAFT).unlink()
            raise archive_error("write", path, error) from None
        self._written += 1

    def commit(self) -> Mark | None:
        """Nothing is kept back. Raises OutputError for files that are not ours and were not replaced."""
        if self._foreign_count:
            raise OutputError(
                f"{self._foreign_count:,} files in {self._target.shown} are of something else and were not replaced "
                f"({', '.join(self._foreign)}); {self.said}"
            )
        return None

    @property
    def said(self) -> str:
        """How many files there are now, and how many pages have none."""
        without = f"; {self._without_text:,} pages have no text, and no file" if self._without_text else ""
        return f"{self._written:,} files written{without}"

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:  # noqa: ARG002
        """How many were written."""
        return self._written

    def close(self) -> None:
        """Nothing is open."""


def _is_ours(path: Path, url: str) -> bool:
    """Is there nothing, or the file of this page?"""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:  # a link, or nothing that can be read
        return False
    begin = f"---\nurl: {_yaml(url)}\n".encode()
    with os.fdopen(number, "rb") as file:
        try:
            return file.read(len(begin)) == begin
        except OSError:  # a folder
            return False
