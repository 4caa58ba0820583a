"""A disk that fails at the end of a crawl, and a failure while a failed crawl leaves: the disk is what is reported."""

from pathlib import Path

import pytest

from crawler.archive.warc_writer import WarcWriter
from crawler.errors import ArchiveError, InvariantError
from crawler.membership.ownership import Ownership
from crawler.worker.archive import ArchiveStage
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_web

FULL = ArchiveError("can't write: No space left on device")


async def errors_of(folder: Path, pages_max: int) -> list[BaseException]:
    with serve_web(seed=16, domains=2, pages=2) as site:
        async with lab_names() as dns:
            settings = settings_of(folder, dns__nameservers=[dns], scope__mode="any", crawl__pages_max=pages_max)
            return (await crawl(settings, site.web.seeds)).errors


async def test_an_index_that_is_not_written_at_the_end_fails_the_crawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are committed, and an export would lack them."""

    async def full(stage: ArchiveStage, timeout_s: float) -> None:
        raise FULL

    monkeypatch.setattr(ArchiveStage, "settle", full)
    assert await errors_of(tmp_path / "c", 3) == [FULL]


async def test_a_failure_while_leaving_does_not_hide_the_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(writer: WarcWriter) -> None:
        raise FULL

    async def broken(ownership: Ownership) -> None:
        raise InvariantError("a claim has ended twice")

    monkeypatch.setattr(WarcWriter, "sync", full)
    monkeypatch.setattr(Ownership, "leave", broken)
    assert await errors_of(tmp_path / "c", 0) == [FULL]
