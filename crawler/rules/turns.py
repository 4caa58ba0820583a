"""Turns of users by weight: start-time fair queueing. Pure.

The same as lua/_turns.lua. A user is a name, or "" for the crawl itself: a URL belongs to the user of the job that it
was found for. One user may add a million URLs, and another ten, on other domains or on the same one, and want them
within seconds; a queue that hands out its best URL, and a claim that takes what has been due for longest, put the ten
behind the million.

Wherever users compete, whoever has the lowest start tag goes first, and what it gets moves its tag by n / weight
(Goyal, Vin, Cheng 1996). Virtual time is the tag of who was served last. A user that comes is at virtual time at least,
so nobody saves up for later what it did not use. Tags are relative to virtual time, and one that it has passed is not
kept: a user that has had nothing for some turns has no state.

- In a queue (claim.lua), for the next slots of its clock; tags are in the record of the queue. There is one clock and
  one record for each queue: politeness is owed to the site, whoever asks. The URLs of a user are in a row of its own
  (lua/_queue.lua).
- In a partition (claim.lua), for places in the batch; tags are in `turns` of its meta hash. A queue that is visited for
  one user may be at the turn of another: that one gets the slot and is charged for it, and the first goes on with its
  next queue. So a queue alternates by weight whatever its users get elsewhere.
- In an instance, for the next partition that is claimed from (worker/due_users.py), and for a free worker
  (worker/schedule.py). A claim behind which another user waits in the queue is fetched in the turn of that user, or
  the queue would stand still while the claim waits behind its user's other work.

Two users with a backlog differ by one batch at each place, and by one slot for each queue that both have URLs in. A
queue with a higher boost goes before all with a lower one, whoever has URLs in it. What is claimed stays claimed: up to
two seconds of a domain go before the URLs of who comes later. Instances do not balance users among each other: one with
a single domain gets one instance's share, as a share of the instances for each would lie idle.

The user is not in the score, whose 53 bits are in use and can't follow a changed weight. A queue does not change
between ready sets with its next user, because each slot would wait for a turn through the whole backlog of another. In
the engine, a claim of eight URLs of eight domains costs twice as much with two users as with none, and three times as
much with twenty; a crawl without users has the keys, the bytes and the commands that it would have anyway.
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
