"""`crawler export`: the pages or items of a crawl into files and databases."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.archive.crawl_binding import bound_to
from crawler.archive.folder import OUTPUTS, CrawlFolder, open_existing
from crawler.archive.index_reader import MissingFile, unchecked_text
from crawler.cli.options import settings_of, with_logins
from crawler.content.coding import inflate
from crawler.errors import ArchiveError, UsageError
from crawler.frontier.placement import Placement
from crawler.frontier.record import record_of
from crawler.model import Decoded
from crawler.outputs.cursor import refuse_foreign
from crawler.outputs.export import Wanted, export
from crawler.outputs.files import NAME_SHOWN
from crawler.outputs.opening import check_target, targets_of
from crawler.outputs.records import (
    DUPLICATE_OF,
    FINGERPRINT,
    ITEMS,
    PAGES,
    Items,
    Pages,
    RecordSource,
    UndecodableError,
)
from crawler.outputs.target import STDOUT, Target, TargetKind, folder_of
from crawler.rules.page_columns import LIBRARY, NEEDING_TEXT
from crawler.rules.parts import range_of
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of
from crawler.terminal.output import say, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted, size
from crawler.version import how_to_install
from crawler.views.values import domain_of

if TYPE_CHECKING:
    from crawler.outputs import unique as unique_pages
    from crawler.outputs.unique import Duplicates, How
    from crawler.outputs.wacz_records import Counts

BODY_BYTES_MAX = 64 * 1024 * 1024
RATIO_MAX = 1000


def checked_targets(arguments: argparse.Namespace, folder: str, *, items: bool) -> list["Target"]:
    """The targets of a command that crawls into that folder, which need not be there yet, after a look at each.

    Raises UsageError, and OutputError where nobody answers.
    """
    if not arguments.output:
        if arguments.columns:
            raise UsageError("--columns is of outputs: add -o FILE")
        return []
    if items and arguments.columns:
        raise UsageError("--columns is of pages, and this crawl writes what its app yields: leave it out")
    if DUPLICATE_OF in arguments.columns:
        raise UsageError(f"column {DUPLICATE_OF} is of exports: leave it out")
    checked_columns(arguments.columns)
    shape = ITEMS if items else PAGES
    targets = targets_of(arguments.output, csv_safe=arguments.csv_safe, table=shape.name)
    for target in targets:
        check_target(target, shape)
        refuse_foreign(Path(folder, OUTPUTS), target, shape.name)
    return targets


def run_export(arguments: argparse.Namespace) -> int:
    """Export; raises ArchiveError when part of the archive is missing, after all that can be read was written."""
    dirs = arguments.dir or []
    arguments.dir = dirs[0] if dirs else None
    if arguments.wacz:
        return _run_wacz(arguments, dirs[1:])
    if dirs[1:]:
        raise UsageError("several folders are of --wacz: name one --dir")
    table = (ITEMS if arguments.items else PAGES).name
    columns = _columns(arguments)
    if arguments.format:
        targets = [folder_of(one) for one in dict.fromkeys(arguments.output or [STDOUT])]
    else:
        targets = targets_of(arguments.output or [STDOUT], csv_safe=arguments.csv_safe, table=table)
    settings = settings_of(arguments, in_folder=True)
    folder = open_existing((with_logins(settings) if columns else settings).archive.dir)
    if sys.stdout.isatty() and STDOUT not in (arguments.output or [STDOUT]):
        say(f"Exporting {folder.root} ...")
    of_url = _of_url(folder, arguments)
    source: RecordSource = Items(folder)
    with contextlib.ExitStack() as stack:
        unique = None
        if not arguments.items:
            pages = source = Pages(
                folder, columns=columns, decode=decode,
                has_fingerprints=FINGERPRINT in columns and arguments.unique != "near",
            )  # fmt: skip
            if arguments.unique:
                from crawler.outputs.unique import Duplicates, How

                unique = stack.enter_context(
                    contextlib.closing(Duplicates(folder, How(arguments.unique), pages.fingerprint))
                )
        stack.enter_context(contextlib.closing(source))
        export_all(
            folder, targets, source, since=arguments.since, of_run=arguments.of_run, changed=arguments.changed,
            unless=arguments.unless, of_url=of_url, unique=unique, verbose=arguments.verbose,
        )  # fmt: skip
    return 0


def _run_wacz(arguments: argparse.Namespace, others: Sequence[str]) -> int:
    """Raises ArchiveError when part of the archive is missing, after all that can be read was written."""
    from crawler.outputs.wacz import check_wacz, export_wacz

    _check_changed(arguments)
    if arguments.output or arguments.items or arguments.columns or arguments.format or arguments.unique:
        raise UsageError("--wacz has the archive itself: leave out -o, --items, --columns, --format and --unique")
    path = check_wacz(arguments.wacz)
    settings = settings_of(arguments, in_folder=True)
    folders = [open_existing(name) for name in (settings.archive.dir, *others)]
    if len({folder.root.resolve() for folder in folders}) < len(folders):
        raise UsageError("a folder is named twice")
    wanted = Wanted(
        since=arguments.since, run=arguments.of_run, changed=arguments.changed, unless=tuple(arguments.unless),
        of_url=_of_url(folders[0], arguments),
    )  # fmt: skip
    with progress(verbose=arguments.verbose) as meter:
        summary = export_wacz(folders, path, arguments.wacz, wanted, meter)
    beside = summary.records - summary.pages
    what = counted(summary.pages, "page") + (f" and {counted(beside, 'other record')}" if beside else "")
    say(f"{what} written to {arguments.wacz} ({size(summary.bytes)})")
    _say_left_out(summary.counts, arguments)
    _say_missing(summary.missing)
    return 0


def _say_left_out(counts: "Counts", arguments: argparse.Namespace) -> None:
    """What is not in a WACZ file, and why."""
    for number, what in (
        (counts.left_out, f"left out (--unless {', '.join(arguments.unless)})"),
        (counts.pruned, "removed by 'crawler prune'"),
        (counts.withheld, "left out: their bodies were not kept, because of their rights"),
        (counts.unarchived, "left out: no record was written of them"),
        (counts.without_original, "left out: unchanged since an earlier visit whose record is gone"),
    ):
        if number:
            say(f"{counted(number, 'page')} {what}")
    if counts.originals:
        say(f"{counted(counts.originals, 'record')} of earlier visits added: pages are unchanged since")
    if counts.unchecked:
        say(unchecked_text(counts.unchecked))


def _of_url(folder: CrawlFolder, arguments: argparse.Namespace) -> Callable[[str], bool] | None:
    """Whether a URL is wanted, by its domain or its partition; None: all are. Raises UsageError."""
    of_part = _part_of(folder, arguments.of_partitions) if arguments.of_partitions is not None else None
    if not arguments.of_domains:
        return of_part
    domains = frozenset(map(domain_of, arguments.of_domains))
    return lambda url: registrable_domain(host_of(url)) in domains and (of_part is None or of_part(url))


def _part_of(folder: CrawlFolder, text: str) -> Callable[[str], bool]:
    """Whether a URL is of these partitions, by what the folder knows of the crawl. Raises UsageError."""
    bound = bound_to(folder)
    if bound is None or not bound.record:
        raise UsageError(f"{folder.root} does not know the partitions of its crawl: leave --partitions out")
    record = record_of(bound.record)
    placement, part = Placement(record), range_of(text, record.partitions)
    return lambda url: part.has(placement.of(url)[2])


def _columns(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Those of bodies. Raises UsageError for ones that need what is not installed, and for options that do not fit each
    other.
    """
    _check_changed(arguments)
    if arguments.items and (arguments.unique or arguments.columns or arguments.format):
        raise UsageError("--unique, --columns and --format are of pages: leave out --items")
    columns: tuple[str, ...] = arguments.columns
    if DUPLICATE_OF in columns and not arguments.unique:
        raise UsageError(f"--columns {DUPLICATE_OF} needs --unique exact or --unique near")
    if arguments.format:
        more = ("language",) if find_spec(LIBRARY) else ()  # without it, files are without a language
        columns = tuple(dict.fromkeys((*columns, *(() if "main_markdown" in columns else ("markdown",)), *more)))
    if arguments.unique == "near":
        _check_library("--unique near")
    return checked_columns(columns)


def _check_changed(arguments: argparse.Namespace) -> None:
    """Raises UsageError."""
    if arguments.changed and not arguments.of_run:
        raise UsageError("--changed compares a run of a job with the one before: add --run ID")


def checked_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The same. Raises UsageError for one that needs what is not installed."""
    needing = [name for name in columns if name in NEEDING_TEXT or name == FINGERPRINT]
    if needing:
        _check_library(f"column {needing[0]}", " (text and markdown need nothing)")
    return columns


def _check_library(what: str, else_: str = "") -> None:
    """Raises UsageError."""
    try:
        import resiliparse  # noqa: F401
    except ImportError:
        raise UsageError(f"{what} needs {LIBRARY}: {how_to_install('text', LIBRARY)}{else_}") from None


def export_all(
    folder: CrawlFolder, targets: Sequence["Target"], source: RecordSource, *, since: float = 0.0,
    of_run: str = "", changed: bool = False, unless: Sequence[str] = (),
    of_url: Callable[[str], bool] | None = None, unique: "Duplicates | None" = None, verbose: bool = False,
) -> None:  # fmt: skip
    """Write the targets and say how many records went where; blocking. Raises ArchiveError, OutputError, UsageError."""
    fills_stdout = any(target.kind is TargetKind.STREAM for target in targets)
    with progress(verbose=verbose, fills_stdout=fills_stdout) as meter:
        summary = export(
            folder, targets, source, since=since, run=of_run, changed=changed, unless=unless, of_url=of_url,
            unique=unique, meter=meter,
        )  # fmt: skip
    places = [one.shown for one in targets if one.kind is not TargetKind.STREAM and one.shown not in summary.kept]
    if places:
        what = counted(summary.records, source.shape.name.removesuffix("s"))
        say(f"{what} written to {', '.join(places)}")
    for line in summary.said:
        say(line)
    for field, column in summary.renamed.items():
        say(f"field {field[:NAME_SHOWN]!r} is column {column!r}")
    if summary.left_out:
        say(f"{counted(summary.left_out, 'page')} left out (--unless {', '.join(unless)})")
    if unique is not None and summary.unique is not None:
        _say_unique(unique.how, summary.unique, is_left_out=DUPLICATE_OF not in source.shape.columns)
    if summary.pruned:
        whose = f" of run {of_run}" if of_run else ""
        say(f"{counted(summary.pruned, 'page')}{whose} removed by 'crawler prune'")
    elif of_run and not summary.by_status and changed:
        say(f"no page of run {of_run} is new or has changed, as far as {folder.root} has its runs")
    for line in source.remarks():
        warn(line)
    if summary.unchecked:
        say(unchecked_text(summary.unchecked))
    _say_missing(summary.missing)
    if summary.kept:
        kept = ", ".join(summary.kept)
        raise UsageError(f"nothing was found to write, and {kept} has something: it stays; remove it for an empty one")


def _say_unique(how: "How", counts: "unique_pages.Counts", *, is_left_out: bool) -> None:
    groups = f" ({counted(counts.groups, 'group')})" if counts.groups else ""
    done = f"left out (--unique {how})" if is_left_out else f"marked (--unique {how}, column {DUPLICATE_OF})"
    say(f"{counted(counts.duplicates, 'duplicate')}{groups} {done}")
    if counts.without:
        say(f"{counted(counts.without, 'page has', 'pages have')} too little text to be compared, or none")
    if counts.crowded:
        few = "too many pages are almost the same: some may not have been compared with each other"
        warn(f"{counted(counts.crowded, 'page')} among which {few}")


def _say_missing(missing: "Sequence[MissingFile]") -> None:
    if not missing:
        return
    for one in missing:
        needed = f" ({counted(one.entries, 'page needs', 'pages need')} it)" if one.entries else ""
        warn(f"{one.file}: {one.reason}{needed}")
    raise ArchiveError(f"{counted(len(missing), 'part')} of the archive could not be read; the rest was exported")


def decode(payload: bytes, coding: str) -> bytes:
    """Undo a content coding, bounded, as far as it can be. Raises UndecodableError when nothing of it can."""
    found = inflate(payload, coding, limit=BODY_BYTES_MAX, ratio_max=RATIO_MAX)
    if found.decoded is Decoded.NOTHING:
        raise UndecodableError(found.error)
    return found.body
