"""A partition as the engine stores it, read key by key without any of the code under test."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import redis

from crawler.frontier.keys import Keys
from crawler.model import Request
from tests.frontier.door import fingerprint


def is_row(name: str) -> bool:
    """Is it the name of a row of deferred URLs?"""
    return "|" in name and "|@" not in name and not is_aside(name)


def is_aside(name: str) -> bool:
    """Is it the name of a row of an origin that does not answer?"""
    return "|!" in name


READERS = {
    b"hash": lambda c, k: c.hgetall(k),
    b"zset": lambda c, k: c.zrange(k, 0, -1, withscores=True),
    b"set": lambda c, k: c.smembers(k),
    b"string": lambda c, k: c.get(k),
    b"stream": lambda c, k: c.xrange(k),
    b"list": lambda c, k: c.lrange(k, 0, -1),
}


def dump(client: "redis.Redis[bytes]", pattern: str) -> dict[bytes, Any]:
    """Every key that matches, with its whole value."""
    names = sorted(client.keys(pattern))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.type(name)
    kinds = pipeline.execute()
    for name, kind in zip(names, kinds, strict=True):
        READERS[kind](pipeline, name)
    return dict(zip(names, pipeline.execute(), strict=True))


@dataclass
class RawPartition:
    """What stands under one partition's keys, and in files: file -> the (member, score) of its one block."""

    keys: dict[str, Any]
    disk: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        whole: dict[bytes, Any],
        keys: Keys,
        partition: int,
        disk: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    ) -> "RawPartition":
        prefix = keys.of(partition, "").encode()
        return cls({k[len(prefix) :].decode(): v for k, v in whole.items() if k.startswith(prefix)}, disk or {})

    def hash(self, name: str) -> dict[str, str]:
        return {k.decode(): v.decode(errors="replace") for k, v in self.keys.get(name, {}).items()}

    def zset(self, name: str) -> dict[str, float]:
        return {m.decode(): score for m, score in self.keys.get(name, [])}

    def ready(self) -> dict[tuple[str, str], tuple[float, int]]:
        """Queue that may be claimed from and user -> (when it is due, its boost); fails for one that is there twice."""
        found: dict[tuple[str, str], tuple[float, int]] = {}
        for name in self.under("ready"):
            boost, _, user = name.partition("@")
            for queue, due in self.zset(f"ready{name}").items():
                assert (queue, user) not in found, f"{queue} is ready in two places"
                found[queue, user] = (due, int(boost[1:] or 0))
        return found

    def names(self) -> list[list[str]]:
        """The index of queues, block by block; fails for a block that is not listed, and for a score that is not 0."""
        firsts = ["", *self.zset("names")]
        assert set(self.under("names:")) | {""} == set(firsts)
        blocks = [self.zset(f"names:{first}") for first in firsts]
        assert {score for block in (*blocks, self.zset("names")) for score in block.values()} <= {0}
        assert [next(iter(block)) for block in blocks[1:]] == firsts[1:]
        return [list(block) for block in blocks]

    def under(self, prefix: str) -> list[str]:
        """Names after a prefix like 'q:'."""
        return sorted(k[len(prefix) :] for k in self.keys if k.startswith(prefix))

    def numbers(self, name: str, *left_out: str) -> dict[str, int]:
        """The counters of a hash that are not zero."""
        fields = (self.record(name[2:]) if name.startswith("w:") else self.hash(name)).items()
        return {k: int(v) for k, v in fields if k not in left_out and int(v)}

    def record(self, queue: str) -> dict[str, Any]:
        """A queue's record, from wherever it lies; fails if it lies in two places."""
        name = queue.encode()
        found = [v[name] for v in (self.keys[f"h:{n}"] for n in self.under("h:")) if name in v]
        if f"w:{queue}" in self.keys:
            found.append(self.keys[f"w:{queue}"])
        assert len(found) <= 1, f"the record of {queue} is in two places"
        if not found:
            return {}
        names = ("next", "delay", "out", "n", "retrying", "blocks", "urls", "s2", "bytes", "fetch_ms")
        *numbers, more = msgspec.msgpack.decode(found[0])
        return dict(zip(names, numbers, strict=True)) | dict(more)

    def queued(self) -> dict[str, tuple[str, int]]:
        """Fingerprint -> (row, score) of all URLs that wait; fails for one that stands there twice."""
        return {
            fp: (row, score)
            for fp, (row, score, _) in self.in_blocks().items()
            if not is_row(row) and not is_aside(row)
        }

    def aside(self) -> dict[str, tuple[str, int, str]]:
        """Fingerprint -> (row, score, user) of all that are set aside."""
        return {fp: place for fp, place in self.in_blocks().items() if is_aside(place[0])}

    def deferred(self) -> dict[str, tuple[str, int]]:
        """Fingerprint -> (QUEUE|reason, score) of all that are deferred one by one."""
        return {fp: (row, score) for fp, (row, score, _) in self.in_blocks().items() if is_row(row)}

    def in_blocks(self) -> dict[str, tuple[str, int, str]]:
        """Fingerprint -> (row, score, user) of all URLs in blocks; fails for one that is in two places."""
        found: dict[str, tuple[str, int, str]] = {}
        for queue, urls in self._blocks():
            for member, score in urls:
                if "|depth:" in queue:
                    place, inner, member = member.split(" ", 2)
                    assert score == int(place[-9:])
                    score = int(inner)
                user = queue.partition("|@")[2]
                if is_aside(queue) and member[0] == "\x01":
                    user, member = member[1:].split(" ", 1)
                fp = self.fingerprint(queue.partition("|")[0], member)
                assert fp not in found, f"{member} is in two places"
                found[fp] = (queue, int(score), user)
        return found

    def _blocks(self) -> Iterator[tuple[str, Iterable[tuple[str, float]]]]:
        """Each queue's blocks, in memory and in files."""
        for queue in self.under("q:"):
            yield queue, self.zset(f"q:{queue}").items()
        for name in self.under("b:"):
            yield name.rpartition(":")[0], self.zset(f"b:{name}").items()
        for queue in self.under("t:"):
            for stub in self.stubs(queue):
                yield queue, self.disk[stub.split(" ")[1]]

    def stubs(self, queue: str) -> list[str]:
        """Names of its blocks that are in files."""
        return [name for name in self.zset(f"t:{queue}") if " " in name]

    def delivered(self) -> dict[str, tuple[str, int, str]]:
        """Token -> (fingerprint, score, user) of claims and retries."""
        found = {}
        for token, packed in self.hash("u").items():
            score, row, _, member = packed.split(" ", 3)
            queue, _, user = row.partition("|@")
            found[token] = (self.fingerprint(queue, member), int(score), user)
        return found

    def scheduled(self) -> dict[str, tuple[int, int]]:
        """Fingerprint -> (wall time, score) of those that become visible later."""
        found = {}
        for stored, at_ms in self.zset("at").items():
            score, queue, member = stored.split(" ", 2)
            found[self.fingerprint(queue, member)] = (int(at_ms), int(score))
        return found

    def fingerprint(self, queue: str, member: str) -> str:
        stamp, _, carried = member[5:].partition("/")[0].partition(" ")[0].partition('"')  # without the time
        origin, _, label = stamp.partition("~")
        request = msgspec.json.decode(carried, type=Request) if carried else None
        return fingerprint(self.url(queue, member), origin.partition("!")[2], request, label)

    def url(self, queue: str, member: str) -> str:
        """By the rules of the layout, written down once more."""
        letter, rest = member[0], member[1:]
        if letter == " ":
            return rest[rest.index(" ") + 1 :]
        path = rest[rest.index("/") :]
        if letter in '!"#$':
            return ("https://", "http://", "https://www.", "http://www.")['!"#$'.index(letter)] + queue + path
        return self.hash(f"g:{queue}")[letter] + path

    def depths(self, run: str) -> dict[str, int]:
        return {fp: int(d) for name in self.under(f"z{run}:") for fp, d in self.hash(f"z{run}:{name}").items()}

    def hosts(self) -> dict[str, set[str]]:
        """Domain -> its hosts that were taken in."""
        values = {name: value for n in self.under("n:") for name, value in self.hash(f"n:{n}").items()}
        found: dict[str, set[str]] = {domain: set() for domain in values if " " not in domain}
        for domain, _, label in (name.partition(" ") for name in values if " " in name):
            found[domain].add(domain if label == "@" else f"{label}.{domain}")
        assert {domain: int(values[domain]) for domain in found} == {d: len(hosts) for d, hosts in found.items()}
        return found

    def seen(self, run: str) -> set[str]:
        return {m.decode() for k, v in self.keys.items() if k.startswith(f"s{run}:") for m in v}

    def run_counts(self, run: str) -> tuple[int, ...] | None:
        """What is counted of a run; None when nothing is. Fails when it is in two places."""
        found = [v[run.encode()] for v in (self.keys[f"e:{n}"] for n in self.under("e:")) if run.encode() in v]
        assert len(found) <= 1
        return tuple(msgspec.msgpack.decode(found[0])) if found else None
