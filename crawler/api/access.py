"""Who may do what: host, origin, token or session, role and rate of each request, in this order.

What lasts, a stream of events or of seeds, ends when its sender's token or session does.
"""

import asyncio
import contextlib
import hmac
import math
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web
from msgspec.structs import replace

from crawler.api.browser_sessions import BrowserSession, BrowserSessions
from crawler.api.front import Front, Source, is_loopback, source_of
from crawler.api.host_names import is_ours
from crawler.api.problem import ProblemError
from crawler.api.proxies import proxy_header
from crawler.api.request_rate import RateLimit
from crawler.errors import EngineError
from crawler.frontier.api_tokens import NOBODY, ApiToken, ApiTokens, Role, id_of
from crawler.frontier.operator_log import LogEntry

TOKENS_READ_EVERY_S = 0.5  # a token that was removed works this long, and its open streams twice as long
READS = ("GET", "HEAD")
SOURCE = web.RequestKey("source", Source)
CSRF_HEADER = "X-CSRF-Token"
BEARER = {"WWW-Authenticate": 'Bearer realm="crawler"'}
NOT_VALID = BEARER | {"WWW-Authenticate": f'{BEARER["WWW-Authenticate"]}, error="invalid_token"'}
HOW = "send 'Authorization: Bearer TOKEN'; 'crawler token add' makes tokens"
OR_LINK = "in a browser, open the last link that 'crawler serve' printed; "


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
        self._read_at = self._tried_at = -math.inf  # the last time that they were read; that reading them was tried

    async def begin(self) -> None:
        """Know the tokens from the first request on: of many that come at once, one reads them. Raises EngineError."""
        await self._read()

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

    async def any(self) -> bool:
        """Is there a token? While the engine does not answer: was there one, when it did?"""
        if time.monotonic() - self._tried_at >= TOKENS_READ_EVERY_S:
            with contextlib.suppress(EngineError):
                await self._read()
        return bool(self._known)

    async def _read(self) -> None:
        now = self._tried_at = time.monotonic()
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
        self, *, address: str, port: int, front: Front, tokens: TokenReader, sessions: BrowserSessions,
        rate: RateLimit,
    ) -> None:  # fmt: skip
        """`address`, `port`: what is listened on; "" and 0 for a Unix socket, through which only proxies come."""
        self._address = address
        self._port = port
        self._front = front
        self._is_local = bool(address) and is_loopback(address) and front.is_plain
        self._tokens = tokens
        self._sessions = sessions
        self._rate = rate
        self._streams: set[_Stream] = set()
        self._is_streaming = asyncio.Event()

    def check_source(self, http: web.BaseRequest) -> None:
        """Is it meant for us, and no other site's page behind it?"""
        address = str(http.get_extra_info("sockname", ("",))[0]) if self._address else ""
        source = source_of(http.headers, http.remote or "", self._front.proxies)
        http[SOURCE] = source
        is_one = len(http.headers.getall("Host", [])) == 1
        if not is_one or not is_ours(source.host, address=address, port=self._port, names=self._front.names):
            raise ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST, "this Host is not known here; 'crawler serve --host NAME' adds a name"
            )
        fetch_site = http.headers.get("Sec-Fetch-Site", "none")
        is_visit = http.method in READS and http.headers.get("Sec-Fetch-Mode") == "navigate"
        if fetch_site not in ("same-origin", "none") and not is_visit:
            raise ProblemError(HTTPStatus.FORBIDDEN, "a page of another site may not send requests to this server")

    async def identify(self, http: web.Request, needed: Role) -> Identity:
        """Who sent it, if they may. Raises EngineError, too, where a token has to be looked up."""
        client = http[SOURCE].client
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
            if identity.session is None and await self._tokens.any():
                raise ProblemError(HTTPStatus.UNAUTHORIZED, f"now there are tokens, and one is needed: {HOW}", BEARER)
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
        """By a token of ours, else a session, else nobody's where that may read.

        Whatever else is in Authorization is for a proxy: a password, or a token of somebody who is not us.
        """
        client, credentials = http[SOURCE].client, http.headers.getall("Authorization", [])
        ours = [text for text in map(_bearer, credentials) if id_of(text)]
        token = None
        if ours:
            token = await self._tokens.find(ours[0], lambda: self.count(client)) if len(ours) == 1 else None
            if token is None:
                raise ProblemError(HTTPStatus.UNAUTHORIZED, f"this token is not valid: {HOW}", NOT_VALID)
        session = self._sessions.find(http.cookies.get(self._sessions.cookie, ""))
        if session is not None:  # also where a proxy adds a token to what the browser sends
            return Identity(who="browser", role=Role.WRITE, client=f"session {session.id}", session=session)
        if token is not None:
            return Identity(who=token.user, role=token.role, client=f"token {token.id}", token=token)
        why = await self._why_closed(http, is_for_others=bool(credentials))
        if why:
            raise ProblemError(HTTPStatus.UNAUTHORIZED, f"{why}: {OR_LINK}elsewhere, {HOW}", BEARER)
        return Identity(who="", role=Role.READ, client=client)

    async def _why_closed(self, http: web.Request, *, is_for_others: bool) -> str:
        """Why somebody without token and session may not read; "" if they may."""
        if not self._is_local:
            return "a token or a session is needed"
        if is_for_others:
            return "Authorization seems to be for a proxy, and then a token of this server or a session is needed"
        if header := proxy_header(http.headers.keys()):
            return f"{header} tells that this came through a proxy, and then a token or a session is needed"
        if await self._tokens.any():
            return "this crawl has tokens, and so one, or a session, is needed"
        return ""

    def _check_role(self, http: web.Request, identity: Identity, needed: Role) -> None:
        if needed is Role.READ:
            return
        if identity.role is not Role.WRITE:
            if not identity.who:
                raise ProblemError(HTTPStatus.UNAUTHORIZED, f"a change needs a token: {HOW}", BEARER)
            raise _may_only_read()
        if identity.session is not None:
            self._check_origin(http)
            sent = http.headers.get(CSRF_HEADER, "").encode(errors="surrogateescape")
            if not hmac.compare_digest(sent, identity.session.csrf_token.encode()):
                raise ProblemError(
                    HTTPStatus.FORBIDDEN, f"the header {CSRF_HEADER} must have the csrf_token of GET /v1/session"
                )

    def _check_origin(self, http: web.Request) -> None:
        origin, source = http.headers.get("Origin"), http[SOURCE]
        if origin is not None and not source.is_same_origin(origin, self._front.names):
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "a page of another site may not send changes; if this is none, let the proxy pass Host on as it came",
            )


def _may_only_read() -> ProblemError:
    return ProblemError(
        HTTPStatus.FORBIDDEN, "this token may only read; 'crawler token add --role write' makes one for changes"
    )


def _bearer(credentials: str) -> str:
    """The token in an Authorization header; "" when that has none."""
    kind, _, text = credentials.strip().partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""
