"""The states of a URL: where it is in each, what counts it there, and which scripts move it from one to another.

A URL is a fingerprint in the seen-set of its run, in the partition of its queue. Who meets it first adds it there;
from then on it is in one place, which is its state. Everything that moves it is one script in the engine, so between
two calls it is in one place, and the books agree with the places: that is I3. To be met again moves it only where a
shorter path brings back what was deferred as too deep.

- It is *pending* while somebody will do something for it: it waits in its queue (QUEUED), until a wall time
  (SCHEDULED), until its origin answers (ASIDE), is in the hands of an owner (CLAIMED), or waits after a failed
  attempt (RETRYING).
- It is *ended* when nobody will: it was fetched (COMMITTED), given up (DEAD), not to be fetched (REFUSED), or is kept
  for later (DEFERRED). People, a larger budget or a rebuild may bring it back from there.

The partition's `added` and `done` only grow: `added` counts each URL that comes in, also one that ends in the same
moment, `done` those that ended. So what is pending is their difference, and whoever watches sees that something
happened. A URL that leaves an end becomes pending, and is added once more, or is unknown again: `revived` and
`released` count these.

Budgets of URLs, hosts and depth, and rules, defer single URLs: those are DEFERRED. A stop of a queue is no state, which
would double seven of ten rows, but a column, `stop` in the queue's record: all of its URLs stay where they are and are
not handed out. By `paused` they stay pending. By `blocked` (an operator), `pages` and `bytes` (budgets that are used
up) they count as deferred, so as done, until the queue starts again. A queue's URLs lie in blocks of at most 128; those
of a block in a spill file are QUEUED as well.

An owner is no state either. When a session dies, or releases, its claims stay in `u` and `x`; the next acquire of the
partition (acquire.lua) gives them the deadline 0, and the next `claim` puts them back into their queues. A claim of an
owner that lives but hangs comes back when its deadline is over.

Keys of the partition: `q` and `b` blocks of a queue or row, `u` what is delivered or retried, by token, `x` deadlines
of claims, `r` when retries are due, `a` failed attempts, `at` what is scheduled, `l` commits that are not yet in the
index on disk, `dead` dead letters. A row is a list of URLs beside a queue: the queue's name, `|`, and why they are
there.

`BOOKS` is what a URL adds to while it is in a state: `enter` adds it, `leave` takes it away. The scripts get the table
from `lua()`, and change these numbers by these two (lua/_states.lua) alone, but for the `n` of a queue, which its
blocks keep. A script takes a URL from its place, leaves the state, enters the next one, puts it there, and ends by
`close_call`. The numbers do not depend on the pair of states, so `done` never falls, also where a rebuild forgets a
page or a dead letter is discarded: when 45 scripts kept the books by hand, each of these was an exception.

`MOVES` has the moves that there are; any other is a bug, and the test of the model on a real engine
(tests/frontier/test_frontier_model.py) fails for it. `purge` is no part of `restate`, though it moves URLs as that
does: it works when the engine is out of memory, and a rebuild must not.

A new state needs a row in BOOKS, its moves, and a place in PENDING or ENDED (tests compare all three); then its
scripts, the test of each move (tests/frontier/test_frontier_moves.py), the sums of `crawler audit`, and a run of
`scripts/make-reference` for the picture in the architecture page.
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
    queue: tuple[str, ...] = ()  # of the record of its queue (not of a row beside it)
    seed: str = ""  # of the seed that it descends from, or of its run: done or dead; `added` is counted as it comes in
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
        "q:QUEUE|REASON, b:QUEUE|REASON:ID or a spill file", totals=("deferred:",), begun="deferrals", back="released"
    ),
    State.COMMITTED: Books("l by its fingerprint, then the index on disk", seed="done", back="revived"),
    State.DEAD: Books(
        "dead by its fingerprint", totals=("dead", "dead:"), queue=("dead",), seed="dead", back="revived"
    ),
    State.REFUSED: Books("nowhere", totals=("refused:",), queue=("refused:",), seed="done", run="refused"),
}

# Who moves a URL. `add` puts in links and seeds, `ack` the links of its own partition. Owners alone call claim, ack,
# retry, dead_letter, refuse, defer and return_claims: these have a fence. The others belong to operators
# (change_queues, purge, requeue_dead, discard_dead), to raised budgets (change_queues, admit_hosts), and to what a disk
# or another crawl knows better (restate: a rebuild, a repair, seeds).
MOVES: dict[tuple[State, State], tuple[str, ...]] = {
    (State.UNSEEN, State.QUEUED): ("add", "ack"),
    (State.UNSEEN, State.SCHEDULED): ("add", "ack"),
    (State.UNSEEN, State.DEFERRED): ("add", "ack"),  # by a rule or a budget
    (State.UNSEEN, State.REFUSED): ("add", "ack", "restate"),  # add, ack: of a run, which defers nothing
    (State.UNSEEN, State.COMMITTED): ("restate",),
    (State.QUEUED, State.CLAIMED): ("claim",),
    (State.QUEUED, State.ASIDE): ("return_claims",),  # with a claim of its origin, which is silent
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
    (State.CLAIMED, State.REFUSED): ("refuse", "defer", "restate"),  # restate: its domain is forgotten
    (State.CLAIMED, State.DEFERRED): ("defer",),
    (State.CLAIMED, State.QUEUED): ("return_claims", "claim", "defer"),  # defer: its queue is stopped
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
