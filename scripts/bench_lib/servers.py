"""The servers of a benchmark: nginx for the pages, a small DNS server for the names. They end with this process."""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench_lib import corpus
from scripts.bench_lib.peer_environments import ROOT, namespace
from scripts.bench_lib.transport import Authority, Server
from scripts.bench_lib.webs import Web

START_S = 10.0
CONNECTIONS_MAX = 30_000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class RunningWeb:
    """A web at `port` on 127.0.0.1; names from the DNS server at `dns` (address:port) or in the file `hosts`."""

    web: Web
    port: int
    status_port: int
    dns: str
    home: Path
    processes: tuple[int, ...]  # ids of the servers

    @property
    def authority(self) -> Path | None:
        """The certificate that clients have to trust; None without TLS."""
        return self.home / "ca.pem" if self.web.transport.tls else None

    def with_names(self, command: list[str]) -> list[str]:
        """The command for a program that only the system can resolve names for: in a mount namespace with our
        /etc/hosts, and no other source of names: unknown ones fail at once."""
        mount = 'mount --bind "$0/hosts" /etc/hosts && mount --bind "$0/nsswitch" /etc/nsswitch.conf && exec "$@"'
        return [*namespace(), "sh", "-c", mount, str(self.home), *command]

    def cpu_s(self) -> float:
        """CPU seconds of the servers so far."""
        return sum(map(cpu_of, self.processes))

    def requests(self) -> int:
        """Requests answered so far, without this one."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/requests", timeout=5) as reply:
            return int(reply.read().split()[9]) - 1

    def handshakes(self) -> tuple[int, int]:
        """TLS handshakes so far that ended in a request: new sessions, and resumed ones."""
        file = self.home / "handshakes"
        lines = file.read_text().splitlines() if file.exists() else []
        return lines.count("."), lines.count("r")


def missing_packages(web: Web) -> list[str]:
    """Packages that must be installed before the web can be served."""
    return web.missing() + web.transport.missing() + ([] if corpus.nginx() else ["nginx-light"])


def raise_file_limit() -> None:
    """Allow a connection to each of thousands of hosts, at both ends: children inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def serving(web: Web) -> Iterator[RunningWeb]:
    """Serve the web until the context ends, from the cores of this process."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-web-")))
        port, status_port = _free_ports()
        web.write(home, port)
        names = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *web.hosts))
        (home / "hosts").write_text(names, encoding="utf-8")
        (home / "nsswitch").write_text("hosts: files\n", encoding="utf-8")
        config = home / "nginx.conf"
        config.write_text(_nginx_config(home, port, status_port, web), encoding="utf-8")
        command = [corpus.nginx(), "-c", str(config), "-p", str(home), "-e", str(home / "error.log")]
        server = stack.enter_context(_process(command))
        name_server = [sys.executable, "-I", str(ROOT / "crawler/testing/dns_server.py"), "*.test=127.0.0.1"]
        dns = stack.enter_context(_process(name_server, stdout=subprocess.PIPE))
        assert dns.stdout is not None
        address = dns.stdout.readline().decode().strip()
        _wait_until_served(server, port, home / "error.log")
        workers = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        yield RunningWeb(web, port, status_port, address, home, (dns.pid, *map(int, workers)))


def pinned(*cores: int) -> Callable[[], None]:
    """What a child does before its program starts: take its cores, and arrange to end when this process ends."""

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return prepare


@contextlib.contextmanager
def _process(command: list[str], stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    mine = pinned(*os.sched_getaffinity(0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, preexec_fn=mine)  # noqa: PLW1509
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_served(web: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if web.poll() is not None or time.monotonic() > deadline:
            detail = log.read_text(errors="replace")[-500:] if log.exists() else ""
            raise SystemExit(f"bench: nginx did not start: {detail}")
        time.sleep(0.02)


def cpu_of(pid: int) -> float:
    """CPU seconds of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _nginx_config(home: Path, port: int, status_port: int, web: Web) -> str:
    owner = "user root;" if os.geteuid() == 0 else ""  # as root, workers would become a user who can't read `home`
    places = " ".join(f"{kind}_temp_path {home}/temp;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    connections = min(CONNECTIONS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    authority = Authority(home) if web.transport.tls else None
    servers = "\n".join(_block(server, port, authority, is_first=not n) for n, server in enumerate(web.servers(home)))
    return f"""{web.transport.first_lines()}
daemon off; worker_processes 1; {owner} pid {home}/nginx.pid; error_log {home}/error.log crit;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
  types {{ text/html html htm; text/plain txt; text/css css; image/png png; application/javascript js; }}
  default_type application/octet-stream; {places}
  sendfile on; tcp_nopush on; keepalive_timeout 120; absolute_redirect off; etag off; {web.transport.http_lines(home)}
  open_file_cache max=50000 inactive=300s; open_file_cache_valid 300s; server_names_hash_bucket_size 128;
  server_names_hash_max_size 65536;
server {{ listen 127.0.0.1:{status_port}; access_log off; location = /requests {{ stub_status; }} }}
{servers}
}}
"""


def _block(server: Server, port: int, authority: Authority | None, *, is_first: bool) -> str:
    tls = f" ssl; {authority.sign(server.names)}" if authority else ";"
    listen = f"listen 127.0.0.1:{port}{' backlog=4096' if is_first else ''}{tls}"
    return f"{server.before}\nserver {{ {listen} server_name {' '.join(server.names)}; {server.block} }}"
