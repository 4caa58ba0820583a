"""Sort keys of the index: the URL with its host reversed, as Wayback machines look it up (com,example)/path).

Follows the rules that pywb and the Wayback tools use, for canonical URLs. Pure.
"""

import re
from urllib.parse import unquote_to_bytes

_WWW = re.compile(r"www\d*\.")
_HEX = frozenset(b"0123456789ABCDEFabcdef")
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
    raw = unquote_to_bytes(text.encode("utf-8", "surrogatepass"))
    if b"%" in raw:
        raw = _unescaped(raw)
    return "".join(chr(b) if 0x20 < b < 0x7F and b not in b"#%" else f"%{b:02X}" for b in raw)


def _unescaped(raw: bytes) -> bytes:
    """Unescape until nothing changes, in one pass: %252525 unescaped again and again takes the square of its length."""
    out = bytearray()
    for byte in raw:
        out.append(byte)
        while len(out) >= 3 and out[-3] == 0x25 and out[-2] in _HEX and out[-1] in _HEX:
            out[-3:] = bytes.fromhex(out[-2:].decode("ascii"))
    return bytes(out)
