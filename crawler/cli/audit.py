"""`crawler audit`: was anything lost, committed twice, requested too early or against robots.txt?"""

import argparse
import contextlib
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.archive.folder import CrawlFolder, open_existing
from crawler.cli.crawl_options import KEYS
from crawler.cli.options import settings_of, with_logins
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import AuditFailed, UsageError
from crawler.frontier.job_audit import JobBooks
from crawler.frontier.leases import Takeovers
from crawler.outputs.opening import targets_of
from crawler.outputs.records import ITEMS, PAGES
from crawler.outputs.target import Target
from crawler.outputs.verify import compare
from crawler.rules.parts import Part, range_of, sample_of
from crawler.rules.progress import Meter
from crawler.settings import Settings
from crawler.terminal.output import out, out_json, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted

if TYPE_CHECKING:
    from crawler.audit.findings import Report
    from crawler.audit.run_audit import Subject, WebLogs


JSON_LINES = b"{"


def run_audit(arguments: argparse.Namespace) -> int:
    """Print the report; raises AuditFailed when something is violated."""
    from crawler.audit.report import report_json, report_text, violations_text

    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    if arguments.replay:
        return _run_replay(arguments, folders[1:])
    if arguments.pictures:
        raise UsageError("--pictures is of --replay: add --replay N")
    targets = _targets(arguments)
    if (arguments.of_partitions or arguments.sample) and (targets or arguments.web_log):
        given = "--web-log" if arguments.web_log else "-o"
        raise UsageError(f"{given} needs the whole crawl: leave --partitions and --sample out")
    report = run_async(
        _audit(arguments, with_logins(settings_of(arguments, KEYS, in_folder=True)), folders[1:], targets)
    )
    if arguments.json:
        out_json(report_json(report))
    else:
        out(report_text(report))
    if found := violations_text(report):
        raise AuditFailed(f"the crawl is not clean: {found}")
    if report.no_evidence:
        raise AuditFailed(f"nothing is proven: {report.no_evidence}")
    return 0


def _run_replay(arguments: argparse.Namespace, others: Sequence[str]) -> int:
    """Raises AuditFailed when a page can't be opened."""
    from crawler.audit.chromium import find_chromium
    from crawler.audit.judge_replay import judge_replay
    from crawler.audit.replay_report import replay_json, replay_text

    given = {
        "-o": arguments.output, "--web-log": arguments.web_log, "--items": arguments.items,
        "--partitions": arguments.of_partitions, "--sample": arguments.sample,
    }  # fmt: skip
    if unfit := next((name for name, value in given.items() if value), ""):
        raise UsageError(f"--replay opens pages and judges nothing else: leave {unfit} out")
    settings = settings_of(arguments, KEYS, in_folder=True)
    folders = [open_existing(name) for name in (settings.archive.dir, *others)]
    program = find_chromium()
    pictures = Path(arguments.pictures) if arguments.pictures else None
    if os.geteuid() == 0:
        warn("Chromium runs without its sandbox, because you are root: use another user for pages that you don't trust")
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(folder.reading())
        meter = stack.enter_context(progress(verbose=arguments.verbose))
        report = run_async(judge_replay(folders, arguments.replay, program, pictures, meter))
    if arguments.json:
        out_json(replay_json(report))
    else:
        out(replay_text(report))
    if failed := report.failed:
        raise AuditFailed(f"{counted(len(failed), 'page')} could not be opened from the archive")
    return 0


def _targets(arguments: argparse.Namespace) -> list["Target"]:
    return targets_of(arguments.output, table=(ITEMS if arguments.items else PAGES).name)


async def _audit(
    arguments: argparse.Namespace, settings: Settings, others: Sequence[str], targets: Sequence["Target"]
) -> Any:
    from crawler.audit.run_audit import audit

    for folder in (settings.archive.dir, *others):
        open_existing(folder)  # fails before an engine is started
    files = [_web_log(text) for text in arguments.web_log]
    async with open_crawl(settings, create=False) as crawl:
        part = part_of(arguments, crawl.record.partitions)
        subject = await _subject(crawl, others, _web_logs(files, arguments.agent, crawl.settings), part)
        with progress(verbose=arguments.verbose) as meter:
            report = await audit(subject, meter)
            for target in targets:
                _compare(subject.folders, target, report, items=arguments.items, meter=meter)
        return report


def _compare(folders: "Sequence[CrawlFolder]", target: Target, report: "Report", *, items: bool, meter: Meter) -> None:
    """Blocks; nothing else is going on in this process."""
    found = compare(folders, target, items=items, meter=meter)
    if not found.missing and not found.extra:
        report.notes.append(f"{found.target} has all {counted(found.wanted, found.what.removesuffix('s'))}")
    elif report.is_moving:
        has = f"{found.found:,} of {found.wanted:,} {found.what}"
        report.notes.append(f"{found.target} has {has}: not judged while the crawl is running")
    else:
        facts = msgspec.structs.asdict(found)
        report.findings.outputs.add(found.missing + found.extra, **facts)


def part_of(arguments: argparse.Namespace, partitions: int) -> Part | None:
    """Which partitions are wanted; None for all. Raises UsageError."""
    if arguments.of_partitions is None and arguments.sample is None:
        return None
    if arguments.of_partitions is not None and arguments.sample is not None:
        raise UsageError("--partitions and --sample can't be used together")
    if arguments.sample is not None:
        return sample_of(arguments.sample, partitions, random.sample)
    return range_of(arguments.of_partitions, partitions)


async def _subject(crawl: OpenCrawl, others: Sequence[str], logs: "WebLogs", part: Part | None) -> "Subject":
    from crawler.audit.judge_links import CrawlRules
    from crawler.audit.run_audit import Subject

    return Subject(
        settings=msgspec.structs.replace(crawl.settings, scope=crawl.record.scope),
        folders=[crawl.folder, *(open_existing(other) for other in others)],
        rules=CrawlRules(record=crawl.record, roots=crawl.roots, history=await crawl.crawls.history()),
        states=crawl.states,
        letters=crawl.letters,
        stats=crawl.stats,
        jobs=JobBooks(crawl.engine, crawl.keys, crawl.record.partitions),
        runs=crawl.runs,
        known_folders=await crawl.folders.read(),
        takeovers=Takeovers(crawl.engine, crawl.keys),
        overrides=crawl.operator.book,
        web_logs=logs,
        session=crawl.session,
        part=part,
    )


def _web_logs(files: Sequence[tuple[Path, str]], agent: str | None, settings: Settings) -> "WebLogs":
    """Of each log the requests of this agent; that of the crawl, if none was named."""
    from crawler.audit.run_audit import WebLogs

    if agent is None:
        product = settings.fetch.user_agent.partition("/")[0].strip()
        agent = "" if all(_is_json(file) for file, _ in files) else product
    return WebLogs(files=files, agent=agent)


def _web_log(text: str) -> tuple[Path, str]:
    """A file, and the host of its lines where they don't tell it. Raises UsageError."""
    from crawler.audit.requests import check_format, is_host, lacks_host

    host, equals, name = text.partition("=")
    if not equals or Path(text).is_file():
        host, name = "", text
    file = Path(name)
    if not file.is_file():
        raise UsageError(f"web log {file} does not exist")
    if host and not is_host(host):
        raise UsageError(f"--web-log {text}: {host!r} is not a host, with or without a port")
    if not host and lacks_host(file):
        raise UsageError(f"{file} has no hosts: write --web-log HOST={file}")
    check_format(file, host)
    return file, host


def _is_json(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(1) in (JSON_LINES, b"")
    except OSError as error:
        raise UsageError(f"can't read the web log {file}: {error.strerror}") from None
