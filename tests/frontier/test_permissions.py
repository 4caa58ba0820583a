"""The permissions that the engine's user needs are those that are listed: no command is missing, none is too much."""

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import crawler
from crawler.engine.client import Call, Engine
from crawler.errors import EngineUnfit
from crawler.frontier.permissions import OF_CLUSTERS, WANTED, acl_line, commands, missing_permissions
from crawler.frontier.scripts import library
from tests.support.cluster import Cluster
from tests.support.engine import Engine as Server
from tests.support.engine import running_engine
from tests.support.patience import PATIENCE_S

CODE = Path(crawler.__file__).parent
NAMED = re.compile(r"""["']([A-Z]{3,})["']""")
NOT_ITS_ENGINE = {
    "permissions.py",
    "imports.py",
    "scrapy_redis.py",
}  # the queues of another program are in that one's engine
NO_CALLS = {"command", "echo", "readonly"}  # words that are also commands: an argument, a name, an error


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_engine() as one:
        yield one


def give(server: Server, line: str) -> None:
    with contextlib.closing(server.client()) as client:
        client.execute_command(*line.split())


@pytest.fixture
async def restricted(server: Server) -> AsyncIterator[Engine]:
    give(server, "ACL DELUSER ann")
    give(server, acl_line("ann", "news"))
    engine = Engine(server.url.replace("unix://", "unix://ann:PASSWORD@"), library(), call_timeout_s=PATIENCE_S)
    yield engine
    await engine.close()


def test_each_command_of_the_code_is_listed_and_no_other(server: Server) -> None:
    with contextlib.closing(server.client()) as client:
        known = {name.decode() for name in client.execute_command("COMMAND LIST")}
    files = [path for kind in ("engine", "frontier", "recovery", "crawl", "views") for path in (CODE / kind).rglob("*")]
    words = {
        word.lower()
        for path in files
        if path.suffix in (".py", ".lua") and path.name not in NOT_ITS_ENGINE
        for word in NAMED.findall(path.read_text())
    }
    listed = {name.partition("|")[0] for name in (*commands(), *OF_CLUSTERS, *WANTED)}
    assert words & known - NO_CALLS == listed - {"subscribe", "unsubscribe", "select"}


def test_the_page_for_operators_has_the_line() -> None:
    page = CODE.parent / "docs" / "operate" / "deploy.md"
    assert acl_line("news", "news") in page.read_text().splitlines()


async def test_a_user_with_these_permissions_lacks_none_and_nothing_is_left(server: Server, restricted: Engine) -> None:
    assert await missing_permissions(restricted, "news") == []
    with contextlib.closing(server.client()) as client:
        assert client.keys("*") == []


@pytest.mark.parametrize("lost", [name for name in commands() if name not in ("subscribe", "unsubscribe", "select")])
async def test_each_permission_that_is_taken_away_is_named(server: Server, restricted: Engine, lost: str) -> None:
    give(server, f"ACL SETUSER ann -{lost}")
    if lost == "info":
        with pytest.raises(EngineUnfit, match=r"lacks a permission \(NOPERM\): .*'info'"):
            await missing_permissions(restricted, "news")
        return
    assert await missing_permissions(restricted, "news") == [lost]


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("resetkeys ~crawler:crawls ~{crawler:crawls}~w", ["keys {news[:}]*"]),
        ("resetkeys ~{news:*", ["keys {news[:}]*", "the key {crawler:crawls}~w", "the key crawler:crawls"]),
        ("resetkeys ~{news}:* ~*crawler:crawls*", ["keys {news[:}]*"]),
        ("resetchannels", ["channels {news}:*"]),
    ],
)
async def test_keys_and_channels_that_are_out_of_reach_are_named(
    server: Server, restricted: Engine, rules: str, missing: list[str]
) -> None:
    give(server, f"ACL SETUSER ann {rules}")
    assert await missing_permissions(restricted, "news") == missing


async def test_no_other_crawl_is_in_reach(restricted: Engine) -> None:
    for command in (("GET", "{newspaper}:crawl"), ("GET", "{newspaper:1}:m"), ("FLUSHALL",), ("KEYS", "*")):
        with pytest.raises(EngineUnfit, match="NOPERM"):
            await restricted.command(*command)


@pytest.mark.parametrize("lost", ["fcall", "function|load", "hmget"])
async def test_a_script_without_a_permission_says_in_one_line_which(
    server: Server, restricted: Engine, lost: str
) -> None:
    with contextlib.closing(server.client()) as client:
        client.function_flush()
    give(server, f"ACL SETUSER ann -{lost}")
    with pytest.raises(EngineUnfit) as refused:
        await restricted.run("locate", ("{news:1}:m",), "", "0" * 32, "1", "a.test")
    assert f"'{lost}'" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.cluster
async def test_the_same_permissions_are_enough_on_a_cluster(cluster: Cluster) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for node in cluster.nodes:
            node.ask(*acl_line("ann", "news").split())
            stack.callback(node.ask, "ACL", "DELUSER", "ann")

        def opened(url: str) -> Engine:
            engine = Engine(url, library(), call_timeout_s=PATIENCE_S)
            stack.push_async_callback(engine.close)
            return engine

        engine = opened(cluster.url.replace("://", "://ann:PASSWORD@"))
        assert (await engine.connect()).is_clustered
        assert await missing_permissions(engine, "news") == []
        assert all(key.startswith(("{news", "crawler:crawls")) for key in engine._touched)
        calls = [Call("locate", (f"{{news:{n}}}:m",), ("", "0" * 32, "1", "a.test")) for n in range(16)]
        assert len(await engine.run_all(calls)) == len(calls)
        assert len(await engine.shards()) == 3
        for node in cluster.nodes:
            assert [entry for entry in node.ask("ACL", "LOG") if "ann" in str(entry)] == []
        first = cluster.nodes[0]
        first.ask("ACL", "SETUSER", "ann", "-cluster|slots")
        with pytest.raises(EngineUnfit, match=r"lacks a permission .*'cluster\|slots'"):
            await opened(f"redis+cluster://ann:PASSWORD@127.0.0.1:{first.port}").connect()
        first.ask("ACL", "LOG", "RESET")
