"""What the URL parsers are given and by which of them: a reference is looked at before it is parsed. Pure.

can_ada parses nearly all. ada_url, which takes three times as long, has newer tables of letters: it parses what has a
host beyond ASCII. A host that DNS can't have is refused before either, for encoding letters takes the square of their
number.
"""

from collections.abc import Callable
from urllib.parse import unquote

import can_ada

HOST_CHARS_MAX, LABEL_CHARS_MAX = 253, 63  # RFC 1035 2.3.4; queues, and keys in the engine, are named after hosts
_SHORT = LABEL_CHARS_MAX + len("http://")  # an address in ASCII up to here has no label that is too long
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
    import ada_url  # for hosts beyond ASCII only: seeds and links of most crawls have none

    return str(ada_url.normalize_url(scalar(raw)))


def scalar(raw: str) -> str:
    """The text without lone surrogates, which no parser takes."""
    return raw if raw.isascii() else raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ForeignSchemeError(ValueError):
    """Neither http nor https."""


class NoHostError(ValueError):
    """A host that DNS can't have."""


class Joiner:
    """Resolves references against one canonical base, as the standard says. Raises ValueError."""

    __slots__ = ("_native", "base")

    def __init__(self, base: str) -> None:
        self.base = base
        self._native = None if _has_coded_label(_authority_of(base)) else can_ada.parse(base)

    def plain(self, href: str) -> str:
        """Without a host beyond ASCII."""
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
    """A quick sieve: True is certain. Then the parser may have the reference as it is."""
    if not href.isascii():
        return False
    if len(href) <= LABEL_CHARS_MAX:
        return "%" not in href and "xn--" not in href.lower()
    if not href.isprintable():
        return False
    if href.startswith(_HTTP):
        authority = href[: href.find("/", 8)]  # at least: it may end before, at ? or #
        return 8 < len(authority) <= _SHORT and "%" not in authority and "xn--" not in authority.lower()
    if ":" in href and href[0] not in "/.?#":
        return False  # a scheme
    return href[0] not in " \\/" or (href[0] == "/" and href[1] not in "/\\")  # no host of its own


def looked_at(href: str, plain: Callable[[str], str], beyond: Callable[[str], str], base: str = "") -> str:
    """Parse a reference by what its host looks like. Raises ValueError for a host that DNS can't have."""
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
    """Host of a reference as it is written, found as the standard's parser finds it; "" for one that has none."""
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
    """Raises ValueError for a label that is in the form of coded letters and encodes none, and for one too long."""
    import ada_url

    host = authority.rpartition("@")[2].partition(":")[0]
    for label in host.split("."):
        if len(label) > LABEL_CHARS_MAX:
            raise NoHostError
        if label.startswith("xn--") and ada_url.idna.decode(label) == label:
            raise ValueError("a coded label that encodes nothing")
    if len(host) > HOST_CHARS_MAX:
        raise NoHostError
