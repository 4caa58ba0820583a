"""Pins: domains that people gave to a node. What a pin does to the ring is rules/ring.py's matter.

A pinned domain takes its whole partition along, since partitions are what is leased. So a partition can be pinned to
one node only.
"""

from collections.abc import Mapping

from crawler.engine.client import Engine
from crawler.errors import ConflictError
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.rules.fingerprint import partition_of


class Pins:
    """The pins of one crawl: one crawl-wide hash, domain -> node."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> dict[str, str]:
        """All pins: domain -> node."""
        raw = await self._engine.command("HGETALL", self._keys.pins)
        return {domain.decode(): node.decode() for domain, node in pairs_of(raw)}

    async def pin(self, domain: str, node: str, *, partitions: int) -> None:
        """Give a domain to a node, whether or not that node takes part now; a pin of the same domain is replaced.

        Raises ConflictError when another domain of the same partition is pinned to another node.
        """
        partition = partition_of(domain, partitions)
        for other, its_node in sorted((await self.read()).items()):
            if other != domain and its_node != node and partition_of(other, partitions) == partition:
                raise ConflictError(
                    f"{domain} shares partition {partition} with {other}, which is pinned to {its_node}: "
                    f"pin both to one node, or unpin {other} first"
                )
        await self._engine.command("HSET", self._keys.pins, domain, node)

    async def unpin(self, domain: str) -> bool:
        """Take a domain's pin away; False when it had none."""
        return bool(await self._engine.command("HDEL", self._keys.pins, domain))


def by_partition(pins: Mapping[str, str], partitions: int) -> dict[int, str]:
    """Pins as the ring takes them: partition -> node.

    Two people may pin two domains of one partition at the same moment: the first name of the two counts, everywhere.
    """
    nodes: dict[int, str] = {}
    for domain in sorted(pins):
        nodes.setdefault(partition_of(domain, partitions), pins[domain])
    return nodes
