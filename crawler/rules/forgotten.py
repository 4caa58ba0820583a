"""Domains that a crawl has forgotten: by one keyed digest each, they stay out of it permanently. Pure.

The key is the secret one of the crawl's hashes, 16 random bytes (rules/places.py). It and the digests are in the
crawl's record, and in `bound.json` of each folder: so a rebuild, a move, and an engine that is filled from a backup
keep the domains out, too. The name of a domain is nowhere. Whoever has the record can test a name that they guess.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of

DIGEST_BYTES = 16
HOSTS_MAX = 50_000  # remembered; some 100 bytes each
_LABEL = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class ForgottenDomain(msgspec.Struct, frozen=True, kw_only=True):
    """`at`: when it was forgotten first; wall clock, s."""

    digest: str
    at: float


class Forgotten:
    """The forgotten domains of one crawl."""

    def __init__(self, domains: Iterable[ForgottenDomain], hash_key: bytes) -> None:
        self._at = {one.digest: one.at for one in domains}
        self._hash_key = hash_key
        self._by_host: dict[str, float] = {}

    def since(self, url: str) -> float:
        """When the domain of a canonical URL was forgotten, wall clock (s); 0: it was not."""
        host = host_of(url)
        known = self._by_host.get(host)
        if known is None:
            if len(self._by_host) >= HOSTS_MAX:
                self._by_host.clear()
            digest = digest_of(registrable_domain(host), self._hash_key)
            known = self._by_host[host] = self._at.get(digest, 0.0)
        return known

    def has(self, url: str) -> bool:
        """Was the domain of a canonical URL forgotten?"""
        return self.since(url) > 0

    def has_root(self, root: str) -> bool:
        """Does a root of a scope name a forgotten domain? (See rules/scope.py.)"""
        return any(self.has(url) for url in urls_of_root(root))


def forgotten_of(domains: Iterable[ForgottenDomain], hash_key: bytes) -> Forgotten | None:
    """None for a crawl that has forgotten none: it pays nothing."""
    found = tuple(domains)
    return Forgotten(found, hash_key) if found else None


def digest_of(domain: str, hash_key: bytes) -> str:
    """What stays of a domain."""
    return blake2b(domain.encode(), digest_size=DIGEST_BYTES, salt=hash_key, person=b"forgotten").hexdigest()


def united(*some: Iterable[ForgottenDomain]) -> tuple[ForgottenDomain, ...]:
    """Each domain once, with its earliest time, in the order of the times."""
    found: dict[str, ForgottenDomain] = {}
    for one in (one for domains in some for one in domains):
        known = found.get(one.digest)
        if known is None or one.at < known.at:
            found[one.digest] = one
    return tuple(sorted(found.values(), key=lambda one: (one.at, one.digest)))


def urls_of_root(root: str) -> list[str]:
    """The URLs that a root of a scope names; a domain or a host counts as one."""
    kind, _, place = root.partition(":")
    if kind == "any":
        return []
    return [text if "://" in text else f"http://{text}/" for text in place.split(" ") if text]


class Named:
    """Finds a domain's name in text: as a whole, or behind a dot; so `example.com` is not in `notexample.com`, nor in
    `example.com.au`. Below a public suffix, as `github.io`, all names are other domains. Time is linear in the text.
    """

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self._name = domain.lower().encode()
        self._is_name = domain[:1] != "["
        self._has_hosts = registrable_domain(f"x.{domain}") == domain

    def is_in(self, text: bytes) -> bool:
        """Is the domain, or a host of it, named there?"""
        if len(text) < len(self._name):
            return False
        lowered, name = text.lower(), self._name
        at = lowered.find(name)
        while at >= 0:
            end = at + len(name)
            if not self._is_name or (self._begins(lowered, at) and self._ends(lowered, end)):
                return True
            at = lowered.find(name, at + 1)
        return False

    def _begins(self, text: bytes, at: int) -> bool:
        if at == 0 or text[at - 1] not in _LABEL:
            return self._has_hosts or text[at - 1 : at] != b"."
        # an escape before it: \nexample.com in JSON, %2Fexample.com in a query
        return text[at - 2 : at - 1] == b"\\" or (at >= 3 and text[at - 3 : at - 2] == b"%")

    @staticmethod
    def _ends(text: bytes, end: int) -> bool:
        after = text[end : end + 1]
        if after and after[0] in _LABEL:
            return False
        return not (after == b"." and text[end + 1 : end + 2] and text[end + 1] in _LABEL)

    def owns(self, url: str) -> bool:
        """Is a canonical URL of the domain?"""
        return registrable_domain(host_of(url)) == self.domain

    def owns_queue(self, queue: str) -> bool:
        """Is a queue, which has the name of a domain or of a host, of the domain?"""
        return queue == self.domain or (queue.endswith(f".{self.domain}") and registrable_domain(queue) == self.domain)


def without_name(value: Any, named: Named) -> Any:
    """A value of JSON, in which each text that names the domain is empty."""
    if isinstance(value, str):
        return "" if named.is_in(value.encode("utf-8", "replace")) else value
    if isinstance(value, list):
        return [without_name(one, named) for one in value]
    if isinstance(value, dict):
        return {name: without_name(one, named) for name, one in value.items()}
    return value
