"""How requests reach this server: where it listens, under which names and path, and through which proxies."""

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crawler.api.host_names import DEFAULT_PORTS, split_host
from crawler.api.proxies import UNIX, TrustedProxies
from crawler.engine.embedded import SOCKET_PATH_MAX
from crawler.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from multidict import MultiMapping

BACKLOG = 1_024


def listen_place(text: str) -> tuple[str, int] | Path:
    """ADDRESS:PORT, or unix:PATH, as people write it. Raises UsageError."""
    kind, colon, path = text.partition(":")
    if kind == UNIX and colon:
        return _socket_path(text, path)
    host, port = split_host(text)
    address = "127.0.0.1" if host == "localhost" else host
    try:
        ipaddress.ip_address(address)
    except ValueError:
        port = None
    if port is None:
        raise UsageError(
            f"--listen {text}: expected an address and a port, like 127.0.0.1:8800 or [::1]:8800, or unix:PATH"
        )
    return address, port


def _socket_path(text: str, path: str) -> Path:
    if not path.strip("/"):
        raise UsageError(f"--listen {text}: expected the path of a socket, like unix:/run/crawler/serve.sock")
    found = Path(path).absolute()
    if len(os.fsencode(found)) > SOCKET_PATH_MAX:
        raise UsageError(
            f"--listen {text}: the path of a socket has at most {SOCKET_PATH_MAX} bytes; use a shorter one"
        )
    return found


def listen(address: str, port: int) -> socket.socket:
    """A socket for connections. Raises ConflictError when the port is taken, UsageError when it can't be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        place = shown(address, port)
        if error.errno == errno.EADDRINUSE:
            raise ConflictError(f"{place} is in use by another program; use --listen with another port") from None
        raise UsageError(f"can't listen on {place}: {error.strerror}") from None
    sock.setblocking(False)  # noqa: FBT003 - its only parameter
    return sock


@contextlib.contextmanager
def listening_at(path: Path) -> Iterator[socket.socket]:
    """A Unix socket for connections, which only our user can make, and the group of a folder with the setgid bit.

    At its end the file goes. One that nobody listens on any more is replaced. Raises ConflictError when somebody
    listens, UsageError when there can be no socket.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(path.parent):
            _remove_stale(path)
            _bind(sock, path)
            made = path.lstat()
    except OSError as error:
        sock.close()
        raise UsageError(f"can't listen on unix:{path}: {error.strerror}") from None
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - its only parameter
    try:
        with sock:
            yield sock
    finally:
        with contextlib.suppress(OSError):
            if os.path.samestat(path.lstat(), made):
                path.unlink()


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One that looks and makes at a time: of two that find a stale socket, one would remove the other's new one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"another program begins to listen in {folder} at this moment; try again") from None
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise UsageError(f"can't listen on unix:{path}: there is a file that is not a socket; use another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - its only parameter
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its queue is full: somebody listens
    raise ConflictError(f"unix:{path} is in use by another program; use --listen with another path")


def _bind(sock: socket.socket, path: Path) -> None:
    """By the umask, not by a change afterwards: at no moment others can connect.

    A folder with the setgid bit gives the socket its group, which is there to connect: that of a proxy.
    """
    has_group = path.parent.stat().st_mode & stat.S_ISGID
    before = os.umask(0o117 if has_group else 0o177)
    try:
        sock.bind(str(path))
    finally:
        os.umask(before)
    sock.listen(BACKLOG)


def is_loopback(address: str) -> bool:
    """Can only this machine connect to it?"""
    return ipaddress.ip_address(address).is_loopback


def reachable(address: str) -> str:
    """An address of this machine at which a server that listens on this one answers."""
    ip = ipaddress.ip_address(address)
    return address if not ip.is_unspecified else "::1" if ip.version == 6 else "127.0.0.1"


def shown(address: str, port: int) -> str:
    """Address and port as in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """What options tell of how others reach the server. `names`: of --host, in lower case.

    `prefix`: that of --prefix without its last slash; None without it.
    """

    names: tuple[str, ...] = ()
    prefix: str | None = None
    proxies: TrustedProxies = TrustedProxies()

    @property
    def root(self) -> str:
        """What each path begins with: "", or a path without its last slash."""
        return self.prefix or ""

    @property
    def is_plain(self) -> bool:
        """Is nothing told? Then nobody means others to come."""
        return not self.names and self.prefix is None and not self.proxies


PLAIN = Front()


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came from, as far as is known.

    `client`: its address, "" of a Unix socket. `host`: whom it was sent to, as the client wrote it. `scheme`: how it
    was sent, "" when nobody who is trusted tells.
    """

    client: str
    host: str
    scheme: str = ""

    def is_same_origin(self, origin: str, names: Collection[str]) -> bool:
        """Is this Origin header that of a page of ours? A proxy may have left the port out of a name of ours."""
        scheme, separator, place = origin.lower().partition("://")
        if not separator or scheme not in DEFAULT_PORTS or (self.scheme and scheme != self.scheme):
            return False
        (host, port), (own, own_port) = split_host(place), split_host(self.host)
        if host != own:
            return False
        default = DEFAULT_PORTS[scheme]
        return (own_port is None and own in names) or (port or default) == (own_port or default)


def source_of(headers: "MultiMapping[str]", peer: str, proxies: TrustedProxies) -> Source:
    """Where a request came from that came over a connection of `peer`."""
    host = headers.get("Host", "")
    if not proxies.has(peer):
        return Source(client=peer, host=host)
    scheme = _first(headers, "X-Forwarded-Proto").lower()
    return Source(
        client=_client(headers.getall("X-Forwarded-For", []), peer, proxies),
        host=_first(headers, "X-Forwarded-Host") or host,
        scheme=scheme if scheme in DEFAULT_PORTS else "",
    )


def _first(headers: "MultiMapping[str]", name: str) -> str:
    """What the first of several proxies was sent."""
    return ",".join(headers.getall(name, [])).partition(",")[0].strip()


def _client(lines: list[str], peer: str, proxies: TrustedProxies) -> str:
    """The last one on the way that no trusted proxy is: what stands before it in the header, it may have made up."""
    client = peer
    for entry in reversed(",".join(lines).split(",")):
        address = _address_in(entry)
        if not address or not proxies.has(client):
            break
        client = address
    return client


def _address_in(entry: str) -> str:
    """The address in a part of X-Forwarded-For, which may have a port; "" when there is none."""
    host, _ = split_host(entry) if entry.count(":") < 2 or "[" in entry else (entry.strip().lower(), None)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return ""
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip)
