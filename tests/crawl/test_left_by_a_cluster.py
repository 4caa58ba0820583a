"""A crawl that was moved from a cluster to one server: what a dead session had told there is sent here, and it ends."""

from pathlib import Path

from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import crawl, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_resources


async def test_files_of_a_session_that_died_on_a_cluster_do_not_keep_a_crawl_from_ending(
    tmp_path: Path, engine: Engine
) -> None:
    with serve_resources({(HOST, "/"): page()}) as site:
        settings = settings_of(tmp_path / "c", frontier__redis=engine.url)
        await crawl(settings, [site.url(HOST)])
        left = tmp_path / "c" / "sessions" / "bb22.told1"
        left.write_bytes(b"\0")  # torn in its first call
        done = await crawl(settings, [site.url(HOST)])
    assert (done.errors, left.exists()) == ([], False)
