"""Takes the records of a domain out of the outputs that a crawl keeps up to date (-o).

Tables and files of pages know whose a record is, by its key or its URL: these are changed before the domain's lines
leave the index, and keep all other records, also of pages that were pruned. A file of items has no URLs, and a Parquet
file is always written whole: these are written again from the crawl folder, after that.
"""

import contextlib
import csv
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index_reader import IndexReader
from crawler.archive.read_segments import CURSOR_SUFFIX
from crawler.errors import CrawlerError
from crawler.outputs.cursor import Cursor, cursor_path, lock_of
from crawler.outputs.files import is_at, mark_of, take_place
from crawler.outputs.follow import LOCK_TIMEOUT_S, AtTheEnd, Follower
from crawler.outputs.lines import CsvLines, csv_rows, packed, text_of
from crawler.outputs.opening import open_growing
from crawler.outputs.records import ITEMS, PAGES, Items, Pages, RecordSource, Shape
from crawler.outputs.sink import Mark
from crawler.outputs.target import Target, TargetKind
from crawler.outputs.writer_lock import draft_of, writing
from crawler.rules.forgotten import Named

log = logging.getLogger(__name__)

BLOCK_ROWS = 1_000
_decode = msgspec.json.Decoder(dict).decode


class KeptOutput(NamedTuple):
    """A target, and the cursor by which a folder keeps it up to date."""

    folder: CrawlFolder
    target: Target
    shape: Shape
    cursor: Path

    @property
    def is_late(self) -> bool:
        """Is it written again, once the lines are gone?"""
        return self.target.kind is TargetKind.PARQUET or (self.target.kind is TargetKind.LINES and self.shape is ITEMS)


class ForgetFailed(Exception):
    """Why an output could not be reached."""


def kept_outputs(folders: Sequence[CrawlFolder], targets: Sequence[Target]) -> list[KeptOutput]:
    """Those of these targets that the folders keep up to date."""
    found = list[KeptOutput]()
    for folder, target, shape in itertools.product(folders, targets, (PAGES, ITEMS)):
        cursor = cursor_path(folder.outputs, target, shape.name)
        if cursor.exists():
            found.append(KeptOutput(folder, target, shape, cursor))
    return found


def cursors_in(folder: CrawlFolder) -> list[Path]:
    """Of all outputs that a folder keeps up to date."""
    return sorted(folder.outputs.glob(f"*{CURSOR_SUFFIX}"))


def forget_early(output: KeptOutput, named: Named, visits: Sequence[tuple[int, int]]) -> int:
    """Take the domain's records out of a table, or a file of pages; how many. `visits`: keys of the domain's pages.

    Blocks. Raises ForgetFailed.
    """
    with _held(output) as cursor:
        if output.target.kind in (TargetKind.SQLITE, TargetKind.POSTGRES):
            return _from_table(output, cursor, visits)
        return _from_lines(output, cursor, named, visits)


def forget_late(output: KeptOutput, named: Named) -> None:
    """Write a file again from the crawl folder, which has nothing of the domain any more. Blocks.

    Raises ForgetFailed.
    """
    folder, target, source = output.folder, output.target, _source(output)
    notes = list[str]()
    try:
        if target.kind is TargetKind.PARQUET:
            whole = AtTheEnd(folder, target, source, warn=notes.append)
            whole.open()
            if (problem := whole.finish()) is not None:
                raise problem
            return
        if any(entry.pruned and not named.owns(entry.url) for entry in IndexReader(folder).entries(pruned=True)):
            source.close()
            raise ForgetFailed(
                "a file of items does not tell which page a record is of, and it has items of pruned pages, which "
                "nothing else has: take out what is of the domain, or remove the file and its cursor"
            )
        with _held(output) as cursor:
            cursor.start_over(TargetKind.LINES)
        follower = Follower(folder, target, source, warn=notes.append)
        follower.open()
        try:
            follower.step(is_last=True)
        finally:
            follower.close()
    except CrawlerError as error:
        raise ForgetFailed(str(error)) from None


def old_copies(output: KeptOutput, named: Named) -> list[Path]:
    """Files next to a target that a crawl has set aside because others had changed them, if they name the domain."""
    path = output.target.path
    if path is None:
        return []
    found = list[Path]()
    for other in sorted(path.parent.glob(f"{path.name}.changed-*")):
        with contextlib.suppress(OSError), other.open("rb") as file:
            if any(map(named.is_in, file)):
                found.append(other)
    return found


def _source(output: KeptOutput) -> RecordSource:
    return Items(output.folder) if output.shape is ITEMS else Pages(output.folder)


@contextlib.contextmanager
def _held(output: KeptOutput) -> Iterator[Cursor]:
    """Nobody else writes the target meanwhile."""
    target, folder = output.target, output.folder
    with contextlib.ExitStack() as stack:
        try:
            if target.kind is TargetKind.LINES and target.path is not None:
                stack.enter_context(writing(target.path, target.shown, str(folder.root.resolve())))
            stack.enter_context(folder.exclusive(lock_of(output.cursor), LOCK_TIMEOUT_S))
            yield stack.enter_context(contextlib.closing(Cursor(output.cursor)))
        except CrawlerError as error:
            raise ForgetFailed(str(error)) from None
        except OSError as error:
            raise ForgetFailed(str(archive_error("write", target.path or Path(target.shown), error))) from None


def _from_table(output: KeptOutput, cursor: Cursor, visits: Sequence[tuple[int, int]]) -> int:
    sink = open_growing(output.target, output.shape, None)
    try:
        gone = sink.remove(visits)  # type: ignore[attr-defined]  # both kinds of tables have it
        sink.commit()
        cursor.forget(visits)
        sink.compact()  # type: ignore[attr-defined]
    finally:
        sink.close()
    return int(gone)


def _from_lines(output: KeptOutput, cursor: Cursor, named: Named, visits: Sequence[tuple[int, int]]) -> int:
    path = output.target.path
    if path is None or not path.exists():
        cursor.forget(visits)
        return 0
    path = path.resolve()
    mark, is_known = _mark_there(path, cursor)
    draft, gone = draft_of(path), 0
    try:
        with path.open("rb") as file, draft.open("xb") as new:
            rows = _csv_left if output.target.format == "csv" else _json_left
            with text_of(file, output.target.packed) as text:
                for block, dropped in rows(text, named):
                    gone += dropped
                    if block:
                        new.write(packed(block, output.target.packed))
        if gone:
            with draft.open("rb") as new_file:
                mark = mark_of(new_file)
            cursor.note_next(mark)
            take_place(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    cursor.forget(visits, mark if is_known else None)
    return gone


def _mark_there(path: Path, cursor: Cursor) -> tuple[Mark, bool]:
    """Where the file ends, and whether it is the one that the cursor knows: else the next who keeps it up to date
    begins again.
    """
    after = cursor.successor()
    known = [one for one in (cursor.mark, after) if one is not None and is_at(path, one)]
    if known:
        return known[0], True
    with path.open("rb") as file:
        return mark_of(file), False


def _json_left(text: Iterable[str], named: Named) -> Iterator[tuple[bytes, int]]:
    lines = iter(text)
    while block := list(itertools.islice(lines, BLOCK_ROWS)):
        kept = [line for line in block if not _is_of(line, named)]
        yield "".join(kept).encode("utf-8", "surrogateescape"), len(block) - len(kept)


def _is_of(line: str, named: Named) -> bool:
    try:
        url = _decode(line).get("url")
    except (msgspec.MsgspecError, RecursionError):
        return named.is_in(line.encode("utf-8", "replace"))  # of whom, nobody can tell
    return isinstance(url, str) and named.owns(url)


def _csv_left(text: Iterable[str], named: Named) -> Iterator[tuple[bytes, int]]:
    rows = csv.reader(text)
    header = next(rows, [])
    names = CsvLines.names_of(header)
    at = names.index("url") if "url" in names else -1
    yield csv_rows([header]) if header else b"", 0
    while block := list(itertools.islice(rows, BLOCK_ROWS)):
        kept = [row for row in block if not (0 <= at < len(row) and named.owns(row[at]))]
        yield csv_rows(kept), len(block) - len(kept)
