"""Fetches one URL, once: returns the response as received, or the reason why there is none.

Faults of a host are values, never exceptions. Redirects are not followed, nothing is retried, cookies are not kept.
"""

import asyncio
import os
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from crawler.content.coding import RATIO_MAX, Inflated, inflate
from crawler.errors import InvalidUrl, UsageError
from crawler.model import REDIRECTS, Decoded, Failure, FailureKind, FetchResult, Request, Response
from crawler.rules.addresses import is_address, is_port_denied, is_private_name, is_public, refused_text
from crawler.rules.challenges import challenge_of
from crawler.rules.health import INTERRUPTED, retry_after_ms
from crawler.rules.outage import DOUBTFUL, Way
from crawler.rules.places import registrable_domain
from crawler.rules.proxy_health import Fault
from crawler.rules.sites import SECRET_HEADERS, SiteRules, SiteTable, is_secret_header
from crawler.rules.urls import host_of, split
from crawler.settings import FromEnvironment, Settings, SiteSettings
from crawler.settings.contact import fault_of_contact
from crawler.settings.schema import Text
from crawler.settings.site_checks import fault_of_site_value, fixed_cookies
from crawler.web.connection import IDLE, Connection
from crawler.web.connection_pool import ConnectFailedError, Origin, Pool
from crawler.web.in_flight import FREE_BYTES, Share
from crawler.web.own_network import OwnNetwork
from crawler.web.proxy import NO_LOGIN, WANTS_LOGIN, WRONG_LOGIN
from crawler.web.resolver import CachingResolver, LookupFailedError
from crawler.web.response import Head
from crawler.web.routes import Routes

if TYPE_CHECKING:
    from crawler.web.signing import Signed, Signer

# Headers, cookies and credentials that [[sites]] add to the requests of matching URLs, and of no others.
#
# Values may come from the environment. Secrets are replaced by a mark in the archived request.

KEPT_OUT = "(not archived)"


class Additions(msgspec.Struct):
    """Additions for one URL: headers by lower-case name, as (name as written, value), and cookies."""

    headers: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    cookies: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: set[str] = msgspec.field(default_factory=set)  # lower-case names of headers

    def header(self, name: str, value: str, *, is_secret: bool) -> None:
        """Add a header, unless an earlier table set it."""
        if name.lower() not in self.headers:
            self.headers[name.lower()] = name, value
            if is_secret:
                self.secrets.add(name.lower())


class SiteHeaders:
    """Additions by URL. Build with `of`."""

    def __init__(self, rules: SiteRules, resolved: Mapping[int, "Resolved"]) -> None:
        self._rules = rules
        self._resolved = resolved
        self._made: dict[tuple[bool, tuple[int, ...]], Additions] = {}

    @classmethod
    def of(cls, sites: Sequence[SiteSettings], environment: Mapping[str, str]) -> "SiteHeaders | None":
        """None when no table adds anything. Raises UsageError, also for a variable that is not set."""
        rules = SiteRules.of(sites, "headers", "cookies", "auth")
        if rules is None:
            return None
        return cls(rules, {number: Resolved.of(number, site, environment) for number, site in enumerate(sites)})

    def additions(self, url: str) -> Additions | None:
        """The additions for a canonical URL, or None."""
        tables = self._rules.fitting(url)
        if not tables:
            return None
        key = url.startswith("https:"), tuple(table.number for table in tables)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._put_together(url, tables)
        return made

    def _put_together(self, url: str, tables: Sequence[SiteTable]) -> Additions:
        made = Additions()
        for table in tables:
            values, may_be_secret = self._resolved[table.number], table.sends_secrets_to(url)
            if values.auth and may_be_secret:
                coded = b64encode(values.auth.encode()).decode()
                made.header("Authorization", f"Basic {coded}", is_secret=True)
            for name, value in values.headers.items():
                is_secret = is_secret_header(name, table.site.headers[name])
                if may_be_secret or not is_secret:
                    made.header(name, value, is_secret=is_secret)
            if may_be_secret:
                made.cookies |= {name: value for name, value in values.cookies.items() if name not in made.cookies}
        if made.cookies:
            made.secrets.add("cookie")
        return made


class Resolved(msgspec.Struct, frozen=True):
    """The additions of one table, with the values of its variables."""

    headers: dict[str, str]
    cookies: dict[str, str]
    auth: str

    @classmethod
    def of(cls, number: int, site: SiteSettings, environment: Mapping[str, str]) -> "Resolved":
        """Raises UsageError: for a variable that is not set, or whose value can't be sent."""
        for complaint in unresolved(number, site, environment):
            raise UsageError(complaint)
        return cls(
            {name: _value(text, environment) for name, text in site.headers.items()},
            {name: _value(text, environment) for name, text in fixed_cookies(site).items()},
            _value(site.auth, environment),
        )


def unresolved(number: int, site: SiteSettings, environment: Mapping[str, str]) -> Iterator[str]:
    """Problems with the variables that a table names, one line each, without any values."""
    texts: dict[str, Text | None] = {"auth": site.auth, "proxy": site.proxy}
    texts |= {f"headers.{name}": text for name, text in site.headers.items()}
    texts |= {f"cookies.{name}": text for name, text in fixed_cookies(site).items()}
    for key, text in texts.items():
        if not isinstance(text, FromEnvironment):
            continue
        if text.env not in environment:
            yield f"sites[{number}].{key}: the environment has no variable {text.env}"
        elif wrong := fault_of_site_value(key, environment[text.env]):
            yield f"sites[{number}].{key}: the value of {text.env} {wrong}"


def _value(text: str | FromEnvironment, environment: Mapping[str, str]) -> str:
    return environment[text.env] if isinstance(text, FromEnvironment) else text


ACCEPT_ENCODING = "gzip, deflate, br, zstd"
RETRY_AFTER_MAX_S = 3600.0  # a longer Retry-After counts as this: nobody waits for a month
_ORIGINS_MAX = 16_384
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})  # also without a body (RFC 9110 8.6)
PROXY_MAY_SAY = 400  # an answer to a whole URL from here on may be the proxy's own
_NO_ADDITIONS = Additions()
_CONTROLS = frozenset(chr(n) for n in (*range(0x20), 0x7F) if n != 0x09)  # never in a cookie, but a tab may be
_STALE = Failure(kind=FailureKind.DISCONNECTED, detail="the server had closed the kept connection")


def user_agent(settings: Settings, version: str) -> str:
    """The User-Agent header. Without a contact, its part is left out."""
    template = settings.fetch.user_agent
    contact = settings.fetch.contact
    if not contact:
        template = template.replace("(+{contact})", "").replace("{contact}", "")
    named = template.replace("{version}", version).replace("{contact}", contact)
    return " ".join(named.encode("latin-1", "replace").decode("latin-1").split())


def sender_of(contact: str) -> str:
    """The From header (RFC 9110 10.1.2) of a contact; "" for one that is not a mail address."""
    return contact if "@" in contact and not fault_of_contact(contact) else ""


def _signer_of(settings: Settings) -> "Signer | None":
    if settings.identity.sign == "off":
        return None
    from crawler.web.signing import Signer

    return Signer.of(settings)


class _Message(NamedTuple):
    """A request: its bytes, and what is archived of it."""

    sent: bytes
    kept_head: bytes
    kept_body: bytes
    is_head: bool
    is_signed: bool


class Fetcher:
    """An async context manager around a pool of connections. The caller closes the resolver.

    Raises UsageError when [[sites]] or fetch.proxy need an environment variable that is not set, or identity.sign needs
    a key that is not here.
    """

    def __init__(self, settings: Settings, *, resolver: CachingResolver, version: str) -> None:
        self._settings = settings
        self._sites = SiteHeaders.of(settings.sites, os.environ)
        self._certificates = SiteRules.of(settings.sites, "insecure_tls")
        self._resolver = resolver
        self.network = OwnNetwork(resolver, self._reach)
        self._routes = Routes.of(settings)
        self.signer = _signer_of(settings)
        self.has_proxies = self._routes is not None and not settings.fetch.gateway
        self._of_proxies: CachingResolver | None = None
        self._user_agent = user_agent(settings, version)
        self._sender = sender_of(settings.fetch.contact)
        self._origins: OrderedDict[str, Origin] = OrderedDict()
        self._pool: Pool | None = None
        self._running: set[Connection] = set()

    async def __aenter__(self) -> Self:
        if self.has_proxies:
            self._of_proxies = CachingResolver(self._settings.dns, allow_private=True)
        of_proxies = self._of_proxies.lookup if self._of_proxies is not None else None
        self._pool = Pool(self._settings.fetch, self.network.lookup, of_proxies)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in tuple(self._running):
            connection.abort()
        await self.network.close()
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        if self._of_proxies is not None:
            await self._of_proxies.close()

    async def fetch(
        self,
        url: str,
        *,
        request: Request | None = None,
        cookies: Collection[tuple[str, str]] = (),
        hides_cookies: bool = False,
        body_bytes_max: int | None = None,
        note_sent: Callable[[], Awaitable[None]] | None = None,
        before_send: Callable[[], None] | None = None,
        working: AbstractContextManager[None] = IDLE,
    ) -> FetchResult:
        """Request a canonical URL: by GET, or as `request` says. `cookies`: names and values; `hides_cookies`: the
        archived request does not have them.

        `note_sent` and then `before_send` are called after connecting, just before the request is written; if one
        raises, nothing is sent. With `note_sent` the connection is a new one: on a kept one that the server closes,
        nobody knows whether it read the request (RFC 9110 9.2.2). `working` is entered while received bytes are
        processed. Cancelling closes the connection. Raises InvalidUrl for a URL that is not canonical.
        """
        assert self._pool is not None, "used outside its context"
        settings = self._settings.fetch
        origin, target = self._origin_and_target(url)
        if origin.refusal is not None:
            return FetchResult(url=url, failure=origin.refusal)
        if origin.route is not None and origin.route.health is not None:
            origin.route.health.begins(origin.key)
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection = self._pool.take(origin) if note_sent is None else None
        if connection is None:
            give_back = await self._pool.room()
            began = loop.time()  # to wait for room is not the host's time
            try:
                connection = await self._pool.open(origin, give_back)
            except ConnectFailedError as error:
                unreached = await self._judged(origin, self._whose(origin, error.failure, error.fault))
                return FetchResult(url=url, failure=unreached, fetch_ms=_ms(loop.time() - began))
        message = self._message(origin, target, cookies, request, hides_cookies=hides_cookies)
        body_limit = settings.body_bytes_max if body_bytes_max is None else body_bytes_max
        self._running.add(connection)
        try:
            if note_sent is not None:
                await note_sent()
            if before_send is not None:
                before_send()
            sent_at, started_at = loop.time(), time.time()
            deadline = began + settings.total_timeout_s
            await connection.begin(
                message.sent, body_bytes_max=body_limit, deadline=deadline, working=working, is_head=message.is_head
            )
        except BaseException:
            connection.abort()
            self._pool.bytes_in_flight.ended(connection.take_share())
            raise
        finally:
            self._running.discard(connection)
        fetch_ms = _ms(loop.time() - sent_at)
        share = connection.take_share()
        try:
            failure, answer, raw, truncated = self._end(origin, connection)
            failure = await self._judged(origin, failure, truncated)
            if failure is not None or answer is None:
                stale = failure is _STALE
                return FetchResult(url=url, failure=failure, stale_connection=stale, fetch_ms=fetch_ms)
            sent = self._without_transfer_coding(answer, raw, truncated, body_limit)
            raw, truncated = sent.body, truncated or ("length" if sent.truncated else "")
            found, share = await self._decode(answer, raw, truncated, body_limit, share)
            tls_version, cipher_suite = connection.tls_names if origin.is_tls else ("", "")
            response = Response(
                url=url,
                status=answer.status,
                reason=answer.reason,
                http_version="1.0" if answer.http_version == "1.0" else "1.1",
                headers=answer.headers,
                raw_body=raw,
                body=found.body,
                truncated=truncated or ("length" if found.truncated else ""),
                decode_error=found.error or sent.error,
                decoded=max(found.decoded, sent.decoded),
                request_head=message.kept_head,
                request_body=message.kept_body,
                remote_ip="" if origin.has_proxy else connection.remote_ip,
                tls_version=tls_version,
                cipher_suite=cipher_suite,
                started_at=started_at,
                fetch_ms=fetch_ms,
            )
            self._pool.bytes_in_flight.keep(response)
        finally:
            self._pool.bytes_in_flight.ended(share)
        asked_ms = retry_after_ms(
            answer.get(b"retry-after"),
            date=answer.get(b"date"),
            now_s=time.time(),
            max_s=RETRY_AFTER_MAX_S,
        )
        # What must not be repeated is not: what comes later is signed.
        again = self.signer is not None and self._asks(origin, answer, message) and note_sent is None
        challenge = challenge_of(response.headers, response.body) if not again else ""
        return FetchResult(
            url=url, response=response, fetch_ms=fetch_ms, retry_after_ms=asked_ms, challenge=challenge,
            wants_signature=again,
        )  # fmt: skip

    def _end(self, origin: Origin, connection: Connection) -> tuple[Failure | None, Head | None, bytes, str]:
        """The result of an exchange: failure, head, body, how it was cut. The connection is kept or closed."""
        assert self._pool is not None
        failure, answer, raw, truncated = connection.failure, connection.head, connection.body(), connection.truncated
        is_reused = connection.is_reused
        if not is_reused and answer is not None:
            self._pool.answered(origin, connection)
        if connection.end():
            self._pool.put(origin, connection)
        origin.sent_unasked = origin.sent_unasked or connection.is_spoiled
        if is_reused and (connection.is_stale or _ends_idleness(answer)):
            self._pool.was_stale(origin)
            return _STALE, None, b"", ""
        if failure is not None or answer is None:
            kind, detail = failure or (FailureKind.DISCONNECTED, "no response")
            failed = Failure(kind=kind, detail=detail)
            return failed if answer is not None else self._whose(origin, failed), None, b"", ""
        if origin.route is not None and (refusal := self._came_through(origin, answer.status)) is not None:
            return refusal, None, b"", ""
        if is_reused:
            origin.stale_in_a_row = 0
        if answer.status in REDIRECTS and len(answer.all_of(b"location")) > 1:
            # It is unclear which one is meant, and this is a sign of header injection.
            return Failure(kind=FailureKind.PROTOCOL, detail="several Location headers that differ"), None, b"", ""
        return None, answer, raw, truncated

    def kept_head(self, url: str) -> bytes:
        """The head of a plain request for this canonical URL, without secrets. Raises InvalidUrl."""
        return self._request_head(*self._origin_and_target(url), ())[1]

    def example_head(self, url: str) -> bytes:
        """The same, with a signature if such requests may get one."""
        origin, target = self._origin_and_target(url)
        head = self._request_head(origin, target, ())[1]
        return head if self.signer is None else head[:-2] + self.signer.example(origin.host_header)

    async def taken(self, body_bytes: int, read: Callable[[], Response]) -> Response:
        """A response that is read from elsewhere, in a thread, once there is room for it: it counts as one of ours."""
        assert self._pool is not None, "used outside its context"
        in_flight = self._pool.bytes_in_flight
        share = await in_flight.room(None, body_bytes) if body_bytes > FREE_BYTES else None
        try:
            response = await asyncio.to_thread(read)
            in_flight.keep(response)
        finally:
            in_flight.ended(share)
        return response

    def _whose(self, origin: Origin, failure: Failure, fault: Fault = Fault.EITHER) -> Failure:
        """The failure of a request that brought no answer: the proxy's, if there is one, as long as it may be."""
        return (self._of_proxy(origin, failure.detail, fault) if origin.has_proxy else None) or failure

    def _of_proxy(self, origin: Origin, detail: str, fault: Fault) -> Failure | None:
        """The failure of the proxy of an origin; None when it is the origin's own."""
        route = origin.route
        assert route is not None
        assert route.health is not None
        said, domain = f"{route.proxy}: {detail}", registrable_domain(origin.host)
        is_own = route.health.failed(origin.key, domain, fault, said, now_ms=_now_ms())
        return None if is_own else Failure(kind=FailureKind.PROXY, detail=said)

    def _came_through(self, origin: Origin, status: int) -> Failure | None:
        """Note an answer that came over a route; the failure that it is if it is the proxy's own."""
        route = origin.route
        if route is None or route.health is None:
            return None
        if origin.sends_whole_urls and status == WANTS_LOGIN:
            return self._of_proxy(origin, WRONG_LOGIN if origin.login else NO_LOGIN, Fault.LIKELY)
        if not origin.sends_whole_urls or status < PROXY_MAY_SAY:
            route.health.served(origin.key, now_ms=_now_ms())
        return None

    async def _judged(self, origin: Origin, failure: Failure | None, truncated: str = "") -> Failure | None:
        """The failure of a request, or None; that of our own network, if there was no answer, or none to its end, and
        nobody is answered any more.
        """
        if origin.route is not None or failure is _STALE:
            return failure
        is_cut = failure is None and truncated in INTERRUPTED
        if not is_cut and (failure is None or failure.kind not in DOUBTFUL):
            return failure
        detail = f"a body was cut off by {truncated}" if failure is None else failure.detail
        return await self.network.failure(Way.HOSTS, detail) or failure

    def note_answer(self, url: str, domain: str, delay_ms: int) -> None:
        """A request for this canonical URL was answered. `delay_ms`: between two of its queue."""
        origin, _ = self._origin_and_target(url)
        if origin.route is None:
            self.network.answered(domain, origin.key, is_name=not is_address(origin.host), delay_ms=delay_ms)

    def own_wait_ms(self, url: str) -> int:
        """How long a request for this canonical URL waits for its proxy, or for our own network, ms; 0: it may be sent
        now.
        """
        if not (self.has_proxies or self.network.is_away):
            return 0
        origin, _ = self._origin_and_target(url)
        route = origin.route
        if origin.refusal is not None:
            return 0
        if route is None:
            is_name = not is_address(origin.host)
            if wait_ms := self.network.wait_ms(Way.HOSTS):
                self.network.waits(registrable_domain(host_of(url)), origin.key, is_name=is_name)
            is_known = not is_name or self._is_cached(origin.host)
            return max(wait_ms, 0 if is_known else self.network.wait_ms(Way.NAMES))
        return route.health.wait_ms(origin.key, now_ms=_now_ms()) if route.health is not None else 0

    def _is_cached(self, host: str) -> bool:
        try:
            return self._resolver.cached(host) is not None
        except LookupFailedError:
            return True

    def proxy_trouble(self) -> str:
        """What is wrong with the proxies through which nothing comes; "" if there are none."""
        if self._routes is None:
            return ""
        return "; ".join(self._routes.troubles(now_ms=_now_ms()))

    def known_address_of(self, url: str) -> str | Failure | None:
        """The address that a request for this canonical URL would go to first, or why there is none; None when it must
        be looked up. Of what goes through a proxy the host's name: no address is known, and none is shared.
        """
        host = host_of(url)
        if self.has_proxies and self._origin_and_target(url)[0].has_proxy:
            return host
        if is_address(host.strip("[]")):
            return host
        try:
            known = self._resolver.cached(host)
        except LookupFailedError as error:
            return Failure(kind=error.kind, detail=error.detail)
        return known[0] if known else None

    async def address_of(self, url: str) -> str | Failure:
        """Like `known_address_of`, looked up if necessary."""
        known = self.known_address_of(url)
        if known is not None:
            return known
        host = host_of(url)
        try:
            found = await self.network.lookup(host)
        except LookupFailedError as error:
            return Failure(kind=error.kind, detail=error.detail)
        return found[0] if found else host

    async def reach(self, url: str) -> Failure | None:
        """Open a connection to the origin of a canonical URL, and keep it for the next request to it; why there is
        none. Raises InvalidUrl.
        """
        assert self._pool is not None, "used outside its context"
        origin, _ = self._origin_and_target(url)
        if origin.refusal is not None:
            return origin.refusal
        if origin.route is not None and origin.route.health is not None:
            origin.route.health.begins(origin.key)
        return await self._judged(origin, await self._reach(url))

    async def _reach(self, url: str) -> Failure | None:
        assert self._pool is not None, "used outside its context"
        origin, _ = self._origin_and_target(url)
        give_back = await self._pool.room()
        try:
            connection = await self._pool.open(origin, give_back)
        except ConnectFailedError as error:
            return self._whose(origin, error.failure, error.fault)
        self._pool.put(origin, connection)
        return None

    def _origin_and_target(self, url: str) -> tuple[Origin, str]:
        slash = url.find("/", 8)
        # A space or a line break would end the request line early and let a link write headers.
        if slash < 0 or not url.isascii() or not url.isprintable() or " " in url:
            raise InvalidUrl(url, "not canonical")
        key = url[:slash]
        origin = self._origins.get(key)
        if origin is None:
            origin = self._new_origin(url)
            if len(self._origins) >= _ORIGINS_MAX:
                self._origins.popitem(last=False)
            self._origins[key] = origin
        return origin, url[slash:]

    def _new_origin(self, url: str) -> Origin:
        if not url.startswith(("http://", "https://")) or "@" in url[: url.find("/", 8)]:
            raise InvalidUrl(url, "not canonical")
        parts = split(url)
        host = parts.host.strip("[]")
        host_header = parts.origin.partition("://")[2]
        route = None if self._routes is None else self._routes.of_origin(parts)
        has_proxy = route is not None and route.proxy is not None
        sends_whole_urls = route is not None and route.takes_whole_urls(parts.scheme)
        login = route.authorization if route is not None and sends_whole_urls else ""
        return Origin(
            key=parts.origin,
            host=host,
            port=parts.port,
            is_tls=parts.scheme == "https" and not sends_whole_urls,
            host_header=host_header,
            request_tail=self._tail(host_header, ""),
            route=route,
            sends_whole_urls=sends_whole_urls,
            login=login.encode(),
            refusal=self._refusal(host, parts.port, has_proxy=has_proxy),
            takes_any_certificate=self._takes_any_certificate(parts.origin),
        )

    def _takes_any_certificate(self, origin: str) -> bool:
        own = None if self._certificates is None else self._certificates.first(f"{origin}/", "insecure_tls")
        return self._settings.fetch.insecure_tls if own is None else bool(own)

    def _refusal(self, host: str, port: int, *, has_proxy: bool) -> Failure | None:
        """The failure of every request to this origin, if that is known before connecting. What a proxy resolves is
        judged by its name, as far as that goes.
        """
        if is_port_denied(port):
            return Failure(kind=FailureKind.PORT_REFUSED, detail=f"port {port} is not for web servers")
        if self._settings.fetch.allow_private:
            return None
        if (is_address(host) and not is_public(host)) or (has_proxy and not is_address(host) and is_private_name(host)):
            return Failure(kind=FailureKind.ADDRESS_REFUSED, detail=refused_text(host))
        return None

    def _request_head(
        self,
        origin: Origin,
        target: str,
        cookies: Collection[tuple[str, str]],
        request: Request | None = None,
        *,
        hides_cookies: bool = False,
    ) -> tuple[bytes, bytes]:
        """The head to send, and the head to archive: without the secrets of [[sites]]."""
        additions = self._sites.additions(f"{origin.key}{target}") if self._sites is not None else None
        whole = f"{origin.key}{target}" if origin.sends_whole_urls else target
        line = (b"GET " if request is None else request.method.encode() + b" ") + whole.encode("ascii")
        if additions is None and not cookies and request is None:
            head = line + origin.request_tail
            return head, head
        added = additions or _NO_ADDITIONS
        named = {name for name, _ in cookies}
        pairs = [*((name, value) for name, value in added.cookies.items() if name not in named), *cookies]
        cookie = "; ".join(_pair(*pair) for pair in pairs)
        own = _own_headers(request) if request is not None else {}
        if "cookie" in own:
            given = own.pop("cookie")[1]
            replaced = {pair.partition("=")[0].strip() for pair in given.split(";")}
            kept = "; ".join(_pair(*pair) for pair in pairs if pair[0] not in replaced)
            cookie, hides_cookies = f"{kept}; {given}" if kept else given, True
        secret = added.secrets | (SECRET_HEADERS & own.keys())
        head = line + self._tail(origin.host_header, cookie, added.headers | own)
        is_body_shown = request is None or not (request.is_secret and request.body)
        hides = (secret or hides_cookies) and not self._settings.archive.request_secrets
        if not hides and is_body_shown:
            return head, head
        shown = {
            key: (name, KEPT_OUT if hides and key in secret else text)
            for key, (name, text) in (added.headers | own).items()
        }
        kept_cookie = KEPT_OUT if hides and cookie and (added.cookies or hides_cookies) else cookie
        if not is_body_shown:
            shown["content-length"] = "Content-Length", str(len(KEPT_OUT))
        return head, line + self._tail(origin.host_header, kept_cookie, shown)

    def _tail(self, host_header: str, cookie: str, added: Mapping[str, tuple[str, str]] | None = None) -> bytes:
        headers = {
            "host": ("Host", host_header),
            "user-agent": ("User-Agent", self._user_agent),
            "accept": ("Accept", self._settings.fetch.accept),
            "accept-encoding": ("Accept-Encoding", ACCEPT_ENCODING),
        }
        if self._sender:
            headers["from"] = "From", self._sender
        if self._settings.fetch.accept_language:
            headers["accept-language"] = "Accept-Language", self._settings.fetch.accept_language
        headers |= added or {}
        # Cookies come from hosts: what could end a line is not sent.
        if cookie and _CONTROLS.isdisjoint(cookie):
            headers["cookie"] = "Cookie", cookie
        lines = [" HTTP/1.1", *(f"{name}: {value}" for name, value in headers.values()), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace")

    def _message(
        self,
        origin: Origin,
        target: str,
        cookies: Collection[tuple[str, str]],
        request: Request | None,
        *,
        hides_cookies: bool,
    ) -> "_Message":
        """A request as it is sent now."""
        head, kept_head = self._request_head(origin, target, cookies, request, hides_cookies=hides_cookies)
        signed = None
        if self.signer is not None:
            signed = self.signer.lines(origin.host_header, request.headers if request is not None else ())
        if signed is not None:
            head, kept_head = self._with_signature(head, kept_head, signed)
        if origin.login:  # for the proxy alone: it is not archived
            head = head[:-2] + origin.login + head[-2:]
        if request is None:
            return _Message(head, kept_head, b"", is_head=False, is_signed=signed is not None)
        kept_body = request.body if not request.is_secret else KEPT_OUT.encode() * bool(request.body)
        is_head = request.method == "HEAD"
        return _Message(head + request.body, kept_head, kept_body, is_head=is_head, is_signed=signed is not None)

    def _asks(self, origin: Origin, answer: Head, message: "_Message") -> bool:
        """Does an answer ask for a signature that the same request would have now?"""
        field = answer.listed(b"accept-signature")
        if not field or self.signer is None:
            return False
        asked = field.encode("latin-1")
        return self.signer.answered(origin.host_header, answer.status, asked, was_signed=message.is_signed)

    def _with_signature(self, head: bytes, kept_head: bytes, signed: "Signed") -> tuple[bytes, bytes]:
        """The heads with it. What is archived lacks the signature itself: until it expires, it is as good as a key."""
        kept = signed.sent if self._settings.archive.request_secrets else signed.kept
        return head[:-2] + signed.sent, kept_head[:-2] + kept

    def _without_transfer_coding(self, answer: Head, raw: bytes, truncated: str, limit: int) -> Inflated:
        """The body without codings of its transfer, which nobody asked for; as it came where they can't be undone."""
        if not answer.transfer or not raw:
            return Inflated(raw, truncated=False, error="")
        found = inflate(raw, answer.transfer, limit=limit, ratio_max=RATIO_MAX)
        return found._replace(body=raw) if found.decoded is Decoded.NOTHING else found.of_cut(truncated)

    async def _decode(
        self, answer: Head, raw: bytes, truncated: str, limit: int, share: Share | None
    ) -> tuple[Inflated, Share | None]:
        """The body without its content coding, and the share. When there is no room for large bodies, only small ones
        are decoded at once.
        """
        coding = answer.listed(b"content-encoding")
        if not coding or not raw:
            return Inflated(raw, truncated=False, error=""), share
        assert self._pool is not None
        in_flight = self._pool.bytes_in_flight
        inflated = None
        if in_flight.is_full and limit > FREE_BYTES:
            small = inflate(raw, coding, limit=FREE_BYTES, ratio_max=RATIO_MAX)
            if small.truncated:
                share = await in_flight.room(share, len(raw))
            else:
                inflated = small
        inflated = inflated or inflate(raw, coding, limit=limit, ratio_max=RATIO_MAX)
        return inflated.of_cut(truncated), share


def _pair(name: str, value: str) -> str:
    """A cookie as it is sent."""
    return f"{name}={value}" if name else value


def _own_headers(request: Request) -> dict[str, tuple[str, str]]:
    """Those of a request, by lower-case name."""
    own = {name.lower(): (name, value) for name, value in request.headers.items()}
    if request.body or request.method in _WITH_LENGTH:
        own["content-length"] = "Content-Length", str(len(request.body))
    return own


def _ends_idleness(answer: Head | None) -> bool:
    """RFC 9110 15.5.9: a server may end an idle connection with a 408 before it gets the request."""
    return answer is not None and answer.status == 408 and not answer.keeps_alive


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
