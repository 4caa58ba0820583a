"""`crawler audit --replay`: archived pages opened in Chromium, which gets what is in the archive and nothing else."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.archive.folder import CrawlFolder, open_or_create
from crawler.archive.index_writer import IndexWriter
from crawler.archive.method_query import body_query
from crawler.audit import chromium, judge_replay, replay_page
from crawler.audit.judge_replay import Sample
from crawler.audit.replay_archive import Asked, ReplayArchive
from crawler.audit.replay_page import Sampled
from crawler.cli.main import main
from crawler.model import Request
from crawler.rules.progress import SILENT
from tests.archive.archive_samples import AT, entry, folder_in, response, writer_in
from tests.support.chromium import MISSING
from tests.support.serving import serve_resources

OK, BAD, UNCLEAN = 0, 2, 8
needs_chromium = pytest.mark.skipif(bool(MISSING), reason=MISSING)
PICTURE = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)
HTML, CSS, PNG, JS = "text/html", "text/css", "image/png", "text/javascript"
FORM = "application/x-www-form-urlencoded"
WHOLE = (
    """<!doctype html><title>Whole</title><link rel=stylesheet href=/s.css><img src=/p.png>
<img src=/missing.png><div style="height:6000px"></div><img loading=lazy src=http://a.test/far.png>
<iframe src=https://b.test/frame></iframe>
<script>
new Worker('/worker.js');
fetch('/api', {method: 'POST', headers: {'Content-Type': '"""
    + FORM
    + """'}, body: 'q=1'});
fetch('/api', {method: 'POST', headers: {'Content-Type': '"""
    + FORM
    + """'}, body: 'q=2'});
</script>"""
)
AWAY = """<!doctype html><title>Away</title><link rel=dns-prefetch href="//PLACE"><link rel=preconnect href="http://PLACE">
<link rel=prefetch href="http://PLACE/prefetch"><img src="http://PLACE/picture">
<script>
navigator.sendBeacon('http://PLACE/beacon', 'x'); new WebSocket('ws://PLACE/socket'); new EventSource('http://PLACE/e');
window.open('http://PLACE/window'); navigator.serviceWorker.register('/sw.js').catch(() => 0);
new RTCPeerConnection({iceServers: [{urls: 'stun:PLACE'}]}).createDataChannel('x');
fetch('http://PLACE/fetch', {mode: 'no-cors', keepalive: true});
setTimeout(() => location.replace('http://PLACE/gone'), 100); alert('wait');
</script>"""

MANY = """<title>Many</title><iframe src=/file></iframe><script>
for (let n = 0; n < 400; n++) { new Image().src = '/pictures/' + n + '.png'; }
</script>"""


def archive_in(root: Path, pages: dict[str, tuple[str, str | bytes]], **asked: Any) -> CrawlFolder:
    folder = open_or_create(root)
    index, writer = IndexWriter(folder, "aa11"), writer_in(folder)
    for number, (url, (mime, text)) in enumerate(pages.items()):
        body = text.encode() if isinstance(text, str) else text
        place, digest = writer.add(
            response(number, url=url, raw_body=body, headers=((b"Content-Type", mime.encode()),))
        )
        request = {}
        if url.endswith("/api"):
            head = f"\r\nContent-Type: {FORM}".encode()
            request = {"request": Request(method="POST"), "request_body": body_query("POST", head, b"q=1")}
        index.add(entry(number, warc=place, digest=digest, mime=mime, **{"url": url, **request}))
    writer.close()
    index.close()
    return folder


class Seen:
    """One run over all pages, looked at by several tests."""

    def __init__(self, report: dict[str, Any], requests: int, pictures: Path) -> None:
        self.report, self.requests_at_site, self.pictures = report, requests, pictures
        self.pages = {page["url"]: page for page in report["pages"]}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    home = tmp_path_factory.mktemp("replay")
    with pytest.MonkeyPatch.context() as patch, serve_resources({}) as site:
        patch.setattr(replay_page, "PAGE_S", 15.0)
        patch.setattr(replay_page, "REQUESTS_MAX", 200)
        place = f"127.0.0.1:{site.port}"
        folder = archive_in(
            home / "crawl",
            {
                "https://a.test/": (HTML, WHOLE),
                "https://a.test/s.css": (CSS, "body { background: url(/p.png) }"),
                "https://a.test/p.png": (PNG, PICTURE),
                "http://a.test/far.png": (PNG, PICTURE),
                "https://a.test/worker.js": (JS, "fetch('/from-worker')"),
                "https://a.test/api": ("application/json", "{}"),
                "http://b.test/frame": (HTML, "<img src=/in-frame.png>"),
                "http://b.test/in-frame.png": (PNG, PICTURE),
                "http://c.test/away": (HTML, AWAY.replace("PLACE", place)),
                "http://e.test/many": (HTML, MANY),
                "http://e.test/file": ("application/octet-stream", b"x" * 1000),
                "http://d.test/loop": (HTML, "<title>Loop</title><script>for (;;);</script>"),
            },
        )
        report = asyncio.run(judge_replay.judge_replay([folder], 10, chromium.find_chromium(), home / "seen", SILENT))
        from crawler.audit.replay_report import replay_json, replay_text

        assert replay_text(report).startswith("Replay of 5 pages of 5: ")
        yield Seen(replay_json(report), len(site.requests()), home / "seen")


@pytest.mark.slow(ci=True)
@needs_chromium
def test_what_a_page_requests_is_answered_from_the_archive(seen: Seen) -> None:
    """Of frames and workers, too, and pictures that wait until they are scrolled to; the rest is named."""
    page = seen.pages["https://a.test/"]
    assert page["failed"] == ""
    assert {(one["url"], one["kind"]) for one in page["missing"]} == {
        ("https://a.test/missing.png", "Image"),
        ("https://a.test/from-worker", "XHR"),
        ("https://a.test/api", "XHR"),
    }
    assert page["requests"] - page["answered"] == 3
    assert page["answered"] >= 8


@pytest.mark.slow(ci=True)
@needs_chromium
def test_nothing_that_a_page_tries_reaches_a_server(seen: Seen) -> None:
    assert seen.requests_at_site == 0
    missing = {one["url"].rpartition("/")[2] for one in seen.pages["http://c.test/away"]["missing"]}
    assert {"picture", "beacon", "e"} <= missing


@pytest.mark.slow(ci=True)
@needs_chromium
def test_a_page_that_never_ends_fails_by_itself(seen: Seen) -> None:
    page = seen.pages["http://d.test/loop"]
    assert page["failed"] == "not done within 15 s"
    assert not seen.pages["https://a.test/"]["failed"]


@pytest.mark.slow(ci=True)
@needs_chromium
def test_a_page_that_requests_without_end_is_cut(seen: Seen) -> None:
    """Beyond the bound nothing is answered; what is missing is counted, and named up to a hundred."""
    page = seen.pages["http://e.test/many"]
    assert page["failed"] in ("", "not done within 15 s")
    assert page["answered"] <= 200 < page["requests"]
    assert len(page["missing"]) == replay_page.MISSING_MAX
    assert page["kinds"]["Image"] >= 200 - page["answered"]


@pytest.mark.slow(ci=True)
@needs_chromium
def test_there_is_a_picture_of_each_page_and_a_row_of_each_domain(seen: Seen) -> None:
    pictures = {page["picture"] for page in seen.report["pages"] if page["picture"]}
    assert {one.name for one in seen.pictures.iterdir()} == pictures
    assert seen.pages["https://a.test/"]["picture"].startswith("a.test-index-")
    assert {one["domain"]: one["pages"] for one in seen.report["domains"]} == dict.fromkeys(
        ("a.test", "b.test", "c.test", "d.test", "e.test"), 1
    )
    assert sum(seen.report["kinds"].values()) == seen.report["requests"] - seen.report["answered"]


@pytest.mark.slow(ci=True)
@needs_chromium
async def test_a_page_that_ends_the_browser_fails_and_the_others_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = archive_in(tmp_path / "crawl", {f"http://a.test/{name}": (HTML, "<p>x") for name in ("one", "two", "end")})
    original = judge_replay.replay_page

    async def replayed(browser: chromium.Chromium, archive: ReplayArchive, page: Sampled, picture: Path | None) -> Any:
        if page.url.endswith("end"):
            with contextlib.suppress(chromium.BrowserGone):
                await browser.call("Browser.crash")
        return await original(browser, archive, page, picture)

    monkeypatch.setattr(judge_replay, "replay_page", replayed)
    report = await judge_replay.judge_replay([folder], 3, chromium.find_chromium(), None, SILENT)
    assert {one.url[-3:]: one.failed for one in report.pages} == {"one": "", "two": "", "end": "it ended Chromium"}


@pytest.mark.slow(ci=True)
@needs_chromium
def test_the_command_prints_a_table_and_its_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = archive_in(tmp_path / "crawl", {"http://a.test/": (HTML, "<title>x</title><img src=/gone.png>")})
    assert main(["audit", "--dir", str(folder.root), "--replay", "5"]) == OK
    text = capsys.readouterr().out
    assert text.startswith("Replay of 1 page of 1: 1 opened; 1 of 2 requests answered from the archive (50.0 %).")
    assert "Image  http://a.test/gone.png" in text
    assert "Nothing left the archive" in text
    for path in folder.warc.iterdir():
        path.unlink()
    assert main(["audit", "--dir", str(folder.root), "--replay", "5", "--json"]) == UNCLEAN
    said = capsys.readouterr()
    assert json.loads(said.out)["failed"] == 1
    assert "1 page could not be opened from the archive" in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--replay", "3"], "--replay needs Chromium, which is not installed: apt-get install chromium"),
        (["--replay", "3", "-o", "a.jsonl"], "leave -o out"),
        (["--replay", "3", "--sample", "2"], "leave --sample out"),
        (["--replay", "0"], "0"),
        (["--pictures", "seen"], "add --replay N"),
    ],
)
def test_what_can_not_be_replayed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder_in(tmp_path)
    assert main(["audit", "--dir", str(tmp_path / "crawl"), *arguments]) == BAD
    assert said in capsys.readouterr().err.splitlines()[-1]


@needs_chromium
def test_an_archive_without_pages_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_in(tmp_path)
    assert main(["audit", "--dir", str(tmp_path / "crawl"), "--replay", "3"]) == BAD
    assert "there is no HTML page in the archive" in capsys.readouterr().err


async def test_a_program_that_is_not_a_browser_is_one_line(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho 'no such display' >&2\n")
    program.chmod(0o700)
    with pytest.raises(chromium.UsageError, match="does not start: no such display"):
        async with chromium.chromium(str(program), 1):
            pass


def page(domain: str, number: int) -> Sampled:
    return Sampled(url=f"http://{domain}/{number}", fingerprint=number, visit=1, fetched_at=AT, domain=domain)


@pytest.mark.parametrize(
    ("sizes", "count", "wanted"),
    [
        ({"a": 100, "b": 100}, 10, {"a": 5, "b": 5}),
        ({"a": 1000, "b": 2}, 10, {"a": 8, "b": 2}),
        ({"a": 3}, 10, {"a": 3}),
        (dict.fromkeys("abcdefgh", 4), 8, dict.fromkeys("abcdefgh", 1)),
    ],
)
def test_a_sample_has_the_same_number_of_each_domain(sizes: dict[str, int], count: int, wanted: dict[str, int]) -> None:
    sample = Sample(count)
    for domain, size in sizes.items():
        for number in range(size):
            sample.offer(domain, hash((domain, number)), lambda d=domain, n=number: page(d, n))  # type: ignore[misc]
    assert Counter(one.domain for one in sample.pages) == wanted


def test_a_sample_of_more_domains_than_pages_has_one_of_some() -> None:
    sample = Sample(5)
    for number in range(200):
        sample.offer(f"d{number}", hash(("x", number)), lambda n=number: page(f"d{n}", 1))  # type: ignore[misc]
        sample.offer(f"d{number}", hash(("x", number)), lambda n=number: page(f"d{n}", 1))  # type: ignore[misc]
    assert len({one.domain for one in sample.pages}) == len(sample.pages) == 5


def test_a_page_that_several_folders_have_is_sampled_once(tmp_path: Path) -> None:
    folders = [archive_in(tmp_path / name, {"http://a.test/": (HTML, "x")}) for name in ("one", "other")]
    pages, seen = judge_replay.sampled(folders, 5, SILENT)
    assert ([one.url for one in pages], seen) == (["http://a.test/"], 2)


def test_the_visit_nearest_to_the_page_answers(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    index, writer = IndexWriter(folder, "aa11"), writer_in(folder)
    for number, text in enumerate((b"old", b"new")):
        place, digest = writer.add(response(1, raw_body=text))
        index.add(entry(number, url=response(1).url, warc=place, digest=digest, fetched_at=AT + 1000 * number))
    writer.close()
    index.close()
    archive, asked = ReplayArchive([folder]), Asked(method="GET", url=response(1).url.replace("http:", "https:"))
    found = [archive.answer(asked, AT + near) for near in (0, 900)]
    assert [one.body for one in found if one is not None] == [b"old", b"new"]
    assert archive.answer(Asked(method="POST", url=response(1).url), AT) is None
    assert archive.answer(Asked(method="GET", url="data:,x"), AT) is None
