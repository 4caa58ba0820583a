"""Compares the keys and fields that an engine has with those that are declared (keys.py, partition_keys.py)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import msgspec

from crawler.frontier.keys import CRAWL_WIDE, Field, Key, Keys
from crawler.frontier.partition_keys import META, PARTITION, QUEUE_MAP, QUEUE_NUMBERS

# What words in capitals stand for; any text for others.
VARIES = {
    "BUCKET": r"(?:\d+|split)",
    "RUN": r"[^:]*",
    "NAME": ".*",
    "N": r"\d+",
    "BOOST": r"-?\d",
    "JOB": r"\w+",
    "FIRST": ".*",
}


@cache
def pattern_of(name: str) -> re.Pattern[str]:
    """Of a declared name."""
    parts = re.split(r"([A-Z]+)", name)
    return re.compile("".join(VARIES.get(p, ".+") if p.isupper() else re.escape(p) for p in parts), re.DOTALL)


@lru_cache(maxsize=10_000)
def declared(name: str, known: tuple[Key, ...]) -> list[Key]:
    """Those that a name without its hash tag may be; exactly one, or something is wrong."""
    return [one for one in known if one.kind != "channel" and pattern_of(one.name).fullmatch(name)]


@lru_cache(maxsize=10_000)
def is_known(name: str, fields: tuple[Field, ...]) -> bool:
    return sum(bool(pattern_of(one.name).fullmatch(name)) for one in fields) == 1


def unknown(names: Iterable[str], fields: tuple[Field, ...]) -> list[str]:
    return [name for name in names if not is_known(name, fields)]


def faults_of(keys: Keys, whole: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    """What is wrong with the keys of a crawl, given with type and value: of a hash a dict, of a string bytes."""
    for key, (kind, value) in whole.items():
        if key.endswith("}~w"):  # what was written to wait for a replica, for a second
            continue
        tag, _, name = key.partition("}:")
        is_wide = f"{tag}}}:" == keys.tag
        found = declared(name, CRAWL_WIDE if is_wide else PARTITION)
        if len(found) != 1:
            yield f"{key} is declared {len(found)} times"
        elif found[0].kind.replace("sorted set", "zset") != kind:
            yield f"{key} is a {kind}, and declared as a {found[0].kind}"
        elif is_wide and name == "crawl":
            yield from (f"{key}: field {one}" for one in unknown(_text(value), Keys.crawl.fields))
        elif name == "m":
            yield from (f"{key}: field {one}" for one in unknown(_text(value), META))
        elif name.startswith(("w:", "h:")):
            yield from _of_records(key, [value] if kind == "string" else value.values())


def _text(names: Iterable[bytes]) -> list[str]:
    return [name.decode() for name in names]


def _of_records(key: str, records: Iterable[bytes]) -> Iterator[str]:
    for packed in records:
        *numbers, more = msgspec.msgpack.decode(packed)
        if len(numbers) != len(QUEUE_NUMBERS):
            yield f"{key}: {len(numbers)} numbers"
        yield from (f"{key}: field {one}" for one in unknown(more, QUEUE_MAP))


def typed(whole: Mapping[bytes, Any]) -> dict[str, tuple[str, Any]]:
    """What `dump` of raw.py found, with types; lists are taken for sorted sets, as it gives those."""
    kinds = {dict: "hash", bytes: "string", set: "set", list: "zset"}
    return {key.decode(): (kinds[type(value)], value) for key, value in whole.items()}
