"""A real PostgreSQL server of a test's own: made in a temporary folder, stopped and started as the test likes."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tests.support.engine import free_port

PASSWORD = "a secret/with:signs"


def programs() -> Path | None:
    """The folder of the newest server installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name))
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    return Path(there).resolve().parent if there else None


class PostgresServer:
    """`url(NAME)` names a database of it; `stop`, `start` and `kill` as people and power cuts do."""

    def __init__(self, place: Path, bin_folder: Path, port: int) -> None:
        self._bin, self._data, self.port = bin_folder, place / "data", port
        # It refuses to run as root.
        self._user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [str(self._bin / command[0]), *command[1:]], capture_output=True, text=True, check=False, cwd="/",
            stdin=subprocess.DEVNULL, **self._user,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return str(done.stdout)

    def make(self) -> None:
        self.run("initdb", "-D", str(self._data), "-U", "crawler", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        (self._data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")

    def start(self) -> None:
        options = f"-p {self.port} -k {self._data} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self._data / "log")
        self.run("pg_ctl", "-D", str(self._data), "-w", "-t", "30", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """Now: open transactions are rolled back, connections cut."""
        self.run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def psql(self, database: str, statement: str) -> list[list[str]]:
        """Rows of a statement, each cell as text."""
        socket = ("-h", str(self._data), "-p", str(self.port), "-U", "crawler", "-d", database)
        out = self.run("psql", *socket, "-X", "-q", "-A", "-t", "-F", "\x1f", "-v", "ON_ERROR_STOP=1", "-c", statement)
        return [line.split("\x1f") for line in out.splitlines()]

    def new_database(self) -> str:
        name = f"t{secrets.token_hex(6)}"
        self.psql("postgres", f"CREATE DATABASE {name}")
        return name

    def url(self, database: str, *, table: str = "", password: str = PASSWORD, user: str = "crawler") -> str:

        query = f"?table={table}" if table else ""
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}{query}"


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server that is gone at the end. Needs `programs()`."""
    bin_folder = programs()
    assert bin_folder is not None
    place = Path(tempfile.mkdtemp(prefix="crawler-pg-"))
    try:
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(place, owner.pw_uid, owner.pw_gid)
        server = PostgresServer(place, bin_folder, free_port())
        server.make()
        server.start()
        try:
            quoted = PASSWORD.replace("'", "''")
            server.psql("postgres", f"ALTER USER crawler PASSWORD '{quoted}'")
            yield server
        finally:
            with contextlib.suppress(AssertionError):  # stopped already
                server.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def why_not() -> str:
    """Why there can be no server here; "" when there can."""
    if programs() is None:
        return "no PostgreSQL server here (Debian: apt-get install postgresql)"
    with contextlib.suppress(KeyError):
        if os.geteuid() != 0 or pwd.getpwnam("postgres"):
            return ""
    return "no user postgres to run a server as"
