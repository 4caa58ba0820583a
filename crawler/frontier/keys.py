"""Every key of the engine, declared once: its name, its type, what it holds, who writes it and who reads it.

All keys of a partition share the hash tag {crawl:partition}, all crawl-wide keys the tag {crawl}: one script touches
one slot. The scripts build the keys of a partition from its meta key's prefix (lua/_partition.lua).

Here are the crawl-wide keys, each an attribute of `Keys`; partition_keys.py has those of a partition. The tables of
docs/internals/frontier-layout.md are made from both by `scripts/make-reference`. Tests compare them with what the
scripts and the program name, and with what is in an engine after simulated crawls: a new key or field needs its row.
Besides these there is `{tag}~w`, for a second: engine/server.py writes it before it waits for a replica.
"""

from functools import lru_cache
from typing import NamedTuple, overload

import msgspec

LAYOUT = 9  # version of what is stored under these keys; another one is refused


CRAWLS = "crawler:crawls"  # the set of all crawls of the engine, by name; the one key that belongs to no crawl


class Field(NamedTuple):
    """A field of a hash, or of a packed record. Words in capitals stand for what varies."""

    name: str
    holds: str
    written: str = ""  # "": by whatever writes the key


class Key(msgspec.Struct, frozen=True):
    """A key, or all whose names begin alike: `more`, in capitals, stands for the rest of their names.

    As an attribute of `Keys` it is its name with the crawl's hash tag, without what `more` stands for.
    """

    start: str
    kind: str  # its type in the engine; "channel" for one that is no key
    holds: str
    written: str
    read: str
    more: str = ""
    fields: tuple[Field, ...] = ()  # of a hash, if the program names them; those of others are told in `holds`

    @property
    def name(self) -> str:
        return self.start + self.more

    @overload
    def __get__(self, keys: None, owner: type["Keys"]) -> "Key": ...
    @overload
    def __get__(self, keys: "Keys", owner: type["Keys"]) -> str: ...
    def __get__(self, keys: "Keys | None", owner: type["Keys"]) -> "Key | str":
        return self if keys is None else f"{keys.tag}{self.start}"


class Keys:
    """The keys of one crawl."""

    crawl = Key(
        "crawl",
        "hash",
        "what all instances must agree on",
        "as each field says",
        "whoever opens the crawl; each instance once a second: did anything change, is it still this crawl?",
        fields=(
            Field(
                "record",
                "layout, number of partitions, wall time of the start, how URLs are queued, half-life of scores, rules "
                "of the scope, the secret key of its hashes, a digest of each domain that was forgotten, and the "
                "settings that are stored with the crawl (JSON; CrawlRecord in record.py). While the crawl is being "
                "removed, has moved away or is on its way here: layout 0, -1 or -2, the former record, the other "
                "engine and the id of the move (Mark), so that every "
                "release refuses it",
                "whoever creates the crawl; replace_record",
            ),
            Field("version", "grows with each change of the record, and of the scope's roots", "record.py"),
            Field("overrides", "grows with each operator command that lasts (key overrides)", "operator.py"),
            Field("jobs", "grows with each change of a job by people", "jobs.py"),
            Field("seeds", "the last number that a seed got (keys seeds:N)", "seeds.py"),
            Field(
                "budget_reached",
                "a budget of the whole crawl that is used up, with its reason (JSON); absent for none",
                "the first instance that sees it (instance/usage.py)",
            ),
            Field("ended", "a digest of the pass that last proved an end", "instance/finish.py"),
            Field(
                "marked",
                "1 when all partitions of a cluster have born: from then on one without it was wiped",
                "record.py; recovery/arrival.py",
            ),
        ),
    )
    seeds = Key(
        "seeds:", "hash", "number of a seed → its URL, for the 256 numbers from 256 N on", "commands that add seeds",
        "crawler seeds; audits", more="N",
    )  # fmt: skip
    scope = Key(
        "scope",
        "set",
        "roots of the scope: domain:example.com, host:…, prefix:…, any:*, and page:URL FROM for one page that a seed "
        "redirected to",
        "commands that add seeds; owners, for redirects of seeds",
        "each instance when version grew; audits",
    )
    history = Key(
        "history",
        "hash",
        "`root ROOT` → the version that a root came with; `rules VERSION` → rules that held up to that version (JSON)",
        "whatever adds roots or changes rules",
        "audits: what was in scope when the links of a page were judged",
    )
    folders = Key(
        "folders",
        "hash",
        "id of a crawl folder that took part (that of its crawl.json) → its path and host (JSON)",
        "each instance when it starts; commands that note seeds; crawler rebuild",
        "audits and rebuilds, to name a folder that they lack",
    )
    series = Key(
        "series",
        "hash",
        "`5:N` and `300:N` → a sample of the crawl's totals, at the beginning of each 5 s and each 5 minutes "
        "(msgpack); N goes round, so that 15 minutes and a day are kept, some 27 KB. `last` → slot of the newest one",
        "whichever instance finds a slot without a sample",
        "all viewers, for rates and charts",
    )
    members = Key(
        "members",
        "hash",
        "session → counter of its heartbeats, node, weight, state, scale of its times, host, lock file, what it holds, "
        "digest of its ring, and what viewers show of it (JSON; Member in members.py)",
        "join, heartbeat; leave: by itself, or by whoever finds it dead",
        "each instance, twice a second; viewers; what refuses to act while somebody works",
    )
    nodes = Key("nodes", "hash", "node → the session that has its name", "join, leave", "an instance that starts")
    returns = Key(
        "returns",
        "hash",
        "node → how often it has joined since its last steady life; clean leaves are left out",
        "join, leave; removed by a session that has lived for a minute",
        "join: the fourth time in a row the node is quarantined",
    )
    evicted = Key(
        "evicted",
        "hash",
        "session → its node: an operator evicted it",
        "crawler ring evict; removed by join of the next session, and by leave",
        "join, heartbeat: they are refused; crawler ring",
    )
    takeovers = Key(
        "takeovers",
        "list",
        "the last thousand times that partitions of a dead session were taken over: from whom, by whom, how many, how "
        "long it had been silent (JSON; Takeover in leases.py)",
        "the new owner",
        "audits; viewers",
    )
    pins = Key(
        "pins",
        "hash",
        "pinned domain → node: the domain's whole partition goes there while that node takes part",
        "crawler ring pin, unpin",
        "each instance, with the members; crawler ring",
    )
    overrides = Key(
        "overrides",
        "hash",
        "operator commands that last: `paused DOMAIN` (`*`: all) and `blocked DOMAIN` → 1; `delay DOMAIN` → ms; "
        "`boost DOMAIN` → its boost; `least DOMAIN` → the shortest delay that ever held by command (ms); `weight USER` "
        "→ its weight among users (none for 1; the crawl itself has an empty name); `login DOMAIN` → why the login "
        "failed for which it is blocked; `logins DOMAIN` → how many logins, when in the last hour, and the paths that "
        "end sessions (JSON)",
        "crawler pause, block, delay, boost, users and their opposites; `login` and `logins`: owners",
        "each instance when the field overrides of the crawl grew; viewers; `least`: audits",
    )
    operator_log = Key(
        "operator_log",
        "stream",
        "the operator log: who gave a command, by which program and when, what it was and on what (JSON in the field "
        "e). At most 1,000 entries of some 200 bytes: the oldest go of whoever has most. Ids are 0-1, 0-2 ...",
        "log_command, before a command acts",
        "crawler oplog; API and dashboard",
    )
    api_tokens = Key(
        "tokens",
        "hash",
        "id of a token of the HTTP API → its user, its role, the SHA-256 of its text, when it was made (JSON)",
        "crawler token",
        "crawler serve",
    )
    api_answers = Key(
        "answers",
        "hash",
        "whose share it is, a colon, and the SHA-256 of a client's name and the Idempotency-Key of its request → when "
        "it came, the SHA-256 of the request, its status and its answer (JSON; at most 4 KiB of it). At most a "
        "thousand of the last 24 hours: whoever adds one drops old ones, of whoever has most",
        "crawler serve",
        "crawler serve, when a request is repeated",
    )
    supervisors = Key(
        "supervisors",
        "hash",
        "session of a supervisor → host, process id, folder, lock file, how many instances it is to have and what each "
        "of them does (JSON); protects nothing",
        "supervisors, each second",
        "crawler scale; viewers",
    )
    wanted = Key(
        "wanted",
        "hash",
        "session of a supervisor → the number of instances that was last requested, and by whom (JSON)",
        "crawler scale",
        "that supervisor, each second",
    )
    jobs = Key(
        "jobs",
        "sorted set",
        "`USER NAME ID` of each job, with zero bytes between; all scores are 0. A name without a job is not listed",
        "crawler jobs",
        "lists of jobs by name; the job itself is in the partition of its id",
    )
    forgetting = Key(
        "forgotten",
        "hash",
        "how far domains are forgotten, by the digest of each in the record: `DIGEST folder FOLDER` and `DIGEST output "
        "FOLDER CURSOR` → when that was done (wall time, s)",
        "crawler forget",
        "crawler forget",
    )
    moving = Key(
        "moving",
        "hash",
        "partition → digest of its keys as they were read elsewhere, for those that were written here; -1 is what is "
        "crawl-wide; `by` → the command that goes on now, another one ends. Gone once the crawl has arrived",
        "crawler move, crawler restore",
        "these: all is read back before the crawl counts as arrived",
    )
    hints = Key(
        "hints:",
        "channel",
        "meta key of a partition in which a sleeping queue woke, got its first URLs of a user, or URLs were scheduled; "
        "behind a space the user, if it is not the crawl itself. A hint may be lost: a slow look at partitions that "
        "are not due, at most 128 a second, finds what it missed",
        "add and others that put URLs into queues, if the caller is not the owner",
        "the owner of the partition",
        more="SESSION",
    )

    def __init__(self, crawl: str) -> None:
        self.crawl_name = crawl
        self.tag = f"{{{crawl}}}:"
        self._prefix = f"{{{crawl}:"
        self.meta = lru_cache(maxsize=None)(self._meta)  # at most one entry per partition

    def _meta(self, partition: int) -> str:
        return f"{self._prefix}{partition}}}:m"

    def of(self, partition: int, name: str) -> str:
        """Key `name` of a partition, like u, x, ready or q:QUEUE (partition_keys.py)."""
        return f"{self._prefix}{partition}}}:{name}"

    @property
    def pattern(self) -> str:
        """A glob pattern that all keys of this crawl match, and no key of another one."""
        literally = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.crawl_name)
        return f"{{{literally}[:}}]*"

    @staticmethod
    def partition_of_meta(key: str) -> int:
        """The partition that a meta key names (hints carry it)."""
        return int(key[key.rindex(":", 0, key.index("}")) + 1 : key.index("}")])


CRAWL_WIDE: tuple[Key, ...] = tuple(one for one in vars(Keys).values() if isinstance(one, Key))
