"""What an instance counts of its claims."""

import pytest

from crawler.errors import InvariantError
from crawler.worker.counters import Counters
from crawler.worker.open_claims import ClaimPlace, OpenClaims
from tests.worker.test_schedule import claim


def test_claims_are_counted_until_they_end() -> None:
    counters = Counters(OpenClaims(20), pages_max=10)
    claims = [claim(n, partition=3) for n in range(4)]
    counters.open_claims.opened(claims)
    for one in claims[:3]:
        counters.open_claims.ended(one)
    assert (counters.open_claims.total, counters.open_claims.room, counters.pages_left()) == (1, 19, 9)
    assert counters.open_claims.has_any(3)
    counters.open_claims.ended(claims[3])
    assert not counters.open_claims.has_any(3)


def test_the_place_of_a_claim_is_kept_until_it_ends() -> None:
    """Also when it is delivered again, as after an answer that was lost."""
    open_claims, one, other = OpenClaims(20), claim(1), claim(2)
    open_claims.opened([one, other])
    open_claims.moved(one, ClaimPlace.OUTCOME)
    open_claims.opened([one])
    assert open_claims.by_place() == {ClaimPlace.OUTCOME: 1, ClaimPlace.ARRIVED: 1}
    open_claims.ended(one)
    open_claims.moved(one, ClaimPlace.STORING)  # its partition was lost while it was worked on
    assert (open_claims.place_of(one), open_claims.place_of(other)) == (None, ClaimPlace.ARRIVED)
    assert open_claims.total == 1


def test_a_claim_that_ends_twice_is_an_error_of_ours() -> None:
    open_claims = OpenClaims(20)
    open_claims.opened([claim(1)])
    open_claims.ended(claim(1))
    with pytest.raises(InvariantError, match="ended twice"):
        open_claims.ended(claim(1))


def test_claims_are_scarce_when_more_than_half_of_the_room_is_taken() -> None:
    open_claims = OpenClaims(2)
    open_claims.opened([claim(1)])
    assert not open_claims.is_scarce
    open_claims.opened([claim(2)])
    assert open_claims.is_scarce
