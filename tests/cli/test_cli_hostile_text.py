"""Nothing that a site sends reaches the terminal as more than text, whichever command shows it."""

import contextlib
import re
import socketserver
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.cli import main as command_line
from crawler.cli.main import main
from tests.cli.cli_lab import QUICK, crawler, forget_apps
from tests.support.processes import nursery

EVIL = "\x1b]0;x\x07\x1b[31m\x9b31m\x7f\u202e\u200b\ufeff\u2028"
PAGE = f"""<html><head><title>T{EVIL}</title></head><body><a href="/p{EVIL}?q={EVIL}">x</a>
<a href="/fails{EVIL}">x</a><a href="/denied">d</a><a href="/cut{EVIL}">y</a><p>text {EVIL}</p>""".encode()
HEADER = "\u202e\u200b\x9b31m".encode() + b" \x9b31m\xff\xfe"  # what the parser of heads lets through
ROBOTS = f"User-agent: *\nDisallow: /denied # {EVIL}\nDisallow: /{EVIL}secret\n".encode()
APP = f"""
from crawler import Crawler

app = Crawler()
EVIL = {EVIL!r}


@app.page()
async def any_page(page):
    if "/fails" in page.url:
        raise ValueError(page.title + "\\n" + EVIL)
    yield {{"t": page.title, EVIL: EVIL, "n": float("nan")}}
    yield {{"t": page.title}}
"""


class Hostile(socketserver.StreamRequestHandler):
    """Answers each request on a connection of its own."""

    def handle(self) -> None:
        first = self.rfile.readline().decode("latin-1")
        while self.rfile.readline().strip():
            pass
        target = first.split(" ")[1] if " " in first else "/"
        body, kind = (ROBOTS, b"text/plain") if target == "/robots.txt" else (PAGE, b"text/html")
        length = len(body) + (10 if "cut" in target else 0)
        status = b"500" if "q=" in target else b"200"
        head = b"HTTP/1.1 " + status + b" Fine " + HEADER + b"\r\nContent-Type: " + kind + b"\r\nX-Evil: " + HEADER
        self.wfile.write(head + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % length + body)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="module")
def crawled(site: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a crawl of that site, and what the crawl said (in `said`)."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "shop.py").write_text(APP)
    with nursery() as home:
        done = crawler(
            home, "crawl", site, *QUICK, "--app", "shop.py", "--set", "retry.attempts=1", "-vv", "-o", "-",
            "-o", "items.csv", cwd=folder, CRAWLER_RETRY_HANDLER_ATTEMPTS="1",
        )  # fmt: skip
    assert done.code == 0, done.err
    (folder / "said").write_text(done.out + done.err)
    return folder


def offending(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}


@pytest.mark.slow(ci=True)
def test_a_crawl_says_nothing_that_acts_on_a_terminal(crawled: Path) -> None:
    said = (crawled / "said").read_text()
    assert "T\\u001b]0;x" in said  # the title, in the items on standard output
    assert offending(said) == set()


def test_log_files_hold_nothing_that_acts_on_a_terminal(crawled: Path) -> None:
    logs = [file.read_text() for file in (crawled / "crawl-data" / "log").glob("*.log")]
    assert logs
    assert offending("".join(logs)) == set()


FETCHING = ("--allow-private", "--delay", "0")
COMMANDS = (
    ("fetch", "URL", *FETCHING),
    ("fetch", "URL", "--text", *FETCHING),
    ("fetch", "URL", "--links", *FETCHING),
    ("fetch", "URL", "--json", *FETCHING),
    ("fetch", "URLdenied", *FETCHING),
    ("fetch", "URLcut", *FETCHING),
    ("explain", "URL"),
    ("explain", "URLfails" + EVIL),
    ("explain", "URLfails" + EVIL, "--json"),
    ("explain", "URLdenied"),
    ("dead", "list"),
    ("dead", "list", "--json"),
    ("dead", "show", "URLfails" + EVIL),
    ("dead", "show", "URLfails" + EVIL, "--json"),
    ("history", "URL"),
    ("history", "--domain", "127.0.0.1"),
    ("history", "--domain", "127.0.0.1", "--json"),
    ("seeds",),
    ("seeds", "--json"),
    ("stats",),
    ("stats", "127.0.0.1"),
    ("stats", "--json"),
    ("export", "--columns", "text,links"),
    ("export", "--items"),
    ("audit",),
    ("audit", "--json"),
    ("ring",),
    ("ring", "show", "URL"),
    ("scale",),
    ("doctor",),
    ("check", "URL", "shop.py"),
    ("shell", "URL", "-c", "page.title", *FETCHING),
    ("shell", "URL", "-c", "print(page.title, page.text)", *FETCHING),
    ("shell", "URL", "-c", "raise ValueError(page.title)", *FETCHING),
    ("shell", "URLfails", "-c", "handle(page)", "--app", "shop.py", *FETCHING),
    ("shell", "URL", "-c", "handle(page)", "--app", "shop.py", *FETCHING),
    ("rebuild",),
    ("pause", "127.0.0.1"),
    ("release", "127.0.0.1", "--reason", EVIL),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_command_prints_what_acts_on_a_terminal(
    words: tuple[str, ...], crawled: Path, site: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(crawled)
    forget_apps(monkeypatch)
    main([word.replace("URL", site, 1) for word in words])
    out, err = capfd.readouterr()
    assert out + err
    assert "this is a bug" not in err
    assert offending(out + err) == set()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_an_operator_gave_is_shown_as_text(
    form: tuple[str, ...], crawled: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(crawled)
    main(["release", "127.0.0.1", "--reason", EVIL])
    assert main(["ring", "pin", "127.0.0.1", f"n{EVIL}"]) == main(["oplog", *form]) == 0
    out, err = capfd.readouterr()
    assert "ring pin" in out
    assert offending(out + err) == set()


# Each command with hostile words, where it takes some: its complaint is clean, and one line.
@pytest.mark.parametrize("name", command_line.COMMANDS)
@pytest.mark.parametrize(
    "form", ["{}", "http://a.test:x/{}", "http://{}/", "--dir={}", "--bogus{}", "--set={}=1", "--set=crawl.name={}"]
)
def test_no_complaint_about_words_acts_on_a_terminal(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    word = form.format(EVIL + "\n")
    if word.startswith("--dir"):
        word += "/no\nsuch"
        (tmp_path / f"{EVIL}\n").write_text("a file")
    with contextlib.suppress(SystemExit):
        main([name, word])
    out, err = capfd.readouterr()
    assert "this is a bug" not in err
    assert offending(out + err) == set()
    if re.match("crawler: ", err):
        assert err.count("\n") == err.count("crawler: ")
