"""Real input: the HTML of Debian's python3-doc through a real HTTP server, and the archive read back whole."""

import gzip
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler.archive.folder import open_existing
from crawler.archive.warc_reader import read_record
from tests.crawl.harness import crawl, settings_of
from tests.support.reach import reach_of_folder
from tests.support.serving import serve_directory

PYTHON_DOCS = Path("/usr/share/doc/python3.11/html")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON_DOCS.exists(), reason="Debian's python3-doc is not installed")
async def test_a_crawl_of_the_python_documentation_commits_what_its_links_reach(tmp_path: Path) -> None:
    with serve_directory(PYTHON_DOCS) as site:
        root = site.url("127.0.0.1", "/index.html")
        settings = settings_of(
            tmp_path / "c", politeness__concurrency_per_queue=8, scope__exclude=[r"/_sources/"], fetch__concurrency=8
        )
        done = await crawl(settings, [root])
        requests = [r for r in site.requests() if not r.is_robots]
    reachable = {url: status for url, status in reach_of_folder(PYTHON_DOCS, root).items() if "/_sources/" not in url}
    assert done.statuses == reachable
    assert len(requests) == len(reachable)
    _assert_archive_is_whole(tmp_path / "c", done.entries)


def _assert_archive_is_whole(folder: Path, entries: list) -> None:
    """warcio reads every record and checks its digests; gzip reads every byte; index lines and records agree."""
    responses = {}
    for file in sorted((folder / "warc").iterdir()):
        with gzip.open(file) as stream:
            while stream.read(1 << 20):
                pass
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                if record.rec_type == "response":
                    record.content_stream().read()
                    responses[record.rec_headers.get_header("WARC-Target-URI")] = record.http_headers.get_statuscode()
    assert {e.url: str(e.status) for e in entries} == responses
    opened = open_existing(folder)
    for entry in entries[:20]:
        assert len(read_record(opened, entry.warc).payload) == entry.body_bytes
