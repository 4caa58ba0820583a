"""One typed record of all settings, validated once. Knows nothing of what uses it."""

from crawler.settings.loading import load
from crawler.settings.sections import (
    ArchiveSettings,
    CrawlSettings,
    DnsSettings,
    FetchSettings,
    FrontierSettings,
    HostsSettings,
    LogSettings,
    MembershipSettings,
    OrderSettings,
    PolitenessSettings,
    PriorityRule,
    RetryKind,
    RetrySettings,
    RobotsSettings,
    ScopeSettings,
    Settings,
    TrapSettings,
)

__all__ = [
    "ArchiveSettings",
    "CrawlSettings",
    "DnsSettings",
    "FetchSettings",
    "FrontierSettings",
    "HostsSettings",
    "LogSettings",
    "MembershipSettings",
    "OrderSettings",
    "PolitenessSettings",
    "PriorityRule",
    "RetryKind",
    "RetrySettings",
    "RobotsSettings",
    "ScopeSettings",
    "Settings",
    "TrapSettings",
    "load",
]
