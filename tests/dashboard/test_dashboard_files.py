"""The dashboard's files: complete, without markup from texts or other origins, and readable in light and dark."""

import re
from itertools import product

import pytest

from crawler.api.pages import FILES, FOLDER

NAMES = sorted(path.name for path in FOLDER.iterdir())
STYLE = (FOLDER / "style.css").read_text("utf-8")


def test_each_file_is_served_under_a_name_that_something_loads() -> None:
    assert sorted(name for name, _ in FILES.values()) == NAMES
    loaded = set(re.findall(r'"(?:assets/|\./)([\w.]+)"', "".join((FOLDER / n).read_text("utf-8") for n in NAMES)))
    assert loaded | {"index.html"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_inline_made_of_markup_or_from_elsewhere(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "@import",
    ):
        assert forbidden not in text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text), "inline script or style"
    addresses = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org", "https://docs.example"}
    assert not addresses
    lines = text.splitlines()
    assert len(lines) <= 500
    assert name == "index.html" or max(map(len, lines)) <= 140


def _colours(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))


LIGHT = _colours(STYLE[: STYLE.index("@media")])
DARK = LIGHT | _colours(STYLE[STYLE.index("@media") : STYLE.index("* {")])


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG 2.2 defines it."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_a_contrast_of_4_5_and_marks_of_3(colours: dict[str, str]) -> None:
    grounds = ("ground", "panel", "soft")
    for text, ground in product(("text", "muted", "accent", "warn", "bad"), grounds):
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
    assert contrast(colours["panel"], colours["bad"]) >= 4.5  # the button of a harsh command
    for mark in ("accent", "level", "c4", "c5", "c0"):
        assert contrast(colours[mark], colours["panel"]) >= 3, mark
