"""Was anything asked for that robots.txt forbids, or before it was read? By the web server's log.

Judged by what robots.txt said when it was read last: what an earlier version said is nowhere kept.
"""

from itertools import groupby

import msgspec

from crawler.audit.findings import Report
from crawler.audit.ledger import Ledger, LoggedRequest
from crawler.frontier.bulk import BulkLookup
from crawler.rules.robots import RobotsRules, SharedRobots
from crawler.rules.urls import authority_of, host_of
from crawler.settings import Settings

ROBOTS = "/robots.txt"
WALL_CLOCK_FROM_S = 1e8  # smaller times are of a clock that began with the machine

Host = tuple[str, int]


class OriginRobots(msgspec.Struct, frozen=True):
    """An origin, the rules for our agent, and when they were read last (wall clock, s)."""

    url: str
    rules: RobotsRules
    read_at: float

    @property
    def host(self) -> str:
        return host_of(f"{self.url}/")

    def serves(self, host: str, port: int) -> bool:
        """Is it this host's, and of this port if one is told (0: it is not)?"""
        authority = authority_of(f"{self.url}/")
        if self.host != host:
            return False
        if not port:
            return True
        return authority == f"{host}:{port}" or (authority == host and port in (80, 443))


async def origins_of(states: BulkLookup, partition: int) -> list[OriginRobots]:
    """All origins of a partition whose robots.txt somebody has read."""
    found = []
    for url, blob in (await states.robots(partition)).items():
        stored = SharedRobots.unpack(blob)
        if stored is not None:
            found.append(OriginRobots(url, stored.rules, stored.read_at))
    return found


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
