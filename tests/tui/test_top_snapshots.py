"""Screens of `crawler top` over fixed values, as text: what changes in them was changed on purpose.

`SNAPSHOTS=write pytest tests/tui` writes them again.
"""

import os
from pathlib import Path

import pytest
from textual.pilot import Pilot

from crawler.tui.app import TopApp
from tests.tui.tui_lab import FixedSource, app_of

FOLDER = Path(__file__).parent / "snapshots"
SMALL, LARGE = (80, 24), (200, 50)
SCREENS = {"domains": [], "domain": ["enter"], "pause": ["p"], "help": ["question_mark"]}  # with the keys to them


async def settled(pilot: Pilot[None]) -> None:
    for _ in range(5):
        await pilot.pause()


def lines_of(app: TopApp) -> list[str]:
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "200x50"])
@pytest.mark.parametrize("name", SCREENS)
async def test_screen(size: tuple[int, int], name: str) -> None:
    app = app_of(FixedSource())
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press(*SCREENS[name])
        await settled(pilot)
        lines = lines_of(app)
    assert len(lines) == size[1]
    assert max(map(len, lines)) <= size[0]
    compare(f"{name}-{size[0]}x{size[1]}.txt", "\n".join(lines) + "\n")


def compare(name: str, text: str) -> None:
    file = FOLDER / name
    if os.environ.get("SNAPSHOTS") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text("utf-8")


async def test_without_colour_it_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not all(map(is_plain, await styles_of_front()))
    monkeypatch.setenv("NO_COLOR", "1")
    assert all(map(is_plain, await styles_of_front()))


async def styles_of_front() -> set[str]:
    """The styles on the first screen, whose text is the same as ever."""
    app = app_of(FixedSource())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        compare("domains-80x24.txt", "\n".join(lines_of(app)) + "\n")
        return {str(segment.style) for strip in app.screen._compositor.render_strips() for segment in strip}


def is_plain(style: str) -> bool:
    return style.endswith("default on default")
