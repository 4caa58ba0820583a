"""How the changes of `crawler ring plan` are read. Pure: no engine."""

import pytest

from crawler.errors import UsageError
from crawler.terminal.words import by_number
from crawler.views.shares import changed

NOW = {"web-1": 1, "web-2": 1, "web-10": 2}


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (["+2"], {**NOW, "new-0": 1, "new-1": 1}),
        (["-1"], {"web-1": 1, "web-2": 1}),
        (["-2"], {"web-1": 1}),
        (["-web-1"], {"web-2": 1, "web-10": 2}),
        (["+big:4"], {**NOW, "big": 4}),
        (["+web-1:3"], {**NOW, "web-1": 3}),
        (["+other"], {**NOW, "other": 1}),
        (["+1", "-web-2", "+web-10:1"], {"web-1": 1, "web-10": 1, "new-0": 1}),
        (["-3", "+1"], {"new-0": 1}),
        (["+0"], NOW),
    ],
)
def test_a_plan_is_a_list_of_changes(words: list[str], then: dict[str, int]) -> None:
    assert changed(NOW, words, ["new-0", "new-1"]) == then


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("-web-3", r"remove web-3: no such node \(web-1, web-2, web-10\)"),
        ("-4", "remove 4: only 3 nodes take part"),
        ("+web-1", "add web-1: it takes part already; web-1:2 gives it more"),
        ("+big:0", "NODE:WEIGHT with a weight from 1 to 100"),
        ("+big:101", "NODE:WEIGHT with a weight from 1 to 100"),
        ("+:3", "write NODE:WEIGHT"),
        ("+", "write a number, or the name of a node"),
        ("-", "write a number, or the name of a node"),
    ],
)
def test_what_is_no_change_is_refused_in_one_line(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        changed(NOW, [word], [])


def test_nodes_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["web-10", "web-9", "a", "web-1-0", "10"], key=by_number) == ["10", "a", "web-1-0", "web-9", "web-10"]
