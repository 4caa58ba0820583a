"""What the scripts are called with: the fields of their arguments and of packed lists, by name, in their order.

A script names a value as `ARGV[AckArgs.run]` or `one[AckItem.token]`. When the library is built, `AckItem.token`
becomes the position of the field, from 1, and `AckItem.size` the number of fields: names cost nothing at run time.
Times in ms; the scripts' heads tell what the values mean.

Lists travel as msgpack, which is shorter and quicker to decode than JSON, made of numbers and text alone: the engine's
cmsgpack is older than the format's binary type, so bytes (a robots.txt) are an argument of their own. What is stored is
JSON text, which a script passes on as it is and a person can read; only pending URLs and the records of queues have
other forms, for their size. Nothing is ever pickled: what others can write to is data, not code.
"""

import re
from typing import Any, NamedTuple

from crawler.rules.job_runs import RunCounts


class FenceArgs(NamedTuple):
    """The first arguments of every script that only the owner of a partition may call."""

    session: str
    epoch: int
    now_ms: int


class DrainArgs(NamedTuple):
    """Then the keys of commit entries."""

    session: str
    epoch: int
    now_ms: int
    activity: bytes  # packed list of ActivityHead and ActivityItem, one after another; empty for none


class ActivityHead(NamedTuple):
    most: int  # queues whose activity is kept
    seconds: float  # that the counts are of
    slot_s: int


class ActivityItem(NamedTuple):
    """What happened in a queue in one slot."""

    slot: int
    queue: str
    pages: int
    bytes: int
    client_errors: int
    server_errors: int
    failures: int
    in_flight: int = 0  # requests that are open when it is sent
    error: str = ""  # the reason of the last failure


class AddBudgetArgs(NamedTuple):
    """How much may be added; 0: no limit."""

    urls: int
    hosts: int
    requisites: int


class AddArgs(NamedTuple):
    run: str
    default_delay_ms: int
    urls: bytes  # packed list of UrlItem, one after another
    hints: str
    session: str
    is_limited: int
    budget: bytes  # packed AddBudgetArgs
    hash_key: str
    user: str = ""


class UrlItem(NamedTuple):
    """A URL among others in one flat list; `frontier/codec.item_of` makes it."""

    fingerprint: str
    queue: str
    domain: str
    score: str
    member: str
    origin: str
    depth: int
    reason: str  # why it is deferred; "at:MS": it is scheduled for that wall time; "requisite": it is one
    seed: int | str  # number of a seed, or id of a run


class ClaimArgs(NamedTuple):
    """Packed, after FenceArgs."""

    request_id: str
    engine_run: str
    urls_max: int
    per_queue_max: int
    ahead_ms: int
    visibility_ms: int
    default_delay_ms: int
    out_max: int
    pages_max: int
    bytes_max: int
    lead_ms: int
    at_ms: int  # wall time
    weights: list[str | float]  # flat: user, weight
    probe_ms: int
    own_max: int


class AckArgs(NamedTuple):
    """Then an AckItem for each URL."""

    session: str
    epoch: int
    now_ms: int
    run: str
    default_delay_ms: int
    is_limited: int
    budget: bytes  # packed AddBudgetArgs
    user: str = ""  # of the out-links


class AckItem(NamedTuple):
    """One commit, packed; behind its fields `counts_size` values of counters, then a UrlItem for each out-link."""

    fingerprint: str
    token: str
    log_key: str
    queue: str
    next_fetch_ms: int
    delay_ms: int
    status_class: str
    bytes: int
    fetch_ms: int
    entry: str
    seed: int | str
    counts_size: int


class RetryArgs(NamedTuple):
    """Packed, after FenceArgs."""

    fingerprint: str
    token: str
    next_fetch_ms: int
    delay_ms: int
    due_ms: int
    kind: str
    attempt: str
    seed: int | str
    is_unanswered: int


class DeadLetterArgs(NamedTuple):
    """Packed, after FenceArgs."""

    fingerprint: str
    token: str
    next_fetch_ms: int
    delay_ms: int
    letter: str
    kind: str
    attempt: str  # "": none was made
    seed: int | str
    is_unanswered: int


class RefuseArgs(NamedTuple):
    """Packed, after FenceArgs."""

    fingerprint: str
    token: str
    reason: str
    seed: int | str
    url: str


class DeferArgs(NamedTuple):
    """Packed, after FenceArgs."""

    fingerprint: str
    token: str
    reason: str


class ReturnItem(NamedTuple):
    """A packed list of these, after FenceArgs."""

    token: str
    next_fetch_ms: int
    origin: str  # that does not answer: its URL is set aside; "": none
    due_ms: int
    since_ms: int


class RestateArgs(NamedTuple):
    urls: bytes  # packed list of RestateItem
    hash_key: str


class RestateItem(NamedTuple):
    """A URL, and where it belongs; what a page counts is for COMMITTED and what leaves it."""

    fingerprint: str
    row: str  # its queue, or the row of a user or of an origin
    domain: str
    to: str  # name of a State
    place: str = ""  # "": not pending; "*": claimed or retrying; "@": scheduled; ".": head of the row; a block
    name: str = ""  # there: its token or member
    reason: str = ""
    seed: int | str = 0  # number of a seed, or id of a run
    status_class: int = 0
    bytes: int = 0
    fetch_ms: int = 0
    items: int = 0
    lost: dict[str, int] = {}  # noqa: RUF012 - what is missing of the page, by total
    url: str = ""  # needed then
    told: dict[str, int] = {}  # noqa: RUF012 - what else its line tells of it, by total


class AcquireArgs(NamedTuple):
    session: str
    node: str
    session_seen: str
    epoch_seen: int
    floor: int  # of the new epoch
    engine_run: str
    hash_key: str


class SpillArgs(NamedTuple):
    """Packed, after FenceArgs."""

    row: str
    block: str
    file: str
    offset: int
    length: int
    urls: list[str]  # as written: member and score, one after another


class UnspillArgs(NamedTuple):
    row: str
    stub: str
    default_delay_ms: int
    urls: bytes  # packed list: member and score, one after another


class OrderArgs(NamedTuple):
    default_delay_ms: int
    hints: str
    session: str
    orders: bytes  # packed list of QueueOrder


class QueueOrder(NamedTuple):
    queue: str
    what: str
    reason: str
    n: int
    due: int


class AdmitArgs(NamedTuple):
    default_delay_ms: int
    hints: str
    session: str
    queue: str
    domain: str
    hosts_max: int
    urls: bytes  # packed list of HostUrl


class HostUrl(NamedTuple):
    block: str  # of the row; "": its head
    member: str
    host: str


class PurgeArgs(NamedTuple):
    reason: str
    queue: str
    row: str
    urls: bytes  # packed list of PurgeItem


class PurgeItem(NamedTuple):
    fingerprint: str
    name: str  # member of the first block or of `at`, or token of a retry
    seed: int | str
    block: str | None = None  # if it is not the first


class ForgetQueueArgs(NamedTuple):
    queue: str


class DiscardArgs(NamedTuple):
    reason: str
    letters: bytes  # packed list of LetterItem


class LetterItem(NamedTuple):
    fingerprint: str
    queue: str
    seed: int | str


class CountItemsArgs(NamedTuple):
    items: bytes  # packed list of CountItem
    change: str


class CountItem(NamedTuple):
    number: int
    queue: str
    run: str
    n: int  # by how much


class BorrowArgs(NamedTuple):
    queue: str
    now_ms: int
    epoch: int
    default_delay_ms: int
    borrower: str
    mark: str
    seen_ms: int


class ReturnSlotArgs(NamedTuple):
    queue: str
    borrower: str


class TouchArgs(NamedTuple):
    run: str
    partitions: bytes  # packed list
    roots: bytes  # packed list


class CrashArgs(NamedTuple):
    """Then fingerprints."""

    session: str
    deaths: int


class LocateArgs(NamedTuple):
    run: str
    fingerprint: str
    visit: int
    queue: str


class UrlStatesArgs(NamedTuple):
    """Then fingerprints."""

    run: str
    visit: int


class ReadArgs(NamedTuple):
    """Then names."""

    kind: str


class RunArgs(NamedTuple):
    """Then fingerprints, if there are any."""

    run: str


class SequenceArgs(NamedTuple):
    number: int


class NamesArgs(NamedTuple):
    after: bytes | str
    most: int


class JoinArgs(NamedTuple):
    session: str
    node: str
    instead_of: str
    blob: bytes


class LeaveArgs(NamedTuple):
    session: str
    node: str
    blob: bytes | str


class HeartbeatArgs(NamedTuple):
    session: str
    blob: bytes


class LogArgs(NamedTuple):
    entry: bytes
    looked_at: int


class ReplaceArgs(NamedTuple):
    seen: bytes
    new: bytes


class BookArgs(NamedTuple):
    session: str
    epoch: int
    now_ms: int
    queue: str
    next_fetch_ms: int
    delay_ms: int
    origin: str
    robots: bytes


class JobChange(NamedTuple):
    """Packed, after FenceArgs."""

    job: str
    seen: str  # the nonce of the definition that was read; "": there was none
    nonce: str
    definition: str  # JSON; "" removes the job
    due_ms: int  # wall clock; -1: nothing is due by time alone
    revision: int  # its newest; a new job begins above those of all jobs that were removed
    put: list[str | float]  # place and row of the history, in turn
    starts: list[str]  # id and record of runs, in turn
    ends: list[str]
    failed: list[str | float]  # the same of runs that used up their attempts
    settled: list[float]  # places of those that leave this list
    revisions: list[str | int]  # number and definition, in turn
    seed_keys: list[str]
    rows_max: int  # of the history
    failed_max: int


SCHEMAS: dict[str, Any] = {
    schema.__name__: schema
    for schema in (
        FenceArgs, DrainArgs, ActivityHead, ActivityItem, AddBudgetArgs, AddArgs, UrlItem, ClaimArgs, AckArgs, AckItem,
        RetryArgs, DeadLetterArgs, RefuseArgs, DeferArgs, ReturnItem, RestateArgs, RestateItem, BookArgs, JobChange,
        RunCounts, AcquireArgs, SpillArgs, UnspillArgs, OrderArgs, QueueOrder, AdmitArgs, HostUrl, PurgeArgs,
        PurgeItem, ForgetQueueArgs, DiscardArgs, LetterItem, CountItemsArgs, CountItem, BorrowArgs, ReturnSlotArgs,
        TouchArgs, CrashArgs, LocateArgs, UrlStatesArgs, ReadArgs, RunArgs, SequenceArgs, NamesArgs, JoinArgs,
        LeaveArgs, HeartbeatArgs, LogArgs, ReplaceArgs,
    )
}  # fmt: skip
_POSITIONS = {
    f"{name}.{field}": str(at)
    for name, schema in SCHEMAS.items()
    for field, at in [*((one, i) for i, one in enumerate(schema._fields, 1)), ("size", len(schema._fields))]
}
_NAMED = re.compile(r"([A-Z][a-z]\w+)\.(\w+)")  # a pattern of the schemas' names takes four times as long


def with_positions(source: str) -> str:
    """Lua with the positions of the fields that it names. Raises ValueError for a field that there is not."""

    def position(found: re.Match[str]) -> str:
        at = _POSITIONS.get(found[0])
        if at is None and found[1] in SCHEMAS:
            raise ValueError(f"{found[1]} has no field {found[2]}: {', '.join(SCHEMAS[found[1]]._fields)}")
        return at or found[0]

    return _NAMED.sub(position, source)
