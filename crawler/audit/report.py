"""What an audit prints: a table of findings by number, then examples. Text and JSON out of values; reads nothing."""

from collections.abc import Iterator
from dataclasses import asdict
from textwrap import indent
from typing import Any

import msgspec

from crawler.audit.findings import Finding, Report
from crawler.rules.text import one_line
from crawler.terminal.tables import facts, shortened
from crawler.terminal.words import counted, number
from crawler.views.losses import losses_table

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
