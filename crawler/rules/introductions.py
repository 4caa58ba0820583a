"""How much the pages of one domain may introduce: URLs of other queues, which cost the engine memory. Pure.

A token bucket for each linking domain: BURST_BYTES at once, then BYTES_PER_S. Its owner waits for the rest.

A queue with one URL can't move to disk. So 81 pages of 107 KB, each with 1,200 links of 8 KB to as many domains, filled
an engine for ever: above the mark nothing was claimed, and nothing freed. What the engine knew already is refunded, so
a site whose pages all lead to the same hosts is never slowed. Links to the page's own queue are free: long queues move
to disk.

The page waits, not the links (worker/route.py). It is archived and not acked, its claim is extended, and it joins a
later group each second until nothing is left. So the order of a commit and the end of a crawl hold by themselves, and
nothing is stored that could disagree with the engine. An instance holds 64 MiB and 128 such pages; the newest beyond
that are returned. An add that a full engine refuses holds its pages back in the same way.

With an engine of 100 MB an innocent site of 100 pages beside these 81 is complete after 57 s, and the engine uses 11
MB; it was stuck at 18 pages and 152 MB. Not covered: whoever has a thousand domains has a thousand buckets, until the
engine is full; a new owner of a domain begins with a full one; dead letters keep their URLs in memory. Links that wait
are not stored in the engine, which is what is full, nor in a file, a second truth, nor refused without need.
"""

from collections import OrderedDict

BURST_BYTES = 4 << 20  # some 7,000 ordinary links to new domains, or 480 of 8 KB
BYTES_PER_S = 128 << 10  # some 220 ordinary links to new domains a second
FULL_BYTES = 64 << 10  # of the burst, while the engine has no room: some 110 ordinary links
QUEUE_BYTES = 512  # what a new queue costs the engine, next to its URL
DOMAINS_MAX = 20_000  # whose bucket is not full: more than an instance gets new ones in the 32 s that fill a bucket


def cost(url: str) -> int:
    """What introducing this URL takes, bytes."""
    return len(url) + QUEUE_BYTES


class Introductions:
    """The buckets of linking domains. A full one needs no entry; of too many, the least recently used is forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # bytes, as of a time in ms

    def __len__(self) -> int:
        return len(self._buckets)

    def room(self, domain: str, now_ms: int, *, is_full: bool = False) -> float:
        """How many bytes a domain may introduce now. Not above 0: none. `is_full`: has the engine no room?"""
        left, at_ms = self._buckets.get(domain, (BURST_BYTES, now_ms))
        room = min(BURST_BYTES, left + (now_ms - at_ms) * BYTES_PER_S / 1000)
        return room - max(0, BURST_BYTES - FULL_BYTES) if is_full else room

    def spend(self, domain: str, spent_bytes: int, now_ms: int) -> None:
        """A domain has introduced this much; negative for a refund."""
        left = self.room(domain, now_ms) - spent_bytes
        if left >= BURST_BYTES:
            self._buckets.pop(domain, None)
            return
        self._buckets[domain] = left, now_ms
        self._buckets.move_to_end(domain)
        if len(self._buckets) > DOMAINS_MAX:
            self._buckets.popitem(last=False)

    def wait_ms(self, domain: str, wanted_bytes: int, now_ms: int) -> int:
        """How long it takes until a domain may have introduced this much more."""
        return max(0, int((wanted_bytes - self.room(domain, now_ms)) * 1000 / BYTES_PER_S))
