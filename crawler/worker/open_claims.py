"""The claims of one instance that have not ended here, and where in memory each of them is."""

import asyncio
import enum
from collections import Counter
from collections.abc import Collection

from crawler.errors import InvariantError
from crawler.model import Claim
from crawler.rules.places import twin_of


class ClaimPlace(enum.StrEnum):
    """Where a claim is, in the words of logs. `OpenClaims` has the place of each; whoever moves it there says so."""

    ARRIVED = "claimed"  # just now: what must be known of its run is read
    QUEUED = "in its queue"  # until that is due
    AT_ADDRESS = "waiting for its address"  # which has no room for another request
    REACHING = "being reached"  # looked up or connected to, outside of its turn
    IN_TURN = "in its turn"  # a worker has it, and has sent nothing
    REQUESTED = "requested"  # a page, a robots.txt or a login
    ANSWERED = "answered"  # it is judged, parsed and handled
    CUT_OFF = "cut off"  # its request, as the instance stops
    OUTCOME = "waiting for a commit"  # the outcome is known
    STORING = "being archived"
    COMMITTING = "being committed"  # routed and acknowledged
    HELD_BACK = "held back"  # its links wait for what their domain may introduce


class OpenClaims:
    """The claims of one instance that are neither acked nor returned. To end a claim twice is a bug.

    One whose partition was lost has ended, although a worker may still have it: where that goes is not kept.
    """

    def __init__(self, claims_max: int, *, knows_twins: bool = False) -> None:
        """`knows_twins`: may the twin of a claim (rules/places.py) be among them?"""
        self._claims_max = claims_max
        self._by_fingerprint: dict[str, Claim] | None = {} if knows_twins else None  # of the crawl itself
        self._places: dict[int, dict[str, ClaimPlace]] = {}  # by partition and token
        self.total = 0
        self.some, self.none = asyncio.Event(), asyncio.Event()  # set while there are some, or none
        self.none.set()
        self.ever = 0  # how many were opened
        self.own = 0  # without those of runs; the next one, too
        self.own_ever = 0

    def opened(self, claims: Collection[Claim]) -> None:
        """The engine has delivered these."""
        for claim in claims:
            places = self._places.setdefault(claim.partition, {})
            is_new = claim.token not in places
            self.total += is_new
            self.ever += is_new
            self.own += is_new and not claim.run
            self.own_ever += is_new and not claim.run
            places.setdefault(claim.token, ClaimPlace.ARRIVED)
            if self._by_fingerprint is not None and not claim.run:
                self._by_fingerprint[claim.fingerprint] = claim
        if self.total:
            self.some.set()
            self.none.clear()

    def moved(self, claim: Claim, place: ClaimPlace) -> None:
        """It is there now."""
        places = self._places.get(claim.partition)
        if places is not None and claim.token in places:
            places[claim.token] = place

    def place_of(self, claim: Claim) -> ClaimPlace | None:
        """None: it has ended."""
        return self._places.get(claim.partition, {}).get(claim.token)

    def place_of_twin(self, claim: Claim) -> ClaimPlace | None:
        """Where the same URL is as a requisite, for a page; as a page, for a requisite. None: not among these."""
        twin = self._by_fingerprint.get(twin_of(claim.fingerprint)) if self._by_fingerprint else None
        return self.place_of(twin) if twin is not None else None

    def by_place(self) -> Counter[ClaimPlace]:
        """How many are where."""
        return Counter(place for places in self._places.values() for place in places.values())

    def ended(self, claim: Claim) -> None:
        """The work on this claim is over here."""
        places = self._places.get(claim.partition, {})
        if places.pop(claim.token, None) is None:
            raise InvariantError(f"a claim has ended twice: {claim.url}")
        if self._by_fingerprint:
            known = self._by_fingerprint.get(claim.fingerprint)
            if known is not None and known.token == claim.token:
                del self._by_fingerprint[claim.fingerprint]
        self.total -= 1
        self.own -= not claim.run
        if not places:
            del self._places[claim.partition]
        if not self.total:
            self.some.clear()
            self.none.set()

    def has_any(self, partition: int) -> bool:
        """Are claims of this partition open?"""
        return partition in self._places

    @property
    def room(self) -> int:
        """How many more claims may be opened."""
        return self._claims_max - self.total

    @property
    def is_scarce(self) -> bool:
        """Is more than half of the room taken? Then nothing is claimed ahead of its time."""
        return 2 * self.total > self._claims_max
