"""The states of a URL: where it is in each, what counts it there, and which scripts move it from one to another.

A URL is a fingerprint in the seen-set of its run, in the partition of its queue. Who meets it first adds it there;
from then on it is in one place, which is its state, until it ends. Everything that moves it is one script in the
engine, so between two calls it is in one place, and the books agree with the places: that is I3.

- It is *pending* while somebody will do something for it: it waits in its queue (QUEUED), until a wall time
  (SCHEDULED), until its origin answers (ASIDE), is in the hands of an owner (CLAIMED), or waits after a failed
  attempt (RETRYING).
- It is *ended* when nobody will: it was fetched (COMMITTED), given up (DEAD), not to be fetched (REFUSED), or is kept
  for later (DEFERRED).

The partition's `added` and `done` only grow: `added` counts URLs that became pending, `done` those that ended. So
what is pending is their difference, and whoever watches sees that something happened. A URL that leaves an end is
added once more; `revived` and `released` count these.

A stop (block, pause, a budget) is no state but a column: the queue's `stop` keeps all its URLs where they are. While
it is another one than `paused` they count as deferred. A block of a queue in a spill file is QUEUED elsewhere. An
owner is no state either: a claim that was made under an earlier lease is CLAIMED with the deadline 0, and goes back
to its queue.

`BOOKS` is what a URL adds to while it is in a state. The scripts get it as a table (`lua()`), and change these
numbers by `enter` and `leave` (lua/_states.lua) alone. `MOVES` has the moves that there are; any other is a bug, and
the test of the model on a real engine fails for it.
"""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    UNSEEN = "unseen"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    ASIDE = "aside"
    CLAIMED = "claimed"
    RETRYING = "retrying"
    DEFERRED = "deferred"
    COMMITTED = "committed"
    DEAD = "dead"
    REFUSED = "refused"


PENDING = (State.QUEUED, State.CLAIMED, State.RETRYING, State.SCHEDULED, State.ASIDE)
ENDED = (State.DEFERRED, State.COMMITTED, State.DEAD, State.REFUSED)


class Books(NamedTuple):
    """What one URL adds to. A name that ends with a colon goes on with the reason."""

    place: str  # keys of the partition, see docs/internals/frontier-layout.md
    totals: tuple[str, ...] = ()  # of the partition
    queue: tuple[str, ...] = ()  # of the record of its queue
    seed: str = ""  # of the seed that it descends from, or of its run: added, done or dead
    run: str = ""  # of its run, besides: a field of RunCounts
    begun: str = ""  # of the partition: how often a URL came into this state
    back: str = ""  # of the partition: how often a URL left it


BOOKS = {
    State.QUEUED: Books("q:QUEUE, b:QUEUE:ID or a spill file: member and score", queue=("n",)),
    State.SCHEDULED: Books("at: score, queue and member", totals=("scheduled",), queue=("at",)),
    State.ASIDE: Books("q:QUEUE|!ORIGIN, b:QUEUE|!ORIGIN:ID or a spill file", queue=("aside",)),
    State.CLAIMED: Books("u and x by its token", queue=("out",)),
    State.RETRYING: Books("u and r by its token, a by its fingerprint", queue=("retrying",)),
    State.DEFERRED: Books(
        "q:QUEUE|REASON, b:QUEUE|REASON:ID or a spill file", totals=("deferred:",), begun="parked", back="released"
    ),
    State.COMMITTED: Books("l by its fingerprint, then the index on disk", seed="done", back="revived"),
    State.DEAD: Books(
        "dead by its fingerprint", totals=("dead", "dead:"), queue=("dead",), seed="dead", back="revived"
    ),
    State.REFUSED: Books("nowhere", totals=("refused:",), queue=("refused:",), seed="done", run="refused"),
}

# Who moves a URL. `add` and `ack` are those of a link or a seed; scripts without a fence may be called by anybody.
MOVES: dict[tuple[State, State], tuple[str, ...]] = {
    (State.UNSEEN, State.QUEUED): ("add", "ack"),
    (State.UNSEEN, State.SCHEDULED): ("add", "ack"),
    (State.UNSEEN, State.DEFERRED): ("add", "ack"),  # by a rule or a budget
    (State.UNSEEN, State.REFUSED): ("add", "ack", "restate"),  # of a run, where others are deferred
    (State.UNSEEN, State.COMMITTED): ("restate",),
    (State.QUEUED, State.CLAIMED): ("claim",),
    (State.QUEUED, State.ASIDE): ("return_claims",),  # beside a claim of its origin
    (State.QUEUED, State.REFUSED): ("purge",),
    (State.QUEUED, State.COMMITTED): ("restate",),
    (State.SCHEDULED, State.QUEUED): ("claim",),  # its time has come
    (State.SCHEDULED, State.REFUSED): ("purge",),
    (State.SCHEDULED, State.COMMITTED): ("restate",),
    (State.ASIDE, State.QUEUED): ("claim",),  # as a probe, or because its origin answers
    (State.ASIDE, State.REFUSED): ("purge",),
    (State.ASIDE, State.COMMITTED): ("restate",),
    (State.CLAIMED, State.COMMITTED): ("ack", "restate"),
    (State.CLAIMED, State.RETRYING): ("retry",),
    (State.CLAIMED, State.DEAD): ("dead_letter",),
    (State.CLAIMED, State.REFUSED): ("refuse", "defer"),
    (State.CLAIMED, State.DEFERRED): ("defer",),
    (State.CLAIMED, State.QUEUED): ("return_claims", "claim", "defer"),  # claim: it has expired
    (State.CLAIMED, State.ASIDE): ("return_claims",),
    (State.RETRYING, State.QUEUED): ("claim",),  # it is due
    (State.RETRYING, State.REFUSED): ("purge",),
    (State.RETRYING, State.COMMITTED): ("restate",),
    (State.DEFERRED, State.QUEUED): ("change_queues", "admit_hosts", "add", "ack"),  # add, ack: by a shorter path
    (State.DEFERRED, State.SCHEDULED): ("add", "ack"),
    (State.DEFERRED, State.DEFERRED): ("add", "ack"),  # for another reason
    (State.DEFERRED, State.REFUSED): ("purge",),
    (State.DEAD, State.QUEUED): ("requeue_dead",),
    (State.DEAD, State.SCHEDULED): ("requeue_dead",),
    (State.DEAD, State.REFUSED): ("discard_dead", "requeue_dead"),  # that one: of a run, where its queue is stopped
    (State.COMMITTED, State.UNSEEN): ("restate",),
}


def lua() -> str:
    """The books as a Lua table, by the name of the state."""
    rows = []
    for state, books in BOOKS.items():
        fields = [f"totals = {_list(books.totals)}", f"queue = {_list(books.queue)}"]
        fields += [f"seed = {books.seed.upper()}"] if books.seed else []
        fields += [f"run = RunCounts.{books.run}"] if books.run else []
        fields += [f"{name} = '{value}'" for name, value in (("begun", books.begun), ("back", books.back)) if value]
        fields += ["is_ended = true"] if state in ENDED else []
        rows.append(f"  {state.name} = {{{', '.join(fields)}}},")
    return "local State = {\n" + "\n".join(rows) + "\n}\n"


def _list(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in names) + "}"
