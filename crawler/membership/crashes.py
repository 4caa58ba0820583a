"""Records which URLs dead sessions were processing, so that poison URLs are isolated (rules/health.py)."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from crawler.archive.inflight_log import DeadSession, dead_sessions
from crawler.archive.told_log import left_behind
from crawler.frontier.members import Member
from crawler.frontier.owner import Frontier
from crawler.rules.poison import GIVEN_UP_AT

log = logging.getLogger(__name__)


class CrashReporter:
    """Reads in-flight logs and records crashes in the frontier, before the dead session's partitions are taken over."""

    def __init__(
        self,
        frontier: Frontier,
        *,
        sessions: Path,
        is_here: Callable[[Member], bool],
        adopt: Callable[[Iterable[Path]], None] = lambda _: None,
    ) -> None:
        """`adopt`: called with files of what dead sessions had told other partitions."""
        self._frontier = frontier
        self._adopt = adopt
        self._sessions = sessions
        self._is_here = is_here

    async def record_earlier_crashes(self) -> None:
        """Record sessions that died in our own crawl folder before this one started. Raises EngineError."""
        self._adopt(left_behind(self._sessions))
        await self._record(dead_sessions(self._sessions))

    async def record_crash(self, member: Member) -> None:
        """A member is dead. Its log is next to its lock file, if that is on this machine. Raises EngineError."""
        if member.lock and self._is_here(member):
            self._adopt(left_behind(Path(member.lock).parent))
            await self._record(d for d in dead_sessions(Path(member.lock).parent) if d.session == member.session)

    async def _record(self, dead: Iterable[DeadSession]) -> None:
        for one in dead:
            by_partition: dict[int, list[str]] = {}
            for suspect in one.blamed:
                by_partition.setdefault(suspect.partition, []).append(suspect.fingerprint)
            deaths = GIVEN_UP_AT if one.is_certain else 1
            noted = await self._frontier.record_crash(one.session, by_partition, deaths=deaths)
            one.forget()
            if one.damaged:
                log.warning("session.log_damaged", extra={"dead": one.session, "records": one.damaged})
            urls = [suspect.url for suspect in one.blamed]
            if one.stacks:
                log.error("session.stalled", extra={"dead": one.session, "urls": urls, "stacks": one.stacks})
            elif urls:
                log.warning("session.died", extra={"dead": one.session, "urls": urls, "noted": noted})
