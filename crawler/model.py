"""The records that cross the stages: frozen, keyword-only, without behaviour beyond small derivations.

The glossary is in docs/internals/architecture.md. Units come last in a name. Wall times are seconds since the
epoch (float, UTC) and serve for dates only; `*_ms` are integers on the clock that the comment names.
"""

import enum
from hashlib import blake2b
from typing import Any

import msgspec

from crawler.media_type import media_type

MEDIA_TYPE_MAX = 255  # characters: two names of 127 and a slash (RFC 6838 4.2)

REDIRECTS = frozenset({301, 302, 303, 307, 308})  # statuses whose Location is followed
NOT_MODIFIED = 304


class UrlParts(msgspec.Struct, frozen=True, kw_only=True):
    """A canonical URL, taken apart. `host` has no port; `origin` is scheme://host[:port]; `target` is path + query."""

    href: str
    scheme: str
    host: str
    port: int
    origin: str
    target: str


LABEL = r"^[A-Za-z0-9_.-]{0,32}$"  # of a handler: it travels in the member of each queued URL that has it
GET = "GET"
IDEMPOTENT = frozenset({GET, "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110 9.2.2: a lost answer leaves no doubt
BODY_DIGEST_BYTES = 16


class Request(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True
):
    """What a request carries besides its URL. One form: in the frontier, in dead letters, journals and index lines.

    `body_digest` stands for a body that is not kept there. `key` tells requests apart that are alike otherwise.
    `is_sent`: it may have reached the server, so it is not sent again unless somebody says so.
    """

    method: str = GET
    headers: dict[str, str] = {}  # without secrets: these never get here
    body: bytes = b""
    meta: dict[str, Any] = {}  # the handler's own, JSON
    key: str = ""
    session: str = ""  # whose cookies it has
    is_repeatable: bool = msgspec.field(name="idempotent", default=False)  # as somebody said
    goes_anywhere: bool = msgspec.field(name="cross_origin", default=False)  # a redirect takes its body elsewhere
    is_secret: bool = msgspec.field(name="secret", default=False)  # its body is not archived
    body_digest: str = ""
    is_sent: bool = msgspec.field(name="sent", default=False)

    @property
    def identity(self) -> str:
        """What tells it apart from a GET of its URL; "" for nothing."""
        if self.method == GET and not (self.body or self.body_digest or self.key or self.session):
            return ""
        return f"{self.method} {self.digest} {self.session} {self.key}"

    @property
    def digest(self) -> str:
        """Of its body; "" without one."""
        if self.body_digest or not self.body:
            return self.body_digest
        return blake2b(self.body, digest_size=BODY_DIGEST_BYTES).hexdigest()

    @property
    def may_repeat(self) -> bool:
        """May it be sent again when nobody knows what became of it?"""
        return self.is_repeatable or self.method in IDEMPOTENT

    @property
    def is_withheld(self) -> bool:
        """Is its body not here, so that it can't be sent?"""
        return bool(self.body_digest) and not self.body

    def without_body(self) -> "Request":
        """The same, with the digest in place of the body."""
        return msgspec.structs.replace(self, body=b"", body_digest=self.digest) if self.body else self


PLAIN = Request()


class Followed(msgspec.Struct, frozen=True, array_like=True, repr_omit_defaults=True):
    """A URL that a handler wants to be crawled. `priority` is added to its order: higher is fetched first."""

    url: str
    label: str = ""
    priority: float = 0.0
    request: Request | None = None  # None: a plain GET

    @property
    def is_plain(self) -> bool:
        """Does its URL alone say what is requested?"""
        return self.request is None or not self.request.identity


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
    request: Request | None = None  # None: a plain GET

    @property
    def name(self) -> str:
        """What tells it apart from others of its run."""
        if self.label == REQUISITE:
            return requisite_name(self.url)
        return self.fingerprint if self.request is not None and self.request.identity else self.url


def requisite_name(url: str) -> str:
    """`Candidate.name` of a requisite: its URL may be that of a page."""
    return REQUISITE + url


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
    request: Request | None = None  # None: a plain GET
    has_twin: bool = False  # its URL is known as a page and as a requisite, see `twin_of` (rules/places.py)

    @property
    def is_requisite(self) -> bool:
        return self.label == REQUISITE

    @property
    def is_given_sitemap(self) -> bool:
        """Did people name it as a sitemap, or does such a one name it? What it has for URLs is what they gave."""
        return self.label == SITEMAP and self.run != ""


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
    CHALLENGED = "challenged"  # by a test whether a person asks, in place of a page
    PROXY = "proxy"  # of a proxy, not of a host: no attempt, its URLs wait
    NETWORK = "network"  # of our own network, likewise
    BODY = "body"  # cut off, too slow, or a damaged coding; the last attempt is kept if anything came of it
    HOST_DEAD = "host_dead"  # given up without an attempt: its host has not answered for too long
    PARSE = "parse"  # parser killed or crashed
    NO_SITEMAP = "no_sitemap"  # what a job names as one: it has another status than 200, or is a page
    HANDLER = "handler"  # the user's own function failed on the page
    HANDLER_RETRY = "handler_retry"  # it asked for another attempt
    INTERNAL = "internal"  # an unexpected error of ours while its content was processed
    OUTCOME_UNKNOWN = "outcome_unknown"  # a request that must not be repeated blindly, and may have been served
    LOGIN_REQUIRED = "login_required"  # it leads to the login, right after one that holds
    ENDS_SESSION = "ends_session"  # sessions end with it, or with others of its path
    REDIRECT_WITH_BODY = "redirect_with_body"  # to another origin, which must not get the body
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
# Of what lies between us and all hosts.
OURS = frozenset({FailureKind.PROXY, FailureKind.NETWORK})
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
    is_unchanged: bool = False  # the server said that it is as it was archived: `body` and headers are from there
    request_head: bytes  # request line and headers as sent but for secrets, ending in an empty line
    request_body: bytes = b""  # likewise
    remote_ip: str
    tls_version: str = ""  # as in WARC-Protocol, like "tls/1.3"; "": without TLS
    cipher_suite: str = ""  # by its name at the IANA; "": not known
    started_at: float  # wall clock, seconds
    fetch_ms: int  # from the start of the request to the last byte

    def header(self, name: str) -> str:
        """First value of a header by its lower-case name, latin-1, stripped; '' when absent."""
        wanted, length = name.encode("latin-1"), len(name)
        for key, value in self.headers:
            if len(key) == length and key.lower() == wanted:
                return value.decode("latin-1").strip()
        return ""

    @property
    def content_type(self) -> str:
        """Media type in lower case without parameters; '' when absent. Cut, because it is stored with each page."""
        return media_type(self.listed("content-type"))[:MEDIA_TYPE_MAX]

    def listed(self, name: str) -> str:
        """The values of a header that is a list, by its lower-case name, joined (RFC 9110 5.3); '' when absent."""
        wanted, length = name.encode("latin-1"), len(name)
        found = [value for key, value in self.headers if len(key) == length and key.lower() == wanted]
        return ",".join([value.decode("latin-1").strip() for value in found])


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a fetch: a response or a failure, never both; times for the statistics.

    `stale_connection`: the request was sent on a reused connection that the server had closed, and no byte came. That
    is not a failure of the URL or the host. `challenge`: the product that answered instead of the site.
    `wants_signature`: the site asked for one, which the same request has if it is sent again; nor is that a failure.
    """

    url: str
    response: Response | None = None
    failure: Failure | None = None
    stale_connection: bool = False
    fetch_ms: int = 0
    retry_after_ms: int = 0
    challenge: str = ""
    wants_signature: bool = False


class Statement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a site says about the use of its pages, as it was read: printable ASCII, cut at a bound.

    `place`: "robots.txt:LINE", "tdmrep.json:NUMBER", "header", "meta", "link" or "script".
    """

    place: str
    key: str  # in lower case, like "content-usage"
    value: str


class Rights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What was said about the use of a page when it was fetched; of each purpose "y", "n", or "" for unknown.

    One form: in index lines, outputs and `explain`. `license` has URLs, with a blank between them; `cut`: statements
    that are not in `sources`, or not whole. They count for the purposes all the same.
    """

    search: str = ""
    ai_input: str = ""
    ai_train: str = ""
    tdm: str = ""
    license: str = ""
    sources: tuple[Statement, ...] = ()
    cut: int = 0


# How the queries of links are spelled: 0: in UTF-8; 1: in the encoding of their page. Stored with a crawl, because each
# of its URLs has one spelling; one that was begun by an earlier release keeps 0.
LINK_RULES = 1


class Requisite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a page or a style sheet loads: its canonical URL, and what for, one of REQUISITE_KINDS."""

    url: str
    kind: str


REQUISITE_KINDS = (
    "image", "style", "script", "font", "media", "icon", "manifest", "object", "frame", "other",
)  # fmt: skip


class ParsedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The result of parsing one response. Links are canonical, distinct, in order of appearance.

    `query_charset`: the codec that the queries of its links are sent in; "" is UTF-8. `sitemaps`: those that a sitemap
    names, which are not in `links`; `flaw`: why not all of a sitemap could be read.
    """

    title: str = ""
    links: tuple[str, ...] = ()
    links_dropped: int = 0  # beyond fetch.links_max or LINK_BYTES_MAX, or with a login's password
    canonical: str = ""
    nofollow: bool = False
    noindex: bool = False
    charset: str = ""
    query_charset: str = ""
    sitemaps: tuple[str, ...] = ()
    flaw: str = ""
    is_scripted: bool = False  # it seems to be built by scripts, which nobody runs here
    said: tuple[Statement, ...] = ()  # by its markup, about its use
    said_cut: int = 0  # statements that are not among these, or not whole
    requisites: tuple[Requisite, ...] = ()  # what it loads, if that was asked for
    requisites_cut: int = 0  # references to such that were left out, at least


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
REQUISITE = "+requisite"  # likewise: of what a page needs to be shown, such as a picture
REQUISITE_DEPTH_MAX = 4  # what a page shows is of depth 1: style sheets import each other to depth 3, and show pictures
# Labels of URLs that are fetched and committed, and are no pages; and the status that they are counted as: s0 and s9.
COUNTED_AS = {SITEMAP: 0, REQUISITE: 900}
SITEMAP_BYTES_MAX = 50 * 1024 * 1024  # the protocol's own bound
SITEMAP_DEPTH_MAX = 3  # the first one is of depth 1: an index of indexes. The protocol knows one level, sites have two
ITEMS_DROPPED = "items_dropped"  # by functions of `@app.item`: the name of their total, as of what is lost of a page
NO_MEDIA_TYPE = "unk"  # as CDX writers spell it
REVISIT = "warc/revisit"  # likewise, in place of the media type of an answer whose body is in another record
WITHHELD = "warc/metadata"  # likewise, of a page whose body was not kept, because of its rights


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
    request: Request | None = None  # without its body; None: a plain GET
    # Its body as a query, by which replay programs find the answer; of a POST or PUT. Named as they name it.
    request_body: str = msgspec.field(name="requestBody", default="")
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
    label: str = ""  # set by the handler that followed it; or one of COUNTED_AS
    items: ItemsLocation | None = None
    head_digest: str = msgspec.field(name="head", default="")  # of its request, for a later run of its job
    # Where the page is that this answer, a 304, says is unchanged, or that has the same body; and of what media type.
    # As pywb names them.
    original_length: str = msgspec.field(name="orig.length", default="")
    original_offset: str = msgspec.field(name="orig.offset", default="")
    original_file: str = msgspec.field(name="orig.filename", default="")
    original_mime: str = msgspec.field(name="orig.mime", default="")  # likewise of a page that was withheld
    rights: Rights | None = None  # None: nothing was said
    times: dict[str, float] = {}  # wall clock, s: queued, claimed, started, finished, archived
    pruned: bool = False  # record and items were removed: what is left keeps the page done, and the sums right

    @property
    def status(self) -> int:
        return int(self.status_text)

    @property
    def counted_status(self) -> int:
        """By which commits are counted: the status of a page, and for what is none a status that no page has."""
        return COUNTED_AS.get(self.label, self.status)

    @property
    def is_page(self) -> bool:
        return self.label not in COUNTED_AS

    @property
    def is_sitemap(self) -> bool:
        return self.label == SITEMAP

    @property
    def is_requisite(self) -> bool:
        return self.label == REQUISITE

    @property
    def is_withheld(self) -> bool:
        """Was its body not kept, because of its rights?"""
        return self.mime == WITHHELD

    @property
    def content_type(self) -> str:
        """The media type; "" if there was none."""
        mime = self.original_mime or self.mime
        return "" if mime == NO_MEDIA_TYPE else mime

    @property
    def warc(self) -> WarcLocation | None:
        """Where its record is; None: nowhere."""
        return _location(self.warc_file, self.warc_offset, self.warc_length)

    @property
    def original(self) -> WarcLocation | None:
        """Where the record of the page is that this one is unchanged from, or has the body of; None for most."""
        return _location(self.original_file, self.original_offset, self.original_length)

    @property
    def is_duplicate(self) -> bool:
        """Is it a page with headers of its own, whose body is in the record of another one?"""
        return bool(self.original_file) and self.status != NOT_MODIFIED

    @property
    def content(self) -> WarcLocation | None:
        """Where the record with its body is; None: nowhere."""
        return self.original or self.warc

    def placed(self, warc: WarcLocation | None, items: ItemsLocation | None) -> "CommitEntry":
        """The same commit with its record and its items at other places."""
        length, offset, file = _texts(warc)
        return msgspec.structs.replace(self, warc_length=length, warc_offset=offset, warc_file=file, items=items)

    def referring(self, original: WarcLocation | None) -> "CommitEntry":
        """The same commit with the page that it is unchanged from at another place."""
        length, offset, file = _texts(original)
        return msgspec.structs.replace(self, original_length=length, original_offset=offset, original_file=file)


def _location(file: str, offset: str, length: str) -> WarcLocation | None:
    return WarcLocation(file=file, offset=int(offset), length=int(length)) if file else None


def _texts(place: WarcLocation | None) -> tuple[str, str, str]:
    return (str(place.length), str(place.offset), place.file) if place else ("", "", "")


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
    FORGOTTEN = "forgotten"  # the crawl has forgotten its domain (crawler forget)
    RUN_URLS = "run_urls"  # the run of a job has as many as it may
    EXCLUDED = "excluded"  # it waited, and an `exclude` that was given since then matches it
    PURGED = "purged"  # while it waited, or as a dead letter
    ARCHIVED = "archived"  # as a page, so it is not requested again as a requisite
    IMPORTED = "imported"  # another crawl had fetched it
