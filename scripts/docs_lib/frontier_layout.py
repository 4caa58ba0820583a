"""The tables of keys in docs/internals/frontier-layout.md, from where the keys are declared."""

import re
from collections.abc import Iterable

from crawler.frontier import partition_keys
from crawler.frontier.keys import CRAWL_WIDE, Field, Key, Keys
from scripts.docs_lib.reference import ROOT, cell, prose

PAGE = ROOT / "docs" / "internals" / "frontier-layout.md"
_TABLE = re.compile(r"(<!-- from crawler/frontier/\w+\.py: ([\w -]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def keys_table(keys: Iterable[Key], tag: str) -> str:
    """`tag`: what is before each name."""
    rows = (
        f"| `{cell(tag + one.name)}` | {one.kind} | {text(one.holds)} | {text(one.written)} | {text(one.read)} |"
        for one in keys
    )
    return "\n".join(["| key | type | holds | written by | read by |", "|---|---|---|---|---|", *rows, ""])


def fields_table(fields: Iterable[Field]) -> str:
    rows = (f"| `{cell(one.name)}` | {text(one.holds)} | {text(one.written)} |" for one in fields)
    return "\n".join(["| field | holds | written by |", "|---|---|---|", *rows, ""])


def record_table() -> str:
    rows = [
        *(f"| {at} | `{one.name}` | {text(one.holds)} |" for at, one in enumerate(partition_keys.QUEUE_NUMBERS, 1)),
        *(f"| map | `{cell(one.name)}` | {text(one.holds)} |" for one in partition_keys.QUEUE_MAP),
    ]
    return "\n".join(["| place | field | holds |", "|---|---|---|", *rows, ""])


def text(words: str) -> str:
    return cell(prose(words))


def tables() -> dict[str, str]:
    """By the name that stands in the comment before each."""
    return {
        "crawl-wide": keys_table(CRAWL_WIDE, "{main}:"),
        "fields of the crawl": fields_table(Keys.crawl.fields),
        "keys of a partition": keys_table(partition_keys.PARTITION, "…:"),
        "fields of m": fields_table(partition_keys.META),
        "record of a queue": record_table(),
    }


def with_tables(page: str) -> str:
    made = tables()
    return _TABLE.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def names_of(page: str) -> list[str]:
    """The tables that a page has."""
    return [found[2] for found in _TABLE.finditer(page)]
