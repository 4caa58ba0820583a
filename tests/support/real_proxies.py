"""nginx, Caddy and HAProxy in front of `crawler serve`, as docs/operate/api.md tells: the blocks of the page are run.

Only what belongs to this machine is replaced in a block: the port, the certificate, and where the server listens. A
replacement that finds nothing fails the test, as the page has changed then.
"""

import contextlib
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import free_port
from tests.support.processes import ROOT, Nursery, Program

NAME = "tools.example"
PAGE = ROOT / "docs" / "operate" / "api.md"
PATH = f"{os.environ['PATH']}:/usr/sbin"
KINDS = ("nginx", "caddy", "haproxy")
DIRECT = "127.0.0.1:8800"  # where the server listens in the blocks
SOCKET = "/run/crawler/serve.sock"
CERTIFICATE, KEY = f"/etc/ssl/{NAME}.pem", f"/etc/ssl/{NAME}.key"
AROUND = {
    "nginx": "daemon off; pid {folder}/pid; error_log stderr; {user} events {{}} http {{ access_log off;"
    " client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;"
    " uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n{block}\n}}",
    "caddy": "{{\n admin off\n auto_https disable_redirects\n default_bind 127.0.0.1\n}}\n{block}",
    "haproxy": "{block}",
}
LISTENS = {
    "nginx": ("listen 443 ssl;", "listen 127.0.0.1:PORT ssl;"),
    "caddy": (f"{NAME} {{", f"https://{NAME}:PORT {{"),
    "haproxy": ("bind :443 ", "bind 127.0.0.1:PORT "),
}
# What the page says of sockets, and what it takes the place of.
SOCKETS = {
    "nginx": ("proxy_pass http://127.0.0.1:8800;", f"proxy_pass http://unix:{SOCKET};"),
    "caddy": ("reverse_proxy @crawler 127.0.0.1:8800", f"reverse_proxy @crawler unix/{SOCKET}"),
    "haproxy": ("server crawler 127.0.0.1:8800", f"server crawler unix@{SOCKET}"),
}


def block_of(kind: str) -> str:
    """The first block of the page for this proxy."""
    language = {"caddy": "caddyfile"}.get(kind, kind)
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{PAGE} has no block for {kind}"
    return found[1]


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each first one of the pairs replaced, which has to be there once."""
    for old, new in pairs:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def need(program: str) -> None:
    """Skip the test where the program is missing."""
    if not shutil.which(program, path=PATH):
        pytest.skip(f"needs {program}: apt-get install {program}")


def certificate(folder: Path) -> None:
    """cert.pem, key.pem, and both.pem for who wants both."""
    need("openssl")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}",
         "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "both.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())


class ProxyConnection(http.client.HTTPSConnection):
    """A connection to the proxy under its name, as a browser makes it."""

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(NAME, timeout=60)
        self._own_port = port
        self._tls = ssl.create_default_context(cafile=str(folder / "cert.pem"))

    def connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self._own_port), self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=NAME)


@contextlib.contextmanager
def proxy_of_the_page(programs: Nursery, kind: str, folder: Path, server: str, *more: tuple[str, str]) -> Iterator[int]:
    """Run the block of the page while in this context; the port where it listens.

    `server`: ADDRESS:PORT, or the path of a socket. `more` is replaced in the block, too.
    """
    certificate(folder)
    port = free_port()
    old, new = LISTENS[kind]
    pairs = [(old, new.replace("PORT", str(port)))]
    if kind == "haproxy":
        pairs += [(CERTIFICATE, str(folder / "both.pem"))]
    else:
        pairs += [(CERTIFICATE, str(folder / "cert.pem")), (KEY, str(folder / "key.pem"))]
    if server.startswith("/"):
        old, new = SOCKETS[kind]
        assert f"{new}`" in re.sub(r"\s+", " ", PAGE.read_text("utf-8")), "the page tells how"
        pairs += [(old, new.replace(SOCKET, server))]
    else:
        pairs += [(DIRECT, server)]
    with running(programs, kind, folder, replaced(block_of(kind), *pairs, *more), port):
        yield port


@contextlib.contextmanager
def running(programs: Nursery, kind: str, folder: Path, block: str, port: int) -> Iterator[None]:
    """A proxy with this block, which listens on the port, while in this context."""
    need(kind)
    file = folder / f"{kind}.conf"
    user = "user root;" if os.getuid() == 0 else ""
    file.write_text(AROUND[kind].format(block=block, folder=folder, user=user))
    command = {
        "nginx": ["nginx", "-p", str(folder), "-c", str(file)],
        "caddy": ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"],
        "haproxy": ["haproxy", "-db", "-f", str(file)],
    }[kind]
    own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    proxy = programs.start(*command, PATH=PATH, **own)
    try:
        wait_until_it_listens(proxy, port)
        yield
    finally:
        proxy.terminate()  # nginx writes its title over the mark by which others are found
        proxy.wait()


def wait_until_it_listens(proxy: Program, port: int) -> None:
    """Raises AssertionError, with what it said, when it ends instead."""
    while proxy.process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
            continue
        return
    raise AssertionError(f"{proxy.out}\n{proxy.err}")
