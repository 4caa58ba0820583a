"""The first five minutes: what people forget or mistype is one line that says what to do, and costs nothing."""

import contextlib
import errno
import itertools
import os
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn

import pytest

from crawler.crawl import url_files, url_input
from crawler.errors import InvalidUrl
from crawler.terminal.words import program
from tests.cli.cli_lab import HOST, QUICK, crawler, exit_code, in_process, page, small
from tests.support.engine import Engine, running_engine
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

OTHER = "127.0.0.2"
USAGE, ENGINE, CONFLICT, NOTHING, DOCTOR = 2, 3, 4, 6, 7
ONE_TRY = ("--set", "retry.attempts=1", "--set", "retry.connect.attempts=1", "--set", "hosts.failures=9")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and errors of a command in this process."""
    return exit_code(words), capsys.readouterr().err


# --- input that can't be used makes nothing ---


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["crawl"], "give at least one seed URL"),
        (["crawl", ""], "no valid seed URL"),
        (["crawl", "  "], "no valid seed URL"),
        (["crawl", "a b"], "no valid seed URL"),
        (["crawl", "ftp://a.test/"], "no valid seed URL"),
        (["crawl", "http://user:hush@a.test/"], "no valid seed URL"),
        (["seed", "http://user:hush@a.test/"], "no valid seed URL"),
        (["seed", ""], "no valid seed URL"),
        (["fetch", "http://user:hush@a.test/"], "give them as auth in [[sites]]"),
        (["explain", "http://user@a.test/"], "give them as auth in [[sites]]"),
        (["crawl", "seeds.txt"], "seeds.txt is a file, not a URL; use -i seeds.txt"),
        (["crawl", "-i", "empty"], "no URL in empty"),
        (["seed", "-i", "empty"], "no URL in empty"),
        (["crawl", "-i", "comments"], "no URL in comments"),
        (["crawl", "-i", "binary"], "binary is not a text file"),
        (["seed", "-i", "binary"], "binary is not a text file"),
        (["crawl", "-i", "."], "can't read seed file .: Is a directory"),
        (["crawl", "http://a.test/", "--config", "binary"], "is not valid TOML"),
        (["crawl", "http://a.test/", "--config", "seeds.txt"], "is not valid TOML"),
        (["crawl", "http://a.test/", "--config", "nul.toml"], "has a NUL byte"),
        (["crawl", "http://a.test/", "--dir", "seeds.txt"], "seeds.txt is a file"),
        (["crawl", "http://a.test/", "--dir", ""], "argument --dir: it is empty; give it a value, or leave it out"),
        (["crawl", "http://a.test/", "--dir", "  "], "argument --dir: it is empty"),
        (["crawl", "http://a.test/", "--redis", ""], "argument --redis: it is empty"),
        (["crawl", "http://a.test/", "--engine", ""], "argument --engine: it is empty"),
        (["crawl", "http://a.test/", "--config", ""], "argument --config: it is empty"),
        (["crawl", "http://a.test/", "--app", ""], "argument --app: it is empty"),
        (["crawl", "http://a.test/", "--node", " "], "argument --node: it is empty"),
        (["crawl", "-i", ""], "the name of a seed file is empty"),
        (["audit", "--web-log", ""], "argument --web-log: it is empty"),
        (["init", ""], "argument DIR: it is empty"),
        (["replay", "serve", ""], "name WARC files or crawl folders to serve"),
        (["replay", "run", "", "--", "true"], "name WARC files or crawl folders to serve"),
        (["crawl", "http://a.test/", "-o", ""], "the name of an output is empty: name it .jsonl or .csv"),
        (["export", "-o", " "], "the name of an output is empty: name it .jsonl or .csv"),
        (["crawl", "http://a.test/", "-o", "."], ". is a folder; name a file in it"),
        (["crawl", "http://a.test/", "-o", "a\0b.jsonl"], "an argument has a NUL byte"),
        (["crawl", "http://a.test/", "-o", "x" * 5000 + ".jsonl"], "...: File name too long; use another path"),
        (["crawl", "http://a.test/", "--dir", "x" * 5000], "xxx... is too long: use another folder"),
        (["init", "x" * 5000], "xxx...: File name too long; use another path"),
        (["crawl", "-i", "x" * 5000], "File name too long"),
        (["crawl", "http://a.test/", "-o", "no/such.jsonl"], "folder does not exist: no"),
        (["crawl", "http://a.test/", "--pages", "0"], "leave it out for no limit"),
        (["crawl", "http://a.test/", "--pages", "9" * 5000], "is not a valid number"),
        (["crawl", "http://a.test/", "--time", "0"], "leave it out for no limit"),
        (["crawl", "http://a.test/", "--time", "9" * 400], "is too long a duration"),
        (["crawl", "http://a.test/", "--depth", "-1"], "leave it out for no limit"),
        (["crawl", "http://a.test/", "--depth", "256"], "use 0 to 255"),
        (["crawl", "http://a.test/", "--delay", "-1"], "'-1' is not a valid duration (use 90, 10m, 2h, 1d)"),
        (["crawl", "http://a.test/", "--delay", "inf"], "'inf' is not a valid duration"),
        (["crawl", "http://a.test/", "--delay", "nan"], "'nan' is not a valid duration"),
        (["crawl", "http://a.test/", "--delay", "1e400"], "'1e400' is not a valid duration"),
        (["crawl", "http://a.test/", "--delay", "9" * 20], "is too long a duration"),
        (["crawl", "http://a.test/", "-c", "0"], "fetch.concurrency = 0: expected"),
        (["crawl", "http://a.test/", "-c", "100001"], "expected an integer <= 100000"),
        (["crawl", "http://a.test/", "-c", "9" * 20], "is too large a number"),
        (["crawl", "http://a.test/", "--set", "politeness.delay_max_s=1e400"], "expected a"),
        (["crawl", "http://a.test/", "--set", "frontier.memory=" + "9" * 30], "expected an integer <="),
        (["crawl", "http://a.test/", "--nameserver", "x"], "'x' is not an IP address"),
        (["crawl", "http://a.test/", "--nameserver", "127.0.0.1:99999"], "is not an IP address"),
        (["crawl", "http://a.test/", "--redis", "http://x/"], "bad engine URL 'http://x/'"),
        (["run", "--redis", "http://x/"], "bad engine URL 'http://x/'"),
        (["run", "--redis", "redis://:hush@h:port/"], "bad engine URL"),
        (["crawl", "http://a.test/", "--redis", "redis://[::1"], "bad engine URL"),
        (["crawl", "http://a.test/\0"], "has a NUL byte"),
        (["crawl", "http://a.test/", "-n", "9" * 5000], "is not a valid number"),
        (["stats", "--top", "9" * 30], "is too large a number"),
        (["history", "--domain", "a.test", "--limit", "9" * 30], "is too large a number"),
        (["dead", "list", "--limit", "9" * 30], "is too large a number"),
        (["release", "--urls", "9" * 30], "is too large a number"),
        (["scale", "9" * 30], "is too large a number"),
        (["stats"], "crawl-data is not a crawl folder (crawl.json is missing)"),
    ],
    ids=lambda value: " ".join(value)[:40].encode("ascii", "backslashreplace").decode().replace("\0", "0")
    if isinstance(value, list) else "",
)  # fmt: skip
def test_wrong_input_is_one_line_and_makes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    (here / "seeds.txt").write_text("http://a.test/\n")
    (here / "empty").write_bytes(b"")
    (here / "comments").write_text("# nothing\n\n   \n")
    (here / "binary").write_bytes(bytes(range(256)) * 20)
    (here / "nul.toml").write_text('[archive]\ndir = "a\\u0000b"\n')
    before = sorted(here.iterdir())
    code, err = said(capsys, *words)
    assert code == USAGE, err
    assert line in err.splitlines()[-1]
    assert all(one.startswith("crawler: ") for one in err.splitlines())
    assert "hush" not in err
    assert sorted(here.iterdir()) == before


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("command", ["crawl", "seed"])
def test_a_folder_that_was_made_for_nothing_is_gone(command: str, programs: Nursery, here: Path) -> None:
    """What flows is seen late, and a sitemap is read when there is a crawl."""
    with small(3) as site:
        cases = [("-",)]
        if command == "seed":
            cases.append(("--sitemap", site.url(HOST), "--allow-private", "--delay", "0"))
        for words in cases:
            ran = crawler(programs, command, *words, cwd=here, stdin="not a url\n")
            assert (ran.code, list(here.iterdir())) == (USAGE, []), ran.err
        (here / "kept").mkdir()
        assert crawler(programs, command, "-", "--dir", "kept", cwd=here, stdin="not a url\n").code == USAGE
        assert (here / "kept" / "crawl.json").exists()


def test_a_path_that_may_not_even_be_looked_at_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    line = "crawler: can't use /secret/a.jsonl: Permission denied; use another path\n"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refuse)
        assert said(capsys, "export", "-o", "/secret/a.jsonl") == (USAGE, line)
    assert list(here.iterdir()) == []


def test_an_engine_that_is_not_there_makes_no_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["crawl", "http://a.test/"], ["run"], ["seed", "http://a.test/"], ["stats"], ["crawl"]):
        code, err = said(capsys, *command, "--redis", "redis://127.0.0.1:1/")
        assert (code, err.count("\n")) == (ENGINE, 1)
        assert list(here.iterdir()) == []


def test_hints_name_the_program_by_its_path_where_its_name_is_unknown(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = here / "a clone" / "crawler"
    called.parent.mkdir()
    called.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(called)])
    monkeypatch.setenv("PATH", "/nonexistent")
    assert program() == f"'{called}'"
    monkeypatch.setenv("PATH", str(called.parent))
    assert program() == "crawler"
    monkeypatch.setattr("sys.argv", [str(here / "__main__.py")])
    monkeypatch.setenv("PATH", "/nonexistent")
    assert program() == "crawler"


# --- URLs as people write them ---


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("example.com", "https://example.com/"),
        ("example.com/docs?q=1", "https://example.com/docs?q=1"),
        ("example.com:8443", "https://example.com:8443/"),
        ("Bücher.example", "https://xn--bcher-kva.example/"),
        ("8.8.8.8", "https://8.8.8.8/"),
        ("localhost:8000/a", "http://localhost:8000/a"),
        ("127.0.0.1", "http://127.0.0.1/"),
        ("[::1]:80", "http://[::1]/"),
    ],
)
def test_a_url_without_a_scheme_is_taken_and_said(text: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert url_input.url_of(text) == url
    assert capsys.readouterr().err == f"crawler: taking {text} as {url}\n"


@pytest.mark.parametrize("text", ["word", "mailto:a@b.test", "a..b", "a b.test", "user:pw@a.test", "x:80"])
def test_what_is_no_host_is_refused_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidUrl):
        url_input.url_of(text)
    assert capsys.readouterr().err == ""


async def lines_of(monkeypatch: pytest.MonkeyPatch, *blocks: bytes) -> list[tuple[str, str]]:
    async def _blocks(file: str):
        for block in blocks:
            yield block

    monkeypatch.setattr(url_files, "_blocks", _blocks)
    return [(one.where, one.text) async for batch in url_input.read_given("f", quiet=True) for one in batch]


async def test_lines_of_any_kind_are_numbered_alike_however_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\xef\xbb\xbfhttp://a/\r\n# no\r\n\r\nhttp://b/\rhttp://c/\n\rd.test\r"
    whole = [("f line 1", "http://a/"), ("f line 4", "http://b/"), ("f line 5", "http://c/")]
    whole.append(("f line 7", "https://d.test/"))
    for cuts in itertools.combinations(range(len(data)), 2):
        first, second = cuts
        assert await lines_of(monkeypatch, data[:first], data[first:second], data[second:]) == whole


def test_hosts_of_a_seed_file_are_taken_and_said_once(
    here: Path, capsys: pytest.CaptureFixture[str], programs: Nursery
) -> None:
    (here / "hosts.txt").write_text("a.test\nb.test\nhttp://c.test/\na.test/path\n")
    ran = in_process(programs, "seed", "-i", "hosts.txt", cwd=here)
    assert ran.out == "3 new, 0 already seen, 0 out of scope, 1 invalid\n"
    assert ran.err.splitlines() == [
        "crawler: hosts.txt line 1: taking a.test as https://a.test/, and other hosts there likewise",
        "crawler: hosts.txt line 4: 'a.test/path': not a URL",
    ]


# --- seeds that failed ---


def test_a_seed_that_failed_is_tried_again_by_the_same_command(programs: Nursery, here: Path) -> None:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        url = f"http://{HOST}:{port}/"
        command = ("crawl", url, *QUICK, *ONE_TRY)
        down = in_process(programs, *command, cwd=here)
        assert down.code == NOTHING
        assert down.err.splitlines()[-1].endswith("Connection refused, after 1 attempt; run the same command to retry")
        assert in_process(programs, "seed", url, cwd=here).out.startswith("0 new, 1 retried, 0 already seen,")
        assert in_process(programs, "seed", url, cwd=here).out.startswith("0 new, 1 already seen,")
        assert in_process(programs, *command, cwd=here).code == NOTHING
    with serve_at(port, {(HOST, "/"): page()}):
        up = in_process(programs, *command, cwd=here)
    assert up.code == 0
    assert "Retrying 1 seed that failed before." in up.err
    assert "Finished: 1 page" in up.out
    assert in_process(programs, "audit", cwd=here).code == 0


def serve_at(port: int, web: dict[tuple[str, str], Resource]):
    """On a port that is known before."""
    import contextlib
    import http.server
    import threading

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = web.get((HOST, self.path), Resource(status=404))
            body = found.body.encode() if isinstance(found.body, str) else found.body
            self.send_response(found.status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    @contextlib.contextmanager
    def serving():
        with http.server.ThreadingHTTPServer((HOST, port), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield
            server.shutdown()

    return serving()


def test_a_forgotten_allow_private_is_said_and_then_helps(programs: Nursery, here: Path) -> None:
    with small(3) as site:
        url = site.url(HOST)
        refused = in_process(programs, "crawl", url, "--delay", "0", cwd=here)
        assert (refused.code, refused.err.splitlines()[-1]) == (
            NOTHING,
            f"crawler: nothing was fetched: {HOST} is a private address; add --allow-private to crawl it",
        )
        assert in_process(programs, "crawl", url, *QUICK[:3], cwd=here).code == 0


def test_a_site_whose_robots_txt_says_no_to_the_purpose_is_told_with_what_to_do(programs: Nursery, here: Path) -> None:
    said = Resource(body="User-agent: *\nContent-Signal: ai-train=no\n", content_type="text/plain")
    skip = ("--set", "rights.purpose=ai-train", "--set", "rights.policy=skip")
    with serve_resources({(HOST, "/robots.txt"): said, (HOST, "/"): Resource(body="a page")}) as site:
        ran = in_process(programs, "crawl", site.url(HOST), *QUICK, *skip, cwd=here)
    assert (ran.code, ran.err.splitlines()[-1]) == (
        NOTHING,
        (
            "crawler: nothing was fetched: 1 URL deferred for rights: robots.txt says no to rights.purpose; 'crawler "
            "explain URL' shows the line, 'crawler release DOMAIN --reason rights' fetches them all the same"
        ),
    )


def test_a_seed_that_failed_beside_others_is_told_at_the_end(programs: Nursery, here: Path) -> None:
    with small(3) as site:
        ran = in_process(programs, "crawl", site.url(HOST), f"http://{HOST}:9/", *QUICK, "-q", cwd=here)
    assert ran.code == 0
    assert ran.err == f"crawler: this seed failed: http://{HOST}:9/: port 9 is not for web servers\n"


RAISING = """\
from crawler import Crawler

app = Crawler()


@app.page("*")
async def anything(page):
    raise ValueError("no")
"""
ENDS = {
    "a page": ("/a", 0), "a missing page": ("/missing", 0), "a redirect": ("/to-a", 0),
    "two redirects": ("/to-to-a", 0),
    "refused by robots": ("/no", NOTHING), "a redirect that is refused": ("/to-no", NOTHING),
    "a redirect that fails": ("/to-broken", NOTHING), "a loop of redirects": ("/loop", NOTHING),
    "a failure": ("/broken", NOTHING), "another site": ("http://127.0.0.2:9/", NOTHING),
}  # fmt: skip


def ends_of_seeds() -> dict[tuple[str, str], Resource]:
    def to(place: str) -> Resource:
        return Resource(status=301, headers={"Location": place})

    return {
        (HOST, "/"): page(), (HOST, "/a"): page(), (HOST, "/no"): page(), (HOST, "/broken"): page(status=500),
        (HOST, "/to-a"): to("/a"), (HOST, "/to-to-a"): to("/to-a"), (HOST, "/to-no"): to("/no"),
        (HOST, "/to-broken"): to("/broken"), (HOST, "/loop"): to("/loop2"), (HOST, "/loop2"): to("/loop"),
        (HOST, "/robots.txt"): Resource(content_type="text/plain", body="User-agent: *\nDisallow: /no\n"),
    }  # fmt: skip


@pytest.mark.slow(ci=True)
def test_exit_codes_judge_the_seeds_of_the_command_and_not_the_folder(programs: Nursery, here: Path) -> None:
    with serve_resources(ends_of_seeds()) as site:
        begin = ("crawl", *QUICK, *ONE_TRY, "--scope", "any", "-q")
        assert in_process(programs, *begin, site.url(HOST), cwd=here).code == 0
        for kind, (target, code) in ENDS.items():
            url = target if "://" in target else site.url(HOST, target)
            for _ in ("first", "again"):
                ran = in_process(programs, *begin, url, cwd=here)
                assert ran.code == code, (kind, ran)
                assert ("no seed of this command was fetched: " in ran.err) == (code != 0), (kind, ran)
        both = in_process(programs, *begin, site.url(HOST, "/broken"), site.url(HOST, "/a"), cwd=here)
        assert both.code == 0
        (here / "seeds.txt").write_text(f"{site.url(HOST, '/no')}\n{site.url(HOST, '/to-no')}\n")
        assert in_process(programs, *begin, "-i", "seeds.txt", cwd=here).code == NOTHING
        assert in_process(programs, *begin, cwd=here).code == 0, "no seed was given"


def test_a_seed_whose_handler_raises_was_fetched(programs: Nursery, here: Path) -> None:
    (here / "raising.py").write_text(RAISING)
    with serve_resources({(HOST, "/"): page()}) as site:
        ran = in_process(programs, "crawl", site.url(HOST), *QUICK, *ONE_TRY, "--app", "raising.py", "-q", cwd=here)
    assert ran.code == 13
    assert "this seed failed: " in ran.err
    assert "nothing was fetched" not in ran.err


# --- two crawls, other folders ---


ADD_OR_START = "add to it with 'crawler seed', or start another with --dir"


def two_sites() -> dict[tuple[str, str], Resource]:
    return {(host, path): page("/b") for host in (HOST, OTHER) for path in ("/", "/b")}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("given", ["argument", "file", "sitemap"])
@pytest.mark.parametrize("is_finished", [False, True], ids=["pending", "finished"])
def test_a_folder_with_a_crawl_of_other_sites_is_left_alone(
    programs: Nursery, here: Path, given: str, is_finished: bool
) -> None:
    with serve_resources(two_sites(), address="0.0.0.0") as site:
        limit = () if is_finished else ("--pages", "1")
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, *limit, "-q", cwd=here).code == 0
        before = in_process(programs, "seeds", "--json", cwd=here).out
        (here / "seeds.txt").write_text(f"nonsense://\n{site.url(OTHER)}\n")
        words = {"argument": [site.url(OTHER)], "file": ["-i", "seeds.txt"], "sitemap": ["--sitemap", site.url(OTHER)]}
        ran = in_process(programs, "crawl", *words[given], *QUICK, "--delay", "0.1", "-q", cwd=here)
        has = "finished, 2 pages" if is_finished else "1 URL pending"
        assert (ran.code, ran.err.splitlines()[-1]) == (
            USAGE,
            f"crawler: crawl-data holds a crawl of {HOST} ({has}); {ADD_OR_START}",
        )
        assert in_process(programs, "seeds", "--json", cwd=here).out == before
        both = in_process(programs, "crawl", site.url(OTHER), site.url(HOST, "/b"), *QUICK, cwd=here)
        assert both.code == 0, "one of them is of the crawl"
        assert in_process(programs, "crawl", site.url(OTHER), *QUICK, "-q", cwd=here).code == 0, "it joined"


@pytest.mark.slow(ci=True)
def test_a_crawl_of_any_site_takes_any_and_a_seed_added_by_command_joins(programs: Nursery, here: Path) -> None:
    with serve_resources(two_sites(), address="0.0.0.0") as site:
        for seed in (site.url(HOST), site.url(OTHER)):
            command = ("crawl", seed, *QUICK, "--scope", "any", "--dir", "any", "-o", "all.jsonl")
            ran = in_process(programs, *command, cwd=here)
            assert ran.code == 0
        assert "Results: all.jsonl (all of any, not of this command alone)" in ran.out
        assert len((here / "all.jsonl").read_text().splitlines()) == 4
        in_process(programs, "crawl", site.url(HOST), *QUICK, "-q", cwd=here)
        in_process(programs, "seed", site.url(OTHER), "--allow-private", cwd=here)
        assert in_process(programs, "crawl", site.url(OTHER), *QUICK, "-q", cwd=here).code == 0


def test_a_misspelt_seed_does_not_keep_a_folder(programs: Nursery, here: Path) -> None:
    with small(2) as site:
        wrong = in_process(programs, "crawl", f"http://{OTHER}:9/", *QUICK, "--depth", "5", cwd=here)
        assert wrong.code == NOTHING
        right = in_process(programs, "crawl", site.url(HOST), *QUICK, "--depth", "1", "--scope", "host", cwd=here)
    assert right.code == 0, right.err
    assert "crawl-data has fetched nothing so far: the crawl begins with these seeds." in right.err
    assert "Finished: 5 pages" in right.out


@pytest.mark.slow(ci=True)
def test_a_second_crawl_of_a_folder_is_refused_before_it_adds_anything(programs: Nursery, here: Path) -> None:
    with small(50, delay_s=1) as site:
        first = programs.crawler("crawl", site.url(HOST), *QUICK, "--dir", "d", cwd=here)
        while not site.requests():
            time.sleep(0.02)
        second = in_process(programs, "crawl", "http://b.test/", *QUICK, "--dir", "d", cwd=here)
        told = (
            f"another crawl is running in d (pid {first.process.pid}); use --dir, or 'crawler seed' to add URLs to it"
        )
        assert (second.code, second.err) == (CONFLICT, f"crawler: {told}\n")
        assert "b.test" not in in_process(programs, "seeds", "--dir", "d", cwd=here).out
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        words = ("crawl", site.url(HOST), *QUICK, "--dir", "d", "-q", "--pages", "1")
        deadline = time.monotonic() + PATIENCE_S  # the process that it had started ends a moment later
        while (again := in_process(programs, *words, cwd=here)).code == CONFLICT and time.monotonic() < deadline:
            time.sleep(0.02)
        assert again.code == 0, again.err  # the lock went with its process


@pytest.mark.slow(ci=True)
def test_commands_with_an_engine_elsewhere_leave_the_working_folder_alone(
    programs: Nursery, here: Path, engine: Engine
) -> None:
    """Neither made, nor looked at: a crawl-data of another crawl is in no way."""
    redis = ("--redis", engine.url)
    commands = [
        ("seed", "http://a.test/"), ("seeds",), ("stats",), ("ring",), ("ring", "show", "a.test"), ("explain", "http://a.test/"),
        ("dead", "list"), ("pause",), ("resume",), ("scale",), ("purge", "a.test"),
    ]  # fmt: skip
    for words in commands:
        ran = in_process(programs, *words, *redis, cwd=here)
        assert (ran.code, ran.err) == (0, ""), words
        assert list(here.iterdir()) == []
    (here / "crawl-data").mkdir()
    (here / "crawl-data" / "mine.txt").write_text("no crawl")
    for words in commands:
        assert in_process(programs, *words, *redis, cwd=here).code == 0, words
    assert [file.name for file in (here / "crawl-data").iterdir()] == ["mine.txt"]
    named = in_process(programs, "stats", *redis, "--dir", "crawl-data", cwd=here)
    assert named.code == USAGE
    assert "crawl-data is not a crawl folder, and not empty" in named.err
    by_variable = in_process(programs, "stats", *redis, cwd=here, CRAWLER_ARCHIVE_DIR="crawl-data")
    assert by_variable.code == USAGE


@pytest.mark.slow(ci=True)
def test_a_crawl_whose_folder_went_is_told_what_helps(programs: Nursery, here: Path, engine: Engine) -> None:
    with small(3) as site:
        command = ("crawl", site.url(HOST), *QUICK, "--redis", engine.url)
        assert in_process(programs, *command, "--name", "one", cwd=here).code == 0
        for folder in here.iterdir():
            folder.rename(here.parent / "gone")
        again = in_process(programs, *command, "--name", "one", cwd=here)
        assert "use another --name to crawl again from the start" in again.err
        anew = in_process(programs, *command, "--name", "two", cwd=here)
        assert "Finished: 6 pages" in anew.out, anew.err


# --- sitemaps, orders ---


def test_a_page_given_as_a_sitemap_is_said_to_be_none(programs: Nursery, here: Path) -> None:
    web = {(HOST, "/"): page("/a"), (HOST, "/empty.xml"): Resource(body="<?xml version='1.0'?><urlset></urlset>")}
    with serve_resources(web) as site:
        url = site.url(HOST)
        ran = in_process(programs, "seed", "--sitemap", url, "--allow-private", cwd=here)
        assert ran.code == USAGE
        assert ran.err == f"crawler: {url} is not a sitemap; seeds need no option: crawler seed {url}\n"
        empty = in_process(programs, "seed", "--sitemap", site.url(HOST, "/empty.xml"), "--allow-private", cwd=here)
        assert (empty.code, empty.err) == (0, "")


@pytest.mark.slow(ci=True)
def test_logs_as_web_servers_write_them_are_read_and_what_they_do_not_tell_is_said(
    programs: Nursery, here: Path
) -> None:
    with small(5) as site:
        assert (
            in_process(programs, "crawl", site.url(HOST), "--allow-private", "--delay", "0.05", "-q", cwd=here).code
            == 0
        )
        begin, at = site.requests()[0].start, time.time()
        moments = [(r, time.gmtime(at + r.start - begin)) for r in site.requests()]
    lines = [
        f"{HOST} - - [{time.strftime('%d/%b/%Y:%H:%M:%S +0000', when)}] "
        f'"GET {r.target} HTTP/1.1" {r.status} 1 "-" "{r.agent}"\n'
        for r, when in moments
    ]
    (here / "access.log").write_text("".join(lines))
    (here / "page.html").write_text("<html>")
    none = in_process(programs, "audit", "--web-log", "access.log", cwd=here)
    assert (none.code, none.err) == (
        USAGE, "crawler: access.log has no hosts: write --web-log HOST=access.log\n"
    )  # fmt: skip
    ran = in_process(programs, "audit", "--web-log", f"{HOST}:{site.port}=access.log", cwd=here)
    assert ran.code == 0, ran.err + ran.out
    assert f"web log  {len(lines)} requests, " in ran.out
    assert "not judged: times in whole seconds" in ran.out
    assert "ok    robots violations" in ran.out
    wrong = in_process(programs, "audit", "--web-log", "elsewhere.test=access.log", cwd=here)
    assert wrong.code == 8
    assert "committed pages, none of them in the log: wrong file, host or --agent?" in wrong.err
    for words in (["page.html"], ["a/b=access.log"], ["a.test=nosuch.log"]):
        wrong = in_process(programs, "audit", "--web-log", *words, cwd=here)
        assert (wrong.code, wrong.err.count("\n")) == (USAGE, 1)


@pytest.mark.slow(ci=True)
def test_a_command_for_a_domain_that_was_never_met_does_nothing_unless_it_is_given_ahead(
    programs: Nursery, here: Path
) -> None:
    in_process(programs, "seed", "http://a.test/", cwd=here)
    known = in_process(programs, "pause", "a.test", cwd=here)
    assert (known.code, known.err) == (0, "")
    never = "crawler: this crawl never met no.example: nothing is done"
    for command in (["pause"], ["block"], ["delay", "5"], ["boost", "5"]):
        words = [command[0], "no.example", *command[1:]]
        unknown = in_process(programs, *words, cwd=here)
        assert (unknown.code, unknown.out) == (USAGE, "")
        assert unknown.err == f"{never}; correct the name, or add --ahead to store the command for later\n"
        assert in_process(programs, "boost", cwd=here).out == "no domain has a boost\n"
    for name in ("resume", "unblock", "purge", "release"):
        assert in_process(programs, name, "no.example", cwd=here).err == f"{never}\n"
    stored = in_process(programs, "block", "no.example", "--ahead", cwd=here)
    assert (stored.code, stored.out) == (0, "no.example is now blocked: 0 URLs deferred\n")
    assert in_process(programs, "unblock", "no.example", cwd=here).code == 0
    assert in_process(programs, "unblock", "no.example", cwd=here).code == USAGE


def test_a_refused_password_is_said_with_how_to_give_one(programs: Nursery, here: Path) -> None:
    with running_engine() as engine, contextlib.closing(engine.client()) as client:
        client.config_set("requirepass", "right")
        for url in (engine.url, engine.url.replace("://", "://:wrong@")):
            ran = in_process(programs, "doctor", "--redis", url, cwd=here)
            assert ran.code == DOCTOR, ran
            assert "fix: give user and password: CRAWLER_FRONTIER_REDIS=redis://USER:PASSWORD@HOST/" in ran.out
            assert "wrong@" not in ran.out
        client.config_set("requirepass", "")


@pytest.mark.parametrize("least", ["0", "9" + "0" * 15])
def test_doctor_and_crawl_agree_on_the_disk_that_is_needed(programs: Nursery, here: Path, least: str) -> None:
    needed = ("--set", f"archive.disk_free_bytes_min={least}")
    ran = in_process(programs, "doctor", *needed, cwd=here)
    assert ("(archive.disk_free_bytes_min), or use another --dir" in ran.out) == (least != "0")
