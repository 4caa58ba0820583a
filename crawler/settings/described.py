"""Reads the file of all defaults, `config/crawler.toml`, as descriptions: each setting with its comment."""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from crawler.lazy_module import LazyModule

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = LazyModule("tomllib")
from typing import TYPE_CHECKING

from crawler.lazy_module import LazyModule

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = LazyModule("tomllib")

_SECTION = re.compile(r"\[+([\w.]+)\]+\s*(?:# (.*))?$")
_KEY = re.compile(r"(\w+) = (.*?)\s*# (.*)$")


class DescribedKey(NamedTuple):
    """A setting. `default` is as TOML has it."""

    name: str
    default: str
    about: str


class DescribedSection(NamedTuple):
    """A section of settings, in the order of the file."""

    name: str
    about: str
    keys: list[DescribedKey]


def file_of_defaults() -> str:
    """The text of the file. In a checkout the package has a link to it, when installed a copy."""
    return (files("crawler.settings") / "crawler.toml").read_text(encoding="utf-8")


def sections(text: str) -> Iterator[DescribedSection]:
    """All sections of such a file."""
    section = DescribedSection("", "", [])
    for line in text.splitlines():
        head, key = _SECTION.match(line), _KEY.match(line)
        if head:
            if section.name:
                yield section
            section = DescribedSection(head[1], head[2] or "", [])
        elif key:
            section.keys.append(DescribedKey(key[1], key[2], key[3]))
    yield section
