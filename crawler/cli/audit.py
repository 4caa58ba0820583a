"""`crawler audit`: was anything lost, committed twice, requested too early or against robots.txt?"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import add_common, named_type, settings_of
from crawler.errors import AuditFailed, UsageError

if TYPE_CHECKING:
    from crawler.archive.folder import CrawlFolder
    from crawler.audit.findings import Report
    from crawler.audit.run_audit import Subject, WebLogs
    from crawler.crawl.opening import OpenCrawl
    from crawler.outputs.target import Target
    from crawler.rules.text import Meter
    from crawler.settings import Settings

JSON_LINES = b"{"

EPILOG = """\
examples:
  crawler audit
  crawler audit --dir a --dir b --redis redis://queue.example/ --web-log access.log
  crawler audit -o pages.jsonl -o 'postgresql://crawler@db.example/web'
  crawler audit --json | jq '.findings.lost.examples[].url'

It reads the archive (every page is parsed again; each link in scope must be pending,
committed, deferred, dead or refused), then the web server's log, and then the index.
Where several machines crawled, name the folders of all of them. The crawl may be running.

A web log has JSON lines with start, end (seconds), host, target, agent and status, or the
common or combined format, as nginx and Apache write it unless told otherwise; name its host
then: --web-log docs.example=access.log. Times in whole seconds are too coarse for short
delays, which are "not judged" then. Write the host in front, and times to the millisecond
or finer behind the User-Agent:
  nginx   '$http_host $remote_addr - $remote_user [$time_local] "$request" $status
           $bytes_sent "$http_referer" "$http_user_agent" $msec $request_time'
  Apache  "%{Host}i %h %l %u %t \\"%r\\" %>s %b \\"%{Referer}i\\" \\"%{User-Agent}i\\" %{usec}t %D"

exit codes: 0 clean, 2 bad folder, crawl or log, 3 engine, 8 not clean, or a web log that has
nothing of this crawl
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "audit",
        help="check a crawl against its archive and the web server's log",
        description="Check a crawl against its archive and the web server's log: was anything lost, committed twice, "
        "requested too early or against robots.txt?",
        epilog=EPILOG,
    )
    p.add_argument(
        "--web-log", action="append", default=[], metavar="[HOST=]FILE", type=named_type,
        help="access log of the web server that was crawled, and its host where the lines don't tell it; may be "
        "repeated; .gz is unpacked",
    )  # fmt: skip
    p.add_argument(
        "--agent", metavar="TEXT",
        help="what the crawler's User-Agent has in the web log; other requests are left out (default: the product's "
        "name, and all requests of a log in JSON lines)",
    )  # fmt: skip
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help="also compare this file or database of -o with the index: does it have every record, each once? May be "
        "repeated",
    )  # fmt: skip
    p.add_argument("--items", action="store_true", help="these targets have items (default: what -o wrote there)")
    p.add_argument("--json", action="store_true", help="as one JSON object, with up to 10,000 examples of each finding")
    p.add_argument(
        "--ignore-robots", dest="obey_robots", action="store_false", default=None,
        help="the crawl was told to ignore robots.txt: do not judge by it",
    )  # fmt: skip
    add_common(p, many_folders=True)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; raises AuditFailed when something is violated."""
    from crawler.audit.findings import report_json, report_text, violations_text
    from crawler.cli.event_loop import run_async
    from crawler.terminal.text import out, out_json

    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    targets = _targets(arguments)
    report = run_async(_audit(arguments, settings_of(arguments, KEYS, in_folder=True), folders[1:], targets))
    if arguments.json:
        out_json(report_json(report))
    else:
        out(report_text(report))
    if found := violations_text(report):
        raise AuditFailed(f"the crawl is not clean: {found}")
    if report.no_evidence:
        raise AuditFailed(f"nothing is proven: {report.no_evidence}")
    return 0


def _targets(arguments: argparse.Namespace) -> list["Target"]:
    from crawler.outputs.opening import targets_of
    from crawler.outputs.records import ITEMS, PAGES

    return targets_of(arguments.output, table=(ITEMS if arguments.items else PAGES).name)


async def _audit(
    arguments: argparse.Namespace, settings: "Settings", others: Sequence[str], targets: Sequence["Target"]
) -> Any:
    from crawler.archive.folder import open_existing
    from crawler.audit.run_audit import audit
    from crawler.crawl.opening import open_crawl
    from crawler.terminal.progress import progress

    for folder in (settings.archive.dir, *others):
        open_existing(folder)  # fails before an engine is started
    files = [_web_log(text) for text in arguments.web_log]
    async with open_crawl(settings, create=False) as crawl:
        subject = await _subject(crawl, others, _web_logs(files, arguments.agent, crawl.settings))
        with progress(verbose=arguments.verbose) as meter:
            report = await audit(subject, meter)
            for target in targets:
                _compare(subject.folders, target, report, items=arguments.items, meter=meter)
        return report


def _compare(
    folders: "Sequence[CrawlFolder]", target: "Target", report: "Report", *, items: bool, meter: "Meter"
) -> None:
    """Blocks; nothing else is going on in this process."""
    import msgspec

    from crawler.outputs.export import compare
    from crawler.terminal.text import counted

    found = compare(folders, target, items=items, meter=meter)
    if not found.missing and not found.extra:
        report.notes.append(f"{found.target} has all {counted(found.wanted, found.what.removesuffix('s'))}")
    elif report.is_moving:
        has = f"{found.found:,} of {found.wanted:,} {found.what}"
        report.notes.append(f"{found.target} has {has}: not judged while the crawl is running")
    else:
        facts = msgspec.structs.asdict(found)
        report.findings.outputs.add(found.missing + found.extra, **facts)


async def _subject(crawl: "OpenCrawl", others: Sequence[str], logs: "WebLogs") -> "Subject":
    import msgspec

    from crawler.archive.folder import open_existing
    from crawler.audit.judge_links import CrawlRules
    from crawler.audit.run_audit import Subject
    from crawler.frontier.jobs import JobBooks
    from crawler.frontier.owner import Takeovers

    return Subject(
        settings=msgspec.structs.replace(crawl.settings, scope=crawl.record.scope),
        folders=[crawl.folder, *(open_existing(other) for other in others)],
        rules=CrawlRules(record=crawl.record, roots=crawl.roots, history=await crawl.crawls.history()),
        states=crawl.states,
        letters=crawl.letters,
        stats=crawl.stats,
        jobs=JobBooks(crawl.engine, crawl.keys, crawl.record.partitions),
        runs=crawl.runs,
        takeovers=Takeovers(crawl.engine, crawl.keys),
        overrides=crawl.operator.book,
        web_logs=logs,
    )


def _web_logs(files: Sequence[tuple[Path, str]], agent: str | None, settings: "Settings") -> "WebLogs":
    """Of each log the requests of this agent; that of the crawl, if none was named."""
    from crawler.audit.run_audit import WebLogs

    if agent is None:
        product = settings.fetch.user_agent.partition("/")[0].strip()
        agent = "" if all(_is_json(file) for file, _ in files) else product
    return WebLogs(files=files, agent=agent)


def _web_log(text: str) -> tuple[Path, str]:
    """A file, and the host of its lines where they don't tell it. Raises UsageError."""
    from crawler.audit.requests import is_host, lacks_host

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
    return file, host


def _is_json(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(1) in (JSON_LINES, b"")
    except OSError as error:
        raise UsageError(f"can't read the web log {file}: {error.strerror}") from None
