"""docs/reference.md is what its generator writes, with the settings that users need."""

import re

from crawler.settings import Settings
from crawler.settings.removed import REMOVED
from scripts.docs_lib import reference

DOCUMENTED_MAX = 70


def test_the_reference_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text("utf-8") == reference.make(), "run scripts/make-reference"


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
    assert [key for key in REMOVED if f"`{key}`" not in text] == []


def test_no_other_page_or_message_names_a_removed_key() -> None:
    places = ("README.md", "config/*.*", "docs/guide/*.md", "docs/operate/*.md", "crawler/**/*.py")
    files = [file for place in places for file in reference.ROOT.glob(place) if file.name != "removed.py"]
    assert len(files) > 100
    said = re.compile(r"\b(" + "|".join(re.escape(key) for key in REMOVED) + r")\b")
    found = {(file.name, key) for file in files for key in said.findall(file.read_text("utf-8"))}
    assert found == set()
