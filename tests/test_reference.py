"""docs/reference.md is what its generator writes, with the settings that users need."""

from crawler.settings import Settings
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
