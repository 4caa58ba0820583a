"""A request to stop is heard whatever the event loop is at."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from crawler.cli.supervising import StopSignals
from tests.cli.cli_lab import HOST, QUICK, small
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.processes import Nursery


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_the_loop_stands_still_is_heard(number: signal.Signals) -> None:
    """Users' code may stop the loop: the command takes its task up again (handlers/run.py)."""
    loop = pytest.importorskip("uvloop").new_event_loop()

    async def command() -> str:
        heard = asyncio.Event()
        with StopSignals() as signals:
            signals.on_stop = heard.set
            loop.call_soon(loop.stop)
            await asyncio.wait_for(heard.wait(), PATIENCE_S)
        return "stopped"

    before = signal.getsignal(number)
    task = loop.create_task(command())
    try:
        loop.run_forever()
        os.kill(os.getpid(), number)
        assert loop.run_until_complete(task) == "stopped"
    finally:
        signal.signal(number, before)
        loop.close()


@pytest.mark.slow(ci=True)
@pytest.mark.processes
@pytest.mark.parametrize("ignored", ["HUP", "INT"])
@pytest.mark.parametrize("instances", ["1", "2"])
def test_a_signal_that_was_ignored_when_a_crawl_began_does_not_stop_it(
    programs: Nursery, tmp_path: Path, ignored: str, instances: str
) -> None:
    """`nohup crawler crawl ...`, or `crawler crawl ... &` in a script."""
    number = signal.Signals[f"SIG{ignored}"]
    with small(8, delay_s=0.05) as site:
        command = (sys.executable, "-P", "-m", "crawler", "crawl", site.url(HOST), *QUICK, "-n", instances)
        ignoring = ("sh", "-c", f'trap "" {ignored}; exec "$@"', "sh")
        running = programs.start(*ignoring, *command, "--dir", str(tmp_path / "c"))
        wait_until(lambda: len(site.requests()) > 2)
        for pid in {running.process.pid, running.pid}:
            os.kill(pid, number)
        assert running.wait() == 0, running.err
        assert "Stopping" not in running.err
