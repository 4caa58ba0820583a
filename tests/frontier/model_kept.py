"""What the frontier's model does with URLs that are kept and not fetched: dead letters and deferred ones."""

from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from crawler.frontier.deferred import REQUISITES, RIGHTS
from crawler.model import REQUISITE, Candidate
from crawler.rules.urls import host_of
from tests.frontier.model_stops import StopsModel
from tests.frontier.model_urls import HOSTS_MAX, Queue, State, Url

HOSTS_ANY = 10**6  # people's commands override budgets


class KeptUrls(StopsModel):
    """A part of PartitionModel."""

    urls: dict[str, Url]
    totals: Counter[str]
    counts: dict[str, Counter[str]]
    queues: dict[str, Queue]
    hosts: dict[str, list[str]]
    closed: set[str]

    def of_queue(self, name: str, *states: State) -> list[str]:
        raise NotImplementedError

    def queue(self, name: str) -> Queue:
        raise NotImplementedError

    def refuse(self, fingerprint: str, *, reason: str) -> None:
        raise NotImplementedError

    def _count(self, url: Url, **fields: int) -> None:
        raise NotImplementedError

    # Dead letters

    def revive(self, fingerprint: str) -> int:
        """Added anew; 1 if it had a letter. Deaths that were told of since it ended count for its new life."""
        url = self.urls[fingerprint]
        if url.state is not State.DEAD or url.candidate.run in self.closed:
            return 0
        deaths = {"deaths": url.deaths, "died_with": url.died_with}
        candidate = replace(url.candidate, depth=url.depth, deferred="")
        again = Url(candidate=candidate, depth=url.depth, retries=url.retries, user=url.user, **deaths)
        self.urls[fingerprint] = again
        self._count(url, dead=-1)
        self.totals.update(added=1, revived=1)
        if candidate.run:
            self.place(self.urls[fingerprint], HOSTS_ANY)
        else:
            self._wait(self.urls[fingerprint])
        return 1

    def discard(self, fingerprint: str, *, reason: str) -> int:
        """Refused from here on; 1 if it had a letter."""
        url = self.urls[fingerprint]
        if url.state is not State.DEAD:
            return 0
        url.state, url.failures = State.REFUSED, []
        self._count(url, **{"dead": -1, f"refused:{reason}": 1})
        self.totals.update(added=1, revived=1)
        return 1

    # Parked URLs

    def _park(self, url: Url, reason: str) -> None:
        url.state, url.deferred = State.DEFERRED, reason
        self.totals["deferrals"] += 1

    def place(self, url: Url, hosts_max: int = HOSTS_MAX) -> None:
        """Into its queue, or deferred as too deep, or as of one host too many of its domain.

        Budgets are not for runs. A URL of one that would be deferred is refused, also if its queue is stopped.
        """
        if url.candidate.run:
            stop = self.queue(url.candidate.queue)
            reason = url.candidate.deferred or (stop.stop if stop.is_deferred else "")
            if reason:
                self.refuse(url.candidate.fingerprint, reason=reason)
            else:
                self._enter(url)
        elif url.candidate.deferred:
            self._park(url, f"depth:{url.depth}" if url.candidate.deferred == "depth" else url.candidate.deferred)
        elif url.candidate.label != REQUISITE and not self._takes_host(url, HOSTS_MAX):
            self._park(url, "hosts")
        else:
            self._enter(url)

    def _enter(self, url: Url) -> None:
        """Into its queue, now or at its time."""
        if url.candidate.visible_at:
            url.state, url.until_ms = State.SCHEDULED, round(url.candidate.visible_at * 1000)
            url.user = ""  # of the crawl itself, as no run schedules any
        else:
            self._wait(url)

    def _takes_host(self, url: Url, most: int) -> bool:
        hosts, host = self.hosts.setdefault(url.candidate.domain, []), host_of(url.candidate.url)
        if host not in hosts and (len(hosts) < most or url.candidate.seed):
            hosts.append(host)
        return host in hosts

    def raise_hosts(self, most: int) -> int:
        """So many hosts of a domain are taken in now, those of the best URLs first; how many URLs are released."""
        deferred = [
            f for name in self.queues for f in self.of_queue(name, State.DEFERRED) if self.queue(name).stop != "blocked"
        ]
        found = [self.urls[f] for f in deferred if self.urls[f].deferred == "hosts"]
        admitted = [url for url in found if self._takes_host(url, most)]
        for url in admitted:
            url.user = ""
            self._wait(url)
        self.totals.update(added=len(admitted), released=len(admitted))
        return len(admitted)

    def lift(self, url: Url, found: Candidate) -> None:
        """A shorter path to it is known: what was deferred as too deep takes its place and score by that."""
        was_deep = url.state is State.DEFERRED and url.deferred == f"depth:{url.depth}"
        url.depth = found.depth
        if was_deep:
            self.totals.update(added=1, released=1)
            url.candidate, url.user = found, found.user
            self.place(url)

    def defer(self, fingerprint: str, *, reason: str) -> bool:
        """False when that was released: then it is queued again."""
        url = self.urls[fingerprint]
        names = [url.candidate.queue] + [url.candidate.domain] * (reason == RIGHTS)
        is_free = any(self.counts[name][f"free:{reason}"] for name in names)
        if is_free:
            self._wait(url)
        elif url.candidate.run:
            self.refuse(fingerprint, reason=reason)
        else:
            self._park(url, reason)
        return not is_free

    def deferred_for(self, name: str, reason: str) -> list[str]:
        """A queue's URLs that are deferred for this, in the order in which they are released."""
        deferred = [f for f in self.of_queue(name, State.DEFERRED) if self.urls[f].deferred == reason]
        is_deep = reason.startswith("depth:")
        return sorted(deferred, key=lambda f: int(f[-9:]), reverse=True) if is_deep else deferred

    def release_deferred(self, name: str, fingerprints: Collection[str], *, reason: str) -> int:
        """Some of a queue's deferred URLs are queued; how many."""
        for fingerprint in fingerprints:
            self.urls[fingerprint].user = ""
            self._wait(self.urls[fingerprint])
        if reason in (RIGHTS, REQUISITES) or (fingerprints and reason.startswith("trap:")):
            self.counts[name][f"free:{reason}"] = 1
        self.totals.update(added=len(fingerprints), released=len(fingerprints))
        return len(fingerprints)
