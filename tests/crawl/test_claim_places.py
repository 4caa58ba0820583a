"""Where the claims of a crawl are: each in one place after the other, and nowhere at its end."""

from collections import defaultdict
from pathlib import Path

import pytest

from crawler.model import Claim
from crawler.worker.open_claims import ClaimPlace, OpenClaims
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import crawl, settings_of
from tests.support.serving import serve_resources

COMMITTED = [
    ClaimPlace.QUEUED, ClaimPlace.IN_TURN, ClaimPlace.REQUESTED, ClaimPlace.ANSWERED, ClaimPlace.OUTCOME,
    ClaimPlace.STORING, ClaimPlace.COMMITTING,
]  # fmt: skip


async def test_a_page_goes_from_place_to_place_to_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = defaultdict[str, list[ClaimPlace]](list)
    moved = OpenClaims.moved

    def noted(self: OpenClaims, claim: Claim, place: ClaimPlace) -> None:
        moves[claim.url].append(place)
        moved(self, claim, place)

    monkeypatch.setattr(OpenClaims, "moved", noted)
    with serve_resources({(HOST, "/"): page("/a"), (HOST, "/a"): page()}) as site:
        done = await crawl(settings_of(tmp_path / "c"), [site.url(HOST)])
        urls = [site.url(HOST), site.url(HOST, "/a")]
    assert done.errors == []
    assert moves.keys() == {*urls}
    assert all(places[-len(COMMITTED) :] == COMMITTED for places in moves.values()), moves
    assert [one.work.open_claims.by_place() for one in done.instances] == [{}]
