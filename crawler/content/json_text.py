"""JSON as sites write it: bodies in other encodings, and the JSON-LD blocks of pages, read as leniently as others do.

A block of JSON-LD is text in a script element, so nothing checks it before a search engine does. Those read past what
is around the value (a byte-order mark, HTML comments, CDATA), comments and trailing commas, and line ends in strings.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from crawler.content.sniff import decode

_TYPE = "application/ld+json"
_AROUND = " \t\n\f\r\ufeff;"
# What hides a script from programs that read XML, or none; a value of JSON neither begins nor ends like this.
_OPENINGS = ("<!--", "//<![CDATA[", "// <![CDATA[", "/*<![CDATA[*/", "/* <![CDATA[ */", "<![CDATA[")
_CLOSINGS = ("-->", "//]]>", "// ]]>", "/*]]>*/", "/* ]]> */", "]]>")


_STRING = r'("(?:[^"\\]++|\\.)*+"?)'  # also one that does not end
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|//[^\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/)?", re.DOTALL)
_STRING_OR_COMMA = re.compile(rf"{_STRING}|,(?=\s*+(?:[\]}}]|\Z))", re.DOTALL)


def json_of(body: bytes, charset: str) -> Any:
    """The value of a body: in UTF-8, UTF-16 or UTF-32 as the format has it, else in `charset`.

    Raises ValueError, in one line, for what is not one JSON value.
    """
    try:
        text = body.decode(json.detect_encoding(body))
    except UnicodeDecodeError:
        text = decode(body, charset)
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        hint = "; of JSON Lines, parse each line of page.text" if error.msg == "Extra data" and error.lineno > 1 else ""
        raise ValueError(f"the body is not JSON: {error.msg}, {place}{hint}") from None
    except RecursionError:
        raise ValueError("the body is not readable as JSON: it is nested too deep") from None


def jsonld_of(tree: LexborHTMLParser) -> tuple[list[dict[str, Any]], int]:
    """The objects of all JSON-LD blocks, in order, and how many blocks can't be read.

    Lists are flattened, and so is `@graph`: the object around it comes first if it says something itself.
    """
    found, unread = list[dict[str, Any]](), 0
    for script in tree.css("script[type]"):
        kind = (script.attrs.sget("type") or "").partition(";")[0].strip().lower()
        text = _unwrapped(script.text().strip(_AROUND)) if kind == _TYPE else ""
        if not text:
            continue
        try:
            value = _lenient(text)
        except (ValueError, RecursionError):
            value = None
        found += _objects_in(value)
        unread += not isinstance(value, dict | list)
    return found, unread


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one[::-1]
        elif isinstance(one, dict) and "@graph" in one:
            own = {name: part for name, part in one.items() if name != "@graph"}
            if not own.keys() <= {"@context", "@id"}:
                yield own
            left.append(one["@graph"])
        elif isinstance(one, dict):
            yield one


def _lenient(text: str) -> Any:
    """Raises ValueError."""
    try:
        return json.loads(text, strict=False)
    except ValueError:
        plain = _STRING_OR_COMMENT.sub(lambda one: one[1] or " ", text)
        return json.loads(_STRING_OR_COMMA.sub(lambda one: one[1] or "", plain), strict=False)


def _unwrapped(text: str) -> str:
    """Without what hides a script."""
    for opening in _OPENINGS:
        text = text.removeprefix(opening).strip(_AROUND)
    for closing in _CLOSINGS:
        text = text.removesuffix(closing).strip(_AROUND)
    return text
