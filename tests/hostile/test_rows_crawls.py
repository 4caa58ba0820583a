"""What only a crawl shows: honeypots, tarpits, link bombs, pages that change, bodies of gigabytes (T, W)."""

import itertools
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.hostile.crawled import Outcome, Site, check, crawl_all, links, ok
from tests.support.hostile_server import Hold, Repeat, Step

LIMIT = 300_000
DRIP: list[Step] = [b"HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n", Repeat(b"a", 0.05)]
BOMBED = tuple(f"http://t07-target.test:PORT0/{n}" for n in range(500))
HUGE = b"HTTP/1.1 200 OK\r\nX-Odd: a\r\n WARC-Target-URI: http://evil.test/\r\nContent-Length: 4294967296\r\n\r\n"

SITES: dict[str, Site] = {
    "T07-link-bomb": Site({"/": links(*BOMBED, "/2"), "/2": links(*BOMBED, "/good"), "/good": ok(""),
                           "t07-target.test/robots.txt": ok("User-agent: *\nDisallow: /", "text/plain")},
                          wanted=("/good",), unwanted=("t07-target.test/1",)),
    "T07-slow-growth": Site({"/": links("/p1", "/good"), "/good": ok(""),
                             **{f"/p{n}": links(f"/p{n + 1}", f"/p{n + 2}") for n in range(1, 400)}},
                            wanted=("/good", "/p40"), unwanted=("/p300",), requests_max=130),
    "T08-honeypot": Site({"/": links("/trap/1", "/good"), "/good": links("/trap/2"), "/trap/1": ok(""),
                          "/robots.txt": ok("User-agent: *\nDisallow: /trap/", "text/plain")},
                         wanted=("/good",), unwanted=("/trap",)),
    **{f"T09-tarpit-{n}": Site({"/": DRIP}, wanted=("/",), requests_max=3) for n in range(40)},
    **{f"T09-silent-{n}": Site({"/": [Hold()]}, requests_max=3) for n in range(20)},
    "T10-never-the-same": Site({"/": links("/", "/?", "/#a", "/good"), "/good": links("/")}, wanted=("/good",),
                               requests_max=5),
    "W01-four-gibibytes": Site({"/": links("/huge", "/good"), "/good": ok(""),
                                "/huge": [HUGE, Repeat(b"a" * 65536)]}, wanted=("/huge", "/good")),
}  # fmt: skip


class Crawled:
    def __init__(self, outcome: Outcome, folder: Path) -> None:
        self.outcome, self.folder = outcome, folder


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    folder: Path = tmp_path_factory.mktemp("crawls") / "c"
    outcome = crawl_all(
        SITES, folder, fetch__body_bytes_max=LIMIT, fetch__concurrency=24, budget__urls=120, retry__attempts=1,
        retry__timeout__attempts=1, retry__body__attempts=1,
    )  # fmt: skip
    return Crawled(outcome, folder)


@pytest.mark.parametrize("row", [*(row for row in SITES if not row.startswith("T09")), "T09-tarpit-0", "T09-silent-0"])
def test_row(row: str, crawled: Crawled) -> None:
    check(row, SITES[row], crawled.outcome)
    if row.startswith("W01"):
        check_archive(crawled)
    if row.startswith("T09"):
        # Eighteen of them at a time hold the workers that they may; all other sites have few pages.
        assert crawled.outcome.answered_at_once >= 12


FILTERS = ("brand", "color", "price", "size", "stock", "sort")
FILTERED = {
    f"/shop?{'&'.join(f'{name}=1' for name in chosen)}": chosen
    for count in range(1, len(FILTERS) + 1) for chosen in itertools.permutations(FILTERS, count)
}  # fmt: skip
FACETS = {
    "T06-filters": Site({
        "/": links(*(f"/shop?{name}=1" for name in FILTERS)),
        **{url: links(*(f"{url}&amp;{name}=1" for name in FILTERS if name not in chosen),
                      f"/item/{chosen[0]}-{len(chosen)}") for url, chosen in FILTERED.items()},
        **{f"/item/{name}-{n}": ok(f"{name} {n}") for name in FILTERS for n in range(1, 7)},
    }, wanted=("/", *(url for url, chosen in FILTERED.items() if len(chosen) <= 2),
               *(f"/item/{name}-{n}" for name in FILTERS for n in (1, 2))), requests_max=130),
}  # fmt: skip


@pytest.mark.parametrize("row", FACETS)
def test_row_of_filters_that_add_up(row: str, tmp_path: Path) -> None:
    """1,956 lists of six filters in any order: those of up to two are fetched, and of the others as many as may be."""
    outcome = crawl_all(FACETS, tmp_path / "c", traps__parameters=2, traps__suspects_max=30, frontier__claim_urls_max=4)
    check(row, FACETS[row], outcome)
    further = [url for url in outcome.entries if url.count("&") >= 2]
    assert len(FILTERED) > 1900
    assert 30 <= len(further) <= 30 + 4 * 4, "and the URLs that a queue without a delay may have claimed"


def check_archive(crawled: Crawled) -> None:
    """The cut is marked, each record has its digests, and no header of the site became one of the archive's."""
    found = 0
    for file in crawled.folder.rglob("*.warc.gz"):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                uri = record.rec_headers.get_header("WARC-Target-URI") or ""
                assert "evil.test" not in uri
                body = record.content_stream().read()
                if record.rec_type == "response" and uri.endswith("/huge"):
                    found += 1
                    assert record.rec_headers.get_header("WARC-Truncated") == "length"
                    assert record.rec_headers.get_header("WARC-Payload-Digest")
                    assert len(body) == LIMIT
    assert found == 1
