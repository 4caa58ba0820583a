"""`crawler shell`: a page in a prompt, fetched as the crawler does."""

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from crawler.cli.main import main
from tests.cli.cli_lab import forget_apps, page, small
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

HOST = "127.0.0.1"
APP = """
from crawler import Crawler
app = Crawler()

@app.page("*/p*")
async def one(page):
    yield {"title": page.title, "label": page.label}
    page.follow("/next")

@app.page(label="odd")
def odd(page):
    yield {"odd": True}
    raise KeyError("price")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    forget_apps(monkeypatch)
    with small() as web:
        yield web


def run_line(capsys: pytest.CaptureFixture[str], url: str, code: str, *words: str) -> tuple[int, str, str]:
    done = main(["shell", url, "-c", code, "--allow-private", "--delay", "0", *words])
    out, err = capsys.readouterr()
    return done, out, err


def test_a_line_sees_the_page_as_a_handler_does(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    home = site.url(HOST)
    assert run_line(capsys, home, "page.title")[:2] == (0, "'A page'\n")
    assert run_line(capsys, home, "print(page.status, len(page.links()), page.domain)")[1] == "200 16 127.0.0.1\n"
    assert run_line(capsys, home, "page.css_first('a').text()")[1] == "'x'\n"
    assert run_line(capsys, home, "for n in (1, 2):\n  print(n)\nprint(3)\n")[1] == "1\n2\n3\n"
    assert [r.target for r in site.requests()].count("/robots.txt") == 4


def test_another_page_is_fetched_after_the_delay_of_its_host_and_robots_txt_asked_for_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "print(fetch('/p1').url, fetch('p2').status, fetch('/moved').status, fetch('/moved', follow=True).url)"
    done, out, _ = run_line(capsys, site.url(HOST), code, "--delay", "0.15")
    assert (done, out) == (0, f"{site.url(HOST, '/p1')} 200 301 {site.url(HOST, '/p0')}\n")
    requests = site.requests()
    assert [r.target for r in requests] == ["/robots.txt", "/", "/p1", "/p2", "/moved", "/moved", "/p0"]
    gaps = [after.start - before.end for before, after in pairwise(requests[1:6])]
    assert min(gaps) >= 0.15


def test_a_crawl_delay_is_kept_and_so_is_the_delay_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "own.toml"
    for text, own, least in (("0.3", "", 0.3), ("0", f"[[sites]]\nmatch = '{HOST}'\ndelay_s = 0.2\n", 0.2)):
        robots = Resource(content_type="text/plain", body=f"User-agent: *\nCrawl-delay: {text}\n")
        config.write_text(own)
        with serve_resources({(HOST, "/robots.txt"): robots, (HOST, "/"): page()}) as web:
            assert run_line(capsys, web.url(HOST), "fetch('/')", "--config", str(config))[0] == 0
            first, second = (request for request in web.requests() if not request.is_robots)
        assert second.start - first.end >= least


def test_the_app_is_there_and_its_handler_can_be_called(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    Path("shop.py").write_text(APP)
    Path("own.toml").write_text(f"[[sites]]\nmatch = '{HOST}/p1'\nlabel = 'odd'\n")
    words = ("--app", "shop.py", "--config", "own.toml")
    code, out, err = run_line(capsys, site.url(HOST, "/p0"), "print(handle(page), len(app.handlers))", *words)
    assert (code, err) == (0, "")
    followed = f"Followed(url='{site.url(HOST, '/next')}', priority=0.0)"
    assert out == f"([{{'title': 'A page', 'label': ''}}], [{followed}]) 2\n"
    code, _, err = run_line(capsys, site.url(HOST, "/p1"), "handle(page)", *words)
    assert code == 1
    assert "KeyError: 'price' (shop.py:13 in odd)" in err
    code, _, err = run_line(capsys, site.url(HOST), "handle(page)", *words)
    assert code == 1
    assert "LookupError: no handler is for" in err


def test_items_of_a_handler_go_through_the_functions_of_the_app(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    functions = """
@app.item
async def marked(item, page):
    yield item | {"of": page.title}
    yield item

@app.item
def once(item):
    return item if "of" in item else None
"""
    Path("shop.py").write_text(APP + functions)
    code, out, err = run_line(capsys, site.url(HOST, "/p0"), "print(handle(page)[0])", "--app", "shop.py")
    assert (code, out) == (0, "[{'title': 'A page', 'label': '', 'of': 'A page'}]\n")
    assert err == "1 item dropped by functions of @app.item\n"


def test_a_line_that_fails_says_so_as_python_does_and_without_our_own_frames(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_line(capsys, site.url(HOST), "1 / 0")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "cli" not in err


@pytest.mark.parametrize(
    ("target", "line", "code", "said"),
    [
        ("/", "page.", 2, "crawler: -c 'page.': invalid syntax"),
        ("/private/x", "page", 6, "robots.txt forbids it"),
        ("/", "fetch('/private/x')", 6, "robots.txt forbids it"),
        ("/", "fetch('ftp://a.test/')", 2, "not http or https"),
        ("nowhere", "page", 2, "invalid URL"),
    ],
)
def test_what_can_not_be_had_is_one_line(
    site: Site, capsys: pytest.CaptureFixture[str], target: str, line: str, code: int, said: str
) -> None:
    url = site.url(HOST, target) if target.startswith("/") else target
    done, out, err = run_line(capsys, url, line)
    assert (done, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1


def test_without_a_line_there_is_a_prompt(site: Site) -> None:
    """On a terminal, as a person would sit at."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "crawler", "shell", site.url(HOST), "--allow-private"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "dumb"}) as it:
        os.close(theirs)
        os.write(ours, b"page.status * 7\n")
        seen, deadline = b"", time.monotonic() + 30
        while b"1400" not in seen and time.monotonic() < deadline:
            seen += os.read(ours, 1000)
        os.write(ours, b"exit()\n")
        assert it.wait(timeout=30) == 0
    os.close(ours)
    assert f"page: {site.url(HOST)} (status 200); there are page, fetch".encode() in seen
    assert b"1400" in seen
    assert not list(Path().iterdir()), "nothing is kept"
