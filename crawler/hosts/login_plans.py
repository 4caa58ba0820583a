"""How each site is logged in to: by the app's functions, and by `[[sites]]` of the settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from crawler.errors import InvalidUrl, UsageError
from crawler.handlers.crawler import Crawler
from crawler.redaction import learn_login
from crawler.rules.logins import is_login_page
from crawler.rules.places import registrable_domain
from crawler.rules.urls import authority_of, canonicalize, host_of
from crawler.settings import LoginSettings, SiteSettings


class LoginPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in to a site: with a function of the user's, or by the settings."""

    site: str
    url: str  # of the page with the form
    function: Callable[..., Any] | None = None
    settings: LoginSettings | None = None
    password: str = ""
    action_hosts: frozenset[str] = frozenset()  # that may get it besides the page's own, some with their port
    allow_get: bool = False

    @property
    def ignores_robots(self) -> bool:
        return self.settings is not None and self.settings.ignore_robots

    def is_login_page(self, url: str) -> bool:
        """Does this URL lead to the login page?"""
        return is_login_page(url, self.url)


def plans_of(
    app: Crawler | None, sites: Sequence[SiteSettings], environment: Mapping[str, str]
) -> dict[str, LoginPlan]:
    """By site: those of the app, and of [[sites]]. Raises UsageError."""
    found: dict[str, LoginPlan] = {}
    for where, given in app.logins.items() if app is not None else ():
        url, name = where if "://" in where else f"https://{where}/login", f"@app.login({where!r})"
        domain = _site_of(url, name)
        found[domain] = LoginPlan(
            site=domain, url=canonicalize(url), function=given.function, allow_get=given.allow_get,
            action_hosts=_hosts_of(given.action_hosts, domain, name),
        )  # fmt: skip
    for number, site in enumerate(sites):
        login = site.login
        if login is None:
            continue
        name = f"sites[{number}].login"
        password = environment.get(login.password_env, "")
        if not password:
            raise UsageError(f"{name}: the environment has no variable {login.password_env}")
        domain = _site_of(login.url, f"{name}.url")
        if domain in found:
            raise UsageError(f"{name}: {domain} has a login already")
        learn_login(login.user, password)
        found[domain] = LoginPlan(
            site=domain, url=canonicalize(login.url), settings=login, password=password, allow_get=login.allow_get,
            action_hosts=_hosts_of(login.action_hosts, domain, name),
        )  # fmt: skip
    return found


def _hosts_of(hosts: Sequence[str], site: str, name: str) -> frozenset[str]:
    found = set[str]()
    for host in hosts:
        where = f"{name}: action_hosts: {host!r}"
        if not host or set(host) & set("/?#@\\ "):
            raise UsageError(f"{where} is not a host, like sso.{site} or sso.{site}:8443")
        domain = _site_of(f"https://{host}/", where)
        if domain != site:
            raise UsageError(f"{where} is not a host of {site}: a login stays in its site")
        found.add(authority_of(canonicalize(f"https://{host}/")))
    return frozenset(found)


def _site_of(url: str, name: str) -> str:
    try:
        return registrable_domain(host_of(canonicalize(url)))
    except InvalidUrl as error:
        raise UsageError(f"{name}: {error}") from None
