"""The record of all settings: sections, keys, types, defaults. `load` is the one way to get a validated one.

Times that people set are seconds (`*_s`); sizes are bytes (`*_bytes`).
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

COUNT_MAX = 2**53  # whole numbers that the engine's scripts tell apart
NUMBER_MAX = 1e10  # times in ms, in such numbers too: three centuries
Positive = Annotated[float, Meta(gt=0, le=NUMBER_MAX)]
NotNegative = Annotated[float, Meta(ge=0, le=NUMBER_MAX)]
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
CountOrZero = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Attempts = Annotated[int, Meta(ge=1, le=15)]  # four bits of a URL's score
PRIORITY_MAX = 100_000  # either way; leaves room for years of waiting in a score of 32 bits
Priority = Annotated[float, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]
Factor = Annotated[float, Meta(ge=1, le=NUMBER_MAX)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections: immutable, and an unknown key is an error."""


class CrawlSettings(_Section, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "main"
    partitions: Annotated[int, Meta(ge=1, le=16384)] = 1024
    pages_max: CountOrZero = 0  # 0: no limit
    time_max_s: NotNegative = 0.0  # 0: no limit
    stall_cpu_s: NotNegative = 5.0  # 0: no limit


class ScopeSettings(_Section, frozen=True):
    mode: Literal["domain", "host", "prefix", "any"] = "domain"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    depth_max: Annotated[int, Meta(ge=-1, le=255)] = -1  # -1: no limit; 0: seeds only
    redirects_max: Annotated[int, Meta(ge=0, le=15)] = 10
    # What a seed's redirect adds: its own site, or the page of another one; only the page; the site as if it was given.
    redirected_seeds: Literal["site", "page", "follow"] = "site"
    nofollow: bool = True  # obey rel=nofollow and meta robots nofollow
    follow: Literal["links", "handlers"] = "links"  # all links of a page, or only those that its handler follows


class PolitenessSettings(_Section, frozen=True):
    delay_s: NotNegative = 1.0
    delay_max_s: Positive = 60.0  # cap on robots.txt Crawl-delay
    factor: NotNegative = 0.0  # wait at least factor x the last fetch time
    adaptive: bool = False  # lengthen the delay while a site is slow or overloaded
    concurrency_per_queue: Count = 1
    concurrency_per_address: Count = 8


class FromEnvironment(_Section, frozen=True):
    """A value from an environment variable, to keep it out of the file: { env = "SHOP_LOGIN" }."""

    env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


Text = str | FromEnvironment


class FetchSettings(_Section, frozen=True):
    concurrency: Annotated[int, Meta(ge=1, le=100_000)] = 64
    user_agent: str = "shardcrawl/{version} (+{contact})"
    contact: str = ""
    connect_timeout_s: Positive = 10.0
    idle_timeout_s: Positive = 20.0
    total_timeout_s: Positive = 60.0
    body_bytes_max: Count = 10 * 1024 * 1024
    bytes_in_flight_max: Count = 256 * 1024 * 1024
    links_max: Count = 20_000
    allow_private: bool = False
    insecure_tls: bool = False
    proxy: Text = ""  # URL, or "env": the variables http_proxy, https_proxy, all_proxy and no_proxy
    gateway: str = ""  # "address:port" of `crawler replay`: every request goes there, with its whole URL
    accept: str = "text/html,application/xhtml+xml,*/*;q=0.5"
    accept_language: str = "en,*;q=0.5"


class IdentitySettings(_Section, frozen=True):
    """How requests show who sends them, beyond fetch.user_agent and fetch.contact: by signatures (RFC 9421)."""

    sign: Literal["off", "asked", "always"] = "off"  # asked: to the sites that ask for a signature
    key_file: str = ""  # of this machine: 'crawler identity new' makes it
    agent: str = ""  # "https://bot.example": where the directory of keys is published
    nonce: bool = False  # a signature of its own for each request


class RobotsSettings(_Section, frozen=True):
    obey: bool = True
    agent: str = "shardcrawl"  # the product token looked up in robots.txt
    sitemaps: Literal["auto", "yes", "no"] = (
        "auto"  # fetch what Sitemap lines name; auto: in crawls of domains or hosts
    )
    # internals
    ttl_s: Positive = 86400.0  # a robots.txt is read again after this: the limit of RFC 9309


class RightsSettings(_Section, frozen=True):
    purpose: Literal["", "search", "ai-input", "ai-train", "tdm"] = ""  # what the pages are for; empty: not said
    policy: Literal["record", "skip"] = "record"  # skip: pages whose site says no to the purpose
    tdmrep: bool = False  # read /.well-known/tdmrep.json of each origin


class RequisiteSettings(_Section, frozen=True):
    """What pages need to be shown: pictures, style sheets, scripts, fonts."""

    fetch: bool = False  # of any host; 'crawler crawl --requisites'
    urls: CountOrZero = 50_000  # of a domain (or host, with queue_by = "host"), for all pages; 0: no limit
    bytes: CountOrZero = 10 * 1024**3  # likewise
    body_bytes_max: Count = 50 * 1024 * 1024  # of one
    # internals
    page_max: Count = 2_000  # of one page or style sheet; the rest is cut, and counted


class DnsSettings(_Section, frozen=True):
    nameservers: tuple[str, ...] = ()  # empty: the system's; "host" or "host:port"
    timeout_s: Positive = 5.0
    tries: Count = 2
    cache_size: Count = 100_000
    # internals
    ttl_min_s: NotNegative = 60.0  # answers are kept at least this long
    negative_ttl_s: NotNegative = 60.0  # how long "no such host" is kept


class RetryKind(_Section, frozen=True):
    """Values for one kind of failure; None: as in `rules/health.py`, else as in [retry] itself."""

    attempts: Attempts | None = None
    backoff_s: NotNegative | None = None


class RetrySettings(_Section, frozen=True):
    """A table by the kinds of failures (`FailureKind`) that another attempt may fix."""

    attempts: Attempts = 3
    backoff_s: NotNegative = 2.0  # before the 2nd attempt; times `backoff_factor` each further one
    backoff_factor: Factor = 4.0
    backoff_max_s: Positive = 3600.0
    dns_not_found: RetryKind = RetryKind()
    dns_error: RetryKind = RetryKind()
    connect: RetryKind = RetryKind()
    tls: RetryKind = RetryKind()
    timeout: RetryKind = RetryKind()
    disconnected: RetryKind = RetryKind()
    protocol: RetryKind = RetryKind()
    server_busy: RetryKind = RetryKind()
    server_error: RetryKind = RetryKind()
    challenged: RetryKind = RetryKind()
    robots_unreachable: RetryKind = RetryKind()
    body: RetryKind = RetryKind()
    handler: RetryKind = RetryKind()
    handler_retry: RetryKind = RetryKind()


class HostsSettings(_Section, frozen=True):
    failures: Count = 5  # failures of an origin in a row after which its URLs are set aside
    give_up_s: Positive = 3600.0  # after this time without a response its URLs become dead letters
    # internals
    probe_s: Positive = 60.0  # until one of them is tried again; twice as long for each further one
    probe_max_s: Positive = 3600.0


class PriorityRule(_Section, frozen=True):
    """`add` to the priority of every URL in which the regular expression `match` is found."""

    match: Annotated[str, Meta(min_length=1)]
    add: Priority


class OrderSettings(_Section, frozen=True):
    """Which URL of a queue is fetched first: the frontier settings that are fixed when the crawl is created."""

    order: Literal["breadth", "priority", "freshness"] = "breadth"
    half_life_s: Annotated[float, Meta(ge=60, le=NUMBER_MAX)] = (
        86400.0  # shorter ones would exhaust a score within months
    )
    rules: tuple[PriorityRule, ...] = ()
    depth_weight: NotNegative = 1.0  # subtracted per link from a seed
    links_weight: NotNegative = 0.1  # subtracted per doubling of the links on the page that led to a URL
    sitemap_weight: NotNegative = 1.0  # of a sitemap's priority and date, each at most this


class FrontierSettings(OrderSettings, frozen=True):
    redis: str = ""  # empty: the embedded engine in the crawl folder
    engine: str = ""  # path of another server binary for the embedded engine
    queue_by: Literal["domain", "host"] = "domain"
    claim_urls_max: Count = 64  # per queue and call
    call_timeout_s: Positive = 2.0
    recent_urls: CountOrZero = 200_000
    memory: CountOrZero = (
        0  # bytes of the engine; above 90 %, deferred URLs and tails of queues go to disk; 0: no limit
    )
    spill_folder: str = ""  # where they go; empty: with the embedded engine the crawl folder's own, else off
    durability: Literal["fast", "replicated"] = "fast"  # of a cluster: answers wait until a replica has the writes
    # internals
    claim_ahead_s: Positive = 2.0  # hand out as many URLs of a queue as its delay allows in this time
    log_entries_max: Count = 10_000  # commit entries of a partition that are not in the index yet, before acks wait
    visibility_timeout_s: Positive = 300.0  # a claim that is not acked or returned within this time is delivered again


class BudgetSettings(_Section, frozen=True):
    urls: CountOrZero = 0  # of a domain (or host, with queue_by = "host"), taken in; 0: no limit
    pages: CountOrZero = 0  # fetched
    bytes: CountOrZero = 0
    depth: Annotated[int, Meta(ge=0, le=255)] = 0  # links from a seed
    hosts: CountOrZero = 0  # of a registrable domain, taken in
    crawl_urls: CountOrZero = 0  # of the whole crawl, taken in
    crawl_pages: CountOrZero = 0  # of the whole crawl, fetched
    crawl_bytes: CountOrZero = 0


TrapRule = Literal["long", "hosts", "repeats", "path", "query", "calendar", "session", "soft_404"]


class TrapSettings(_Section, frozen=True):
    off: tuple[TrapRule, ...] = ()  # rules that are not applied
    steps_max: Annotated[int, Meta(ge=1, le=64)] = 24  # from suspect to suspect, each deeper, until all are deferred
    suspects_max: Count = 20_000  # fetched of a domain and rule; the rest is deferred
    # internals: beyond them, URLs are suspect
    long_bytes: Count = 512
    host_labels: Count = 4  # before the registrable domain
    repeats: Annotated[int, Meta(ge=2, le=COUNT_MAX)] = 3  # of one segment or parameter
    path_segments: Count = 10
    parameters: Count = 4


class MembershipSettings(_Section, frozen=True):
    node: str = ""  # empty: host name + slot
    weight: Annotated[int, Meta(ge=1, le=100)] = 1
    dead_s: Annotated[float, Meta(ge=1, le=3600)] = 7.0  # silence after which the partitions of a session go to others
    drain_timeout_s: Positive = 30.0
    # internals
    beats: Positive = 7.0  # heartbeats within `dead_s`,
    reads: Positive = 14.0  # and reads of those of the others
    debounce_s: NotNegative = 0.5  # joins within this time are applied together
    flap_free: Count = 3  # quick successive joins of a node without a penalty
    flap_hold_s: Positive = 5.0  # how long the next one stays off the ring; doubled for each further one
    flap_hold_max_s: Positive = 300.0
    virtual_nodes: Annotated[int, Meta(ge=1, le=10_000)] = 150  # points of a node on the ring, times its weight

    # Shares of `dead_s`, each smaller than the next: one lost read must not start the judging afresh (read, gap), nor
    # two lost beats arouse suspicion, and a session has stopped before others take over (self_stop, dead).

    @property
    def beat_s(self) -> float:
        """Between heartbeats."""
        return self.dead_s / self.beats

    @property
    def read_s(self) -> float:
        """Between reads of the others' heartbeats."""
        return self.dead_s / self.reads

    @property
    def gap_s(self) -> float:
        """Two reads further apart than this restart the failure detection."""
        return self.dead_s * 2.5 / 7

    @property
    def suspect_s(self) -> float:
        """Silence after which a session is shown as suspect."""
        return self.dead_s * 3 / 7

    @property
    def self_stop_s(self) -> float:
        """Without a successful heartbeat for this long, a session starts no more requests."""
        return self.dead_s * 5 / 7


class ArchiveSettings(_Section, frozen=True):
    dir: Annotated[str, Meta(min_length=1)] = "crawl-data"
    warc: bool = True
    # Below it no URLs are claimed; 0: off. Twice what may be in flight, `fetch.bytes_in_flight_max`.
    disk_free_bytes_min: CountOrZero = 512 * 1024 * 1024
    warc_bytes_max: Annotated[int, Meta(ge=1_000_000, le=COUNT_MAX)] = 1_000_000_000
    compression_level: Annotated[int, Meta(ge=0, le=3)] = 1  # ISA-L levels
    request_records: bool = True
    duplicates: bool = False  # write bodies again that the file has from another URL of the domain
    request_secrets: bool = False  # also passwords, cookies and the like that [[sites]] add to requests
    # internals
    sync_s: Positive = 0.2  # pages are synced to disk in groups, at least this often
    sync_pages: Count = 128  # or when this many wait
    room_s: NotNegative = 60.0  # with twice `disk_free_bytes_min` for this long, an instance gets partitions again


class HandlerSettings(_Section, frozen=True):
    """What users program."""

    app: str = ""  # FILE.py, FILE.py:OBJECT or MODULE:OBJECT; empty: none
    items_max: Count = 10_000  # that one page may yield
    threads: Count = 16  # for functions that are not asynchronous
    processes: Count = 2  # for handlers that request one


class LoginSettings(_Section, frozen=True):
    """How to log in without code: the first form of a page that has a password is filled and sent."""

    url: Annotated[str, Meta(min_length=1)]  # of the page with the form
    user: Annotated[str, Meta(min_length=1)]
    password_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  # the variable that has the password
    form: str = ""  # CSS selector of the form, where the first one with a password is not meant
    ignore_robots: bool = False  # of the login's own requests, where robots.txt forbids them
    # Hosts of the site ("sso.shop.example", with another port "sso.shop.example:8443") that may get the password, too.
    action_hosts: tuple[str, ...] = ()
    allow_get: bool = False  # may a form be sent that puts the password into a URL?


class SiteSettings(_Section, frozen=True):
    """Settings of URLs that match a pattern (crawler/rules/scope.py); the defaults: not set here."""

    match: Annotated[str, Meta(min_length=1)]
    delay_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None  # of its queues: at least politeness.delay_s
    concurrency: Count | None = None  # of its queues, instead of politeness.concurrency_per_queue
    insecure_tls: bool | None = None  # of its hosts, instead of fetch.insecure_tls
    proxy: Text | None = None  # of its hosts, instead of fetch.proxy; "": none
    headers: dict[str, Text] = {}
    cookies: dict[str, Text] | str = {}  # or the name of a file of cookies (cookies.txt), which begins a session
    session: bool | None = None  # keep its cookies, and send them back
    login: LoginSettings | None = None
    auth: Text = ""  # "USER:PASSWORD", for HTTP's basic authentication
    label: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,32}$")] = ""  # of the handler, where a link gave none
    depth_max: Annotated[int, Meta(ge=-1, le=255)] | None = None  # instead of scope.depth_max
    priority: Annotated[float, Meta(ge=-1000, le=1000)] | None = None  # added to that of the order


class CookieSettings(_Section, frozen=True):
    """The key that seals sessions in the engine, for who takes over; without one they stay in memory."""

    key_env: Annotated[str, Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""  # the variable that has it
    key_file: str = ""


class HistorySettings(_Section, frozen=True):
    bytes_max: CountOrZero = 1_000_000_000  # of the folder; 0: no history


class JobSettings(_Section, frozen=True):
    history_rows: Annotated[int, Meta(ge=1, le=100_000)] = (
        200  # kept of each job; a row is a time, or many that were missed
    )
    catchup_max: Annotated[int, Meta(ge=1, le=1000)] = 100  # times that passed while no instance ran; the newest run
    active_max: Annotated[int, Meta(ge=1, le=10_000)] = 100  # runs of a job at once
    pages: CountOrZero = 0  # of a run of a job that has no limit of its own; 0: none. The next two, too
    bytes: CountOrZero = 0
    urls: CountOrZero = 0


class LogSettings(_Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "warning"
    file: str = ""


class Settings(_Section, frozen=True):
    """All settings. `load` is the one way to get one."""

    crawl: CrawlSettings = CrawlSettings()
    scope: ScopeSettings = ScopeSettings()
    politeness: PolitenessSettings = PolitenessSettings()
    fetch: FetchSettings = FetchSettings()
    identity: IdentitySettings = IdentitySettings()
    robots: RobotsSettings = RobotsSettings()
    rights: RightsSettings = RightsSettings()
    requisites: RequisiteSettings = RequisiteSettings()
    dns: DnsSettings = DnsSettings()
    retry: RetrySettings = RetrySettings()
    hosts: HostsSettings = HostsSettings()
    frontier: FrontierSettings = FrontierSettings()
    budget: BudgetSettings = BudgetSettings()
    traps: TrapSettings = TrapSettings()
    membership: MembershipSettings = MembershipSettings()
    archive: ArchiveSettings = ArchiveSettings()
    handlers: HandlerSettings = HandlerSettings()
    history: HistorySettings = HistorySettings()
    jobs: JobSettings = JobSettings()
    cookies: CookieSettings = CookieSettings()
    log: LogSettings = LogSettings()
    sites: tuple[SiteSettings, ...] = ()


class LoadedSettings(Settings, frozen=True):
    """The same, and which keys ("section.key") some source named, even with their defaults."""

    given: frozenset[str] = frozenset()
