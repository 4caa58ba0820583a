"""One typed record of all settings, validated once. Knows nothing of what uses it."""

from crawler.settings.loading import load
from crawler.settings.sections import (
    ArchiveSettings,
    CrawlSettings,
    DnsSettings,
    FetchSettings,
    FrontierSettings,
    LogSettings,
    MembershipSettings,
    OrderSettings,
    PolitenessSettings,
    PriorityRule,
    RetrySettings,
    RobotsSettings,
    ScopeSettings,
    Settings,
)

__all__ = [
    "ArchiveSettings",
    "CrawlSettings",
    "DnsSettings",
    "FetchSettings",
    "FrontierSettings",
    "LogSettings",
    "MembershipSettings",
    "OrderSettings",
    "PolitenessSettings",
    "PriorityRule",
    "RetrySettings",
    "RobotsSettings",
    "ScopeSettings",
    "Settings",
    "load",
]
