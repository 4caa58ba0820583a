"""A fetcher with short time-outs and a DNS server of its own, for the tests of this folder."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from crawler.model import FailureKind, FetchResult, Response
from crawler.settings import ArchiveSettings, DnsSettings, FetchSettings, Settings, SiteSettings
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from tests.support.dns_server import DnsServer, Table

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello"

NO_SECRETS = ArchiveSettings()


@asynccontextmanager
async def fetching(
    *,
    table: Table | None = None,
    resolver: CachingResolver | None = None,
    sites: tuple[SiteSettings, ...] = (),
    archive: ArchiveSettings = NO_SECRETS,
    **fetch: object,
) -> AsyncIterator[Fetcher]:
    values: Mapping[str, object] = {
        "allow_private": True,
        "total_timeout_s": 2.0,
        "connect_timeout_s": 0.5,
        "idle_timeout_s": 1.0,
    } | fetch
    async with DnsServer(table or {}) as dns:
        settings = Settings(
            fetch=FetchSettings(**values),  # type: ignore[arg-type]
            dns=DnsSettings(nameservers=(dns.address,), timeout_s=0.3, tries=1),
            sites=sites,
            archive=archive,
        )
        known = resolver or CachingResolver(settings.dns, allow_private=settings.fetch.allow_private)
        async with Fetcher(settings, resolver=known, version="9.9") as fetcher:
            yield fetcher
        await known.close()


def response_of(result: FetchResult) -> Response:
    assert result.failure is None, result.failure
    assert result.response is not None
    return result.response


def kind_of(result: FetchResult) -> FailureKind:
    assert result.response is None
    assert result.failure is not None
    return result.failure.kind
