"""What every open target can do, and what a row is. Must not know any kind of target."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from crawler.errors import OutputError

Record = dict[str, Any]  # as JSON has it: null, true, numbers, strings, arrays, objects
COLUMNS_MAX = 1000  # of a table; PostgreSQL ends at 1600, SQLite at 2000


class Key(NamedTuple):
    """What makes a record the same record: of all that an output is given, each key counts once."""

    fingerprint: int  # of the URL
    visit: int
    number: int  # among the records of this visit


class Row(NamedTuple):
    """A record and its key."""

    key: Key
    record: Record


class Mark(NamedTuple):
    """How far a file is durably written: its length in bytes, and a digest of its last bytes."""

    length: int
    digest: str


class Wanted(NamedTuple):
    """How many records of one visit a target must have."""

    fingerprint: int
    visit: int
    records: int


class OutputAway(OutputError):
    """The target does not take anything now; it may do so later."""


class TargetChanged(OutputError):
    """Somebody else replaced the target, or wrote to it: what it was said to have may not be there."""


class OutputEnded(Exception):
    """The reader of the target has closed it (a closed pipe)."""


class Sink(Protocol):
    """One open target. Blocks: call it in a thread.

    `write` may keep rows back; `commit` makes all of them last and says where the target ends then (None where only
    the target itself knows). `found`, after a commit, counts the records that the target really has: a file all of
    them, a table those that are wanted (in order; it may have others). `close` leaves what there was at the last
    commit; after an error nothing else may be called. Raises OutputAway where a later try may succeed, OutputError
    where the rows don't fit the target, TargetChanged where somebody else wrote there, ArchiveError where a disk fails.
    """

    def write(self, rows: Sequence[Row]) -> None: ...
    def commit(self) -> Mark | None: ...
    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int: ...
    def close(self) -> None: ...


@runtime_checkable
class TableSink(Sink, Protocol):
    """One of a database. `remove` takes away all rows of visits (fingerprint, visit), and tells how many; it lasts
    from the next commit. `compact`: no byte of rows that were removed stays in the file.
    """

    def remove(self, visits: Sequence[tuple[int, int]]) -> int: ...
    def compact(self) -> None: ...
