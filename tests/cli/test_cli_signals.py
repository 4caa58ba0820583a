"""A request to stop is heard whatever the event loop is at."""

import asyncio
import os
import signal

import pytest

from crawler.cli.supervising import StopSignals
from tests.support.patience import PATIENCE_S


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
