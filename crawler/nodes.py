"""Where processes run and what they are called there: this machine, its slots, and who can be proven dead on it.

A node's name is the host's name and a slot. Must not know what an instance does.
"""

import contextlib
import socket
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Protocol

from crawler.archive.sessions import Life, life_at
from crawler.errors import UsageError
from crawler.frontier.members import Members

SLOTS_MAX = 10_000  # instances of a host


class Located(Protocol):
    """Whoever holds a lock file on some machine: a member, a supervisor."""

    @property
    def host(self) -> str: ...
    @property
    def lock(self) -> str: ...


def host_id() -> str:
    """Machine and boot: where a lock file of the same id can be tried."""
    return f"{socket.gethostname()}{_boot_id()}"


@cache
def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return f"/{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    return ""


def is_lock_free(one: Located) -> bool:
    """Proof of death: the lock file is on this machine, and nobody holds it."""
    return bool(one.lock) and one.host == host_id() and life_at(Path(one.lock)) is Life.DEAD


class Slots:
    """The slots of this host in one crawl, as its member list has them."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def free(self, count: int, besides: Collection[str] = ()) -> list[str]:
        """Names of the first free slots, none of `besides` among them. UsageError when there are not as many."""
        host, known, free = socket.gethostname(), await self._members.read(), list[str]()
        for slot in range(SLOTS_MAX):
            if len(free) == count:
                return free
            node = f"{host}-{slot}"
            if node in besides:
                continue
            holder = await self._members.holder_of(node)
            if not holder or holder not in known or is_lock_free(known[holder]):
                free.append(node)
        raise UsageError("no free slot on this host: set membership.node")

    async def is_free(self, node: str) -> bool:
        """May a new session have this name?"""
        holder = await self._members.holder_of(node)
        if not holder:
            return True
        member = (await self._members.read()).get(holder)
        return member is None or is_lock_free(member)
