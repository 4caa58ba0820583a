"""Steps in which URLs of origins that do not answer are set aside, and recalled."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from crawler.frontier.owner import Aside
from crawler.model import AckOutcome
from crawler.rules.urls import origin_of
from tests.frontier.machine import FrontierSteps, deliveries, moments, partitions, some
from tests.frontier.model_urls import RECALLED, State


class AsideSteps(FrontierSteps):
    """What an owner does with the URLs of such an origin."""

    @precondition(lambda self: self._deliveries)
    @rule(
        index=some, off=moments, which=deliveries, due=st.sampled_from((-100, 700, 2500, 60_000)),
        is_silent=st.booleans(), started=st.sampled_from((None, 0, 1500)), together=st.booleans(),
    )  # fmt: skip
    def set_aside(
        self, index: int, off: int, which: str, due: int, is_silent: bool, started: int | None, together: bool
    ) -> None:
        """A claim, or all that its session has of the origin."""
        model, claim, fence, counts = self._pick(index, off, which)
        origin, claims = origin_of(claim.url), [claim]
        for d in self._deliveries if counts and together else ():
            is_alike = (d.session, d.claim.queue, origin_of(d.claim.url)) == (fence.session, claim.queue, origin)
            if self._counts(d) and is_alike and d.claim.partition == claim.partition and d.claim.token != claim.token:
                claims.append(d.claim)
        at, due_ms = 0 if started is None else self._now + started, max(1, self._now + due)
        since_ms = self._now if is_silent else -1
        raw = self._raw_of(self._dump(), claim.partition)
        heads = {user: model.of_row(claim.queue, user)[:1] for user in {one.user for one in claims}}
        before, is_short = set(raw.aside()), {*raw.zset("short")}
        frontier = self._frontiers[fence.session]
        call = frontier.return_claims(fence, [(one, at) for one in claims], aside=Aside(origin, due_ms, since_ms))
        (outcome,) = self._do(frontier.end([call]))
        assert outcome is (AckOutcome.FENCED if self._untouched else AckOutcome.COMMITTED)
        if not counts:
            return
        claimed = {one.fingerprint for one in claims}
        swept = set(self._raw_of(self._dump(), claim.partition).aside()) - before - claimed
        stop = model.queue(claim.queue)
        best = {
            f for user, head in heads.items() for f in head
            if origin_of(model.urls[f].candidate.url) == origin and not stop.defers(user)
        }  # fmt: skip
        if model.queue(claim.queue).is_deferred:
            assert not swept, "they are deferred, and stay so"
        elif not is_short and not self._spilled_of(claim.partition):
            assert best <= swept, "the next ones to be handed out are of this origin"
        back = {f for f in claimed if stop.stop == "pages" and stop.defers(model.urls[f].user)}
        for f in back:
            model.give_back(f)
        if claimed - back:
            model.set_aside(claim.queue, origin, claimed - back, swept, due_ms, since_ms)
        model.settle(claim.queue, at, -1)

    @rule(
        partition=partitions, index=some, off=moments, is_good=st.booleans(),
        due=st.sampled_from((None, None, 0, 700)),
    )  # fmt: skip
    def recall(self, partition: int, index: int, off: int, is_good: bool, due: int | None) -> None:
        """Of an origin that has some, if there is one."""
        model, fence = self._models[partition], self._owner(partition, off)
        known = sorted((u.candidate.queue, origin_of(u.candidate.url)) for u in model.urls.values())
        aside = model.in_state(State.ASIDE)
        some = sorted((u.candidate.queue, origin_of(u.candidate.url)) for f, u in model.urls.items() if f in aside)
        pool = some or known
        if not fence.session or not pool:
            return
        queue, origin = pool[index % len(pool)]
        due_ms = RECALLED if due is None else max(1, self._now + due)
        frontier = self._frontiers[fence.session]
        outcome = self._do(frontier.recall(fence, queue, origin, is_good=is_good, due_ms=due_ms))
        held = self._is_held(fence)
        assert outcome is (AckOutcome.COMMITTED if held else AckOutcome.FENCED)
        if held:
            model.recall(queue, origin, is_good=is_good, due_ms=due_ms)
