"""Domains and crawls as viewers see them, with values that no engine was read for."""

from typing import Any

from crawler.frontier.operator import Overrides
from crawler.frontier.series import Rates
from crawler.frontier.stats import DomainStats
from crawler.views.figures import DomainState, DomainView, domain_view, next_text
from crawler.views.headline import with_notes
from crawler.views.snapshot import CrawlState, DomainRows, Overview, Snapshot

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def domain(name: str = "docs.example", **values: Any) -> DomainView:
    """A domain; `values` are fields of DomainView, or counts of DomainStats."""
    from msgspec.structs import replace

    of_stats = {k: v for k, v in values.items() if k in DomainStats.__struct_fields__}
    view = domain_view(stats(name, **of_stats), None, Overrides(), NOW)
    shown = replace(view, **{k: v for k, v in values.items() if k not in of_stats})
    return shown if "next" in values else replace(shown, next=next_text(shown, shown.state))


def stats(name: str = "docs.example", **values: Any) -> DomainStats:
    """The counts of a domain; those that are not given are 0."""
    texts = {"domain": name, "partition": 3, "owner": "", "stop": "", "status": {}, "errors": {}, "refused": {}}
    counts = dict.fromkeys(DomainStats.__struct_fields__, 0) | texts | {"delay_ms": -1} | values
    waiting = sum(counts[one] for one in ("queued", "claimed", "retrying", "scheduled", "set_aside"))
    return DomainStats(**counts | {"pending": values.get("pending", waiting)})


def overview(**values: Any) -> Overview:
    """A crawl that runs, with the given counts."""
    counts = dict.fromkeys(
        ("pages", "redirected", "client_errors", "server_errors", "added", "pending", "in_flight", "retries", "dead",
         "bytes", "busy_partitions"), 0,
    )  # fmt: skip
    plain: dict[str, Any] = {
        "crawl": "main", "at": NOW, "began_at": NOW - 3600, "state": CrawlState.RUNNING, "instances": 1,
        "rates": Rates(10.0), **counts,
    }  # fmt: skip
    return with_notes(Overview(**plain | values))


def snapshot(*domains: DomainView, total: int = 0, sort: str = "pages", **values: Any) -> Snapshot:
    """A headline with a table."""
    rows = DomainRows(sort=sort, rows=domains, total=total or len(domains))
    return Snapshot(overview=overview(**values), domains=rows)


__all__ = ["NOW", "DomainState", "domain", "overview", "snapshot"]
