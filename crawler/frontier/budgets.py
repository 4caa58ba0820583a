"""What of a domain is fetched and taken in at most, as the scripts are told; 0 is no limit. Must not know settings.

And what of a whole crawl, which instances follow among themselves: no script knows more than one partition.
"""

import msgspec


class FetchQuota(msgspec.Struct, frozen=True, kw_only=True):
    """What of a queue is fetched. URLs beyond it are parked."""

    pages: int = 0
    bytes: int = 0
    depth: int = 0


class AddQuota(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken in when URLs are added: so many of a queue, so many hosts of a domain. Others are parked.

    With `urls`, as many more of a queue as `urls_per_linking_domain` for each other domain that links to it.
    """

    urls: int = 0
    hosts: int = 0
    urls_per_linking_domain: int = 0


class QuotaReached(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of the whole crawl that is used up: nothing is handed out while this stands in the engine."""

    reason: str  # as of parked URLs: "crawl:pages", "crawl:bytes"
    budget: int
