"""`crawler serve` behind nginx, Caddy and HAProxy, with the configurations of docs/operate/api.md."""

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

import pytest

from tests.cli.cli_lab import in_process
from tests.support.engine import free_port
from tests.support.processes import Nursery, Program
from tests.support.real_proxies import KINDS, NAME, PAGE, ProxyConnection, need, proxy_of_the_page, running

pytestmark = [pytest.mark.slow(seconds=10), pytest.mark.processes, pytest.mark.leaves_engines]
LINK = r"open this link \(it works once\): (\S+)$"
SEEDED = ("--allow-private", "--set", "crawl.partitions=16")


class Behind:
    """A crawl that is served behind a proxy."""

    def __init__(self, server: Program, port: int, folder: Path, token: str) -> None:
        self.server = server
        self.port = port
        self.folder = folder
        self.token = {"Authorization": f"Bearer {token}"}

    def send(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, str, Message]:
        connection = ProxyConnection(self.port, self.folder)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()


@pytest.fixture
def behind(programs: Nursery, tmp_path: Path) -> Iterator[Callable[..., Behind]]:
    """Serves a crawl with the options of the page behind a proxy of this kind."""
    with contextlib.ExitStack() as stack:

        def start(kind: str, way: str, *more: tuple[str, str]) -> Behind:
            need(kind)
            folder = ("--dir", str(tmp_path / "c"))
            assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
            token = in_process(programs, "token", "add", "--user", "ann", "--role", "write", *folder).out.strip()
            place = f"unix:{tmp_path}/s" if way == "unix" else f"127.0.0.1:{free_port()}"
            trusted = "unix" if way == "unix" else "127.0.0.1"
            options = ("--listen", place, "--host", NAME, "--prefix", "/crawler/", "--trust-proxy", trusted)
            server = programs.crawler("serve", *options, *folder)
            server.wait_for(LINK)
            proxy = proxy_of_the_page(programs, kind, tmp_path, place.removeprefix("unix:"), *more)
            return Behind(server, stack.enter_context(proxy), tmp_path, token)

        yield start


@pytest.mark.parametrize("way", ["tcp", "unix"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_and_a_program_work_behind_a_proxy(behind: Callable[..., Behind], kind: str, way: str) -> None:
    proxied = behind(kind, way)
    assert proxied.send("GET", "/crawler/v1/overview")[0] == 401
    assert proxied.send("GET", "/crawler/healthz")[0] == 200
    status, _, headers = proxied.send("GET", "/crawler")
    assert status in (301, 308)
    assert re.fullmatch(rf"(https://{NAME}(:{proxied.port})?)?/crawler/", headers["Location"])

    link = proxied.server.wait_for(LINK)[1]
    assert link.startswith(f"https://{NAME}/crawler/login?code=")
    status, _, headers = proxied.send("GET", link.removeprefix(f"https://{NAME}"))
    assert (status, headers["Location"]) == (303, "/crawler/")
    assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/crawler/"} <= set(headers["Set-Cookie"].split("; "))
    own = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
    page = proxied.send("GET", "/crawler/", own)[1]
    assets = re.findall(r'(?:src|href)="((?:assets/)?[\w.]+)"', page)
    assert len(assets) > 4
    for name in assets:
        assert proxied.send("GET", f"/crawler/{name}", own)[0] == 200, name
    session = json.loads(proxied.send("GET", "/crawler/v1/session", own)[1])
    change = own | {"X-CSRF-Token": session["csrf_token"], "Sec-Fetch-Site": "same-origin"}
    for origin, expected in ((f"https://{NAME}", 200), (f"http://{NAME}", 403), ("https://evil.example", 403)):
        found, text, _ = proxied.send("POST", "/crawler/v1/pause", change | {"Origin": origin})
        assert found == expected, (origin, text)
    assert proxied.send("POST", "/crawler/v1/resume", change | {"Authorization": "Basic eDp5"})[0] == 200

    for name in ("a.test", "http%3A%2F%2Fa.test%2F", "http:%2f%2fa.test%2f%3Fa=b"):  # as they are, not decoded
        assert json.loads(proxied.send("GET", f"/crawler/v1/domains/{name}", own)[1])["domain"]["domain"] == "a.test"

    token, size = proxied.token, 3 * 2**20  # more than what proxies take when nobody tells them
    lines = b'"http://a.test/"\n' * (size // 17)
    status, text, _ = proxied.send(
        "POST", "/crawler/v1/seeds", token | {"Content-Type": "application/x-ndjson"}, body=lines
    )
    assert (status, json.loads(text)["seen"]) == (200, size // 17)
    stream = ProxyConnection(proxied.port, proxied.folder)
    stream.request("GET", "/crawler/v1/events", headers=token)
    answer = stream.getresponse()
    assert answer.status == 200
    for _ in range(3):  # what is kept back would not come before there is more of it
        while not answer.readline().startswith(b"event: overview"):
            pass
    answer.close()
    stream.close()


def test_who_logs_in_at_nginx_reads_by_its_token(behind: Callable[..., Behind], tmp_path: Path) -> None:
    """The second block of the page for nginx, in the first one."""
    (login,) = re.findall(r"^```nginx\n( +auth_basic .*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    need("openssl")
    hashed = subprocess.run(["openssl", "passwd", "-apr1", "secret"], check=True, capture_output=True, text=True).stdout
    (tmp_path / "passwords").write_text(f"ann:{hashed}")
    proxied = behind("nginx", "tcp", ("proxy_http_version 1.1;", f"proxy_http_version 1.1;\n{login}"))
    file = tmp_path / "nginx.conf"
    text = file.read_text().replace("Bearer TOKEN", proxied.token["Authorization"])
    file.write_text(text.replace("/etc/nginx/tools.passwd", str(tmp_path / "passwords")))
    subprocess.run(["nginx", "-p", str(tmp_path), "-c", str(file), "-s", "reload"], check=True, capture_output=True)
    basic = {"Authorization": "Basic YW5uOnNlY3JldA=="}
    while proxied.send("GET", "/crawler/v1/session", basic)[0] != 200:  # until it has read it
        pass
    assert proxied.send("GET", "/crawler/v1/session")[0] == 401
    assert json.loads(proxied.send("GET", "/crawler/v1/session", basic)[1])["user"] == "ann"


BARE = """
server {{ listen 127.0.0.1:{port}; {more}
  location / {{ proxy_pass http://127.0.0.1:{server}; {headers} }} }}
"""
# What nginx sends -> what nobody gets from `crawler serve` without options.
SEEN = [
    ("", 200),  # nothing tells of it: the page says so
    ("proxy_set_header Host $host;", 421),
    ("proxy_set_header X-Real-IP $remote_addr;", 401),
    ("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", 401),
    ("proxy_set_header X-Forwarded-Proto $scheme;", 401),
    ("auth_basic x; auth_basic_user_file {passwords};", 401),
]


def asked(port: int, headers: str) -> bytes:
    """What a client gets at this port; with a password, if that is asked for."""
    basic = "Authorization: Basic YW5uOnNlY3JldA==\r\n" if "auth" in headers else ""
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(f"GET /v1/overview HTTP/1.1\r\nHost: {NAME}\r\n{basic}Connection: close\r\n\r\n".encode())
        return client.makefile("rb").read()


def test_what_a_bare_proxy_opens(programs: Nursery, tmp_path: Path) -> None:
    need("nginx")
    folder = ("--dir", str(tmp_path / "c"))
    assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
    (tmp_path / "passwords").write_text("ann:{PLAIN}secret\n")
    server = programs.crawler("serve", "--listen", "127.0.0.1:0", *folder)
    at = server.wait_for(r"at http://127\.0\.0\.1:(\d+)/")[1]
    ports = [free_port() for _ in SEEN]
    blocks = [
        BARE.format(port=port, server=at, more="", headers=text.format(passwords=tmp_path / "passwords"))
        for port, (text, _) in zip(ports, SEEN, strict=True)
    ]
    with running(programs, "nginx", tmp_path, "\n".join(blocks), ports[-1]):
        answers = [asked(port, text) for port, (text, _) in zip(ports, SEEN, strict=True)]
    for answer, (text, expected) in zip(answers, SEEN, strict=True):
        assert answer.split()[1] == str(expected).encode(), text
        if expected != 200:
            assert b"crawler token add" in answer or b"crawler serve --host NAME" in answer, "it says what to do"


CONNECT = """\
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("has_group", [False, True])
def test_another_user_connects_only_by_the_folders_group(programs: Nursery, tmp_path: Path, *, has_group: bool) -> None:
    """The line of the page for systemd-tmpfiles, with the group of nobody in the place of the proxy's."""
    need("systemd-tmpfiles")
    place = Path(f"/run/test-{os.getpid()}-{has_group}")
    (line,) = re.findall(r"^```text\n(d .*)\n```", PAGE.read_text("utf-8"), re.MULTILINE)
    made = line.replace("/run/crawler", str(place)).replace("crawler www-data", "root nogroup")
    (tmp_path / "t.conf").write_text(made if has_group else made.replace("2750", "0755"))
    try:
        subprocess.run(["systemd-tmpfiles", "--create", str(tmp_path / "t.conf")], check=True)
        folder = ("--dir", str(tmp_path / "c"))
        assert in_process(programs, "seed", "http://a.test/", *SEEDED, *folder).code == 0
        server = programs.crawler("serve", "--listen", f"unix:{place}/s", *folder)
        server.wait_for(LINK)
        command = [sys.executable, "-c", CONNECT, f"{place}/s"]
        connected = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (connected.returncode == 0) is has_group, connected.stderr
        assert stat.S_IMODE((place / "s").stat().st_mode) == (0o660 if has_group else 0o600)
    finally:
        shutil.rmtree(place)
