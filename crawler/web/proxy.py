"""How a connection to an origin is made where it does not go there itself: through a proxy, or to a gateway.

An HTTP proxy gets whole URLs for http (RFC 9112 3.2.2) and a CONNECT for https (RFC 9110 9.3.6), a SOCKS5 proxy the
name and the port (RFC 1928). Names of targets are not looked up here: the proxy does that. What a proxy answers is read
within bounds of size and time, and nothing behind it: the next byte is the target's.
"""

import asyncio
import ipaddress
import socket
from base64 import b64encode

import msgspec

from crawler.rules.addresses import is_address
from crawler.rules.proxy_health import Fault, ProxyHealth
from crawler.settings.proxies import Proxy

HEAD_BYTES_MAX = 16 * 1024  # of the answer to a CONNECT
READ_BYTES = 4096
_HEAD_ENDS = (b"\r\n\r\n", b"\n\n")
SWITCHING_PROTOCOLS, WANTS_LOGIN, TOO_MANY = 101, 407, 429
WRONG_LOGIN = "it refuses the user and password of fetch.proxy"
NO_LOGIN = "it wants a user and a password: write them into the URL of the proxy"


class ProxyError(Exception):
    """A proxy did not connect to a target; `fault` tells whose fault that may be."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


class Route(msgspec.Struct, frozen=True, eq=False):
    """The place that requests are sent to instead of their origins. Without a `proxy` it is the gateway of a replay."""

    host: str
    port: int
    proxy: Proxy | None = None
    health: ProxyHealth | None = None

    def takes_whole_urls(self, scheme: str) -> bool:
        """Is the whole URL in the first line of a request? A gateway takes those of https, too, without TLS."""
        return self.proxy is None or (self.proxy.scheme == "http" and scheme == "http")

    @property
    def authorization(self) -> str:
        """The header line for a proxy that wants a login (RFC 9110 11.7.2); "" for others."""
        if self.proxy is None or not (self.proxy.user or self.proxy.password):
            return ""
        coded = b64encode(f"{self.proxy.user}:{self.proxy.password}".encode()).decode()
        return f"Proxy-Authorization: Basic {coded}\r\n"


class _Talk:
    """Bounded reading and writing on a socket that is not blocking. Time is the caller's to bound."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._has_begun = self._has_named = False

    @property
    def fault(self) -> Fault:
        """Whose fault it is that nothing more comes. Silence may be the target's, which the proxy tries to reach; who
        begins to answer has to end.
        """
        if not self._has_named:
            return Fault.PROXY
        return Fault.LIKELY if self._has_begun else Fault.EITHER

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def name(self, data: bytes) -> None:
        """Send what names the target."""
        self._has_named, self._has_begun = True, False
        await self.send(data)

    async def exactly(self, count: int) -> bytes:
        """The next bytes; no more are taken from the socket."""
        while len(self._buffer) < count:
            await self._read(count - len(self._buffer))
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def head(self) -> bytes:
        """The head of the final answer, up to its empty line, behind which nothing may be; those before it that only
        inform (RFC 9110 15.2) are skipped. Raises ProxyError.
        """
        taken = looked_at = 0
        while True:
            for end in _HEAD_ENDS:
                at = self._buffer.find(end, looked_at)
                if at >= 0:
                    break
            else:
                at = len(self._buffer)
            if taken + at > HEAD_BYTES_MAX:
                raise ProxyError(Fault.LIKELY, f"its answer has more than {HEAD_BYTES_MAX // 1024} KiB of headers")
            if at == len(self._buffer):
                looked_at = max(0, at - len(_HEAD_ENDS[0]))
                await self._read(READ_BYTES)
                continue
            head = bytes(self._buffer[:at])
            taken, looked_at = taken + at + len(end), 0
            del self._buffer[: at + len(end)]
            status = _status_of(head)
            if status // 100 == 1 and status != SWITCHING_PROTOCOLS:
                continue
            if self._buffer and status // 100 == 2:  # of others it is the body
                raise ProxyError(Fault.LIKELY, "it sent something that nobody asked for behind its answer")
            return head

    async def _read(self, most: int) -> None:
        data = await self._loop.sock_recv(self._sock, most)
        if not data:
            raise ConnectionResetError("closed the connection")
        self._has_begun = True
        self._buffer += data


async def pass_through(sock: socket.socket, route: Route, host: str, port: int, *, timeout_s: float) -> None:
    """Have the proxy connect to a target; what is sent from then on goes there. Raises ProxyError."""
    assert route.proxy is not None
    talk = _Talk(sock)
    try:
        async with asyncio.timeout(timeout_s):
            if route.proxy.scheme == "http":
                await _connect(talk, route, host, port)
            else:
                await _socks(talk, route.proxy, host, port)
    except TimeoutError:
        raise ProxyError(talk.fault, "no answer in time") from None
    except (OSError, RuntimeError):  # uvloop raises RuntimeError for some errors
        raise ProxyError(talk.fault, "it closed the connection without a whole answer") from None


async def _connect(talk: _Talk, route: Route, host: str, port: int) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    await talk.name(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{route.authorization}\r\n".encode("ascii"))
    status = _status_of(await talk.head())
    if status // 100 == 2:  # success
        return
    if status == WANTS_LOGIN:
        raise ProxyError(Fault.LIKELY, WRONG_LOGIN if route.authorization else NO_LOGIN)
    if not 300 <= status < 600:  # what can end a request
        raise ProxyError(Fault.LIKELY, "its answer to CONNECT is not HTTP")
    # Nothing else of it counts, and none of its text is shown: it may repeat what it was sent.
    fault = Fault.BUSY if status == TOO_MANY else Fault.REFUSED if status < 500 else Fault.EITHER
    raise ProxyError(fault, f"it answered {status} to CONNECT {target}")


def _status_of(head: bytes) -> int:
    """The status of an answer in HTTP/1.x (RFC 9112 4); 0 for all else."""
    version, _, rest = head.partition(b"\n")[0].partition(b" ")
    status = rest[:3]
    is_http = version in (b"HTTP/1.1", b"HTTP/1.0") and len(status) == 3 and status.isdigit()
    return int(status) if is_http else 0


_VERSION, _NO_LOGIN, _LOGIN = 5, 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4
NAME_BYTES_MAX = 255
_ADDRESS_BYTES = {_IPV4: 4, _IPV6: 16}
_REPLIES = {
    1: (Fault.EITHER, "general failure"),
    2: (Fault.REFUSED, "not allowed by its rules"),
    3: (Fault.EITHER, "network unreachable"),
    4: (Fault.EITHER, "host unreachable"),
    5: (Fault.TARGET, "connection refused"),
    6: (Fault.EITHER, "TTL expired"),
}
_NOT_SOCKS = "its answer is not SOCKS5"


async def _socks(talk: _Talk, proxy: Proxy, host: str, port: int) -> None:
    has_login = bool(proxy.user or proxy.password)
    methods = (_NO_LOGIN, _LOGIN) if has_login else (_NO_LOGIN,)
    await talk.send(bytes((_VERSION, len(methods), *methods)))
    version, method = await talk.exactly(2)
    if version != _VERSION or method not in (*methods, 0xFF):
        raise ProxyError(Fault.PROXY, _NOT_SOCKS)
    if method == 0xFF:  # none of these
        raise ProxyError(Fault.PROXY, WRONG_LOGIN if has_login else NO_LOGIN)
    if method == _LOGIN:
        user, password = proxy.user.encode(), proxy.password.encode()
        await talk.send(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if (await talk.exactly(2))[1] != 0:
            raise ProxyError(Fault.PROXY, WRONG_LOGIN)
    await talk.name(bytes((_VERSION, 1, 0)) + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await talk.exactly(4)
    if version != _VERSION:
        raise ProxyError(Fault.LIKELY, _NOT_SOCKS)
    if reply:
        fault, said = _REPLIES.get(reply, (Fault.LIKELY, f"reply {reply}"))
        raise ProxyError(fault, f"it answered '{said}' to the request for {host}:{port}")
    if kind not in (_NAME, *_ADDRESS_BYTES):
        raise ProxyError(Fault.LIKELY, _NOT_SOCKS)
    length = (await talk.exactly(1))[0] if kind == _NAME else _ADDRESS_BYTES[kind]
    await talk.exactly(length + 2)  # the address and port that it connects from


def _socks_address(host: str) -> bytes:
    if is_address(host):
        address = ipaddress.ip_address(host)
        return bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed
    name = host.encode("ascii")
    if len(name) > NAME_BYTES_MAX:
        raise ProxyError(Fault.TARGET, "its name is too long for SOCKS5")
    return bytes((_NAME, len(name))) + name
