"""What --header, --cookie, --data and --method add to requests.

Headers and cookies are tables of [[sites]] before those of the settings file. What is secret goes to the sites of the
URLs on the command line, the rest to all. A body belongs to one request, of `fetch` or `shell`. No message has a value.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crawler.crawl.url_input import urls_given
from crawler.errors import UsageError
from crawler.model import GET, Request
from crawler.rules.requests import (
    BODY_BYTES_MAX,
    CONTENT_TYPE,
    FORM,
    HEADERS_BYTES_MAX,
    JSON,
    check_header,
    is_header_name,
    request_of,
)
from crawler.rules.sites import is_secret_header, patterns_of_site
from crawler.settings import SiteSettings
from crawler.settings.schema import Text
from crawler.settings.site_checks import fault_of_site_value

PATTERNS_MAX = 256  # a child process gets them in one variable of its environment, which has room for 128 KiB
STDIN = "@-"


class Additions(msgspec.Struct, frozen=True):
    """What the options add to requests. `sites`: patterns of where secrets go."""

    headers: dict[str, str] = {}
    cookies: dict[str, str] = {}
    sites: tuple[str, ...] = ()

    @property
    def as_json(self) -> dict[str, Any]:
        """As it is handed to a child process."""
        return {"headers": self.headers, "cookies": self.cookies, "sites": self.sites}

    @property
    def tables(self) -> tuple[SiteSettings, ...]:
        """As [[sites]] have it."""
        secret: dict[str, Text] = {name: value for name, value in self.headers.items() if is_secret_header(name, value)}
        plain: dict[str, Text] = {name: value for name, value in self.headers.items() if name not in secret}
        tables = [SiteSettings(match=site, headers=secret, cookies={**self.cookies}) for site in self.sites]
        return (*tables, SiteSettings(match="*", headers=plain)) if plain else tuple(tables)


def additions_of(arguments: argparse.Namespace) -> Additions | None:
    """What --header and --cookie say; None without them. Raises UsageError."""
    if not (arguments.header or arguments.cookie):
        return None
    headers, cookies = _headers_of(arguments)
    if _has_body(arguments):
        headers = {name: value for name, value in headers.items() if name.lower() != CONTENT_TYPE}
    secret = ["--cookie"] * bool(cookies) + [f"--header {n}" for n, v in headers.items() if is_secret_header(n, v)]
    return Additions(headers, cookies, _sites_of(arguments, secret[0]) if secret else ())


def _sites_of(arguments: argparse.Namespace, option: str) -> tuple[str, ...]:
    """Patterns of the sites that a secret goes to, for which it was given with this option."""
    found = tuple(dict.fromkeys(site for url in urls_given(arguments) for site in patterns_of_site(url)))
    if not found:
        raise UsageError(
            f"{option} goes to the sites of the URLs on the command line, and there is none: for others, use [[sites]] "
            "in a settings file (docs/guide/settings-by-site.md)"
        )
    if len(found) > PATTERNS_MAX:
        raise UsageError(f"{option} would go to too many sites: use [[sites]] in a settings file")
    return found


def _headers_of(arguments: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and cookies. What browsers and curl call the header Cookie is a list of cookies."""
    headers, lists = dict[str, str](), list[tuple[str, str]]()
    for text in arguments.header:
        name, value = _header_of(text)
        if name.lower() == "cookie":
            lists.append(("--header Cookie", value))
        elif name.lower() in map(str.lower, headers):
            raise UsageError(f"--header {name} is given twice")
        else:
            headers[name] = value
    cookies = _cookies_of([*lists, *(("--cookie", text) for text in arguments.cookie)])
    if sum(len(name) + len(value) for name, value in (headers | cookies).items()) > HEADERS_BYTES_MAX:
        raise UsageError(f"--header and --cookie have more than {HEADERS_BYTES_MAX:,} bytes")
    return headers, cookies


def _header_of(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not is_header_name(name):  # what stands there may be a secret without its name
        raise UsageError("--header: expected 'Name: value', like 'Accept-Language: de'")
    value = value.strip(" \t")
    if not value:
        raise UsageError(f"--header {name} has no value; give it one, or leave it out")
    if fault := fault_of_site_value(f"headers.{name}", value):
        raise UsageError(f"--header {name}: the value {fault}")
    try:
        check_header(name, value)
    except ValueError as error:
        raise UsageError(f"--header {name}: {error}") from None
    return name, value


def _cookies_of(lists: Sequence[tuple[str, str]]) -> dict[str, str]:
    """From lists like `a=b; c=d`, each with the option that it came with."""
    found = dict[str, str]()
    for option, text in lists:
        pairs = [part.strip(" \t").partition("=") for part in text.split(";") if part.strip(" \t")]
        if not pairs or not all(equals and is_header_name(name) for name, equals, _ in pairs):
            raise UsageError(f"{option}: expected 'name=value', or several like 'a=b; c=d'")
        for name, _, value in pairs:
            if name in found:
                raise UsageError(f"{option}: the cookie {name} is given twice")
            if fault := fault_of_site_value(f"cookies.{name}", value):
                raise UsageError(f"{option}: the value of {name} {fault}")
            found[name] = value
    return found


# The one request of `fetch`, and the first of `shell`.


def request_given(arguments: argparse.Namespace) -> Request | None:
    """What --method and --data say; None for a plain GET. Raises UsageError."""
    body, headers, method = None, dict[str, str](), arguments.method or ""
    if _has_body(arguments):
        body = b"&".join(map(_data_of, arguments.data))
        if len(body) > BODY_BYTES_MAX:
            raise UsageError(f"--data: more than {BODY_BYTES_MAX:,} bytes")
        if method.upper() in (GET, "HEAD"):
            raise UsageError(f"--method {method}: it has no body; leave --method out, or put the data into the URL")
        given = {name.lower(): value for name, value in _headers_of(arguments)[0].items()}
        headers["Content-Type"] = given.get(CONTENT_TYPE) or (JSON if _is_json(body) else FORM)
    try:
        return request_of(method=method, body=body, headers=headers)
    except ValueError as error:
        raise UsageError(f"--{error}") from None  # it begins with the method


def _has_body(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "data", None))


def _data_of(text: str) -> bytes:
    """A text, or what is in a file, as it is; a byte more than may be sent at most."""
    if not text.startswith("@"):
        return text.encode()
    try:
        if text == STDIN:
            return sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
        with Path(text[1:]).open("rb") as file:
            return file.read(BODY_BYTES_MAX + 1)
    except OSError as error:
        name = "standard input" if text == STDIN else text[1:]
        raise UsageError(f"--data: can't read {name}: {error.strerror}") from None


def _is_json(body: bytes) -> bool:
    """Is it an object or a list? A number or a word alone is more likely a form without a value."""
    try:
        return isinstance(msgspec.json.decode(body), Mapping | list)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
