"""docs/reference.md is what its generator writes, with the settings that users need."""

import re

import pytest

from crawler.cli.main import parser
from crawler.settings import Settings
from scripts.docs_lib import frontier_layout, reference

DOCUMENTED_MAX = 70


def test_the_reference_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text("utf-8") == reference.make(), "run scripts/make-reference"


def test_the_picture_of_the_states_is_that_of_the_table() -> None:
    page = reference.ARCHITECTURE.read_text("utf-8")
    assert reference.picture() in page
    assert page == reference.with_picture(page), "run scripts/make-reference"


def test_the_tables_of_keys_are_what_is_declared() -> None:
    page = frontier_layout.PAGE.read_text("utf-8")
    assert frontier_layout.names_of(page) == list(frontier_layout.tables())
    assert page == frontier_layout.with_tables(page), "run scripts/make-reference"


def test_each_documented_setting_exists() -> None:
    defaults = Settings()
    for section, keys in reference.DOCUMENTED.items():
        assert [key for key in keys if not hasattr(getattr(defaults, section), key)] == [], section


def test_few_settings_are_documented_and_each_has_a_row() -> None:
    page = "\n".join(reference.settings_sections(reference.SETTINGS.read_text("utf-8")))
    keys = [key for keys in reference.DOCUMENTED.values() for key in keys]
    assert page.count("\n| `") == len(keys) <= DOCUMENTED_MAX


# What a page says this program lacks, and the words in it that are options of a command all the same: why.
SAYS_ABSENT = {
    ("docs/internals/architecture.md", "What is deliberately absent"): {
        "partitions": "only of scripts over several",
        "urls": "only of locks on them",
        "url": "the same",
    },
    ("docs/guide/index.md", "What it does not do"): {
        "pages": "their requisites",
        "proxy": "only a choice among several",
    },
}


@pytest.mark.parametrize(("page", "heading"), SAYS_ABSENT)
def test_what_a_page_calls_absent_is_no_option(page: str, heading: str) -> None:
    """It came true too often that a feature was built, and a page went on to say that there is none."""
    text = (reference.ROOT / page).read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    claims = " ".join(re.split(r"[:.]", item, maxsplit=1)[0] for item in text.split("\n- ")[1:])
    words = set(re.findall(r"[a-z]{4,}", claims.lower()))
    words |= {f"{word[:-3]}y" for word in words if word.endswith("ies")} | {word.removesuffix("s") for word in words}
    options = {
        word.lstrip("-")
        for command in parser()[1].values()
        for action in command._actions
        for word in action.option_strings
    }
    assert words & options == set(SAYS_ABSENT[page, heading])
