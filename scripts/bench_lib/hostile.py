"""Do hostile sites, which drip, stay silent, send endless bodies or reset connections, slow down good sites?

Crawls good sites, whose pages link to the next one, for some seconds: first alone, then with thousands of hostile
sites, once these have their connections open. With --expensive, hostile sites have pages that take the HTML parser
seconds instead, and settings are the defaults; with --heavy, one page in ten of the good sites is like that, too.
Prints the rate of the good sites each time, the crawler's peak memory
and the lost heartbeats. Exit code 1: --judge, and a target is missed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench_lib import arguments
from scripts.bench_lib.measure import below, memory_of, take_cores
from scripts.bench_lib.peer_environments import CRAWLER
from tests.crawl.lab import name_server

KINDS = ("drip", "silent", "endless", "reset", "slow-head")
RATE_TARGET, EXPENSIVE_TARGET, MIB_TARGET = 0.9, 0.8, 1024.0
EXPENSIVE = "expensive"
WIDE, WIDE_LINKS = "wide", 1000  # a good site whose first page links to all others
READY_SHARE = 0.95  # of the hostile sites that keep a connection open, before anything is measured
PIECE, PIECE_EVERY_S = b"a" * 32_768, 0.5  # of an endless body: 64 KB/s each
POLL_S = 0.25
START_S = 90.0


@dataclass(frozen=True)
class Run:
    """What one crawl did."""

    rate: float  # requests/s of the good sites
    open_hostile: int
    peak_mib: float
    lost_beats: int


class Web:
    """The web server: the first word of a host name is the kind of its site."""

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
                elif kind == EXPENSIVE and path != "/":
                    self.open[host] = 1
                    writer.write(_html(_expensive(int(path[1:]) + int(host.partition(".")[0].rpartition("-")[2]))))
                elif kind == EXPENSIVE:
                    writer.write(_wide())
                elif kind.startswith(WIDE):
                    self.good += 1
                    is_heavy = kind != WIDE and path[1:].endswith("7")
                    writer.write(_wide() if path == "/" else _html(_expensive(0)) if is_heavy else _page(path))
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


def _expensive(number: int) -> bytes:
    """What takes seconds or gigabytes to parse and was rated cheap; the last is as much as is rated cheap."""
    open_bold = b"<p>" + b"".join(b"<b x%d>" % n for n in range(4000))
    return (
        open_bold + b"<p>/" * 10_000,
        b"".join(b"<b x%d><p>" % n for n in range(5000)) + b"</b>" * 5000,
        b"<div>" * 50_000 + b"</p>" * 100_000,
        b"<p " + b"".join(b"a%d='>'" % n for n in range(60_000)) + b">",
        b"<div>" * 6000 + b"</p>" * 9000,
    )[number % 5]


def _wide() -> bytes:
    return _html(b"".join(b"<a href=/%d>x</a>" % n for n in range(1, WIDE_LINKS + 1)))


def _page(path: str) -> bytes:
    number = int(path[1:] or 0)
    return _html(b"<title>%d</title><a href=/%d>next</a>" % (number, number + 1) + b"<p>some words of a page</p>" * 600)


def _html(body: bytes) -> bytes:
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
    command = [sys.executable, "-u", "-m", __name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def crawled(options: argparse.Namespace, dns: str, hostile: int) -> Run:
    """A crawl of the good sites and this many hostile ones, measured for --seconds."""
    with web() as port, tempfile.TemporaryDirectory(prefix="hostile-") as home:
        good = ("wide", "wideheavy")[options.heavy] if options.expensive else "good"
        names = [f"{good}-{n}" for n in range(options.good)]
        names += [f"{EXPENSIVE if options.expensive else KINDS[n % len(KINDS)]}-{n}" for n in range(hostile)]
        Path(home, "seeds").write_text("".join(f"http://{name}.test:{port}/\n" for name in names), "utf-8")
        settings = {
            "fetch.concurrency": 2 * hostile or 64, "fetch.allow_private": "true", "dns.nameservers": dns,
            "politeness.delay_s": options.delay, "politeness.concurrency_per_address": 100_000,
            "fetch.total_timeout_s": 140, "fetch.idle_timeout_s": 140,
        }  # fmt: skip
        if options.expensive:
            settings = {
                key: value for key, value in settings.items() if not key.startswith("fetch.") or value == "true"
            }
        command = [*CRAWLER, "crawl", "-i", "seeds", "-q", "-v"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        others = below(os.getpid())
        with Path(home, "log").open("w") as log:
            process = subprocess.Popen(command, cwd=home, stderr=log, stdout=log)
        try:
            return observed(options, process, Path(home, "log"), port, hostile)
        finally:
            for pid in below(os.getpid()) - others:  # its engine, too
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def observed(options: argparse.Namespace, process: subprocess.Popen[bytes], log: Path, port: int, hostile: int) -> Run:
    kinds = 1 if options.expensive else (len(KINDS) - 1) / len(KINDS)  # those that reset have gone
    wanted = READY_SHARE * hostile * kinds
    deadline = time.monotonic() + START_S
    while (now := stats(port))["open"] < wanted or now["good"] < options.good:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"bench: the crawl did not reach all sites: {now}, {log.read_text('utf-8')[-2000:]}")
        time.sleep(POLL_S)
    began, before = time.monotonic(), now["good"]
    time.sleep(options.seconds)
    now = stats(port)
    rate = (now["good"] - before) / (time.monotonic() - began)
    peak_mib = max(map(peak_mib_of, {process.pid} | below(process.pid)))
    return Run(rate, now["open"], peak_mib, log.read_text("utf-8").count("heartbeat.lease_loss"))


def peak_mib_of(pid: int) -> float:
    try:
        return memory_of(pid)[1]
    except (OSError, IndexError):  # it has ended
        return 0.0


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    take_cores(share=True)
    with name_server() as dns:
        alone = crawled(options, dns, 0)
        mixed = crawled(options, dns, options.expensive or options.hostile)
    share = mixed.rate / alone.rate
    print(f"good sites alone: {alone.rate:.1f} requests/s, peak memory {alone.peak_mib:.0f} MiB")
    print(
        f"with {mixed.open_hostile} hostile {'sites' if options.expensive else 'connections'}: "
        f"{mixed.rate:.1f} requests/s ({share:.0%}), peak memory "
        f"{mixed.peak_mib:.0f} MiB, {mixed.lost_beats} heartbeats lost"
    )
    arguments.write_json(options.json, {"alone": asdict(alone), "mixed": asdict(mixed), "share": share})
    target = EXPENSIVE_TARGET if options.expensive else RATE_TARGET
    missed = share < target or mixed.peak_mib > MIB_TARGET or mixed.lost_beats
    return 1 if options.judge and missed else 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, one, number = arguments.parser("hostile", __doc__), arguments.positive_int, arguments.positive_float
    parser.add_argument("--hostile", type=one, default=2000, metavar="SITES", help="number of hostile sites")
    parser.add_argument("--expensive", type=one, default=0, metavar="SITES", help="only sites that are slow to parse")
    parser.add_argument("--heavy", action="store_true", help="good sites have such pages, too")
    parser.add_argument("--good", type=one, default=50, metavar="SITES", help="number of good sites")
    parser.add_argument("--delay", type=number, default=1.0, metavar="S", help="between requests to a site")
    parser.add_argument("--seconds", type=number, default=30, help="time that is measured")
    parser.add_argument("--judge", action="store_true", help="exit with 1 when a target is missed")
    arguments.add_json(parser)
    return parser.parse_args(words)


if __name__ == "__main__":  # the web server
    asyncio.run(serve())
