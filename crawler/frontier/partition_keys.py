"""The keys of a partition, the fields of its meta hash, and what is in the record of a queue.

The order of `QUEUE_NUMBERS` is that of the packed record: the codec and the scripts take their positions from here.
`Keys.of` makes the whole names. Times are ms on the partition's clock unless it says otherwise. Words in capitals
stand for what varies: QUEUE is the name of a queue, or of a row beside it, `QUEUE|WHY`; RUN is the id of a run, and
empty for the crawl itself; BUCKET is a number, or `split` for the values of a bucket that is being split
(lua/_buckets.lua).
"""

from crawler.frontier.keys import Field, Key

# What puts URLs into queues or takes them out.
MOVERS = "add, ack, claim, return_claims, defer, admit_hosts, change_queues, requeue_dead, purge, restate"

QUEUE_NUMBERS = (
    Field("next", "when its next request may start, by what is known: its politeness clock"),
    Field("delay", "between two requests (ms); -1: no robots.txt was read for it yet"),
    Field("out", "URLs that are claimed"),
    Field("n", "URLs in its blocks, those of all users; deferred ones of a stopped queue, too"),
    Field("retrying", "URLs that wait for a retry"),
    Field("blocks", "how many ids its blocks were ever given; 0 again when none is left"),
    Field("urls", "URLs that ever came in, of the crawl and of runs"),
    Field("s2", "pages with a status of 2xx; the order of the key top"),
    Field("bytes", "of bodies of committed pages"),
    Field("fetch_ms", "the sum over committed pages"),
)
QUEUE_MAP = (  # behind the numbers, a map; what is 0 or not so is left out
    Field("domain", "its domain, if that is not its name"),
    Field("stop", "why none of its URLs is handed out: paused, blocked, pages or bytes; the key stops lists it"),
    Field("boost", "its boost, from -9 to 9, if it is not 0"),
    Field("at", "how many of its URLs are scheduled; they are not in n"),
    Field("aside", "how many are set aside, because their origins do not answer; they are not in n"),
    Field("quick", "how many a claim hands out at once, because many ended without an answer"),
    Field("users", "user → URLs in its row, or [URLs, block ids]; absent where only the crawl has URLs"),
    Field("turns", "start tags of users: whose turn it is"),
    Field("borrower", "the mark of a session that was granted a request; done: before it, once that has ended"),
    Field("borrower_seen", "when the owner first saw that mark, or left a turn to a waiter"),
    Field("waiter", "the borrower that waits for a turn; - from a grant until the owner has had one"),
    Field(
        "free:REASON",
        "1: people released URLs of this reason; none is deferred for it again (rights: of its domain)",
    ),
    Field("since", "of a row QUEUE|!ORIGIN only: since when the origin has been silent"),
    Field("sN", "answers by class of status: s0 (sitemaps), s1, s3, s4, s5, s9 (requisites)"),
    Field("retries", "failed attempts that were followed by another"),
    Field("dead", "dead letters that there are"),
    Field("e:FAILURE", "failed attempts, by how they failed"),
    Field("refused:REASON", "URLs that ended unfetched; of committed pages refused:redirects"),
    Field("items", "what handlers yielded"),
    Field("items_invalid", "what of that was left out"),
    Field("lost:REASON", "what is missing of committed pages"),
    Field("unchanged", "pages that were not sent again, because an earlier run has them"),
    Field("named", "URLs of pages that sitemaps of runs have"),
    Field("run_urls", "the part of urls that is of runs: budgets leave it out"),
    Field("run_fetched", "pages of runs, without sitemaps: budgets leave them out"),
    Field("run_bytes", "the part of bytes that is of runs"),
    Field("requisites", "the part of urls that is of requisites: budgets of URLs leave it out"),
    Field("requisite_bytes", "of bodies of requisites; they are not in bytes"),
    Field("requisite_robots", "robots.txt files that were read for requisites"),
    Field("duplicates", "pages whose body is in another record"),
    Field("duplicate_bytes", "of these bodies"),
)

META = (
    # The lease and the clock.
    Field("session", "who holds the lease; empty: nobody", "acquire, release_lease"),
    Field("node", "of the session that holds it, or held it last", "acquire"),
    Field("epoch", "fencing token: each acquire raises it, and nothing lowers it", "acquire"),
    Field("engine", "run id of the engine when it was acquired: claim refuses to go on with another", "acquire"),
    Field("hold", "the time of the takeover: no queue is due before it plus its delay",
          "acquire; crawler rebuild, move and restore"),
    Field("clock", "the partition's time; it only grows, and stands still while nobody owns it", "every fenced script"),
    Field("born", "1, on a cluster: a partition without it was wiped", "record.py; recovery/arrival.py"),
    Field("hash_key", "of the crawl, as hexadecimal text: goes before names that are hashed", "acquire, add, restate"),
    Field("request", "id of the last claim: one with the same id gets the same batch", "claim"),
    # What is counted.
    Field(
        "added", "URLs that came in, and those that left an end: these are added once more; only grows",
        "add, ack, restate; leave (lua/_states.lua)",
    ),
    Field("done", "URLs that ended; only grows. added less done is what is pending", "enter (lua/_states.lua)"),
    Field("deferrals", "how often a URL was deferred", "enter"),
    Field("released", "how often a URL left the deferred ones", "leave"),
    Field("revived", "how often a dead letter or a page left its end: put back, discarded, forgotten", "leave"),
    Field("dead", "dead letters that there are now", "enter, leave"),
    Field("dead:REASON", "the same by reason", "enter, leave"),
    Field("deferred:REASON", "deferred URLs that there are now; a reason depth:N counts as depth", "enter, leave"),
    Field("refused:REASON", "URLs that ended unfetched; of committed pages refused:redirects", "enter; ack"),
    Field("scheduled", "URLs that wait for a wall time now; they are pending", "enter, leave"),
    Field("beyond", "URLs that are deferred as crawl:urls now", "whatever defers or releases"),
    Field("spilled", "URLs of queues that are in files; they are queued, and pending", "spill, unspill, change_queues"),
    Field("spilled_deferred", "deferred URLs that are in files", "spill, unspill, change_queues"),
    Field("sequence", "number of the last commit; index lines keep theirs, so an engine that was set back is noticed",
          "ack; raise_sequence after a loss"),
    Field("sN", "commits by class of status; s0 is of sitemaps, s9 of requisites", "ack, restate"),
    Field("bytes", "of bodies of committed pages", "ack, restate"),
    Field("retries", "failed attempts that were followed by another", "retry"),
    Field("e:FAILURE", "failed attempts, by how they failed", "retry, dead_letter"),
    Field("expired", "claims that were put back because their time was over, or their owner dead", "claim"),
    Field("items", "what handlers yielded", "ack, restate, count_items"),
    Field("items_invalid", "what of that was left out", "ack"),
    Field("lost:REASON", "what is missing of committed pages", "ack, restate"),
    Field("handled:NAME", "committed pages that went to the handler of this name", "ack"),
    Field("unchanged", "pages that were not sent again, because an earlier run has them", "ack"),
    Field("duplicates", "pages whose body the archive has from another page", "ack"),
    Field("duplicate_bytes", "bytes of these bodies", "ack"),
    Field("named", "URLs of pages that sitemaps of runs have", "ack"),
    Field("recounted", "id and last number of the changes of items that were counted last (msgpack)", "count_items"),
    Field("forgotten", "pages of forgotten domains that no line of an index made unseen again: the totals have them",
          "forget_queue"),
    Field("queues", "queues that URLs were ever added to", "add, ack, restate"),
    Field("run_added", "the part of added that is of runs, also of closed ones", "whatever counts URLs of runs"),
    Field("run_done", "the part of done that is of runs", "whatever counts URLs of runs"),
    Field("run_urls", "URLs of runs that ever came in: budgets leave them out", "add, ack, restate"),
    Field("run_pages", "commits of all runs, also of closed ones", "ack, restate"),
    Field("run_fetched", "the same without sitemaps: budgets leave them out", "ack, restate"),
    Field("run_bytes", "the part of bytes that is of runs", "ack, restate"),
    Field("requisites", "requisites that ever came in: budgets of URLs leave them out",
          "add, ack, restate, requeue_dead"),
    Field("requisite_bytes", "of bodies of requisites; they are not in bytes", "ack, restate"),
    Field("requisite_robots", "robots.txt files that were read for requisites", "ack"),
    Field(
        "moves", "how often URLs moved within the partition otherwise than by a claim; only grows. So a count of URLs "
        "can tell whether some were in two places, or in none, meanwhile",
        "claim, return_claims, defer, change_queues, spill, unspill, add",
    ),
    # What keys of the partition have.
    Field("users", "URLs of users that wait in queues: the sum of the key users; absent for none", MOVERS),
    Field("turns", "start tags of users (msgpack): whose turn it is in the partition", "claim"),
    Field("boosts", "the boosts that queues have here, highest first; absent for none", "change_queues"),
    Field("top_min", "the least of the key top while that is full", "ack, restate"),
    Field("seenRUN", "members of the seen-set of a run", "add, ack, restate, requeue_dead; removed by close_run"),
    Field("bucketsRUN", "its buckets; absent for one", "add, ack, restate, requeue_dead; removed by close_run"),
    Field("dropped", "members of the seen-sets of runs that were closed: added still counts them", "close_run"),
    Field("splitNAME", "1 while a bucket of this seen-set (RUN) or compact store (h, y, n, e) is being split",
          "whatever adds to it"),
    Field("hn", "values in the compact store h", "claim; scripts that need a record of it"),
    Field("hb", "its buckets; absent for one", "claim"),
    Field("yn", "values in the compact store y", "book_request"),
    Field("yb", "its buckets", "book_request"),
    Field("nn", "values in the compact store n", "add, ack, admit_hosts"),
    Field("nb", "its buckets", "add, ack, admit_hosts"),
    Field("en", "values in the compact store e", "as the key e"),
    Field("eb", "its buckets", "as the key e"),
)  # fmt: skip

PARTITION: tuple[Key, ...] = (
    Key("m", "hash", "lease, clock, totals and sizes of the partition", "as each field says",
        "every script; viewers, for the totals; leases.py", fields=META),
    # URLs that were ever met.
    Key(
        "s", "set",
        "fingerprints of all URLs that ever entered, of the crawl or of an active run; integers, in buckets of some "
        "200 that split one at a time (lua/_seen.lua)",
        "add, ack, restate; requeue_dead takes some out; close_run deletes those of a run",
        "the same; locate, url_states; audits", more="RUN:BUCKET",
    ),
    Key(
        "z", "hash",
        "fingerprint → depth of URLs that are pending or deferred, only of runs and in a crawl with a limit or a "
        "budget of depth: a shorter path may be found while they wait",
        "add, ack, requeue_dead; removed by the end of the URL", "the same; depths", more="RUN:BUCKET",
    ),
    # URLs that wait.
    Key(
        "q:", "sorted set",
        "the head: the best URLs of a queue or row, at most 128. A member is a letter for the origin, a stamp (when it "
        "was queued, its seed or run, its label, what its request carries) and the path; the score is its order, and "
        "in the low bits depth, seed, redirects, attempts and deliveries (lua/_pending_url.lua). There if and only if "
        "the queue has URLs that can be handed out; the highest leaves first. In QUEUE the crawl's own, in QUEUE|@USER "
        "those of a user, in QUEUE|!ORIGIN what is set aside (before a user's URL \\x01, the user and a space), in "
        "QUEUE|REASON what is deferred (as depth:N by fingerprint, member `FINGERPRINT SCORE MEMBER`)",
        f"{MOVERS}, unspill", "claim, recall; pending.py for audits, explain and operators",
        more="QUEUE",
    ),
    Key("b:", "sorted set", "a further block of it, at most 128 URLs that are not better than those of the head",
        "as q:QUEUE; spill deletes it", "the same; spilling.py", more="QUEUE:ID"),
    Key(
        "t:", "sorted set",
        "ids of its further blocks, by the highest score that each may hold; of equals the highest id is the oldest. "
        "Of a block in a file only this name is left, with `FILE OFFSET LENGTH URLS` behind the id",
        "as q:QUEUE; spill", "the same; spilling.py; pending.py", more="QUEUE",
    ),
    Key("g:", "hash", "letter → origin and origin → letter, for origins that do not follow from the queue's name; at "
        "most 90", "add, ack, requeue_dead", "claim, return_claims; pending.py", more="QUEUE"),
    Key(
        "w:", "string",
        "the record of a queue, msgpack: ten numbers and a map; see below. Also of rows QUEUE|REASON and "
        "QUEUE|!ORIGIN, which have URLs and blocks alone, and go with their last URL. A script reads it once and "
        "writes it once, together with those of its other queues (one MGET, one MSET)",
        "every script that changes a queue", "the same; read_queues and locate, for viewers", more="QUEUE",
        fields=(*QUEUE_NUMBERS, *QUEUE_MAP),
    ),
    Key(
        "h:", "hash",
        "idle queue → its record: without URLs, claims, retries and borrowed slots for a minute after its clock ran "
        "out. It goes back to w:QUEUE when anything happens to the queue (lua/_compact.lua)",
        "claim; scripts that need the record take it out", "read_queues, locate", more="BUCKET",
    ),
    Key("idle", "sorted set", "queues that may be idle → when their clock runs out", "whatever may leave one idle; "
        "emptied by claim", "claim"),
    Key(
        "ready", "sorted set",
        "queues without a boost that have URLs and may be claimed from → since or from when they are due (one that was "
        "empty: since it got a URL). A queue that sleeps is in none: its last claim is out, or it is stopped",
        MOVERS, "claim; owner.py and domain_lists.py: what is due",
    ),
    Key("ready:", "sorted set", "the same of queues with this boost", "the same", "the same", more="BOOST"),
    Key("ready@", "sorted set", "the same of queues in which a user has URLs; a queue may be in several of these",
        "the same", "the same", more="USER"),
    Key("ready:", "sorted set", "the same with a boost", "the same", "the same", more="BOOST@USER"),
    Key("users", "hash", "user → URLs of theirs that wait in queues; absent where only the crawl itself has any",
        MOVERS, "claim; stats.py, domain_lists.py"),
    Key("boosts", "sorted set", "queue → its boost; 0 is not listed. With queues by host also the domain, for hosts "
        "that are found later", "change_queues; add, ack for those", "add, ack; change_queues"),
    Key("at", "sorted set", "`SCORE QUEUE MEMBER` of a scheduled URL → the wall time when it becomes visible",
        "add, ack, requeue_dead; emptied by claim, 64 at a time; purge, restate", "claim; owner.py: when is something "
        "due; pending.py; stats.py"),
    Key(
        "aside:", "sorted set",
        "origin of the queue that does not answer → when one of its URLs goes back as a probe; 0: all of them do "
        "(lua/_aside.lua)",
        "return_claims, recall, claim; purge, restate, change_queues", "claim; pending.py", more="QUEUE",
    ),
    Key("aside", "sorted set", "queues with such origins → when the first of these is due; 0 for a queue that was "
        "stopped", "the same", "claim; pending.py"),
    # URLs that are claimed, or failed.
    Key(
        "u", "hash",
        "token `EPOCH.REQUEST.NUMBER` of a delivery → `SCORE ROW DOMAIN MEMBER` of a URL that is claimed or is to be "
        "retried; a token of an earlier epoch ends nothing",
        "claim, retry, note_sent; removed by the end of the claim",
        "the same; pending.py",
    ),
    Key("x", "sorted set", "token → when the claim expires; 0 once the lease under which it was made was lost",
        "claim, extend_claims, acquire; removed by the end of the claim", "claim; stats.py; explain"),
    Key("r", "sorted set", "token → when a failed URL is due again", "retry; emptied by claim; purge, restate",
        "claim; explain"),
    Key("a", "hash", "fingerprint → failed attempts of a pending URL: wall time, kind, detail cut to 100 characters "
        "(JSON, commas between)", "retry; removed by the end of the URL", "retry, dead_letter"),
    Key("k", "hash", "fingerprint → `DEATHS SESSION`: processes that died while they worked on its content",
        "record_crash; removed by the end of the URL", "claim, which tells the owner"),
    # URLs that ended.
    Key(
        "l", "hash",
        "the commit log: `FINGERPRINT:VISIT` → `TOKEN SEQUENCE ENTRY` of commits that are not yet in an index file "
        "(entry: JSON with the fields of the index line)",
        "ack; removed by drain_log, restate and repairs", "an owner that acquires; ack, url_states, locate; audits",
    ),
    Key(
        "dead", "hash",
        "fingerprint → dead letter: URL, reason, detail, number of attempts, wall time, what its place in the queue "
        "was made of, its label, and the traceback of a handler's failure (JSON; DeadLetter in codec.py); behind a "
        "line feed the attempts, as in a",
        "dead_letter; removed by requeue_dead, discard_dead", "dead_letters.py; explain, audits",
    ),
    Key(
        "deferred", "hash",
        "`QUEUE|REASON` → how many URLs are deferred: those of a rule or a budget in that row, those of a queue that "
        "is stopped by blocked, pages or bytes in its own blocks. The rows of depth:N and hosts stay in memory, "
        "because their URLs are looked for one by one",
        MOVERS, "deferred.py, pending.py, explain; change_queues, for room",
    ),
    Key("stops", "hash", "stopped queue → why: paused (its URLs stay pending), blocked, pages, bytes", "change_queues, "
        "claim", "deferred.py, pending.py; budgets that are raised"),
    Key("losses", "hash", "a total of losses (dead:…, deferred:…, lost:…, refused:…, items_invalid) → an example: the "
        "URL of the first; for what is deferred or belongs to a run its queue (lua/_losses.lua)",
        "whatever changes these totals", "stats.py"),
    # Blocks in files.
    Key("long", "sorted set", "queue or row → blocks that it has in memory behind the head", "whatever begins or ends "
        "a block", "the owner, to find what to spill"),
    Key("long:deferred", "sorted set", "the same of rows of deferred URLs, which leave first", "the same", "the same"),
    Key("short", "sorted set", "queue or row whose next block is in a file and should be brought back → since when",
        "claim, spill, restate; removed by unspill", "claim, which tells the owner"),
    Key("files", "hash", "file → how many blocks of the partition are in it", "spill, unspill", "the owner, which "
        "removes the others; moves and backups, which refuse"),
    # What else is known of queues, origins and domains.
    Key(
        "y:", "hash",
        "origin → when robots.txt was read (wall time, s) and the lines for our agent; what is too old goes when "
        "others come. Hashes of some 64 values, which the engine packs (lua/_compact.lua)",
        "book_request", "read_queues, for an owner; audits", more="BUCKET",
    ),
    Key("n:", "hash", "domain → how many of its hosts a budget of hosts admitted, and `DOMAIN LABEL` for each of them "
        "(@: the domain itself). Only with such a budget", "add, ack, admit_hosts", "the same; read_queues",
        more="BUCKET"),
    Key("jars", "hash", "`SITE SESSION` → the cookies of a session and the number of its login, sealed with the key "
        "that people gave to the machines; at most 2,000", "store_jar", "the next owner"),
    Key(
        "names", "sorted set",
        "first names of the blocks of the index of names; that of the first block is empty, and not listed. All scores "
        "are 0", "add, ack, restate, where they count queues", "names_after",
    ),
    Key("names:", "sorted set", "names of queues that were ever added to, in the order of their bytes, at most 128 in "
        "a block; a full one is split. Never removed (lua/_names.lua)", "the same", "names_after", more="FIRST"),
    Key("top", "sorted set", "the 128 queues with most pages (2xx)", "add, ack, restate", "stats.py, domain_lists.py"),
    Key(
        "busy", "hash",
        "the busiest queues lately, some 4,096 in all partitions and at least 8 in each → weight, when, the first slot "
        "of each ring, open requests, the last failure and when, the four newest slots (msgpack)",
        "drain_log", "busy.py",
    ),
    Key("v:", "string", "ring of slots of 5 s of a queue in busy: pages, bytes, 4xx, 5xx, failures; 17 bytes a slot, "
        "15 minutes. Goes when another queue takes its place", "drain_log", "busy.py", more="QUEUE"),
    Key("d:", "string", "the same in slots of 5 minutes; 22 bytes a slot, a day", "drain_log", "busy.py", more="QUEUE"),
    # Seeds, jobs and runs.
    Key(
        "e:", "hash",
        "number of a seed → what became of its descendants in this partition: added, done, dead (msgpack); id of a run "
        "→ the same of its URLs and more (RunCounts in rules/job_runs.py). Hashes like those of y",
        "add, ack, and whatever ends URLs; those of a run go with close_run", "read_queues; seeds.py; runs.py",
        more="BUCKET",
    ),
    Key("j:", "hash", "run → how many of its URLs are in the blocks of a queue: they count as deferred while the queue "
        "is blocked", MOVERS, "change_queues", more="QUEUE"),
    Key("closed", "sorted set", "runs that were closed here → when, for ten minutes: nothing is added to them",
        "close_run", "add, ack, restate, requeue_dead"),
    Key("jobs", "hash", "id of a job that has this partition as its home → a mark that changes with each step, and the "
        "job (JSON; Job in rules/jobs.py)", "change_job", "the owner, which triggers; views of jobs"),
    Key("jobdue", "sorted set", "job → when there is something to decide (wall time)", "change_job", "the owner"),
    Key("ledger:", "sorted set", "rows of a job's history (JSON; Row in rules/jobs.py) → their place, one in each: the "
        "nominal time (wall time, s), and half a second more for a manual run; the newest 200", "change_job",
        "the owner; views of jobs; audits", more="JOB"),
    Key("failed:", "sorted set", "the same of runs that used up their attempts, until they are repeated or dismissed; "
        "the newest 100", "change_job", "views of jobs", more="JOB"),
    Key("revisions:", "hash", "number → a definition that the job has, or had (JSON)", "change_job; jobs.py drops old "
        "ones", "the owner; views of jobs; audits", more="JOB"),
    Key("seeds:", "list", "seeds of a definition that has more than 32: blocks of 1,000 (JSON, deflated)",
        "jobs.py, before the definition", "the owner, when a run begins", more="JOB:KEY"),
    Key("removed", "string", "the highest revision of any job that was removed from here: new ones begin above it",
        "change_job", "the same; jobs.py"),
    Key("runs", "hash", "only in the home of a job: active run → its record (JSON; RunRecord in rules/job_runs.py). A "
        "run that is not there has ended", "change_job", "touch_run, change_job; runs.py, for every instance"),
    Key("closing", "set", "runs that have ended, and may have left something in partitions that they touched",
        "change_job; runs.py removes one when all are closed", "the owner of the home, which closes them"),
    Key("touched:", "set", "in the home of a run: partitions that have, or had, URLs of it, each noted before it got "
        "one; gone when all of them are closed", "touch_run", "runs.py", more="RUN"),
    Key("roots:", "set", "in the home of a run: roots of its scope that its seeds and their redirects opened; gone "
        "with touched", "touch_run", "runs.py", more="RUN"),
)  # fmt: skip


def lua_positions() -> str:
    """The positions of a queue's numbers in its record, and of the map behind them, as Lua constants."""
    names = [*(field.name.upper() for field in QUEUE_NUMBERS), "MORE"]
    return f"local {', '.join(names)} = {', '.join(str(at) for at, _ in enumerate(names, 1))}\n"
