"""Validates [[sites]]: relations to other settings, and what a request can send. Messages hold no secrets."""

import re
from collections.abc import Iterator

from crawler.settings.schema import Settings, SiteSettings

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 5.6.2: names of headers; of cookies too (RFC 6265 4.1.1)
_OURS = {  # headers that only the fetcher can set correctly
    "accept-encoding": "bodies might come in codings that can't be decoded",
    "connection": "the fetcher controls connections",
    "content-length": "requests have no body",
    "cookie": "use cookies",
    "host": "it comes from the URL",
    "te": "the fetcher controls transfer codings",
    "transfer-encoding": "requests have no body",
    "upgrade": "the fetcher controls connections",
}


def complaints(settings: Settings) -> Iterator[str]:
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
        elif why := _OURS.get(name.lower()):
            yield f"headers.{name} can't be set: {why}"
    if site.auth and any(name.lower() == "authorization" for name in site.headers):
        yield "auth: the same table has headers.Authorization"
    if len({name.lower() for name in site.headers}) < len(site.headers):
        yield "headers: one name is given twice, in different case"
    for name in site.cookies:
        if not _TOKEN.fullmatch(name):
            yield f"cookies.{name!r}: not the name of a cookie"
    values = {"auth": site.auth} | {f"headers.{n}": v for n, v in site.headers.items()}
    for key, value in (values | {f"cookies.{n}": v for n, v in site.cookies.items()}).items():
        if isinstance(value, str) and (fault := fault_of(key, value)):
            yield f"{key} {fault}"


def fault_of(key: str, value: str) -> str:
    """Why a value of auth, of a header or a cookie can't be sent; "" when it can."""
    if key == "auth":
        if value and ":" not in value:
            return "is not of the form USER:PASSWORD"
        return "" if value.isprintable() else "has characters that can't be printed"
    if not (value.isascii() and value.isprintable()):
        return "is not printable ASCII on one line"
    if key.startswith("cookies.") and ";" in value:
        return "has a semicolon, which ends a cookie"
    return ""
