"""What an audit reports: findings by number, each with examples. Plain values; knows no judge and no printing."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from textwrap import indent
from typing import Any

import msgspec

from crawler.rules.text import one_line
from crawler.terminal.text import counted, facts, number, shortened
from crawler.views.losses import Loss, losses_table

KEPT_MAX = 10_000  # examples of one finding; the count goes on


@dataclass(slots=True, kw_only=True)
class Finding:
    """How often something was found. A violation makes the audit fail; the others are told because people ask."""

    title: str
    title_of_one: str = ""
    is_violation: bool = True
    count: int = 0
    note: str = ""
    is_judged: bool = True  # False: there was something that could not be judged, which the note says
    examples: list[dict[str, Any]] = field(default_factory=list)

    def not_judged(self, why: str) -> None:
        """There was nothing to judge by: it is not said to be fine."""
        self.is_judged, self.note = False, why

    def add(self, n: int = 1, **facts: Any) -> None:
        """Count, and keep what was found."""
        self.count += n
        if facts and len(self.examples) < KEPT_MAX:
            self.examples.append(facts)


def _violation(title: str, title_of_one: str = "") -> Finding:
    return Finding(title=title, title_of_one=title_of_one or title)


def _information(title: str) -> Finding:
    return Finding(title=title, is_violation=False)


@dataclass(slots=True, kw_only=True)
class Findings:
    """All that is judged, in the order in which it is told. Those of the web log count only when one was given."""

    lost: Finding = field(default_factory=lambda: _violation("URLs lost", "URL lost"))
    sums: Finding = field(
        default_factory=lambda: _violation("partitions whose sums disagree", "partition whose sums disagree")
    )
    twice: Finding = field(default_factory=lambda: _violation("committed twice"))
    blamed: Finding = field(default_factory=lambda: _violation("dead letters without a crash"))
    no_record: Finding = field(
        default_factory=lambda: _violation("commits without their record", "commit without its record")
    )
    no_items: Finding = field(
        default_factory=lambda: _violation("commits without their items", "commit without its items")
    )
    outputs: Finding = field(
        default_factory=lambda: _violation("records that outputs lack or have too many", "record of an output")
    )
    damage: Finding = field(default_factory=lambda: _violation("damaged or unreadable"))
    politeness: Finding = field(default_factory=lambda: _violation("politeness violations", "politeness violation"))
    robots: Finding = field(default_factory=lambda: _violation("robots violations", "robots violation"))
    nominal: Finding = field(
        default_factory=lambda: _violation(
            "nominal times without a row, or with two", "nominal time without a row, or with two"
        )
    )
    runs: Finding = field(
        default_factory=lambda: _violation("runs that disagree with their job", "run that disagrees with its job")
    )
    orphans: Finding = field(default_factory=lambda: _information("archived without commit"))
    unrequested: Finding = field(default_factory=lambda: _information("given up unrequested"))
    faults: Finding = field(default_factory=lambda: _information("pages the program failed on"))
    same_pages: Finding = field(default_factory=lambda: _information("pages that came from many domains"))
    torn: Finding = field(default_factory=lambda: _information("torn ends of open files"))
    takeovers: Finding = field(default_factory=lambda: _information("takeovers"))
    late: Finding = field(default_factory=lambda: _information("late requests"))
    duplicates: Finding = field(default_factory=lambda: _information("duplicate fetches"))
    uncommitted: Finding = field(default_factory=lambda: _information("fetched, never committed"))
    unparsed: Finding = field(default_factory=lambda: _information("pages not parsed again"))
    unjudged: Finding = field(default_factory=lambda: _information("requests not judged"))

    def all(self) -> list[tuple[str, Finding]]:
        """(name, finding) of each."""
        return [(name, getattr(self, name)) for name in self.__slots__]

    @property
    def unjudged_rules(self) -> list[str]:
        """Names of what could be violated, and was not judged."""
        return [name for name, f in self.all() if f.is_violation and not f.is_judged and not f.count]

    @property
    def violations(self) -> list[Finding]:
        return [finding for _, finding in self.all() if finding.is_violation and finding.count]


@dataclass(slots=True, kw_only=True)
class Closest:
    """The two request starts of one queue that came closest to breaking its delay; times in seconds."""

    queue: str
    gap_s: float
    delay_s: float

    @property
    def share(self) -> float:
        """The gap as a part of the delay: below 1 it is a violation."""
        return self.gap_s / self.delay_s


@dataclass(slots=True, kw_only=True)
class Report:
    """The findings, and the figures that say what was looked at."""

    crawl: str
    part: str = ""  # which partitions were judged; "": all
    findings: Findings = field(default_factory=Findings)
    folders: list[str] = field(default_factory=list)
    is_moving: bool = False
    records: int = 0
    warc_files: int = 0
    segments: int = 0
    commits: int = 0  # distinct, by fingerprint and visit
    links: int = 0  # distinct targets that must be in a known state
    seeds: int = 0  # of journals; the same
    seen: int = 0
    pending: int = 0
    deferred: int = 0
    dead: int = 0
    refused: int = 0
    jobs: int = 0
    nominal_times: int = 0  # in their histories
    requests: int = 0  # of the web log
    pairs_too_coarse: int = 0  # of its requests, whose times are too coarse to say whether the delay was kept
    closest: Closest | None = None
    takeover_max_s: float = 0.0
    has_web_log: bool = False
    pages_logged: int = 0  # commits whose request is in the web log
    lacking: list[str] = field(default_factory=list)  # folders that took part and were not given
    elsewhere: int = 0  # commits and records that must be in one of these
    no_evidence: str = ""  # why a judge saw nothing although there must be something; such an audit proves nothing
    losses: list[Loss] = field(default_factory=list)  # what is missing in the results; no violation
    notes: list[str] = field(default_factory=list)


# What an audit prints: a table of findings by number, then examples. Text and JSON out of values; reads nothing.


SHOWN_MAX = 10  # examples of a violation; --json has more
INFORMED_MAX = 3  # examples of anything else
URL_COLUMNS = 100
OF_WEB_LOG = frozenset({"politeness", "robots", "late", "duplicates", "uncommitted", "unjudged"})
QUIET = frozenset(
    {
        "blamed",
        "faults",
        "no_items",
        "outputs",
        "runs",
        "same_pages",
        "torn",
        "unparsed",
        "unjudged",
        "unrequested",
        "late",
    }
)  # told only when there is something to tell


def report_text(report: Report) -> str:
    """The whole report, for people."""
    parts = [f"{headline(report)}\n\n{facts(_looked_at(report))}", "\n".join(_table(report))]
    parts += [text for name, finding in report.findings.all() if (text := _examples(finding))]
    if report.losses:
        parts.append(f"Losses:\n{indent(losses_table(report.losses), '  ')}")
    if report.notes:
        parts.append("\n".join(one_line(f"Note: {note}.") for note in report.notes))
    return "\n\n".join(parts)


def headline(report: Report) -> str:
    """The answer in one line."""
    found = violations_text(report)
    what = f"{report.part} of the crawl" if report.part else "the crawl"
    where = f"Audit of {what} {report.crawl} in {', '.join(report.folders)}"
    if found:
        return f"{where}: not clean, {found}.{_moving(report)}"
    if report.no_evidence:
        return f"{where}: not proven, {report.no_evidence}{_moving(report)}"
    unjudged = ", ".join(report.findings.unjudged_rules).replace("_", " ")
    return f"{where}: clean{f', but {unjudged} could not be judged' if unjudged else ''}.{_moving(report)}"


def _moving(report: Report) -> str:
    return " The crawl is running: its numbers change." if report.is_moving else ""


def violations_text(report: Report) -> str:
    """Like "3 URLs lost, 1 committed twice"; "" when there is nothing."""
    return ", ".join(counted(f.count, f.title_of_one, f.title) for f in report.findings.violations)


def _looked_at(report: Report) -> list[tuple[str, str]]:
    r = report
    deferred = f"{number(r.deferred)} deferred, " if r.deferred else ""
    ends = f"{number(r.pending)} pending, {deferred}{counted(r.dead, 'dead letter')}, {number(r.refused)} refused"
    pairs = [
        ("archive", f"{counted(r.records, 'response')} in {counted(r.warc_files, 'WARC file')}"),
        ("links", f"{counted(r.links, 'URL')} that committed pages lead to, within the scope"),
        ("seeds", f"{counted(r.seeds, 'seed')} in the journals, within the scope"),
        ("index", f"{counted(r.commits, 'commit')} in {counted(r.segments, 'segment')}"),
        ("engine", f"{counted(r.seen, 'URL')} seen: {ends}, the rest committed"),
    ]
    if r.jobs:
        pairs.append(("jobs", f"{counted(r.jobs, 'job')}, {counted(r.nominal_times, 'time')} in their histories"))
    if r.has_web_log:
        c = r.closest
        near = f", closest pair {c.gap_s:.3f} s at a delay of {c.delay_s:g} s ({c.queue})" if c else ""
        pages = f"{number(r.pages_logged)} of {counted(r.commits, 'commit')} among them"
        pairs.append(("web log", f"{counted(r.requests, 'request')}, {pages}{near}"))
    return pairs


def _table(report: Report) -> Iterator[str]:
    quiet = QUIET if report.jobs else QUIET | {"nominal"}
    told = [(name, f) for name, f in report.findings.all() if f.count or name not in quiet]
    width = max(len(finding.title) for _, finding in told)
    for name, finding in told:
        if name in OF_WEB_LOG and not report.has_web_log:
            yield f"{'-':<4}  {finding.title:<{width}}  {'?':>7}  needs --web-log"
        else:
            count = number(finding.count) if finding.count or finding.is_judged else "?"
            yield f"{_mark(finding):<4}  {finding.title:<{width}}  {count:>7}  {finding.note}".rstrip()


def _mark(finding: Finding) -> str:
    if not finding.is_violation:
        return "-"
    if finding.count:
        return "FAIL"
    return "ok" if finding.is_judged else "-"


def _examples(finding: Finding) -> str:
    shown_max = SHOWN_MAX if finding.is_violation else INFORMED_MAX
    shown = finding.examples[:shown_max]
    if not shown:
        return ""
    lines = [f"{finding.title[0].upper()}{finding.title[1:]}:", *(f"  {one_line(_line(example))}" for example in shown)]
    if len(finding.examples) > len(shown):
        lines.append(f"  ... {number(finding.count)} in all: --json has them")
    return "\n".join(lines)


def _line(example: dict[str, Any]) -> str:
    """What it is about first, then what is known of it."""
    if "gap_s" in example:
        e = example
        return f"{e['queue']}: {e['gap_s']:.3f} s apart at a delay of {e['delay_s']:g} s: {e['first']}, {e['second']}"
    if "silent_s" in example:
        e = example
        silent = "an unknown time" if e["silent_s"] is None else f"{e['silent_s']:.1f} s"
        return f"{e['died']} to {e['by']}: {counted(e['partitions'], 'partition')} after {silent} of silence"
    (first, value), *rest = example.items()
    head = shortened(str(value), URL_COLUMNS) if isinstance(value, str) else f"{first} {value}"
    return ", ".join([head, *(_fact(name, value) for name, value in rest)])


def _fact(name: str, value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    text = f"{value:.3f}" if isinstance(value, float) else shortened(str(value), URL_COLUMNS)
    return text if name in ("reason", "record", "items") else f"{name.replace('_', ' ')} {text}"


def report_json(report: Report) -> dict[str, Any]:
    """The same for programs; the findings of a web log are null without one."""
    found: dict[str, Any] = {}
    for name, finding in report.findings.all():
        is_judged = report.has_web_log or name not in OF_WEB_LOG
        found[name] = _without(asdict(finding), "title_of_one") if is_judged else None
    figures = _without(asdict(report), "findings")
    figures["losses"] = msgspec.to_builtins(report.losses)
    is_clean = not report.findings.violations and not report.no_evidence
    return {"clean": is_clean, **figures, "findings": found}


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
