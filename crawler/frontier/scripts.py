"""The Lua scripts as the engine gets them: one library of functions, named as the methods that call them.

The files that begin with an underscore are shared. Their functions are made once, when the library is loaded, so what
they keep during a call is in the table `ctx` of _partition.lua, which is made again for each call: one that broke off
leaves nothing to the next one. An operation's file is what one call does; if it has functions of its own, from
`--@call` on.

Called by its digest (EVALSHA), a script runs from its first line: the hundred functions that it shares became closures
again in each call, and garbage afterwards, a third of an `add`, `claim` or `ack` of one URL. As a library these take
353,000, 455,000 and 480,000 instructions of the engine, where they took 526,000, 623,000 and 675,000.

The name of the library has a digest of its text, and the names of its functions begin with it: so two releases use one
engine side by side. Libraries of earlier releases stay, 70 kB each, until somebody deletes them. The library is loaded
when a call finds it missing, not when an instance connects; the engine keeps it in its append-only file and sends it to
replicas, so a failover does not lose it. Lua allows 200 local names in one scope: what only one shared file uses is in
a `do` block there, and a test keeps 30 free.

Nested closures bring a sixth of the gain; a library for each script is 2 MB of Lua; a table of state that is passed to
every function costs a look-up for each use, where an upvalue is free.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files

import msgspec

from crawler.engine.client import Library
from crawler.frontier import partition_keys, states
from crawler.frontier.arguments import with_positions

NAMES = (
    "ack", "acquire", "add", "admit_hosts", "book_request", "borrow_slot", "change_job", "change_queues", "claim",
    "close_run", "count_items", "dead_letter", "defer", "depths", "discard_dead", "drain_log", "extend_claims",
    "forget_queue", "heartbeat", "join", "leave", "locate", "log_command", "names_after", "note_sent", "purge",
    "raise_sequence", "read_queues", "recall", "record_crash", "refuse", "release_lease", "replace_record",
    "requeue_dead", "restate", "retry", "return_claims", "return_slot", "spill", "store_jar", "touch_run", "unspill",
    "url_states",
)  # fmt: skip
SHARED = (  # each uses only what is in those before it
    "_partition", "_pending_url", "_buckets", "_compact", "_counts", "_turns", "_queue", "_borrowed", "_block",
    "_losses", "_states", "_deferred", "_scheduled", "_aside", "_seen", "_admission", "_stats", "_names", "_add",
    "_claims", "_close",
)  # fmt: skip

_FOLDER = files("crawler.frontier") / "lua"
_CALL = "--@call\n"
_FLAGS = re.compile(r"#!lua(?: flags=(\S+))?")


class Script(msgspec.Struct, frozen=True):
    """One operation: its source, and the name of its function in the engine."""

    name: str
    source: str
    function: str


def _read(name: str) -> str:
    return with_positions((_FOLDER / f"{name}.lua").read_text(encoding="utf-8"))


def _code_only(source: str) -> str:
    """Without whole-line comments: the engine compiles the library once but stores and replicates its text."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("--", "#!")))


def _shared() -> str:
    made = {"_queue": partition_keys.lua_positions(), "_states": with_positions(states.lua())}
    sources = [made.get(name, "") + _read(name) for name in SHARED]
    return "\n".join(map(_code_only, sources))


def _flags_of(name: str, source: str) -> list[str]:
    head = _FLAGS.match(source)
    assert head is not None, f"{name}.lua: its first line says its flags"
    return [flag for flag in (head[1] or "").split(",") if flag]


def _registered(name: str, source: str) -> str:
    flags = ", ".join(f"'{flag}'" for flag in _flags_of(name, source))
    before, _, called = source.rpartition(_CALL)
    return (
        f"(function()\n{_code_only(before)}\n"
        f"redis.register_function{{function_name = PREFIX .. '{name}', flags = {{{flags}}}, callback = "
        f"function(KEYS, ARGV)\nnew_call(KEYS)\n{_code_only(called)}\nend}}\nend)();"
    )


@cache
def library() -> Library:
    """The library of this release."""
    sources = {one: _read(one) for one in NAMES}
    text = "\n".join([_shared(), *(_registered(one, source) for one, source in sources.items())])
    name = "crawler_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    reads = frozenset(one for one, source in sources.items() if "no-writes" in _flags_of(one, source))
    return Library(name, f"#!lua name={name}\nlocal PREFIX = '{name}_'\n{text}\n", reads)


@cache
def script(name: str) -> Script:
    """The script of that name; raises KeyError for a name that is none."""
    if name not in NAMES:
        raise KeyError(name)
    return Script(name, _read(name), library().function_of(name))


def forget() -> None:
    """Read the files again, for tests that change them."""
    library.cache_clear()
    script.cache_clear()
