"""How many requests a client may send: a bucket of tokens for each, as one number (GCRA, ITU-T I.371)."""

import time
from collections.abc import Callable

BUCKETS_MAX = 10_000  # beyond this, full ones are forgotten


class RateLimit:
    """`per_s` requests a second for each client, and `burst` at once."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._step_s = 1 / per_s
        self._ahead_s = burst / per_s
        self._clock = clock
        self._full_at: dict[str, float] = {}  # client -> when its bucket is full again

    def take(self, client: str) -> float:
        """Take one request from a client's bucket; 0.0, or the seconds after which there is one."""
        now = self._clock()
        full_at = max(self._full_at.get(client, 0.0), now) + self._step_s
        late_s = full_at - now - self._ahead_s
        if late_s > 0:
            return late_s
        if len(self._full_at) >= BUCKETS_MAX and client not in self._full_at:
            self._full_at = {one: at for one, at in self._full_at.items() if at > now}
        self._full_at[client] = full_at
        return 0.0
