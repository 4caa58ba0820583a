"""Names of nodes: this machine, its slots, and how a session takes a name and joins.

A node's name is the host's name and a slot. It belongs to one living session at a time.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from crawler.archive.folder import Life, life_at
from crawler.errors import ConflictError, UsageError
from crawler.frontier.members import Member, Members, NameTakenError
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import MembershipSettings

BEATS = 2.5  # a living session's counter has changed by then
SLOTS_MAX = 10_000  # instances of a host
NO_SLOT = "no free slot on this host: set membership.node"


class Located(Protocol):
    """A holder of a lock file on some machine: a member, a supervisor."""

    @property
    def host(self) -> str: ...
    @property
    def lock(self) -> str: ...


def host_id() -> str:
    """Machine and boot: lock files with the same id can be tested here."""
    return f"{socket.gethostname()}{_boot_id()}"


@cache
def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return f"/{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    return ""


def is_lock_free(one: Located) -> bool:
    """Proof of death: the lock file is on this machine, and nobody holds it.

    Two machines may have the same name, and the same path: where the boot has no id, a free lock proves nothing.
    """
    return bool(one.lock and _boot_id()) and one.host == host_id() and life_at(Path(one.lock)) is Life.DEAD


class Slots:
    """The slots of this host in one crawl, as its member list has them."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def free(self, count: int, besides: Collection[str] = ()) -> list[str]:
        """Names of the first free slots, without those in `besides`. Raises UsageError when there are too few."""
        names = list[str]()
        if not count:
            return names
        async for node, _ in self._free(besides):
            names.append(node)
            if len(names) == count:
                return names
        raise UsageError(NO_SLOT)

    async def take(self, describe: Callable[[str], Member]) -> str:
        """Join under the name of the first free slot, which no other session gets then.

        `describe` creates the member for a name. Raises UsageError when no slot is free.
        """
        async for node, dead in self._free():
            with contextlib.suppress(NameTakenError):  # another session took it at the same moment
                await self._members.join(describe(node), instead_of=dead)
                return node
        raise UsageError(NO_SLOT)

    async def _free(self, besides: Collection[str] = ()) -> AsyncIterator[tuple[str, str]]:
        """Names of free slots, each with the dead session that still has it ("": none)."""
        host, known = socket.gethostname(), dict[str, Member]()
        for node in (f"{host}-{slot}" for slot in range(SLOTS_MAX)):
            if node in besides:
                continue
            holder = await self._members.holder_of(node)
            if holder and holder not in known:  # read after the holder, so it includes sessions that joined since
                known = await self._members.read()
            if not holder or _is_over(holder, known):
                yield node, holder

    async def is_free(self, node: str) -> bool:
        """May a new session have this name?"""
        holder = await self._members.holder_of(node)
        return not holder or _is_over(holder, await self._members.read())


async def living_holder(members: Members, node: str) -> Member | None:
    """The session that has a node's name, if it is proven alive: it holds its lock file on this machine."""
    holder = (await members.read()).get(await members.holder_of(node))
    if holder is None or holder.host != host_id() or life_at(Path(holder.lock)) is not Life.ALIVE:
        return None
    return holder


def _is_over(session: str, known: Mapping[str, Member]) -> bool:
    """Has this session left the member list, or is it proven dead?"""
    return session not in known or is_lock_free(known[session])


async def join(
    members: Members, member: Member, is_lock_free: Callable[[Member], bool], settings: MembershipSettings
) -> tuple[int, int]:
    """Join under the member's node name. Returns when the call was sent (monotonic ms), which counts as the first beat,
    and how often the node has joined since it last ran for a minute.

    Raises ConflictError when another living session has the name. One that may be dead is watched for `dead_s`.
    """
    holder = await members.holder_of(member.node)
    others = holder and holder != member.session
    dead = await _dead_holder(members, holder, is_lock_free, settings) if others else ""
    sent_ms = monotonic_ms()
    return sent_ms, await members.join(member, instead_of=dead)


async def _dead_holder(
    members: Members, holder: str, is_lock_free: Callable[[Member], bool], settings: MembershipSettings
) -> str:
    """The session that has the name, once it is certainly dead; '' while it lives."""
    first = (await members.read()).get(holder)
    if first is None or is_lock_free(first):
        return holder
    deadline_ms = monotonic_ms() + int(settings.dead_s * 1000) * first.time_scale
    while monotonic_ms() < deadline_ms:
        await asyncio.sleep(settings.read_s)
        now = (await members.read()).get(holder)
        if now is None or is_lock_free(now):
            return holder
        if now.counter != first.counter:
            return ""
    return holder


async def check_no_instance_runs(
    members: Members,
    is_lock_free: Callable[[Member], bool],
    settings: MembershipSettings,
    *,
    may_seed: bool = True,
) -> None:
    """Raises ConflictError when an instance works on the crawl, or a command adds seeds where none may. One that may be
    dead is watched for some beats.
    """
    if working := await running_nodes(members, is_lock_free, settings, may_seed=may_seed):
        raise ConflictError(f"running on this crawl: {', '.join(working)}; stop all instances first")


async def running_nodes(
    members: Members,
    is_lock_free: Callable[[Member], bool],
    settings: MembershipSettings,
    *,
    may_seed: bool = True,
) -> list[str]:
    """Nodes of which an instance works on the crawl, or of commands that add seeds where none may. One that may be dead
    is watched for some beats.
    """
    listed = (await members.read()).values()
    there = [m for m in listed if not (may_seed and m.state == "seeding") and not is_lock_free(m)]
    if not there:
        return []
    await asyncio.sleep(BEATS * settings.beat_s * max(m.time_scale for m in there))
    now = await members.read()
    return sorted(m.node for m in there if m.session in now and now[m.session].counter != m.counter)
