"""Regular expressions that people write, run on URLs that sites write: RE2, whose time is linear in the URL.

All expressions of one setting are one automaton: a URL is passed over once however many there are. The engine is
imported with the first expression, so a crawl without any does not pay for it. The dialect is RE2's syntax:
https://github.com/google/re2/wiki/Syntax. What only backtracking engines can do is refused with one line.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

MEMORY_BYTES = 64 * 1024 * 1024  # of the automaton's states; the default of 8 MiB is too small for some hundred of them

_ALWAYS = "(?:)"  # matches everything

# What Python's own engine takes and RE2 does not, by what RE2's message ends with.
_UNSUPPORTED = {
    "(?=": "look-ahead is not supported",
    "(?!": "look-ahead is not supported",
    "(?<=": "look-behind is not supported",
    "(?<!": "look-behind is not supported",
    "(?>": "an atomic group is not supported, nor needed",
    "(?#": "a comment is not supported",
    "(?x": "the flag x is not supported",
    "(?(": "a condition is not supported",
    "\\Z": r"\Z is not supported: write \z",
    "\\u": r"\u is not supported: write \x{...}",
}


class Expressions:
    """Some expressions. Those that are found anywhere in a text match; ^ and $ anchor.

    `beyond_ascii`: the numbers of those that have other characters, which no URL has as it is sent.
    """

    __slots__ = ("_set", "beyond_ascii", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raises ValueError, saying which one is wrong and why."""
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            if fault := fault_of(pattern):
                raise ValueError(f"{pattern!r}: {fault}")
        self._set = _set_of(self.patterns) if self.patterns else None
        self.beyond_ascii = frozenset(n for n, pattern in enumerate(self.patterns) if not pattern.isascii())

    def __bool__(self) -> bool:
        return self._set is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expressions) and other.patterns == self.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def __repr__(self) -> str:
        return f"Expressions({self.patterns!r})"

    def found_in(self, text: str) -> list[int]:
        """The numbers of those that match, in no order."""
        if self._set is None:
            return []
        found: list[int] | None = self._set.Match(text)
        if found is None:  # one that matches everything is among them: the automaton had no room
            return [number for number, one in enumerate(self.patterns) if _alone(one).search(text)]
        found.remove(len(self.patterns))
        return found


NO_EXPRESSIONS = Expressions(())


def fault_of(pattern: str) -> str:
    """Why a pattern can't be used; "" when it can."""
    import re2

    if "{," in pattern:  # RE2 takes it for these very characters, other engines for a repetition
        return "{,n} is not supported: write {0,n}"
    try:
        _alone(pattern)
        _set_of((pattern,))
    except re2.error as error:
        return _explained(error)
    except UnicodeEncodeError:
        return "not a regular expression: it is not text"
    return ""


def _set_of(patterns: tuple[str, ...]) -> Any:
    import re2

    found = re2.Set.SearchSet(_options())
    for pattern in patterns:
        found.Add(pattern)
    found.Add(_ALWAYS)
    found.Compile()
    return found


@lru_cache(maxsize=1024)
def _alone(pattern: str) -> Any:
    import re2

    return re2.compile(pattern, _options())


def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY_BYTES
    return options


def _explained(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    kind, _, where = text.partition(": ")
    if kind == "invalid escape sequence" and where[1:].isdigit():
        return "a back-reference is not supported"
    if kind == "invalid perl operator" and where.startswith("(?P"):
        return "a back-reference is not supported"
    if kind == "bad repetition operator":
        return f"the possessive repetition {where} is not supported, nor needed"
    if kind == "invalid repetition size":
        return f"a repetition of more than 1,000 is not supported: {where}"
    return _UNSUPPORTED.get(where) or f"not a regular expression: {text}"
