"""Entering the member list: a node's name belongs to one living session at a time."""

import asyncio
from collections.abc import Callable

from crawler.errors import ConflictError
from crawler.frontier.members import Member, Members
from crawler.runtime.clock import monotonic_ms
from crawler.settings import MembershipSettings

BEATS = 2.5  # in which a living session's counter moves for sure


async def join(
    members: Members, member: Member, is_lock_free: Callable[[Member], bool], settings: MembershipSettings
) -> tuple[int, int]:
    """Join under the member's node name: when the call was sent (monotonic ms), which counts as the first beat, and
    how often the node has joined since its last steady life.

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
    """The session that has the name, once it is sure to be dead; '' while it lives."""
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
    members: Members, is_lock_free: Callable[[Member], bool], settings: MembershipSettings
) -> None:
    """Raises ConflictError when an instance is at work on the crawl. One that may be dead is watched for some beats."""
    there = [m for m in (await members.read()).values() if m.state != "seeding" and not is_lock_free(m)]
    if not there:
        return
    await asyncio.sleep(BEATS * settings.beat_s * max(m.time_scale for m in there))
    now = await members.read()
    working = sorted(m.node for m in there if m.session in now and now[m.session].counter != m.counter)
    if working:
        raise ConflictError(f"{', '.join(working)} at work on this crawl: stop all instances first")
