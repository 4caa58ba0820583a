"""`crawler serve` and `crawler token` as processes: start, log-in, crawls beside it, ends, wrong options."""

import http.client
import json
import re
import socket
import stat
from pathlib import Path

import pytest

from tests.cli.cli_lab import QUICK, SMALL_PAGES, crawler, in_process, small
from tests.support.engine import Engine, free_port
from tests.support.processes import Nursery, Program

pytestmark = pytest.mark.processes

SEEDED = ("--allow-private", "--set", "crawl.partitions=16")


def sent(port: int, method: str, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def served(programs: Nursery, *options: str) -> tuple[Program, int]:
    """A server that answers, and its port."""
    server = programs.crawler("serve", "--listen", "127.0.0.1:0", *options)
    return server, int(server.wait_for(r"^Serving crawl main at http://127\.0\.0\.1:(\d+)/ ")[1])


@pytest.mark.slow(ci=True)
def test_a_server_lives_beside_crawls_and_ends_in_order(programs: Nursery, tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "c"))
    with small() as site:
        url = site.url("127.0.0.1")
        assert in_process(programs, "seed", url, *SEEDED, *folder).code == 0
        server, port = served(programs, *folder)
        assert json.loads(sent(port, "GET", "/v1/overview")[1])["pending"] == 1
        ran = crawler(programs, "crawl", url, *QUICK, *folder)
        assert (ran.code, SMALL_PAGES) == (0, json.loads(sent(port, "GET", "/v1/overview")[1])["pages"]), ran.err
        token = in_process(programs, "token", "add", "--user", "ann", "--role", "write", *folder).out.strip()
        assert sent(port, "POST", "/v1/pause")[0] == 401
        assert sent(port, "POST", "/v1/pause", Authorization=f"Bearer {token}")[0] == 200
        assert "paused" in in_process(programs, "stats", *folder).out
        assert sent(port, "POST", "/v1/resume", Authorization=f"Bearer {token}")[0] == 200
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
    events = stream.getresponse()
    assert events.readline().startswith(b"id: ")
    server.terminate()
    assert server.wait() == 0, server.err
    assert b"event: overview" in events.read()
    stream.close()
    assert programs.left() == [], "the engine has ended with its last user"


@pytest.mark.slow(ci=True)
def test_the_printed_link_begins_a_browsers_session(programs: Nursery, tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "c"))
    assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
    server, port = served(programs, *folder)
    link = rf"open this link \(it works once\): http://127\.0\.0\.1:{port}(/login\?code=\S+)$"
    path = server.wait_for(link)[1]
    status, _, headers = sent(port, "GET", path)
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"].partition(";")[0]
    session = json.loads(sent(port, "GET", "/v1/session", Cookie=cookie)[1])
    assert (session["user"], session["role"]) == ("browser", "write")
    assert sent(port, "POST", "/v1/pause", Cookie=cookie, X_CSRF_Token=session["csrf_token"])[0] == 200
    assert sent(port, "GET", path)[0] == 403
    assert len(set(re.findall(r"/login\?code=\S+", server.err))) == 2, "the next one is printed"
    server.interrupt()
    assert server.wait() == 0
    assert "browser" in in_process(programs, "oplog", *folder).out


def test_tokens_are_made_listed_and_removed(programs: Nursery, tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "c"))
    assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
    assert "no token yet" in in_process(programs, "token", "list", *folder).out
    made = in_process(programs, "token", "add", "--user", "ann", "--role", "read", *folder)
    assert re.fullmatch(r"crawler_[0-9a-f]{8}_[\w-]{43}\n", made.out)
    assert made.err == "Token of ann, role read; it is not shown again:\n"
    number = made.out.split("_")[1]
    listed = in_process(programs, "token", "list", "--json", *folder).out
    assert [(one["id"], one["user"], one["role"]) for one in json.loads(listed)["tokens"]] == [(number, "ann", "read")]
    assert number in in_process(programs, "token", "list", *folder).out
    assert made.out.split("_", 2)[2].strip() not in listed
    assert in_process(programs, "token", "rm", number, *folder).code == 0
    noted = [json.loads(line) for line in in_process(programs, "oplog", "--json", *folder).out.splitlines()]
    details = [("seed", "1 URL"), ("token add", "user ann, role read"), ("token rm", f"{number} of user ann")]
    assert [(one["action"], one["detail"]) for one in noted] == details
    again = in_process(programs, "token", "rm", number, *folder)
    assert (again.code, again.err) == (2, f"crawler: there is no token {number} (see 'crawler token list')\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["token"], "give an action"),
        (["token", "add", "--user", "a b", "--role", "read"], "'a b' is not a valid name of a user"),
        (["serve", "--listen", "8800"], "--listen 8800: expected an address and a port"),
        (["serve", "--listen", "crawl.example:80"], "expected an address and a port"),
        (["serve", "--listen", "192.0.2.1:8800"], "can't listen on 192.0.2.1:8800"),
        (["serve", "--listen", "0.0.0.0:0"], "make one with 'crawler token add' first"),
        (["serve", "--name", "other"], "other"),
        (["serve", "--listen", "unix:"], "--listen unix:: expected the path of a socket"),
        (["serve", "--listen", f"unix:/{'a' * 100}"], "the path of a socket has at most 100 bytes; use a shorter one"),
        (["serve", "--listen", "unix:/proc/no/socket"], "can't listen on unix:/proc/no/socket: No such file"),
        (["serve", "--prefix", "crawler"], "--prefix crawler: expected a path like /crawler/"),
        (["serve", "--trust-proxy", "nginx"], "--trust-proxy nginx: expected an address, a network like 10.0.0.0/8"),
        (["serve", "--trust-proxy", "unix"], "--trust-proxy unix: nobody comes through a Unix socket without"),
    ],
)
def test_wrong_options_are_one_line(options: list[str], complaint: str, programs: Nursery, engine: Engine) -> None:
    redis = ("--redis", engine.url)
    assert in_process(programs, "seed", "http://a.test/", *SEEDED, *redis).code == 0
    ran = in_process(programs, *options, *(redis if len(options) > 1 else ()))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert complaint in ran.err


@pytest.mark.slow(ci=True)
@pytest.mark.leaves_engines
def test_a_port_in_use_ends_it_with_4(programs: Nursery, tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "c"))
    assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
    _, port = served(programs, *folder)
    ran = crawler(programs, "serve", "--listen", f"127.0.0.1:{port}", *folder)
    assert (ran.code, ran.err.count("\n")) == (4, 1)
    assert f"127.0.0.1:{port} is in use by another program" in ran.err


def test_there_is_nothing_to_serve_without_a_crawl(programs: Nursery, tmp_path: Path) -> None:
    ran = crawler(programs, "serve", "--listen", f"127.0.0.1:{free_port()}", "--dir", str(tmp_path / "none"))
    assert (ran.code, ran.err.count("\n"), (tmp_path / "none").exists()) == (2, 1, False)


@pytest.mark.slow(ci=True)
@pytest.mark.leaves_engines
def test_a_killed_servers_socket_is_taken_over_and_a_live_one_is_not(programs: Nursery, tmp_path: Path) -> None:
    folder, path = ("--dir", str(tmp_path / "c")), tmp_path / "s"
    assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
    options = ("serve", "--listen", f"unix:{path}", "--host", "tools.example", "--prefix", "/crawler/", *folder)
    said = rf"^Serving crawl main at https://tools\.example/crawler/, by the socket {path} \(Ctrl-C ends it\)$"
    first = programs.crawler(*options)
    first.wait_for(said)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first.wait_for(r"open this link \(it works once\): https://tools\.example/crawler/login\?code=\S+$")
    first.kill()
    assert path.exists()
    second = programs.crawler(*options)
    second.wait_for(said)
    ran = crawler(programs, *options)
    assert (ran.code, ran.err.count("\n")) == (4, 1), ran
    assert f"unix:{path} is in use by another program; use --listen with another path" in ran.err
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /crawler/healthz HTTP/1.1\r\nHost: tools.example\r\nConnection: close\r\n\r\n")
        assert client.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
    second.terminate()
    assert (second.wait(), path.exists()) == (0, False)
