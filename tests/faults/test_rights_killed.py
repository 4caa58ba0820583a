"""A page that says no to the purpose of the crawl, killed between any two steps: the same result, and no byte of it."""

import gzip
import signal
from pathlib import Path

import pytest

from crawler.runtime.crash_points import VARIABLE
from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, name_server
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

pytestmark = pytest.mark.processes

HOST, CANARY = "said.test", "canary-51b2"
SKIP = ("--set", "rights.purpose=ai-train", "--set", "rights.policy=skip")
APP = """
from crawler import Crawler
app = Crawler()

@app.page()
def every(page):
    yield {"title": page.title, "text": page.text}
"""


def page(*links: str, **headers: str) -> Resource:
    text = CANARY if headers else "open"
    anchors = "".join(f'<a href="{link}">{text}</a>' for link in links)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Resource(body=f"<title>{text}</title>{anchors}", headers=named)


WEB = {
    (HOST, "/robots.txt"): Resource(
        body="User-agent: *\nContent-Usage: /closed train-ai=n\n", content_type="text/plain"
    ),
    (HOST, "/"): page("/no", "/closed"),
    (HOST, "/no"): page("/behind", Content_Usage="train-ai=n"),
    (HOST, "/behind"): page(),
    (HOST, "/closed"): page(Content_Usage="search=y"),
}
POINTS = (
    "fetch.answered@/no", "page.parsed@/no", "archive.written#2", "archive.synced#2", "route.added@/no",
    "ack.answered@/no", "end.answered@/closed", "index.synced#2", "drain.answered#2",
)  # fmt: skip


def everything(folder: Path) -> bytes:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return b"\n".join(gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes() for f in files)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=pytest.mark.slow) if n % 4 else p for n, p in enumerate(POINTS)]
)
def test_killed_at_any_step_the_result_is_the_same(tmp_path: Path, point: str) -> None:
    folder, app = tmp_path / "c", tmp_path / "shop.py"
    app.write_text(APP)
    with name_server() as dns, serve_resources(WEB) as site:
        environment = QUICK | {"CRAWLER_DNS_NAMESERVERS": dns, "CRAWLER_INTERNALS_ARCHIVE_SYNC_S": "0.02"}
        url = site.url(HOST)
        command = ("crawl", url, "--dir", str(folder), "--app", str(app), "--delay", "0", "--quiet", *SKIP)
        with nursery(environment) as programs:
            for setting in (f"{point}=kill", ""):
                program = programs.crawler(*command, **{VARIABLE: setting})
                code = program.wait()
                assert code == (-signal.SIGKILL if setting else 0), program.err
            stats = programs.crawler("stats", "--losses", "--json", "--dir", str(folder))
            assert stats.wait() == 0
            audit = programs.crawler("audit", "--dir", str(folder))
            assert audit.wait() == 0, audit.out
        targets = [request.target for request in site.requests()]
    found = {entry.url.removeprefix(url[:-1]): entry for entry in entries_of(folder)}
    assert {path: entry.is_withheld for path, entry in found.items()} == {"/": False, "/no": True, "/behind": False}
    assert len(found) == len(entries_of(folder))
    assert "/closed" not in targets
    assert '"reason": "rights", "count": 1' in stats.out
    assert stats.out.count('"rights"') == 2, "deferred once, and cut once"
    assert CANARY.encode() not in everything(folder)
