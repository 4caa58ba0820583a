"""`crawler audit`: judges a crawl by what its commit path did not write itself, in an order that lets the crawl go on
meanwhile: log and index of commits, the archive's own links, the engine, the web server's log, and the index once more.

Puts the judges in order; what they look for is theirs to know.
"""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path

import msgspec

from crawler.archive.folder import CrawlFolder, Life
from crawler.archive.session_locks import life_of, sessions
from crawler.audit.findings import Report
from crawler.audit.judge_archive import ArchiveJudge, late_pages
from crawler.audit.judge_dead import judge_dead
from crawler.audit.judge_frontier import FrontierJudge
from crawler.audit.judge_jobs import judge_jobs
from crawler.audit.judge_links import CrawlRules, LinkReader
from crawler.audit.judge_politeness import judge_politeness
from crawler.audit.judge_robots import judge_robots
from crawler.audit.judge_runs import judge_runs, still_active
from crawler.audit.judge_sameness import judge_same_pages
from crawler.audit.judge_takeovers import judge_takeovers
from crawler.audit.ledger import Ledger
from crawler.audit.requests import read_log
from crawler.audit.web_log import judge_outcomes, judge_repeats, read_requests
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.folders import FolderNote
from crawler.frontier.job_audit import JobBooks
from crawler.frontier.leases import Takeovers
from crawler.frontier.operator import OverrideStore
from crawler.frontier.runs import Runs
from crawler.frontier.stats import Stats
from crawler.rules.parts import Part
from crawler.rules.progress import SILENT, Meter
from crawler.runtime.clocks import wall_s
from crawler.settings import Settings
from crawler.terminal.words import counted
from crawler.views.losses import losses_of

PAGES = "SELECT count(*) FROM (SELECT DISTINCT fp, visit FROM commits)"
PAGES_LOGGED = "SELECT count(*) FROM (SELECT DISTINCT fp, visit FROM commits WHERE page IN (SELECT page FROM requests))"
HAS_A_PAGE = "SELECT EXISTS (SELECT 1 FROM requests WHERE rowid > ? AND page IN (SELECT page FROM commits))"


class WebLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Access logs, each with the host of lines that tell none, and what the crawler's User-Agent has in it ("": all
    requests are the crawler's).
    """

    files: Sequence[tuple[Path, str]] = ()
    agent: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is audited. The scope in `settings` must be the one that is stored with the crawl."""

    settings: Settings
    folders: Sequence[CrawlFolder]
    rules: CrawlRules
    states: BulkLookup
    letters: DeadLetters
    stats: Stats
    jobs: JobBooks
    runs: Runs
    takeovers: Takeovers
    overrides: OverrideStore
    web_logs: WebLogs
    known_folders: Mapping[str, FolderNote] = {}  # by their ids: that took part
    session: str = ""  # that of the audit itself
    part: Part | None = None  # None: all partitions


async def audit(subject: Subject, meter: Meter = SILENT) -> Report:
    """Judge everything. Raises EngineError, ArchiveError, UsageError for a log that can't be read, and ConflictError
    for journals of a newer release.
    """
    settings = subject.settings
    report = Report(crawl=settings.crawl.name, folders=[str(folder.root) for folder in subject.folders])
    active = await subject.runs.active()
    reader = LinkReader(subject.rules, settings, active)
    with Ledger(_scratch(subject.folders)) as ledger, contextlib.ExitStack() as stack:
        for folder in subject.folders:
            stack.enter_context(folder.reading())
        try:
            await _judge(subject, ledger, reader, report, meter, frozenset(active))
        finally:
            await reader.close()
    return report


async def _judge(
    subject: Subject, ledger: Ledger, reader: LinkReader, report: Report, meter: Meter, active: AbstractSet[str]
) -> None:
    began_s, fingerprints = wall_s(), subject.rules.record.fingerprints
    part = subject.part
    given = {folder.crawl for folder in subject.folders}
    report.lacking = sorted(note.shown for folder, note in subject.known_folders.items() if folder not in given)
    archive = ArchiveJudge(subject.folders, ledger, reader, report, meter, part)
    frontier = FrontierJudge(subject.states, ledger, report, fingerprints=fingerprints, meter=meter, part=part)
    await frontier.begin()
    await frontier.read_log(partial(archive.add_commit, is_late=False))
    archive.read_index()
    archive.read_journals()
    await archive.read_archive()
    archive.read_seeds()
    await frontier.ask_links()
    await frontier.ask_for_seeds_again(partial(_are_used, subject))
    judged_runs = await still_active(subject.runs, active)
    for run in active - judged_runs:
        ledger.drop_links_of(run)  # its seen-set went with its end
    await frontier.count()
    if report.is_moving:
        await frontier.read_log(partial(archive.add_commit, is_late=True))
        archive.read_index(is_late=True)
    await frontier.judge()
    if part is None:
        pages_of = None if report.lacking else ledger.pages_of
        before_s, forgotten = began_s if report.is_moving else math.inf, frontier.forgotten_of_runs
        await judge_jobs(subject.jobs, report, pages_of, before_s=before_s, forgotten=forgotten)
        await judge_runs(subject.runs, frontier.seen_runs, report)
    if subject.web_logs.files:
        await _judge_web_logs(subject, ledger, reader, report, meter)
    meter.begin("judging")
    archive.judge(judged_runs)
    judge_same_pages(ledger, report)
    _say_lacking(report)
    await judge_dead(subject.letters, subject.folders, report)
    report.losses = losses_of(*await subject.stats.totals_and_examples())
    judge_takeovers(await subject.takeovers.read(), report)
    if part is not None:
        _say_part(part, report)


def _are_used(subject: Subject) -> bool:
    """Does another session live in one of the folders? It may be adding seeds."""
    places = ((folder, session) for folder in subject.folders for session in sessions(folder))
    return any(session != subject.session and life_of(folder, session) is Life.ALIVE for folder, session in places)


def _say_lacking(report: Report) -> None:
    """What is in folders that were not given is not lost; and it is not proven either."""
    if not report.lacking:
        return
    which = f"{', '.join(report.lacking)} took part, and {'was' if len(report.lacking) == 1 else 'were'} not given"
    if report.elsewhere:
        report.no_evidence = f"{counted(report.elsewhere, 'page')} of the crawl are in no folder given: {which} (--dir)"
    else:
        report.notes.append(f"{which}: its seeds are not judged")


def _say_part(part: Part, report: Report) -> None:
    report.part = part.text
    for finding in (report.findings.nominal, report.findings.runs):
        finding.not_judged("needs all partitions")
    if part.is_sample and not report.findings.violations:
        share = f"{100 * part.hidden_share:.2g} %"
        report.notes.append(f"with 95 % confidence, at most {share} of all partitions have something to find")


async def _judge_web_logs(subject: Subject, ledger: Ledger, reader: LinkReader, report: Report, meter: Meter) -> None:
    report.has_web_log = True
    router, settings, states = reader.rules.router, subject.settings, subject.states
    for file, host in subject.web_logs.files:
        before = ledger.number("SELECT max(rowid) FROM requests")
        strange = read_requests(read_log(file, subject.web_logs.agent, host, meter), router, ledger)
        if strange:
            report.notes.append(f"left out {counted(strange, 'line')} of {file} with an unknown format")
        if not ledger.number(HAS_A_PAGE, before):
            report.notes.append(f"{file} has no request for a page that is committed")
    meter.begin("judging requests")
    late, overrides = late_pages(subject.folders), await subject.overrides.read()
    report.pages_logged = ledger.number(PAGES_LOGGED)
    await judge_politeness(ledger, report, states, router, settings, late, overrides=overrides)
    await judge_robots(ledger, report, states, settings)
    judge_repeats(ledger, report)
    judge_outcomes(ledger, report)
    if not report.pages_logged and (commits := ledger.number(PAGES)):
        pages, f = counted(commits, "committed page"), report.findings
        report.no_evidence = f"{pages}, none of them in the log: wrong file, host or --agent?"
        for finding in (f.politeness, f.robots, f.duplicates, f.uncommitted):
            finding.not_judged("the log has no request for a committed page")


def _scratch(folders: Sequence[CrawlFolder]) -> Path | None:
    """Where the ledger may lie: next to the archive, for it can be large; elsewhere when that can't be written."""
    return next((folder.tmp for folder in folders if os.access(folder.tmp, os.W_OK)), None)
