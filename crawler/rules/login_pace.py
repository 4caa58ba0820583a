"""How often a site is logged in to. Each login may count against the account, and some sites end each session."""

import msgspec
from msgspec.structs import replace

from crawler.rules.urls import split

LOGINS_AN_HOUR = 20  # of a site, without the first one of each session that a request named
HOUR_MS = 3_600_000
FULL_HOURS_MAX = 3  # in which that was reached, one after another
ENDS_MAX = 20  # paths that are kept


class LoginRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The logins of a site, as the engine keeps them. Times are of the clock of its partition, ms."""

    logins: int = 0  # forms that were sent, ever
    recent_ms: tuple[int, ...] = ()  # when, of the last hour
    full_hours: int = 0  # in a row, in which no more were allowed
    full_ms: int = 0  # when the last of these began
    ends: tuple[str, ...] = ()  # paths that end sessions, as `paths_of` has them

    def counted(self, now_ms: int | None) -> "LoginRecord":
        """With one more; None: it does not count towards the limit."""
        if now_ms is None:
            return replace(self, logins=self.logins + 1)
        recent = (*self._recent(now_ms), now_ms)
        return replace(self, logins=self.logins + 1, recent_ms=recent[-LOGINS_AN_HOUR:])

    def wait_ms(self, now_ms: int) -> int:
        """How long the next login has to wait."""
        recent = self._recent(now_ms)
        return recent[-LOGINS_AN_HOUR] + HOUR_MS - now_ms if len(recent) >= LOGINS_AN_HOUR else 0

    def waited(self, now_ms: int) -> "LoginRecord":
        """Noted that a login has to wait now: an hour is full, or goes on to be."""
        age_ms = now_ms - self.full_ms
        if self.full_hours and 0 <= age_ms < HOUR_MS:
            return self
        is_next = self.full_hours and 0 <= age_ms < 2 * HOUR_MS
        return replace(self, full_hours=self.full_hours + 1 if is_next else 1, full_ms=now_ms)

    @property
    def is_hopeless(self) -> bool:
        return self.full_hours > FULL_HOURS_MAX

    def _recent(self, now_ms: int) -> list[int]:
        return [at_ms for at_ms in self.recent_ms if now_ms - HOUR_MS < at_ms <= now_ms]


def paths_of(url: str) -> list[str]:
    """What URLs may have in common that end sessions: path with first parameter, path, folder. Of a canonical URL; the
    folder of a host's first level is not one.
    """
    parts = split(url)
    path, mark, query = parts.target.partition("?")
    whole = f"{parts.host}{path}"
    found = [f"{whole}?{query.partition('&')[0]}"] if mark else []
    folder = whole.rpartition("/")[0]
    return [*found, whole, *([f"{folder}/*"] if "/" in folder else [])]
