"""Registrable domains: the unit of sharding, budgets and statistics, defined for every host a URL can have.

Public Suffix List with its private section (a.github.io and b.github.io are two domains), in the version that this
release asks for, so that all instances of one release agree; no network, no cache directory.
"""

import pkgutil
import re
from functools import cache, lru_cache
from hashlib import blake2b
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


# Given out by servers and shops for sessions and for nothing else. `sid`, `session` and the like name things, too.
_PATH_FORMS = re.compile(
    r";(?:jsessionid|phpsessid|sessionid)=[0-9A-Za-z._!:%*+-]*|/\((?:[A-Z]\([0-9A-Za-z_-]{8,}\))+\)(?=/)",
    re.IGNORECASE,
)
_NAMES = r"jsessionid|phpsessid|aspsessionid[a-z]{8}|asp\.net_sessionid|oscsid|zenid"
_QUERY_FORMS = re.compile(rf"(?<![^?&])(?:(?:{_NAMES})=[^&]*|cfid=\d+&cftoken=[^&]*)(?:&|$)", re.IGNORECASE)


def without_session(url: str) -> str:
    """The identity of a canonical URL: what to fingerprint. The URL itself when it has no session id."""
    if "=" not in url and "/(" not in url:
        return url
    lowered = url.lower()
    if not (  # spelled out, and before any pattern: each link passes here
        "sessi" in lowered or "/(" in lowered or "cfid=" in lowered or "oscsid=" in lowered or "zenid=" in lowered
    ):
        return url
    address, _, query = url.partition("?")
    start = address.index("/", 8)
    address = address[:start] + _PATH_FORMS.sub("", address[start:])
    kept = _QUERY_FORMS.sub("", query)
    if kept != query:
        query = kept.removesuffix("&")
    return f"{address}?{query}" if query else address


DOMAIN_HASH_BYTES = 8
HASH_KEY_BYTES = 16  # what blake2b takes as a salt


class Fingerprints:
    """Makes the fingerprints of one run of one crawl.

    A site chooses its URLs. With the crawl's own random `hash_key` it can't compute which of them collide, or share a
    bucket of the seen-set (docs/internals/decisions/seen-set.md). The key goes into the hash's first
    state, so that it costs nothing for each URL.
    """

    __slots__ = ("_begun", "run")

    def __init__(self, hash_key: bytes, run: int = 0) -> None:
        self.run = run
        self._begun = blake2b(f"{run}\x00".encode() if run else b"", digest_size=8, salt=hash_key)

    def of(self, url: str) -> str:
        """64-bit fingerprint of a canonical URL, as the decimal of a signed integer (the engine's intset form).

        A session id of the kinds that everybody names alike has no part in it: such URLs are one.
        """
        digest = self._begun.copy()
        digest.update(without_session(url).encode())
        return str(int.from_bytes(digest.digest(), "big", signed=True))


def partition_of(domain: str, partitions: int) -> int:
    """The partition of a domain; `partitions` is fixed when a crawl is created."""
    digest = blake2b(domain.encode(), digest_size=DOMAIN_HASH_BYTES, person=b"partition").digest()
    return int.from_bytes(digest, "big") % partitions
