"""Jobs: what one is, and what the engine keeps of it and of each of its nominal times. Pure.

A nominal time is one that the schedule names. Each is decided once, in order, and gets a row in the history of its job:
a run was started, or why not. Successive misses of one kind share a row. `done_to` is the last nominal time that was
decided: nothing at or before it is ever decided again, whatever happens to clocks, schedules or instances.

Each change of a job's definition is a revision. A nominal time belongs to the revision in force at that time, so an
edit neither repeats the past nor forgets it.
"""

import enum
import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.rules.schedules import AT_CHARS_MAX, Schedule, as_iso, interval_of, parse_duration, schedule_of
from crawler.rules.urls import partition_of
from crawler.settings.schema import COUNT_MAX, PRIORITY_MAX, JobSettings

NAME_MAX = 64
USER_SIGNS = "-_.@"  # an e-mail address is a name of a user, too
_SIGNS = "-_."
HOST_CHARS = 40  # of a host that is the beginning of a name
NAMES_TRIED = 100


def check_user(name: str) -> str:
    """The name of a user, as it came. Raises UsageError."""
    return _checked(name, "name of a user", USER_SIGNS)


def check_job(name: str) -> str:
    """The name of a job, as it came. Raises UsageError."""
    return _checked(name, "name of a job", _SIGNS)


def names_for_job(host: str, when: str) -> list[str]:
    """Names for a job that was given none, in the order in which they are tried: "docs.example-PT3H", then with -2."""
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in _SIGNS) else "-" for sign in host)
    base = f"{plain[:HOST_CHARS].strip(_SIGNS) or 'job'}-{when}"
    return [base, *(f"{base}-{n}" for n in range(2, NAMES_TRIED + 1))]


def _checked(name: str, what: str, signs: str) -> str:
    others = name.translate({ord(sign): None for sign in signs})
    if not (name.isascii() and others.isalnum() and len(name) <= NAME_MAX and name[0].isalnum()):
        listed = ", ".join(repr(sign) for sign in signs[:-1])
        raise UsageError(
            f"{name[:80]!r} is not a valid {what}: use up to {NAME_MAX} letters, digits, {listed} and {signs[-1]!r}, "
            "beginning with a letter or digit"
        )
    return name


# Shares of users: their weights in what a crawl can fetch, and who has to give way where room is short. Pure.
#
# A job belongs to a user, and so do the URLs of its runs. URLs of no job belong to the crawl itself, CRAWL.

CRAWL = ""
WEIGHT_MIN, WEIGHT_MAX = 0.01, 1000.0


def check_weight(weight: float) -> float:
    """The weight of a user among others, as it came; 1 is that of all who have no other. Raises UsageError."""
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:  # false for NaN, too
        raise UsageError(f"weight {weight:g}: expected a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}")
    return weight


def beyond_shares(owners: Sequence[Hashable], kept: int) -> list[int]:
    """The places of what has to go from a list, oldest first, so that at most `kept` stay.

    Whoever has most gives up their oldest, so nobody loses anything to somebody who has more (max-min fairness).
    """
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, owner in enumerate(owners):
        places[owner].append(place)
    gone, left, others = [], kept, len(places)
    for owner, count in sorted(Counter(owners).items(), key=lambda one: one[1]):
        stay = min(count, left // others)
        gone += places[owner][: count - stay]
        left, others = left - stay, others - 1
    return sorted(gone)


# Runs of jobs: their ids, what they are to fetch, and where the engine keeps them. Pure.
#
# A job is a crawl that runs at a time, or again and again. Each run has a seen-set and counters of its own, and shares
# the queues, their politeness and robots.txt with everything else in the crawl.
#
# The id of a run is `JOB.REVISION.NOMINAL`: which job, which revision of it, and the nominal time that it was triggered
# for, all of them in base 36, the time in seconds of the wall clock. So two instances that trigger the same nominal
# time name the same run, also after the engine lost its last second. Behind the time of a manual run is `-m`, and
# behind a run that was repeated `.ATTEMPT`, from 2 on. An id has no character that ends a stamp (frontier/codec.py). It
# never returns: a job that is removed and added again begins with a higher revision.

JOB_DIGITS = 10  # of a job's id, a hash of its user and name
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MANUAL = "-m"
DEPTH_MAX = 255  # links from a seed
URLS = "urls"  # of a run that adds no more links, and fetches what it has
ENDED = "ended"  # of a run that people ended: nothing more is fetched
ID_MAX = 64  # characters; they have some 25


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a run fetches. Where a field has its default, the crawl's settings decide. Budgets are not for runs."""

    scope: str = ""  # domain, host, prefix or any; relative to the run's own seeds
    depth: int = -1  # links that lead deeper are refused; -1: as far as the crawl
    pages: int = 0  # with this many answers, nothing more is fetched; 0: no limit
    bytes: int = 0  # the same of their bodies
    urls: int = 0  # with this many, no more links are added
    priority: float = 0.0  # added to the order of all its URLs
    refetch: Literal["changed", "all"] = "changed"  # only what has changed since an earlier run, if its site can tell


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An active run, as the partition of its job stores it. `nominal` and `started_at`: wall clock, s."""

    run: str
    user: str
    name: str  # of the job
    nominal: int
    started_at: float
    spec: RunSpec
    roots: tuple[str, ...] = ()  # of its scope: those of its seeds
    stopped: str = ""  # which limit was reached: "pages" or "bytes", nothing more is fetched; URLS, ENDED; "": none

    @property
    def is_limited(self) -> bool:
        """May one of its limits still be reached?"""
        spec = self.spec
        return bool(spec.pages or spec.bytes or (spec.urls and not self.stopped)) and self.stopped in ("", URLS)


class RunCounts(NamedTuple):
    """What became of the URLs of a run, in one partition or in all. The engine stores them in this order."""

    added: int = 0
    done: int = 0  # committed, or refused
    dead: int = 0
    deferred: int = 0  # in queues that are stopped, but not paused: they count as ended
    refused: int = 0
    s1: int = 0  # pages by class of their status
    s2: int = 0
    s3: int = 0
    s4: int = 0
    s5: int = 0
    bytes: int = 0
    retries: int = 0
    items: int = 0
    unchanged: int = 0  # pages that were not sent again, because they are as an earlier run archived them

    @property
    def pages(self) -> int:
        return self.s1 + self.s2 + self.s3 + self.s4 + self.s5

    @property
    def pending(self) -> int:
        return self.added - self.done - self.dead - self.deferred


def with_limits(record: RunRecord, jobs: JobSettings) -> RunRecord:
    """The record with the limits of the settings where its job has none."""
    spec = record.spec
    limits = {"pages": spec.pages or jobs.pages, "bytes": spec.bytes or jobs.bytes, URLS: spec.urls or jobs.urls}
    return replace(record, spec=replace(spec, **limits))


def reached(spec: RunSpec, counts: RunCounts) -> str:
    """The limit that a run with these counts has reached, "" for none."""
    used = {"pages": counts.pages, "bytes": counts.bytes, URLS: counts.added}
    return next((name for name, n in used.items() if 0 < getattr(spec, name) <= n), "")


def total_of(counts: Iterable[RunCounts]) -> RunCounts:
    """Their sum."""
    return RunCounts(*map(sum, zip(RunCounts(), *counts, strict=True)))


def run_id(job: str, revision: int, nominal: int, *, attempt: int = 1, is_manual: bool = False) -> str:
    """The id of a run (see above)."""
    name = f"{job}.{base36(revision)}.{base36(nominal)}{MANUAL if is_manual else ''}"
    return name if attempt == 1 else f"{name}.{base36(attempt)}"


def job_of(run: str) -> str:
    """The id of the job that a run belongs to."""
    return run.partition(".")[0]


class RunName(NamedTuple):
    """What the id of a run says. `nominal`: wall clock, s; of a manual run, when somebody wanted it."""

    job: str
    revision: int
    nominal: int
    is_manual: bool
    attempt: int


def name_of(run: str) -> RunName | None:
    """The parts of a run's id; None when it is not one."""
    parts = run.split(".")
    if len(run) > ID_MAX or not run.isascii() or len(parts) not in (3, 4):
        return None
    try:
        nominal = int(parts[2].removesuffix(MANUAL), 36)
        attempt = int(parts[3], 36) if parts[3:] else 1
        return RunName(parts[0], int(parts[1], 36), nominal, parts[2].endswith(MANUAL), attempt)
    except ValueError:
        return None


def home_of(job: str, partitions: int) -> int:
    """The partition in which a job and the records of its runs are, by the job's or a run's id."""
    return partition_of(job_of(job), partitions)


def base36(number: int) -> str:
    """A number of at least 0."""
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"


SEEDS_INLINE_MAX, SEEDS_INLINE_BYTES = 32, 4096  # with more, the engine keeps them beside the job, in blocks
SEEDS_A_BLOCK = 1_000
RETRIES_MAX = 100
FAILED_MAX = 100  # runs of a job that used up their attempts, and are kept for people to see
CATCHUP_WINDOW_S = 86_400.0
OPEN = -1  # the end of a pause that goes on


class State(enum.StrEnum):
    """What became of a nominal time."""

    STARTED = "started"
    QUEUED = "queued"  # it starts when the run before it has ended
    SKIPPED_OVERLAP = "skipped_overlap"  # the run before it had not ended
    SKIPPED_LIMIT = "skipped_limit"  # as many runs were active as may be
    MISSED_WINDOW = "missed_window"  # decided too late: no instance ran, or it caught up with later ones only
    PAUSED = "paused"
    FAILED_TO_START = "failed_to_start"  # no valid seed, a sitemap that can't be read
    UNKNOWN = "unknown"  # the engine lost it, and the archive has no page of it


class Outcome(enum.StrEnum):
    """How far the run of a row is; "" where there is none."""

    NONE = ""
    RUNNING = "running"
    RETRYING = "retrying"  # it failed, and is repeated
    FINISHED = "finished"
    LIMITED = "limited"  # finished, because it has as much as it may
    STOPPED = "stopped"  # people ended it; what it has counts
    FAILED = "failed"
    UNKNOWN = "unknown"  # the engine lost it; the figures are those of the archive


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as people define it. Seeds are canonical.

    `seeds_kept`: how many the engine keeps beside the job, and `seeds_key` under which name.
    """

    schedule: Schedule
    seeds: tuple[str, ...] = ()
    seeds_kept: int = 0
    seeds_key: str = ""
    sitemap: str = ""
    run: RunSpec = RunSpec()
    retries: int = 0
    retry_delay_s: float | tuple[float, ...] = 60.0  # before each repeat: the first, the second, ...; the last stays
    overlap: Literal["skip", "queue", "allow"] = "skip"
    catchup: Literal["none", "latest", "all"] = "none"
    catchup_window_s: float = CATCHUP_WINDOW_S


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, in force for nominal times after `since` (wall clock, s)."""

    number: int
    since: int
    spec: JobSpec


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A nominal time and what became of it, or a range of them (`to`, `count`) that were missed for one reason.

    `nominal`, `to`: wall clock, s; the other times too, 0 where it has not happened. A manual run has the time when
    somebody wanted it. Times and figures are those of the last attempt; `pages` are answers of any status. The state of
    a run follows from its times.
    """

    nominal: int
    to: int
    count: int
    state: State
    revision: int
    is_manual: bool = False
    run: str = ""
    attempts: int = 0
    picked_at: float = 0.0  # an owner decided; 0 of a run that a rebuild found in the archive
    started_at: float = 0.0  # its first seeds are added
    completed_at: float = 0.0
    failed_at: float = 0.0
    retry_at: float = 0.0  # the next attempt; 0: there is none
    limit: str = ""  # which one it reached; ENDED: none, people ended it
    pages: int = 0
    errors: int = 0
    bytes: int = 0
    reason: str = ""
    unchanged: int = 0

    @property
    def ended_at(self) -> float:
        return self.completed_at or self.failed_at

    @property
    def outcome(self) -> Outcome:
        """How far its run is."""
        if not self.run:
            return Outcome.NONE
        if self.failed_at:
            return Outcome.RETRYING if self.retry_at else Outcome.FAILED
        if not self.completed_at:
            return Outcome.RUNNING
        if not self.picked_at:
            return Outcome.UNKNOWN
        if self.limit == ENDED:
            return Outcome.STOPPED
        return Outcome.LIMITED if self.limit else Outcome.FINISHED

    @property
    def place(self) -> float:
        """Its place in the history, which no other row has: a manual run is behind the nominal time of its second."""
        return self.nominal + 0.5 if self.is_manual else float(self.nominal)


class Repeat(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A run that failed and is repeated at a time (wall clock, s)."""

    row: Row
    at: float


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as its partition keeps it."""

    id: str
    user: str
    name: str
    created_at: float
    revisions: tuple[Revision, ...]  # oldest first: those that are in force, or that a row below belongs to
    done_to: int
    pauses: tuple[
        tuple[int, int], ...
    ] = ()  # nominal times after the first and up to the second number are passed over
    newest: Row | None = None  # the newest row, if it is a gap
    active: tuple[Row, ...] = ()  # runs that have not ended
    queued: tuple[Row, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    requested: tuple[int, ...] = ()  # manual runs that have not started
    requested_last: int = 0

    @property
    def spec(self) -> JobSpec:
        return self.revisions[-1].spec

    @property
    def revision(self) -> int:
        return self.revisions[-1].number

    @property
    def is_paused(self) -> bool:
        return bool(self.pauses) and self.pauses[-1][1] == OPEN

    def spec_of(self, revision: int) -> JobSpec:
        """The definition that a row belongs to."""
        return next(r.spec for r in self.revisions if r.number == revision)


def retry_delays(spec: JobSpec) -> tuple[float, ...]:
    """Before the first repeat, the second, and so on; the last holds for all further ones."""
    return spec.retry_delay_s if isinstance(spec.retry_delay_s, tuple) else (spec.retry_delay_s,)


def seed_blocks(urls: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Seeds as they are kept beside a job."""
    rest = iter(urls)
    while block := tuple(itertools.islice(rest, SEEDS_A_BLOCK)):
        yield block


def check_spec(spec: JobSpec, *, has_seeds: bool) -> None:
    """Do the parts of a definition fit together? `has_seeds`: it is to get some. Raises UsageError."""
    if not (has_seeds or spec.seeds or spec.seeds_kept or spec.sitemap):
        raise UsageError("a job needs seeds, a sitemap, or both")
    if not 0 <= spec.retries <= RETRIES_MAX:
        raise UsageError(f"the number of retries must be from 0 to {RETRIES_MAX}")
    delays = retry_delays(spec)
    if not (0 < len(delays) <= RETRIES_MAX and min(delays) >= 0):
        raise UsageError(f"give 1 to {RETRIES_MAX} delays before retries, none of them negative")
    if spec.catchup_window_s <= 0:
        raise UsageError("the catch-up window must be more than 0")
    for name in ("pages", "bytes", "urls"):
        if not 0 <= getattr(spec.run, name) <= COUNT_MAX:
            raise UsageError(f"the limit of {name} must be from 0 to {COUNT_MAX:,}")
    if not -1 <= spec.run.depth <= DEPTH_MAX:
        raise UsageError(f"the depth must be from 0 to {DEPTH_MAX}")
    if not -PRIORITY_MAX <= spec.run.priority <= PRIORITY_MAX:  # also what is not a number
        raise UsageError(f"the priority must be from {-PRIORITY_MAX:,} to {PRIORITY_MAX:,}")


# A job as people and clients write it: what is given replaces what there was, and the rest stays. Pure.
#
# The command line and the body of a request are this one record. Names are in camelCase outside. UNSET is not given;
# None is as the crawl, or none.


URL_CHARS_MAX = 8_192
TEXT_MAX = 200  # of a cron expression, or the name of a time zone

Duration = Annotated[str, Meta(min_length=1, max_length=64, examples=["PT3H", "90", "10m"])]
Url = Annotated[str, Meta(max_length=URL_CHARS_MAX)]
Text = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Time = Annotated[str, Meta(min_length=1, max_length=AT_CHARS_MAX)]
Limit = Annotated[int, Meta(ge=1, le=COUNT_MAX)]


class SchedulePatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """When: at most one of executionInterval, cron and at."""

    execution_interval: (
        Annotated[Duration, Meta(description="How often: each so many whole seconds, from 1 on")] | UnsetType
    ) = UNSET
    cron: Annotated[Text, Meta(description='Five fields, like "0 */6 * * *", in the time zone')] | UnsetType = UNSET
    at: Annotated[Time, Meta(description="Once: 2027-01-31T12:00Z; without an offset in the time zone")] | UnsetType = (
        UNSET
    )
    is_recurring: (
        Annotated[
            bool,
            Meta(
                description="true: again and again, by executionInterval or cron. false: once, at `at`, or as long "
                "from now as executionInterval. It follows from these when it is left out, and must fit them."
            ),
        ]
        | UnsetType
    ) = UNSET
    timezone: Annotated[Text, Meta(description="Like Europe/Paris; UTC at first")] | UnsetType = UNSET
    jitter: Annotated[Duration, Meta(description="It is triggered up to this much later")] | UnsetType = UNSET

    def schedule(self, earlier: Schedule | None, now_s: int) -> Schedule:
        """A schedule of what is given, and otherwise of the earlier one. Raises UsageError.

        An interval that is as it was keeps its times.
        """
        every, cron, at = self.execution_interval or "", self.cron or "", self.at or ""
        given = bool(every) + bool(cron) + bool(at)
        if given > 1 or not (given or earlier):
            raise UsageError('give one of "executionInterval", "cron" and "at"')
        timezone = self.timezone or (earlier.timezone if earlier else "UTC")
        jitter_s = _seconds("jitter", self.jitter, earlier.jitter_s if earlier else 0.0)
        if every and self.is_recurring is False:
            every, at = "", as_iso(now_s + interval_of(every))
        if earlier and not given and (timezone, jitter_s) == (earlier.timezone, earlier.jitter_s):
            found = earlier
        else:
            if earlier and not given:
                every, cron = f"{earlier.every_s}" if earlier.every_s else "", earlier.cron
                at = as_iso(earlier.at_s) if earlier.at_s else ""
            found = schedule_of(every=every, cron=cron, at=at, timezone=timezone, jitter_s=jitter_s, now_s=now_s)
            if earlier and found.every_s and found.every_s == earlier.every_s:
                found = replace(found, anchor_s=earlier.anchor_s)
        if self.is_recurring is True and found.at_s:
            raise UsageError(
                '"isRecurring": true does not fit "at", which is one time; use "executionInterval" or "cron"'
            )
        if self.is_recurring is False and not found.at_s:
            raise UsageError('"isRecurring": false needs "at", or "executionInterval" for how long from now')
        return found


class JobPatch(SchedulePatch, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a job is to become: what is not given stays. null: as the crawl, or none."""

    seeds: Annotated[list[Url], Meta(description="URLs with their scheme")] | UnsetType = UNSET
    sitemap: (
        Annotated[Url, Meta(description="URL of a sitemap that is read for each run: its URLs are seeds")]
        | UnsetType
        | None
    ) = UNSET
    scope: Literal["domain", "host", "prefix", "any"] | UnsetType | None = UNSET
    depth: (
        Annotated[int, Meta(ge=0, le=DEPTH_MAX, description="Links that lead deeper are not followed")]
        | UnsetType
        | None
    ) = UNSET
    pages: Annotated[Limit, Meta(description="A run ends after so many")] | UnsetType | None = UNSET
    bytes: Annotated[Limit, Meta(description="A run ends after so many, of bodies")] | UnsetType | None = UNSET
    urls: Annotated[Limit, Meta(description="A run adds no more links after so many URLs")] | UnsetType | None = UNSET
    priority: (
        Annotated[float, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="Higher is fetched first")] | UnsetType
    ) = UNSET
    refetch: (
        Annotated[
            Literal["changed", "all"],
            Meta(
                description="changed: ask sites whether pages have changed since an earlier run, and take the archived "
                "body where they have not. all: request every page whole"
            ),
        ]
        | UnsetType
    ) = UNSET
    max_retry_count: (
        Annotated[int, Meta(ge=0, le=RETRIES_MAX, description="How often a run that failed is repeated")] | UnsetType
    ) = UNSET
    retry_delay: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=TEXT_MAX, examples=["PT1M", "60,300,1800"],
                description="Before each repeat; several with commas: before the first, the second, and so on, the "
                "last for all others. PT1M at first",
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip
    overlap: (
        Annotated[
            Literal["skip", "queue", "allow"], Meta(description="When the run before it has not ended; skip at first")
        ]
        | UnsetType
    ) = UNSET
    catchup: (
        Annotated[
            Literal["none", "latest", "all"],
            Meta(description="Which times are made up for that passed while no instance ran; none at first"),
        ]
        | UnsetType
    ) = UNSET
    catchup_window: Annotated[Duration, Meta(description="How far back catchup reaches; P1D at first")] | UnsetType = (
        UNSET
    )

    def applied(self, earlier: JobSpec | None, now_s: int) -> JobSpec:
        """The definition with what is given, but for its seeds. Raises UsageError."""
        spec = JobSpec(schedule=self.schedule(earlier.schedule if earlier else None, now_s))
        spec = spec if earlier is None else replace(earlier, schedule=spec.schedule)
        none = RunSpec()
        run = {name: getattr(self, name) for name in RunSpec.__struct_fields__}
        limits = {name: getattr(none, name) if value is None else value for name, value in _given(run).items()}
        others = {
            "sitemap": "" if self.sitemap is None else self.sitemap, "retries": self.max_retry_count,
            "overlap": self.overlap, "catchup": self.catchup,
        }  # fmt: skip
        return replace(
            spec, run=replace(spec.run, **limits),
            retry_delay_s=delays_of(self.retry_delay) if self.retry_delay else spec.retry_delay_s,
            catchup_window_s=_seconds("catchupWindow", self.catchup_window, spec.catchup_window_s), **_given(others),
        )  # fmt: skip


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not UNSET}


def delays_of(text: str) -> float | tuple[float, ...]:
    """Seconds before the first repeat, the second, and so on: "60", or "60,300,1800". Raises UsageError."""
    try:
        return parse_duration(text)  # a comma is a decimal point in ISO 8601
    except UsageError:
        found = tuple(_seconds("retryDelay", one, 0.0) for one in text.split(","))
    return found if len(found) > 1 else found[0]


def _seconds(name: str, text: str | UnsetType, otherwise: float) -> float:
    try:
        return otherwise if text is UNSET else parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
