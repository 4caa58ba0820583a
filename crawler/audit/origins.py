"""What the instances have shared of the robots.txt of origins, as judges need it."""

import msgspec

from crawler.frontier.reads import BulkLookup
from crawler.rules.robots import RobotsRules, SharedRobots
from crawler.rules.urls import authority_of, host_of


class OriginRobots(msgspec.Struct, frozen=True):
    """An origin, the rules for our agent, and when they were read last (wall clock, s)."""

    url: str
    rules: RobotsRules
    read_at: float

    @property
    def host(self) -> str:
        return host_of(f"{self.url}/")

    def serves(self, host: str, port: int) -> bool:
        """Is it this host's, and of this port if one is told (0: it is not)?"""
        authority = authority_of(f"{self.url}/")
        if self.host != host:
            return False
        if not port:
            return True
        return authority == f"{host}:{port}" or (authority == host and port in (80, 443))


async def origins_of(states: BulkLookup, partition: int) -> list[OriginRobots]:
    """All origins of a partition whose robots.txt somebody has read."""
    found = []
    for url, blob in (await states.robots(partition)).items():
        stored = SharedRobots.unpack(blob)
        if stored is not None:
            found.append(OriginRobots(url, stored.rules, stored.read_at))
    return found
