"""Who may do what: host, origin, token or session, role and rate of each request, in this order."""

import hmac
import math
import time
from collections.abc import Callable, Collection
from http import HTTPStatus

import msgspec
from aiohttp import web

from crawler.api.browser_sessions import BrowserSession, BrowserSessions
from crawler.api.hosts import is_loopback, is_ours
from crawler.api.problem import ProblemError
from crawler.api.rate_limit import RateLimit
from crawler.frontier.api_tokens import NOBODY, ApiToken, ApiTokens, Role, id_of
from crawler.frontier.operator_log import LogEntry

TOKENS_READ_EVERY_S = 1.0  # a token that was removed works this long
READS = ("GET", "HEAD")
PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
CSRF_HEADER = "X-CSRF-Token"
BEARER = {"WWW-Authenticate": 'Bearer realm="crawler"'}
HOW = "send 'Authorization: Bearer TOKEN'; 'crawler token add' makes tokens"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request. `client`: whose requests are counted together."""

    who: str
    role: Role
    client: str
    session: BrowserSession | None = None

    @property
    def jobs_of(self) -> str | None:
        """Whose jobs it sees: with a token those of its user. None: of all users, as the operator's browser does."""
        return self.who if self.who and self.session is None else None

    def sees(self, entry: LogEntry) -> bool:
        """May it read this entry of the operator log?"""
        return self.jobs_of is None or not entry.action.startswith("jobs ") or entry.target.startswith(f"{self.who}/")


class TokenReader:
    """The tokens, read from the engine once a second, and for those that are not known, as often as may be."""

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

    async def _read(self) -> None:
        now = time.monotonic()
        self._known, self._read_at = await self._tokens.read(), now


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
        try:
            identity = await self._identity(http)
            self._check_role(http, identity, needed)
        except ProblemError as refused:
            self.count(_address(http))
            raise refused from None
        self.count(identity.client)
        return identity

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
                raise ProblemError(
                    HTTPStatus.UNAUTHORIZED,
                    f"this token is not valid: {HOW}",
                    {"WWW-Authenticate": f'{BEARER["WWW-Authenticate"]}, error="invalid_token"'},
                )
            return Identity(who=token.user, role=token.role, client=f"token {token.id}")
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
            raise ProblemError(
                HTTPStatus.FORBIDDEN, "this token may only read; 'crawler token add --role write' makes one for changes"
            )
        if identity.session is not None:
            _check_origin(http)
            sent = http.headers.get(CSRF_HEADER, "").encode(errors="surrogateescape")
            if not hmac.compare_digest(sent, identity.session.csrf_token.encode()):
                raise ProblemError(
                    HTTPStatus.FORBIDDEN, f"the header {CSRF_HEADER} must have the csrf_token of GET /v1/session"
                )


def _check_origin(http: web.Request) -> None:
    origin = http.headers.get("Origin")
    if origin is not None and origin.lower().partition("://")[2] != http.headers.get("Host", "").lower():
        raise ProblemError(HTTPStatus.FORBIDDEN, "a page of another site may not send changes")


def _address(http: web.BaseRequest) -> str:
    return http.remote or ""
