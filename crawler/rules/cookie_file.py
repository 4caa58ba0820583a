"""cookies.txt: the format of Netscape, which browsers' extensions, curl and wget write. Pure.

    DOMAIN <tab> TRUE if below it, too <tab> PATH <tab> TRUE if Secure <tab> SECONDS (0: session) <tab> NAME <tab> VALUE

A line that is not one is left out and counted, as curl and wget do: files are edited, and have cookies of many sites.
Names and values are the bytes of the file, as they are sent.
"""

import msgspec

from crawler.errors import InvalidUrl, UsageError
from crawler.rules.cookies import PAIR_BYTES_MAX, Cookie
from crawler.rules.places import is_ip
from crawler.rules.urls import canonicalize, host_of

_HTTP_ONLY = "#HttpOnly_"
_FIELDS = 7
_UNSENDABLE = frozenset(";\x7f") | {chr(n) for n in range(0x20)}
NOT_A_LINE = "expected 7 fields with tabs between them"


class CookieFile(msgspec.Struct, kw_only=True):
    """What a file has. `left_out`: how many lines are none, and `first` of them, with its number and what is wrong."""

    cookies: list[Cookie] = []
    left_out: int = 0
    first: str = ""


def read_netscape(data: bytes, name: str) -> CookieFile:
    """The cookies of a file. Raises UsageError for one that is none: it has lines, and not one is a cookie."""
    found = CookieFile()
    for number, line in enumerate(_text_of(data).split("\n"), 1):
        given = line.strip(" \r").removeprefix(_HTTP_ONLY)
        if not given.strip() or given.startswith("#"):
            continue
        try:
            found.cookies.append(_cookie_of(given))
        except ValueError as error:
            found.left_out += 1
            found.first = found.first or f"line {number}: {error}"
    if found.left_out and not found.cookies:
        raise UsageError(f"{name} is not a cookies.txt, as browsers' extensions, curl and wget write it: {found.first}")
    return found


def _text_of(data: bytes) -> str:
    """A character for each byte."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # as a shell of Windows writes it
        data = data.decode("utf-16", "replace").encode()
    return data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def _cookie_of(line: str) -> Cookie:
    """Raises ValueError, with what is wrong; never with what is in the line, which may be secret."""
    fields = line.split("\t")
    while len(fields) > _FIELDS and not fields[-1]:
        fields.pop()
    if len(fields) == _FIELDS - 1:
        fields.append("")  # without a value
    if len(fields) != _FIELDS:
        raise ValueError(f"{NOT_A_LINE}, found {len(fields)}")
    domain, is_below, path, is_secure, expires, name, value = fields
    if not path.startswith("/"):
        raise ValueError("the path does not begin with a slash")
    if not 0 < len(name) + len(value) <= PAIR_BYTES_MAX:
        raise ValueError(f"name and value have more than {PAIR_BYTES_MAX:,} bytes" if name else "it has no name")
    if not _UNSENDABLE.isdisjoint(name + value + path):
        raise ValueError("it has characters that can't be sent")
    host = _host_of(domain)
    return Cookie(
        name=name, value=value, host=host, path=path, is_secure=is_secure.upper() == "TRUE",
        domain=host if is_below.upper() == "TRUE" and not is_ip(host) else "", expires_at=_seconds(expires),
    )  # fmt: skip


def _host_of(domain: str) -> str:
    text = domain.encode("latin-1").decode("utf-8", "replace").strip().removeprefix(".")
    try:
        host = host_of(canonicalize(f"http://{text}/"))
    except InvalidUrl:
        host = ""
    if not host or set(text) & set("/\\@?#") or (":" in text and not text.startswith("[")):
        raise ValueError("the domain is not the name of a host")
    return host


def _seconds(text: str) -> float:
    """Some extensions write fractions."""
    whole, _, fraction = text.strip().partition(".")
    if not (f"{whole}{fraction}".isascii() and whole.isdigit() and (not fraction or fraction.isdigit())):
        raise ValueError("its time is not a number of seconds")
    return float(whole[:20])
