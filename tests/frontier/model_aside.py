"""The part of the model in which URLs are set aside because their origin does not answer, and come back."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from crawler.model import UNANSWERED
from crawler.rules.urls import origin_of
from tests.frontier.model_urls import AGAIN_MS, QUICK_MAX, RECALLED, Queue, State, Url


@dataclass
class Silence:
    """An origin that has URLs set aside: when the next one goes back, and since when it is silent (None: not known)."""

    due_ms: int
    since_ms: int | None = None


class AsideModel:
    """A part of PartitionModel."""

    clock: int
    urls: dict[str, Url]
    silences: dict[str, dict[str, Silence]]  # by queue and origin

    def queue(self, name: str) -> Queue:
        raise NotImplementedError

    def of_row(self, name: str, user: str) -> list[str]:
        raise NotImplementedError

    def _wait(self, url: Url) -> None:
        raise NotImplementedError

    def aside_of(self, name: str, origin: str) -> list[str]:
        """Fingerprints of an origin's URLs that are set aside, best first."""
        found = [f for f, u in self.urls.items() if u.state is State.ASIDE and u.candidate.queue == name]
        mine = [f for f in found if origin_of(self.urls[f].candidate.url) == origin]
        return sorted(mine, key=lambda f: self.urls[f].score, reverse=True)

    def set_aside(
        self, name: str, origin: str, claimed: Collection[str], swept: Collection[str], due_ms: int, since_ms: int
    ) -> None:
        """Claims are, and some that waited in the queue with them, of their users; not said is how many."""
        users = {self.urls[f].user for f in claimed}
        assert all(self.urls[f].state is State.QUEUED and self.urls[f].user in users for f in swept)
        for fingerprint in (*claimed, *swept):
            assert origin_of(self.urls[fingerprint].candidate.url) == origin
            self.urls[fingerprint].state = State.ASIDE
        silence = self.silences.setdefault(name, {}).setdefault(origin, Silence(due_ms))
        silence.due_ms = due_ms
        if since_ms >= 0 and silence.since_ms is None:
            silence.since_ms = since_ms
        self._look_again(name)
        for _ in claimed:
            self.unanswered(name)

    def recall(self, name: str, origin: str, *, is_good: bool, due_ms: int) -> None:
        silence = self.silences.get(name, {}).get(origin)
        if silence is not None:
            silence.due_ms = due_ms
            silence.since_ms = None if is_good else silence.since_ms
            self._look_again(name)

    def _look_again(self, name: str) -> None:
        """When a claim looks at a queue's origins."""
        self.queue(name).aside_ms = min((one.due_ms for one in self.silences.get(name, {}).values()), default=None)

    def come_back(self, back: Mapping[tuple[str, str], Collection[str]], short: Collection[str]) -> set[tuple]:
        """What a claim has put back of each queue and origin: one, or all that are not in files. Returns the probes."""
        probes = set()
        for name in sorted({queue for queue, found in self.silences.items() if found}):
            queue = self.queue(name)
            is_looked_at = queue.aside_ms is not None and queue.aside_ms <= self.clock
            for origin, silence in list(self.silences[name].items()):
                came = back.get((name, origin), ())
                is_all = silence.due_ms == RECALLED or queue.is_deferred
                if not is_looked_at or (silence.due_ms > self.clock and not queue.is_deferred):
                    assert not came, "it is not due"
                    continue
                waiting, is_short = self.aside_of(name, origin), f"{name}|!{origin}" in short
                assert set(came) <= set(waiting)
                assert len(came) == (len(waiting) if is_all else 1) or (is_short and len(came) < len(waiting))
                if came:
                    probes.add((name, origin, -1 if silence.since_ms is None else silence.since_ms))
                self._put_back(name, origin, came, is_all=is_all)
            if is_looked_at:
                self._look_again(name)
        return probes

    def _put_back(self, name: str, origin: str, came: Collection[str], *, is_all: bool) -> None:
        silence = self.silences[name][origin]
        for fingerprint in came:
            self._wait(self.urls[fingerprint])
        if not came:
            silence.due_ms = self.clock + 1000
        else:
            silence.due_ms = RECALLED if is_all else self.clock + AGAIN_MS
        self.forget_silences(name)

    def forget_silences(self, name: str) -> None:
        """Of origins without URLs that are set aside."""
        before = self.silences.get(name, {})
        self.silences[name] = {origin: one for origin, one in before.items() if self.aside_of(name, origin)}
        if len(self.silences[name]) < len(before):
            self._look_again(name)

    # How many URLs a queue hands out although it would wait after each: more while they end without an answer.

    def unanswered(self, name: str) -> None:
        queue = self.queue(name)
        queue.quick = min(QUICK_MAX, max(queue.quick, 1) + 1)

    def answered(self, name: str) -> None:
        queue = self.queue(name)
        queue.quick = queue.quick - 1 if queue.quick > 2 else 0

    def note_end(self, name: str, kind: str) -> None:
        """A claim has failed."""
        if kind in UNANSWERED:
            self.unanswered(name)
        else:
            self.answered(name)

    def aside_view(self, name: str) -> Counter[str]:
        return Counter(quick=self.queue(name).quick)
