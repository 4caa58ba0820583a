"""What people do with dead letters, as a step of the frontier's state machine, and what letters hold."""

import json

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from crawler.frontier.codec import DeadLetter, unpack_letter
from crawler.frontier.dead_letters import DeadLetters, StoredLetter
from crawler.frontier.states import State
from tests.frontier.machine import FrontierSteps, sessions, some
from tests.frontier.model import PartitionModel
from tests.frontier.raw import RawPartition


class LetterSteps(FrontierSteps):
    """Letters are put back and thrown away, at any time and by anybody."""

    @precondition(lambda self: self._deliveries)
    @rule(index=some, session=sessions, is_back=st.booleans())
    def people_revive_or_discard(self, index: int, session: str, is_back: bool) -> None:
        """A URL that has a letter, if there is one; sometimes by a letter that was read before it went."""
        dead = [f for model in self._models.values() for f in sorted(model.in_state(State.DEAD))]
        known = dead or [d.claim.fingerprint for d in self._deliveries]
        fp = known[index % len(known)]
        partition, model = next((p, m) for p, m in self._models.items() if fp in m.urls)
        url = model.urls[fp]
        c, attempts = url.candidate, url.attempts
        letter = DeadLetter(
            url=c.url, queue=c.queue, domain=c.domain, depth=url.depth, reason="dns_error", detail="",
            attempts=attempts, failed_at=1.0, score=c.score, label=c.label, request=c.request,
            run=c.run, user=url.user,
        )  # fmt: skip
        stored = [StoredLetter(partition=partition, fingerprint=fp, letter=letter)]
        letters = DeadLetters(self._frontiers[session], len(self._models))
        if is_back:
            changed, expected = self._do(letters.requeue(stored)), model.revive(fp)
        else:
            changed, expected = self._do(letters.discard(stored, "purged")), model.discard(fp, reason="purged")
        assert changed == expected
        self._untouched = not changed

    def _check_states(self, model: PartitionModel, raw: RawPartition) -> None:
        """Also: each failed attempt of a URL is kept while it is pending, and then in its letter."""
        super()._check_states(model, raw)
        letters = {fp: unpack_letter(stored.encode()) for fp, stored in raw.hash("dead").items()}
        failures = {fp: [failure.kind for failure in letter.failures] for fp, letter in letters.items()}
        failures |= {fp: [kind for _, kind, _ in json.loads(f"[{text}]")] for fp, text in raw.hash("a").items()}
        assert failures == {fp: u.failures for fp, u in model.urls.items() if u.failures or fp in letters}
