"""docs/reference.md is what its generator writes, with the settings that users need."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from crawler.settings import Settings
from crawler.settings.removed import REMOVED
from scripts.docs_lib import reference

DOCUMENTED_MAX = 70


def test_the_reference_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text("utf-8") == reference.make(), "run scripts/make-reference"


def test_the_picture_of_the_states_is_that_of_the_table() -> None:
    page = reference.ARCHITECTURE.read_text("utf-8")
    assert reference.picture() in page
    assert page == reference.with_picture(page), "run scripts/make-reference"


def test_each_documented_setting_exists() -> None:
    defaults = Settings()
    for section, keys in reference.DOCUMENTED.items():
        assert [key for key in keys if not hasattr(getattr(defaults, section), key)] == [], section


def test_few_settings_are_documented_and_each_has_a_row() -> None:
    page = "\n".join(reference.settings_sections(reference.SETTINGS.read_text("utf-8")))
    keys = [key for keys in reference.DOCUMENTED.values() for key in keys]
    assert page.count("\n| `") == len(keys) <= DOCUMENTED_MAX


def test_the_changelog_names_each_removed_key() -> None:
    text = (reference.ROOT / "CHANGELOG.md").read_text("utf-8")
    assert [key for key in REMOVED if f"`{re.sub(r'^retry[.][a-z_]+[.]', 'retry.KIND.', key)}`" not in text] == []


def test_no_other_page_or_message_names_a_removed_key() -> None:
    said = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, REMOVED)) + r")\b")
    found = {(file.name, key) for file, text in texts_with(said) for key in said.findall(text)}
    assert found == set()


def texts_with(said: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Pages for users, and the strings of files of the program that have it anywhere."""
    for place in ("README.md", "config/*.*", "docs/guide/*.md", "docs/operate/*.md"):
        yield from ((file, file.read_text("utf-8")) for file in reference.ROOT.glob(place))
    for file in reference.ROOT.glob("crawler/**/*.py"):
        source = file.read_text("utf-8")
        if file.name != "removed.py" and said.search(source):
            strings = (node.value for node in ast.walk(ast.parse(source)) if type(node) is ast.Constant)
            yield from ((file, text) for text in strings if isinstance(text, str))
