"""Text from outside can't act on a terminal, nor hide or reorder what is shown."""

import json
import sys
import unicodedata

import pytest

from crawler.rules.json_depth import is_nested_too_deep
from crawler.rules.text import one_line, printable, printable_json

HOSTILE = "\x1b]0;x\x07 \x1b[2J \x9b31m \x7f \u202etxt \u200b \ufeff \ud800 \U000e0041 \r\n\t"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcode, 漢字, 🎉", "plain text, ünïcode, 漢字, 🎉"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("\x9b1m\x7f", "\\x9b1m\\x7f"),
        ("\u202e\u200b\ufeff", "\\u202e\\u200b\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\ufffd", "\ufffd"),
    ],
)
def test_what_acts_or_hides_becomes_a_visible_escape(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.slow(ci=True)
def test_nothing_of_a_hidden_category_is_left() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for function, kept in ((one_line, ""), (printable, "\n\t"), (printable_json, "\n\t")):
        left = {c for c in function(everything) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert left == set(kept)


def test_json_means_the_same_and_can_be_encoded() -> None:
    text = printable_json(json.dumps({"t": HOSTILE}, ensure_ascii=False))
    assert json.loads(text) == {"t": HOSTILE}
    assert text.encode()


@pytest.mark.parametrize(
    ("text", "is_too_deep"),
    [
        ("[" * 64 + "]" * 64, False),
        ("[" * 65 + "]" * 65, True),
        ('{"a":' * 64 + "1" + "}" * 64, False),
        ('{"a":' * 65 + "1" + "}" * 65, True),
        ('[{"a":' * 33 + "1" + "}]" * 33, True),
        ("[" + ",".join(["[[]]"] * 99) + "]", False),
        ("[" + json.dumps("[" * 99) + "]", False),
    ],
)
def test_lists_and_dicts_are_at_most_64_deep(text: str, is_too_deep: bool) -> None:
    assert is_nested_too_deep(text.encode(), json.loads(text)) is is_too_deep
