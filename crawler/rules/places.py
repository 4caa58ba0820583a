"""What a URL is and where it belongs: registrable domain, session ids, fingerprint, partition. Pure.

Registrable domains are the unit of sharding, budgets and statistics. They follow the Public Suffix List with its
private section (a.github.io and b.github.io are two domains). The list comes with a pinned package, so that all
instances of one release agree; no network, no cache directory.
"""

import pkgutil
import re
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import TYPE_CHECKING

from crawler.model import REQUISITE, Request

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


CACHE_HOSTS = 50_000  # about 200 bytes each; a miss costs 2 us
DOMAIN_HASH_BYTES = 8
RUNS_MAX = 4096  # whose hash states are remembered; about 500 bytes each
HASH_KEY_BYTES = 16  # what blake2b takes as a salt

# Session ids whose names say so: they never tell pages apart. Only forms that servers and shops use for sessions and
# for nothing else; `sid`, `session` and the like also name other things.
_PATH_FORMS = re.compile(
    r";(?:jsessionid|phpsessid|sessionid)=[0-9A-Za-z._!:%*+-]*|/\((?:[A-Z]\([0-9A-Za-z_-]{8,}\))+\)(?=/)",
    re.IGNORECASE,
)
_NAMES = r"jsessionid|phpsessid|aspsessionid[a-z]{8}|asp\.net_sessionid|oscsid|zenid"
_QUERY_FORMS = re.compile(rf"(?<![^?&])(?:(?:{_NAMES})=[^&]*|cfid=\d+&cftoken=[^&]*)(?:&|$)", re.IGNORECASE)


@lru_cache(maxsize=CACHE_HOSTS)
def registrable_domain(host: str) -> str:
    """Domain, lower-cased, of a host as written in a URL (IPv6 in brackets; trailing dots are ignored).

    An IP literal, a single label, a public suffix and a host with an empty label are their own domain. An IPv6 address
    that leads to an IPv4 address has the domain of that: it is the same server. Under an unlisted top-level domain the
    list's default rule `*` applies (the last two labels).
    """
    host = host.lower().strip(".")
    if is_ip(host):
        if host[0] == "[":
            with suppress(ValueError):
                return str(embedded_v4(IPv6Address(host[1:-1])) or host)
        return host
    return _suffixes().privatesuffix(host) or host


def is_ip(host: str) -> bool:
    """True for the IP literals of canonical URLs: dotted IPv4, bracketed IPv6."""
    if host.startswith("["):
        return True
    labels = host.split(".")
    return len(labels) == 4 and all(label.isdecimal() for label in labels)


def queue_of(host: str, *, by_domain: bool) -> str:
    """The queue of a host as written in a URL: its domain, or the host itself; an address has one in all its forms."""
    return registrable_domain(host) if by_domain or is_ip(host) else host


_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
_6TO4 = IPv6Network("2002::/16")  # RFC 3056


def embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a packet to `address` would finally reach.

    Teredo addresses contain one, too, but the tunnels no longer exist.
    """
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return address.sixtofour
    return None


@cache
def _suffixes() -> "PublicSuffixList":
    """The list, with its rules encoded here: the library would encode all ten thousand, of which 500 are not ASCII."""
    from publicsuffixlist import PublicSuffixList

    text = pkgutil.get_data("publicsuffixlist", "public_suffix_list.dat")
    assert text is not None  # it is part of the package
    rules = [line for line in text.decode("utf-8").splitlines() if not line.startswith("//")]
    encoded = [rule.encode("idna").decode() for rule in rules if not rule.isascii()]
    return PublicSuffixList(rules + encoded, accept_encoded_idn=False)


def label_of(domain: str, host: str) -> str:
    """The part of a host's name before its domain, "@" for none: the form that lua/_admission.lua stores."""
    return "@" if host == domain else host.removesuffix(f".{domain}")


def without_session(url: str) -> str:
    """A canonical URL without session ids: the text to fingerprint."""
    if "=" not in url and "/(" not in url:
        return url
    lowered = url.lower()
    if not (  # written out, and before any pattern: every link passes here
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


class Fingerprints:
    """Makes the fingerprints of one crawl, and those of the runs in it: of one URL, each run has another one.

    A site chooses its URLs, hosts and domains. Because of the crawl's own random `hash_key`, 16 bytes, it can't compute
    which URLs collide or share a bucket of the seen-set. The key is the salt of BLAKE2b here, hashed once, in the
    initial state, so it costs nothing for each URL. Scripts put it before names that they hash (queues, origins, hosts,
    seeds: `number_of` in lua/_partition.lua); `acquire`, `add` and `restate` leave a copy in each partition, and one of
    these is its first call. It is in the crawl's record and in `bound.json` of each folder, from which a rebuild takes
    it, so that the fingerprints of the index stay true: folders with different keys are different crawls. It is never
    printed.

    What has no key: the partition of a domain, which operators compute without the engine. A site with a public suffix
    of its own can make one partition large; its owner does the work, and nothing is lost. Nor have the ring, whose
    names are the operator's, the jitter of retries, and what is learned of traps, which is kept by domain.
    """

    __slots__ = ("_begun", "_hash_key", "_of_runs")

    def __init__(self, hash_key: bytes, run: str = "") -> None:
        self._hash_key = hash_key
        self._begun = blake2b(f"{run}\x00".encode() if run else b"", digest_size=8, salt=hash_key)
        self._of_runs: dict[str, Fingerprints] = {}

    def of_run(self, run: str) -> "Fingerprints":
        """Those of a run of a job, "" for those of the crawl itself."""
        if not run:
            return self
        found = self._of_runs.get(run)
        if found is None:
            if len(self._of_runs) >= RUNS_MAX:
                self._of_runs.clear()
            found = self._of_runs[run] = Fingerprints(self._hash_key, run)
        return found

    def of(self, url: str, request: Request | None = None, label: str = "") -> str:
        """64-bit fingerprint of a canonical URL, as the decimal of a signed integer (the engine's intset form).

        URLs that differ only in a session id of a well-known name have the same fingerprint. With a `request` that is
        not a plain GET it has another one; as a requisite, by its `label`, the twin of a page's.
        """
        digest = self._begun.copy()
        digest.update(without_session(url).encode())
        if request is not None and (identity := request.identity):
            digest.update(f"\0{identity}".encode())
        number = int.from_bytes(digest.digest(), "big", signed=True)
        return str(-number if label == REQUISITE else number)


def twin_of(fingerprint: str) -> str:
    """That of the same URL as a requisite, for a page's; and that of the page, for a requisite's.

    A page and a requisite are two URLs, each with a state of its own: one is never lost in the other. The sign tells
    them apart, so that whoever has one knows the other, and both are in one bucket of the seen-set.
    """
    return str(-int(fingerprint))


def partition_of(domain: str, partitions: int) -> int:
    """The partition of a domain; `partitions` is fixed when a crawl is created."""
    digest = blake2b(domain.encode(), digest_size=DOMAIN_HASH_BYTES, person=b"partition").digest()
    return int.from_bytes(digest, "big") % partitions
