"""What an audit reports: findings by number, each with examples. Plain values; knows no judge and no printing."""

from dataclasses import dataclass, field
from typing import Any

from crawler.views.losses import Loss

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
