"""Who may do what: host, origin, token or session, role and rate of each request, in this order.

What lasts, a stream of events or of seeds, ends when its sender's token or session does.
"""

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection
from http import HTTPStatus

import msgspec
from aiohttp import web
from msgspec.structs import replace

from crawler.api.problem import ProblemError
from crawler.errors import EngineError, UsageError
from crawler.frontier.api_store import NOBODY, ApiToken, ApiTokens, Role, id_of
from crawler.frontier.operator import LogEntry

# Which Host headers are answered: a foreign name in it means that a web site had its name resolve to us.
#
# Such a site's scripts would have the same origin as the dashboard (DNS rebinding). It can't forge an address, as the
# browser writes into the header what is in its address bar.

LOCAL = ("localhost", "127.0.0.1", "::1")
HTTP_PORT = 80


def listen_address(text: str) -> tuple[str, int]:
    """ADDRESS:PORT as people write it. Raises UsageError."""
    host, port = split_host(text)
    address = "127.0.0.1" if host == "localhost" else host
    try:
        ipaddress.ip_address(address)
    except ValueError:
        port = None
    if port is None:
        raise UsageError(f"--listen {text}: expected an address and a port, like 127.0.0.1:8800 or [::1]:8800")
    return address, port


def is_loopback(address: str) -> bool:
    """Can only this machine connect to it?"""
    return ipaddress.ip_address(address).is_loopback


def split_host(text: str) -> tuple[str, int | None]:
    """Host, in lower case and without brackets, and port; a port that is missing or no port is None."""
    host, colon, port = text.strip().lower().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text.strip().lower(), ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    return host, int(port) if is_port else None


def is_ours(header: str, *, address: str, port: int, names: Collection[str]) -> bool:
    """Does a Host header name this server? `address`: the one that the connection came to; `names`: of --host."""
    host, given = split_host(header)
    if host in names:
        return True
    return (given or HTTP_PORT) == port and host in (*LOCAL, address)


def reachable(address: str) -> str:
    """An address of this machine at which a server that listens on this one answers."""
    ip = ipaddress.ip_address(address)
    return address if not ip.is_unspecified else "::1" if ip.version == 6 else "127.0.0.1"


def shown(address: str, port: int) -> str:
    """Address and port as in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# Sessions of browsers: begun with a link that works once, held by a cookie that scripts and other sites can't use.

SESSIONS_MAX = 100
SECRET_BYTES = 32


class BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """`csrf_token`: what a page of ours sends in a header with each write; other sites can't read it."""

    id: str
    csrf_token: str


class BrowserSessions:
    """The sessions of this process; they end with it."""

    def __init__(self, port: int, announce: Callable[[str], None]) -> None:
        """`announce` is called with the code of the next link, whenever one was used."""
        self.cookie = f"crawler_session_{port}"  # cookies of all ports of a host are one jar
        self._announce = announce
        self.code = secrets.token_urlsafe(SECRET_BYTES)  # of the link that works now
        self._by_digest: dict[str, BrowserSession] = {}

    def begin(self, code: str) -> str:
        """The cookie's value for whoever has the code; "" when it is not valid (any more)."""
        if not hmac.compare_digest(code.encode(errors="surrogateescape"), self.code.encode()):
            return ""
        value = secrets.token_urlsafe(SECRET_BYTES)
        session = BrowserSession(id=secrets.token_hex(4), csrf_token=secrets.token_urlsafe(SECRET_BYTES))
        while len(self._by_digest) >= SESSIONS_MAX:
            del self._by_digest[next(iter(self._by_digest))]  # the oldest
        self._by_digest[_digest(value)] = session
        self.code = secrets.token_urlsafe(SECRET_BYTES)
        self._announce(self.code)
        return value

    def find(self, value: str) -> BrowserSession | None:
        """The session of a cookie."""
        return self._by_digest.get(_digest(value)) if value else None

    def has(self, session: BrowserSession) -> bool:
        """Does it go on?"""
        return session in self._by_digest.values()


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()


# How many requests a client may send: a bucket of tokens for each, as one number (GCRA, ITU-T I.371).

BUCKETS_MAX = 10_000  # beyond this, full ones are forgotten


class RateLimit:
    """`per_s` requests a second for each client, and `burst` at once."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._step_s = 1 / per_s
        self._ahead_s = burst / per_s
        self._clock = clock
        self._full_at: dict[str, float] = {}  # client -> when its bucket is full again

    def take(self, client: str) -> float:
        """Take one request from a client's bucket; 0.0, or the seconds after which there is one."""
        now = self._clock()
        full_at = max(self._full_at.get(client, 0.0), now) + self._step_s
        late_s = full_at - now - self._ahead_s
        if late_s > 0:
            return late_s
        if len(self._full_at) >= BUCKETS_MAX and client not in self._full_at:
            self._full_at = {one: at for one, at in self._full_at.items() if at > now}
        self._full_at[client] = full_at
        return 0.0


TOKENS_READ_EVERY_S = 0.5  # a token that was removed works this long, and its open streams twice as long
READS = ("GET", "HEAD")
PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
CSRF_HEADER = "X-CSRF-Token"
BEARER = {"WWW-Authenticate": 'Bearer realm="crawler"'}
NOT_VALID = BEARER | {"WWW-Authenticate": f'{BEARER["WWW-Authenticate"]}, error="invalid_token"'}
HOW = "send 'Authorization: Bearer TOKEN'; 'crawler token add' makes tokens"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request. `client`: whose requests are counted together."""

    who: str
    role: Role
    client: str
    token: ApiToken | None = None
    session: BrowserSession | None = None

    @property
    def jobs_of(self) -> str | None:
        """Whose jobs it sees: with a token those of its user. None: of all users, as the operator's browser does."""
        return self.who if self.who and self.session is None else None

    @property
    def owner(self) -> str:
        """Whose share of what users share it takes: that of a user, of the browsers together, or of an address."""
        if self.token is not None:
            return f"user {self.who}"
        return "browser" if self.session is not None else self.client

    def shown(self, entry: LogEntry) -> LogEntry | None:
        """An entry of the operator log as it may read it: without names of other users; None for what is about them."""
        own = self.jobs_of
        if own is None:
            return entry
        kind = entry.action.partition(" ")[0]
        if kind == "token" or (kind in ("jobs", "users") and entry.target.partition("/")[0] != own):
            return None
        return entry if entry.who == own else replace(entry, who="")


class TokenReader:
    """The tokens, read from the engine twice a second, and for those that are not known, as often as may be."""

    def __init__(self, tokens: ApiTokens) -> None:
        self._tokens = tokens
        self._known: dict[str, ApiToken] = {}
        self._read_at = -math.inf

    async def find(self, text: str, before_read: Callable[[], None]) -> ApiToken | None:
        """The token with this text. `before_read` may refuse to look for a new one. Raises EngineError."""
        number = id_of(text)
        if time.monotonic() - self._read_at >= TOKENS_READ_EVERY_S:
            await self._read()
        elif number and number not in self._known:  # it may be new
            before_read()
            await self._read()
        token = self._known.get(number, NOBODY)
        return token if token.is_of(text) else None

    async def now(self, token: ApiToken) -> ApiToken:
        """What a token that was found has become; NOBODY when it is not valid any more. Raises EngineError."""
        if time.monotonic() - self._read_at >= TOKENS_READ_EVERY_S:
            await self._read()
        now = self._known.get(token.id, NOBODY)
        return now if (now.sha256, now.user) == (token.sha256, token.user) else NOBODY

    async def _read(self) -> None:
        now = time.monotonic()
        self._known, self._read_at = await self._tokens.read(), now


class _Stream:
    """One that is open, and how it ends."""

    def __init__(self, identity: Identity, needed: Role) -> None:
        self.identity = identity
        self.needed = needed
        self.limit = asyncio.timeout(None)
        self.refusal: ProblemError | None = None

    def end(self, refusal: ProblemError) -> None:
        if self.refusal is None:
            self.refusal = refusal
            self.limit.reschedule(asyncio.get_running_loop().time())


class Access:
    """Decides on each request before anything else happens. All refusals are ProblemErrors."""

    def __init__(
        self, *, address: str, port: int, names: Collection[str], tokens: TokenReader, sessions: BrowserSessions,
        rate: RateLimit,
    ) -> None:  # fmt: skip
        """`address`, `port`: what is listened on; `names`: further names of this server."""
        self._port = port
        self._names = frozenset(name.lower() for name in names)
        self._is_local = is_loopback(address) and not names  # a name is for a proxy: others come through it
        self._tokens = tokens
        self._sessions = sessions
        self._rate = rate
        self._streams: set[_Stream] = set()
        self._is_streaming = asyncio.Event()

    def check_source(self, http: web.BaseRequest) -> None:
        """Is it meant for us, and no other site's page behind it?"""
        address = str(http.get_extra_info("sockname", ("",))[0])
        hosts = http.headers.getall("Host", [])
        if len(hosts) != 1 or not is_ours(hosts[0], address=address, port=self._port, names=self._names):
            raise ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST, "this Host is not known here; 'crawler serve --host NAME' adds a name"
            )
        fetch_site = http.headers.get("Sec-Fetch-Site", "none")
        is_visit = http.method in READS and http.headers.get("Sec-Fetch-Mode") == "navigate"
        if fetch_site not in ("same-origin", "none") and not is_visit:
            raise ProblemError(HTTPStatus.FORBIDDEN, "a page of another site may not send requests to this server")

    async def identify(self, http: web.Request, needed: Role) -> Identity:
        """Who sent it, if they may. Raises EngineError, too, where a token has to be looked up."""
        client = _address(http)
        try:
            identity = await self._identity(http)
            client = identity.client
            self._check_role(http, identity, needed)
        except ProblemError as refused:
            self.count(client)
            raise refused from None
        self.count(client)
        return identity

    async def check_still(self, identity: Identity, needed: Role) -> None:
        """Raises ProblemError when who was admitted would not be any more; also EngineError."""
        if identity.session is not None and not self._sessions.has(identity.session):
            raise ProblemError(HTTPStatus.UNAUTHORIZED, "this session has ended: open the link of 'crawler serve'")
        if identity.token is None:
            return
        token = await self._tokens.now(identity.token)
        if token is NOBODY:
            raise ProblemError(HTTPStatus.UNAUTHORIZED, f"this token was removed: {HOW}", NOT_VALID)
        if needed is Role.WRITE and token.role is not Role.WRITE:
            raise _may_only_read()

    @contextlib.asynccontextmanager
    async def while_admitted(self, identity: Identity, needed: Role) -> AsyncIterator[None]:
        """End what is inside, with ProblemError, when its sender is not admitted any more."""
        stream = _Stream(identity, needed)
        self._streams.add(stream)
        self._is_streaming.set()
        try:
            async with stream.limit:
                yield
        except TimeoutError:
            raise stream.refusal or TimeoutError from None
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._is_streaming.clear()

    async def watch(self) -> None:
        """End the streams of those who are not admitted any more; until cancelled."""
        while True:
            await self._is_streaming.wait()
            await asyncio.sleep(TOKENS_READ_EVERY_S)
            for stream in list(self._streams):
                try:
                    await self.check_still(stream.identity, stream.needed)
                except ProblemError as refusal:
                    stream.end(refusal)
                except EngineError:
                    break  # nobody knows, and nothing can be changed: the next time

    def count(self, client: str) -> None:
        """Count a request of a client."""
        wait_s = self._rate.take(client)
        if wait_s:
            seconds = math.ceil(wait_s)
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS, f"too many requests; wait {seconds} s", {"Retry-After": str(seconds)}
            )

    async def _identity(self, http: web.Request) -> Identity:
        if "Authorization" in http.headers:
            token = await self._token(http)
            if token is None:
                raise ProblemError(HTTPStatus.UNAUTHORIZED, f"this token is not valid: {HOW}", NOT_VALID)
            return Identity(who=token.user, role=token.role, client=f"token {token.id}", token=token)
        session = self._sessions.find(http.cookies.get(self._sessions.cookie, ""))
        if session is not None:
            return Identity(who="browser", role=Role.WRITE, client=f"session {session.id}", session=session)
        is_proxied = any(name in http.headers for name in PROXY_HEADERS)
        if self._is_local and not is_proxied:
            return Identity(who="", role=Role.READ, client=_address(http))
        raise ProblemError(HTTPStatus.UNAUTHORIZED, f"a token is needed: {HOW}", BEARER)

    async def _token(self, http: web.Request) -> ApiToken | None:
        kind, _, text = http.headers["Authorization"].partition(" ")
        if kind.lower() != "bearer":
            return None
        return await self._tokens.find(text.strip(), lambda: self.count(_address(http)))

    def _check_role(self, http: web.Request, identity: Identity, needed: Role) -> None:
        if needed is Role.READ:
            return
        if identity.role is not Role.WRITE:
            if not identity.who:
                raise ProblemError(HTTPStatus.UNAUTHORIZED, f"a change needs a token: {HOW}", BEARER)
            raise _may_only_read()
        if identity.session is not None:
            _check_origin(http)
            sent = http.headers.get(CSRF_HEADER, "").encode(errors="surrogateescape")
            if not hmac.compare_digest(sent, identity.session.csrf_token.encode()):
                raise ProblemError(
                    HTTPStatus.FORBIDDEN, f"the header {CSRF_HEADER} must have the csrf_token of GET /v1/session"
                )


def _may_only_read() -> ProblemError:
    return ProblemError(
        HTTPStatus.FORBIDDEN, "this token may only read; 'crawler token add --role write' makes one for changes"
    )


def _check_origin(http: web.Request) -> None:
    origin = http.headers.get("Origin")
    if origin is not None and origin.lower().partition("://")[2] != http.headers.get("Host", "").lower():
        raise ProblemError(HTTPStatus.FORBIDDEN, "a page of another site may not send changes")


def _address(http: web.BaseRequest) -> str:
    return http.remote or ""
