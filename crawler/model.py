"""The records that cross the stages: frozen, keyword-only, without behaviour beyond small derivations.

The glossary is in docs/internals/architecture.md. Units come last in a name. Wall times are seconds since the
epoch (float, UTC) and serve for dates only; `*_ms` are integers on the clock that the comment names.
"""

import enum

import msgspec

from crawler.media_type import media_type

MEDIA_TYPE_MAX = 255  # characters: two names of 127 and a slash (RFC 6838 4.2)

REDIRECTS = frozenset({301, 302, 303, 307, 308})  # statuses whose Location is followed


class UrlParts(msgspec.Struct, frozen=True, kw_only=True):
    """A canonical URL, taken apart. `host` has no port; `origin` is scheme://host[:port]; `target` is path + query."""

    href: str
    scheme: str
    host: str
    port: int
    origin: str
    target: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL on its way into the frontier: canonical, in scope, hashed.

    A struct, because one is created for each link: a frozen dataclass with this many fields takes six times as long.
    """

    url: str
    fingerprint: str  # signed 64-bit integer in decimal
    partition: int
    domain: str
    queue: str
    depth: int
    redirects: int = 0
    seed: bool = False
    score: float = 0.0
    deferred: str = ""  # why it is not fetched now: it is kept, but not pending
    visible_at: float = 0.0  # wall clock, s: it is scheduled, and not handed out before; 0 for most
    found_at: float = 0.0  # wall clock, s
    seed_number: int = 0  # of the seed it descends from; 0: not known
    run: str = ""  # of a job, that it belongs to; "": of the crawl itself
    label: str = ""  # of the handler for its page
    user: str = ""  # whose job it was found for; "": the crawl itself
    linked_from: int | None = None  # place of the other domain that links to its own, where these are counted


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One URL delivered to the owner of its partition, with a token of its own."""

    url: str
    fingerprint: str
    visit: int
    partition: int
    epoch: int
    token: str
    domain: str
    queue: str
    depth: int
    redirects: int
    attempts: int  # earlier failed attempts
    deliveries: int  # earlier deliveries whose owner vanished
    seed: bool
    deaths: int = 0  # processes that died while they worked on it
    claimed_at: float = 0.0  # wall clock, s; 0 where not known
    queued_at: float = 0.0  # likewise, to a second
    seed_number: int = 0  # of the seed it descends from; 0: not known
    run: str = ""  # of a job, that it belongs to; "": of the crawl itself
    score: float = 0.0
    label: str = ""  # of the handler for its page
    user: str = ""  # whose job it was found for; "": the crawl itself


class FailureKind(enum.StrEnum):
    """Classes of failed fetches, for the retry rules and the statistics."""

    DNS_NOT_FOUND = "dns_not_found"  # NXDOMAIN, NODATA
    DNS_ERROR = "dns_error"  # SERVFAIL, REFUSED, timeout: may be temporary
    ADDRESS_REFUSED = "address_refused"  # private, loopback, link-local: deferred until fetch.allow_private
    PORT_REFUSED = "port_refused"  # of other services than the web
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"  # empty reply, reset
    PROTOCOL = "protocol"  # not HTTP/1.x as we accept it
    HEADERS_TOO_LARGE = "headers_too_large"
    SERVER_BUSY = "server_busy"  # 429, 503
    SERVER_ERROR = "server_error"  # other 5xx
    ROBOTS_UNREACHABLE = "robots_unreachable"
    BODY = "body"  # cut off, too slow, or a damaged coding; the last attempt is kept if anything came of it
    HOST_DEAD = "host_dead"  # given up without an attempt: its host has not answered for too long
    PARSE = "parse"  # parser killed or crashed
    HANDLER = "handler"  # the user's own function failed on the page
    INTERNAL = "internal"  # an unexpected error of ours while its content was processed
    POISON_URL = "poison_url"  # processes that worked on it died repeatedly, the last one while it was fetched alone


# Nothing was sent to a web server: such an attempt takes no turn of its queue.
UNSENT = frozenset(
    {
        FailureKind.DNS_NOT_FOUND,
        FailureKind.DNS_ERROR,
        FailureKind.ADDRESS_REFUSED,
        FailureKind.PORT_REFUSED,
        FailureKind.HOST_DEAD,
    }
)
# Refused before a connection is made; their detail is complete by itself.
NOT_ALLOWED = frozenset({FailureKind.ADDRESS_REFUSED, FailureKind.PORT_REFUSED})
# No server answered.
UNANSWERED = UNSENT | {
    FailureKind.CONNECT,
    FailureKind.TLS,
    FailureKind.TIMEOUT,
    FailureKind.DISCONNECTED,
    FailureKind.ROBOTS_UNREACHABLE,
}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a fetch gave no usable response."""

    kind: FailureKind
    detail: str = ""


class Decoded(enum.IntEnum):
    """How far the content codings of a body could be undone, from good to bad."""

    CLEAN = 0  # as they were declared
    WHOLE = 1  # all of it, though there are bytes behind it, or its checksum is wrong
    UNSURE = 2  # what came, since nobody knows the coding; or that of one without a mark of its own, and more behind it
    UNCODED = 3  # what came, since the coding was not applied
    PART = 4  # it was cut or damaged: what comes before that
    NOTHING = 5


class Response(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """One HTTP exchange as it happened.

    `body` is decompressed and cut at the limit; `raw_body` is what came over the wire after transfer coding, still
    content-coded (the same object as `body` when there was no content coding). `truncated` is "", "length", "time"
    or "disconnect" (the values of WARC-Truncated). `decode_error` names a content coding that was wrong, and `decoded`
    how far `body` is what was meant.
    """

    url: str
    status: int
    reason: str
    http_version: str  # "1.0" or "1.1"
    headers: tuple[tuple[bytes, bytes], ...]
    raw_body: bytes
    body: bytes
    truncated: str = ""
    decode_error: str = ""
    decoded: Decoded = Decoded.CLEAN
    request_head: bytes  # request line and headers as sent but for secrets, ending in an empty line
    remote_ip: str
    started_at: float  # wall clock, seconds
    fetch_ms: int  # from the start of the request to the last byte

    def header(self, name: str) -> str:
        """First value of a header by its lower-case name, latin-1, stripped; '' when absent."""
        wanted = name.encode("latin-1")
        for key, value in self.headers:
            if key.lower() == wanted:
                return value.decode("latin-1").strip()
        return ""

    @property
    def content_type(self) -> str:
        """Media type in lower case without parameters; '' when absent. Cut, because it is stored with each page."""
        return media_type(self.listed("content-type"))[:MEDIA_TYPE_MAX]

    def listed(self, name: str) -> str:
        """The values of a header that is a list, by its lower-case name, joined (RFC 9110 5.3); '' when absent."""
        wanted = name.encode("latin-1")
        return ",".join([value.decode("latin-1").strip() for key, value in self.headers if key.lower() == wanted])


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a fetch: a response or a failure, never both; times for the statistics.

    `stale_connection`: the request was sent on a reused connection that the server had closed, and no byte came. That
    is not a failure of the URL or the host.
    """

    url: str
    response: Response | None = None
    failure: Failure | None = None
    stale_connection: bool = False
    fetch_ms: int = 0
    retry_after_ms: int = 0


# How the queries of links are spelled: 0: in UTF-8; 1: in the encoding of their page. Stored with a crawl, because each
# of its URLs has one spelling; one that was begun by an earlier release keeps 0.
LINK_RULES = 1


class ParsedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The result of parsing one response. Links are canonical, distinct, in order of appearance.

    `query_charset`: the codec that the queries of its links are sent in; "" is UTF-8. `sitemaps`: those that a sitemap
    names, which are not in `links`; `flaw`: why not all of a sitemap could be read.
    """

    title: str = ""
    links: tuple[str, ...] = ()
    links_dropped: int = 0  # beyond fetch.links_max, or LINK_BYTES_MAX
    canonical: str = ""
    nofollow: bool = False
    noindex: bool = False
    charset: str = ""
    query_charset: str = ""
    sitemaps: tuple[str, ...] = ()
    flaw: str = ""
    is_scripted: bool = False  # it seems to be built by scripts, which nobody runs here


class WarcLocation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a record is: file name relative to the archive folder, byte offset and compressed length."""

    file: str
    offset: int
    length: int


class ItemsLocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where the items of a page are: one frame of an item file, and how many items it holds."""

    file: str
    offset: int
    length: int
    count: int


SITEMAP = "+sitemap"  # the label of a URL that is fetched as a sitemap; handlers can't give it
SITEMAP_BYTES_MAX = 50 * 1024 * 1024  # the protocol's own bound
SITEMAP_DEPTH_MAX = 3  # the first one is of depth 1: an index of indexes. The protocol knows one level, sites have two
ITEMS_DROPPED = "items_dropped"  # by functions of `@app.item`: the name of their total, as of what is lost of a page
NO_MEDIA_TYPE = "unk"  # as CDX writers spell it


class CommitEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What an ack writes, the log in the engine holds and the index keeps: one per committed (fingerprint, visit).

    As JSON it is that of an index line (CDXJ): the standard fields are strings, as other tools write them; our own have
    short names, for a crawl writes one line per page. What has no default is always written.
    """

    url: str
    mime: str
    status_text: str = msgspec.field(name="status")
    fingerprint: str = msgspec.field(name="fp")
    visit: int
    fetched_at: float = msgspec.field(name="at")  # wall clock, seconds
    digest: str = ""  # "sha1:BASE32" of the payload, as in WARC-Payload-Digest
    warc_length: str = msgspec.field(name="length", default="")
    warc_offset: str = msgspec.field(name="offset", default="")
    warc_file: str = msgspec.field(name="filename", default="")
    method: str = ""  # of the request; "": GET. No release sends another yet
    body_bytes: int = msgspec.field(name="bytes", default=0)
    title: str = ""
    depth: int = 0
    redirects: int = 0
    redirect_to: str = ""
    truncated: str = ""
    decode_error: str = ""  # what was wrong with its content coding
    noindex: bool = False
    links_dropped: int = msgspec.field(name="dropped", default=0)  # links beyond the bounds of a page
    node: str = ""
    session: str = ""
    epoch: int = 0
    sequence: int = msgspec.field(name="seq", default=0)
    scope_version: int = msgspec.field(
        name="scope", default=0
    )  # of the scope that its links were judged by; 0: unknown
    fetch_ms: int = 0
    seed_number: int = msgspec.field(name="seed", default=0)  # of the seed it descends from; 0: not known
    run: str = ""  # of a job, that it belongs to; "": of the crawl itself
    label: str = ""  # set by the handler that followed it; or SITEMAP
    items: ItemsLocation | None = None
    times: dict[str, float] = {}  # wall clock, s: queued, claimed, started, finished, archived
    pruned: bool = False  # record and items were removed: what is left keeps the page done, and the sums right

    @property
    def status(self) -> int:
        return int(self.status_text)

    @property
    def counted_status(self) -> int:
        """By which pages are counted; 0 for a sitemap, which is none."""
        return 0 if self.is_sitemap else self.status

    @property
    def is_sitemap(self) -> bool:
        """Is it no page?"""
        return self.label == SITEMAP

    @property
    def content_type(self) -> str:
        """The media type; "" if there was none."""
        return "" if self.mime == NO_MEDIA_TYPE else self.mime

    @property
    def warc(self) -> WarcLocation | None:
        """Where its record is; None: nowhere."""
        if not self.warc_file:
            return None
        return WarcLocation(file=self.warc_file, offset=int(self.warc_offset), length=int(self.warc_length))

    def placed(self, warc: WarcLocation | None, items: ItemsLocation | None) -> "CommitEntry":
        """The same commit with its record and its items at other places."""
        length, offset, file = (str(warc.length), str(warc.offset), warc.file) if warc else ("", "", "")
        return msgspec.structs.replace(self, warc_length=length, warc_offset=offset, warc_file=file, items=items)


class AddOutcome(enum.IntEnum):
    """What `add` did with one URL; the same values as in lua/add.lua."""

    NEW = 1
    SEEN = 0
    LOWERED = 2  # was queued, and has a smaller depth now
    ENDED = 3  # its run has ended: nothing was added


class AckOutcome(enum.StrEnum):
    """Replies to ack, retry, dead letter and return; the same values as in the scripts."""

    COMMITTED = "COMMITTED"
    ALREADY_YOURS = "ALREADY_YOURS"
    FENCED = "FENCED"
    GONE = "GONE"
    RELEASED = "RELEASED"  # not deferred but back in its queue: an operator released it


class RefusalReason(enum.StrEnum):
    """Why a URL is refused permanently; counted by reason."""

    SCOPE = "scope"
    DEPTH = "depth"
    ROBOTS = "robots"
    REDIRECTS = "redirects"
    RUN_URLS = "run_urls"  # the run of a job has as many as it may
    PURGED = "purged"  # its dead letter was purged
