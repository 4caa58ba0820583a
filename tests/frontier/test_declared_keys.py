"""Each key and field that the program or its scripts name is declared, and each that is declared is named."""

import re
from pathlib import Path

import crawler
from crawler.frontier.keys import Key, Keys
from crawler.frontier.partition_keys import META, PARTITION, QUEUE_MAP
from crawler.frontier.scripts import library
from tests.frontier.declared import faults_of

ROOT = Path(crawler.__file__).parent
DECLARE = {"keys.py", "partition_keys.py"}
PYTHON = "\n".join(path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py")) if path.name not in DECLARE)
LUA = library().text
STARTS = {one.start for one in PARTITION}
STORES = "hyne"  # whose sizes the scripts name by their kind: kind .. 'n', kind .. 'b'


def test_every_key_that_a_script_builds_is_declared() -> None:
    built = set(re.findall(r"ctx\.prefix \.\. '([^']*)'", LUA))
    assert len(built) > 30
    assert built - STARTS == set()


def test_every_key_that_the_program_reads_is_declared() -> None:
    named = set(re.findall(r"(?:keys\.of|_key)\([\w.]+(?:\([\w.]+\))?, f?\"([^\"{]+)", PYTHON))
    assert len(named) > 20
    assert named - STARTS == set()


def test_each_declared_key_is_named() -> None:
    starts = {one.start.rstrip(":@") for one in PARTITION if one.fields != META}
    assert {start for start in starts if not re.search(rf"['\"]{start}[:@{{'\"]", LUA + PYTHON)} == set()
    attributes = {name for name, value in vars(Keys).items() if isinstance(value, Key)}
    assert {name for name in attributes if not re.search(rf"keys\.{name}\b", PYTHON)} == set()


def test_each_declared_field_is_named() -> None:
    sizes = {f"{store}{what}" for store in re.findall(r"compact_put\('(\w)'", LUA) for what in "nb"}
    fields = {re.split("[A-Z]", field.name)[0] for field in (*META, *QUEUE_MAP, *Keys.crawl.fields)}
    assert {name for name in fields - sizes if not re.search(rf"['\"]{name}|\.{name}\b", LUA + PYTHON)} == set()


def test_what_is_not_declared_is_told() -> None:
    keys = Keys("main")
    assert list(
        faults_of(
            keys,
            {
                "{main}:crawl": ("hash", {b"record": b"", b"colour": b""}),
                "{main}:later": ("hash", {}),
                "{main}~w": ("string", b"1"),
                "{main:3}:m": ("hash", {b"epoch": b"1", b"seen": b"1", b"s7x": b"1"}),
                "{main:3}:s:split": ("set", set()),
                "{main:3}:s:some": ("set", set()),
                "{main:3}:ready:-3@ann": ("zset", {}),
                "{main:3}:ready": ("hash", {}),
                "{main:3}:w:a.test": ("string", b"\x93\x01\x02\x82\xa5items\x01\xa5other\x01"),
            },
        )
    ) == [
        "{main}:crawl: field colour",
        "{main}:later is declared 0 times",
        "{main:3}:m: field s7x",
        "{main:3}:s:some is declared 0 times",
        "{main:3}:ready is a hash, and declared as a sorted set",
        "{main:3}:w:a.test: 2 numbers",
        "{main:3}:w:a.test: field other",
    ]
