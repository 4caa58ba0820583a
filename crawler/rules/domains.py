"""Registrable domains: the unit of sharding, budgets and statistics, defined for every host a URL can have.

Public Suffix List with its private section (a.github.io and b.github.io are two domains), in the version that this
release asks for, so that all instances of one release agree; no network, no cache directory.
"""

import pkgutil
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

CACHE_HOSTS = 50_000  # about 200 bytes each; a miss costs 2 us


@lru_cache(maxsize=CACHE_HOSTS)
def registrable_domain(host: str) -> str:
    """Domain, lower-cased, of a host as it stands in a URL (IPv6 in brackets; trailing dots are ignored).

    Where the list names none: an IP literal, a single label, a public suffix and a host with an empty label are their
    own domain; under an unlisted top-level domain the list's default rule `*` holds (the last two labels).
    """
    host = host.lower().strip(".")
    if is_ip(host):
        return host
    return _suffixes().privatesuffix(host) or host


def is_ip(host: str) -> bool:
    """True for the IP literals of canonical URLs: dotted IPv4, bracketed IPv6."""
    if host.startswith("["):
        return True
    labels = host.split(".")
    return len(labels) == 4 and all(label.isdecimal() for label in labels)


@cache
def _suffixes() -> "PublicSuffixList":
    """The library would encode ten thousand rules of which five hundred are not ASCII: half of the time it takes."""
    from publicsuffixlist import PublicSuffixList

    text = pkgutil.get_data("publicsuffixlist", "public_suffix_list.dat")
    assert text is not None  # it lies beside the package
    rules = [line for line in text.decode("utf-8").splitlines() if not line.startswith("//")]
    encoded = [rule.encode("idna").decode() for rule in rules if not rule.isascii()]
    return PublicSuffixList(rules + encoded, accept_encoded_idn=False)


def label_of(domain: str, host: str) -> str:
    """What a host's name has before its domain, "@" for nothing: as lua/_admission.lua keeps it."""
    return "@" if host == domain else host.removesuffix(f".{domain}")
