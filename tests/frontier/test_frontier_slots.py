"""Every script stays in one slot, so that the same code runs on a cluster."""

import contextlib
from typing import Any

from redis.crc import key_slot

from crawler.frontier.arguments import ForgetQueueArgs
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import DeadLetter, pending_url
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.deferred import ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.jobs import Jobs, job_id
from crawler.frontier.leases import SlotRequest
from crawler.frontier.members import Member, Members
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.operator import Purge
from crawler.frontier.operator_log import Actor, OperatorLog, Via
from crawler.frontier.owner import Aside, Settlement
from crawler.frontier.pending import HEAD, Found
from crawler.frontier.restore import DoneUrl, Restoring, SeenUrl
from crawler.frontier.runs import Runs
from crawler.frontier.scripts import NAMES
from crawler.frontier.spilling import Spilling
from crawler.frontier.stats import Stats
from crawler.instance.raised_budgets import RaisedBudgets
from crawler.model import Request
from crawler.rules.cron import schedule_of
from crawler.rules.job_plan import created, plan
from crawler.rules.jobs import JobSpec
from crawler.rules.urls import origin_of
from tests.frontier.door import HASH_KEY, Door, found
from tests.frontier.raw import dump


async def test_every_key_of_a_script_falls_in_one_slot(door: Door) -> None:
    """All scripts run on one partition and the crawl's own keys; every key there is has one of two slots.

    What scripts only read, the cluster judges: a script with `#!lua` that touches keys of two slots fails there.
    """
    ran = await run_all_scripts(door)
    assert ran == set(NAMES)
    keys: set[bytes] = set()
    for client in door.nodes():
        with contextlib.closing(client):
            keys |= set(dump(client, "*"))
    assert len(keys) > 10
    partition = {k for k in keys if k.startswith(b"{t:0}:")}
    assert {key_slot(k) for k in partition} == {key_slot(b"t:0")}
    k = door.keys
    crawl_wide = (k.jobs, k.members, k.nodes, k.returns, k.evicted, k.operator_log, k.crawl)
    assert keys - partition <= {key.encode() for key in crawl_wide}
    assert key_slot(door.keys.members.encode()) == key_slot(door.keys.nodes.encode())


async def run_all_scripts(door: Door) -> set[str]:
    """Each of them once with an effect; the names of those that ran."""
    ran: set[str] = set()
    plain = door.engine.run_many

    async def noting(calls: Any) -> Any:
        ran.update(c.name for c in calls)
        return await plain(calls)

    door.engine.run_many = noting
    members, me = Members(door.engine, door.keys), Member(session="ann", node="n", counter=1)
    await members.join(me)
    await members.heartbeat(me)
    await door.acquire()
    await door.add(*(found(i, host=f"h{i}.test", request=Request(method="POST")) for i in range(5)))
    await door.slot_queue.borrow(0, "z.test", SlotRequest(waiter="g"))
    await door.slot_queue.release(0, "z.test", "g")
    door.now = 3000
    door.frontier.is_limited = True
    one, two, three, four, five = claims = await door.claim()
    await door.frontier.extend_claims({0: (door.fence, claims)}, visibility_ms=1000)
    await door.frontier.note_sent(door.fence, one)
    await door.frontier.store_jar(door.fence, "a.test ", b"sealed")
    await door.frontier.record_crash("dan", {0: [one.fingerprint]})
    await door.ack(one, found("child"))
    s = Settlement(next_fetch_ms=0)
    letter = DeadLetter(
        url="http://odd.test/x", queue="h2.test", domain="h2.test", depth=1, reason="tls", detail="", attempts=1,
        failed_at=1.0,
    )  # fmt: skip
    await door.frontier.end(
        [
            door.frontier.retry(door.fence, two, s, due_ms=5, kind="tls"),
            door.frontier.dead_letter(door.fence, three, s, letter),
            door.frontier.refuse(door.fence, four, "scope"),
            door.frontier.defer(door.fence, five, "trap:path"),
        ]
    )
    door.now = 9000
    claims = await door.claim()
    origin = origin_of(claims[0].url)
    aside = Aside(origin, 10_000, 0)
    await door.frontier.end([door.frontier.return_claims(door.fence, [(claims[0], 0)], aside=aside)])
    await door.frontier.recall(door.fence, claims[0].queue, origin, is_good=True)
    await door.return_claims(*claims[1:], *await door.claim())
    await door.frontier.book_request(door.fence, "h1.test", s, origin="o", robots=b"r")
    assert await door.frontier.robots(0, "o") == b"r"
    await DeferredUrls(door.frontier, 1).change_queues(0, [QueueChange("h1.test", ChangeKind.STOP, "blocked")])
    await Purge(door.frontier, DeferredUrls(door.frontier, 1)).purge(0, "h1.test")
    await door.engine.run("forget_queue", (door.keys.meta(0),), *ForgetQueueArgs("h1.test"))
    await door.engine.run("locate", (door.keys.meta(0),), 0, "1", 1, "q")
    await BulkLookup(door.engine, door.keys, 1).of({0: [one.fingerprint]})
    await Stats(door.engine, door.keys, 1).domains_by_name("", 1)
    await door.frontier.drain_log([(door.fence, await door.frontier.undrained(0))])
    letters = DeadLetters(door.frontier, 1)
    (dead,) = [one async for some in letters.read() for one in some]
    assert await letters.requeue([dead]) + await letters.discard([dead], "purged") == 1
    await restored(door)
    await spilled(door)
    await admitted(door)
    await of_a_run(door)
    await of_a_job(door)
    await door.leases.raise_sequences({0: 90})
    await door.leases.release([door.fence])
    await members.join(Member(session="cyd", node="m", counter=1))
    await members.leave(me)
    assert await OperatorLog(door.engine, door.keys).add(Actor(who="ann", via=Via.CLI), "pause") == 1
    await door.engine.command("HSET", door.keys.crawl, "record", "old")
    assert await door.engine.run("replace_record", (door.keys.crawl,), "old", "new") == [b"COMMITTED"]
    return ran


async def admitted(door: Door) -> None:
    door.frontier.add_budget = AddBudget(hosts=1)
    await door.add(found("1", host="n.test"), found("2", host="n.test", url="http://2.n.test/"))
    door.frontier.add_budget = AddBudget(hosts=2)
    assert await RaisedBudgets(door.frontier, DeferredUrls(door.frontier, 1), FetchBudget()).release([0]) == 1


async def of_a_run(door: Door) -> None:
    run, runs = "job.0.0", Runs(door.engine, door.keys, 1)
    await door.engine.command("HSET", door.keys.of(0, "runs"), run, "{}")
    assert await runs.touch(run, [0], ["any:*"])
    await runs.close([(run, 0)])


async def of_a_job(door: Door) -> None:
    jobs = Jobs(door.engine, door.keys, 1, rows_max=5)
    spec = JobSpec(schedule=schedule_of(every="10", now_s=1), seeds_kept=1, seeds_key="k")
    job = created(job_id("ann", "news"), "ann", "news", spec, 1.0)
    await jobs.keep_seeds(job.id, "k", ["http://a.test/"])
    await jobs.create(job, due=None)
    await jobs.change(await jobs.find("ann", "news"), plan(job, 11.0), door.fence)


async def spilled(door: Door) -> None:
    await door.add(*(found(f"long{i}", host="long.test") for i in range(200)))
    spilling = Spilling(door.engine, door.keys, default_delay_ms=0)
    (block,) = await spilling.worst(0, "long.test", 1)
    assert await spilling.spill(door.fence, [(block, ("file", 0, 1))]) == 1
    (stub,) = await spilling.next_stubs([(0, "long.test")])
    assert stub is not None
    await spilling.unspill([(0, "long.test", stub, block.urls)])


async def restored(door: Door) -> None:
    done = DoneUrl(fingerprint="77", partition=0, domain="h.test", queue="h.test", status=200, body_bytes=1, fetch_ms=1)
    restoring = Restoring(door.engine, door.keys, hash_key=HASH_KEY)
    await restoring.hold(1)
    assert await restoring.restore([done]) == 1
    assert await restoring.mark_seen([SeenUrl("78", 0, "h.test", "h.test")], "imported") == 1
    assert await restoring.pending({0: ["77"]}) == {}
    await restoring.withdraw([(Found(pending_url("h.test", "h.test", 0, "!####/", ""), "h.test", HEAD, "!/"), done)])
    await restoring.count_items("change", [(1, 0, "h.test", "", 3)])
    assert await restoring.reopen([done]) == 1
