"""Backups next to running processes, which are killed as their commands are: the crawl and the file are whole."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.scale_lab import clean_nursery, name_server
from tests.crawl.harness import entries_of
from tests.crawl.lab import closest_pairs
from tests.faults.test_fault_cluster_failover import DELAY_S, chains
from tests.support.engine import running_cluster, running_engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery
from tests.support.serving import Site, serve_linked

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.slow(seconds=40)]

QUICK = ("-q", "--allow-private", "--delay", str(DELAY_S), "--scope", "any", "--set", "crawl.partitions=64")


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs, name_server() as dns:
        programs.environment["CRAWLER_DNS_NAMESERVERS"] = dns
        yield programs


@contextlib.contextmanager
def running(kind: str) -> Iterator[str]:
    with running_engine() if kind == "a server" else running_cluster() as engine:
        yield engine.url


def until_fetched(site: Site, more: int) -> None:
    wanted = len(site.requests()) + more
    wait_until(lambda: len(site.requests()) >= wanted)


@pytest.mark.parametrize("kind", ["a server", "a cluster"])
def test_backups_while_instances_and_commands_are_killed(programs: Nursery, tmp_path: Path, kind: str) -> None:
    """An instance is killed while it is paused, another joins, a command is killed, and one stopped for long. A backup
    that was made comes back, and after a rebuild the crawl ends with the exact set there, too.
    """
    with serve_linked(chains) as site, running(kind) as url, running_engine() as other:
        folders = [tmp_path / name for name in ("a", "b", "c")]
        crawls = [
            programs.crawler(
                "crawl", site.url("start.test"), "--dir", str(folder), "--redis", url, *QUICK, "--node", name
            )
            for folder, name in zip(folders[:2], "ab", strict=True)
        ]
        until_fetched(site, 60)
        file = tmp_path / "first.backup"
        backup = programs.crawler("backup", str(file), "--pause", "--redis", url, "--dir", str(tmp_path / "x"))
        wait_until(lambda: (tmp_path / "first.backup.open").exists() or backup.process.poll() is not None)
        crawls[0].kill()
        crawls.append(programs.crawler("crawl", "--dir", str(folders[2]), "--redis", url, *QUICK, "--node", "c"))
        assert backup.wait(60) == 0, backup.err
        until_fetched(site, 20)

        for end in (signal.SIGKILL, signal.SIGSTOP):
            backup = programs.crawler("backup", str(tmp_path / "second.backup"), "--pause", "--redis", url)
            time.sleep(1.0)
            backup.process.send_signal(end)
            until_fetched(site, 20)
        backup.process.send_signal(signal.SIGCONT)
        backup.wait(60)

        for crawl in crawls[1:]:
            assert crawl.wait(120) == 0, crawl.err
        # A commit of a killed instance may have a line in its folder and in that of the next owner: the audit judges.
        entries = {entry.url for folder in folders for entry in entries_of(folder)}
        assert entries == {site.url(host, target) for host, target in chains(site.port)}
        assert min(closest_pairs(site.requests()).values()) >= DELAY_S
        where = [word for folder in folders for word in ("--dir", str(folder))]
        audit = programs.crawler("audit", *where, "--redis", url)
        assert audit.wait(60) == 0, audit.out + audit.err

        restored = programs.crawler("restore", str(file), "--redis", other.url)
        assert restored.wait(60) == 0, restored.err
        rebuilt = programs.crawler("rebuild", *where, "--redis", other.url)
        assert rebuilt.wait(60) == 0, rebuilt.err
        before = len(site.requests())
        crawl = programs.crawler("crawl", "--dir", str(folders[0]), "--redis", other.url, *QUICK)
        assert crawl.wait(120) == 0, crawl.err
        assert [r for r in site.requests()[before:] if not r.is_robots] == [], "all was known after the rebuild"
