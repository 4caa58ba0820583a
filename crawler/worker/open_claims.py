"""The claims of one instance that have not ended here, and where in memory each of them is."""

import asyncio
from collections.abc import Collection

from crawler.errors import InvariantError
from crawler.model import Claim


class OpenClaims:
    """The claims of one instance that are neither acked nor returned. To end a claim twice is a bug."""

    def __init__(self, claims_max: int) -> None:
        self._claims_max = claims_max
        self._tokens: dict[int, set[str]] = {}
        self.total = 0
        self.some, self.none = asyncio.Event(), asyncio.Event()  # set while there are some, or none
        self.none.set()
        self.ever = 0  # how many were opened
        self.own = 0  # without those of runs; the next one, too
        self.own_ever = 0

    def opened(self, claims: Collection[Claim]) -> None:
        """The engine has delivered these."""
        for claim in claims:
            tokens = self._tokens.setdefault(claim.partition, set())
            is_new = claim.token not in tokens
            self.total += is_new
            self.ever += is_new
            self.own += is_new and not claim.run
            self.own_ever += is_new and not claim.run
            tokens.add(claim.token)
        if self.total:
            self.some.set()
            self.none.clear()

    def ended(self, claim: Claim) -> None:
        """The work on this claim is over here."""
        tokens = self._tokens.get(claim.partition, set())
        if claim.token not in tokens:
            raise InvariantError(f"a claim has ended twice: {claim.url}")
        tokens.remove(claim.token)
        self.total -= 1
        self.own -= not claim.run
        if not tokens:
            del self._tokens[claim.partition]
        if not self.total:
            self.some.clear()
            self.none.set()

    def has_any(self, partition: int) -> bool:
        """Are claims of this partition open?"""
        return partition in self._tokens

    @property
    def room(self) -> int:
        """How many more claims may be opened."""
        return self._claims_max - self.total

    @property
    def is_scarce(self) -> bool:
        """Is more than half of the room taken? Then nothing is claimed ahead of its time."""
        return 2 * self.total > self._claims_max
