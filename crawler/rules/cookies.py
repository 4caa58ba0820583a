"""Cookies as browsers have them (RFC 6265bis): read from responses, kept in a jar for one site, sent back. Pure.

A site is a registrable domain, so no cookie is ever for a public suffix, nor for another site. Not covered: SameSite
and partitions, which concern pages within pages; HttpOnly, for no scripts run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from crawler.rules.cookie_dates import cookie_date
from crawler.rules.places import is_ip, registrable_domain
from crawler.rules.urls import host_of

PAIR_BYTES_MAX = 4096  # of name and value: browsers ignore longer cookies
ATTRIBUTES_MAX = 50  # of one cookie
ATTRIBUTE_BYTES_MAX = 1024  # longer values of attributes are ignored (5.6)
LINES_MAX = 100  # of a response
COOKIES_MAX = 100  # of a site and session; browsers keep 50 at least
JAR_BYTES_MAX = 32_768  # with the names of hosts and paths
SENT_BYTES_MAX = 8192  # of one request: what servers take
AGE_MAX_S = 400 * 86_400.0  # 5.5
REFRESHED_S = 60.0  # a cookie that lives longer by less is the same
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BLANKS = b" \t"


class Cookie(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cookie. `domain`: that of its attribute, which holds for hosts below it, too; "": `host` alone."""

    name: str
    value: str
    host: str
    domain: str = ""
    path: str = "/"
    expires_at: float = 0.0  # wall clock, s; 0: with the session
    is_secure: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """A later cookie with the same one replaces it. One of a host alone is another than one of its domain."""
        return self.name, f".{self.domain}" if self.domain else self.host, self.path

    @property
    def size(self) -> int:
        """As it is sent."""
        return len(self.name) + len(self.value)

    @property
    def size_kept(self) -> int:
        return self.size + len(self.host) + len(self.domain) + len(self.path)

    def is_for(self, host: str, path: str, *, is_secure: bool) -> bool:
        """Is it sent with a request (5.7.3)? Both are those of a canonical URL."""
        if self.is_secure and not is_secure:
            return False
        if host != (self.domain or self.host) and not (self.domain and host.endswith(f".{self.domain}")):
            return False
        return _is_below(path, self.path)

    def guards(self, other: "Cookie") -> bool:
        """Is it Secure, and would `other`, which came without encryption, be taken for it (5.7, "leave Secure cookies
        alone")?
        """
        if not self.is_secure or self.name != other.name:
            return False
        here, there = self.domain or self.host, other.domain or other.host
        is_near = here == there or here.endswith(f".{there}") or there.endswith(f".{here}")
        return is_near and _is_below(other.path, self.path)


def _is_below(path: str, above: str) -> bool:
    """Does a path match that of a cookie (5.1.4)?"""
    return path == above or (path.startswith(above) and (above[-1] == "/" or path[len(above)] == "/"))


def cookie_of(url: str, line: bytes, now_s: float) -> Cookie | None:
    """The cookie that a response from a canonical URL sets with this line (5.6, 5.7); None where it sets none. One that
    has expired is to be removed. `now_s`: wall clock.
    """
    if _CONTROLS.search(line):
        return None
    pair, *attributes = line.split(b";", ATTRIBUTES_MAX)
    name, sign, value = pair.partition(b"=")
    name, value = (name.strip(_BLANKS), value.strip(_BLANKS)) if sign else (b"", pair.strip(_BLANKS))
    if not 0 < len(name) + len(value) <= PAIR_BYTES_MAX:
        return None
    given = {
        key.strip(_BLANKS).lower(): text.strip(_BLANKS) for key, _, text in (a.partition(b"=") for a in attributes)
    }
    given = {key: text for key, text in given.items() if len(text) <= ATTRIBUTE_BYTES_MAX}
    host = host_of(url)
    domain = given.get(b"domain", b"").decode("latin-1").lower().removeprefix(".")
    if not _may_set(url, host, name or value, domain, given):
        return None
    path = given.get(b"path", b"").decode("latin-1")
    return Cookie(
        name=name.decode("latin-1"), value=value.decode("latin-1"), host=host,
        domain=domain if domain and not is_ip(host) and domain != registrable_suffix(domain) else "",
        path=path if path.startswith("/") else _default_path(url), expires_at=_expiry(given, now_s),
        is_secure=b"secure" in given,
    )  # fmt: skip


def registrable_suffix(domain: str) -> str:
    """The name itself if nobody can register it, as a public suffix; "" for others."""
    return domain if "." not in domain or registrable_domain(f"x.{domain}") == f"x.{domain}" else ""


def _may_set(url: str, host: str, name: bytes, domain: str, given: Mapping[bytes, bytes]) -> bool:
    """May this origin set such a cookie?"""
    is_above = host.endswith(f".{domain}") and registrable_domain(host) == registrable_domain(domain)
    if domain and host != domain and not is_above:
        return False
    if b"secure" in given and not url.startswith("https:"):
        return False
    if name[:9].lower() == b"__secure-":
        return b"secure" in given
    if name[:7].lower() == b"__host-":
        return b"secure" in given and not domain and given.get(b"path") == b"/"
    return True


def _default_path(url: str) -> str:
    """Up to the last slash of the URL's own path (5.1.4)."""
    path = url[url.index("/", 8) :].partition("?")[0]
    return path[: path.rindex("/")] or "/"


def _expiry(given: Mapping[bytes, bytes], now_s: float) -> float:
    """By Max-Age, or else by Expires; what is neither counts as absent. In the past: to be removed now."""
    age = given.get(b"max-age", b"")
    if age.removeprefix(b"-").isdigit() and age.isascii():
        return now_s + min(float(age), AGE_MAX_S) if age.strip(b"-0") and not age.startswith(b"-") else now_s - 1
    expires = cookie_date(given.get(b"expires", b"").decode("latin-1"))
    return 0.0 if expires is None else min(max(1.0, expires), now_s + AGE_MAX_S)


def cookie_lines(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """The first values of Set-Cookie."""
    left = LINES_MAX
    for key, line in headers:
        if key.lower() == b"set-cookie" and left:
            left -= 1
            yield line


class Jar:
    """The cookies of one site in one session, bounded in number and bytes."""

    def __init__(self, cookies: Iterable[Cookie] = (), *, bytes_max: int = JAR_BYTES_MAX) -> None:
        self._cookies: dict[tuple[str, str, str], Cookie] = {}  # oldest first
        self._bytes, self._bytes_max = 0, bytes_max
        for one in cookies:
            self.add(one)

    def __len__(self) -> int:
        return len(self._cookies)

    @property
    def cookies(self) -> list[Cookie]:
        return list(self._cookies.values())

    def add(self, cookie: Cookie) -> None:
        """Keep a cookie that somebody gave, or that was kept before."""
        self._put(cookie)
        self._make_room(0.0)

    def take(self, url: str, headers: Iterable[tuple[bytes, bytes]], now_s: float) -> bool:
        """Keep what a response sets; has anything changed?"""
        has_changed, is_secure = False, url.startswith("https:")
        for line in cookie_lines(headers):
            cookie = cookie_of(url, line, now_s)
            if cookie is not None and (is_secure or not self._guards(cookie, now_s)):
                has_changed = self._take(cookie, now_s) or has_changed
        self._make_room(now_s)  # once: a response may have a hundred
        return has_changed

    def _guards(self, cookie: Cookie, now_s: float) -> bool:
        """Is there a Secure cookie that one without encryption neither replaces nor removes?"""
        return any(one.guards(cookie) and not 0 < one.expires_at <= now_s for one in self._cookies.values())

    def _take(self, cookie: Cookie, now_s: float) -> bool:
        """Keep a cookie, or remove it if it has expired; has anything changed?"""
        known = self._cookies.get(cookie.key)
        if 0 < cookie.expires_at <= now_s:
            self._drop(cookie.key)
            return known is not None
        self._put(cookie)
        if known is None or (known.value, known.is_secure) != (cookie.value, cookie.is_secure):
            return True
        return abs(known.expires_at - cookie.expires_at) > REFRESHED_S

    def _put(self, cookie: Cookie) -> None:
        known = self._cookies.get(cookie.key)
        self._bytes += cookie.size_kept - (known.size_kept if known else 0)
        self._cookies[cookie.key] = cookie  # one that is replaced keeps its place, as its time of creation

    def _drop(self, key: tuple[str, str, str]) -> None:
        gone = self._cookies.pop(key, None)
        self._bytes -= gone.size_kept if gone else 0

    @property
    def _is_full(self) -> bool:
        return len(self._cookies) > COOKIES_MAX or self._bytes > self._bytes_max

    def _make_room(self, now_s: float) -> None:
        """Those that have expired go first, then those that are not Secure, each time the oldest."""
        if not self._is_full:
            return
        for one in sorted(self.cookies, key=lambda one: (not 0 < one.expires_at <= now_s, one.is_secure)):
            if 0 < one.expires_at <= now_s or self._is_full:
                self._drop(one.key)

    def sent_to(self, url: str, now_s: float) -> list[tuple[str, str]]:
        """Names and values for a request to a canonical URL, those with longer paths first (5.8.3). Where there is no
        room for all, Secure ones have it first.
        """
        if not self._cookies:
            return []
        host, is_secure = host_of(url), url.startswith("https:")
        path = url[url.index("/", 8) :].partition("?")[0]
        fitting = [
            one
            for one in self._cookies.values()
            if one.is_for(host, path, is_secure=is_secure) and not 0 < one.expires_at <= now_s
        ]
        left, found = SENT_BYTES_MAX, set[tuple[str, str, str]]()
        for one in sorted(fitting, key=lambda one: (not one.is_secure, -len(one.path))):
            if one.size + 3 <= left:
                left -= one.size + 3
                found.add(one.key)
        return [(one.name, one.value) for one in sorted(fitting, key=lambda one: -len(one.path)) if one.key in found]
