"""Reads leases, members and counters straight from the engine, four times a second, and keeps what changed.

Reads raw keys, as docs/internals/frontier-layout.md describes them: the code under test must not judge itself.
"""

import bisect
import contextlib
import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import redis

EVERY_S = 0.25
GAP_S = 1.0  # between two reads: the engine hung, or this machine did


@dataclass(frozen=True)
class Seen:
    """A partition's lease as seen first at `at`, and last otherwise at `before` (monotonic seconds)."""

    before: float
    at: float
    session: str
    node: str
    epoch: int


class LeaseWatch:
    """A thread of its own from `start` to `close`; what it found may be read at any time."""

    def __init__(self, socket: str, crawl: str, partitions: int) -> None:
        self._socket, self._crawl, self._partitions = socket, crawl, partitions
        self.history: dict[int, list[Seen]] = defaultdict(list)
        self.session_of_pid: dict[int, str] = {}
        self.gaps: list[tuple[float, float]] = []  # while nobody could read the engine, killed or not
        self.done = 0
        self.pending = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._read_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def held_by(self, session: str, at: float) -> list[int]:
        """Partitions whose lease was the session's at that time, as far as was seen."""
        return [p for p in self.history if (seen := self.lease_at(p, at)) is not None and seen.session == session]

    def lease_at(self, partition: int, at: float) -> Seen | None:
        changes = self.history[partition]
        found = bisect.bisect_right(changes, at, key=lambda seen: seen.at)
        return changes[found - 1] if found else None

    def _run(self) -> None:
        client = None
        while not self._over.wait(EVERY_S):
            try:
                if client is None:
                    client = redis.Redis(unix_socket_path=self._socket, socket_timeout=1.0, retry=None)
                self._look(client)
            except (redis.RedisError, OSError):
                with contextlib.suppress(redis.RedisError, OSError, AttributeError):
                    client.close()  # type: ignore[union-attr]
                client = None
        if client is not None:
            client.close()

    def _look(self, client: "redis.Redis[bytes]") -> None:
        began, pipeline = time.monotonic(), client.pipeline(transaction=False)
        for p in range(self._partitions):
            pipeline.hmget(f"{{{self._crawl}:{p}}}:m", "session", "node", "epoch", "added", "done")
        pipeline.hvals(f"{{{self._crawl}}}:members")
        *metas, members = pipeline.execute()
        for blob in members:
            member = json.loads(blob)
            self.session_of_pid[member["pid"]] = member["session"]
        for p, meta in enumerate(metas):
            self._note(p, began, meta)
        if time.monotonic() - self._read_at > GAP_S:
            self.gaps.append((self._read_at, time.monotonic()))
        self.done = sum(int(meta[4] or 0) for meta in metas)
        self.pending = sum(int(meta[3] or 0) - int(meta[4] or 0) for meta in metas)
        self._read_at = began

    def _note(self, partition: int, began: float, meta: list[Any]) -> None:
        session, node, epoch = (meta[0] or b"").decode(), (meta[1] or b"").decode(), int(meta[2] or 0)
        changes = self.history[partition]
        if not changes or (changes[-1].session, changes[-1].epoch) != (session, epoch):
            changes.append(Seen(self._read_at, time.monotonic(), session, node, epoch))
