"""Proxies: those that are trusted tell who sent a request; of others, what they add only tells that they are there."""

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from crawler.errors import UsageError

_FORWARDED = "x-forwarded-"
PREFIX_MAX = 100
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,100})*")
_PROXIES = (_FORWARDED, "x-envoy-", "cf-", "x-amzn-", "x-original-", "x-auth-request-", "tailscale-", "x-arr-")
_PROXY = frozenset(
    {
        "forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip",
        "x-scheme", "x-remote-user", "remote-user", "x-webauth-user", "cdn-loop",
    }
)  # fmt: skip
UNIX = "unix"


def proxy_header(names: Iterable[str]) -> str:
    """The first of these headers that a proxy adds, and no client; "" when there is none."""
    return next((name for name in names if name.lower() in _PROXY or name.lower().startswith(_PROXIES)), "")


def path_prefix(text: str) -> str:
    """A path as --prefix has it, without the slash at its end. Raises UsageError."""
    found = text.rstrip("/")
    if not text.startswith("/") or len(found) > PREFIX_MAX or not _PREFIX.fullmatch(found) or _has_dots(found):
        raise UsageError(
            f"--prefix {text}: expected a path like /crawler/, of at most {PREFIX_MAX} letters, digits and -._~"
        )
    return found


def _has_dots(path: str) -> bool:
    return any(part in (".", "..") for part in path.split("/"))


class TrustedProxies(msgspec.Struct, frozen=True, kw_only=True):
    """Whose X-Forwarded-For, -Proto and -Host are believed. `unix`: of whoever can connect to the Unix socket."""

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    unix: bool = False

    def has(self, address: str) -> bool:
        """Is the one at this address trusted? "" is the other end of a Unix socket."""
        if not address:
            return self.unix
        if not self.networks:
            return False
        ip = ipaddress.ip_address(address)
        return any(ip in network for network in self.networks)

    def __bool__(self) -> bool:
        return self.unix or bool(self.networks)


def trusted_proxies(texts: Iterable[str], *, may_be_unix: bool) -> TrustedProxies:
    """Those that --trust-proxy names. `may_be_unix`: is a Unix socket listened on? Raises UsageError."""
    networks, unix = [], False
    for text in texts:
        if text == UNIX:
            unix = True
            continue
        try:
            networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise UsageError(f"--trust-proxy {text}: expected an address, a network like 10.0.0.0/8, or unix") from None
    if unix and not may_be_unix:
        raise UsageError("--trust-proxy unix: nobody comes through a Unix socket without --listen unix:PATH")
    return TrustedProxies(networks=tuple(networks), unix=unix)
