"""One line of the history <-> one attempt at a URL: JSON. Must not know files.

The lines are for people. Nothing that the crawler decides rests on them.
"""

import enum
from collections.abc import Mapping

import msgspec


class Became(enum.StrEnum):
    """What an attempt led to. LOST: it does not count, for its lease was gone or its request was cut off."""

    COMMITTED = "committed"
    RETRY = "retry"
    DEAD = "dead"
    REFUSED = "refused"
    LOST = "lost"


TIMES = ("queued", "claimed", "started", "finished", "failed", "refused", "lost")


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt, and who made it. Wall times in s; 0 for what did not happen, or what nobody noted.

    `attempt` counts failed ones and this one; a URL that ended without being tried adds none. `kind` is the failure's,
    or the reason of a refusal.
    """

    url: str
    fp: str
    domain: str
    attempt: int
    became: Became
    node: str
    session: str
    epoch: int
    queued: float = 0.0
    claimed: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    failed: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    http_status: int = 0
    kind: str = ""
    detail: str = ""

    @property
    def times(self) -> dict[str, float]:
        """Those that are known, in the order of a life."""
        return {name: at for name in TIMES if (at := getattr(self, name))}

    @property
    def last_at(self) -> float:
        return max(self.times.values(), default=0.0)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Attempt).decode


def status_of(times: Mapping[str, float]) -> str:
    """How far an attempt came, by which of its times are there: the last of `TIMES`, or "unknown"."""
    return next((name for name in reversed(TIMES) if times.get(name)), "unknown")


def to_line(attempt: Attempt) -> bytes:
    """The attempt as one line, with its line feed."""
    return _encode(attempt) + b"\n"


def to_attempt(line: bytes) -> Attempt | None:
    """The attempt of a line; None when the line is torn or damaged."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def needle_of(field: str, value: str) -> bytes:
    """What stands in each line with this value of `url`, `fp` or `domain`, and nowhere else in a line."""
    return b'"%b":%b' % (field.encode(), _encode_text(value))


_encode_text = msgspec.json.Encoder().encode
