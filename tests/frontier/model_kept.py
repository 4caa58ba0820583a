"""What the frontier's model does with URLs that are kept and not fetched: dead letters and parked ones."""

from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from tests.frontier.model_stops import StopsModel
from tests.frontier.model_urls import State, Url


class KeptUrls(StopsModel):
    """A part of PartitionModel."""

    urls: dict[str, Url]
    totals: Counter[str]
    counts: dict[str, Counter[str]]

    def of_queue(self, name: str, *states: State) -> list[str]:
        raise NotImplementedError

    def _count(self, url: Url, **fields: int) -> None:
        raise NotImplementedError

    # Dead letters

    def revive(self, fingerprint: str) -> int:
        """Added anew; 1 if it had a letter. Deaths that were told of since it ended count for its new life."""
        url = self.urls[fingerprint]
        if url.state is not State.DEAD:
            return 0
        deaths = {"deaths": url.deaths, "died_with": url.died_with}
        self.urls[fingerprint] = Url(candidate=replace(url.candidate, depth=url.depth), depth=url.depth, **deaths)
        self._wait(self.urls[fingerprint])
        self._count(url, dead=-1)
        self.totals.update(added=1, revived=1)
        return 1

    def discard(self, fingerprint: str, *, reason: str) -> int:
        """Refused from here on; 1 if it had a letter."""
        url = self.urls[fingerprint]
        if url.state is not State.DEAD:
            return 0
        url.state, url.failures = State.REFUSED, []
        self._count(url, **{"dead": -1, f"refused:{reason}": 1})
        return 1

    # Parked URLs

    def park(self, fingerprint: str, *, reason: str) -> bool:
        """False when that was released: then it is queued again."""
        url = self.urls[fingerprint]
        is_free = bool(self.counts[url.candidate.queue][f"free:{reason}"])
        if is_free:
            self._wait(url)
        else:
            url.state = State.PARKED
            self.totals["parked"] += 1
        return not is_free

    def release_parked(self, name: str, fingerprints: Collection[str], *, reason: str) -> int:
        """Some of a queue's parked URLs are queued; how many."""
        for fingerprint in fingerprints:
            self._wait(self.urls[fingerprint])
        if fingerprints:
            self.counts[name][f"free:{reason}"] = 1
        self.totals.update(added=len(fingerprints), released=len(fingerprints))
        return len(fingerprints)
