"""What a setting says about a proxy: its address and login, read from a URL or from the usual environment variables.

No message of this file has any part of a URL but its scheme: anything else may be a password.
"""

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

from crawler.settings.schema import FromEnvironment, Settings, Text

FROM_VARIABLES = "env"  # as fetch.proxy: http_proxy, https_proxy, all_proxy and no_proxy decide
_EXPECTED = "expected http://HOST:PORT or socks5://HOST:PORT, with USER:PASSWORD@ in front of HOST if it wants a login"
_SCHEMES: Mapping[str, Literal["http", "socks5"]] = {"http": "http", "socks5": "socks5", "socks5h": "socks5"}
_PORTS = {"http": 80, "socks5": 1080}
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
LOGIN_BYTES_MAX = 255  # RFC 1929 2: its length is a byte


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """Where a proxy is, and what it wants to know. `host` has no brackets."""

    scheme: Literal["http", "socks5"]
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        """Its URL without the login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    __repr__ = __str__  # wherever a record is shown that has one


def proxy_of(text: str) -> Proxy:
    """Read a URL. Raises ValueError with what is wrong; the URL is not in it."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        raise ValueError(_EXPECTED)
    if scheme.lower() not in _SCHEMES:
        known = scheme if scheme.isalnum() and len(scheme) <= 10 else "this"
        raise ValueError(f"{known}:// is not supported: {_EXPECTED}")
    kind = _SCHEMES[scheme.lower()]
    login, _, place = rest.rpartition("@")
    user, password = map(unquote, login.partition(":")[::2])
    if ":" in user or not (user + password).isprintable():
        raise ValueError("its user has a colon, or its login characters that can't be printed")
    if max(len(user.encode()), len(password.encode())) > LOGIN_BYTES_MAX:
        raise ValueError(f"its user or password is longer than {LOGIN_BYTES_MAX} bytes")
    host, port = _host_and_port(place.removesuffix("/"), _PORTS[kind])
    return Proxy(scheme=kind, host=host, port=port, user=user, password=password)


def _host_and_port(place: str, default: int) -> tuple[str, int]:
    host, colon, port = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{_EXPECTED}; write / and @ in a password as %2F and %40")
    if colon and not (port.isascii() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise ValueError("its port is not one")
    return host.strip("[]").lower(), int(port) if colon else default


def fault_of_proxy(text: str) -> str:
    """Why a URL can't be that of a proxy; "" if it can, or if it is empty, which means none."""
    try:
        if text:
            proxy_of(text)
    except ValueError as error:
        return str(error)
    return ""


class ProxyVariables:
    """The usual environment variables: lower case wins, `no_proxy` lists hosts and domains without a proxy."""

    def __init__(self) -> None:
        """Raises ValueError, with the name of a variable whose value is not a proxy."""
        from urllib.request import getproxies_environment  # half of what a command takes to start

        self._named = getproxies_environment()
        self._proxies = {name: self._read(name) for name in ("http", "https", "all") if self._named.get(name)}

    def _read(self, name: str) -> Proxy:
        text = self._named[name]
        try:
            return proxy_of(text if "://" in text else f"http://{text}")  # as all programs take them
        except ValueError as error:
            raise ValueError(f"the environment variable {name}_proxy: {error}") from None

    def proxy_for(self, scheme: str, host: str) -> Proxy | None:
        """The one for the origins of a host, which has no brackets; None: it is reached directly."""
        found = self._proxies.get(scheme) or self._proxies.get("all")
        return None if found is None or is_direct(host, self._named.get("no", "")) else found

    @property
    def proxies(self) -> list[Proxy]:
        """All that they name."""
        return list(self._proxies.values())


def is_direct(host: str, no_proxy: str) -> bool:
    """Does the variable name this host, or a domain or network that it is in? As curl reads it: commas or blanks
    between names, a dot in front or behind makes no difference, networks are CIDR, a name with a port does not count.
    """
    if no_proxy.strip() == "*":
        return True
    host = host.strip("[]").rstrip(".").lower()
    names = [name.strip(".") for name in no_proxy.lower().replace(",", " ").split()]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(name and (host == name or host.endswith(f".{name}")) for name in names)
    return any(address in network for network in map(_network_of, names) if network is not None)


def _network_of(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(name.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        return None


def value_of(text: Text, environment: Mapping[str, str]) -> str:
    """A value, wherever it is; "" for a variable that is not set."""
    return environment.get(text.env, "") if isinstance(text, FromEnvironment) else text


def unresolved_proxy(settings: Settings, environment: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the variables that fetch.proxy names, one line each, without any values."""
    text = settings.fetch.proxy
    if isinstance(text, FromEnvironment):
        if text.env not in environment:
            yield f"fetch.proxy: the environment has no variable {text.env}"
        elif fault := fault_of_proxy(environment[text.env]):
            yield f"fetch.proxy: the value of {text.env}: {fault}"
    elif text == FROM_VARIABLES:
        try:
            ProxyVariables()
        except ValueError as error:
            yield f"fetch.proxy = {FROM_VARIABLES}: {error}"


def proxies_of(settings: Settings) -> list[Proxy]:
    """All proxies that the settings name, each once; without those of which no address can be read."""
    found: list[Proxy] = []
    for text in (settings.fetch.proxy, *(site.proxy or "" for site in settings.sites)):
        with contextlib.suppress(ValueError):
            if text == FROM_VARIABLES:
                found += ProxyVariables().proxies
            elif value := value_of(text, os.environ):
                found.append(proxy_of(value))
    return list(dict.fromkeys(found))


def shown_proxy(text: Any) -> str:
    """A value of a setting without its login."""
    if isinstance(text, FromEnvironment):
        return f"the variable {text.env}"
    return text if text == FROM_VARIABLES else str(proxy_of(text)) if text else "none"
