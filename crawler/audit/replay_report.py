"""What `crawler audit --replay` prints: how much was there, by domain, and the worst pages. Reads nothing."""

from typing import Any

import msgspec

from crawler.audit.judge_replay import ReplayReport
from crawler.audit.replay_page import PageReplay
from crawler.terminal.tables import or_nothing, shortened, table
from crawler.terminal.words import counted, number

DOMAINS_SHOWN = 20
WORST = 10
MISSING_SHOWN = 3  # of each of these
URL_COLUMNS = 90


def replay_text(report: ReplayReport) -> str:
    """For people."""
    parts = [_headline(report), _domains(report)]
    if report.kinds:
        kinds = ", ".join(f"{kind} {number(count)}" for kind, count in report.kinds.items())
        parts.append(f"Missing, by kind: {kinds}")
    if failed := report.failed:
        lines = [f"  {shortened(one.url, URL_COLUMNS)}: {one.failed}" for one in failed[:WORST]]
        more = [f"  and {counted(len(failed) - WORST, 'more page')}"] if len(failed) > WORST else []
        parts.append("\n".join(["Pages that could not be opened:", *lines, *more]))
    if worst := _worst(report):
        parts.append("\n".join(["Pages that lack most:", *(line for one in worst for line in _lacking(one))]))
    parts.append(_network(report))
    return "\n\n".join(parts)


def replay_json(report: ReplayReport) -> dict[str, Any]:
    found = msgspec.to_builtins(report)
    share = {"share": _share(report.answered, report.requests)}
    return {
        "requests": report.requests, "answered": report.answered, **share, "failed": len(report.failed),
        "kinds": report.kinds, "domains": msgspec.to_builtins(report.domains), **found,
    }  # fmt: skip


def _headline(report: ReplayReport) -> str:
    opened = len(report.pages) - len(report.failed)
    return (
        f"Replay of {counted(len(report.pages), 'page')} of {number(report.of_pages)}: {number(opened)} opened; "
        f"{number(report.answered)} of {counted(report.requests, 'request')} answered from the archive "
        f"({_percent(report.answered, report.requests)})."
    )


def _domains(report: ReplayReport) -> str:
    rows = [
        [
            of.domain, number(of.pages), or_nothing(number(of.failed), of.failed), number(of.requests),
            number(of.answered), or_nothing(number(of.requests - of.answered), of.requests - of.answered),
            _percent(of.answered, of.requests),
        ]
        for of in report.domains[:DOMAINS_SHOWN]
    ]  # fmt: skip
    shown = table(["domain", "pages", "failed", "requests", "answered", "missing", "share"], rows)
    more = len(report.domains) - DOMAINS_SHOWN
    return shown + (f"\n{counted(more, 'more domain')} with less missing; --json has all" if more > 0 else "")


def _worst(report: ReplayReport) -> list[PageReplay]:
    lacking = [one for one in report.pages if one.lacks]
    return sorted(lacking, key=lambda one: (-one.lacks, one.url))[:WORST]


def _lacking(page: PageReplay) -> list[str]:
    lines = [f"  {shortened(page.url, URL_COLUMNS)}: {number(page.lacks)} of {number(page.requests)} missing"]
    lines += [f"    {one.kind}  {shortened(one.url, URL_COLUMNS)}" for one in page.missing[:MISSING_SHOWN]]
    if (more := len(page.missing) - MISSING_SHOWN) > 0:
        lines.append(f"    and {counted(more, 'more URL')}")
    return lines


def _network(report: ReplayReport) -> str:
    if not report.refused:
        return "Nothing left the archive: the browser tried to connect to nothing."
    hosts = ", ".join(list(report.refused_hosts)[:WORST])
    tried = counted(report.refused, "connection") + " that the browser tried by itself"
    return f"Nothing left the archive: {tried} {'was' if report.refused == 1 else 'were'} refused ({hosts})."


def _share(part: int, whole: int) -> float:
    return round(part / whole, 5) if whole else 1.0


def _percent(part: int, whole: int) -> str:
    """Rounded down: 100 % is all of them."""
    return f"{int(1000 * part / whole) / 10 if whole else 100:.1f} %"
