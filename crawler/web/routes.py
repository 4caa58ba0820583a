"""Which requests go through a proxy, and through which: by the settings, the environment, and [[sites]]."""

import os

from crawler.errors import UsageError
from crawler.model import UrlParts
from crawler.rules.proxy_health import ProxyHealth
from crawler.rules.sites import SiteRules
from crawler.settings import FromEnvironment, Settings, SiteSettings
from crawler.settings.proxies import FROM_VARIABLES, Proxy, ProxyVariables, proxy_of, unresolved_proxy, value_of
from crawler.web.proxy import Route


class Routes:
    """Which origins have one. Build with `of`."""

    def __init__(self, settings: Settings) -> None:
        """Raises UsageError for a value, or a variable, that names no proxy."""
        for complaint in unresolved_proxy(settings, os.environ):
            raise UsageError(complaint)
        address, _, port = settings.fetch.gateway.rpartition(":")
        self._gateway = Route(address.strip("[]"), int(port)) if address else None
        self._sites = SiteRules.of(settings.sites, "proxy")
        self._of_tables = [_named(number, site) for number, site in enumerate(settings.sites)]
        self._give_up_ms = int(settings.hosts.give_up_s * 1000)
        self._known: dict[Proxy, Route] = {}
        named = value_of(settings.fetch.proxy, os.environ)
        self._variables = ProxyVariables() if named == FROM_VARIABLES else None
        self._common = proxy_of(named) if named and self._variables is None else None

    @classmethod
    def of(cls, settings: Settings) -> "Routes | None":
        """None when every connection goes to its origin. Raises UsageError."""
        fetch = settings.fetch
        if not (fetch.gateway or fetch.proxy or any(site.proxy is not None for site in settings.sites)):
            return None
        return cls(settings)

    def of_origin(self, origin: UrlParts) -> Route | None:
        """That of an origin; None: connections go there itself. With a gateway nothing else is ever connected to."""
        if self._gateway is not None:
            return self._gateway
        proxy = self._proxy_of(origin)
        if proxy is None:
            return None
        route = self._known.get(proxy)
        if route is None:
            health = ProxyHealth(give_up_ms=self._give_up_ms)
            route = self._known[proxy] = Route(proxy.host, proxy.port, proxy, health)
        return route

    def _proxy_of(self, origin: UrlParts) -> Proxy | None:
        tables = self._sites.fitting(f"{origin.origin}/") if self._sites is not None else ()
        for table in tables:
            return self._of_tables[table.number]
        if self._variables is not None:
            return self._variables.proxy_for(origin.scheme, origin.host.strip("[]"))
        return self._common

    def troubles(self, *, now_ms: int) -> list[str]:
        """What is wrong with the proxies through which nothing comes."""
        healths = (route.health for route in self._known.values() if route.health is not None)
        return [health.detail for health in healths if health.is_in_doubt(now_ms=now_ms)]


def _named(number: int, site: SiteSettings) -> Proxy | None:
    if site.proxy is None:
        return None
    if isinstance(site.proxy, FromEnvironment) and site.proxy.env not in os.environ:
        raise UsageError(f"sites[{number}].proxy: the environment has no variable {site.proxy.env}")
    value = value_of(site.proxy, os.environ)
    try:
        return proxy_of(value) if value else None
    except ValueError as error:
        raise UsageError(f"sites[{number}].proxy: {error}") from None
