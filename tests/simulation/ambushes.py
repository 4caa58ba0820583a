"""Faults that wait for their moment: a call of the engine, a request about to be written, a death about to be told."""

from collections.abc import Callable
from dataclasses import dataclass

from crawler.engine.client import Call
from tests.simulation.browsing import Internet
from tests.simulation.engine import Job, Server
from tests.simulation.loop import Process
from tests.simulation.machines import Life


@dataclass(slots=True, eq=False)
class Ambush:
    """Waits for the n-th call of a script from now on, by whomever."""

    script: str
    n: int
    strike: Callable[[Job], None]


class Ambushes:
    """All that lie in wait. Each strikes once."""

    def __init__(self, server: Server, internet: Internet) -> None:
        self._calls: list[Ambush] = []
        self._requests: list[Callable[[Life], None]] = []
        self._strikes: dict[Life, Callable[[], None]] = {}
        server.on_executed = self._executed
        server.on_sent = self._sent
        internet.before_write = self._before_write

    def on_call(self, script: str, n: int, strike: Callable[[Job], None]) -> None:
        """When the engine has carried out the n-th call of a script, before its reply is on the way."""
        self._calls.append(Ambush(script, n, strike))

    def on_request(self, strike: Callable[[Life], None]) -> None:
        """When an instance has checked that it may send a request, before it writes it: `strike` must pause it."""
        self._requests.append(strike)

    def on_strike(self, life: Life, strike: Callable[[], None]) -> None:
        """When another instance sends the call that removes this one from the member list."""
        self._strikes[life] = strike

    def clear(self) -> None:
        self._calls.clear()
        self._requests.clear()
        self._strikes.clear()

    def _executed(self, job: Job, begin: int) -> None:
        if not self._calls or not isinstance(job.process, Life):
            return
        done = [c.name for c in job.calls[begin : len(job.replies)] if isinstance(c, Call)]
        for ambush in list(self._calls):
            ambush.n -= done.count(ambush.script)
            if ambush.n <= 0 and ambush.script in done:
                self._calls.remove(ambush)
                ambush.strike(job)

    def _sent(self, job: Job) -> None:
        for life in list(self._strikes):
            if any(isinstance(c, Call) and c.name == "leave" and c.args[0] == life.session for c in job.calls):
                self._strikes.pop(life)()

    def _before_write(self, process: Process) -> bool:
        if not self._requests or not isinstance(process, Life):
            return False
        self._requests.pop()(process)
        return process.is_paused
