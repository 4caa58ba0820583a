"""A finished crawl in two folders on one engine, kept so that each test can spoil a copy and have that audited."""

import asyncio
import base64
import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from crawler.archive.checked_lines import with_checksum, without_checksum
from crawler.archive.index import is_footer, with_footer
from crawler.cli.main import main
from crawler.crawl.build import open_instance
from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.engine.client import Engine as Connection
from crawler.frontier.keys import Keys
from crawler.frontier.record import Crawls
from crawler.frontier.scripts import library
from crawler.rules.places import Fingerprints, partition_of, registrable_domain
from crawler.rules.urls import host_of
from tests.crawl.harness import lab_names, settings_of
from tests.support.engine import Engine, running_engine
from tests.support.serving import GeneratedSite, serve_web
from tests.support.web import Expected

FOLDERS = ("a", "b")


def fingerprint(client: "redis.Redis[bytes]", url: str) -> str:
    """With the key of the crawl."""
    record = json.loads(client.hget("{main}:crawl", "record") or b"")
    return Fingerprints(base64.b64decode(record["hash_key"])).of(url)


@dataclass
class Kept:
    """What a crawl left: folders, keys of the engine, the web server's log, and what it should have left."""

    home: Path
    engine: Engine
    keys: dict[bytes, bytes]
    log: str
    expected: Expected
    site: GeneratedSite

    @contextlib.contextmanager
    def copied(self, home: Path) -> Iterator["Spoiled"]:
        """A copy of everything, to be spoiled."""
        for name in FOLDERS:
            if (self.home / name).exists():
                shutil.copytree(self.home / name, home / name)
        self.engine.flush()
        with contextlib.closing(self.engine.client()) as client:
            pipeline = client.pipeline(transaction=False)
            for key, value in self.keys.items():
                pipeline.restore(key, 0, value)
            pipeline.execute()
            yield Spoiled(self, home, client, [json.loads(line) for line in self.log.splitlines()])


@dataclass
class Spoiled:
    """A copy that a test may change; `client` reaches the engine's keys."""

    kept: Kept
    home: Path
    client: "redis.Redis[bytes]"
    requests: list[dict[str, Any]]
    left_out: set[str] = field(default_factory=set)

    @property
    def folders(self) -> list[Path]:
        return [self.home / name for name in FOLDERS if (self.home / name).exists() and name not in self.left_out]

    def lines(self) -> list[tuple[Path, bytes]]:
        """Every line of every index segment, without the footers."""
        segments = [path for folder in self.folders for path in sorted((folder / "index").iterdir())]
        lines = [(path, line) for path in segments for line in path.read_bytes().splitlines(keepends=True)]
        return [(path, line) for path, line in lines if not is_footer(line)]

    def replace_line(self, path: Path, line: bytes, pattern: bytes = b"", changed: bytes | None = None) -> None:
        """Put another line in place of one, or none, as if it had been written so."""
        lines = [one for one in path.read_bytes().splitlines(keepends=True) if one != line]
        if changed is not None:
            lines.append(rewritten(line, pattern, changed))
        path.write_bytes(b"".join(with_footer(sorted(lines))))

    def line_of(self, end_of_url: str) -> tuple[Path, bytes]:
        return next((path, line) for path, line in self.lines() if f'{end_of_url}",'.encode() in line)

    def key(self, name: str, url: str) -> str:
        """A key of the partition of a URL."""
        return f"{{main:{self.partition_of(url)}}}:{name}"

    def partition_of(self, url: str) -> int:
        return partition_of(registrable_domain(host_of(url)), 64)

    def audit(self, capsys: pytest.CaptureFixture[str], *options: str, log: bool = True) -> tuple[int, dict[str, Any]]:
        """Exit code and report. `scope` and delays are those stored, whatever the defaults are here."""
        file = self.home / "requests.jsonl"
        file.write_text("".join(json.dumps(request) + "\n" for request in self.requests))
        given = [word for folder in self.folders for word in ("--dir", str(folder))]
        logs = ["--web-log", str(file)] if log else []
        capsys.readouterr()
        code = main(["audit", "--redis", self.kept.engine.url, "--json", *given, *logs, *options])
        return code, json.loads(capsys.readouterr().out)


@contextlib.contextmanager
def kept_crawl(home: Path, *, folders: tuple[str, ...] = FOLDERS, **options: Any) -> Iterator[Kept]:
    """Crawl a generated web with one instance in each folder."""
    with serve_web(seed=3, domains=4, pages=5, slow_s=0.02) as site, running_engine() as engine:
        asyncio.run(_crawl(home, folders, engine, site, options))
        with contextlib.closing(engine.client()) as client:
            keys = {key: client.dump(key) for key in client.keys("*")}
        log = "".join(f"{json.dumps(vars_of(request))}\n" for request in site.requests())
        scope = options.get("scope__mode", "any")
        yield Kept(home, engine, keys, log, site.web.expected(site.web.seeds, scope), site)


def vars_of(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("start", "end", "host", "target", "agent", "status", "port")}


async def _crawl(
    home: Path, folders: tuple[str, ...], engine: Engine, site: GeneratedSite, options: dict[str, Any]
) -> None:
    async with lab_names() as dns, contextlib.AsyncExitStack() as stack:
        crawls = []
        for name in folders:
            quick = {"politeness__delay_s": 0.02, "scope__mode": "any", "dns__nameservers": [dns]} | options
            settings = settings_of(home / name, frontier__redis=engine.url, **quick)
            crawls.append(await stack.enter_async_context(open_crawl(settings, create=True)))
        await make_seeder(crawls[0]).add_all([GivenUrl("seed", url) for url in site.web.seeds])
        instances = []
        for number, opened in enumerate(crawls):
            node = f"node-{number}"
            entered = open_instance(await opened.reloaded(), node=node, until_finished=True)
            instances.append(await stack.enter_async_context(entered))
        await asyncio.gather(*(instance.run() for instance in instances))


async def add_roots(url: str, *roots: str) -> None:
    """Add roots to the crawl's scope, as seeds given now would."""
    connection = Connection(url, library())
    await connection.connect()
    await Crawls(connection, Keys("main")).add_roots(roots)
    await connection.close()


def rewritten(line: bytes, pattern: bytes, changed: bytes) -> bytes:
    """A line of the index with another value and its checksum."""
    return with_checksum(re.sub(pattern, changed, without_checksum(line[:-1]))) + b"\n"
