"""The servers of the benchmark: nginx for the pages, a small DNS server for the names. They end with this process."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import corpus

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 10.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Lab:
    """Where the web is: `port` on 127.0.0.1, names by the DNS server at `dns` (address:port)."""

    port: int
    dns: str


@contextlib.contextmanager
def running(core: int) -> Iterator[Lab]:
    """Serve the web from one core until the context ends."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crawl-lab-")))
        port = _free_port()
        corpus.write_portal(home, port)
        config = home / "nginx.conf"
        config.write_text(_nginx_config(home, port), encoding="utf-8")
        command = [corpus.nginx(), "-c", str(config), "-p", str(home), "-e", str(home / "error.log")]
        web = stack.enter_context(_process(command, core))
        names = [sys.executable, "-I", str(ROOT / "crawler/testing/names.py"), "*.test=127.0.0.1"]
        dns = stack.enter_context(_process(names, core, stdout=subprocess.PIPE))
        assert dns.stdout is not None
        address = dns.stdout.readline().decode().strip()
        _wait_until_served(web, port, home / "error.log")
        yield Lab(port, address)


def pinned(*cores: int) -> Callable[[], None]:
    """What a child does before it becomes its program: take its cores, and end when this process ends."""

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return prepare


@contextlib.contextmanager
def _process(command: list[str], core: int, stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, preexec_fn=pinned(core))  # noqa: PLW1509
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _nginx_config(home: Path, port: int) -> str:
    hosts = [(corpus.PORTAL, home), *((source.host, source.folder) for source in corpus.SOURCES)]
    servers = "\n".join(
        f"  server {{ listen 127.0.0.1:{port} backlog=4096; server_name {host}; root {folder}; index index.html;"
        f" location = /robots.txt {{ alias {home}/robots.txt; }} }}"
        for host, folder in hosts
    ).replace(" backlog=4096", "", len(hosts) - 1)
    owner = "user root;" if os.geteuid() == 0 else ""  # as root, workers would become a user who can't read `home`
    places = " ".join(f"{kind}_temp_path {home}/temp;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""daemon off; worker_processes 1; {owner} pid {home}/nginx.pid; error_log {home}/error.log crit;
events {{ worker_connections 4096; multi_accept on; }}
http {{
  types {{ text/html html htm; text/plain txt; text/css css; image/png png; application/javascript js; }}
  default_type application/octet-stream; access_log off; {places}
  sendfile on; tcp_nopush on; keepalive_timeout 120; keepalive_requests 1000000; absolute_redirect off; etag off;
  open_file_cache max=50000 inactive=300s; open_file_cache_valid 300s; server_names_hash_bucket_size 128;
{servers}
}}
"""
