"""`crawler export`: committed pages as JSON Lines or CSV, from the crawl folder alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of
from crawler.errors import ArchiveError, UsageError

if TYPE_CHECKING:
    from crawler.archive.folder import CrawlFolder
    from crawler.archive.reader import MissingFile

STDOUT = "-"
SUFFIXES = (".jsonl", ".ndjson", ".jl", ".csv")
BODY_BYTES_MAX = 64 * 1024 * 1024
RATIO_MAX = 1000

EPILOG = """\
examples:
  crawler export -o pages.jsonl -o pages.csv
  crawler export --text | jq -r 'select(.status == 200) | .title'

fields: url, status, fetched_at, content_type, bytes, title, depth, digest, redirect_to,
truncated, warc_file, warc_offset, visit; with --text: text; with --links: links

exit codes: 0 done, 2 bad folder or target, 5 disk full or part of the archive missing
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "export",
        help="write the pages of a crawl as JSON Lines or CSV",
        description="Write one record per committed page, each once. Needs the crawl folder, but no engine; "
        "also works while the crawl is running.",
        epilog=EPILOG,
    )
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="FILE",
        help="FILE.jsonl, FILE.csv, or - for JSON Lines on standard output (default); may be repeated",
    )  # fmt: skip
    p.add_argument("--items", action="store_true", help="what handlers yielded (--app) instead of pages, as JSON Lines")
    p.add_argument("--text", action="store_true", help="with the visible text of each page")
    p.add_argument("--links", action="store_true", help="with the links of each page")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Export; raises ArchiveError when part of the archive is missing, after all that can be read was written."""
    from crawler.archive.folder import open_existing

    targets = arguments.output or [STDOUT]
    check_targets(targets)
    folder = open_existing(settings_of(arguments).archive.dir)
    if sys.stdout.isatty() and STDOUT not in targets:
        print(f"Exporting {folder.root} ...", file=sys.stderr)
    if arguments.items:
        _export_items(folder, targets)
        return 0
    export_all(folder, targets, text=arguments.text, links=arguments.links)
    return 0


def _export_items(folder: "CrawlFolder", targets: Sequence[str]) -> None:
    from crawler.archive.export import export_items

    written, missing = export_items(folder, targets)
    files = [target for target in targets if target != STDOUT]
    if files:
        print(f"{written:,} items written to {', '.join(files)}", file=sys.stderr)
    _say_missing(missing)


def check_targets(targets: Sequence[str]) -> None:
    """Say what can't be written before any work is done. Raises UsageError."""
    for target in targets:
        if target == STDOUT:
            continue
        path = Path(target)
        if path.is_dir():
            raise UsageError(f"{target} is a folder; name a file in it")
        if not path.parent.is_dir():
            raise UsageError(f"can't write {target}: there is no folder {path.parent}")
        is_device = path.exists() and not path.is_file()
        if path.suffix.lower() not in SUFFIXES and not is_device:
            raise UsageError(f"can't tell the format of {target}: name it .jsonl or .csv, or - for stdout")


def export_all(
    folder: "CrawlFolder", targets: Sequence[str], *, text: bool = False, links: bool = False, quiet: bool = False
) -> None:
    """Write the targets and say how many pages went where; blocking. Raises ArchiveError, UsageError."""
    if not targets:
        return
    from crawler.archive.export import export

    summary = export(folder, targets, text=text, links=links, decode=_decode)
    files = [target for target in targets if target != STDOUT]
    if files and not quiet:
        print(f"{summary.pages:,} pages written to {', '.join(files)}", file=sys.stderr)
    _say_missing(summary.missing)


def _say_missing(missing: "Sequence[MissingFile]") -> None:
    if not missing:
        return
    for one in missing:
        needed = f" ({one.entries:,} pages need it)" if one.entries else ""
        print(f"crawler: {one.file}: {one.reason}{needed}", file=sys.stderr)
    raise ArchiveError(f"{len(missing)} parts of the archive could not be read; the rest was exported")


def _decode(payload: bytes, coding: str) -> bytes:
    """Undo a content coding, bounded."""
    from crawler.web.inflate import inflate

    found = inflate(payload, coding, limit=BODY_BYTES_MAX, ratio_max=RATIO_MAX)
    if found.error and not found.body:
        raise ArchiveError(f"can't undo content coding {coding}: {found.error}")
    return found.body
