"""Pictures of `crawler top` over fixed values: what changes in them was changed on purpose."""

from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.tui_lab import FixedSource, app_of

SMALL, LARGE = (80, 24), (200, 50)
SCREENS = {"domains": [], "domain": ["enter"], "pause": ["p"], "help": ["question_mark"]}  # with the keys to them


async def settled(pilot: Pilot[None]) -> None:
    for _ in range(5):
        await pilot.pause()


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "200x50"])
@pytest.mark.parametrize("name", SCREENS)
def test_picture(snap_compare: Any, size: tuple[int, int], name: str) -> None:
    async def pressed(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press(*SCREENS[name])
        await settled(pilot)

    assert snap_compare(app_of(FixedSource()), terminal_size=size, run_before=pressed)


def test_without_colour_it_is_the_same_text(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(FixedSource()), terminal_size=SMALL, run_before=settled)
