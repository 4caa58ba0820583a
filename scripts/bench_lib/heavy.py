"""What does a page of today's size cost? 240 KB of HTML over TLS, 50 ms away, on two thousand hosts.

Pages are made of paragraphs of real documentation (Python's, from the package python3-doc), with 100 links each, a
tenth to other hosts. Half of the hosts send gzip, the others Brotli. nginx waits for 50 ms before each answer. The bare
loop (see `scripts/bench peers`) and this crawler fetch the same pages in turn, each on one core.

The figures that follow, pages per second of a core and dollars per million pages, come from the CPU seconds of all
processes of a client, never from the time that passes on this machine. Network and disk are not in the price.
"""

import argparse
import contextlib
import gzip
import itertools
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import brotli

from scripts.bench_lib import arguments, measure, servers
from scripts.bench_lib.other_commit import at_commit
from scripts.bench_lib.peer_clients import all_clients
from scripts.bench_lib.peer_environments import UnavailableError
from scripts.bench_lib.peer_runs import measured
from scripts.bench_lib.summaries import Run, Spread, differences
from scripts.bench_lib.transport import Server, Transport

CLIENTS = ("crawler", "bare")
SOURCE, PACKAGE = Path("/usr/share/doc/python3.11/html"), "python3-doc"
ECHO = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")
PAGE_BYTES, LINKS, AWAY = 240_000, 100, 10
HOSTS, PAGES_EACH = 2_000, 2
LATENCY_S = 0.05
NAMES_PER_CERTIFICATE = 100
PRICE = 0.0446  # dollars for an hour of a vCPU: c7i.large on demand, us-east-1
PUBLISHED = """Published crawls, for comparison:
  Chan 2025        57 pages/s for each vCPU, $0.46 for a million (pages of 242 KB)
  Nielsen 2012     $2.32 for a million
  IRLbot 2008      1,789 pages/s on one server"""
ROBOTS = "User-agent: *\nDisallow: /private/\n"


class SlowTransport(Transport):
    """nginx can wait."""

    def first_lines(self) -> str:
        return f"load_module {ECHO};"


@dataclass(frozen=True, kw_only=True)
class HeavyWeb:
    """Hosts dN.test with pages /p/K. All pages are seeds' descendants: each links to the next ones."""

    hosts_count: int = HOSTS
    page_bytes: int = PAGE_BYTES
    name: str = "heavy"
    hosts: tuple[str, ...] = ()
    pages_max: int = 0

    @property
    def transport(self) -> Transport:
        return SlowTransport(tls="kept")

    @property
    def pages_min(self) -> int:
        return self.hosts_count * PAGES_EACH

    def missing(self) -> list[str]:
        wanted = {PACKAGE: SOURCE, "libnginx-mod-http-echo": ECHO}
        return [package for package, path in wanted.items() if not path.exists()]

    def seeds(self, port: int) -> list[str]:
        return [f"https://d{host}.test:{port}/p/0" for host in range(0, self.hosts_count, 40)]

    def pattern(self, port: int, *, fragments: bool = False) -> str:
        return rf"^https://d\d+\.test:{port}/p/\d+" + ("(?:#.*)?$" if fragments else "$")

    def write(self, home: Path, port: int) -> None:
        """nginx can't write into what is packed, so each page is a file; half a minute for 4,000."""
        (home / "robots.txt").write_text(ROBOTS, encoding="utf-8")
        (home / "f").mkdir()
        chunks = _chunks()
        for host, page in itertools.product(range(self.hosts_count), range(PAGES_EACH)):
            (home / "f" / f"d{host}.test-{page}").write_bytes(self._packed(host, page, port, chunks))

    def _packed(self, host: int, page: int, port: int, chunks: list[str]) -> bytes:
        body = self._body(host, page, port, chunks).encode()
        return gzip.compress(body, 6) if host % 2 else brotli.compress(body, quality=5)

    def _body(self, host: int, page: int, port: int, chunks: list[str]) -> str:
        rng = random.Random(f"{host} {page}")
        number = host * PAGES_EACH + page
        known = [(number + step) % (self.hosts_count * PAGES_EACH) for step in (1, 2)]  # so that all are found
        known += [rng.randrange(self.hosts_count * PAGES_EACH) for _ in range(AWAY - 2)]
        links = [f"https://d{n // PAGES_EACH}.test:{port}/p/{n % PAGES_EACH}" for n in known]
        links += [f"/p/{rng.randrange(PAGES_EACH)}#part-{n}" for n in range(LINKS - AWAY)]
        rng.shuffle(links)
        parts, size, at = list[str](), 0, rng.randrange(len(chunks))
        while size < self.page_bytes:
            parts.append(chunks[at % len(chunks)])
            size += len(parts[-1])
            at += 1
        every = max(1, len(parts) // LINKS)
        for n, link in enumerate(links):
            parts.insert(min(len(parts), n * (every + 1)), f'<p class="more"><a href="{link}">part {n}</a></p>\n')
        head = f"<!doctype html>\n<html><head><title>Page {page} of site {host}</title></head>\n<body>\n"
        return head + "".join(parts) + "</body></html>\n"

    def servers(self, home: Path) -> Iterator[Server]:
        coding = 'map $host $coding { "~^d\\d*[13579]\\.test$" gzip; default br; }'
        slow = f"echo_sleep {LATENCY_S};"
        block = f"""
    location = /robots.txt {{ {slow} echo_exec /r; }}
    location = /r {{ internal; default_type text/plain; alias {home}/robots.txt; }}
    location ~ ^/p/(\\d+)$ {{ set $page $1; {slow} echo_exec /f/$host-$page; }}
    location /f/ {{ internal; default_type "text/html; charset=utf-8"; add_header Content-Encoding $coding;
      root {home}; }}"""
        for first in range(0, self.hosts_count, NAMES_PER_CERTIFICATE):
            numbers = range(first, min(first + NAMES_PER_CERTIFICATE, self.hosts_count))
            yield Server(tuple(f"d{n}.test" for n in numbers), block, before="" if first else coding)


_DROPPED = re.compile(
    r"<(?:script|style|head)\b.*?</(?:script|style|head)>|</?(?:html|body|a|link|meta)\b[^>]*>", re.DOTALL
)


def _chunks() -> list[str]:
    """The lines of real pages without links, some thousand characters together."""
    text = "".join(_DROPPED.sub("", path.read_text(errors="replace")) for path in sorted(SOURCE.rglob("*.html")))
    lines, chunks, size = list[str](), list[str](), 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size > 1500:
            chunks.append("".join(lines))
            lines, size = [], 0
    return chunks


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    web = HeavyWeb(hosts_count=options.hosts, page_bytes=options.page_kb * 1000)
    if missing := servers.missing_packages(web):
        print(f"bench: the web is incomplete; as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    servers.raise_file_limit()
    known = all_clients(options.concurrency)
    header = measure.header()
    clients = [known[name] for name in CLIENTS]
    with contextlib.ExitStack() as stack:
        if options.against:
            try:
                clients.append(stack.enter_context(at_commit(known["crawler"], options.against)))
            except UnavailableError as error:
                print(f"bench: {error}", file=sys.stderr)
                return 2
        results, failed = measured(options, web, clients)
    wrong = differences(results, pages_min=web.pages_min, pages_max=0)
    if not results:
        return 1
    machine = "{cpu}, {cores} cores, Python {python}".format_map(header["machine"])
    print(f"{machine}; commit {header['commit']}, {header['date']}; {options.rounds} rounds, medians (range)\n")
    print(f"{'':10} {'CPU-s/1k':>22} {'of it engine':>13} {'pages/s a vCPU':>15} {'$/million':>10}")
    figures = {name: _figures(runs, options.price) for name, runs in results.items()}
    for name, one in figures.items():
        spread, engine, rate, dollars = one
        cpu = f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"
        print(f"{name:10} {cpu:>22} {engine:>13.2f} {rate:>15.0f} {dollars:>10.3f}")
    if figures.keys() >= set(CLIENTS):
        pairs = zip(results["crawler"], results["bare"], strict=True)
        ratio = Spread.of([one.all_per_thousand / other.all_per_thousand for one, other in pairs])
        print(f"\ncrawler / bare loop: {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), with the engine")
    print(f"\n{PUBLISHED}")
    for line in wrong:
        print(line)
    if options.json:
        figures_of = {name: {"cpu_s_per_1000": one[0].median, "engine": one[1]} for name, one in figures.items()}
        arguments.write_json(options.json, header | {"web": web.name, "clients": figures_of, "wrong": wrong})
    return 1 if wrong or failed else 0


def _figures(runs: Sequence[Run], price: float) -> tuple[Spread, float, float, float]:
    """CPU seconds for 1,000 pages, the engine's part, pages per second of a core, dollars per million."""
    cpu = Spread.of([run.all_per_thousand for run in runs])
    engine = Spread.of([run.engine_per_thousand for run in runs]).median
    return cpu, engine, 1000 / cpu.median, cpu.median * 1000 / 3600 * price


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, one = arguments.parser("heavy", __doc__), arguments.positive_int
    parser.add_argument("--hosts", type=one, default=HOSTS, help="with two pages each")
    parser.add_argument("--page-kb", type=one, default=PAGE_BYTES // 1000, help="of HTML, before it is packed")
    parser.add_argument("--rounds", type=one, default=3)
    parser.add_argument("--concurrency", type=one, default=128, help="open requests of each client")
    parser.add_argument("--price", type=arguments.positive_float, default=PRICE, help="dollars for an hour of a vCPU")
    parser.add_argument("--against", metavar="COMMIT", help="add this crawler at that commit")
    parser.add_argument("--timeout", type=arguments.positive_float, default=900, metavar="S", help="of a run")
    parser.add_argument("--share", action="store_true", help="clients and servers share all cores: not to measure")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep output and crawl folders of the last round here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser.parse_args(words)
