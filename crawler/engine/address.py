"""The URL of an engine, read once: where it is, who logs in, and over what. Pure; imports no client.

Each part of a URL is used or refused. A refusal names the part, and shows nothing that may be of a password: people
forget to encode a slash or an @ in one, and the rest of it looks like a host, a port, a path or a query then.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from crawler.errors import UsageError
from crawler.redaction import shown_server

SCHEMES = "redis://, rediss://, unix://, redis+cluster://, rediss+cluster:// or redis+sentinel://"
SERVER_PORT, SENTINEL_PORT, PORT_MAX = 6379, 26379, 65535
SERVICE = "mymaster"
DB_MAX = 2**31 - 1  # of what an engine reads as a number; it refuses what is above its own limit
TLS_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
CERTS = ("required", "optional", "none")
WORDS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
ENCODE = "write / @ : ? # % in a password as %2F %40 %3A %3F %23 %25"

_NAME = re.compile(r"[\w.-]{1,253}")
_OPTION = re.compile(r"[a-z][a-z_]{0,30}")


class Kind(StrEnum):
    """What is at the address."""

    SERVER = "server"
    SOCKET = "socket"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


_KINDS = {
    "redis": (Kind.SERVER, False), "rediss": (Kind.SERVER, True), "unix": (Kind.SOCKET, False),
    "redis+cluster": (Kind.CLUSTER, False), "rediss+cluster": (Kind.CLUSTER, True),
    "redis+sentinel": (Kind.SENTINEL, False),
}  # fmt: skip
_LOGIN = ("username", "password", "password_file")
_OF_TLS = (*TLS_FILES, "ssl_password", "ssl_cert_reqs", "ssl_check_hostname")
_OF_SENTINEL = ("sentinel_username", "sentinel_password", "sentinel_password_file")


class Place(NamedTuple):
    """A host, an IPv6 address without brackets, and a port."""

    host: str
    port: int

    @property
    def name(self) -> str:
        """As a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Who logs in; "" for what was not given. `file`: has the password, and may get another one at any time."""

    user: str = ""
    password: str = ""
    file: str = ""


class EngineUrl(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's URL in parts. `places`: servers, nodes or Sentinels, each once; none for a socket."""

    kind: Kind
    places: tuple[Place, ...] = ()
    path: str = ""  # of a socket
    is_tls: bool = False
    tls: Mapping[str, str | bool] = msgspec.field(default_factory=dict)  # options by the client's names
    login: Login = Login()
    db: int = 0
    service: str = ""  # of Sentinel
    sentinel: Login = Login()


def read_url(text: str) -> EngineUrl:
    """The parts of a URL; blanks around it don't count. Raises UsageError, whose text shows no password."""
    try:
        return _read(text.strip())
    except ValueError as error:
        raise UsageError(f"bad engine URL {shown_server(text.strip())!r}: {error}") from None


def _read(url: str) -> EngineUrl:
    scheme, mark, rest = url.partition("://")
    if not mark or scheme.lower() not in _KINDS:
        raise ValueError(f"use {SCHEMES}")
    if re.search(r"[\s\x00-\x1f\x7f]", rest):
        raise ValueError("it has a blank or a control character in it")
    if "#" in rest:
        raise ValueError(f"# has no meaning in it; {ENCODE}")
    kind, is_tls = _KINDS[scheme.lower()]
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    login, at, hosts = authority.rpartition("@")
    if "@" in path and kind is not Kind.SOCKET:
        raise ValueError(f"there is an @ in its path; {ENCODE}")
    options = _options(query, kind, is_tls=is_tls, may_be_password=not at)
    found = _login(login, bool(at), options)
    db, service = _db_of(kind, path, options)
    return EngineUrl(
        kind=kind, is_tls=is_tls, login=found, db=db, service=service,
        places=_places(kind, hosts), path=_socket(hosts, slash + path) if kind is Kind.SOCKET else "",
        tls=_tls(options), sentinel=_login_by(options, "sentinel_"),
    )  # fmt: skip


def _options(query: str, kind: Kind, *, is_tls: bool, may_be_password: bool) -> dict[str, str]:
    """What is behind the question mark. A plus sign means itself."""
    known = {*_LOGIN, *(("db",) if kind is not Kind.CLUSTER else ()), *(_OF_TLS if is_tls else ())}
    known |= {*_OF_SENTINEL} if kind is Kind.SENTINEL else set()
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if not _OPTION.fullmatch(name) or (may_be_password and "@" in query and name not in known):
            raise ValueError(f"an option behind its ? has no valid name; {ENCODE}")
        if name not in known:
            raise ValueError(_why_unknown(name, kind))
        if name in options:
            raise ValueError(f"{name} is given twice")
        if not value:
            raise ValueError(f"{name} has no value")
        options[name] = unquote(value)
    return options


def _why_unknown(name: str, kind: Kind) -> str:
    if name == "db":
        return "a cluster has one database, so db can't be chosen"
    if name in _OF_TLS:
        return f"{name} is for TLS: use rediss://, or rediss+cluster://"
    if name in _OF_SENTINEL:
        return f"{name} is for redis+sentinel://"
    more = ", those of TLS" if kind in (Kind.SERVER, Kind.CLUSTER) else ""
    return f"{name} is not an option; there are {', '.join(_LOGIN)}{', db' * (kind is not Kind.CLUSTER)}{more}"


def _login(text: str, is_given: bool, options: Mapping[str, str]) -> Login:
    """Of the engine itself, before the @ or among the options."""
    user, colon, password = text.partition(":")
    found = _login_by(options, "")
    if not is_given:
        return found
    if (user and found.user) or (password and (found.password or found.file)):
        raise ValueError("its login is given twice, before the @ and behind the ?")
    if not text:
        raise ValueError("its login before the @ is empty")
    if not colon and not (found.password or found.file):
        raise ValueError("its login has no colon: write :PASSWORD@ or USER:PASSWORD@, or USER:@ without a password")
    user, password = unquote(user) or found.user, unquote(password) or found.password
    return Login(user=user, password=password, file=found.file)


def _login_by(options: Mapping[str, str], whose: str) -> Login:
    user, password, file = (options.get(whose + name, "") for name in _LOGIN)
    if password and file:
        raise ValueError(f"{whose}password and {whose}password_file are both given")
    return Login(user=user, password=password, file=file)


def _places(kind: Kind, text: str) -> tuple[Place, ...]:
    if kind is Kind.SOCKET:
        return ()
    names = text.split(",")
    if not text:
        raise ValueError("it names no host")
    if len(names) > 1 and kind is Kind.SERVER:
        raise ValueError("it names several hosts, as only redis+cluster:// and redis+sentinel:// may")
    port = SENTINEL_PORT if kind is Kind.SENTINEL else SERVER_PORT
    return tuple(dict.fromkeys(_place(name, port) for name in names))


def _place(text: str, default_port: int) -> Place:
    if not text:
        raise ValueError("one of its hosts is empty")
    if text.startswith("["):
        inside, bracket, behind = text[1:].partition("]")
        host, colon, port = unquote(inside), behind[:1], behind[1:]
        try:
            IPv6Address(host)
        except ValueError:
            bracket = ""
        if not bracket or colon not in ("", ":"):
            raise ValueError("what is in its brackets is not an IPv6 address")
    elif text.count(":") > 1:
        raise ValueError(f"it has too many colons: write an IPv6 address in brackets, like [::1]:6379; {ENCODE}")
    else:
        host, colon, port = text.partition(":")
    if not _NAME.fullmatch(host) and ":" not in host:
        raise ValueError(f"one of its hosts is empty or has an invalid character; {ENCODE}")
    if port and not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= PORT_MAX):
        raise ValueError(f"its port is not a number from 1 to {PORT_MAX}; {ENCODE}")
    return Place(host.lower(), int(port or default_port))


def _socket(host: str, path: str) -> str:
    if host:
        raise ValueError("the path of a socket begins with /, behind a third slash: unix:///run/valkey.sock")
    if path.strip("/") == "":
        raise ValueError("it names no socket: unix:///run/valkey.sock")
    return unquote(path, errors="surrogateescape")


def _db_of(kind: Kind, path: str, options: Mapping[str, str]) -> tuple[int, str]:
    """The database, and the service of Sentinel."""
    if kind is Kind.SOCKET:
        return _db(options.get("db", "0")), ""
    parts = path.strip("/").split("/") if path.strip("/") else []
    service = unquote(parts.pop(0)) if parts and kind is Kind.SENTINEL else SERVICE
    if service.isdigit():
        raise ValueError("the name of a service goes before the database: /mymaster/3")
    if kind is Kind.CLUSTER and parts not in ([], ["0"]):
        raise ValueError("a cluster has one database, so its path must be empty")
    if len(parts) > 1:
        raise ValueError("its path has too many parts")
    if parts and "db" in options:
        raise ValueError("its database is given twice, in the path and as db")
    return _db(parts[0] if parts else options.get("db", "0")), service if kind is Kind.SENTINEL else ""


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= DB_MAX):
        raise ValueError(f"its database is not a number; {ENCODE}")
    return int(text)


def _tls(options: Mapping[str, str]) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {name: value for name, value in options.items() if name in _OF_TLS}
    if (value := options.get("ssl_cert_reqs", CERTS[0])) not in CERTS:
        raise ValueError(f"ssl_cert_reqs is one of {', '.join(CERTS)}")
    if (value := options.get("ssl_check_hostname", "yes")).lower() not in WORDS:
        raise ValueError("ssl_check_hostname is yes or no")
    if "ssl_check_hostname" in found:
        found["ssl_check_hostname"] = WORDS[value.lower()]
    return found
