"""What the composition root puts into an instance."""

from collections.abc import Awaitable, Callable

import msgspec

from crawler.archive.history import HistoryWriter
from crawler.archive.index_writer import IndexWriter
from crawler.archive.inflight_log import InflightLog
from crawler.archive.items import ItemWriter
from crawler.archive.spill_files import SpillFiles
from crawler.archive.warc_writer import WarcWriter
from crawler.frontier.crawl_record import CrawlRecord, Crawls
from crawler.frontier.frontier import Frontier
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases
from crawler.frontier.members import Member, Members
from crawler.frontier.operator import Operator
from crawler.frontier.pins import Pins
from crawler.frontier.stats import Stats
from crawler.frontier.takeovers import Takeovers
from crawler.handlers.crawler import Crawler
from crawler.membership.crash_reports import CrashReporter
from crawler.pipeline.internal_errors import InternalErrors
from crawler.web.fetcher import Fetcher


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the composition root puts in."""

    frontier: Frontier
    crawls: Crawls
    leases: Leases
    members: Members
    pins: Pins
    takeovers: Takeovers
    operator: Operator
    member: Member
    keys: Keys
    stats: Stats
    record: CrawlRecord
    roots: frozenset[str]
    fetcher: Fetcher
    warc: WarcWriter
    index: IndexWriter
    items: ItemWriter
    inflight_log: InflightLog
    history: HistoryWriter
    crash_reporter: CrashReporter
    internal_errors: InternalErrors
    spill_files: SpillFiles | None
    is_lock_free: Callable[[Member], bool]
    app: Crawler | None = None
    revive: Callable[[], Awaitable[None]] | None = None  # start the embedded engine again after it died
