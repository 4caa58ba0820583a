"""URLs: one canonical spelling for everything that is hashed, compared, stored or fetched. Pure.

Follows the WHATWG URL standard (through can_ada, and ada_url for hosts beyond ASCII, whose Unicode tables are newer).
On top of it come these normalisations, in this order, and such that canonicalize(canonicalize(u)) == canonicalize(u):

- only http and https; the fragment and credentials are dropped;
- trailing dots of the host are dropped (DNS ignores them);
- a host longer than 253 characters, or with a label of more than 63, can't exist in DNS. It is refused before it is
  parsed, because encoding letters beyond ASCII takes quadratic time. So is an `xn--` label that encodes nothing;
- percent-encoded octets get upper-case digits, and those of unreserved characters are decoded once (RFC 3986
  sections 6.2.2.1 and 6.2.2.2). A URL with a `%` that does not start an octet keeps its unreserved ones encoded:
  decoding could complete that `%` into a new octet;
- `^` is encoded in the path, as in the standard since 2024, but not yet in can_ada;
- an empty query (`?` and nothing after it) is dropped; the order of parameters is never touched.
"""

import pkgutil
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import TYPE_CHECKING
from urllib.parse import unquote

import can_ada

from crawler.errors import InvalidUrl
from crawler.expressions import Expressions
from crawler.model import Request, UrlParts

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


HOST_CHARS_MAX, LABEL_CHARS_MAX = 253, 63  # RFC 1035 2.3.4; queues, and keys in the engine, are named after hosts
_SHORT = LABEL_CHARS_MAX + len("http://")  # an ASCII address up to this length has no label that is too long
_IGNORED = dict.fromkeys(map(ord, "\t\n\r"))
_BLANKS = "".join(map(chr, range(0x21)))
_HTTP = ("http://", "https://")
_DOTS = str.maketrans("\u3002\uff0e\uff61", "...")  # UTS 46 reads them as dots
_HOST_ENDS = ("/", "\\", "?", "#")


def parsed(raw: str) -> str:
    try:
        return can_ada.parse(raw).href
    except TypeError:  # lone surrogates: the standard reads them as U+FFFD
        return can_ada.parse(scalar(raw)).href


def parsed_beyond(raw: str) -> str:
    import ada_url  # only for hosts beyond ASCII, which most crawls never see

    return str(ada_url.normalize_url(scalar(raw)))


def scalar(raw: str) -> str:
    """The text with lone surrogates replaced, which no parser accepts."""
    return raw if raw.isascii() else raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ForeignSchemeError(ValueError):
    """Neither http nor https."""


class NoHostError(ValueError):
    """A host that can't exist in DNS."""


class Joiner:
    """Resolves references against one canonical base, by the WHATWG URL standard. Raises ValueError."""

    __slots__ = ("_native", "base")

    def __init__(self, base: str) -> None:
        self.base = base
        self._native = None if _has_coded_label(_authority_of(base)) else can_ada.parse(base)

    def plain(self, href: str) -> str:
        """For references without a host beyond ASCII."""
        if self._native is None:
            return self.beyond(href)
        try:
            return (self._native + href).href
        except TypeError:
            return (self._native + scalar(href)).href

    def beyond(self, href: str) -> str:
        """Also for hosts beyond ASCII."""
        import ada_url

        return str(ada_url.join_url(self.base, scalar(href)))


def is_plain(href: str) -> bool:
    """A quick check: True is certain, and then the reference may be parsed unchanged."""
    if not href.isascii():
        return False
    if len(href) <= LABEL_CHARS_MAX:
        return "%" not in href and "xn--" not in href.lower()
    if not href.isprintable():
        return False
    if href.startswith(_HTTP):
        authority = href[: href.find("/", 8)]  # at most this: it may end earlier, at ? or #
        return 8 < len(authority) <= _SHORT and "%" not in authority and "xn--" not in authority.lower()
    if ":" in href and href[0] not in "/.?#":
        return False  # a scheme
    return href[0] not in " \\/" or (href[0] == "/" and href[1] not in "/\\")  # no host of its own


def looked_at(href: str, plain: Callable[[str], str], beyond: Callable[[str], str], base: str = "") -> str:
    """Parse a reference with the parser for its host. Raises ValueError for a host that can't exist in DNS."""
    host = _host_in(href, base)
    if not host:
        return plain(href)
    if len(host) > HOST_CHARS_MAX:  # each letter may be written as three to twelve characters
        host = unquote(host[: 12 * HOST_CHARS_MAX + 1])
    elif "%" in host:
        host = unquote(host)
    if len(host) > HOST_CHARS_MAX or max(map(len, host.translate(_DOTS).split("."))) > LABEL_CHARS_MAX:
        raise NoHostError
    if host.isascii() and not _has_coded_label(host):
        return plain(href)
    found = beyond(href)
    if found.startswith(_HTTP):
        _check_coded_labels(_authority_of(found))
    return found


def scheme_of(href: str) -> str:
    """The scheme that a reference begins with, in lower case; "" for none."""
    return _scheme(href.translate(_IGNORED).lstrip(_BLANKS))


def _scheme(text: str) -> str:
    scheme, colon, _ = text.partition(":")
    is_one = colon and scheme[:1].isalpha() and scheme.isascii() and all(c.isalnum() or c in "+-." for c in scheme)
    return scheme.lower() if is_one else ""


def _host_in(href: str, base: str) -> str:
    """Host of a reference as written, found as the standard's parser does; "" when there is none."""
    text = href.translate(_IGNORED).lstrip(_BLANKS)
    if scheme := _scheme(text):
        rest = text.partition(":")[2]
        if scheme not in ("http", "https"):
            raise ForeignSchemeError
        if base.startswith(f"{scheme}:") and not (rest[:1] in _HOST_ENDS[:2] and rest[1:2] in _HOST_ENDS[:2]):
            return ""  # relative in spite of its scheme
    elif text[:1] in _HOST_ENDS[:2] and text[1:2] in _HOST_ENDS[:2]:
        rest = text
    else:
        return ""
    rest = rest.lstrip("/\\")
    end = min((at for at in map(rest.find, _HOST_ENDS) if at >= 0), default=len(rest))
    host = rest[:end].rpartition("@")[2]
    if host.startswith("["):
        return host.partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _authority_of(href: str) -> str:
    start = href.index(":") + 3
    return href[start : href.index("/", start)]


def _has_coded_label(host: str) -> bool:
    return "xn--" in host.lower()


def _check_coded_labels(authority: str) -> None:
    """Raises ValueError for an `xn--` label that encodes nothing, and for one that is too long."""
    import ada_url

    host = authority.rpartition("@")[2].partition(":")[0]
    for label in host.split("."):
        if len(label) > LABEL_CHARS_MAX:
            raise NoHostError
        if label.startswith("xn--") and ada_url.idna.decode(label) == label:
            raise ValueError("an xn-- label that encodes nothing")
    if len(host) > HOST_CHARS_MAX:
        raise NoHostError


BYTES_MAX = 8192  # longer ones are refused: only traps produce them

_NEVER = ("javascript:", "mailto:", "tel:", "data:")  # the common ones, dropped before they cost a parse
_ABSOLUTE = _HTTP + _NEVER
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_OCTET = re.compile("%[0-9A-Fa-f]{2}")
_OCTETS_BEYOND = re.compile("(?:%[89A-F][0-9A-F])+")
_DOT_SEGMENT = re.compile(r"/\.\.?(?:[/?]|$)").search
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})").search

_CACHED_JOINS_MAX = 20_000  # over all folders; about 200 bytes each
_CACHED_HREF_MAX = 300  # longer ones rarely come twice
_CACHED_FOLDER_MAX = 512  # characters: each join has those of its folder
_UNUSABLE = ""  # the result of a join that can't be crawled


def canonicalize(raw: str, *, bytes_max: int = BYTES_MAX) -> str:
    """Return the one spelling of an absolute http(s) URL: ASCII, at most `bytes_max` long.

    Raises InvalidUrl with one of the reasons "not a URL", "not http or https", "no host", "too long".
    """
    if len(raw) > bytes_max:
        raw = raw.partition("#")[0]
        if len(raw) > bytes_max:
            raise InvalidUrl(raw, "too long")
    try:
        url = parsed(raw) if is_plain(raw) else looked_at(raw, parsed, parsed_beyond)
    except ForeignSchemeError:
        raise InvalidUrl(raw, "not http or https") from None
    except NoHostError:
        raise InvalidUrl(raw, "no host") from None
    except ValueError:
        raise InvalidUrl(raw, "not a URL") from None
    href = _finish(url)
    if href is None:
        raise InvalidUrl(raw, "no host" if url.startswith(_HTTP) else "not http or https")
    if len(href) > bytes_max:
        raise InvalidUrl(raw, "too long")
    return href


def without_comment(line: str) -> str:
    """The URL in a line as people write it, which ends before a blank and `#`: `http://a.test/ # the shop`."""
    for comment in " #", "\t#":
        line = line.partition(comment)[0]
    return line.strip()


def refuse_fields(line: str) -> None:
    """Raises InvalidUrl for a URL with fields behind a tab (lists of other crawlers): parsers would join them."""
    if "\t" in line.strip():
        raise InvalidUrl(line, fields_refused(line.strip().partition("\t")[0]))


def fields_refused(url: str) -> str:
    """Why a line with fields behind a URL is refused."""
    return f"has fields behind a tab: give {url} alone ('cut -f1' keeps the URLs of a file)"


def refuse_credentials(raw: str) -> None:
    """Raises InvalidUrl for a URL with a user or password: links lose them silently, but a person meant them.

    The error's URL has no password.
    """
    if "@" not in raw:
        return
    try:
        url = can_ada.parse(scalar(raw))
    except ValueError:
        return  # `canonicalize` reports it
    if url.username or url.password:
        url.username, url.password = url.username and "...", ""
        raise InvalidUrl(url.href, "has a user or password; give them as auth in [[sites]] of the settings")


def join(base: str, href: str, *, bytes_max: int = BYTES_MAX) -> str | None:
    """Resolve one reference against a canonical base; None when the result can't be crawled."""
    return _join(Joiner(base), href, bytes_max)


class JoinCache:
    """Joins already made, by folder: pages of one folder share most of their references.

    It never changes a result, also where threads share it.
    """

    __slots__ = ("_entries_max", "_folders", "_left")

    def __init__(self, entries_max: int = _CACHED_JOINS_MAX) -> None:
        self._entries_max = entries_max
        self._left = entries_max
        self._folders: dict[tuple[str, int], dict[str, str]] = {}

    def of(self, base: str, bytes_max: int) -> dict[str, str]:
        """The joins of the folder of `base`: reference without fragment -> canonical URL, or "" if it is unusable."""
        query = base.find("?")
        folder = base[: base.rindex("/", 0, query if query >= 0 else len(base)) + 1]
        if len(folder) > _CACHED_FOLDER_MAX:
            return {}
        joins = self._folders.get((folder, bytes_max))
        if joins is None:
            self.count_entry()
            joins = self._folders[folder, bytes_max] = {}
        return joins

    def count_entry(self) -> None:
        """Count a new entry. At the bound all are dropped at once, which costs less than keeping an order."""
        self._left -= 1
        if self._left <= 0:
            self._folders.clear()
            self._left = self._entries_max


def join_all(
    base: str, hrefs: Collection[str], *, bytes_max: int = BYTES_MAX, cache: JoinCache | None = None
) -> tuple[list[str], int]:
    """Resolve the references of a document whose base URL is `base` (canonical).

    Returns the canonical URLs, distinct, in order of first appearance, and how many distinct references were
    unusable (other schemes, malformed, too long).
    """
    cache = JoinCache() if cache is None else cache
    known = cache.of(base, bytes_max)
    distinct = dict.fromkeys([h.partition("#")[0] for h in hrefs])
    joined = list(map(known.get, distinct))
    if "" in distinct:
        joined[list(distinct).index("")] = base if base.startswith(_HTTP) else _UNUSABLE
    if None in joined:
        if any(h[-1] <= " " for h in distinct if h and h not in known):  # such references are never cached
            distinct = dict.fromkeys(map(_without_fragment, hrefs))
        joiner = Joiner(base)
        joined = [known[h] if h in known else _join_new(joiner, h, known, cache, bytes_max) for h in distinct]
    found = dict.fromkeys(joined)
    dropped = joined.count(_UNUSABLE)
    found.pop(_UNUSABLE, None)
    return list(found), dropped  # type: ignore[arg-type]


def _join_new(joiner: Joiner, href: str, known: dict[str, str], cache: JoinCache, bytes_max: int) -> str:
    url = _UNUSABLE if href.startswith(_NEVER) else _join(joiner, href, bytes_max) or _UNUSABLE
    if len(href) <= _CACHED_HREF_MAX and _depends_on_folder_only(href):
        cache.count_entry()
        known[href] = url
    return url


def _without_fragment(href: str) -> str:
    """Cut the fragment, but keep its `#` after a blank: parsers strip a blank at the end."""
    bare, mark, _ = href.partition("#")
    return bare + mark if bare and bare[-1] <= " " else bare


def found_in_url(expressions: Expressions, url: str) -> list[int]:
    """The numbers of the expressions that match a canonical URL; those beyond ASCII also as people read it."""
    found = expressions.found_in(url)
    if expressions.beyond_ascii and (text := readable(url)) != url:
        found += [n for n in expressions.found_in(text) if n in expressions.beyond_ascii and n not in found]
    return found


def readable(url: str) -> str:
    """A canonical URL with international names and octets of UTF-8 beyond ASCII decoded; no other octet is."""
    if "xn--" in url:
        from ada_url import idna

        host = host_of(url)
        labels = [idna.decode(label) if label.startswith("xn--") else label for label in host.split(".")]
        url = url.replace(host, ".".join(labels), 1)
    return _OCTETS_BEYOND.sub(_decode_utf_8, url) if "%" in url else url


def _decode_utf_8(match: re.Match[str]) -> str:
    text = bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogateescape")
    return "".join([f"%{ord(c) - 0xDC00:02X}" if "\udc80" <= c <= "\udcff" else c for c in text])


def split(href: str) -> UrlParts:
    """Take a canonical URL apart. An IPv6 `host` keeps its brackets, as in the URL."""
    scheme, start = ("https", 8) if href.startswith("https") else ("http", 7)
    slash = href.index("/", start)
    authority = href[start:slash]
    host, port = authority, 443 if start == 8 else 80
    colon = authority.rfind(":")
    if colon > authority.rfind("]"):
        host, port = authority[:colon], int(authority[colon + 1 :])
    return UrlParts(href=href, scheme=scheme, host=host, port=port, origin=href[:slash], target=href[slash:])


def origin_of(href: str) -> str:
    """scheme://host[:port] of a canonical URL."""
    return href[: href.index("/", 8)]


def host_of(href: str) -> str:
    """Host of a canonical URL, without the port; IPv6 in brackets."""
    authority = authority_of(href)
    colon = authority.rfind(":")
    return authority[:colon] if colon > authority.rfind("]") else authority


def authority_of(href: str) -> str:
    """host[:port] of a canonical URL."""
    start = href.index(":") + 3
    return href[start : href.index("/", start)]


def _join(joiner: Joiner, href: str, bytes_max: int) -> str | None:
    if len(href) > bytes_max:
        return None
    try:
        joined = joiner.plain(href) if is_plain(href) else looked_at(href, joiner.plain, joiner.beyond, joiner.base)
    except ValueError:
        return None
    found = _finish(joined)
    return found if found is not None and len(found) <= bytes_max else None


def _finish(href: str) -> str | None:
    """Apply the normalisers; None when the scheme is foreign or nothing is left of the host."""
    if not href.startswith(_HTTP):
        return None
    if not _needs_normalising(href):
        return href
    start = href.index(":") + 3
    end = href.index("/", start)
    authority = href[start:end]
    if "@" in authority:
        authority = authority.rpartition("@")[2]
        href = href[:start] + authority + href[end:]
    if authority[-1] == "." or ".:" in authority:
        host, colon, port = authority.partition(":")
        bare = host.rstrip(".")
        if not bare:
            return None
        try:  # again, because "1.." without its dots is an IPv4 address
            return canonicalize(href.replace(authority, bare + colon + port, 1))
        except InvalidUrl:
            return None
    if "#" in href:
        href = href.partition("#")[0]
    if href[-1] == "?" and href.index("?") == len(href) - 1:
        href = href[:-1]
    if "^" in href:
        path, mark, query = href.partition("?")
        href = path.replace("^", "%5E") + mark + query
    if "%" in href:
        href = _normalise_octets(href)
    if "/." in href and _DOT_SEGMENT(href.partition("?")[0]):  # can_ada leaves them behind a hidden folder: /a/.b/../c
        return _finish(parsed_beyond(href))
    return href


def _needs_normalising(href: str) -> bool:
    """A quick check: False is certain. (Substring tests are faster than any regular expression here.)"""
    if "%" in href or "@" in href or "#" in href or "^" in href:
        return True
    return "./" in href or ".:" in href or ".?" in href or href[-1] in "?."


def _normalise_octets(href: str) -> str:
    return _OCTET.sub(_upper if _LONE_PERCENT(href) else _decode_unreserved, href)


def _upper(match: re.Match[str]) -> str:
    return match[0].upper()


def _decode_unreserved(match: re.Match[str]) -> str:
    character = chr(int(match[0][1:], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _depends_on_folder_only(href: str) -> bool:
    """True when the file name and query of the base don't change the result.

    False for "" and "?...", also after blanks or after a scheme without slashes ("http:?a" is relative to an http
    base).
    """
    if not href or href[0] <= " " or href[-1] <= " " or href[0] == "?":
        return False
    return href[0] == "/" or ":" not in href or href.startswith(_ABSOLUTE)


# What a URL is and where it belongs: registrable domain, session ids, fingerprint, partition. Pure.
#
# Registrable domains are the unit of sharding, quotas and statistics. They follow the Public Suffix List with its
# private section (a.github.io and b.github.io are two domains). The list comes with a pinned package, so that all
# instances of one release agree; no network, no cache directory.

CACHE_HOSTS = 50_000  # about 200 bytes each; a miss costs 2 us
DOMAIN_HASH_BYTES = 8
RUNS_MAX = 4096  # whose hash states are remembered; about 500 bytes each
HASH_KEY_BYTES = 16  # what blake2b takes as a salt

# Session ids whose names say so: they never tell pages apart. Only forms that servers and shops use for sessions and
# for nothing else; `sid`, `session` and the like also name other things.
_PATH_FORMS = re.compile(
    r";(?:jsessionid|phpsessid|sessionid)=[0-9A-Za-z._!:%*+-]*|/\((?:[A-Z]\([0-9A-Za-z_-]{8,}\))+\)(?=/)",
    re.IGNORECASE,
)
_NAMES = r"jsessionid|phpsessid|aspsessionid[a-z]{8}|asp\.net_sessionid|oscsid|zenid"
_QUERY_FORMS = re.compile(rf"(?<![^?&])(?:(?:{_NAMES})=[^&]*|cfid=\d+&cftoken=[^&]*)(?:&|$)", re.IGNORECASE)


@lru_cache(maxsize=CACHE_HOSTS)
def registrable_domain(host: str) -> str:
    """Domain, lower-cased, of a host as written in a URL (IPv6 in brackets; trailing dots are ignored).

    An IP literal, a single label, a public suffix and a host with an empty label are their own domain. An IPv6 address
    that leads to an IPv4 address has the domain of that: it is the same server. Under an unlisted top-level domain the
    list's default rule `*` applies (the last two labels).
    """
    host = host.lower().strip(".")
    if is_ip(host):
        if host[0] == "[":
            with suppress(ValueError):
                return str(embedded_v4(IPv6Address(host[1:-1])) or host)
        return host
    return _suffixes().privatesuffix(host) or host


def is_ip(host: str) -> bool:
    """True for the IP literals of canonical URLs: dotted IPv4, bracketed IPv6."""
    if host.startswith("["):
        return True
    labels = host.split(".")
    return len(labels) == 4 and all(label.isdecimal() for label in labels)


def queue_of(host: str, *, by_domain: bool) -> str:
    """The queue of a host as written in a URL: its domain, or the host itself; an address has one in all its forms."""
    return registrable_domain(host) if by_domain or is_ip(host) else host


_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
_6TO4 = IPv6Network("2002::/16")  # RFC 3056


def embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a packet to `address` would finally reach.

    Teredo addresses contain one, too, but the tunnels no longer exist.
    """
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return address.sixtofour
    return None


@cache
def _suffixes() -> "PublicSuffixList":
    """The list, with its rules encoded here: the library would encode all ten thousand, of which 500 are not ASCII."""
    from publicsuffixlist import PublicSuffixList

    text = pkgutil.get_data("publicsuffixlist", "public_suffix_list.dat")
    assert text is not None  # it is part of the package
    rules = [line for line in text.decode("utf-8").splitlines() if not line.startswith("//")]
    encoded = [rule.encode("idna").decode() for rule in rules if not rule.isascii()]
    return PublicSuffixList(rules + encoded, accept_encoded_idn=False)


def label_of(domain: str, host: str) -> str:
    """The part of a host's name before its domain, "@" for none: the form that lua/_admission.lua stores."""
    return "@" if host == domain else host.removesuffix(f".{domain}")


def without_session(url: str) -> str:
    """A canonical URL without session ids: the text to fingerprint."""
    if "=" not in url and "/(" not in url:
        return url
    lowered = url.lower()
    if not (  # written out, and before any pattern: every link passes here
        "sessi" in lowered or "/(" in lowered or "cfid=" in lowered or "oscsid=" in lowered or "zenid=" in lowered
    ):
        return url
    address, _, query = url.partition("?")
    start = address.index("/", 8)
    address = address[:start] + _PATH_FORMS.sub("", address[start:])
    kept = _QUERY_FORMS.sub("", query)
    if kept != query:
        query = kept.removesuffix("&")
    return f"{address}?{query}" if query else address


class Fingerprints:
    """Makes the fingerprints of one crawl, and those of the runs in it: of one URL, each run has another one.

    A site chooses its URLs. Because of the crawl's own random `hash_key`, it can't compute which of them collide or
    share a bucket of the seen-set (docs/internals/decisions/seen-set.md). The key is hashed once, in the initial
    state, so it costs nothing for each URL.
    """

    __slots__ = ("_begun", "_hash_key", "_of_runs", "run")

    def __init__(self, hash_key: bytes, run: int | str = 0) -> None:
        self.run = run
        self._hash_key = hash_key
        self._begun = blake2b(f"{run}\x00".encode() if run else b"", digest_size=8, salt=hash_key)
        self._of_runs: dict[str, Fingerprints] = {}

    def of_run(self, run: str) -> "Fingerprints":
        """Those of a run of a job, "" for those of the crawl itself."""
        if not run:
            return self
        found = self._of_runs.get(run)
        if found is None:
            if len(self._of_runs) >= RUNS_MAX:
                self._of_runs.clear()
            found = self._of_runs[run] = Fingerprints(self._hash_key, run)
        return found

    def of(self, url: str, request: Request | None = None) -> str:
        """64-bit fingerprint of a canonical URL, as the decimal of a signed integer (the engine's intset form).

        URLs that differ only in a session id of a well-known name have the same fingerprint. With a `request` that is
        not a plain GET it has another one.
        """
        digest = self._begun.copy()
        digest.update(without_session(url).encode())
        if request is not None and (identity := request.identity):
            digest.update(f"\0{identity}".encode())
        return str(int.from_bytes(digest.digest(), "big", signed=True))


def partition_of(domain: str, partitions: int) -> int:
    """The partition of a domain; `partitions` is fixed when a crawl is created."""
    digest = blake2b(domain.encode(), digest_size=DOMAIN_HASH_BYTES, person=b"partition").digest()
    return int.from_bytes(digest, "big") % partitions
