"""Regular expressions that people write: RE2's dialect, one automaton for all, and one line for what it can't do."""

import subprocess
import sys

import pytest

from crawler.expressions import NO_EXPRESSIONS, Expressions, fault_of
from tests.support.growth import LINEAR_MAX, growth


def test_all_that_are_found_anywhere_in_a_text_are_named() -> None:
    expressions = Expressions(["/news/", r"^http://a\.", r"\.html$", "(?i)NEWS", "z"])
    assert sorted(expressions.found_in("http://a.test/news/x.html")) == [0, 1, 2, 3]
    assert expressions.found_in("http://b.test/") == []
    assert NO_EXPRESSIONS.found_in("z") == []
    assert not NO_EXPRESSIONS


def test_without_room_for_the_automaton_each_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    expressions = Expressions(["a", "b$", "c"])

    class Full:
        def Match(self, text: str) -> None:  # noqa: N802 - RE2's name
            return None

    monkeypatch.setattr(expressions, "_set", Full())
    assert expressions.found_in("ab") == [0, 1]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("(?=a)", "look-ahead is not supported"),
        ("(?!a)", "look-ahead is not supported"),
        ("(?<=a)b", "look-behind is not supported"),
        ("(?<!a)b", "look-behind is not supported"),
        (r"(a)\1", "a back-reference is not supported"),
        ("(?P<x>a)(?P=x)", "a back-reference is not supported"),
        ("a++", "the possessive repetition ++ is not supported"),
        ("(?>a)", "an atomic group is not supported"),
        (r"a\Z", r"write \z"),
        ("a{,3}", "write {0,n}"),
        ("a{2000}", "more than 1,000"),
        ("(", "not a regular expression: missing )"),
        ("[", "not a regular expression: missing ]"),
        ("*", "not a regular expression"),
        ("\ud800", "not a regular expression"),
        ("(((((a{50}){50}){50}){50}){50})", "not supported"),
    ],
)
def test_what_the_engine_can_not_do_is_one_line(pattern: str, fault: str) -> None:
    assert fault in fault_of(pattern)
    assert "\n" not in fault_of(pattern)
    with pytest.raises(ValueError, match=r"^'"):
        Expressions([pattern])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(x+x+)+y", "(a|a)*$b", "(.*a){90}", ""])
def test_no_expression_takes_more_than_linear_time(pattern: str) -> None:
    expressions = Expressions([pattern])
    for unit in ("aa", "xx", "ax"):
        assert growth(expressions.found_in, unit * 1000, unit * 10_000) < LINEAR_MAX


def test_a_crawl_without_expressions_does_not_import_the_engine() -> None:
    code = "import sys, crawler.rules.scope, crawler.rules.order, crawler.settings.load"
    code += "; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
