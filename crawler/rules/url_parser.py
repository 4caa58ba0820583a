"""Chooses the parser for a URL reference, and refuses hosts that can't exist in DNS before parsing. Pure.

can_ada parses nearly all. ada_url takes three times as long, but has newer Unicode tables: it parses references whose
host is not ASCII. Hosts that are too long for DNS are refused before, because encoding their letters takes quadratic
time.
"""

from collections.abc import Callable
from urllib.parse import unquote

import can_ada

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


def _host_in(href: str, base: str) -> str:
    """Host of a reference as written, found as the standard's parser does; "" when there is none."""
    text = href.translate(_IGNORED).lstrip(_BLANKS)
    scheme, colon, rest = text.partition(":")
    if colon and scheme[:1].isalpha() and scheme.isascii() and all(c.isalnum() or c in "+-." for c in scheme):
        scheme = scheme.lower()
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
