"""What requests carry besides their URL: what people and handlers may give, and what a redirect takes along. Pure."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from crawler.model import GET, PLAIN, Request
from crawler.rules.json_depth import DEPTH_MAX, is_nested_too_deep
from crawler.rules.sites import SECRET_HEADERS
from crawler.rules.urls import origin_of
from crawler.settings.site_checks import OWN_HEADERS

META_BYTES_MAX = 4096  # as JSON; it waits in the engine with its URL
BODY_BYTES_MAX = 65_536
HEADERS_BYTES_MAX = 8192
KEY_CHARS_MAX = 200
POST = "POST"
_METHOD = re.compile(r"[A-Z]{1,16}")
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})  # of proxies, and for debugging; browsers refuse them, too
_SESSION = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110 5.6.2
CONTENT_TYPE = "content-type"
_OF_BODIES = frozenset({CONTENT_TYPE, "content-encoding", "content-language", "content-location"})
FORM, JSON = "application/x-www-form-urlencoded", "application/json"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def request_of(
    *,
    method: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes | str | None = None,
    form: Mapping[str, Any] | None = None,
    json: Any = None,
    meta: Mapping[str, Any] | None = None,
    key: str = "",
    session: str = "",
    idempotent: bool = False,
    cross_origin: bool = False,
    secret: bool = False,
) -> Request | None:
    """The request as somebody wants it; None for a plain GET. With a body, the method is POST unless it is given.

    `body`, `form` (fields; a list is several of one name) or `json`: one of them at most. Raises ValueError for what
    can't be sent or stored, TypeError for what is of the wrong type.
    """
    named = _headers_of(headers or {})
    content, content_type = _body_of(body, form, json)
    if secret and content is None:
        raise ValueError("secret=True hides a body, and there is none: a URL is in every file and log")
    if content_type and CONTENT_TYPE not in map(str.lower, named):
        named["Content-Type"] = content_type
    found = Request(
        method=_method_of(method, has_body=content is not None), headers=named, body=content or b"",
        meta=_meta_of(meta), key=_key_of(key), session=_session_of(session), is_repeatable=bool(idempotent),
        goes_anywhere=bool(cross_origin), is_secret=bool(secret),
    )  # fmt: skip
    return None if found == PLAIN else found


def _check_type(name: str, value: object, *types: type) -> None:
    if not isinstance(value, types):
        wanted = " or ".join({"Mapping": "dict"}.get(one.__name__, one.__name__) for one in types)
        raise TypeError(f"{name} is a {wanted}, not {type(value).__name__}")


def _method_of(method: str, *, has_body: bool) -> str:
    _check_type("method", method, str)
    found = method.upper() or (POST if has_body else GET)
    if not _METHOD.fullmatch(found) or found in _REFUSED_METHODS:
        raise ValueError(f"method={method[:40]!r}: expected GET, POST, HEAD, PUT, PATCH, DELETE or OPTIONS")
    if has_body and found in (GET, "HEAD"):
        raise ValueError(f"a {found} request has no body: give method='POST', or put the values into the URL")
    return found


def _body_of(body: bytes | str | None, form: Mapping[str, Any] | None, json: Any) -> tuple[bytes | None, str]:
    """The body and its media type."""
    if sum(one is not None for one in (body, form, json)) > 1:
        raise ValueError("give one of body=, form= and json=")
    content, content_type = None, ""
    if form is not None:
        content, content_type = form_of(form).encode(), FORM
    elif json is not None:
        content, content_type = _json_of("json", json), JSON
    elif body is not None:
        if not isinstance(body, bytes | str):
            raise TypeError(f"body is bytes or a str, not {type(body).__name__}")
        content = body.encode() if isinstance(body, str) else bytes(body)
    if content is not None and len(content) > BODY_BYTES_MAX:
        raise ValueError(f"the body has {len(content):,} bytes; a request may have {BODY_BYTES_MAX:,}")
    return content, content_type


def form_of(fields: Mapping[str, Any]) -> str:
    """Fields as a form sends them. Raises TypeError."""
    _check_type("form", fields, Mapping)
    return urlencode({name: value for name, value in fields.items() if value is not None}, doseq=True)


def form_in_url(url: str, method: str, form: Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any] | None]:
    """The URL, and what is left of the form: nothing with GET, where the fields are in the URL. Raises TypeError."""
    if form is None or method.upper() != GET:
        return url, form
    return with_fields(url, form_of(form)), None


def with_fields(url: str, query: str) -> str:
    """The URL of a form that is sent by GET: the fields replace the query."""
    bare = url.partition("#")[0].partition("?")[0]
    return f"{bare}?{query}" if query else bare


def bytes_of(request: Request) -> int:
    """About how many it takes in memory."""
    return len(_encode(request))


def _headers_of(headers: Mapping[str, str]) -> dict[str, str]:
    _check_type("headers", headers, Mapping)
    found = dict[str, str]()
    for name, value in headers.items():
        check_header(name, value)
        found[str(name)] = str(value).strip()
    if sum(len(name) + len(value) for name, value in found.items()) > HEADERS_BYTES_MAX:
        raise ValueError(f"headers of more than {HEADERS_BYTES_MAX:,} bytes")
    if secret := [name for name in found if name.lower() in SECRET_HEADERS]:
        raise ValueError(
            f"{secret[0]} would be stored in the clear: set it in @app.before_request or in [[sites]], or use a session"
        )
    return found


def is_header_name(name: str) -> bool:
    """Can it be the name of a header, or of a cookie?"""
    return _TOKEN.fullmatch(name) is not None


def check_header(name: str, value: str) -> None:
    """Raises TypeError, and ValueError for a header that can't be sent, or that the crawler sets itself."""
    _check_type("the name of a header", name, str)
    _check_type(f"the header {name}", value, str)
    if not is_header_name(name):
        raise ValueError(f"{name[:40]!r} can't be the name of a header")
    if why := OWN_HEADERS.get(name.lower()):
        raise ValueError(f"the header {name} can't be set: {why}")
    try:
        is_clean = value.isprintable() and bool(value.encode("latin-1"))
    except UnicodeEncodeError:
        is_clean = False
    if value and not is_clean:
        raise ValueError(f"the value of the header {name} has characters that can't be sent")


def _meta_of(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """As it arrives: what JSON makes of it."""
    if not meta:
        return {}
    _check_type("meta", meta, Mapping)
    packed = _json_of("meta", dict(meta))
    if len(packed) > META_BYTES_MAX:
        raise ValueError(f"meta has {len(packed):,} bytes as JSON; a request may carry {META_BYTES_MAX:,}")
    found: dict[str, Any] = _decode(packed)
    if is_nested_too_deep(packed, found):
        raise ValueError(f"meta is nested more than {DEPTH_MAX} deep")
    return found


def _json_of(name: str, value: Any) -> bytes:
    try:
        return _encode(value)
    except Exception as error:  # noqa: BLE001 - objects of users are read
        raise ValueError(f"{name} can't be written as JSON: {type(error).__name__}: {str(error)[:100]}") from None


def _key_of(key: str) -> str:
    _check_type("key", key, str)
    if len(key) > KEY_CHARS_MAX:
        raise ValueError(f"key has {len(key):,} characters; it may have {KEY_CHARS_MAX}")
    return key.encode("utf-8", "replace").decode()


def _session_of(session: str) -> str:
    _check_type("session", session, str)
    if session and not _SESSION.fullmatch(session):
        raise ValueError(f"session={session[:40]!r}: expected at most 32 letters, digits, dots, dashes or underscores")
    return session


def redirected(request: Request | None, status: int, url: str, target: str) -> Request | None:
    """What the request to the target of a redirect carries (RFC 9110 15.4; Fetch, 4.4): another origin gets neither
    body nor headers, unless its handler said so.
    """
    if request is None:
        return None
    is_kept = not becomes_get(request.method, status)
    is_here = request.goes_anywhere or origin_of(url) == origin_of(target)
    headers = request.headers if is_here else {}
    if not is_kept:
        headers = {name: value for name, value in headers.items() if name.lower() not in _OF_BODIES}
    found = replace(request, headers=headers, is_sent=False)
    if not is_kept or not is_here:
        found = replace(
            found, method=GET if not is_kept else request.method, body=b"", body_digest="", is_repeatable=False,
            goes_anywhere=False, is_secret=False,
        )  # fmt: skip
    return None if found == PLAIN else found


def takes_body_away(request: Request | None, status: int, url: str, target: str) -> bool:
    """Would a redirect take a body to an origin that must not have it?"""
    if request is None or not request.digest or request.goes_anywhere:
        return False
    return not becomes_get(request.method, status) and origin_of(url) != origin_of(target)


def becomes_get(method: str, status: int) -> bool:
    """Is the target of a redirect requested by GET, although this request was not?"""
    if status == 303:
        return method not in (GET, "HEAD")
    return status in (301, 302) and method == POST
