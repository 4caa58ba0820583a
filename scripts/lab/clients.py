"""The clients that are compared: how each is started, and which pages it says it fetched."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import corpus
from servers import ROOT, Lab

PEERS = Path(__file__).resolve().parent / "peers"
CRAWLER = [sys.executable, "-m", "crawler"]


@dataclass(frozen=True, kw_only=True)
class Client:
    """`command(lab, folder)` starts it; `pages(folder)` are the URLs of HTML pages that it got with status 200."""

    name: str
    title: str
    command: Callable[[Lab, Path], list[str]]
    pages: Callable[[Path], list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    is_asked_for: bool = False  # it takes part only when it is named

    def full_environment(self, lab: Lab) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CRAWLER_")}
        return clean | {"PYTHONPATH": str(ROOT), "CRAWLER_DNS_NAMESERVERS": lab.dns} | self.environment


def all_clients(concurrency: int, scrapy_python: Callable[[], Path]) -> dict[str, Client]:
    """By name, in the order of the table. `scrapy_python` is asked when Scrapy is to run: it may have to install it."""

    def bare(lab: Lab, folder: Path) -> list[str]:
        arguments = [corpus.seed(lab.port), corpus.page_pattern(lab.port), str(concurrency), str(folder / "pages.txt")]
        return [sys.executable, str(PEERS / "bare_loop.py"), *arguments]

    def scrapy(how: str) -> Callable[[Lab, Path], list[str]]:
        def command(lab: Lab, folder: Path) -> list[str]:
            pattern = corpus.page_pattern(lab.port, fragments=how == "shipped")
            arguments = [how, corpus.seed(lab.port), pattern, str(concurrency), str(folder / "pages.txt")]
            return [str(scrapy_python()), str(PEERS / "scrapy_spider.py"), *arguments]

        return command

    def crawler(lab: Lab, folder: Path) -> list[str]:
        scope = ["--scope", "any", "--include", corpus.page_pattern(lab.port), "--allow-private"]
        pace = ["--delay", "0", "--concurrency", str(concurrency), "--concurrency-per-queue", str(concurrency)]
        return [*CRAWLER, "crawl", corpus.seed(lab.port), *scope, *pace, "--dir", str(folder / "crawl"), "-q"]

    def with_app(name: str) -> Callable[[Lab, Path], list[str]]:
        return lambda lab, folder: [*crawler(lab, folder), "--app", f"{PEERS / 'handlers_app.py'}:{name}"]

    # All hosts of the web have one address, and its limit would be the only one that counts.
    address = {"CRAWLER_POLITENESS_CONCURRENCY_PER_ADDRESS": str(concurrency)}

    own = {"pages": _exported_pages, "environment": address, "is_asked_for": True}
    listed = {"pages": _listed_pages}
    clients = [
        Client(name="crawler", title="this crawler", command=crawler, pages=_exported_pages, environment=address),
        Client(name="bare", title="bare loop: aiohttp, lexbor, can_ada, uvloop", command=bare, **listed),
        Client(name="scrapy-tuned", title="Scrapy, LinkExtractor, fragments cut", command=scrapy("tuned"), **listed),
        Client(name="scrapy", title="Scrapy as shipped", command=scrapy("shipped"), **listed),
        Client(name="handler", title="with an async handler: six fields", command=with_app("quick"), **own),
        Client(name="handler-def", title="with a plain one, in threads", command=with_app("plain"), **own),
    ]
    return {client.name: client for client in clients}


def _listed_pages(folder: Path) -> list[str]:
    return (folder / "pages.txt").read_text(encoding="utf-8").splitlines()


def _exported_pages(folder: Path) -> list[str]:
    output = folder / "pages.jsonl"
    export = [*CRAWLER, "export", "--dir", str(folder / "crawl"), "-o", str(output)]
    subprocess.run(export, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)})
    with output.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [r["url"] for r in records if r["status"] == 200 and r["content_type"].startswith("text/html")]


def scrapy_environment() -> Path:
    """Python of an environment of its own with Scrapy, installed when first needed."""
    home = ROOT / ".cache" / "bench-scrapy"
    python = home / "bin" / "python"
    stamp = home / ".installed"
    if not stamp.exists():
        print(f"bench: installing Scrapy into {home} (once) ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "scrapy"]
        done = subprocess.run(install, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            detail = "\n".join(done.stderr.splitlines()[-3:])
            raise SystemExit(f"{detail}\nbench: Scrapy can't be installed; leave it out with --only crawler,bare")
        stamp.touch()
    return python
