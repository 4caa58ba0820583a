"""Patterns of URLs: what people write where a setting, an app or an operator names URLs. Pure."""

import re
from urllib.parse import quote

import msgspec

from crawler.errors import InvalidUrl, UsageError
from crawler.model import UrlParts
from crawler.rules.places import registrable_domain
from crawler.rules.urls import canonicalize, host_of, split

_SCHEMES = ("http://", "https://")


_LABEL = re.compile(r"[a-z0-9_*-]+", re.IGNORECASE)


class UrlPattern(msgspec.Struct, frozen=True):
    """One pattern. Build with `parse`."""

    text: str
    _scheme: str
    _host: re.Pattern[str]
    _port: int | None
    _path: re.Pattern[str]
    _has_query: bool

    @classmethod
    def parse(cls, text: str) -> "UrlPattern":
        """Raises UsageError, with the reason, for an invalid pattern."""
        scheme, rest = _scheme_of(text.strip())
        authority, slash, path = rest.partition("/")
        host, colon, port = authority.partition(":")
        if is_v6 := authority.startswith("["):
            address, bracket, behind = authority.partition("]")
            host, colon, port = address + bracket, behind[:1], behind[1:]
        path = "".join([c if c.isascii() else quote(c) for c in path])
        hosts = _address_expression(host) if is_v6 else _host_expression(host.removesuffix(".").lower())
        if not hosts or colon not in ("", ":"):
            raise UsageError(f"pattern {text!r}: expected HOST/PATH, like *.example.com/product/*")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise UsageError(f"pattern {text!r}: {port!r} is not a port")
        return cls(
            text=text.strip(),
            _scheme=scheme,
            _host=re.compile(hosts),
            _port=int(port) if port else None,
            _path=re.compile(_glob(f"/{path}", ".*") if slash else ".*", re.DOTALL),
            _has_query="?" in path,
        )

    @property
    def is_of_any_host(self) -> bool:
        return self._host.pattern == ".*"

    @property
    def names_scheme(self) -> bool:
        return bool(self._scheme)

    @property
    def is_of_origins(self) -> bool:
        """Does it look at no path?"""
        return self._path.pattern in (".*", "/.*") and not self._has_query

    @property
    def is_of_hosts(self) -> bool:
        """Does it only look at the host?"""
        return self.is_of_origins and not self._scheme and self._port is None

    def fits_host(self, host: str) -> bool:
        """Does a host (lower case, without port) match? Then some of its URLs may match."""
        return self._host.fullmatch(host) is not None

    def fits_site(self, host: str) -> bool:
        """May some URL of the site match that a host belongs to?"""
        site = registrable_domain(host)
        return self.fits_host(host) or self.fits_host(site) or self._host.pattern.endswith(re.escape(f".{site}"))

    def fits_origin(self, parts: UrlParts) -> bool:
        """Do scheme, host and port match?"""
        if self._scheme and self._scheme != parts.scheme:
            return False
        if self._port is not None and self._port != parts.port:
            return False
        return self._host.fullmatch(parts.host) is not None

    def fits_target(self, target: str) -> bool:
        """Do path and query match?"""
        compared = target if self._has_query else target.partition("?")[0]
        return self._path.fullmatch(compared) is not None

    def matches(self, url: str) -> bool:
        """Does a canonical URL match?"""
        parts = split(url)
        return self.fits_origin(parts) and self.fits_target(parts.target)


def _as_sent(label: str) -> str:
    """A label of a host as URLs have it; one with a star stays."""
    if label.isascii() or "*" in label:
        return label
    from ada_url import idna

    return idna.encode(label).decode()


def _scheme_of(text: str) -> tuple[str, str]:
    for scheme in _SCHEMES:
        if text.lower().startswith(scheme):
            return scheme.removesuffix("://"), text[len(scheme) :]
    return "", text


def _address_expression(address: str) -> str:
    """Of an IPv6 address in brackets; "" for what is none."""
    try:
        return re.escape(host_of(canonicalize(f"http://{address}/")))
    except InvalidUrl:
        return ""


def _host_expression(host: str) -> str:
    """Of a name in lower case, whose labels may have stars; "" for what is none."""
    labels = [_as_sent(label) for label in host.split(".")]
    if not all(_LABEL.fullmatch(label) for label in labels):
        return ""
    if labels == ["*"]:
        return ".*"
    if labels[0] == "*":
        return r"(?:.+\.)?" + r"\.".join(_glob(label, "[^.]*") for label in labels[1:])
    return r"\.".join(_glob(label, "[^.]*") for label in labels)


def _glob(text: str, anything: str) -> str:
    """The text between two stars matches at its first occurrence, in an atomic group: no URL causes backtracking."""
    first, *parts = (re.escape(part) for part in re.split(r"\*+", text))
    if not parts:
        return first
    *middle, last = parts
    return first + "".join(f"(?>{anything}?{part})" for part in middle) + anything + last
