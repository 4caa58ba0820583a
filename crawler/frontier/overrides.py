"""An operator's overrides: what is paused or blocked, domains with their own delay or boost, and users' weights.

They are stored in the engine, so they survive instances.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.deferred import BLOCKED, PAUSED
from crawler.frontier.keys import Keys

EVERYWHERE = "*"  # in place of a domain


class OverrideKind(StrEnum):
    """Kinds of overrides. LEAST is a note for audits: the shortest delay that a domain ever had (ms)."""

    PAUSED = PAUSED
    BLOCKED = BLOCKED
    DELAY = "delay"
    BOOST = "boost"
    LEAST = "least"
    WEIGHT = "weight"  # of a user, not of a domain


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """All overrides at one time; delays in ms, boosts from -9 to 9. `version` grows with each change.

    `weights`: of the users that have another one than 1.
    """

    version: int = 0
    paused: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    delays_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    least_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    boosts: Mapping[str, int] = msgspec.field(default_factory=dict)
    weights: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def is_paused(self) -> bool:
        """Is the whole crawl paused?"""
        return EVERYWHERE in self.paused

    def has(self, domain: str) -> bool:
        """Does any command hold for this domain?"""
        return any(domain in some for some in (self.paused, self.blocked, self.delays_ms, self.boosts))

    def stop_of(self, domain: str) -> str:
        """The reason for which the queues of a domain are stopped, or ""."""
        if domain in self.blocked:
            return BLOCKED
        return PAUSED if domain in self.paused else ""

    def holds_back(self, domain: str) -> bool:
        """Must no request to this domain start?"""
        return self.is_paused or bool(self.stop_of(domain))


class OverrideStore:
    """The overrides of one crawl. Each call is safe to repeat; all raise EngineError."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> Overrides:
        """All overrides; the version is read first, so it is never too new."""
        version, raw = await self._engine.commands(
            [("HGET", self._keys.crawl, "orders"), ("HGETALL", self._keys.overrides)]
        )
        found: dict[str, dict[str, int]] = {kind: {} for kind in OverrideKind}
        weights: dict[str, float] = {}
        for name, value in pairs_of(raw):
            kind, _, domain = name.decode().partition(" ")
            if kind == OverrideKind.WEIGHT:
                weights[domain] = float(value)
            else:
                found[kind][domain] = int(value)
        return Overrides(
            version=int(version or 0),
            paused=frozenset(found[OverrideKind.PAUSED]),
            blocked=frozenset(found[OverrideKind.BLOCKED]),
            delays_ms=found[OverrideKind.DELAY],
            least_ms=found[OverrideKind.LEAST],
            boosts=found[OverrideKind.BOOST],
            weights=weights,
        )

    async def give(self, kind: OverrideKind, domain: str, value: float = 1) -> bool:
        """Set an override; False when it had this value already. Instances read it within a second."""
        before, *_ = await self._engine.commands(
            [
                ("HGET", self._keys.overrides, _name(kind, domain)),
                ("HSET", self._keys.overrides, _name(kind, domain), value),
                ("HINCRBY", self._keys.crawl, "orders", 1),
            ]
        )
        return before is None or float(before) != value

    async def cancel(self, kind: OverrideKind, domain: str) -> bool:
        """Remove an override; False when there was none."""
        gone, _ = await self._engine.commands(
            [("HDEL", self._keys.overrides, _name(kind, domain)), ("HINCRBY", self._keys.crawl, "orders", 1)]
        )
        return bool(gone)


def _name(kind: OverrideKind, domain: str) -> str:
    return f"{kind} {domain}"
