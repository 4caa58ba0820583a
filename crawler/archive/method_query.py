"""How the index names answers to other requests than GET: the method and the body as a query, as pywb looks them up.

The key of such a line is that of its URL with `__wb_method=POST&name=value` behind it. The rules are those of pywb
(`MethodQueryCanonicalizer`), which other replay programs follow. Pure.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus, urlencode

from crawler.model import GET

QUERY_MAX = 4096  # characters of a body that are in a key, as in pywb
BODY_BYTES_MAX = 1 << 20  # a larger body is not read as JSON or as parts: its first bytes are in the key
HEAD = "HEAD"
WITH_BODY = frozenset(("POST", "PUT"))  # methods whose body tells requests apart
_MARK = "__wb_method="
MARK = _MARK.encode()


def is_by_url(method: str) -> bool:
    """Is the key of its line that of its URL alone?"""
    return method in (GET, HEAD)


def url_with_method(url: str, method: str, query: str) -> str:
    """What the key of a line is made of, for other methods than GET; `query`: of `body_query`."""
    # A URL has neither line ends nor, before its fragment, a number sign: who looks it up has dropped them, too.
    added = f"{_MARK}{method}{'&' if query else ''}{query}".partition("#")[0]
    for sign in "\r\n\t":
        added = added.replace(sign, "")
    return f"{url}{'&' if '?' in url else '?'}{added}"


def body_query(method: str, head: bytes, body: bytes) -> str:
    """The body of a request as a query; "" if there is none, or it tells nothing. `head`: as it was sent."""
    if method not in WITH_BODY or not body:
        return ""
    return _query_of(_content_type(head), body)[:QUERY_MAX]


def _query_of(mime: str, body: bytes) -> str:
    if len(body) > BODY_BYTES_MAX:
        return _binary(body)
    if mime.startswith("application/x-www-form-urlencoded"):
        try:
            return unquote_plus(body.decode())
        except UnicodeDecodeError:
            return _binary(body)
    if mime.startswith("multipart/"):
        boundary = mime.partition("boundary=")[2].partition(";")[0].strip().strip('"')
        return urlencode(list(_parts(body, boundary))) if boundary else _binary(body)
    is_json = mime.startswith("application/json")
    if is_json or mime.startswith("text/plain"):
        try:
            return urlencode(_flat(json.loads(body)))
        except (ValueError, RecursionError):
            return "" if is_json else _binary(body)
    return _binary(body)


def _binary(body: bytes) -> str:
    return "__wb_post_data=" + base64.b64encode(body[:QUERY_MAX]).decode()


def _content_type(head: bytes) -> str:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-type":
            return value.decode("latin-1").strip()
    return ""


def _parts(body: bytes, boundary: str) -> Iterator[tuple[str, str | bytes]]:
    """Names and values of a form in parts, in their order; of a file its bytes."""
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))[1:]:
        if part.startswith(b"--"):
            return
        head, end, value = part.partition(b"\r\n\r\n")
        if not end:
            continue
        fields = next((one for one in head.split(b"\r\n") if one.lower().startswith(b"content-disposition:")), b"")
        name = _parameter(fields, b"name")
        if _parameter(fields, b"filename") is None:
            yield (name or b"").decode("utf-8", "replace"), value.decode("utf-8", "replace")
        else:
            yield (name or b"").decode("utf-8", "replace"), value


def _parameter(field: bytes, name: bytes) -> bytes | None:
    """`name="value"` in a header; None without it."""
    for part in field.split(b";")[1:]:
        key, _, value = part.strip().partition(b"=")
        if key.lower() == name:
            return value.strip(b'"')
    return None


def _flat(found: Any) -> dict[str, str]:
    """The names and values in JSON, however deep; a name that comes again has its number behind it."""
    pairs, times = dict[str, str](), Counter[str]()

    def add(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(inner, key)
        elif isinstance(value, list):
            for inner in value:
                add(inner, name)
        elif name:
            key = name
            if name in pairs:
                times[name] += 1
                key = f"{name}.{times[name] + 1}_"
            pairs[key] = _shown(value)

    add(found, "")
    return pairs


def _shown(value: Any) -> str:
    """As JavaScript writes it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return str(int(value))
    return str(value)
