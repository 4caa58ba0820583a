"""Why a URL is, is not or will be crawled: facts in, plain sentences out. Reads nothing itself."""

from collections.abc import Sequence

import msgspec

from crawler.frontier.deferred import RIGHTS, kind_of
from crawler.frontier.lookup import UrlLocation
from crawler.frontier.messages import BudgetReached
from crawler.model import CommitEntry, Rights, Statement
from crawler.rules.rights import forbidding, inside, rights_of, statement_text
from crawler.rules.robots import RobotsVerdict
from crawler.rules.scope import ScopeVerdict
from crawler.rules.text import one_line
from crawler.rules.trap_verdict import PASSED, Verdict
from crawler.rules.urls import origin_of
from crawler.terminal.tables import facts
from crawler.terminal.words import counted, duration, failure_text, moment
from crawler.views.report import DEFERRED, OURS, boost_text, request_text, rights_pairs, stop_text

WAIT_SHOWN_MS = 50
WAITING = frozenset({"retrying", "scheduled", "set_aside", "queued", "deferred"})
RUNS_SHOWN = 10  # the last that have fetched a URL


class RobotsFact(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of robots.txt; None while it was not read, which `note` then explains."""

    verdict: RobotsVerdict | None = None
    said: Sequence[Statement] = ()  # about the use of the page
    read_at: float = 0.0  # wall clock, s
    note: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one URL. `commits` come from the index and from the engine, oldest first.

    `traps` is what the rules say of its looks; its owner knows what was learned of its domain.
    """

    given: str
    url: str
    domain: str
    queue: str
    partition: int
    suggested: str  # node by the ring, or ""
    is_alone: bool  # no instance is running
    is_paused: bool = False  # the whole crawl is
    trouble: tuple[str, str] = ("", "")  # what an instance waits for ("proxy", "network"), and its last error
    budget_reached: BudgetReached | None = None  # a budget of the whole crawl that is used up
    boost: int = 0  # of its domain, by an operator
    login_failure: str = ""  # for which its domain is blocked
    scope: ScopeVerdict
    is_excluded: bool = False  # by the scope, which holds for URLs that wait
    robots: RobotsFact
    where: UrlLocation
    run: str = ""  # of a job, for which the URL was looked at
    commits: Sequence[CommitEntry] = ()
    of_runs: Sequence[CommitEntry] = ()  # those of all runs, unless it was looked at for one
    traps: Verdict = PASSED
    purpose: str = ""  # of the crawl, if pages whose site says no to it are skipped
    has_index: bool = True  # a crawl folder was looked at, which has the commits
    links_dropped: int = 0  # on all pages of the crawl, if nothing led to this URL so far
    sitemap: str = ""  # that names it
    requisite: "AsRequisite | None" = None  # likewise as what pages need to be shown; None: not known as such


class AsRequisite(msgspec.Struct, frozen=True, kw_only=True):
    """A URL as what pages need to be shown: where it is, and its commits."""

    where: UrlLocation
    commits: Sequence[CommitEntry]


class RobotsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What robots.txt has for a URL; `allowed` is None while it was not read, which `note` then explains."""

    allowed: bool | None
    line_number: int  # 0: no rule matches
    line: str
    note: str
    below: str = ""  # another agent, whose name is nearer to the line than ours: by RFC 9309 it is for both


class TrapAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The trap rule that a URL looks like, and why."""

    rule: str
    why: str


class CommitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was committed."""

    status: int
    fetched_at: float  # wall clock, s
    visit: int
    links_dropped: int = 0  # links of the page beyond fetch.links_max or 1 MiB
    rights: Rights | None = None  # what was said about its use then; None: nothing
    is_withheld: bool = False  # its body was not kept, because of that


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a URL is, is not or will be crawled."""

    state: str  # as `state_of` returns it
    verdict: str  # a sentence
    url: str
    domain: str
    queue: str
    partition: int
    owner: str  # node; "" for none
    epoch: int
    suggested: str  # node, by the ring; "" while no instance runs
    scope: ScopeVerdict
    robots: RobotsAnswer
    rights: Rights | None  # what robots.txt, as it is stored, says about its use; None: nothing
    trap: TrapAnswer | None
    seen: bool
    place: int | None  # in its queue, from 0
    stop: str  # why its queue is stopped; "" while it is not
    crawl_paused: bool
    crawl_spent: str  # a budget of the whole crawl that is used up, or ""
    deferred: str  # why it is deferred, or ""
    retry_in_ms: int | None
    visible_at: float | None  # if it is scheduled: wall clock, s
    probe_in_ms: int | None  # if it is set aside: when its origin is probed next
    silent_ms: int | None  # how long its origin has been silent
    attempts: int | None  # that failed
    dead_reason: str | None
    dead_detail: str | None
    next_fetch_in_ms: int  # of its queue
    delay_ms: int | None  # of its queue; None: not known yet
    boost: int  # from -9 to 9
    commits: Sequence[CommitAnswer]  # the oldest first
    sitemap: str  # that names it, or ""
    requisite: str  # its state as what pages need to be shown; "": not known as such
    facts: Sequence[tuple[str, str]]  # for people: names and texts


def state_of(f: Facts) -> str:
    """One word: committed, claimed, retrying, scheduled, set_aside, queued, deferred, dead, refused, ended, unknown.

    Ended is one of committed and refused.
    """
    return _state(f.where, f.commits, has_index=f.has_index)


def requisite_state(r: AsRequisite) -> str:
    """The same of a URL as a requisite."""
    return _state(r.where, r.commits, has_index=True)


def _requisite(r: AsRequisite, *, is_a_page: bool) -> str:
    if r.commits:
        return f"fetched, {_commit(r.commits[-1])}"
    state = requisite_state(r)
    if state == "refused" and is_a_page:
        return "it is archived as a page"
    return f"{state} ({r.where.deferred})" if r.where.deferred else state


def _state(w: UrlLocation, commits: Sequence[CommitEntry], *, has_index: bool) -> str:
    if w.deferred:
        return "deferred"
    if w.claim_deadline_ms is not None:
        return "claimed"
    if w.retry_at_ms is not None:
        return "retrying"
    if w.visible_at is not None:
        return "scheduled"
    if w.probe_ms is not None:
        return "set_aside"
    if w.record is not None:
        return "queued"
    if commits:
        return "committed"
    if w.letter is not None:
        return "dead"
    if not w.seen:
        return "unknown"
    return "refused" if has_index else "ended"


def explanation(f: Facts) -> str:
    """The answer in one sentence, then what it rests on."""
    return f"{verdict(f)}\n\n{facts(_facts(f))}"


def _facts(f: Facts) -> list[tuple[str, str]]:
    pairs = [("url", f.url if f.url == f.given else f"{f.url} (canonical form of {f.given})")]
    pairs.append(("domain", f"{f.domain}, partition {f.partition}, owner {_owner(f)}"))
    if f.run:
        pairs.append(("run", f.run))
    if f.queue != f.domain:
        pairs.append(("queue", f.queue))
    pairs.append(("scope", f"{'in' if f.scope.allowed else 'out'}: {f.scope.rule}"))
    pairs.append(("robots.txt", _robots(f.robots)))
    if not f.commits:  # else they were recorded
        pairs.extend(rights_pairs(rights_of(f.robots.said, f.url)))
    if f.requisite:
        pairs.append(("requisite", f"of a page or style sheet: {_requisite(f.requisite, is_a_page=bool(f.commits))}"))
    if f.sitemap:
        pairs.append(("sitemap", f"named by {f.sitemap}"))
    if f.traps.rule:
        pairs.append(("traps", f"suspect, fetched after all others of its domain: {f.traps.why} (rule {f.traps.rule})"))
    pairs.append(("seen", _seen(f)))
    for entry in f.commits:
        pairs.append(("fetched", _commit(entry)))
        pairs.extend(rights_pairs(entry.rights))
    pairs.extend(("fetched", f"{_commit(entry)}, for run {entry.run}") for entry in f.of_runs[-RUNS_SHOWN:])
    if f.boost:
        pairs.append(("boost", boost_text(f.boost)))
    if f.trouble[0] and f.where.probe_ms is not None:
        pairs.append((f.trouble[0], f"does not work, the last error: {f.trouble[1]}"))
    pairs.append(("next fetch", _next(f.where)))
    return pairs


def verdict(f: Facts) -> str:
    """Is, is not, or will be crawled, and why."""
    state = state_of(f)
    if f.is_excluded and state in WAITING:
        return one_line(f"Will not be crawled: {f.scope.rule} matches, so it is refused when its turn comes.")
    if f.requisite and f.requisite.commits and state == "unknown":
        return "Fetched as what a page needs to be shown, and not as a page: no link to it was found so far."
    return one_line(_VERDICTS[state](f))


def _committed(f: Facts) -> str:
    last = f.commits[-1]
    without = ", without its body, because of its rights" if last.is_withheld else ""
    return f"Crawled: status {last.status} at {moment(last.fetched_at)}{without}."


def _claimed(f: Facts) -> str:
    return f"Being crawled: claimed by {f.where.node or 'an instance that is gone'} just now.{_alone(f)}"


def _retrying(f: Facts) -> str:
    assert f.where.retry_at_ms is not None
    tries = counted(f.where.record.attempts if f.where.record else 1, "attempt")
    wait = max(0, f.where.retry_at_ms - f.where.clock_ms) / 1000
    return f"Will be crawled: {tries} failed, and the next one is due in {duration(wait)}.{_alone(f)}"


def _stop_of(f: Facts) -> str:
    """Why nothing is fetched of its queue; "" when it is."""
    text = stop_text(
        f.where.stop, is_crawl_paused=f.is_paused, budget_reached=f.budget_reached, login_failure=f.login_failure
    )
    return text.replace("DOMAIN", f.domain)


def _scheduled(f: Facts) -> str:
    assert f.where.visible_at is not None
    where = f"it waits until {moment(f.where.visible_at)} (seed --at)"
    if f.robots.verdict is not None and not f.robots.verdict.allowed:
        return f"Will not be crawled: {where}, but robots.txt forbids it."
    stop = _stop_of(f)
    if stop:
        return f"Not crawled for now: {where}, and its queue is stopped: {stop}."
    return f"Will be crawled: {where}.{_alone(f)}"


def _set_aside(f: Facts) -> str:
    w, origin = f.where, origin_of(f.url)
    assert w.probe_ms is not None
    wait = duration(max(0, w.probe_ms - w.clock_ms) / 1000)
    if w.silent_ms is None and f.trouble[0]:
        return f"Will be crawled once {OURS[f.trouble[0]]} works: it is tried again in {wait}.{_alone(f)}"
    if w.silent_ms is None:
        return (
            f"Will be crawled: {origin} has not answered yet, and waits for its turn to be tried, in {wait}.{_alone(f)}"
        )
    silent = duration(max(0, w.clock_ms - w.silent_ms) / 1000)
    return f"Will be crawled once {origin} answers: it has not for {silent}, and is tried again in {wait}.{_alone(f)}"


def _queued(f: Facts) -> str:
    place = f.where.place
    where = f"number {place + 1} in the queue of {f.queue}" if place is not None else f"in the queue of {f.queue}"
    if f.robots.verdict is not None and not f.robots.verdict.allowed:
        return f"Will not be crawled: it is {where}, but robots.txt forbids it."
    stop = _stop_of(f)
    if stop:
        return f"Not crawled for now: it is {where}, and that is stopped: {stop}."
    return f"Will be crawled: it is {where}.{_alone(f)}"


def _deferred(f: Facts) -> str:
    reason = f.where.deferred
    if reason == f.where.stop:
        return f"Not crawled for now: it is deferred, because its queue is stopped: {_stop_of(f)}."
    kind, _, rule = reason.partition(":")
    if kind == "trap":
        why = f" ({f.traps.why})" if f.traps.rule == rule else ""
        return (
            f"Not crawled: it is deferred by the trap rule {rule}{why}: that part of the site was detected as infinite."
        )
    if reason == RIGHTS:
        what = f"robots.txt says no to rights.purpose{_forbidding(f)}"
        return f"Not crawled: {what} ('crawler release {f.domain} --reason rights' fetches it all the same)."
    beyond = DEFERRED.get(kind_of(reason), reason)
    return f"Not crawled for now: it is deferred, {beyond} ('crawler release {f.domain}' puts it back)."


def _dead(f: Facts) -> str:
    letter = f.where.letter
    assert letter is not None
    why = failure_text(letter.reason, letter.detail)
    tries = f"after {counted(letter.attempts, 'attempt')}" if letter.attempts else "without an attempt"
    return f"Dead letter: {why}, {tries}, at {moment(letter.failed_at)}."


def _refused(f: Facts) -> str:
    if f.is_excluded:
        return f"Not crawled: {f.scope.rule} matches."
    if f.robots.verdict is not None and not f.robots.verdict.allowed:
        return "Not crawled: robots.txt forbids it."
    return (
        "Not crawled: it was refused when its turn came (robots.txt as it was then, or a limit of redirects), or it "
        "was purged ('crawler purge', or 'crawler dead purge' of its dead letter), or imported ('crawler import seen')."
    )


def _ended(f: Facts) -> str:
    if f.robots.verdict is not None and not f.robots.verdict.allowed:
        return "Not crawled: robots.txt forbids it."
    return "Done: it was crawled, or refused when its turn came. The crawl folder knows which: name it with --dir."


def _unknown(f: Facts) -> str:
    if f.of_runs:
        last = f.of_runs[-1]
        return (
            f"Crawled for {counted(len(f.of_runs), 'run')} of jobs: status {last.status} at {moment(last.fetched_at)}, "
            f"for run {last.run}. The crawl itself does not know it."
        )
    if not f.scope.allowed:
        return f"Not crawled: out of scope ({f.scope.rule})."
    if f.robots.verdict is not None and not f.robots.verdict.allowed:
        return "Not crawled: no link to it was found so far; if one is, robots.txt forbids it."
    if f.links_dropped:
        return (
            "Not crawled so far: no link to it was taken. It may be one of the "
            f"{counted(f.links_dropped, 'link')} beyond fetch.links_max ('crawler stats --losses' has a page), or "
            f"beyond the depth limit; 'crawler seed {one_line(f.url)}' adds it."
        )
    return "Not crawled so far: no link to it was found, or only beyond the depth limit; it would be if one is found."


_VERDICTS = {
    "committed": _committed,
    "claimed": _claimed,
    "retrying": _retrying,
    "set_aside": _set_aside,
    "scheduled": _scheduled,
    "queued": _queued,
    "deferred": _deferred,
    "dead": _dead,
    "refused": _refused,
    "ended": _ended,
    "unknown": _unknown,
}


def record_of(f: Facts) -> Explanation:
    """The same for programs."""
    v, w = f.robots.verdict, f.where
    return Explanation(
        state=state_of(f),
        verdict=verdict(f),
        url=f.url,
        domain=f.domain,
        queue=f.queue,
        partition=f.partition,
        owner=w.node if w.session else "",
        epoch=w.epoch,
        suggested=f.suggested,
        scope=f.scope,
        robots=RobotsAnswer(
            allowed=None if v is None else v.allowed,
            line_number=v.line_number if v else 0,
            line=v.line if v else "",
            note=f.robots.note,
            below=v.below if v else "",
        ),
        rights=rights_of(f.robots.said, f.url),
        trap=TrapAnswer(rule=f.traps.rule, why=f.traps.why) if f.traps.rule else None,
        seen=w.seen,
        place=w.place,
        stop=w.stop,
        crawl_paused=f.is_paused,
        crawl_spent=f.budget_reached.reason if f.budget_reached else "",
        deferred=w.deferred,
        visible_at=w.visible_at,
        probe_in_ms=None if w.probe_ms is None else max(0, w.probe_ms - w.clock_ms),
        silent_ms=None if w.silent_ms is None else max(0, w.clock_ms - w.silent_ms),
        retry_in_ms=None if w.retry_at_ms is None else max(0, w.retry_at_ms - w.clock_ms),
        attempts=w.letter.attempts if w.letter else w.record.attempts if w.record else None,
        dead_reason=w.letter.reason if w.letter else None,
        dead_detail=w.letter.detail if w.letter else None,
        next_fetch_in_ms=max(0, w.next_fetch_ms - w.clock_ms),
        delay_ms=w.delay_ms,
        boost=f.boost,
        commits=[
            CommitAnswer(
                status=e.status,
                fetched_at=e.fetched_at,
                visit=e.visit,
                links_dropped=e.links_dropped,
                rights=e.rights,
                is_withheld=e.is_withheld,
            )
            for e in f.commits
        ],
        sitemap=f.sitemap,
        requisite=requisite_state(f.requisite) if f.requisite else "",
        facts=_facts(f),
    )


def _owner(f: Facts) -> str:
    if f.where.session:
        moving = f", moving to {f.suggested}" if f.suggested and f.suggested != f.where.node else ""
        return f"{f.where.node} (epoch {f.where.epoch}){moving}"
    return f"none now (the ring suggests {f.suggested})" if f.suggested else "none now"


def _robots(robots: RobotsFact) -> str:
    if robots.verdict is None:
        return robots.note
    v = robots.verdict
    line = f"line {v.line_number}: {v.line}" if v.line_number else "no rule matches"
    when = f", read at {moment(robots.read_at)}" if robots.read_at else ""
    below = f", which is below User-agent: {v.below}, in one group with ours by RFC 9309" if v.below else ""
    return f"{'allowed' if v.allowed else 'forbidden'} ({line}{below}{when})"


def _forbidding(f: Facts) -> str:
    """The line of robots.txt that says no to the purpose of the crawl; "" for none."""
    found = forbidding(f.robots.said, inside(f.purpose)) if f.purpose else None
    return f": {statement_text(found)}" if found else ""


def _seen(f: Facts) -> str:
    if f.where.seen:
        return "yes"
    if any(entry.request and entry.request.identity for entry in f.commits):
        return "not by a plain GET"
    return f"no: not added to this {'run' if f.run else 'crawl'} so far"


def _commit(entry: CommitEntry) -> str:
    to = f" -> {entry.redirect_to}" if entry.redirect_to else ""
    place = f", {entry.warc.file} at {entry.warc.offset}" if entry.warc else ", pruned" if entry.pruned else ""
    odd = f", Content-Encoding: {entry.decode_error}" if entry.decode_error else ""
    left = f", {counted(entry.links_dropped, 'link')} beyond fetch.links_max left out" if entry.links_dropped else ""
    how = f"{request_text(entry.request)}: " if entry.request else ""
    return f"{how}{moment(entry.fetched_at)}, status {entry.status}{to}, depth {entry.depth}{odd}{place}{left}"


def _next(where: UrlLocation) -> str:
    wait = max(0, where.next_fetch_ms - where.clock_ms)
    delay = f"delay {duration(where.delay_ms / 1000)}" if where.delay_ms is not None else "delay not known yet"
    busy = f", {counted(where.claims_out, 'URL')} of the queue claimed" if where.claims_out else ""
    return f"{f'in {duration(wait / 1000)}' if wait >= WAIT_SHOWN_MS else 'at any time'} ({delay}{busy})"


def _alone(f: Facts) -> str:
    return " No instance is running: start one with 'crawler run' or 'crawler crawl'." if f.is_alone else ""
