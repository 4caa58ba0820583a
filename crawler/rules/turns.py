"""Turns of users by weight: start-time fair queueing (docs/internals/decisions/fair-sharing.md). Pure.

The same as lua/_turns.lua. A user is a name, or "" for the crawl itself.
"""

from collections.abc import Callable, Iterable


class FairTurns:
    """Start tags of users, relative to virtual time; those that it has passed are not kept."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._tags: dict[str, float] = {}

    def next_of(self, users: Iterable[str]) -> str:
        """Whose turn it is among some users; of equals the first."""
        return min(users, key=lambda user: self._tags.get(user, 0.0))

    def advance(self, user: str) -> None:
        """It is this user's turn: virtual time moves to its tag."""
        now = self._tags.get(user)
        if now:
            self._tags = {other: tag - now for other, tag in self._tags.items() if tag > now}

    def charge(self, user: str, n: float) -> None:
        """A user got so much."""
        self._tags[user] = self._tags.get(user, 0.0) + n / self._weight_of(user)

    def copy(self) -> "FairTurns":
        """Turns that can be tried out."""
        turns = FairTurns(self._weight_of)
        turns._tags = dict(self._tags)
        return turns
