"""Notes what dead sessions of this machine were at, so that what ends processes can be isolated (rules/killers.py)."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from crawler.archive.black_box import Fallen, fallen_sessions
from crawler.frontier.frontier import Frontier
from crawler.frontier.members import Member

log = logging.getLogger(__name__)


class Mourner:
    """Reads black boxes and tells the frontier, before the dead session's partitions are taken over."""

    def __init__(self, frontier: Frontier, *, sessions: Path, is_here: Callable[[Member], bool]) -> None:
        self._frontier = frontier
        self._sessions = sessions
        self._is_here = is_here

    async def look_back(self) -> None:
        """Sessions that died in our own crawl folder before we came. Raises EngineError."""
        await self._note(fallen_sessions(self._sessions))

    async def mourn(self, member: Member) -> None:
        """A member is dead. Its black box lies beside its lock file, if that is on this machine. Raises EngineError."""
        if member.lock and self._is_here(member):
            await self._note(f for f in fallen_sessions(Path(member.lock).parent) if f.session == member.session)

    async def _note(self, fallen: Iterable[Fallen]) -> None:
        for one in fallen:
            by_partition: dict[int, list[str]] = {}
            for partition, fingerprint in one.started:
                by_partition.setdefault(partition, []).append(fingerprint)
            noted = await self._frontier.died(one.session, by_partition)
            one.forget()
            if one.started:
                log.warning(
                    "session.fell", extra={"fallen": one.session, "under_way": len(one.started), "noted": noted}
                )
