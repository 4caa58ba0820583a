"""`crawler move`, `backup` and `restore`: a crawl goes to another engine, or into a file and back."""

import argparse
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec.structs import replace

from crawler.cli.event_loop import run_async
from crawler.cli.options import check_engine_url, settings_of
from crawler.cli.parse_admin import EMBEDDED
from crawler.crawl.opening import open_session
from crawler.errors import UsageError
from crawler.frontier.record import Keys
from crawler.recovery.backup import back_up
from crawler.recovery.backup import restore as restored
from crawler.recovery.move import Arrival, Copied, Departure, Side, move, undo
from crawler.redaction import learn, secrets_of_url, shown_server
from crawler.settings import Settings
from crawler.terminal.progress import progress
from crawler.terminal.text import counted, out, say

CALL_TIMEOUT_S = 60.0  # of a pipeline of many keys


def run_move(arguments: argparse.Namespace) -> int:
    """Move the crawl. Raises UsageError."""
    settings = settings_of(arguments, in_folder=True)
    learn(secrets_of_url(arguments.to))
    to = "" if arguments.to == EMBEDDED else arguments.to
    if to:
        check_engine_url(to)
    if to == settings.frontier.redis:
        raise UsageError(f"the crawl is in {shown_server(to) if to else 'the embedded engine'} already")
    return run_async(_move(arguments, settings, _at(settings, to)))


def run_backup(arguments: argparse.Namespace) -> int:
    return run_async(_back_up(arguments, settings_of(arguments, in_folder=True)))


def run_restore(arguments: argparse.Namespace) -> int:
    return run_async(_restore(arguments, settings_of(arguments, in_folder=True)))


def _at(settings: Settings, url: str) -> Settings:
    return replace(settings, frontier=replace(settings.frontier, redis=url))


@contextlib.asynccontextmanager
async def _side(settings: Settings, work: str, *, create: bool = False) -> AsyncIterator[Side]:
    patient = replace(settings, frontier=replace(settings.frontier, call_timeout_s=CALL_TIMEOUT_S))
    async with open_session(patient, create=create) as (engine, folder):
        f = settings.frontier
        own = None if f.redis else folder.spill
        yield Side(
            engine=engine, keys=Keys(settings.crawl.name), work=folder.root / work,
            place=shown_server(f.redis) if f.redis else f"the embedded engine of {folder.root}",
            spill_folder=Path(f.spill_folder) if f.spill_folder else own, spill_before=own,
        )  # fmt: skip


async def _move(arguments: argparse.Namespace, settings: Settings, there: Settings) -> int:
    async with _side(settings, "moving") as source, _side(there, "arriving") as target:
        ends = Departure(source, target.place, settings.membership), Arrival(target, source.place)
        if arguments.undo:
            await undo(*ends)
            out(f"The crawl {settings.crawl.name!r} stays in {source.place}.")
            return 0
        with progress(verbose=bool(arguments.verbose)) as meter:
            copied = await move(*ends, meter)
    out(f"Moved the crawl {settings.crawl.name!r} to {target.place}: {_figures(copied)}.")
    how = f"--redis {target.place}" if there.frontier.redis else f"--dir {settings.archive.dir}, without --redis"
    say(f"From now on name that engine in each command: {how}")
    if copied.spill_files and there.frontier.redis:
        say("and the folder of its URLs on disk: --set frontier.spill_folder=...")
    return 0


async def _back_up(arguments: argparse.Namespace, settings: Settings) -> int:
    path = Path(arguments.file)
    with progress(verbose=bool(arguments.verbose)) as meter:
        async with _side(settings, "backup") as source:
            copied = await back_up(source, path, settings.membership, meter)
    out(f"Wrote the crawl {settings.crawl.name!r} into {path}: {_figures(copied)}.")
    return 0


async def _restore(arguments: argparse.Namespace, settings: Settings) -> int:
    path = Path(arguments.file)
    with progress(verbose=bool(arguments.verbose)) as meter:
        async with _side(settings, "restoring", create=True) as target:
            copied = await restored(path, Arrival(target, str(path)), meter)
    out(f"Restored the crawl {settings.crawl.name!r} into {target.place}: {_figures(copied)}.")
    say("If the crawl went on after the backup was made, 'crawler rebuild' adds what its folder has.")
    return 0


def _figures(copied: Copied) -> str:
    parts = [counted(copied.partitions, "partition"), counted(copied.keys, "key")]
    return ", ".join([*parts, counted(copied.spill_files, "spill file")] if copied.spill_files else parts)
