"""Which Host headers are answered: a foreign name in it means that a web site had its name resolve to us.

Such a site's scripts would have the same origin as the dashboard (DNS rebinding). It can't forge an address, as the
browser writes into the header what is in its address bar.
"""

import ipaddress
from collections.abc import Collection

from crawler.errors import UsageError

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
