"""What holds after each step of the frontier's state machine: the engine's keys say what the model says."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from crawler.frontier.bulk import MOVING
from crawler.frontier.states import MOVES, State
from crawler.rules.urls import origin_of
from tests.frontier.model import PartitionModel
from tests.frontier.model_urls import (
    BLOCK,
    IDLE_MS,
    NAMES_MAX,
    OUT_MAX,
    TOP_MAX,
    UNENDED,
    USERS,
    row_of,
    rows_of,
)
from tests.frontier.raw import RawPartition, is_aside, is_row

LEASE = ("session", "node", "epoch", "engine", "hash_key")
SIZES = ("top_min", "hn", "hb", "yn", "yb", "nn", "nb", "en", "eb")  # of stores
OF_USERS = ("users", "turns")
RUN_PARTS = ("run_added", "run_done")  # see check_runs


def check_states(model: PartitionModel, raw: RawPartition) -> None:
    """I3 and I4: each URL ever added is in one place, and that is the place where the model has it."""
    assert set(raw.queued()) == model.in_state(State.QUEUED)
    check_aside(model, raw)
    assert set(raw.zset("x")) == tokens(model, State.CLAIMED)
    assert set(raw.zset("r")) == tokens(model, State.RETRYING)
    delivered = model.in_state(State.CLAIMED, State.RETRYING)
    urls = {f: model.urls[f] for f in delivered}
    assert raw.delivered() == {url.token: (f, url.score, url.user) for f, url in urls.items()}
    scheduled = model.in_state(State.SCHEDULED)
    assert raw.scheduled() == {f: (model.urls[f].until_ms, model.urls[f].score) for f in scheduled}
    assert set(raw.hash("dead")) == model.in_state(State.DEAD)
    assert {k: v.split()[0] for k, v in raw.hash("l").items()} == model.log
    assert max(model.committed.values(), default=1) == 1
    assert raw.seen("") == model.of_run("")
    unended = model.in_state(*UNENDED)
    assert raw.depths("") == {f: model.urls[f].depth for f in unended & model.of_run("")}
    assert raw.hosts() == {domain: set(hosts) for domain, hosts in model.hosts.items() if hosts}
    noted = {f: f"{u.deaths} {u.died_with}" for f, u in model.urls.items() if u.deaths}
    assert raw.hash("k") == noted
    for f in model.in_state(State.RETRYING, State.CLAIMED):
        url = model.urls[f]
        assert raw.zset("r" if url.state is State.RETRYING else "x")[url.token] == url.until_ms


def check_moves(before: dict[str, State], model: PartitionModel) -> dict[str, State]:
    """Each URL is where it was, or moved as the table says; where all are now. A claim first puts back what is due."""
    now = {f: url.state for f, url in model.urls.items()}
    for f, state in now.items():
        was = before.get(f, State.UNSEEN)
        moves = {(was, state)}, {(was, State.QUEUED), (State.QUEUED, state)}
        assert was is state or any(some <= MOVES.keys() for some in moves), f"{f}: {was} -> {state}"
    return now


def check_aside(model: PartitionModel, raw: RawPartition) -> None:
    """What is set aside is in the row of its origin, which is due when the model says, and is counted there."""
    aside = {f: model.urls[f] for f in model.in_state(State.ASIDE)}
    rows = {f: f"{url.candidate.queue}|!{origin_of(url.candidate.url)}" for f, url in aside.items()}
    assert raw.aside() == {f: (rows[f], url.score, url.user) for f, url in aside.items()}
    n = Counter(rows.values())
    for name, silences in model.silences.items():
        assert raw.zset(f"aside:{name}") == {origin: one.due_ms for origin, one in silences.items()}
        for origin, one in silences.items():
            row = raw.record(f"{name}|!{origin}")
            assert (row["n"], row.get("since")) == (n[f"{name}|!{origin}"], one.since_ms)
    assert {name for name in raw.under("w:") if is_aside(name)} == {*n}
    assert set(raw.under("aside:")) == {name.partition("|")[0] for name in n}
    due = {name: queue.aside_ms for name, queue in model.queues.items() if queue.aside_ms is not None}
    assert raw.zset("aside") == due


def tokens(model: PartitionModel, state: State) -> set[str]:
    return {model.urls[f].token for f in model.in_state(state)}


def check_examples(model: PartitionModel, raw: RawPartition, meta: Mapping[str, str]) -> None:
    """An example of dead letters is one of them, one of deferred URLs a queue that has some; each loss was met."""
    dead = {(f"dead:{u.dead_for}", u.candidate.url) for f in model.in_state(State.DEAD) if (u := model.urls[f])}
    rows = {(name.partition("|")[0], name.partition("|")[2].partition(":")[0]) for name in raw.hash("deferred")}
    for total, example in raw.hash("losses").items():
        assert int(meta[total]) > 0
        kind, _, reason = total.partition(":")
        assert kind != "dead" or (total, example) in dead
        assert kind != "deferred" or (example, reason.partition(":")[0]) in rows


def check_counters(model: PartitionModel, raw: RawPartition) -> None:
    meta = raw.hash("m")
    check_examples(model, raw, meta)
    assert (meta.get("session", ""), int(meta.get("epoch", 0))) == (model.session, model.epoch)
    assert int(meta.get("clock", 0)) == model.clock
    assert (int(meta["hold"]) if "hold" in meta else None) == model.hold
    others = (
        "clock",
        "hold",
        "request",
        "dropped",
        "spilled",
        "spilled_deferred",
        "boosts",
        "moves",
        "run_added",
        "run_done",
    )
    sets = (name for name in meta if name.startswith(("seen", "buckets", "split")))
    assert raw.numbers("m", *LEASE, *SIZES, *others, *RUN_PARTS, *sets, *OF_USERS) == model.totals_view()
    assert int(meta.get("seen", 0)) == len(model.of_run(""))
    for name in model.counts:
        clock = ("next", "delay", "borrower", "borrower_seen", "waiter", "blocks", "domain", "stop", "boost")
        assert raw.numbers(f"w:{name}", *clock, *OF_USERS) == model.queue_view(name)
    pages, top = {name: counts["s2"] for name, counts in model.counts.items()}, raw.zset("top")
    assert top == {name: pages[name] for name in top}
    assert sorted(top.values(), reverse=True) == sorted(pages.values(), reverse=True)[:TOP_MAX]


def check_names(model: PartitionModel, raw: RawPartition) -> None:
    """The index has each queue that was ever added to, once, in order and in small blocks."""
    blocks = raw.names()
    assert [name for block in blocks for name in block] == sorted(model.counts)
    assert max(map(len, blocks)) <= NAMES_MAX


def check_marks(before: RawPartition, raw: RawPartition) -> None:
    """Who counts URLs where they lie, one place after another, can tell whether some moved meanwhile."""
    if places(before) != places(raw):
        assert marks(before) != marks(raw)


def places(raw: RawPartition) -> list[object]:
    """Blocks with their members, stubs, deliveries; and the queues that stand elsewhere than among the ready ones."""
    blocks = {key: set(raw.zset(key)) for key in raw.keys if key.startswith(("q:", "b:"))}
    stubs = {key: {name for name in raw.zset(key) if " " in name} for key in raw.keys if key.startswith("t:")}
    stubs = {k: v for k, v in stubs.items() if v}
    return [blocks, stubs, set(raw.hash("u")), set(raw.zset("at")), raw.hash("stops"), raw.zset("boosts")]


def marks(raw: RawPartition) -> list[str | None]:
    return [raw.hash("m").get(name.decode()) for name in MOVING]


def check_queues(model: PartitionModel, raw: RawPartition, spilled: Collection[str]) -> None:
    ready, names = raw.ready(), set(model.names())
    assert {name for name, _ in ready} <= names
    stored: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for f, (row, score, _) in raw.in_blocks().items():
        stored[row].append((score, f))
    for entries in stored.values():
        entries.sort(reverse=True)
    for name in names:
        w = raw.record(name)
        queue = model.queue(name)
        if w.get("next") == 0 and queue.next_ms + IDLE_MS <= model.clock:
            queue.next_ms = 0  # it was packed meanwhile: a time long past is forgotten, and nobody waits for it
        assert w.get("next", 0) == queue.next_ms
        assert w.get("delay", -1) == (-1 if queue.delay_ms is None else queue.delay_ms)
        assert int(w.get("out", 0)) == model.out(name)
        assert (w.get("stop", ""), raw.hash("stops").get(name, "")) == (queue.stop, queue.stop)
        assert (w.get("borrower", ""), w.get("waiter", "")) == (queue.borrower, queue.waiter)
        for user in ("", *USERS):
            row, one = row_of(name, user), (name, user)
            if model.out(name) < OUT_MAX and raw.zset(f"q:{row}"):
                assert (one in ready) == model.is_claimable_by(name, user), f"{one}: asleep or awake against the rule"
            if one in ready:
                assert model.of_row(name, user), f"{one} has no URLs"
                assert ready[one][0] <= max(model.due_ms(name), model.clock), "would wake too late"
                assert ready[one][1] == queue.boost
            check_blocks(raw, row, stored[row], of_urls(model, model.of_row(name, user)), is_exact=row not in spilled)
        for origin in model.silences.get(name, {}):
            row = f"{name}|!{origin}"
            check_blocks(
                raw, row, stored[row], of_urls(model, model.aside_of(name, origin)), is_exact=row not in spilled
            )
    check_spilled(raw)
    aside = {f"{name}|!{origin}" for name in names for origin in origins_of(model, name)}
    assert set(raw.zset("short")) <= {row for name in names for row in rows_of(name)} | aside
    boosts = {name: queue.boost for name, queue in model.queues.items() if queue.boost}
    assert raw.zset("boosts") == boosts
    assert [int(n) for n in raw.hash("m").get("boosts", "").split()] == sorted({*boosts.values()}, reverse=True)


def check_users(model: PartitionModel, raw: RawPartition) -> None:
    """What is counted of users is what waits, in the partition and in each queue; turns are kept while some wait."""
    users = model.users()
    assert raw.hash("users") == {user: str(n) for user, n in users.items()}
    assert int(raw.hash("m").get("users", 0)) == users.total()
    assert users or "turns" not in raw.hash("m")
    for name in model.names():
        w = raw.record(name)
        known = {user: len(model.of_row(name, user)) for user in USERS}
        stored = {user: of if isinstance(of, int) else of[0] for user, of in w.get("users", {}).items()}
        assert stored == {user: n for user, n in known.items() if n}
        assert "turns" not in w or w["n"]


def origins_of(model: PartitionModel, name: str) -> set[str]:
    return {origin_of(url.candidate.url) for url in model.urls.values() if url.candidate.queue == name}


def of_urls(model: PartitionModel, waiting: Sequence[str]) -> list[tuple[int, str]]:
    return [(model.urls[f].score, f) for f in waiting]


Entries = Sequence[tuple[int, str]]


def check_blocks(raw: RawPartition, name: str, stored: Entries, waiting: Entries, *, is_exact: bool) -> None:
    """The URLs of a row lie in small blocks, in order; the best one is there if there are any."""
    assert stored == waiting
    index = [pair for pair in raw.zset(f"t:{name}").items() if " " not in pair[0]]
    index.sort(key=lambda pair: (pair[1], pair[0]), reverse=True)
    assert {f"b:{name}:{block}" for block, _ in index} == {key for key in raw.keys if key.startswith(f"b:{name}:")}
    assert bool(raw.zset(f"q:{name}")) == bool(waiting) or name in raw.zset("short")
    lowest = float("inf")
    for key, highest in [(f"q:{name}", float("inf")), *((f"b:{name}:{block}", most) for block, most in index)]:
        scores = sorted(raw.zset(key).values())
        assert len(scores) <= BLOCK
        if scores:
            assert scores[-1] <= (min(highest, lowest) if is_exact else highest), (
                f"{key} holds what belongs into a better block"
            )
            lowest = scores[0]


def is_kept_in_memory(name: str) -> bool:
    """Rows whose URLs are looked for one by one: no spiller is told of them."""
    reason = name.partition("|")[2]
    return reason == "hosts" or reason.startswith("depth:")


def check_spilled(raw: RawPartition) -> None:
    """What the engine counts of blocks, of queues and of rows of deferred URLs, is what there is of them."""
    found = Counter[str]()
    for long, spilled, is_deferred in (("long", "spilled", False), ("long:deferred", "spilled_deferred", True)):
        index = {name: raw.zset(f"t:{name}") for name in raw.under("t:") if is_row(name) == is_deferred}
        in_memory = {name: sum(" " not in block for block in blocks) for name, blocks in index.items()}
        stubs = [stub.split(" ") for name in index for stub in raw.stubs(name)]
        assert raw.zset(long) == {name: n for name, n in in_memory.items() if n and not is_kept_in_memory(name)}
        assert int(raw.hash("m").get(spilled, 0)) == sum(int(urls) for *_, urls in stubs)
        found += Counter(file for _, file, *_ in stubs)
    assert raw.numbers("files") == found
