"""`crawler replay`: a recorded crawl, crawled again off line, gives what it gave; and how it fails to begin."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import UsageError
from crawler.testing import ExampleWeb, GeneratedWeb, crawl, replay, serve
from tests.cli.cli_lab import crawler, in_process
from tests.crawl.harness import warc_of_pages
from tests.support.processes import Nursery

APP = """
from crawler import Crawler
app = Crawler()

@app.page()
async def every(page):
    yield {"url": page.url, "title": page.title, "links": page.links(), "kind": page.headers.get("content-type")}
"""
CRAWLER = (sys.executable, "-m", "crawler")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "every_page_of_a_replay.py"
    file.write_text(APP)
    yield file
    sys.modules.pop(file.stem, None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def sorted_items(items: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(item, sort_keys=True) for item in items)


@pytest.mark.slow(ci=True)
def test_a_recorded_crawl_replayed_and_crawled_again_gives_the_same_pages_and_items(tmp_path: Path, app: Path) -> None:
    """But for what was never recorded, as it could not be fetched: that is 404. The recorded robots.txt holds again."""
    options = {"scope.mode": "any"}
    with serve(GeneratedWeb(seed=5, domains=3, pages=6, slow_s=0.0)) as served:
        first = crawl(app, served.web.seeds, web=served, settings=options, folder=tmp_path / "first")
        expected, seeds = served.web.expected(), served.web.seeds
    with replay(tmp_path / "first") as replayed:
        again = crawl(app, seeds, web=replayed, settings=options)
    unknown = dict.fromkeys(expected.dead, 404)
    loops = {url for url in unknown if "/long/" in url}  # never fetched: too many redirects lead there
    assert again.pages == first.pages | {url: 404 for url in unknown if url not in loops}
    assert sorted_items(again.items) == sorted_items(first.items)
    assert len(first.items) > 100
    assert again.dead == {}


@pytest.mark.slow(ci=True)
def test_a_command_run_with_a_replay_needs_no_option_and_its_exit_code_is_ours(
    programs: Nursery, tmp_path: Path, app: Path
) -> None:
    pages = {f"https://shop.example.com:{port}/": f"<title>{port}</title>" for port in (443, 8443)}
    with serve(pages) as served:
        crawl(None, list(pages), web=served, folder=tmp_path / "first")
    archive = warc_of_pages(tmp_path / "first")
    wanted = [*CRAWLER, "crawl", *pages, "--app", str(app), "--dir", "again", "-q"]
    done = crawler(programs, "replay", "run", str(archive), "--", *wanted, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    items = in_process(programs, "export", "--dir", "again", cwd=tmp_path)
    assert {json.loads(line)["url"] for line in items.out.splitlines()} == {
        "https://shop.example.com/",
        *list(pages)[1:],
    }
    fetched = [*CRAWLER, "fetch", "https://shop.example.com/no-such-page"]
    done = crawler(programs, "replay", "run", str(archive), "--", *fetched, cwd=tmp_path)
    assert done.code == 0
    assert "X-Crawler-Replay: this web has no such URL" in done.out
    fetched = [*CRAWLER, "fetch", "http://nowhere.example.com/"]
    done = crawler(programs, "replay", "run", str(archive), "--", *fetched, cwd=tmp_path)
    assert done.code == 6
    assert "dns_not_found" in done.err
    assert crawler(programs, "replay", "run", str(archive), "--", "sh", "-c", "kill -9 $$").code == 128 + signal.SIGKILL


@pytest.mark.slow(ci=True)
def test_what_is_shown_leads_a_crawl_in_another_terminal_there(programs: Nursery, tmp_path: Path) -> None:
    serving = programs.crawler("replay", "serve", "--example")
    line = serving.wait_for(r"export (.*)")[1]
    environment = dict(word.split("=", 1) for word in shlex.split(line))
    command = shlex.split(serving.wait_for(r"crawler (crawl .*)")[1])
    done = crawler(programs, *command, cwd=tmp_path, **environment)
    assert done.code == 0, done.err
    assert "Finished: 10 pages" in done.out
    assert "--contact" not in done.err, "nobody can be reached there"
    serving.interrupt()
    assert serving.wait() == 0


def test_a_proxy_client_is_answered_and_what_it_can_not_have_is_said(programs: Nursery) -> None:
    with serve(ExampleWeb(pages=1).pages) as served:
        gateway = served.settings["fetch.gateway"]
        asked = subprocess.run(
            [sys.executable, "-c", CLIENT, gateway], capture_output=True, text=True, check=True, timeout=20
        )
    statuses = json.loads(asked.stdout)
    assert statuses == {"GET": 200, "HEAD": 200, "origin": 200, "CONNECT": 501, "POST": 405, "bad": 400, "none": 404}


CLIENT = """
import http.client, json, sys
def ask(method, target, host="quotes.test", body=None):
    connection = http.client.HTTPConnection(sys.argv[1], timeout=5)
    connection.request(method, target, headers={"Host": host}, body=body)
    response = connection.getresponse()
    response.read()
    return response.status
print(json.dumps({
    "GET": ask("GET", "http://quotes.test/"), "HEAD": ask("HEAD", "http://quotes.test/"), "origin": ask("GET", "/"),
    "CONNECT": ask("CONNECT", "quotes.test:443"), "POST": ask("POST", "http://quotes.test/", body="x"),
    "bad": ask("GET", "http://:/"), "none": ask("GET", "/none"),
}))
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "use 'crawler replay serve' or"),
        (["replay", "serve"], "name WARC files or crawl folders to serve"),
        (["replay", "serve", "a.warc.gz", "--example"], "name WARC files or crawl folders to serve"),
        (["replay", "serve", "absent.warc.gz"], "absent.warc.gz: there is no such file"),
        (["replay", "serve", "."], ".: there is no WARC file in it"),
        (["replay", "serve", "text.txt"], "text.txt: this is not a WARC record"),
        (["replay", "run", "--example"], "name a command: crawler replay run FILE -- crawler"),
        (["replay", "run", "a.warc.gz", "--port", "80", "--", "true"], "--port goes before the files"),
        (["replay", "run", "--example", "--", "no-such-command"], "no-such-command: No such file"),
        (["replay", "serve", "--example", "--port", "99999"], "--port 99999: expected a number below 65536"),
        (["replay", "serve", "--example", "--prt", "1"], "unknown option --prt: did you mean --port?"),
    ],
)
def test_bad_input_is_one_line(programs: Nursery, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "text.txt").write_text("no archive\n")
    done = in_process(programs, *arguments, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


def test_a_port_that_is_taken_is_one_line(programs: Nursery) -> None:
    with serve({"http://a.test/": "x"}) as served:
        port = served.settings["fetch.gateway"].rpartition(":")[2]
        done = crawler(programs, "replay", "serve", "--example", "--port", port)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"can't listen on port {port}" in done.err


@pytest.mark.parametrize("own", [{}, {"PROMPT_COMMAND": "OWN=1"}, {"PROMPT_COMMAND": "OWN=1; "}], ids=str)
def test_a_shell_in_a_replay_shows_where_one_is(programs: Nursery, own: dict[str, str]) -> None:
    done = crawler(
        programs, "replay", "run", "--example", "--", "bash", "--norc", "-i", stdin="PS1='mine> '\n:\n", **own
    )
    assert "(replay) mine> " in done.err
    assert "(replay) (replay)" not in done.err
    assert "rror" not in done.err


def test_a_replay_of_nothing_raises_as_the_command_does(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no WARC file"), replay(tmp_path):
        pass
