"""Whose partitions went to whom after a death, and after how long a silence: as those noted it who took over."""

from collections.abc import Sequence

from crawler.audit.findings import Report
from crawler.frontier.leases import Takeover
from crawler.terminal.words import counted, duration


def judge_takeovers(takeovers: Sequence[Takeover], report: Report) -> None:
    """Notes each, the longest first. A silence is no death: it began before it, by up to a heartbeat."""
    finding = report.findings.takeovers
    for one in sorted(takeovers, key=lambda takeover: -takeover.silent_ms):
        silent_s = one.silent_ms / 1000 if one.silent_ms >= 0 else None
        finding.add(
            died=one.node,
            session=one.session,
            by=one.by_node,
            partitions=one.partitions,
            silent_s=silent_s,
            at=one.at,
        )
    if takeovers:
        report.takeover_max_s = max(max(one.silent_ms for one in takeovers) / 1000, 0.0)
        partitions = counted(sum(one.partitions for one in takeovers), "partition")
        finding.note = f"{partitions}, the longest after {duration(report.takeover_max_s)} of silence"
