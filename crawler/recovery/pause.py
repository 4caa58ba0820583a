"""All instances of a crawl stand still while a command has its mark on the member list, and sends heartbeats.

The mark is a member that declares itself `pausing`. Whoever sees it claims nothing, ends what is open, writes all that
it owes into the engine and its index, and names the mark in its own heartbeat (`instance/standstill.py`). So does a
command that adds seeds, between two batches (`views/seeds.py`). The mark goes with its command: it leaves, or is as
silent as a dead member, and everybody goes on.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec

from crawler.errors import ConflictError, EngineError
from crawler.frontier.members import Member, Members
from crawler.membership.heartbeat import Heartbeat, SessionLiveness
from crawler.membership.living import Living
from crawler.rules.membership import DeclaredState
from crawler.rules.progress import SILENT, Meter
from crawler.runtime.tasks import first_error
from crawler.settings import MembershipSettings

PATIENCE_S = 60.0  # until all instances stand still
LOOK_S = 0.2
NAMED_MAX = 5


class Pause:
    """One command's mark: `held` keeps it. `member`: how the command describes itself."""

    def __init__(
        self, members: Members, member: Member, settings: MembershipSettings, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._members = members
        self._member = msgspec.structs.replace(member, state=DeclaredState.PAUSING.value)
        self._settings = settings
        self._patience_s = patience_s
        self._living = Living(members, settings)

    @contextlib.asynccontextmanager
    async def held(self, meter: Meter = SILENT) -> AsyncIterator[None]:
        """In this context nothing runs on the crawl. Raises ConflictError when somebody does not stand still in time,
        and EngineError.
        """
        heartbeat = Heartbeat(
            self._members, self._member, self._settings, liveness=SessionLiveness(self._settings)
        )  # fmt: skip
        await self._members.join(self._member)
        try:
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(heartbeat.run(), name="heartbeat")
                try:
                    await self.settle(meter)
                    yield
                finally:
                    beating.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            with contextlib.suppress(EngineError):
                await self._members.leave(self._member)

    async def settle(self, meter: Meter = SILENT) -> None:
        """Wait until all others stand still, or are dead. Raises as `held`."""
        deadline_s, told = time.monotonic() + self._patience_s, ""
        while moving := await self._moving():
            more = f" and {len(moving) - NAMED_MAX} more" if len(moving) > NAMED_MAX else ""
            named = f"{', '.join(moving[:NAMED_MAX])}{more}"
            if time.monotonic() > deadline_s:
                raise ConflictError(
                    f"after {self._patience_s:g} s there was still work in {named}: nothing was written, and the crawl "
                    "goes on"
                )
            if named != told:
                told = named
                meter.begin(f"waiting until {named} {'stands' if len(moving) == 1 else 'stand'} still")
            await asyncio.sleep(LOOK_S)

    async def _moving(self) -> list[str]:
        """The members that do not stand still for this mark."""
        return sorted(
            member.node
            for member in (await self._living.read()).values()
            if member.state != DeclaredState.PAUSING.value and self._member.session not in member.still_for
        )
