"""The journal of seeds: the seeds that a crawl got through this folder, on disk before they are in the engine.

No page links to a seed, so they would be lost with the engine's data. A folder that is only used for seeding may
serve several crawls: each has a file of its own.
"""

from typing import TYPE_CHECKING

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.lazy_module import LazyModule
from crawler.model import Request

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = LazyModule("sqlite3")
from crawler.archive.journals import Journal, journal_path


class SeedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line: a seed (canonical URL), or a new root of the scope.
    `priority` is the one given with it; `sitemap_priority` and `changed_at` (wall clock, s) are from a sitemap.
    """

    url: str = ""
    depth: int = 0
    priority: float | None = None
    sitemap_priority: float | None = None
    changed_at: float | None = None
    root: str = ""
    number: int = 0  # of the seed, for the counts of its descendants
    visible_at: float = 0.0  # it is not fetched before; wall clock, s
    label: str = ""
    request: Request | None = None


class SeedJournal(Journal[SeedLine]):
    """The journal of one crawl in one folder. `first_begun_at` (wall clock, s) tells crawls of one name apart."""

    def __init__(self, folder: CrawlFolder, name: str, first_begun_at: float) -> None:
        super().__init__(journal_path(folder, "seeds", name, first_begun_at), SeedLine)
