"""Takes what names a domain out of the other files of a crawl folder: journals, history, logs, files of dead sessions.

Each file is rewritten in its place, atomically, so whoever is killed finds the rest. A line of a log goes if it
names the domain or a host of it, whatever it tells.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from crawler import disk_sync
from crawler.archive import inflight_log, told_log
from crawler.archive.folder import (
    CrawlFolder,
    archive_error,
    replace_durably,
)
from crawler.archive.forget_files import Unreached
from crawler.archive.job_journal import JobLine, journals_in
from crawler.archive.journals import Journal
from crawler.archive.prune_attempts import prune_attempts
from crawler.archive.prune_records import PruneRule
from crawler.archive.seed_journal import SeedLine
from crawler.archive.spill_files import FRAME
from crawler.errors import ArchiveError
from crawler.rules.forgotten import Named, urls_of_root
from crawler.rules.jobs import JobSpec

KNOWN = frozenset({
    "warc", "index", "items", "history", "journal", "sessions", "engine", "log", "tmp", "spill", "outputs",
    "crawl.json", "bound.json", "forget.begun", "lost+found",
})  # fmt: skip
TEXT_SUFFIXES = frozenset({".txt", inflight_log.STALL_SUFFIX})  # one report each: it goes as a whole
DAMAGED_SUFFIX = ".damaged"


def forget_rest(folder: CrawlFolder, named: Named, step: Callable[[str], None]) -> tuple[int, list[Unreached]]:
    """All of these files of one folder; how many lines went, and what stays. Blocks. Raises ArchiveError."""
    unreached = list[Unreached]()
    gone = prune_attempts(folder, PruneRule(domain=named.domain), is_alive=lambda _: False, dry_run=False).attempts
    gone += _sweep_lines(folder, folder.history, named, unreached)
    step("history")
    for journal in journals_in(folder):
        gone += _forget_in_journal(journal, named, unreached)
    step("journals")
    gone += _sweep_lines(folder, folder.log, named, unreached)
    step("logs")
    for path in sorted(folder.sessions.iterdir()):
        gone += _forget_in_session(folder, path, named)
    step("sessions")
    unreached += _foreign(folder, named)
    return gone, unreached


# --- journals ---


def _forget_in_journal(journal: Journal[SeedLine] | Journal[JobLine], named: Named, unreached: list[Unreached]) -> int:
    def changed(line: SeedLine | JobLine) -> SeedLine | JobLine | None:
        return seed_left(line, named) if isinstance(line, SeedLine) else job_left(line, named)

    if flaws := journal.damaged():
        unreached.append(Unreached(str(journal.path), f"{flaws[0]}: 'crawler rebuild' takes it out"))
        return 0
    gone = journal.rewrite(changed)  # type: ignore[arg-type]  # each gets lines of its own kind
    if journal.path.exists() and named.is_in(journal.path.read_bytes()):
        unreached.append(Unreached(str(journal.path), "a name in it, as that of a job, is the domain's"))
    return gone


def seed_left(line: SeedLine, named: Named) -> SeedLine | None:
    """What stays of a line: itself if it is not of the domain. A page that a seed of the domain led to stays."""
    if line.root and any(named.owns(url) for url in urls_of_root(line.root)):
        first = line.root.partition(" ")[0]
        if named.owns(urls_of_root(first)[0]):
            return None
        return msgspec.structs.replace(line, root=first)
    if line.url and named.owns(line.url):
        return None
    return line


def job_left(line: JobLine, named: Named) -> JobLine:
    """The same job without seeds and sitemap of the domain."""
    seeds = tuple(url for url in line.seeds if not named.owns(url))
    if len(seeds) != len(line.seeds):
        line = msgspec.structs.replace(line, seeds=seeds)
    revision = line.revision
    if revision is not None and (spec := spec_left(revision.spec, named)) is not revision.spec:
        line = msgspec.structs.replace(line, revision=msgspec.structs.replace(revision, spec=spec))
    return line


def spec_left(spec: JobSpec, named: Named) -> JobSpec:
    """A definition without what is of the domain; itself if nothing is."""
    seeds = tuple(url for url in spec.seeds if not named.owns(url))
    sitemap = "" if spec.sitemap and named.owns(spec.sitemap) else spec.sitemap
    if len(seeds) == len(spec.seeds) and sitemap == spec.sitemap:
        return spec
    return msgspec.structs.replace(spec, seeds=seeds, sitemap=sitemap)


# --- lines and texts ---


def _sweep_lines(folder: CrawlFolder, place: Path, named: Named, unreached: list[Unreached]) -> int:
    gone = 0
    for path in sorted(place.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix == DAMAGED_SUFFIX:
            why = "parts of a damaged file, of which nobody can tell whose they are: remove it"
            unreached.append(Unreached(str(path), why))
            continue
        gone += _sweep(folder, path, named)
    return gone


def _sweep(folder: CrawlFolder, path: Path, named: Named) -> int:
    try:
        with path.open("rb") as file:
            gone = sum(map(named.is_in, file))
        if not gone:
            return 0
        if path.suffix in TEXT_SUFFIXES:
            path.unlink()
            return gone
        before = path.stat()
        with path.open("rb") as file:
            replace_durably(path, folder.tmp / f"{path.name}.forget", (line for line in file if not named.is_in(line)))
        path.chmod(before.st_mode & 0o777)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise archive_error("write", path, error) from None
    return gone


# --- of dead sessions ---


def _forget_in_session(folder: CrawlFolder, path: Path, named: Named) -> int:
    try:
        if not path.is_file() or not named.is_in(path.read_bytes()):
            return 0
        if path.suffix == inflight_log.STALL_SUFFIX:
            path.unlink()
            return 1
        if path.suffix == inflight_log.SUFFIX:
            return _blank_slots(path, named)
        if path.suffix == told_log.SUFFIX:
            return _without_calls(folder, path, named)
    except OSError as error:
        raise archive_error("write", path, error) from None
    return 0


def _blank_slots(path: Path, named: Named) -> int:
    """What a dead session worked on of the domain is not charged with its death: nothing of it is fetched any more."""
    gone, size = 0, inflight_log.SLOT_BYTES
    with path.open("r+b") as file:
        for at in range(0, os.fstat(file.fileno()).st_size, size):
            if named.is_in(os.pread(file.fileno(), size, at)):
                os.pwrite(file.fileno(), bytes(size), at)
                gone += 1
        disk_sync.sync(file.fileno())
    return gone


def _without_calls(folder: CrawlFolder, path: Path, named: Named) -> int:
    """Calls that a dead session sent, and that name the domain, are not sent again."""
    data, kept, gone, at = path.read_bytes(), list[bytes](), 0, 0
    while at + FRAME.size <= len(data):
        end = at + FRAME.size + FRAME.unpack_from(data, at)[0]
        frame = data[at:end]
        if named.is_in(frame[FRAME.size :]):
            gone += 1
        else:
            kept.append(frame)
        at = end
    replace_durably(path, folder.tmp / f"{path.name}.forget", kept)
    return gone


def forget_spilled(root: Path, partition: int, named: Named) -> int:
    """Blank the blocks of the domain's queues in files of one partition: nothing names them any more. How many."""
    gone, place = 0, root / str(partition)
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        try:
            with path.open("r+b") as file:
                gone += sum(_blanked(file.fileno(), at, end, named) for at, end in _spill_frames(file.fileno()))
                disk_sync.sync(file.fileno())
        except OSError as error:
            raise archive_error("write", path, error) from None
    return gone


def _spill_frames(descriptor: int) -> Iterator[tuple[int, int]]:
    at, size = 0, os.fstat(descriptor).st_size
    while at + FRAME.size <= size:
        end = at + FRAME.size + FRAME.unpack(os.pread(descriptor, FRAME.size, at))[0]
        yield at, min(end, size)
        at = end


def _blanked(descriptor: int, at: int, end: int, named: Named) -> bool:
    payload = os.pread(descriptor, end - at - FRAME.size, at + FRAME.size)
    if not payload.strip(b"\0"):
        return False
    try:
        queue = str(msgspec.msgpack.decode(payload)[0]).partition("|")[0]
        is_ours = named.owns_queue(queue)
    except (msgspec.MsgspecError, LookupError, TypeError):
        is_ours = named.is_in(payload)
    if is_ours:
        os.pwrite(descriptor, bytes(len(payload)), at + FRAME.size)  # with the length: those behind it are still found
    return is_ours


def _foreign(folder: CrawlFolder, named: Named) -> Iterator[Unreached]:
    """Files that are no part of a crawl folder, and that name the domain: whose they are, only people know."""
    for path in sorted(folder.root.iterdir()):
        if path.name in KNOWN or not path.is_file() or path.is_symlink():
            continue
        try:
            with path.open("rb") as file:
                is_named = any(map(named.is_in, file))
        except OSError as error:
            raise ArchiveError(f"can't read {path}: {error.strerror}") from None
        if is_named:
            yield Unreached(
                str(path),
                "it names the domain, and is no part of the crawl: an output is named with -o, an "
                "export is to be made again",
            )
