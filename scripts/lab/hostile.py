"""Do sites that drip, stay silent, send bodies without end or reset slow down those that do nothing of that?

Crawls good sites, whose pages lead from one to the next, for some seconds: first alone, then beside thousands of
hostile ones, once these have their connections open. Prints the rate of the good ones each time, how much memory the
crawler took at most, and how many heartbeats were lost. Exit code 1: --judge, and an aim is missed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import given
import measure

from tests.crawl.lab import name_server

KINDS = ("drip", "silent", "endless", "reset", "slow-head")
AIM_RATE, AIM_MIB = 0.9, 1024.0
READY_SHARE = 0.95  # of the hostile sites that keep a connection open, before anything is measured
PIECE, PIECE_EVERY_S = b"a" * 32_768, 0.5  # of a body without end: 64 KB/s each
POLL_S = 0.25
START_S = 90.0


@dataclass(frozen=True)
class Run:
    """What was seen of one crawl."""

    rate: float  # requests/s of the good sites
    open_hostile: int
    peak_mib: float
    lost_beats: int


class Web:
    """The server's side: the first word of a host's name says what it does."""

    def __init__(self) -> None:
        self.good = 0
        self.open: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                host = head.partition(b"\r\nHost: ")[2].partition(b":")[0].decode()
                kind = host.rpartition("-")[0]
                if path == "/stats":
                    body = json.dumps({"good": self.good, "open": sum(self.open.values())}).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                elif path == "/robots.txt":
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                elif kind in KINDS:
                    await self._be_hostile(kind, reader, writer)
                    return
                else:
                    self.good += 1
                    writer.write(_page(path))
                await writer.drain()
        writer.close()

    async def _be_hostile(self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ok = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
        self.open[kind] += 1
        try:
            if kind == "reset":
                writer.write(ok + b"Content-Length: 99\r\n\r\nabc")
                await asyncio.sleep(5)
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif kind == "silent":
                await reader.read()
            else:
                writer.write(ok if kind == "slow-head" else ok + b"\r\n")
                piece, every_s = (PIECE, PIECE_EVERY_S) if kind == "endless" else (b"a", 1.0)
                while not writer.is_closing():
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(every_s)
        finally:
            self.open[kind] -= 1
            writer.transport.abort()


def _page(path: str) -> bytes:
    number = int(path[1:] or 0)
    body = b"<title>%d</title><a href=/%d>next</a>" % (number, number + 1) + b"<p>some words of a page</p>" * 600
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def serve() -> None:
    server = await asyncio.start_server(Web().serve, "127.0.0.1", 0, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


def stats(port: int) -> dict[str, int]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(b"GET /stats HTTP/1.1\r\nHost: stats:1\r\n\r\n")
        received = b""
        while not received.endswith(b"}"):
            received += sock.recv(4096)
    found: dict[str, int] = json.loads(received.partition(b"\r\n\r\n")[2])
    return found


@contextlib.contextmanager
def web() -> Iterator[int]:
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def crawled(options: argparse.Namespace, dns: str, hostile: int) -> Run:
    """Good sites beside so many hostile ones, for as long as asked for."""
    with web() as port, tempfile.TemporaryDirectory(prefix="hostile-") as home:
        names = [f"good-{n}" for n in range(options.good)]
        names += [f"{KINDS[n % len(KINDS)]}-{n}" for n in range(hostile)]
        Path(home, "seeds").write_text("".join(f"http://{name}.test:{port}/\n" for name in names), "utf-8")
        settings = {
            "fetch.concurrency": 2 * hostile or 64, "fetch.allow_private": "true", "dns.nameservers": dns,
            "politeness.delay_s": options.delay, "politeness.concurrency_per_address": 100_000,
            "fetch.total_timeout_s": 140, "fetch.idle_timeout_s": 140,
        }  # fmt: skip
        command = [sys.executable, "-m", "crawler", "crawl", "-i", "seeds", "-q", "-v"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        others = measure.below(os.getpid())
        with Path(home, "log").open("w") as log:
            process = subprocess.Popen(command, cwd=home, stderr=log, stdout=log)
        try:
            return watched(options, process, Path(home, "log"), port, hostile)
        finally:
            for pid in measure.below(os.getpid()) - others:  # its engine, too
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def watched(options: argparse.Namespace, process: subprocess.Popen[bytes], log: Path, port: int, hostile: int) -> Run:
    wanted = READY_SHARE * hostile * (len(KINDS) - 1) / len(KINDS)  # those that reset have gone
    deadline = time.monotonic() + START_S
    while (now := stats(port))["open"] < wanted or now["good"] < options.good:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the crawl did not come so far: {now}, {log.read_text('utf-8')[-2000:]}")
        time.sleep(POLL_S)
    began, before = time.monotonic(), now["good"]
    time.sleep(options.seconds)
    now = stats(port)
    rate = (now["good"] - before) / (time.monotonic() - began)
    peak_mib = max(map(peak_mib_of, {process.pid} | measure.below(process.pid)))
    return Run(rate, now["open"], peak_mib, log.read_text("utf-8").count("heartbeat.lapse"))


def peak_mib_of(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError):  # it has ended
        return 0.0


def main() -> int:
    options = parse_arguments()
    if options.serve:
        asyncio.run(serve())
    measure.adopt_orphans()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with name_server() as dns:
        alone = crawled(options, dns, 0)
        beside = crawled(options, dns, options.hostile)
    share = beside.rate / alone.rate
    print(f"good sites alone: {alone.rate:.1f} requests/s, at most {alone.peak_mib:.0f} MiB")
    print(
        f"beside {beside.open_hostile} hostile connections: {beside.rate:.1f} requests/s ({share:.0%}), at most "
        f"{beside.peak_mib:.0f} MiB, {beside.lost_beats} heartbeats lost"
    )
    if options.json:
        figures = {"alone": asdict(alone), "beside": asdict(beside), "share": share}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    missed = share < AIM_RATE or beside.peak_mib > AIM_MIB or beside.lost_beats
    return 1 if options.judge and missed else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-hostile", description=__doc__)
    parser.add_argument("--hostile", type=given.count, default=2000, metavar="SITES", help="(default: 2000)")
    parser.add_argument("--good", type=given.count, default=50, metavar="SITES", help="(default: 50)")
    parser.add_argument("--delay", type=given.amount, default=1.0, metavar="S", help="of each site (default: 1)")
    parser.add_argument("--seconds", type=given.amount, default=30, help="that are measured (default: 30)")
    parser.add_argument("--judge", action="store_true", help="exit code 1 when an aim is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
