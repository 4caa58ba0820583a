"""Steps 7 to 9 in groups: archive, route, ack. One group is written to disk while another is acked and a third gathers.

A crash between any two steps repeats a fetch and never loses a URL: the record is on disk and the links are in the
frontier before their page is acked, and the index line is on disk before the commit entry leaves the engine.

The links of a page go to the partitions of their domains first, then the page is acked in its own: an engine that kept
the ack and forgot the adds would lose them, because nobody parses that page again. On one engine (embedded, a server, a
primary with replicas) this needs no journal. Its append-only file and its replication stream are one sequence, and the
ack was sent after the adds were answered: whatever tail is lost, the ack is lost with the adds, or before them. Then
the page is fetched again, and the index keeps the first commit. On a cluster shards forget one without the other: what
was sent is noted in a file and sent again (archive/told_log.py, instance/retelling.py).

One sync to disk and few calls serve a group of pages, those of one partition in one call (lua/ack.lua). Two loops: one
gathers a group and writes it, the other routes and acks what is written, and between them waits at most one. When one
group had to be acked before the next was written, a site without a delay gave its URLs and then waited for the disk:
with a sync of 50 ms the crawler was busy for 0.60 of the time on one host, and is for 0.97 now. Groups are acked in the
order in which they were archived.

A call whose reply is lost is repeated until it is answered; the token of a delivery makes that safe. A lease that is
lost meanwhile ends the waiting: what was not acked under it is another's to fetch.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from crawler.archive.method_query import body_query
from crawler.engine.client import Call
from crawler.errors import EngineDown, EngineError, InvariantError, may_be_of_content
from crawler.frontier.codec import DeadLetter
from crawler.frontier.messages import AckReply
from crawler.frontier.owner import Ack, Fence, Frontier
from crawler.frontier.stats import (
    CUT_REQUISITES,
    DUPLICATE_BYTES,
    DUPLICATES,
    HANDLED,
    ITEMS_INVALID,
    LINKS,
    LOST,
    NAMED,
    OF_RIGHTS,
    OF_SITEMAP,
    REQUISITE_ROBOTS,
    SCRIPTED,
    SEED_LED_AWAY,
    UNCHANGED,
    UNSIGNED,
    lost_of,
    said_in,
)
from crawler.membership.held import HeldPartitions
from crawler.model import (
    ITEMS_DROPPED,
    NO_MEDIA_TYPE,
    REQUISITE,
    REVISIT,
    WITHHELD,
    AckOutcome,
    Candidate,
    Claim,
    CommitEntry,
    ParsedPage,
    Request,
    Response,
)
from crawler.rules.conditional import head_digest
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms, wall_s
from crawler.runtime.crash_points import reached
from crawler.settings import ArchiveSettings
from crawler.terminal.words import failure_reason
from crawler.worker.archive import ArchiveStage, Placed
from crawler.worker.attempts import AttemptNotes
from crawler.worker.counters import LastError
from crawler.worker.hooks import Hooks
from crawler.worker.internal_errors import ContentSteps, InternalErrors
from crawler.worker.open_claims import ClaimPlace
from crawler.worker.outcomes import Committable, Deferred, Failed, Outcome, Refused
from crawler.worker.route import WAKE_S, HeldBack, RouteStage
from crawler.worker.work import Work

# Step 9, ack: ends claims.

log = logging.getLogger(__name__)

Ended = Failed | Refused | Deferred


async def keep_claims(
    frontier: Frontier, held: HeldPartitions, in_work: Callable[[], list[Claim]], *, visibility_ms: int
) -> None:
    """Extend claims while they are worked on, until cancelled: a slow page is not delivered twice."""
    while True:
        await asyncio.sleep(visibility_ms / 4000)
        mine: dict[int, tuple[Fence, list[Claim]]] = {}
        for claim in in_work():
            fence = held.fence_of(claim.partition)
            if fence is not None and held.holds(claim):
                mine.setdefault(claim.partition, (fence, []))[1].append(claim)
        with contextlib.suppress(EngineError):  # three more tries before a claim expires
            await frontier.extend_claims(mine, visibility_ms=visibility_ms)


class AckStage:
    """Sends acks, retries, dead letters, refusals and deferrals."""

    def __init__(self, frontier: Frontier, held: HeldPartitions) -> None:
        self._frontier = frontier
        self._held = held

    async def ack(self, acks: Sequence[Ack]) -> list[AckReply | None]:
        """Commit; None for an ack that was given up because its lease is gone."""
        answers: dict[int, AckReply | None] = {}
        while missing := [i for i in range(len(acks)) if i not in answers]:
            asked = [i for i in missing if self._held.holds(acks[i].claim)]
            answers |= dict.fromkeys(set(missing).difference(asked))
            for i, reply in zip(asked, await self._answers([acks[i] for i in asked]), strict=True):
                if isinstance(reply, AckReply):
                    answers[i] = reply
                    self._held.committed(acks[i].claim.partition, reply.sequence)
                elif self._is_shard_down(acks[i].claim, reply):
                    answers[i] = None
            if len(answers) < len(acks):
                await asyncio.sleep(ENGINE_PAUSE_S)
        return [answers[i] for i in range(len(acks))]

    def _is_shard_down(self, claim: Claim, error: EngineError) -> bool:
        """While a shard of a cluster is down, what is of the others must not wait: the partition is let go, and
        acquired again when the shard answers.
        """
        is_down = self._frontier.engine.fails_in_parts and isinstance(error, EngineDown)
        if is_down:
            self._held.lose(claim.partition)
        return is_down

    async def _answers(self, acks: Sequence[Ack]) -> Sequence[AckReply | EngineError]:
        try:
            replies = await self._frontier.ack(acks)
        except EngineError as error:
            replies = [error] * len(acks)
        _log_errors("ack.engine_error", replies)
        return replies

    def find_invalid(self, acks: Sequence[Ack]) -> dict[int, Exception]:
        """The acks that can't be encoded as a call, by number, with the error."""
        found: dict[int, Exception] = {}
        for number, ack in enumerate(acks):
            try:
                self._frontier.pack_ack(ack)
            except Exception as error:  # noqa: BLE001 - any error here comes from the page's content
                found[number] = error
        return found

    async def end(self, ended: Sequence[Ended], answered: Callable[[Ended, AckOutcome | None], None]) -> None:
        """Send all ends except acks; `answered` gets the engine's reply to each.

        None: the lease was gone before. ALREADY_YOURS: it probably ended with an earlier call whose reply was lost.
        """
        left, is_repeat = list(ended), False
        while left:
            asked = [o for o in left if self._held.holds(o.claim)]
            for outcome in left:
                if not self._held.holds(outcome.claim):
                    answered(outcome, None)
            try:
                replies = await self._frontier.end([self._call(o) for o in asked])
            except EngineError as error:
                replies = [error] * len(asked)
            _log_errors("end.engine_error", replies)
            left = []
            for outcome, reply in zip(asked, replies, strict=True):
                if isinstance(reply, EngineError):
                    if self._is_shard_down(outcome.claim, reply):
                        answered(outcome, None)
                    else:
                        left.append(outcome)
                else:
                    is_done = is_repeat and reply is AckOutcome.GONE
                    answered(outcome, AckOutcome.ALREADY_YOURS if is_done else reply)
            is_repeat = True
            if left:
                await asyncio.sleep(ENGINE_PAUSE_S)

    def _call(self, outcome: Ended) -> Call:
        claim, frontier = outcome.claim, self._frontier
        fence = self._held.fence_of(claim.partition)
        if fence is None:
            raise InvariantError(f"partition {claim.partition} is not held: {claim.url}")
        if isinstance(outcome, Refused):
            return frontier.refuse(fence, claim, outcome.reason)
        if isinstance(outcome, Deferred):
            return frontier.defer(fence, claim, outcome.reason)
        if outcome.retry_in_ms >= 0:
            due_ms = fence.now_ms + outcome.retry_in_ms
            return frontier.retry(
                fence, claim, outcome.settlement,
                due_ms=due_ms, kind=outcome.kind, at_s=outcome.failed_at, detail=outcome.detail,
            )  # fmt: skip
        letter = _dead_letter_of(outcome)
        return frontier.dead_letter(fence, claim, outcome.settlement, letter, is_attempt=outcome.is_attempt)


def _dead_letter_of(outcome: Failed) -> DeadLetter:
    claim = outcome.claim
    return DeadLetter(
        url=claim.url,
        queue=claim.queue,
        domain=claim.domain,
        depth=claim.depth,
        reason=outcome.kind,
        detail=outcome.detail[:500],
        attempts=claim.attempts + outcome.is_attempt,
        failed_at=outcome.failed_at,
        seed=claim.seed,
        seed_number=claim.seed_number,
        run=claim.run,
        redirects=claim.redirects,
        score=claim.score,
        label=claim.label,
        trace=outcome.trace,
        user=claim.user,
        request=claim.request,
    )


def _log_errors(event: str, replies: Sequence[object]) -> None:
    errors = {str(reply) for reply in replies if isinstance(reply, EngineError)}
    if errors:
        log.warning(event, extra={"errors": sorted(errors)[:3]})


GATHER_POLL_S = 0.005


_Page = tuple[Committable, Placed | None]


class _Group(NamedTuple):
    """Outcomes that are committed together. `placed`: where the archive has each of `commits`."""

    outcomes: list[Outcome]
    commits: list[Committable]
    placed: list[Placed | None]


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Who hears how attempts end, and what happens to content that can't be committed."""

    notes: AttemptNotes
    hooks: Hooks
    content: ContentSteps
    internal_errors: InternalErrors


class ReturnClaims(Protocol):
    """Returns claims to the engine. `started`: their requests were sent."""

    async def __call__(self, claims: list[Claim], *, started: bool) -> None: ...


class Committer:
    """Gathers outcomes and commits them in groups, in two steps that run at the same time for different groups.

    Three groups and what gathers meanwhile is the most that it holds: one is archived, one waits, one is acked. Pages
    whose links wait are in `HeldBack`.
    """

    def __init__(
        self,
        archive: ArchiveStage,
        route: RouteStage,
        ack: AckStage,
        held_back: HeldBack,
        work: Work,
        ends: Ends,
        settings: ArchiveSettings,
        return_claims: ReturnClaims,
    ) -> None:
        self._return_claims = return_claims
        self._archive = archive
        self._route = route
        self._ack = ack
        self._held_back = held_back
        self._work = work
        self._ends = ends
        self._settings = settings
        self._waiting: list[Outcome] = []
        self._taken: list[list[Outcome]] = []  # groups, until they are committed
        self._archived: asyncio.Queue[_Group] = asyncio.Queue(maxsize=1)
        self._arrived = asyncio.Event()

    @property
    def _is_quiet(self) -> bool:
        """Is no request in flight? Then a group has nothing to wait for."""
        return not self._work.scheduler.active

    def deliver(self, outcome: Outcome) -> None:
        """Queue an outcome; it is committed within `sync_s`."""
        self._waiting.append(outcome)
        self._work.open_claims.moved(outcome.claim, ClaimPlace.OUTCOME)
        self._arrived.set()

    async def archive_groups(self) -> None:
        """Gather groups and write them to disk, until cancelled. Raises ArchiveError when the disk fails; where it has
        no room, they are given back.
        """
        while True:
            await self._gather()
            await self._archived.put(await self._store())

    async def commit_groups(self) -> None:
        """Route and ack what is on disk, until cancelled."""
        while True:
            await self._commit(await self._next_group())

    async def _next_group(self) -> _Group:
        """The next one on disk; an empty one in time for the pages that are held back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAKE_S if self._held_back else None):
                return await self._archived.get()
        group = _Group([], [], [])
        self._taken.append(group.outcomes)
        return group

    async def flush(self) -> None:
        """Commit all outcomes that wait. For the end, when neither of the loops runs any more."""
        while not self._archived.empty():
            await self._commit(self._archived.get_nowait())
        await self._commit(await self._store())

    async def _gather(self) -> None:
        """Wait until a group is full or old enough, or nothing more is coming."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        deadline = monotonic_ms() + int(self._settings.sync_s * 1000)
        while not self._is_group_ready(deadline):  # noqa: ASYNC110 - three conditions, none of them an event alone
            await asyncio.sleep(GATHER_POLL_S)

    def _is_group_ready(self, deadline_ms: int) -> bool:
        full = len(self._waiting) >= self._settings.sync_pages
        return full or self._is_quiet or monotonic_ms() >= deadline_ms

    async def _store(self) -> _Group:
        """Archive all outcomes that wait."""
        outcomes, self._waiting = self._waiting, []
        for outcome in outcomes:
            self._work.open_claims.moved(outcome.claim, ClaimPlace.STORING)
        self._taken.append(outcomes)
        commits = [o for o in outcomes if isinstance(o, Committable)]
        placed = await self._archive.store(commits) if commits else []
        if placed is None:
            await self._give_back(commits)
            outcomes[:] = [o for o in outcomes if not isinstance(o, Committable)]
            commits, placed = [], []
        return _Group(outcomes, commits, placed)

    async def _give_back(self, pages: Sequence[Committable]) -> None:
        """The disk has no room for these pages: return their claims, and those of all that waits to be fetched."""
        log.warning("pages.given_back", extra={"pages": len(pages)})
        for outcome in pages:
            self._ends.notes.cut_off(outcome.claim, outcome.response.started_at)
        await self._return_claims([outcome.claim for outcome in pages], started=True)
        await self._return_claims(self._work.scheduler.remove_all(), started=False)

    async def _commit(self, group: _Group) -> None:
        going_on = self._held_back.due()
        for outcome in (*group.outcomes, *(page.outcome for page in going_on)):
            self._work.open_claims.moved(outcome.claim, ClaimPlace.COMMITTING)
        pages: list[_Page] = [(page.outcome, page.placed) for page in going_on]
        given: list[Committable] = []
        try:
            ended = [o for o in group.outcomes if not isinstance(o, Committable)]
            pages += zip(group.commits, group.placed, strict=True)
            waiting = list[tuple[Committable, Placed]]()
            if pages:
                failed, waiting = await self._route_and_ack(pages)
                ended += failed
            if ended:
                await self._ack.end(ended, self._ended)
                reached("end.answered", ended[0].claim.url)
            left = {id(outcome) for outcome, _ in waiting}
            for outcome in (*group.outcomes, *(page.outcome for page in going_on)):
                if id(outcome) not in left:
                    self._work.counters.open_claims.ended(outcome.claim)
            if going_on or waiting:
                given = self._held_back.keep(going_on, waiting)
            if group.outcomes or going_on:
                self._work.due.room_changed()
        finally:
            self._taken.remove(group.outcomes)
        if given:
            for outcome in given:
                self._ends.notes.cut_off(outcome.claim, outcome.response.started_at)
            await self._held_back.give_back(given)
        if self._archive.wants_drain and self._is_quiet and not self.uncommitted:
            await self._archive.drain()

    @property
    def claims(self) -> list[Claim]:
        """Claims whose outcome is here but not acked."""
        here = [outcome.claim for outcomes in (*self._taken, self._waiting) for outcome in outcomes]
        return here + self._held_back.claims

    @property
    def uncommitted(self) -> int:
        """How many outcomes are here but not acked."""
        return len(self._waiting) + sum(map(len, self._taken)) + len(self._held_back)

    async def settle(self, timeout_s: float) -> list[Claim]:
        """Wait until all delivered outcomes are committed; the claims of those that were not in time."""
        deadline_ms = monotonic_ms() + int(timeout_s * 1000)
        while self.uncommitted and monotonic_ms() < deadline_ms:  # noqa: ASYNC110 - asked once, at the end
            await asyncio.sleep(0.01)
        return self.claims

    async def _route_and_ack(self, pages: Sequence[_Page]) -> tuple[list[Failed], list[tuple[Committable, Placed]]]:
        """The failures, still to be ended, of pages whose content raised an error; and the pages whose links wait."""
        for outcome, where in pages:
            outcome.digest = where.digest if where is not None else ""
        group = [outcome for outcome, _ in pages]
        own = await self._route.route(group)
        reached("route.added", group[0].claim.url)
        await self._archive.have_room()
        acks, waiting = self._acks(pages, own)
        async with self._work.counters.acking:
            replies = await self._answers(acks)
            reached("ack.answered", group[0].claim.url)
            for (outcome, ack), reply in zip(acks, replies, strict=True):
                if outcome.error is None:
                    self._acked(outcome, ack, reply)
        failed = [self._failed(o, o.error) for o in group if o.error is not None]
        if len(failed) < len(group):
            self._ends.internal_errors.passed()
        return failed, waiting

    def _acks(
        self, pages: Sequence[_Page], own: Sequence[list[Candidate] | None]
    ) -> tuple[list[tuple[Committable, Ack]], list[tuple[Committable, Placed]]]:
        acks, waiting = [], []
        for (outcome, where), items in zip(pages, own, strict=True):
            if where is None or items is None:
                continue
            fence = self._work.held.fence_of(outcome.claim.partition)
            if fence is None or not self._work.held.holds(outcome.claim):
                self._work.counters.fenced += 1
                self._ends.notes.lost(outcome)
                continue
            if outcome.left:
                waiting.append((outcome, where))
                continue
            ack = self._ends.content.attempt(outcome, self._ack_of, outcome, where, items, fence)
            if ack is not None:
                acks.append((outcome, ack))
        return acks, waiting

    def _ack_of(self, outcome: Committable, where: Placed, items: list[Candidate], fence: Fence) -> Ack:
        return Ack(
            claim=outcome.claim,
            fence=fence,
            entry=self._entry(outcome, where),
            items=items,
            settlement=outcome.settlement,
            refused=outcome.refused,
            counts=_counts(outcome),
        )

    async def _answers(self, acks: list[tuple[Committable, Ack]]) -> list[AckReply | None]:
        """The engine's replies. An ack that can't be encoded gets none: it must not hold up the others."""
        try:
            return await self._ack.ack([ack for _, ack in acks])
        except Exception as error:
            invalid = self._ack.find_invalid([ack for _, ack in acks]) if may_be_of_content(error) else {}
            if not invalid:
                raise
        for number, reason in invalid.items():
            acks[number][0].error = reason
        replies = iter(await self._ack.ack([ack for outcome, ack in acks if outcome.error is None]))
        return [next(replies) if outcome.error is None else None for outcome, _ in acks]

    def _failed(self, outcome: Committable, error: Exception) -> Failed:
        started_at = outcome.response.started_at
        return self._ends.internal_errors.failed(outcome.claim, error, outcome.settlement, started_at=started_at)

    def _entry(self, outcome: Committable, placed: Placed) -> CommitEntry:
        claim, response, left_out = outcome.claim, outcome.response, outcome.withheld
        original = outcome.original or outcome.duplicate_of
        mime = REVISIT if original else response.content_type or NO_MEDIA_TYPE
        entry = CommitEntry(
            url=claim.url,
            mime=WITHHELD if left_out else mime,
            status_text=str(response.status),
            fingerprint=claim.fingerprint,
            visit=claim.visit,
            fetched_at=response.started_at,
            body_bytes=left_out.body_bytes if left_out else len(response.body),
            title=outcome.page.title,
            depth=claim.depth,
            redirects=claim.redirects,
            digest=outcome.digest,
            redirect_to=outcome.redirect_to,
            truncated=response.truncated,
            decode_error=response.decode_error,
            noindex=outcome.page.noindex,
            links_dropped=outcome.page.links_dropped,
            node=self._ends.notes.node,
            session=self._ends.notes.session,
            epoch=claim.epoch,
            scope_version=outcome.scope_version,
            fetch_ms=response.fetch_ms,
            seed_number=claim.seed_number,
            run=claim.run,
            label=claim.label,
            request=claim.request and claim.request.without_body(),
            request_body=_body_query(claim.request, response) if claim.request is not None else "",
            head_digest=head_digest(response.request_head) if claim.run and claim.request is None else "",
            original_mime=_original_mime(outcome),
            rights=outcome.rights,
            times={
                "queued": claim.queued_at,
                "claimed": claim.claimed_at,
                "started": response.started_at,
                "finished": outcome.finished_at,
                "archived": wall_s(),
            },
        )
        entry = entry.placed(placed.warc, placed.items)
        return entry.referring(original.place) if original else entry

    def _acked(self, outcome: Committable, ack: Ack, reply: AckReply | None) -> None:
        counters, partition = self._work.counters, outcome.claim.partition
        if reply is None or reply.outcome in (AckOutcome.FENCED, AckOutcome.GONE):
            counters.fenced += 1
            self._ends.notes.lost(outcome)
            log.warning("ack.refused", extra={"url": outcome.claim.url, "answer": reply and reply.outcome})
            if reply is not None and reply.outcome is AckOutcome.FENCED:
                self._work.held.lose(partition)
            return
        self._route.added(partition, ack.items, reply.woken)
        self._ends.notes.accepted(outcome)
        self._ends.hooks.accepted(outcome)
        if outcome.accepted is not None:
            outcome.accepted()
        counters.committed += ack.entry.is_page
        counters.shapes.note(outcome.claim.domain, outcome.claim.url, monotonic_ms())
        if not outcome.claim.run:
            counters.own_committed += ack.entry.is_page
            counters.own_bytes += 0 if ack.entry.label == REQUISITE else ack.entry.body_bytes
        self._work.activity.response(partition, outcome.claim.queue, ack.entry.status, ack.entry.body_bytes)
        self._archive.committed(partition, replace(ack.entry, sequence=reply.sequence))
        self._wake_queue(outcome.claim, ack.settlement.next_fetch_ms)

    def _ended(self, outcome: Failed | Refused | Deferred, reply: AckOutcome | None) -> None:
        partition = outcome.claim.partition
        if reply in (AckOutcome.COMMITTED, AckOutcome.ALREADY_YOURS):
            self._ends.notes.accepted(outcome)
            self._ends.hooks.accepted(outcome)
        else:
            self._ends.notes.lost(outcome)
        if reply is None:
            return
        if reply is AckOutcome.FENCED:
            self._work.counters.fenced += 1
            self._work.held.lose(partition)
            return
        if isinstance(outcome, Deferred) and reply is AckOutcome.RELEASED:
            self._route.traps.release(outcome.claim.queue, outcome.reason)
        if isinstance(outcome, Refused | Deferred):
            self._wake_queue(outcome.claim, 0)
            return
        self._work.counters.errors += 1
        self._work.activity.failure(partition, outcome.claim.queue, failure_reason(outcome.kind, outcome.detail))
        self._work.counters.note_error(LastError(outcome.kind, outcome.detail, outcome.claim.url, outcome.failed_at))
        self._wake_queue(outcome.claim, outcome.settlement.next_fetch_ms)
        if outcome.retry_in_ms >= 0 and self._work.held.is_open(partition):
            self._work.due.schedule(partition, monotonic_ms() + outcome.retry_in_ms)

    def _wake_queue(self, claim: Claim, next_fetch_ms: int) -> None:
        """The claim's queue may be claimed from again at its next fetch time."""
        if self._work.held.is_open(claim.partition):
            wait_ms = max(0, next_fetch_ms - self._work.held.now_of(claim.partition))
            self._work.due.queue_due(claim.partition, monotonic_ms() + wait_ms, claim.queue)


def _body_query(request: Request, response: Response) -> str:
    """What the index line has of its body; that of a secret one is nowhere."""
    return "" if request.is_secret else body_query(request.method, response.request_head, response.request_body)


def _original_mime(outcome: Committable) -> str:
    """The media type, where the index line has another one for the record; "" where it has it itself."""
    if outcome.withheld is not None:
        return outcome.withheld.mime or NO_MEDIA_TYPE
    if outcome.duplicate_of is not None:
        return outcome.response.content_type or NO_MEDIA_TYPE
    return outcome.original.mime if outcome.original is not None else ""


def _counts(outcome: Committable) -> dict[str, int]:
    """What is counted of its items, and what is missing of the page (docs/operate/watching.md#losses)."""
    lost = lost_parts(outcome.page, outcome.response)
    lost[OF_RIGHTS] = int(outcome.withheld is not None)
    lost[SEED_LED_AWAY] = int(outcome.leads_away)
    lost[ITEMS_DROPPED] = outcome.handled.dropped_count
    found = {"items": len(outcome.handled.items), ITEMS_INVALID: outcome.handled.invalid_count}
    found[f"{HANDLED}{outcome.handled.handler}"] = int(bool(outcome.handled.handler))
    found[UNCHANGED] = int(outcome.original is not None)
    if outcome.duplicate_of is not None:
        found[DUPLICATES], found[DUPLICATE_BYTES] = 1, len(outcome.response.body)
    found[NAMED] = outcome.named
    found[REQUISITE_ROBOTS] = outcome.robots
    found |= said_in(outcome.rights)
    found |= {f"{LOST}{reason}": n for reason, n in lost.items()}
    return {name: n for name, n in found.items() if n}


def lost_parts(page: ParsedPage, response: Response) -> dict[str, int]:
    """What is missing of a page that was fetched, by reason of LOST."""
    is_ok = response.status == 200
    lost = {
        LINKS: page.links_dropped,
        CUT_REQUISITES: page.requisites_cut,
        OF_SITEMAP: int(is_ok and bool(page.flaw)),
        SCRIPTED: int(is_ok and page.is_scripted),
        UNSIGNED: int(response.status in (401, 403) and bool(response.header("accept-signature"))),
    }
    if reason := lost_of(truncated=response.truncated, decode_error=response.decode_error):
        lost[reason] = 1
    return {reason: n for reason, n in lost.items() if n}
