"""The pool of connections by origin: opened to checked addresses only, kept open for a while, bounded in number.

Every address is checked at the moment of connecting, whatever its source.
"""

import asyncio
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import aiohappyeyeballs
import msgspec

from crawler import process_tuning
from crawler.model import Failure, FailureKind
from crawler.rules.addresses import AddressRefusedError, check_address, is_address
from crawler.rules.proxy_health import Fault
from crawler.settings import FetchSettings
from crawler.web.connection import Connection
from crawler.web.in_flight import BytesInFlight
from crawler.web.proxy import ProxyError, Route, pass_through
from crawler.web.resolver import LookupFailedError, address_family
from crawler.web.response import said_by
from crawler.web.tls import ResumingContext

IDLE_S = 4.0  # less than the 5 s after which common servers close, so that requests rarely meet a closing connection
IDLE_MAX = 256  # lower bound of the limit: workers switch between hosts, and reopening costs more than keeping
IDLE_PER_REQUEST = 8
# Open files that are no connections: archive, index, outputs, journals, locks, engine, helpers. Some 50 were counted.
OTHER_FILES = 64
SOCKETS_MIN = 4
INSECURE = "; insecure_tls = true in a table [[sites]] of this host accepts it"
# What OpenSSL says where the issuer of a certificate is neither sent nor known here.
_NO_ISSUER = (20, 21)  # X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, ..._UNABLE_TO_VERIFY_LEAF_SIGNATURE
STALE_MAX = 2  # in a row: then connections to the server are not kept any more
_HAPPY_EYEBALLS_DELAY_S = 0.25  # RFC 8305 5
_SWEEP_S = 2.0
Lookup = Callable[[str], Awaitable[tuple[str, ...]]]  # of a host's addresses; raises LookupFailedError


def advice_on(error: ssl.SSLCertVerificationError) -> str:
    """What to do about a certificate that is not valid."""
    if error.verify_code not in _NO_ISSUER:
        return INSECURE
    paths = ssl.get_default_verify_paths()
    file = paths.cafile or paths.openssl_cafile
    return (
        "; its chain is incomplete: the server does not send the certificate of the issuer, and it is not known here. "
        f"Set SSL_CERT_FILE to a copy of {file} with that certificate added{INSECURE}"
    )


class ConnectFailedError(Exception):
    """No connection; `failure` is the reason, `fault` whose it may be where the way leads through a proxy."""

    def __init__(self, kind: FailureKind, detail: str, fault: Fault = Fault.EITHER) -> None:
        super().__init__(detail)
        self.failure = Failure(kind=kind, detail=detail)
        self.fault = fault


class Origin(msgspec.Struct):
    """Scheme, host and port, with the values that each request to them needs. `host` has no brackets. `route`: where
    its connections go instead, for all of its life. So no other origin and no other proxy gets an idle one.
    """

    key: str
    host: str
    port: int
    is_tls: bool
    request_tail: bytes  # the part of a request's head after its target
    host_header: str
    route: Route | None = None
    sends_whole_urls: bool = False
    login: bytes = b""  # the header line of a proxy that gets whole URLs
    refusal: Failure | None = None
    takes_any_certificate: bool = False
    idle: list[Connection] = msgspec.field(default_factory=list)
    stale_in_a_row: int = 0  # kept connections that the server had closed, since one was reused with success
    sent_unasked: bool = False  # bytes that answer no request: then no connection is kept

    @property
    def has_proxy(self) -> bool:
        """Then no name is looked up here, and its address is not known."""
        return self.route is not None and self.route.proxy is not None

    @property
    def has_tunnel(self) -> bool:
        """Must a proxy connect to it before the first byte?"""
        return self.has_proxy and not self.sends_whole_urls


class Sockets:
    """How many connections may be open at a time: as many files as the system allows, without those for other things.

    An idle connection counts until it is closed, and is closed for who waits: archive and outputs must never find that
    all files are taken by connections that nobody uses.
    """

    def __init__(self, most: int, *, give_up_idle: Callable[[], None]) -> None:
        """`give_up_idle`: closes an idle connection, if there is one."""
        self._most = most
        self._give_up_idle = give_up_idle
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_short(self) -> bool:
        """Does anybody wait for one?"""
        return bool(self._waiting)

    async def take(self) -> Callable[[], None]:
        """Wait for one; what gives it back, which may be called more than once."""
        if self._open < self._most:
            self._open += 1
        else:
            self._give_up_idle()
            await self._wait()
        is_given_back = False

        def give_back() -> None:
            nonlocal is_given_back
            if not is_given_back:
                is_given_back = True
                self._give_back()

        return give_back

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiting.remove(waiter)
            else:
                self._give_back()  # it had come at this moment
            raise

    def _give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._open -= 1


def sockets_max() -> int:
    """By the limit of open files of this process."""
    return max(SOCKETS_MIN, process_tuning.open_files_max() - OTHER_FILES)


class Pool:
    """Idle connections, most recently used first; opens new ones."""

    def __init__(self, settings: FetchSettings, lookup: Lookup, of_proxies: Lookup | None = None) -> None:
        """`of_proxies` looks up the names of proxies, which may be private."""
        self.bytes_in_flight = BytesInFlight(settings.bytes_in_flight_max)
        self._settings = settings
        self._lookup = lookup
        self._of_proxies = of_proxies or lookup
        self._loop = asyncio.get_running_loop()
        self._tls: dict[bool, ResumingContext] = {}  # by `takes_any_certificate`; created when first needed
        self._idle: OrderedDict[Connection, Origin] = OrderedDict()  # oldest first
        self._idle_max = max(IDLE_MAX, IDLE_PER_REQUEST * settings.concurrency)
        self._sweeper: asyncio.TimerHandle | None = None
        self._sockets = Sockets(sockets_max(), give_up_idle=self._give_up_idle)

    def take(self, origin: Origin) -> Connection | None:
        """A usable idle connection to the origin; None when one has to be opened."""
        while origin.idle:
            connection = origin.idle.pop()
            del self._idle[connection]
            if connection.is_usable() and self._loop.time() - connection.idle_since <= IDLE_S:
                return connection
            origin.sent_unasked = origin.sent_unasked or connection.is_spoiled
            connection.abort()
        return None

    def put(self, origin: Origin, connection: Connection) -> None:
        """Keep a connection for the origin's next request, unless others need its place."""
        if self._sockets.is_short or origin.sent_unasked or origin.stale_in_a_row >= STALE_MAX:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        origin.idle.append(connection)
        self._idle[connection] = origin
        if len(self._idle) > self._idle_max:
            self._drop_oldest()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def answered(self, origin: Origin, connection: Connection) -> None:
        """A connection had its first response: what its handshake brought is known now."""
        if origin.is_tls and (tls := connection.tls()) is not None:
            self._context_of(origin).learn_session(origin.host, tls)

    def was_stale(self, origin: Origin) -> None:
        """The server had closed a kept connection: the others are closed, too."""
        origin.stale_in_a_row += 1
        while origin.idle:
            connection = origin.idle.pop()
            del self._idle[connection]
            connection.abort()

    async def room(self) -> Callable[[], None]:
        """Wait until another connection may be opened; what gives its place back."""
        return await self._sockets.take()

    async def open(self, origin: Origin, give_back: Callable[[], None]) -> Connection:
        """Connect, with TLS for https, in a place that `room` gave. Raises ConnectFailedError."""
        try:
            return await self._open(origin, give_back)
        except BaseException:
            give_back()
            raise

    async def _open(self, origin: Origin, give_back: Callable[[], None]) -> Connection:
        made = partial(self._new_connection, give_back)
        addresses, port = await self._place_of(origin)
        fault = Fault.PROXY if origin.has_proxy else Fault.TARGET
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                if not origin.has_proxy:  # which the operator has named
                    self._check(addresses)
                if len(addresses) == 1 and not origin.is_tls and not origin.has_tunnel:
                    return await self._connect_plainly(made, addresses[0], port)
                sock = await self._connect(addresses, port)
        except AddressRefusedError as error:
            raise ConnectFailedError(FailureKind.ADDRESS_REFUSED, str(error)) from None
        except TimeoutError:
            raise ConnectFailedError(FailureKind.CONNECT, f"no connection to {addresses[0]} in time", fault) from None
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for some errors
            raise ConnectFailedError(FailureKind.CONNECT, said_by(error), fault) from None
        if origin.has_tunnel:
            await self._pass_through(sock, origin)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                return await self._hand_over(made, sock, origin)
        except TimeoutError:
            raise ConnectFailedError(FailureKind.TLS, "no end to the TLS handshake") from None
        except (OSError, RuntimeError) as error:  # ssl.SSLError is an OSError
            if not origin.is_tls:
                raise ConnectFailedError(FailureKind.CONNECT, said_by(error)) from None
            self._context_of(origin).forget_session(origin.host)
            if isinstance(error, ssl.SSLCertVerificationError):
                raise ConnectFailedError(FailureKind.TLS, f"{said_by(error)}{advice_on(error)}", Fault.TARGET) from None
            raise ConnectFailedError(FailureKind.TLS, said_by(error)) from None

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._idle:
            self._drop_oldest()
        await asyncio.sleep(0)  # transports close one turn of the loop later

    async def _place_of(self, origin: Origin) -> tuple[tuple[str, ...], int]:
        """Where its connections go: to itself, to a proxy that looks its name up, or to a gateway, for which it is
        looked up here, so that unknown hosts fail as they do without one.
        """
        route = origin.route
        if route is not None and route.proxy is not None:
            try:
                return await self._addresses(route.host, self._of_proxies), route.port
            except LookupFailedError as error:
                raise ConnectFailedError(FailureKind.CONNECT, f"its name: {error.detail}", Fault.PROXY) from None
        try:
            addresses = await self._addresses(origin.host, self._lookup)
        except LookupFailedError as error:
            raise ConnectFailedError(error.kind, error.detail) from None
        return (addresses, origin.port) if route is None else ((route.host,), route.port)

    async def _addresses(self, host: str, lookup: Lookup) -> tuple[str, ...]:
        return (host,) if is_address(host) else await lookup(host)

    async def _pass_through(self, sock: socket.socket, origin: Origin) -> None:
        assert origin.route is not None
        try:
            await pass_through(sock, origin.route, origin.host, origin.port, timeout_s=self._settings.connect_timeout_s)
        except BaseException as error:
            sock.close()
            if isinstance(error, ProxyError):
                raise ConnectFailedError(FailureKind.CONNECT, error.detail, error.fault) from None
            raise

    def _check(self, addresses: Sequence[str]) -> None:
        """The last step before connecting, which uses only addresses: none passes it unchecked."""
        for address in addresses:
            check_address(address, allow_private=self._settings.allow_private)

    async def _connect_plainly(self, made: Callable[[], Connection], address: str, port: int) -> Connection:
        """The common case, in one call of the loop: a third of the cost of the general way."""
        _, connection = await self._loop.create_connection(made, address, port)
        return connection

    async def _connect_to_one(self, address: str, port: int) -> socket.socket:
        """A third of the cost of the general way."""
        sock = socket.socket(address_family(address), socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            await self._loop.sock_connect(sock, _socket_address(address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _connect(self, addresses: Sequence[str], port: int) -> socket.socket:
        if len(addresses) == 1:
            return await self._connect_to_one(addresses[0], port)
        infos: list[aiohappyeyeballs.AddrInfoType] = [
            (address_family(address), socket.SOCK_STREAM, socket.IPPROTO_TCP, "", _socket_address(address, port))
            for address in addresses
        ]
        return await aiohappyeyeballs.start_connection(
            infos, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY_S, loop=self._loop
        )

    async def _hand_over(self, made: Callable[[], Connection], sock: socket.socket, origin: Origin) -> Connection:
        _, connection = await self._loop.create_connection(
            made,
            sock=sock,
            ssl=self._context_of(origin) if origin.is_tls else None,
            server_hostname=origin.host if origin.is_tls else None,
        )
        if origin.is_tls:
            await asyncio.sleep(0)  # uvloop delivers what came with the handshake's end in its next turn
        return connection

    def _context_of(self, origin: Origin) -> ResumingContext:
        """Those that take any certificate have sessions of their own: what one resumes was not judged."""
        context = self._tls.get(origin.takes_any_certificate)
        if context is None:
            context = ResumingContext.create(insecure=origin.takes_any_certificate)
            self._tls[origin.takes_any_certificate] = context
        return context

    def _new_connection(self, give_back: Callable[[], None]) -> Connection:
        settings = self._settings
        return Connection(
            self._loop,
            self.bytes_in_flight,
            idle_timeout_s=settings.idle_timeout_s,
            pause_max_s=settings.total_timeout_s,
            on_lost=give_back,
        )

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._loop.time()
        while self._idle:
            oldest = next(iter(self._idle))
            if oldest.is_usable() and now - oldest.idle_since <= IDLE_S:
                break
            self._drop_oldest()
        if self._idle:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _give_up_idle(self) -> None:
        if self._idle:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        connection, origin = self._idle.popitem(last=False)
        origin.sent_unasked = origin.sent_unasked or connection.is_spoiled
        origin.idle.remove(connection)
        connection.abort()


def _socket_address(address: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    return (address, port, 0, 0) if ":" in address else (address, port)
