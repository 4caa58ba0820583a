"""Sort keys of the index: the URL with its host reversed, as Wayback machines look it up (com,example)/path).

Follows the rules that pywb and the Wayback tools use, for canonical URLs. Pure.
"""

import re
from urllib.parse import unquote_to_bytes

_WWW = re.compile(r"www\d*\.")
_SLASHES = re.compile(r"//+")


def surt(url: str) -> str:
    """The sort key of a canonical http(s) URL. Different URLs may share one (letter case, `www.`, scheme)."""
    authority, _, rest = url.partition("://")[2].partition("/")
    path, mark, query = rest.partition("?")
    if "//" in path or path.startswith("/"):
        path = _SLASHES.sub("/", "/" + path)[1:]
    if not url.isascii() or not url.isprintable() or "%" in rest or " " in rest:
        path, query = _requoted(path), _requoted(query)
    path = path.lower().removesuffix("/")
    if not mark or not query:
        return f"{_reversed_host(authority)})/{path}"
    return f"{_reversed_host(authority)})/{path}?{_sorted_query(query.lower())}"


def _reversed_host(authority: str) -> str:
    authority = authority.rpartition("@")[2].lower()
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        return host + port
    if authority.startswith("www"):
        authority = _WWW.sub("", authority, count=1)
    host, colon, port = authority.partition(":")
    return ",".join(reversed(host.split("."))) + colon + port


def _sorted_query(query: str) -> str:
    if "&" not in query:
        return query
    return "&".join("=".join(pair) for pair in sorted(part.split("=", 1) for part in query.split("&")))


def _requoted(text: str) -> str:
    """Unescape until nothing changes, then escape blanks, controls, non-ASCII bytes, `#` and `%`."""
    raw = text.encode("utf-8", "surrogatepass")
    while (plain := unquote_to_bytes(raw)) != raw:
        raw = plain
    return "".join(chr(b) if 0x20 < b < 0x7F and b not in b"#%" else f"%{b:02X}" for b in raw)
