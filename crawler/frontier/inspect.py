"""Read-only queries for people: where a URL is, how far a crawl has come, why the first URLs were given up.

Never a scan: the work is bounded by the number of partitions or by what is shown.
"""

from dataclasses import dataclass

from crawler.frontier.client import Engine
from crawler.frontier.keys import Keys
from crawler.frontier.records import DeadLetter, UrlRecord, unpack_letter, unpack_log, unpack_record
from crawler.model import Candidate, CommitEntry

FULL_LOOK_EVERY = 10
_PROGRESS = ("added", "done", "bytes", "retries", "dead", "s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Everything a partition knows of one URL. Times in ms on the partition's clock; None for what is not there."""

    seen: bool
    record: UrlRecord | None  # pending: queued, claimed or due again later
    claim_deadline_ms: int | None
    retry_at_ms: int | None
    place: int | None  # in its queue, 0 is the front
    letter: DeadLetter | None
    entry: CommitEntry | None  # committed, and not yet in an index segment
    clock_ms: int
    session: str
    node: str
    epoch: int
    next_fetch_ms: int
    delay_ms: int | None
    claims_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Sums over all partitions. `redirected` and `failed` are responses of 3xx, and of 4xx and 5xx."""

    added: int = 0
    done: int = 0
    fetched: int = 0
    redirected: int = 0
    failed: int = 0
    bytes: int = 0
    retries: int = 0
    dead: int = 0

    @property
    def pending(self) -> int:
        return self.added - self.done


class Inspect:
    """Questions about one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions
        self._used: list[int] = []
        self._looks = 0

    async def where(self, candidate: Candidate, *, run: int = 0, visit: int = 1) -> Whereabouts:
        """Everything about one URL, read at one moment."""
        c = candidate
        raw = await self._engine.run(
            "where", (self._keys.meta(c.partition),), run, c.fingerprint, visit, c.queue, c.domain
        )
        return _whereabouts([value.decode("utf-8", "replace") for value in raw], raw)

    async def progress(self) -> Progress:
        """One pass over the counters of the partitions in use; every tenth time over all of them."""
        partitions = self._used if self._looks % FULL_LOOK_EVERY else list(range(self._partitions))
        self._looks += 1
        sums = [0] * len(_PROGRESS)
        found = await self._engine.commands([("HMGET", self._keys.meta(p), *_PROGRESS) for p in partitions])
        self._used = [p for p, values in zip(partitions, found, strict=True) if values[0] is not None]
        for values in found:
            if values[0] is not None:
                sums = [total + int(value or 0) for total, value in zip(sums, values, strict=True)]
        n = dict(zip(_PROGRESS, sums, strict=True))
        return Progress(
            added=n["added"], done=n["done"], fetched=sum(n[f"s{c}"] for c in range(1, 6)), redirected=n["s3"],
            failed=n["s4"] + n["s5"], bytes=n["bytes"], retries=n["retries"], dead=n["dead"],
        )  # fmt: skip

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """Some of the URLs that were given up, at most `limit`; seeds first."""
        sizes = await self._engine.commands([("HLEN", self._keys.of(p, "dead")) for p in range(self._partitions)])
        holders = [p for p, n in enumerate(sizes) if n][:limit]
        commands = [("HRANDFIELD", self._keys.of(p, "dead"), limit, "WITHVALUES") for p in holders]
        found = [unpack_letter(blob) for flat in await self._engine.commands(commands) for blob in flat[1::2]]
        return sorted(found, key=lambda letter: (not letter.seed, letter.failed_at))[:limit]


def _whereabouts(text: list[str], raw: list[bytes]) -> Whereabouts:
    place = int(text[5]) if text[5] else -1
    return Whereabouts(
        seen=text[0] == "1",
        record=unpack_record(raw[1]) if raw[1] else None,
        claim_deadline_ms=_ms(text[3]) if text[2] else None,
        retry_at_ms=_ms(text[4]) if text[4] else None,
        place=place if place >= 0 else None,
        letter=unpack_letter(raw[6]) if raw[6] else None,
        entry=unpack_log(raw[7])[1] if raw[7] else None,
        clock_ms=_ms(text[8]),
        session=text[9],
        node=text[10],
        epoch=int(text[11] or 0),
        next_fetch_ms=_ms(text[12]),
        delay_ms=_ms(text[13]) if text[13] else None,
        claims_out=int(text[14] or 0),
    )


def _ms(text: str) -> int:
    return int(float(text or 0))
