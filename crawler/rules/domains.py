"""Registrable domains: the unit of sharding, budgets and statistics, defined for every host a URL can have.

Public Suffix List with its private section (a.github.io and b.github.io are two domains), in the version
bundled with tldextract, so that all instances of one release agree; no network, no cache directory.
"""

from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tldextract import TLDExtract

CACHE_HOSTS = 50_000  # about 200 bytes each; a miss costs 10 us


@lru_cache(maxsize=CACHE_HOSTS)
def registrable_domain(host: str) -> str:
    """Domain, lower-cased, of a host as it stands in a URL (IPv6 in brackets; trailing dots are ignored).

    Where the list names none: an IP literal, a single label and a public suffix are their own domain; under
    an unlisted top-level domain the list's default rule `*` holds (the last two labels).
    """
    host = host.lower().strip(".")
    if is_ip(host):
        return host
    found = _extract(host)
    return f"{found[0]}.{found[1]}" if found[0] and found[1] else _default_rule(host, found[1])


def is_ip(host: str) -> bool:
    """True for the IP literals of canonical URLs: dotted IPv4, bracketed IPv6."""
    if host.startswith("["):
        return True
    labels = host.split(".")
    return len(labels) == 4 and all(label.isdecimal() for label in labels)


def _default_rule(host: str, suffix: str) -> str:
    if suffix:
        return host
    return ".".join(host.split(".")[-2:])


def _extract(host: str) -> tuple[str, str]:
    found = _extractor()(host)
    return found.domain, found.suffix


@cache
def _extractor() -> "TLDExtract":
    import tldextract

    return tldextract.TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)


def label_of(domain: str, host: str) -> str:
    """What a host's name has before its domain, "@" for nothing: as lua/_hosts.lua keeps it."""
    return "@" if host == domain else host.removesuffix(f".{domain}")
