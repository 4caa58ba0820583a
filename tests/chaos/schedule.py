"""Which fault comes when, to whom and for how long: all of it drawn from a seed. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

ENGINE_KINDS = ("engine kill", "engine pause", "script flush")
WEIGHTS = {
    "kill": 5,
    "pause": 3,  # longer than others wait: taken over, refused when it wakes
    "hiccup": 3,  # about as long as the self-stop and the silence that others wait for
    "leave": 2,
    "join": 2,
    "cut": 2,
    "blackhole": 3,
    "stall": 2,
    "delay": 2,
    "trickle": 1,
    "lost replies": 2,
    "held beats": 2,
    "engine kill": 2,
    "engine pause": 1,
    "script flush": 1,
}
SECONDS = {
    "kill": (0.3, 15.0),  # until it is started again
    "pause": (8.0, 30.0),
    "hiccup": (3.0, 8.0),
    "leave": (0.5, 8.0),  # after it has gone, until it joins again
    "join": (6.0, 20.0),
    "cut": (1.0, 12.0),
    "blackhole": (2.0, 14.0),
    "stall": (2.0, 14.0),
    "delay": (3.0, 10.0),
    "trickle": (3.0, 8.0),
    "lost replies": (3.0, 10.0),
    "held beats": (4.0, 12.0),
    "engine kill": (0.1, 10.0),  # some outlast the self-stop of all
    "engine pause": (0.5, 4.0),
    "script flush": (0.0, 0.0),
}
QUIET_S = 11.0  # some deaths are followed by nothing else, so that a takeover can be timed undisturbed
QUIET_SHARE = 0.3

Direction = Literal["requests", "replies", "both"]
DIRECTIONS: tuple[Direction, ...] = ("requests", "replies", "both")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong `wait_s` after the one before; the first of `places` that is well is its victim."""

    wait_s: float
    kind: str
    places: tuple[int, ...]
    seconds: float
    direction: Direction
    amount: float  # 0 to 1: how bad, in the unit of the kind
    quiet_s: float  # nothing else begins for so long


def faults(seed: str, *, homes: int, pace_s: tuple[float, float], seconds_max: float = 30.0) -> Iterator[Fault]:
    """Without end; the same for the same seed."""
    dice = random.Random(seed)
    while True:
        kind = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        low, high = SECONDS[kind]
        quiet = dice.random() < QUIET_SHARE
        yield Fault(
            wait_s=dice.uniform(*pace_s),
            kind=kind,
            places=tuple(dice.sample(range(homes), homes)),
            seconds=dice.uniform(low, max(low, min(high, seconds_max))),
            direction=dice.choice(DIRECTIONS),
            amount=dice.random(),
            quiet_s=QUIET_S if quiet and kind in ("kill", "pause") else 0.0,
        )
