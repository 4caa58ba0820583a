"""`crawler move`, `backup` and `restore`: a crawl goes to another engine, or into a file and back."""

import argparse
import contextlib
import fcntl
import os
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from crawler.archive.crawl_binding import bind, bound_to, check_known, check_present
from crawler.archive.folder import CrawlFolder
from crawler.archive.session_locks import SessionLock
from crawler.cli.options import check_engine_url, settings_of
from crawler.cli.parse_move import EMBEDDED
from crawler.cli.run_async import run_async
from crawler.crawl.admission import bound_of
from crawler.crawl.opening import member_of_command, open_session
from crawler.engine.client import does_answer
from crawler.errors import ConflictError, UsageError
from crawler.frontier.keys import Keys
from crawler.frontier.members import Members
from crawler.frontier.record import CrawlRecord, plain_record, record_of
from crawler.recovery.arrival import Arrival
from crawler.recovery.backup import STDOUT, back_up
from crawler.recovery.backup import restore as restored
from crawler.recovery.move import Departure, move, undo, undo_without_target
from crawler.recovery.pause import Pause
from crawler.recovery.side import Copied, Side, without_replica
from crawler.redaction import learn, secrets_of_url, shown_server
from crawler.settings import Settings
from crawler.terminal.output import out, say, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted

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
    if not arguments.without_target:
        return run_async(_move(arguments, settings, _at(settings, to)))
    if not arguments.undo:
        raise UsageError("--without-target is for --undo: it takes back a move whose target is gone")
    if not to:
        raise UsageError("the embedded engine starts with each command: take the move back with --undo alone")
    return run_async(_undo_without_target(settings, to))


def run_backup(arguments: argparse.Namespace) -> int:
    return run_async(_back_up(arguments, settings_of(arguments, in_folder=True)))


def run_restore(arguments: argparse.Namespace) -> int:
    return run_async(_restore(arguments, settings_of(arguments, in_folder=True)))


def _at(settings: Settings, url: str) -> Settings:
    return replace(settings, frontier=replace(settings.frontier, redis=url))


@contextlib.asynccontextmanager
async def _side(
    settings: Settings, work: str, *, create: bool = False, leaves: bool = False
) -> AsyncIterator[tuple[Side, CrawlFolder]]:
    """`leaves`: the crawl of this engine is to go elsewhere."""
    patient = replace(settings, frontier=replace(settings.frontier, call_timeout_s=CALL_TIMEOUT_S))
    async with open_session(patient, create=create) as (engine, folder):
        f = settings.frontier
        own = None if f.redis else folder.spill
        side = Side(
            engine=engine, keys=Keys(settings.crawl.name), work=folder.root / work,
            place=_place(settings, folder),
            spill_folder=Path(f.spill_folder) if f.spill_folder else own, spill_before=own,
        )  # fmt: skip
        if leaves and (raw := await side.raw()):
            check_present(folder, bound_of(settings.crawl.name, record_of(msgspec.json.decode(plain_record(raw)))))
        yield side, folder


def _place(settings: Settings, folder: CrawlFolder) -> str:
    """How people are told an engine."""
    url = settings.frontier.redis
    return shown_server(url) if url else f"the embedded engine of {folder.root}"


async def _move(arguments: argparse.Namespace, settings: Settings, there: Settings) -> int:
    async with _side(settings, "moving", leaves=not arguments.undo) as (source, _), _side(there, "arriving") as found:
        target = found[0]
        ends = Departure(source, target.place, settings.membership), Arrival(target, source.place)
        if arguments.undo:
            await undo(*ends)
            out(f"The crawl {settings.crawl.name!r} stays in {source.place}.")
            return 0
        with progress(verbose=bool(arguments.verbose)) as meter:
            copied = await move(*ends, meter)
    if ends[1].alone:
        warn(without_replica(ends[1].alone))
    out(f"Moved the crawl {settings.crawl.name!r} to {target.place}: {_figures(copied)}.")
    how = f"--redis {target.place}" if there.frontier.redis else f"--dir {settings.archive.dir}, without --redis"
    say(f"From now on name that engine in each command: {how}")
    if copied.spill_files and there.frontier.redis:
        say("and the folder of its URLs on disk: --set frontier.spill_folder=...")
    return 0


async def _undo_without_target(settings: Settings, to: str) -> int:
    if await does_answer(to, settings.frontier.call_timeout_s):
        raise ConflictError(f"{shown_server(to)} answers: take the move back with --undo alone")
    name = settings.crawl.name
    async with _side(settings, "moving") as (source, folder):
        was, is_bound = bound_to(folder), False

        def bind_folder(record: CrawlRecord) -> None:
            nonlocal is_bound
            if was is not None and was.name == name and was.first_begun_at == record.first_begun_at:
                is_bound = True
                bind(folder, bound_of(name, record))

        await undo_without_target(Departure(source, shown_server(to), settings.membership), bind_folder)
    out(f"The crawl {name!r} stays in {source.place}, with a new begin: a copy that comes back is refused.")
    which = "If the crawl has other folders, they are" if is_bound else "The folders of the crawl are"
    say(f"{which} refused until 'crawler rebuild' has read them.")
    return 0


async def _back_up(arguments: argparse.Namespace, settings: Settings) -> int:
    path, session = Path(arguments.file), secrets.token_hex(6)
    if path == STDOUT and sys.stdout.isatty():
        raise UsageError("standard output is a terminal: name a file, or send it elsewhere")
    if path == STDOUT and _is_closed(sys.stdout.fileno()):
        raise UsageError("standard output is closed: name a file, or send it somewhere")
    with progress(verbose=bool(arguments.verbose)) as meter:
        async with _side(settings, "backup", leaves=True) as (source, folder):
            if await source.raw() is None:
                check_known(folder, settings.crawl.name, None)  # it may have been wiped
            with contextlib.closing(SessionLock(folder, session)) as lock:
                members, pause = Members(source.engine, source.keys), None
                if arguments.pause:
                    pause = Pause(members, member_of_command(session, f"backup-{session}", lock), settings.membership)
                copied = await back_up(source, path, settings.membership, meter, pause=pause)
    where = "to standard output" if path == STDOUT else f"into {path}"
    tell = say if path == STDOUT else out
    tell(f"Wrote the crawl {settings.crawl.name!r} {where}: {_figures(copied)}.")
    say("If the crawl goes on, a later restore needs 'crawler rebuild' for what came after this backup.")
    return 0


def _is_closed(number: int) -> bool:
    """Was this descriptor closed at our start? `main` has opened /dev/null for it, to read and write."""
    is_both = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    return is_both and os.path.samestat(os.fstat(number), Path(os.devnull).stat())


async def _restore(arguments: argparse.Namespace, settings: Settings) -> int:
    path = Path(arguments.file)
    with progress(verbose=bool(arguments.verbose)) as meter:
        async with _side(settings, "restoring", create=True) as (target, _):
            arrival = Arrival(target, str(path))
            copied = await restored(path, arrival, meter, renames=arguments.name is not None)
    if arrival.alone:
        warn(without_replica(arrival.alone))
    out(f"Restored the crawl {settings.crawl.name!r} into {target.place}: {_figures(copied)}.")
    say("If the crawl went on after the backup was made, 'crawler rebuild' adds what its folder has.")
    return 0


def _figures(copied: Copied) -> str:
    parts = [counted(copied.partitions, "partition"), counted(copied.keys, "key")]
    return ", ".join([*parts, counted(copied.spill_files, "spill file")] if copied.spill_files else parts)
