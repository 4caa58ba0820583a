"""What the text of the scripts shows: nothing that can grow passes over Lua's stack, and no pattern backtracks far.

A Lua error rolls nothing back, and `unpack` fails beyond about 8,000 values.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

import crawler.frontier
from tests.support.engine import Engine

FOLDER = Path(crawler.frontier.__file__).parent / "lua"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.lua"))}

# Each `unpack` there is, with what bounds the number of its values. Whatever may be longer goes through run_many.
UNPACKS = {
    ("_block", "unpack(moved)"): "half a block: BLOCK values",
    ("_block", "unpack(some)"): "the room of a block: 2 * BLOCK values",
    ("_block", "unpack(entries)"): "only if they fit into one block: 2 * BLOCK values",
    ("_partition", "unpack(list, i, last)"): "AT_ONCE, twice",
    ("_partition", "unpack(names)"): "names of the program's own counters",
    ("_partition", "unpack(flat)"): "twice as many",
    ("_deferred", "unpack(call('ZREVRANGE', index_of(row.queue), 0, 0, 'WITHSCORES'))"): "two values",
    ("_queue", "unpack(keys, from, math.min(from + AT_ONCE - 1, n))"): "AT_ONCE",
    ("_queue", "unpack(changed, i, math.min(i + AT_ONCE - 1, n))"): "AT_ONCE",
    ("ack", "unpack(tokens)"): "one for each commit of a call: Frontier sends at most ACK_MAX",
    ("drain_log", "unpack(sums)"): "the numbers of a slot",
    ("claim", "unpack(queues, i, math.min(i + at_once - 1, #queues))"): "READ_AT_ONCE",
}

# Patterns on text that a site may have chosen. Each repeats a class up to a character that is not of it, or to the end.
PATTERNS = {
    "'//(.*)$'", "':%d+$'", "'|(.*)$'", "'^%S+ (%S+) (.*)$'", "'^(%S+) (%S+) (%S+) (.*)$'", "'^([^/]*)(.*)$'",
    "'^(%S+) (%S+) (.*)$'", "'^(https?)://(.*)$'",
    # On what scripts and sessions write themselves:
    "'^%d+( .* (%d+))$'", "'^%S+ (%d+) '", "'^%d+%.(.*)%-%d+%.%d+$'", "'^(%d+) (.*)$'", "'^%d+'", "' (%S+)'", "'%S+'",
    "'|[^@!]'", "'^[^/ ~\"]+'", "'^(%S+) '", "'^at:(%d+)$'", "'^!(.*)$'", "'^\\1(%S+) (.*)$'",
}  # fmt: skip

# Commands that read a whole key, with what bounds it.
WHOLE = {
    ("drain_log", "'HGETALL', ctx.prefix .. 'busy'"): "at most 64 queues",
    ("claim", "'ZRANGE', ctx.prefix .. 'x', 0, -1"): "claims that are open, and only when a reply was lost",
    ("_deferred", "'HGETALL', key"): "runs with URLs in a queue, and only when people or a budget stop it",
    ("claim", "'HGETALL', ctx.prefix .. 'k'"): "URLs that processes died with",
    ("claim", "'HKEYS', ctx.prefix .. 'users'"): "users with URLs that wait here",
    ("spill", "'ZRANGE', key, 0, -1, 'WITHSCORES'"): "a block",
    ("_aside", "'ZRANGE', head, 0, -1, 'WITHSCORES'"): "a block",
    ("_aside", "'ZREVRANGE', head, 0, -1, 'WITHSCORES'"): "a block",
}


def code_of(name: str) -> str:
    """Without comments."""
    return re.sub(r"(?m)(^|\s)--.*$", "", SOURCES[name])


def balanced(text: str) -> str:
    """The call that the text begins with, to the parenthesis that closes it."""
    depth = 0
    for end, character in enumerate(text, 1):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")":
            return text[:end]
    raise AssertionError(text)


def test_every_unpack_has_a_bound() -> None:
    found = Counter(
        (name, balanced(code_of(name)[match.start() :]))
        for name in SOURCES
        for match in re.finditer(r"(?<![\w.])(?:table\.)?unpack\(", code_of(name))
    )
    assert set(found) == set(UNPACKS)
    assert sum(found.values()) == len(UNPACKS) + 1, "run_many has two"


def test_every_pattern_is_linear() -> None:
    found = set()
    for name in SOURCES:
        code = code_of(name)
        for match in re.finditer(r"string\.(?:match|gmatch|gsub|find)\(", code):
            call = balanced(code[match.start() :])
            if not call.endswith(", 1, true)"):  # plain text
                found |= {text for text in re.findall(r"'[^']*'", call) if re.search(r"[%*+^$]", text)}
    assert found == PATTERNS


def test_every_read_of_a_whole_key_has_a_bound() -> None:
    found = {
        (name, match[1])
        for name in SOURCES
        for match in re.finditer(
            r"call\(('(?:HGETALL|HKEYS|HVALS|SMEMBERS|LRANGE|KEYS|SUNION|ZR?E?V?RANGE|ZRANGE)'[^()]*?)\)", code_of(name)
        )
        if re.match(r"'(?:HGETALL|HKEYS|HVALS|SMEMBERS|KEYS|SUNION)'", match[1]) or ", 0, -1" in match[1]
    }
    assert found == set(WHOLE)


def test_a_bucket_is_deleted_after_it_was_moved() -> None:
    code = code_of("_buckets")
    move = code[code.index("local function move_some") :]
    assert 0 < move.index("run_many(list, put") < move.index("call('DEL'") < move.index("run_many(names, drop")


def test_no_operation_is_of_two_names() -> None:
    """All that is read here is what the engine gets."""
    from crawler.frontier.scripts import NAMES, SHARED

    assert sorted(SOURCES) == sorted([*NAMES, *SHARED])


def test_thirty_more_local_names_have_room_in_the_shared_files(engine: Engine) -> None:
    """Lua allows 200 in one scope: with one more, no script loads."""
    from crawler.frontier.scripts import library

    def load(more: int) -> bytes:
        head, _, text = library().text.partition("\n")
        names = "".join(f"local room_{i}\n" for i in range(more))
        with engine.client() as client:
            found: bytes = client.execute_command("FUNCTION", "LOAD", "REPLACE", f"{head}\n{names}{text}")
        return found

    try:
        assert load(30) == library().name.encode()
        with pytest.raises(ResponseError, match="local variables"):
            load(200)
    finally:
        load(0)
