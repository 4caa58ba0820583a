"""A user of the engine who has the permissions that are listed, and no other, can give every command."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from crawler.frontier.permissions import acl_line
from tests.cli.cli_lab import HOST, QUICK, SMALL_PAGES, in_process, small
from tests.cli.test_cli_serve import sent, served
from tests.support.engine import Engine, free_ports, running_engine, short_folder, started, wait_for
from tests.support.processes import Nursery


def restricted(engine: Engine, *more: str) -> str:
    """The URL of a user with these permissions, and some more changes."""
    with contextlib.closing(engine.client()) as client:
        client.execute_command(*acl_line("ann", "main").split(), *more)
    return engine.url.replace("unix://", "unix://ann:PASSWORD@")


@pytest.fixture
def target() -> Iterator[Engine]:
    with running_engine() as other:
        yield other


@pytest.mark.slow(seconds=15)
def test_every_command_works_with_the_permissions_that_are_listed(
    programs: Nursery, engine: Engine, target: Engine
) -> None:
    url, there = restricted(engine), restricted(target)

    def said(*words: str, at: str = url, code: int = 0) -> str:
        ran = in_process(programs, *words, "--redis", at, "--dir", "c")
        assert (ran.code, "NOPERM" in ran.err + ran.out) == (code, False), (words, ran)
        return ran.out

    with small() as site:
        page = site.url(HOST)
        said("seed", page, *QUICK[:1], *QUICK[3:])
        said("crawl", *QUICK, "--pages", "3")
        for words in (
            ("pause", HOST), ("resume", HOST), ("block", HOST), ("unblock", HOST), ("delay", HOST, "0"),
            ("boost", HOST, "2"), ("boost", HOST, "0"), ("users", "ann", "2"), ("ring",), ("oplog",), ("crawls",),
            ("explain", page), ("stats",), ("stats", HOST), ("stats", "--losses"), ("dead", "list"), ("settings",),
            ("purge", "--matching", "/p11$"), ("release",),
        ):  # fmt: skip
            said(*words)
        said("jobs", "add", "news", "--every", "1h", page)
        said("jobs", "list")
        server, port = served(programs, "--redis", url, "--dir", "c")
        assert json.loads(sent(port, "GET", "/v1/overview")[1])["pages"] >= 3
        server.terminate()
        assert server.wait() == 0, server.err
        said("crawl", *QUICK)
        said("jobs", "run", "news")
        said("crawl", *QUICK)
        said("jobs", "history", "news")
        said("audit")
        said("backup", "c.backup")
        said("move", "--to", there)
        moved = json.loads(said("stats", "--json", at=there))
        said("crawl", *QUICK, at=there)
        said("rebuild", "--name", "main", at=url, code=4)
        said("jobs", "rm", "news", at=there)
    assert moved["totals"]["fetched"] >= SMALL_PAGES - 1, moved
    for one in (engine, target):
        with contextlib.closing(one.client()) as client:
            refused = [entry for entry in client.acl_log() if "ann" in str(entry)]
            assert refused == []


@pytest.mark.slow(seconds=5)
def test_a_replica_confirms_what_such_a_user_writes(programs: Nursery) -> None:
    ports = free_ports(2)
    with contextlib.ExitStack() as stack:
        primary, replica = (
            stack.enter_context(
                started(
                    stack.enter_context(short_folder()), f"redis://127.0.0.1:{port}",
                    ["--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"],
                )
            )
            for port in ports
        )  # fmt: skip
        client, other = (stack.enter_context(contextlib.closing(one.client())) for one in (primary, replica))
        other.execute_command("REPLICAOF", "127.0.0.1", ports[0])
        wait_for(lambda: client.info("replication").get("slave0", {}).get("state") == "online", "the replica")
        client.execute_command(*acl_line("ann", "main").split())
        url = f"redis://ann:PASSWORD@127.0.0.1:{ports[0]}"
        ran = in_process(programs, "seed", "http://x.test/", "--redis", url, "--dir", "c")
        assert (ran.code, client.acl_log()) == (0, [])
        assert client.acl_log() == []


@pytest.mark.parametrize("words", [("crawl", "http://x.test/"), ("seed", "http://x.test/"), ("doctor",)], ids=" ".join)
def test_a_missing_permission_is_told_before_anything_is_done(
    programs: Nursery, engine: Engine, words: tuple[str, ...]
) -> None:
    ran = in_process(programs, *words, "--redis", restricted(engine, "-zadd"), "--dir", "c")
    assert ran.code == (7 if words == ("doctor",) else 3)
    lines = [line for line in (ran.out + ran.err).splitlines() if "NOPERM" in line]
    assert len(lines) == 1
    assert (
        lines[0].endswith("lacks permissions (NOPERM): zadd") or "(NOPERM): zadd; 'ACL SETUSER' gives them" in lines[0]
    )
    with contextlib.closing(engine.client()) as client:
        assert client.keys("*") == []
