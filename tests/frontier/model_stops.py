"""The part of the model in which queues are stopped, and their URLs deferred or thrown away."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from crawler.frontier.states import State
from tests.frontier.model_aside import Silence
from tests.frontier.model_urls import RECALLED, Queue, Url


class Parts(Protocol):
    """What the rest of the model has."""

    totals: Counter[str]
    urls: dict[str, Url]
    silences: dict[str, dict[str, Silence]]

    def queue(self, name: str) -> Queue: ...
    def of_queue(self, name: str, *states: State) -> list[str]: ...
    def _deferred(self, name: str) -> int: ...
    def refuse(self, fingerprint: str, *, reason: str) -> None: ...
    def forget_silences(self, name: str) -> None: ...


class StopsModel:
    """Mixed into the model of a partition."""

    def _wait(self: Parts, url: Url) -> None:
        """Into its queue, and deferred if that is."""
        url.state = State.QUEUED
        self.totals["deferrals"] += self.queue(url.candidate.queue).defers(url.user)

    def change_queues(self: Parts, name: str, stop: str) -> None:
        """A queue is stopped for a reason, for another one, or ("") not any more."""
        queue = self.queue(name)
        if queue.stop == stop:
            return
        n = self._deferred(name)
        self.totals.update(released=n, added=n)
        queue.stop = stop
        if queue.defers("") and self.of_queue(name, State.ASIDE):
            queue.aside_ms = RECALLED  # the next claim puts them back, to be deferred with the others
            for silence in self.silences[name].values() if not queue.is_deferred else ():
                silence.due_ms = RECALLED
        self.totals["deferrals"] += self._deferred(name)

    def _deferred(self: Parts, name: str) -> int:
        """How many URLs its stop defers."""
        return sum(self.queue(name).defers(self.urls[f].user) for f in self.of_queue(name, State.QUEUED))

    def purge(self: Parts, name: str, wanted: Callable[[str], bool] = lambda _url: True) -> int:
        """What waits, is to be retried, is scheduled or is deferred is refused, of the URLs that are wanted."""
        queue, states = self.queue(name), (State.QUEUED, State.RETRYING, State.SCHEDULED, State.DEFERRED, State.ASIDE)
        gone = [f for f in self.of_queue(name, *states) if wanted(self.urls[f].candidate.url)]
        for fingerprint in gone:
            url = self.urls[fingerprint]
            n = url.state is State.DEFERRED or (url.state is State.QUEUED and queue.defers(url.user))
            self.totals.update(released=n, added=n)
            self.refuse(fingerprint, reason="purged")
        self.forget_silences(name)
        return len(gone)
