"""Where a URL belongs and how it is recognised: fingerprint and partition. Pure."""

from hashlib import blake2b

from crawler.rules.session_ids import without_session

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
