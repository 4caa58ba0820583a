"""A real HAProxy in front of engines, which leads to the one that is the primary, as its documentation shows."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.support.engine import free_ports, short_folder, wait_for

CONFIG = """
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
frontend engine
    bind 127.0.0.1:{port}
    default_backend engines
backend engines
    option tcp-check
    tcp-check connect
    tcp-check send PING\\r\\n
    tcp-check expect string +PONG
    tcp-check send info\\ replication\\r\\n
    tcp-check expect string role:master
"""


@contextlib.contextmanager
def haproxy(ports: Sequence[str], *, cuts: bool) -> Iterator[str]:
    """The URL of the address that leads to whichever of the engines at these ports is the primary. `cuts`: it closes
    the connections to one that is it no longer. Skips the test where there is no HAProxy.
    """
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("haproxy is not installed")
    (port,) = free_ports(1)
    option = " on-marked-down shutdown-sessions" if cuts else ""
    servers = [f"    server e{n} 127.0.0.1:{p} check inter 200 fall 1 rise 1{option}\n" for n, p in enumerate(ports)]
    with short_folder() as folder:
        (folder / "haproxy.cfg").write_text(CONFIG.format(port=port) + "".join(servers))
        process = subprocess.Popen([program, "-db", "-f", str(folder / "haproxy.cfg")], stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: _answers(port), "HAProxy")
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.settimeout(1)
        connection.sendall(b"PING\r\n")
        return connection.recv(5) == b"+PONG"
    return False
