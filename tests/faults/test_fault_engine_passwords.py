"""The engine's password is changed while a crawl runs: late in the file, and with all connections cut."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from tests.faults.engine_lab import committed, counted, lab
from tests.support.engine import Engine, free_port, short_folder, started
from tests.support.patience import until

OLD, NEW = "hunter2hunter2", "swordfish/swordfish"


@pytest.fixture
def secured() -> Iterator[tuple[Engine, int]]:
    port = free_port()
    with short_folder() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", OLD]
        with started(folder, f"redis://:{OLD}@127.0.0.1:{port}", options) as engine:
            yield engine, port


@pytest.mark.slow(seconds=15)
async def test_a_crawl_goes_on_when_its_password_file_follows_late(tmp_path: Path, secured: tuple[Engine, int]) -> None:
    engine, port = secured
    file = tmp_path / "password"
    file.write_text(OLD)
    url = f"redis://127.0.0.1:{port}/?password_file={file}"

    async def rotate(instances: list[Instance]) -> None:
        await committed(instances, 30)
        with contextlib.closing(engine.client()) as client:
            client.execute_command("ACL", "SETUSER", "default", f">{NEW}", f"<{OLD}")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        troubled = instances[0].membership.engine_restarts._engine
        await until(lambda: troubled.trouble is not None and "refused the login" in troubled.trouble.text)
        assert OLD not in troubled.trouble.text
        file.write_text(NEW)

    async with lab(tmp_path, seed=57) as here:
        await here.crawl(url, meanwhile=rotate, instances=2)
        totals = await counted(url)
    assert (totals.added, totals.fetched, totals.pending) == (totals.done, here.pages, 0)
