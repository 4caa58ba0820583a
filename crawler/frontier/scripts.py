"""The Lua scripts: read from their files, includes resolved, named as the methods that call them."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

NAMES = (
    "ack", "add", "admit", "beat", "claim", "dead", "depths", "died", "discard", "drain", "extend", "give_back", "join",
    "lease", "leave", "look", "pace", "park", "purge", "refuse", "release", "reserve", "restore", "retry", "revive",
    "spill", "states", "steer", "unspill", "visited", "where", "withdraw",
)  # fmt: skip

_INCLUDE = "--@include "


@dataclass(frozen=True, slots=True)
class Script:
    """One operation: its source with includes resolved, and the digest that EVALSHA wants."""

    name: str
    source: str
    sha: str


def _resolve(name: str) -> str:
    lines: list[str] = []
    for line in _read(name).splitlines():
        if line.startswith(_INCLUDE):
            lines.extend(_code_only(_read(part)) for part in line.removeprefix(_INCLUDE).split())
        else:
            lines.append(line)
    return "\n".join(lines)


def _read(name: str) -> str:
    return (files("crawler.frontier") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def _code_only(source: str) -> str:
    """Without whole-line comments: the engine compiles each script once but stores and replicates its text."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("--"))


@cache
def script(name: str) -> Script:
    """The script of that name; raises KeyError for a name that is none."""
    if name not in NAMES:
        raise KeyError(name)
    source = _resolve(name)
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324 - EVALSHA's digest


def all_scripts() -> list[Script]:
    """Every script, for loading them at connect time."""
    return [script(name) for name in NAMES]
