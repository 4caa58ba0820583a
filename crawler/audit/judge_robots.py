"""Was anything asked for that robots.txt forbids, or before it was read? By the web server's log.

Judged by what robots.txt said when it was read last: what an earlier version said is nowhere kept.
"""

from itertools import groupby

from crawler.audit.findings import Report
from crawler.audit.ledger import Ledger, LoggedRequest
from crawler.audit.origins import OriginRobots, origins_of
from crawler.frontier.reads import BulkLookup
from crawler.settings import Settings

ROBOTS = "/robots.txt"
WALL_CLOCK_FROM_S = 1e8  # smaller times are of a clock that began with the machine

Host = tuple[str, int]


async def judge_robots(ledger: Ledger, report: Report, states: BulkLookup, settings: Settings) -> None:
    """Notes each page request that was not allowed."""
    if not settings.robots.obey:
        report.findings.robots.not_judged("robots.obey is off")
        return
    rows = ledger.db.execute(
        "SELECT host, port, min(started) FROM requests WHERE target = ? AND status < 500 AND status <> 429 "
        "GROUP BY host, port",
        (ROBOTS,),
    )
    read_at: dict[Host, float] = {(host, port): started for host, port, started in rows}
    requests = ledger.requests("WHERE target <> ? ORDER BY partition, host, port, started", ROBOTS)
    for partition, of_partition in groupby(requests, key=lambda request: request.partition):
        origins = await origins_of(states, partition)
        for (host, port), group in groupby(of_partition, key=lambda request: (request.host, request.port)):
            its_origins = [origin for origin in origins if origin.serves(host, port)]
            for request in group:
                judge_request(request, its_origins, read_at.get((host, port)), report)
    if report.findings.unjudged.count == ledger.number("SELECT count(*) FROM requests WHERE target <> ?", ROBOTS):
        report.findings.robots.not_judged("no request for a page could be judged")


def judge_request(request: LoggedRequest, origins: list[OriginRobots], read_at: float | None, report: Report) -> None:
    """One page request. `read_at` is when the log has the first answer of its host's robots.txt."""
    findings = report.findings
    if origins and not any(origin.rules.allows(f"{origin.url}{request.target}") for origin in origins):
        verdict = origins[0].rules.verdict(f"{origins[0].url}{request.target}")
        why = f"line {verdict.line_number}: {verdict.line}"
        findings.robots.add(request=request.shown, at=request.started, reason=f"forbidden by {why}")
        return
    if read_at is not None and read_at <= request.started + request.blur:
        return
    if request.started > WALL_CLOCK_FROM_S and any(origin.read_at <= request.started for origin in origins):
        return
    if read_at is None and origins:
        findings.unjudged.add(request=request.shown, reason="its robots.txt was read, but not in this log")
    else:
        findings.robots.add(request=request.shown, at=request.started, reason="before robots.txt was read")
