"""Validates [[sites]]: relations to other settings, and what a request can send. Messages hold no secrets."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from crawler.lazy_module import LazyModule
from crawler.settings.proxies import fault_of_proxy
from crawler.settings.schema import Settings, SiteSettings, Text

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = LazyModule("tomllib")
from typing import TYPE_CHECKING

from crawler.lazy_module import LazyModule

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = LazyModule("tomllib")

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 5.6.2: names of headers; of cookies too (RFC 6265 4.1.1)
OWN_HEADERS = {  # that only the fetcher can set correctly: where a message ends, to whom it goes, how it is coded
    "accept-encoding": "bodies might come in codings that can't be decoded",
    "host": "it comes from the URL",
    **dict.fromkeys(("content-length", "expect", "trailer"), "it depends on the body"),
    **dict.fromkeys(("connection", "keep-alive", "proxy-connection", "upgrade"), "the fetcher controls connections"),
    **dict.fromkeys(("te", "transfer-encoding"), "the fetcher controls transfer codings"),
    **dict.fromkeys(("range", "if-range"), "pages are requested whole"),
}


def site_complaints(settings: Settings) -> Iterator[str]:
    """A line each."""
    for number, site in enumerate(settings.sites):
        for complaint in _of_one(site, settings):
            yield f"sites[{number}].{complaint}"


def _of_one(site: SiteSettings, settings: Settings) -> Iterator[str]:
    least = settings.politeness.delay_s
    if site.delay_s is not None and site.delay_s < least:
        yield (
            f"delay_s = {site.delay_s} is below politeness.delay_s = {least}, the least for all sites: set that lower, "
            'and a last table with match = "*" for the others'
        )
    for name in site.headers:
        if not _TOKEN.fullmatch(name):
            yield f"headers.{name!r}: not the name of a header"
        elif why := "use cookies" if name.lower() == "cookie" else OWN_HEADERS.get(name.lower()):
            yield f"headers.{name} can't be set: {why}"
    if site.auth and any(name.lower() == "authorization" for name in site.headers):
        yield "auth: the same table has headers.Authorization"
    if len({name.lower() for name in site.headers}) < len(site.headers):
        yield "headers: one name is given twice, in different case"
    if isinstance(site.cookies, str) and ("=" in site.cookies or ";" in site.cookies):
        yield 'cookies: expected a table, like {session = "..."}, or the name of a file of cookies'
    for name in fixed_cookies(site):
        if not _TOKEN.fullmatch(name):
            yield f"cookies.{name!r}: not the name of a cookie"
    values = {"auth": site.auth, "proxy": site.proxy} | {f"headers.{n}": v for n, v in site.headers.items()}
    for key, value in (values | {f"cookies.{n}": v for n, v in fixed_cookies(site).items()}).items():
        if isinstance(value, str) and (fault := fault_of_site_value(key, value)):
            yield f"{key} {fault}"


def fixed_cookies(site: SiteSettings) -> Mapping[str, Text]:
    """Those that are named one by one, not in a file."""
    return site.cookies if isinstance(site.cookies, dict) else {}


def fault_of_site_value(key: str, value: str) -> str:
    """Why a value of auth, of a header or a cookie can't be sent, or names no proxy; "" when it can."""
    if key == "proxy":
        fault = fault_of_proxy(value)
        return fault and f"is not usable: {fault}"
    if key == "auth":
        if value and ":" not in value:
            return "is not of the form USER:PASSWORD"
        return "" if value.isprintable() else "has characters that can't be printed"
    if not (value.isascii() and value.isprintable()):
        return "is not printable ASCII on one line"
    if key.startswith("cookies.") and ";" in value:
        return "has a semicolon, which ends a cookie"
    return ""
