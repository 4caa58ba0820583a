"""Logins: which URLs are the login page, where a password may go, and how often. Pure.

A login page names the address that its form is sent to, and a redirect may name another one. Whoever can change a
page, or plays a subdomain, would get the password. So it goes to the host that people wrote down, and to those that
they named besides; an https page can't have it sent over http.
"""

from collections.abc import Collection
from urllib.parse import parse_qsl

from crawler.model import UrlParts
from crawler.rules.urls import host_of, split

KEEPS_BODY = frozenset({307, 308})  # redirects that take the method and the body along (RFC 9110 15.4.8, 15.4.9)
_PORTS = {"http": 80, "https": 443}


def is_login_page(url: str, login_url: str) -> bool:
    """Does this URL lead to the login page? One that has parameters is known by them, in any order and among others:
    `index.php?route=account/login` is not `index.php?route=product`. Without any, each query fits. http and https, at
    their own ports, are one page.
    """
    one, wanted = split(url), split(login_url)
    (path, _, query), (wanted_path, _, wanted_query) = one.target.partition("?"), wanted.target.partition("?")
    if (one.host, path) != (wanted.host, wanted_path):
        return False
    if one.port != wanted.port and {one.port, wanted.port} != {80, 443}:
        return False
    return not wanted_query or _parameters(wanted_query) <= _parameters(query)


def _parameters(query: str) -> set[tuple[str, str]]:
    return set(parse_qsl(query, keep_blank_values=True))


def why_no_password(login_url: str, target: str, action_hosts: Collection[str] = ()) -> str:
    """Why a password may not be sent to this URL; "" if it may. Both are canonical.

    Over https, or over http if the login page is http, to: the host of the login page, at the same port or from 80 to
    443; a host of `action_hosts`, at the scheme's own port, or at the one that it names ("sso.shop.example:8443").
    """
    page, sent = split(login_url), split(target)
    if sent.scheme != "https" and page.scheme == "https":
        return "it is not https, as the login page is"
    if not {f"{sent.host}:{sent.port}", sent.host if _is_own_port(sent) else ""}.isdisjoint(action_hosts):
        return ""
    is_other_host = sent.host != page.host
    if not is_other_host and (sent.port == page.port or (page.port, sent.port) == (80, 443)):
        return ""
    what, named = "host" if is_other_host else "port", sent.host if _is_own_port(sent) else f"{sent.host}:{sent.port}"
    return f"it is another {what}; if that is right, set action_hosts = ['{named}'] of the login"


def why_no_redirect(status: int, url: str, target: str) -> str:
    """Why a redirect may not take a password along, wherever `why_no_password` lets it; "" if it may."""
    if status in KEEPS_BODY and host_of(url) != host_of(target):
        return f"status {status} would take the password to another host"
    return ""


def _is_own_port(parts: UrlParts) -> bool:
    return parts.port == _PORTS[parts.scheme]
