"""Takes in the log of a web server, and sees which requests were made twice and which came to nothing."""

from collections.abc import Iterable

from crawler.audit.findings import Report
from crawler.audit.ledger import Ledger, LoggedRequest, page_of
from crawler.audit.requests import LogLine
from crawler.routing.router import Router

ROBOTS = "/robots.txt"
BATCH = 500


def read_requests(lines: Iterable[LogLine | None], router: Router, ledger: Ledger) -> int:
    """Put a log into the ledger; how many of its lines were none."""
    batch: list[LoggedRequest] = []
    strange = 0
    for line in lines:
        if line is None:
            strange += 1
            continue
        _, queue, partition = router.placement.of(f"http://{line.host}/")
        page = page_of(line.host, line.target)
        batch.append(
            LoggedRequest(
                queue, partition, line.host, line.port, line.target, page, line.started, line.ended, line.blur_s,
                line.status, line.agent,
            )
        )  # fmt: skip
        if len(batch) >= BATCH:
            ledger.add_requests(batch)
            batch = []
    ledger.add_requests(batch)
    return strange


def judge_repeats(ledger: Ledger, report: Report) -> None:
    """Pages that were answered more than once: what a crash repeats, and what a lost answer does. Each run of a job
    fetches a page once.
    """
    report.requests = ledger.number("SELECT count(*) FROM requests")
    pages = ledger.number("SELECT count(*) FROM requests WHERE target <> ?", ROBOTS)
    rows = ledger.db.execute(
        "SELECT host, target, count(*) AS n, max(1, (SELECT count(DISTINCT run) FROM commits WHERE page = "
        "requests.page)) AS wanted FROM requests WHERE target <> ? AND status < 500 AND status <> 429 "
        "GROUP BY host, port, target HAVING n > wanted ORDER BY n DESC, host, target",
        (ROBOTS,),
    )
    finding = report.findings.duplicates
    for host, target, n, wanted in rows:
        finding.add(n - wanted, request=f"{host}{target}", times=n)
    if finding.count:
        finding.note = f"{100 * finding.count / pages:.2g} % of {pages:,} page requests"


def judge_outcomes(ledger: Ledger, report: Report) -> None:
    """Pages that were answered and are no result: in flight when their fetcher died, or refused as too late."""
    rows = ledger.db.execute(
        "SELECT DISTINCT host, target FROM requests WHERE target <> ? AND status < 500 AND status <> 429 "
        "AND NOT EXISTS (SELECT 1 FROM commits WHERE commits.page = requests.page)",
        (ROBOTS,),
    )
    for host, target in rows:
        report.findings.uncommitted.add(request=f"{host}{target}")
