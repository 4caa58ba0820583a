"""What the tests of supervised crawls share: a web of 16 domains, crawls with `-n`, and what `crawler scale` shows."""

import contextlib
import json
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.cli_lab import Ran, in_process
from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, name_server
from tests.support.patience import wait_until
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import GeneratedSite, Site, serve_web

DELAY_S = 0.15
NODES = [f"{socket.gethostname()}-{slot}" for slot in range(4)]


@contextlib.contextmanager
def clean_nursery() -> Iterator[Nursery]:
    """Programs of which nothing may be left at the end."""
    with nursery() as programs:
        yield programs
        assert programs.left() == []


@contextlib.contextmanager
def web_for(programs: Nursery) -> Iterator[GeneratedSite]:
    """A web of 16 domains that the programs can find."""
    with name_server() as dns, serve_web(seed=21, domains=16, pages=6) as site:
        programs.environment |= QUICK | {"CRAWLER_DNS_NAMESERVERS": dns, "CRAWLER_POLITENESS_DELAY_S": str(DELAY_S)}
        yield site


def crawl(programs: Nursery, site: GeneratedSite, folder: Path, n: int, **environment: str) -> Program:
    options = ("--scope", "any", "--dir", str(folder), "-n", str(n))
    return programs.crawler("crawl", *site.web.seeds, *options, **environment)


def scale(programs: Nursery, where: tuple[str, ...], *arguments: str) -> Ran:
    return in_process(programs, "scale", *arguments, *where)


def status(programs: Nursery, *where: str) -> dict[str, Any]:
    """The one supervisor there is."""
    ran = scale(programs, where, "--status", "--json")
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)["supervisors"]
    return dict(found)


def nodes_of(ran: Ran) -> list[str]:
    """Nodes that a command printed as running."""
    return [line.split()[0] for line in ran.out.splitlines() if " running " in line]


def children(found: dict[str, Any]) -> dict[str, str]:
    return {child["node"]: child["state"] for child in found["children"]}


def pid_of(found: dict[str, Any], node: str) -> int:
    return next(int(child["pid"]) for child in found["children"] if child["node"] == node)


def wait_for_requests(site: Site, n: int) -> None:
    wait_until(lambda: len(site.requests()) >= n)


def assert_exact(site: GeneratedSite, folder: Path) -> None:
    entries = entries_of(folder)
    assert {e.url: e.status for e in entries} == site.web.expected(site.web.seeds, "any").committed
    assert [url for url, n in Counter(e.url for e in entries).items() if n > 1] == []
