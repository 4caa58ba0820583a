"""Text and values on their way to people: safe to print, not nested too deep, and how long work takes. Pure."""

import re

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # format characters (Cf)
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\ufffe\uffff"  # also line separators, overrides
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0"  # others that draw nothing
    "\ud800-\udfff"  # halves of pairs: no encoding takes them
)
_IN_LINES = re.compile(f"[{_HIDDEN}]")
_IN_A_LINE = re.compile(f"[{_HIDDEN}\t\n]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def one_line(text: str) -> str:
    """The text of one field or message: line feeds and tabs are escaped, too."""
    return _IN_A_LINE.sub(_escape, text)


def printable(text: str) -> str:
    """The same for text of several lines: line feeds and tabs stay."""
    return _IN_LINES.sub(_escape, text)


def printable_json(text: str) -> str:
    """JSON of the same meaning, with such characters as escapes. They can't occur outside of its strings."""
    return _IN_LINES.sub(_escape_json, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _escape_json(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
