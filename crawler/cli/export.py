"""`crawler export`: committed pages, or items, into files and databases, from the crawl folder alone."""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of
from crawler.errors import ArchiveError, UsageError

if TYPE_CHECKING:
    from crawler.archive.folder import CrawlFolder
    from crawler.archive.index_reader import MissingFile
    from crawler.outputs.records import RecordSource
    from crawler.outputs.target import Target

STDOUT = "-"
BODY_BYTES_MAX = 64 * 1024 * 1024
RATIO_MAX = 1000
OUTPUT_HELP = (
    "FILE.jsonl or FILE.csv (also .gz, .zst), FILE.parquet, FILE.sqlite, postgresql://HOST/DB?table=NAME, or - for "
    "JSON Lines on standard output"
)

EPILOG = """\
examples:
  crawler export -o pages.jsonl -o pages.csv.gz
  crawler export --items -o items.jsonl
  crawler export --unless noindex -o pages.parquet
  crawler export --text main --since 1d -o articles.parquet
  crawler export -o 'postgresql://crawler@db.example/web?table=pages'
  crawler export --text | jq -r 'select(.status == 200) | .title'

fields: url, status, fetched_at, content_type, bytes, title, depth, digest, redirect_to,
truncated, decode_error, noindex, warc_file, warc_offset, visit; of pages that a run of a job
fetched: run;
with --text: text; with --links: links; with --items: those of the items

exit codes: 0 done, 2 bad folder or target, 4 another process is writing the target, 5 disk full
or part of the archive missing, 12 a target rejected records, or is not available
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "export",
        help="write the pages or items of a crawl into files or databases",
        description="Write one record per committed page, each once. Needs the crawl folder, but no engine; "
        "also works while the crawl is running.",
        epilog=EPILOG,
    )
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help=f"{OUTPUT_HELP} (default); may be repeated",
    )  # fmt: skip
    _add_csv_safe(p)
    p.add_argument("--items", action="store_true", help="what handlers yielded (--app) instead of pages")
    p.add_argument(
        "--text", nargs="?", const="visible", default="", choices=("visible", "main"),
        help="with the text of each page: all that is visible (default), or the main text alone, without menus and "
        "footers (needs trafilatura)",
    )  # fmt: skip
    p.add_argument("--links", action="store_true", help="with the links of each page")
    p.add_argument(
        "--since", type=since_type, metavar="WHEN", default=0.0,
        help="only pages committed since: a time ago (2h, 3d) or a date, 2026-11-01 or 2026-11-01T08:00 (UTC)",
    )  # fmt: skip
    p.add_argument("--run", dest="of_run", metavar="ID", default="", help="only pages that this run of a job fetched")
    p.add_argument(
        "--unless", action="append", default=[], choices=("noindex", "truncated"),
        help="leave out pages that ask search engines not to show them (noindex), or whose body was cut (truncated); "
        "may be repeated",
    )  # fmt: skip
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def since_type(text: str) -> float:
    """For argparse: a time ago or a date, as wall time in seconds."""
    from crawler.rules.schedules import parse_duration

    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    try:
        return time.time() - parse_duration(text)
    except UsageError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid time (use a time ago: 2h, 3d; or a date: 2026-11-01, 2026-11-01T08:00)"
        ) from None


def add_output(group: "argparse._ArgumentGroup") -> None:
    """The same for commands that crawl."""
    group.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help=f"keep results up to date there while the crawl runs: {OUTPUT_HELP}; may be repeated",
    )  # fmt: skip
    _add_csv_safe(group)


def _add_csv_safe(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--no-csv-safe", dest="csv_safe", action="store_false",
        help="write text to CSV unchanged, even where a spreadsheet would run it as a formula",
    )  # fmt: skip


def checked_targets(arguments: argparse.Namespace, folder: str, *, items: bool) -> list["Target"]:
    """The targets of a command that crawls into that folder, which need not be there yet, after a look at each.

    Raises UsageError, and OutputError where nobody answers.
    """
    if not arguments.output:
        return []
    from pathlib import Path

    from crawler.archive.folder import OUTPUTS
    from crawler.outputs.cursor import refuse_foreign
    from crawler.outputs.opening import check_target, targets_of
    from crawler.outputs.records import ITEMS, PAGES

    shape = ITEMS if items else PAGES
    targets = targets_of(arguments.output, csv_safe=arguments.csv_safe, table=shape.name)
    for target in targets:
        check_target(target, shape)
        refuse_foreign(Path(folder, OUTPUTS), target, shape.name)
    return targets


def run(arguments: argparse.Namespace) -> int:
    """Export; raises ArchiveError when part of the archive is missing, after all that can be read was written."""
    from crawler.archive.folder import open_existing
    from crawler.outputs.opening import targets_of
    from crawler.outputs.records import ITEMS, PAGES, Items, Pages
    from crawler.terminal.text import say

    table = (ITEMS if arguments.items else PAGES).name
    targets = targets_of(arguments.output or [STDOUT], csv_safe=arguments.csv_safe, table=table)
    _check_content(arguments)
    folder = open_existing(settings_of(arguments, in_folder=True).archive.dir)
    if sys.stdout.isatty() and STDOUT not in (arguments.output or [STDOUT]):
        say(f"Exporting {folder.root} ...")
    source: RecordSource = Items(folder)
    if not arguments.items:
        source = Pages(folder, text=arguments.text, links=arguments.links, decode=decode)
    with contextlib.closing(source):
        export_all(
            folder, targets, source, since=arguments.since, of_run=arguments.of_run, unless=arguments.unless,
            verbose=arguments.verbose,
        )  # fmt: skip
    return 0


def _check_content(arguments: argparse.Namespace) -> None:
    """Raises UsageError for text that needs what is not installed, and for items with what pages have."""
    if arguments.items and (arguments.text or arguments.links):
        raise UsageError("--text and --links are of pages: leave out --items")
    if arguments.text == "main":
        try:
            import trafilatura  # noqa: F401
        except ImportError:
            from crawler.version import how_to_install

            raise UsageError(
                f"--text main needs trafilatura: {how_to_install('text', 'trafilatura')} (--text visible needs nothing)"
            ) from None


def export_all(
    folder: "CrawlFolder", targets: Sequence["Target"], source: "RecordSource", *, since: float = 0.0,
    of_run: str = "", unless: Sequence[str] = (), verbose: bool = False,
) -> None:  # fmt: skip
    """Write the targets and say how many records went where; blocking. Raises ArchiveError, OutputError, UsageError."""
    from crawler.archive.index_reader import unchecked_text
    from crawler.outputs.export import export
    from crawler.outputs.files import NAME_SHOWN
    from crawler.outputs.target import TargetKind
    from crawler.terminal.progress import progress
    from crawler.terminal.text import counted, say, warn

    fills_stdout = any(target.kind is TargetKind.STREAM for target in targets)
    with progress(verbose=verbose, fills_stdout=fills_stdout) as meter:
        summary = export(folder, targets, source, since=since, run=of_run, unless=unless, meter=meter)
    places = [target.shown for target in targets if target.kind is not TargetKind.STREAM]
    if places:
        what = counted(summary.records, source.shape.name.removesuffix("s"))
        say(f"{what} written to {', '.join(places)}")
    for field, column in summary.renamed.items():
        say(f"field {field[:NAME_SHOWN]!r} is column {column!r}")
    if summary.left_out:
        say(f"{counted(summary.left_out, 'page')} left out (--unless {', '.join(unless)})")
    if summary.pruned:
        say(f"{counted(summary.pruned, 'page')} of run {of_run} removed by 'crawler prune'")
    elif of_run and not summary.by_status:
        say(f"no page of run {of_run} in {folder.root}: 'crawler jobs history NAME' has the runs of a job")
    for line in source.remarks():
        warn(line)
    if summary.unchecked:
        say(unchecked_text(summary.unchecked))
    _say_missing(summary.missing)


def _say_missing(missing: "Sequence[MissingFile]") -> None:
    from crawler.terminal.text import counted, warn

    if not missing:
        return
    for one in missing:
        needed = f" ({counted(one.entries, 'page needs', 'pages need')} it)" if one.entries else ""
        warn(f"{one.file}: {one.reason}{needed}")
    raise ArchiveError(f"{counted(len(missing), 'part')} of the archive could not be read; the rest was exported")


def decode(payload: bytes, coding: str) -> bytes:
    """Undo a content coding, bounded, as far as it can be. Raises UndecodableError when nothing of it can."""
    from crawler.content.coding import inflate
    from crawler.model import Decoded
    from crawler.outputs.records import UndecodableError

    found = inflate(payload, coding, limit=BODY_BYTES_MAX, ratio_max=RATIO_MAX)
    if found.decoded is Decoded.NOTHING:
        raise UndecodableError(found.error)
    return found.body
