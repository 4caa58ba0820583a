"""What happened besides pages is in the archive of a crawl, and is no commit to anybody."""

import zlib
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler import Crawler, Page
from crawler.archive.folder import open_existing
from crawler.archive.repair import walk_responses
from crawler.archive.warc import KIND
from crawler.archive.warc_writer import OF_EXCHANGES
from crawler.testing import Answer, Asked, crawl, serve
from tests.crawl.harness import crawl as crawl_here
from tests.crawl.harness import lab_names, settings_of
from tests.crawl.members_site import PASSWORD, MembersSite, redirect
from tests.crawl.rebuild_lab import audit, rebuild
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

A = "a.test"


def exchanges(folder: Path) -> list[tuple[str, str, str]]:
    """Kind, type and path of the records besides those of pages, and nothing else is in their files."""
    found = []
    for path in sorted((folder / "warc").iterdir()):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                fields = dict(record.rec_headers.headers)
                if record.rec_type != "warcinfo":
                    assert (KIND in fields) == (OF_EXCHANGES in path.name)
                if KIND in fields:
                    found.append((fields[KIND], record.rec_type, urlsplit(fields["WARC-Target-URI"]).path))
    return found


async def test_what_happened_is_archived_and_no_commit(tmp_path: Path, engine: Engine) -> None:
    """The audit finds nothing twice, lost or too much, nor does a rebuild, although robots.txt is there twice."""
    pages = {
        (A, "/robots.txt"): Resource(status=302, headers={"Location": "/other.txt"}),
        (A, "/other.txt"): Resource(content_type="text/plain", body="User-agent: *\nDisallow: /no\n"),
        (A, "/"): Resource(body="<a href=/page>x</a><a href=/no>x</a><a href=/bad>x</a>"),
        (A, "/page"): Resource(body="<p>x</p>"),
        (A, "/bad"): Resource(fails=1_000_000, fail_status=500),
    }
    with serve_resources(pages) as site:
        async with lab_names() as dns:
            options: dict[str, Any] = {"dns__nameservers": [dns], "frontier__redis": engine.url}
            settings = settings_of(tmp_path / "c", **options)
            done = await crawl_here(settings, [site.url(A)])
            await crawl_here(settings, [site.url(A, "/page?again")])
            assert await audit(settings) == 0
            found, folder = Counter(exchanges(tmp_path / "c")), open_existing(tmp_path / "c")
            assert found["robots", "response", "/robots.txt"] == found["robots", "request", "/other.txt"] >= 1
            assert found["failure", "metadata", "/bad"] == settings.retry.attempts
            assert {kind for kind, *_ in found} == {"robots", "failure"}
            assert len(list(walk_responses(folder))) == len(done.entries) + 1
            engine.flush()
            report = await rebuild(settings)
    assert (report.committed, report.records, report.unplaced) == (3, 3, 0)


class Walled(MembersSite):
    """A site for members behind a cookie wall, which also fails."""

    def respond(self, asked: Asked) -> Answer | None:
        path, cookie = urlsplit(asked.url).path, asked.headers.get("cookie", "")
        if path == "/robots.txt":
            self.asked.append(asked)
            return Answer(body=b"User-agent: *\n")
        if path == "/p/1":
            return Answer(status=500)
        if path == "/p/2" and "wall=" not in cookie:
            return redirect("/p/2", ("Set-Cookie", "wall=hush-of-wall; Path=/"))
        return super().respond(asked)


def test_no_secret_of_a_login_or_a_session_is_archived(tmp_path: Path) -> None:
    site, app = Walled(pages=4), Crawler()

    @app.login("https://club.test/login")
    def fill_in(page: Page) -> None:
        page.submit("#in", {"user": "me", "pass": PASSWORD})

    app.page()(lambda page: None)
    with serve(site) as web:
        crawl(app, "https://club.test/", web=web, folder=tmp_path / "c")
    assert site.logins == 1
    found = Counter(exchanges(tmp_path / "c"))
    assert found["cookie-wall", "response", "/p/2"] == 1
    assert found["failure", "metadata", "/p/1"] >= 1
    sids = [value for asked in site.asked if "sid=" in (value := asked.headers.get("cookie", ""))]
    secrets = {one.partition("sid=")[2].partition(";")[0].encode() for one in sids}
    assert secrets
    for path in (tmp_path / "c" / "warc").iterdir():
        text = b"".join(inflated(path.read_bytes()))
        for secret in (PASSWORD.encode(), b"hush-of-wall", b"/login"):
            assert secret not in text or (secret == b"/login" and OF_EXCHANGES not in path.name), secret
        assert not [one for one in secrets if b"sid=" + one in text]


def inflated(data: bytes) -> list[bytes]:
    found = []
    while data:
        inflater = zlib.decompressobj(31)
        found.append(inflater.decompress(data))
        data = inflater.unused_data
    return found


@pytest.mark.parametrize("warc", [True, False])
async def test_without_an_archive_there_are_none(tmp_path: Path, warc: bool) -> None:
    with serve_resources({(A, "/"): Resource(body="x")}) as site:
        async with lab_names() as dns:
            await crawl_here(settings_of(tmp_path / "c", dns__nameservers=[dns], archive__warc=warc), [site.url(A)])
    assert bool(exchanges(tmp_path / "c")) == warc
