"""What remains of a domain's quotas after they were raised. Pure; 0 means no limit."""

from hashlib import blake2b

LINK_PLACES = 224  # as in lua/_admission.lua


def is_left(used: int, budget: int) -> bool:
    """Does a quota of pages or bytes allow more?"""
    return budget == 0 or used < budget


def is_within(depth: int, budget: int) -> bool:
    """Is a URL at this depth within the limit?"""
    return budget == 0 or depth <= budget


def room_of(*, met: int, deferred: int, budget: int) -> int:
    """How many deferred URLs a quota of URLs would admit now; `met`: the number of all URLs ever found.

    URLs that an operator released count as admitted.
    """
    return deferred if budget == 0 else max(0, min(deferred, budget - (met - deferred)))


def link_place(domain: str, hash_key: bytes) -> int:
    """The bit of a linking domain in the record of the queue that it links to; 0 to LINK_PLACES - 1.

    Because of the crawl's key, nobody can choose domains with different bits or with the same one.
    """
    digest = blake2b(domain.encode(), digest_size=8, person=b"link", salt=hash_key).digest()
    return int.from_bytes(digest, "big") % LINK_PLACES


def grown(budget: int, per_linking_domain: int, links: str) -> int:
    """A quota of URLs plus what linking domains add to it; `links`: their bits, seven to a character."""
    return budget and budget + per_linking_domain * sum(ord(bits).bit_count() for bits in links)
