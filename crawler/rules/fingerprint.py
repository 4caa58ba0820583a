"""Where a URL belongs and how it is recognised: fingerprint and partition. Pure."""

from hashlib import blake2b

from crawler.rules.session_ids import without_session

DOMAIN_HASH_BYTES = 8


def fingerprint(url: str, run: int = 0) -> str:
    """64-bit fingerprint of a canonical URL in a run, as the decimal of a signed integer (the engine's intset form).

    A session id of the kinds that everybody names alike has no part in it: such URLs are one.
    """
    url = without_session(url)
    text = f"{run}\x00{url}" if run else url
    return str(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True))


def partition_of(domain: str, partitions: int) -> int:
    """The partition of a domain; `partitions` is fixed when a crawl is created."""
    digest = blake2b(domain.encode(), digest_size=DOMAIN_HASH_BYTES, person=b"partition").digest()
    return int.from_bytes(digest, "big") % partitions
