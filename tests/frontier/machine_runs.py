"""What holds of runs after each step of the frontier's state machine."""

from collections import Counter
from collections.abc import Iterable

from crawler.rules.job_runs import RunCounts
from tests.frontier.model import PartitionModel
from tests.frontier.model_urls import PENDING, UNENDED, State
from tests.frontier.raw import RawPartition


def check_runs(model: PartitionModel, raw: RawPartition, runs: Iterable[str]) -> None:
    """Each run has its own seen-set and counts, and leaves nothing behind when it is closed."""
    meta = raw.hash("m")
    dropped = 0
    for run in runs:
        mine, seen, depths = model.of_run(run), raw.seen(run), raw.depths(run)
        assert int(meta.get(f"seen{run}", 0)) == len(seen)
        known = {f: model.urls[f].depth for f in model.in_state(*UNENDED) & mine}
        if run not in model.closed:
            assert seen == mine
            assert depths == known
            assert raw.run_counts(run) == (tuple(counts_of(model, mine)) if mine else None)
            continue
        assert seen <= mine
        assert depths.items() <= known.items()
        dropped += len(mine - seen)
        if f"buckets{run}" not in meta:
            assert (seen, depths, raw.run_counts(run), meta.get(f"seen{run}")) == (set(), {}, None, None)
    assert int(meta.get("dropped", 0)) == dropped
    pending = [u for u in model.urls.values() if u.candidate.run and u.state in PENDING]
    deferred = [u for u in pending if u.state is State.QUEUED and model.queue(u.candidate.queue).is_deferred]
    assert int(meta.get("run_added", 0)) - int(meta.get("run_done", 0)) == len(pending) - len(deferred)
    assert set(raw.zset("closed")) == model.closed
    for name in model.names():
        waiting = Counter(run for f in model.of_queue(name, State.QUEUED) if (run := model.urls[f].candidate.run))
        assert raw.numbers(f"j:{name}") == waiting


def counts_of(model: PartitionModel, mine: Iterable[str]) -> RunCounts:
    urls = [model.urls[f] for f in mine]
    states = Counter(u.state for u in urls)
    pages = [u.status for u in urls if u.state is State.COMMITTED]
    classes = Counter(status // 100 for status in pages)
    stopped = [u for u in urls if u.state is State.QUEUED and model.queue(u.candidate.queue).is_deferred]
    return RunCounts(
        added=len(urls), done=states[State.COMMITTED] + states[State.REFUSED], dead=states[State.DEAD],
        deferred=len(stopped), refused=states[State.REFUSED], s2=classes[2], s3=classes[3], s4=classes[4],
        bytes=100 * len(pages), retries=sum(u.retries for u in urls),
    )  # fmt: skip
