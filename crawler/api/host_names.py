"""Which Host headers are answered: a foreign name in it means that a web site had its name resolve to us.

Such a site's scripts would have the same origin as the dashboard (DNS rebinding). It can't forge an address, as the
browser writes into the header what is in its address bar.
"""

import re
from collections.abc import Collection

from crawler.errors import UsageError

LOCAL = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORTS = {"http": 80, "https": 443}


def split_host(text: str) -> tuple[str, int | None]:
    """Host, in lower case and without brackets, and port; a port that is missing or no port is None."""
    host, colon, port = text.strip().lower().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text.strip().lower(), ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    return host, int(port) if is_port else None


_NAME = re.compile(r"(?:[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")


def host_name(text: str) -> str:
    """A name as --host has it, in lower case; a port is left out, as all are answered. Raises UsageError."""
    if not _NAME.fullmatch(text.lower()):
        raise UsageError(f"--host {text}: expected a name like crawl.example, with xn-- for other letters")
    return split_host(text)[0]


def is_ours(header: str, *, address: str, port: int, names: Collection[str]) -> bool:
    """Does a Host header name this server? `address`, `port`: that the connection came to; of a Unix socket "" and 0.

    `names`: of --host.
    """
    host, given = split_host(header)
    if host in names:
        return True
    if not address:
        return host in LOCAL
    return (given or DEFAULT_PORTS["http"]) == port and host in (*LOCAL, address)
