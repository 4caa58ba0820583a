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

import re
from collections.abc import Callable, Collection
from urllib.parse import unquote

import can_ada

from crawler.errors import InvalidUrl
from crawler.expressions import Expressions
from crawler.model import UrlParts

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
