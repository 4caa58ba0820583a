"""Does one page come from many domains? A captive portal, a parked name or a poisoned name server does that.

Pages of status 200 with the same bytes, by the digests of the index. A page under many URLs of one domain is what the
trap rules see (soft_404).
"""

import itertools

from crawler.archive.warc import payload_digest
from crawler.audit.findings import Report
from crawler.audit.ledger import Ledger
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of

DOMAINS_MIN = 20  # software's own first page is on some sites of any large crawl
DOMAINS_MAX = 100_000  # of one page: no more are counted


_PAGES = """
SELECT digest, url FROM commits WHERE status = 200 AND digest IN (
    SELECT digest FROM commits WHERE status = 200 AND digest NOT IN ('', ?) GROUP BY digest HAVING count(*) >= ?
) ORDER BY digest
"""


def judge_same_pages(ledger: Ledger, report: Report) -> None:
    """One finding for each such page, with one of its URLs."""
    rows = ledger.db.execute(_PAGES, (payload_digest(b""), DOMAINS_MIN))
    for digest, pages in itertools.groupby(rows, key=lambda row: row[0]):
        domains: set[str] = set()
        for _, page in pages:
            if len(domains) < DOMAINS_MAX:
                domains.add(registrable_domain(host_of(page)))
        if len(domains) >= DOMAINS_MIN:
            report.findings.same_pages.add(url=page, domains=len(domains), digest=digest)
