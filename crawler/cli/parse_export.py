"""Options of `crawler export`."""

import argparse
import contextlib
import time
from datetime import UTC, datetime

from crawler.cli.options import add_common, named_type
from crawler.errors import UsageError
from crawler.rules.page_columns import COLUMNS

OUTPUT_HELP = (
    "FILE.jsonl or FILE.csv (also .gz, .zst), FILE.parquet, FILE.sqlite, postgresql://HOST/DB?table=NAME, or - for "
    "JSON Lines on standard output"
)

MORE_COLUMNS = ("fingerprint", "duplicate_of")

EXPORT_EPILOG = """\
examples:
  crawler export -o pages.jsonl -o pages.csv.gz
  crawler export --items -o items.jsonl
  crawler export --unless noindex -o pages.parquet
  crawler export --run 0k3v9x2m7q.1.trvm5c --changed -o changed.jsonl
  crawler export --unique near -o pages.parquet
  crawler export --unique near --columns duplicate_of -o pages.csv
  crawler export --columns main_text,language --since 1d -o articles.parquet
  crawler export --format markdown -o pages
  crawler export --wacz site.wacz
  crawler export --wacz docs.wacz --domain docs.example --dir a --dir b
  crawler export -o 'postgresql://crawler@db.example/web?table=pages'
  crawler export --columns text | jq -r 'select(.status == 200) | .text'

fields: url, status, fetched_at, content_type, bytes, title, depth, digest, redirect_to,
truncated, decode_error, noindex, warc_file, warc_offset, visit; of pages that a run of a job
fetched: run;
those of --columns; with --items: those of the items

exit codes: 0 done, 2 bad folder or target, 4 another process is writing the target, 5 disk full
or part of the archive missing, 12 a target rejected records, or is not available
"""


def add_export(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Write one record per committed page, each once. Needs the crawl folder, but no engine; "
        "also works while the crawl is running."
    )
    p.epilog = EXPORT_EPILOG
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help=f"{OUTPUT_HELP} (default); may be repeated",
    )  # fmt: skip
    _add_csv_safe(p)
    p.add_argument("--items", action="store_true", help="what handlers yielded (--app) instead of pages")
    p.add_argument(
        "--format", choices=("markdown",), default="",
        help="a file for each page with front matter: -o names a folder",
    )  # fmt: skip
    _add_columns(p)
    p.add_argument(
        "--since", type=since_type, metavar="WHEN", default=0.0,
        help="only pages committed since: a time ago (2h, 3d) or a date, 2026-11-01 or 2026-11-01T08:00 (UTC)",
    )  # fmt: skip
    p.add_argument("--run", dest="of_run", metavar="ID", default="", help="only pages that this run of a job fetched")
    p.add_argument(
        "--changed", action="store_true",
        help="with --run: only pages that the run of the job before it did not have, or that have changed since",
    )  # fmt: skip
    p.add_argument(
        "--unless", action="append", default=[], choices=("noindex", "truncated"),
        help="leave out pages that ask search engines not to show them (noindex), or whose body was cut (truncated); "
        "may be repeated",
    )  # fmt: skip
    p.add_argument(
        "--unique", choices=("exact", "near"), default="",
        help="leave out pages with the same body as another one (exact), or with almost the same main text too (near: "
        "needs resiliparse); of each group the one is kept that is nearest to the seeds, then that was fetched first",
    )  # fmt: skip
    p.add_argument(
        "--domain", dest="of_domains", action="append", default=[], metavar="DOMAIN",
        help="only URLs of this domain; or one of its hosts or URLs; may be repeated",
    )  # fmt: skip
    p.add_argument(
        "--wacz", metavar="FILE", type=named_type,
        help="write the archive itself instead of records, as one FILE.wacz that replay programs open: what was "
        "committed, an index and a list of pages",
    )  # fmt: skip
    p.add_argument(
        "--partitions",
        dest="of_partitions",
        metavar="A-B",
        help="only pages of these partitions, so that several exports may share the work",
    )
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.export:run_export", takes_urls=False)


def _add_columns(parser: "argparse._ActionsContainer") -> None:
    names = ", ".join(f"{name} ({about})" for name, about in COLUMNS.items())
    parser.add_argument(
        "--columns", type=columns_type, metavar="NAMES", default=(),
        help=f"more columns of each page, found in its archived body, separated by commas: {names}; fingerprint (of "
        "the main text); duplicate_of (of exports with --unique: the URL that a page is a duplicate of, and no page is "
        "left out)",
    )  # fmt: skip


def columns_type(text: str) -> tuple[str, ...]:
    """For argparse: names of columns, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in (*COLUMNS, *MORE_COLUMNS)]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a column of bodies" if unknown else "no column is named"
        raise argparse.ArgumentTypeError(
            f"{what} (use {', '.join((*COLUMNS, *MORE_COLUMNS))}; the others are always there)"
        )
    return names


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


def _add_csv_safe(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--no-csv-safe", dest="csv_safe", action="store_false",
        help="write text to CSV unchanged, even where a spreadsheet would run it as a formula",
    )  # fmt: skip


def add_output(group: "argparse._ArgumentGroup") -> None:
    """The same for commands that crawl."""
    group.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help=f"keep results up to date there while the crawl runs: {OUTPUT_HELP}; may be repeated",
    )  # fmt: skip
    _add_csv_safe(group)
    _add_columns(group)
