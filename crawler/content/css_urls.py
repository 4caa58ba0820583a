"""What a style sheet loads: `url()`, `@import`, `image-set()` and fonts. Pure.

Reads tokens as CSS Syntax Level 3 has them, and no grammar: what a rule applies to, and whether a declaration is valid,
is not known. So a little more is found than a browser loads at one size of its window.

    url(a) url("a")            in a declaration: a font in @font-face, else an image
    @import "a", @import url(a)     a style sheet, wherever it is
    image-set("a" 1x, url(b) 2x)    images; also -webkit-image-set. The string in type("image/png") is none
    src: local("a") format("b")     nothing: strings are URLs in the two forms above only
    @namespace, @supports, @container, @document, and their conditions    nothing
    url(#a), url(data:...), url(), url("a<line feed>     nothing

One expression passes over all that is nothing of that. Its loops take characters that exclude each other and never go
back, so a sheet is read in linear time, whatever is not closed in it.
"""

import re

from crawler.content.charset import CODECS, is_unicode
from crawler.content.requisite_list import RequisiteList
from crawler.content.sniff import decode, stated_charset
from crawler.model import Requisite

_COMMENT = r"/(?:\*(?:[^*]++|\*(?!/))*+(?:\*/)?+)?+"  # or a slash alone
_IN_QUOTES = r'(?:"((?:[^"\\\n]++|\\.)*+)(?:"|\\?+\Z)|' r"'((?:[^'\\\n]++|\\.)*+)(?:'|\\?+\Z))"
_STRING = r'(?:"(?:[^"\\\n]++|\\.)*+"?+|' r"'(?:[^'\\\n]++|\\.)*+'?+)"  # or one that ends with its line
_NAME_END = r"(?![-\w\\]|[^\x00-\x7f])"
_AT_RULES = rf"(?:import|font-face|namespace|supports|container|(?:-moz-)?+document){_NAME_END}"
_PASSED = re.compile(
    rf"(?:[^\"'/\\@(]++|{_COMMENT}|{_STRING}|\\.?+|@(?!{_AT_RULES})|\((?<!url\()(?<!set\())*+",
    re.DOTALL | re.IGNORECASE,
)
_AT_RULE = re.compile(_AT_RULES, re.IGNORECASE)
_PRELUDE = re.compile(rf"(?:[^\"'/\\{{}};]++|{_COMMENT}|{_STRING}|\\.?+)*+", re.DOTALL)
_IN_SET = re.compile(rf"(?:[^\"'/\\(){{}};]++|{_COMMENT}|\\.?+)*+", re.DOTALL)
_QUOTED = re.compile(_IN_QUOTES, re.DOTALL)
_BEFORE_IMPORTED = re.compile(rf"(?:[ \t\n]++|{_COMMENT})*+", re.DOTALL)
_BLANKS = re.compile(r"[ \t\n]*+")
_BARE = re.compile(
    r"((?:[^\"'()\\ \t\n\x00-\x08\x0b\x0e-\x1f\x7f]++|\\(?:[0-9a-fA-F]{1,6}+[ \t\n]?+|[^\n]))*+)[ \t\n]*+(?:\)|\Z)"
)
_BAD_URL = re.compile(r"(?:[^)\\]++|\\.?+)*+\)?+", re.DOTALL)
_SETS = ("image-set", "-webkit-image-set")
_SET_CHARS = max(map(len, _SETS)) + 1

_ESCAPED = re.compile(r"\\(?:([0-9a-fA-F]{1,6}+)[ \t\n]?+|(.))", re.DOTALL)
# An escape that may be a letter of the names above: of a digit or letter, in hexadecimal digits or as it is.
_HIDES_NAMES = re.compile(r"\\(?:0{0,4}+[2-7][0-9a-f](?![0-9a-f])|[g-z])", re.IGNORECASE)
_CHARSET_RULE = b'@charset "'
_CHARSET_CHARS_MAX = 64
_NOT_A_CHARACTER = "\ufffd"


def css_urls(
    text: str | bytes, base_url: str, *, limit: int, content_type: str = ""
) -> tuple[tuple[Requisite, ...], int]:
    """What a style sheet loads, in its order, and how many references were left out, at least.

    `base_url` is the canonical URL of the sheet. `content_type`: the header that came with bytes.
    """
    codec = "" if isinstance(text, str) else _charset_of(text, content_type)
    found = RequisiteList(base_url, limit, own_url=base_url, query_charset="" if is_unicode(codec) else codec)
    read_css(text if isinstance(text, str) else decode(text, codec), found)
    return found.found()


def read_css(text: str, found: RequisiteList) -> None:
    """Add what a sheet, or the value of a style attribute, loads."""
    if "(" not in text and "@" not in text:
        return
    text = _prepared(text)
    at, end, font_from = 0, len(text), -1
    while found.step():
        at = _PASSED.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if at >= end:
            return
        at += 1
        if text[at - 1] == "@":
            rule = _AT_RULE.match(text, at)
            assert rule is not None
            name, at = rule[0].lower(), rule.end()
            if name == "font-face":
                font_from = at
            elif name == "import":
                at = _import(text, at, found)
            else:
                at = _PRELUDE.match(text, at).end()  # type: ignore[union-attr]
        elif _is_function(text, at, "url"):
            if font_from >= 0:
                font_from = -1 if text.find("}", font_from, at) >= 0 else at
            at = _url(text, at, found, "font" if font_from >= 0 else "image")
        elif any(_is_function(text, at, name) for name in _SETS):
            at = _image_set(text, at, found)
    found.cut += text.count("url(", at) + 1


def _import(text: str, at: int, found: RequisiteList) -> int:
    """Read an @import behind its name; returns where to go on."""
    at = _BEFORE_IMPORTED.match(text, at).end()  # type: ignore[union-attr]
    if quoted := _QUOTED.match(text, at):
        found.add(_unescaped(quoted[quoted.lastindex or 0]), "style", in_utf_8=True)
        at = quoted.end()
    elif text[at : at + 4].lower() == "url(":
        at = _url(text, at + 4, found, "style", in_utf_8=True)
    return _PRELUDE.match(text, at).end()  # type: ignore[union-attr]


def _url(text: str, at: int, found: RequisiteList, kind: str, *, in_utf_8: bool = False) -> int:
    """Read a URL behind `url(`; returns where to go on."""
    start = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
    if text[start : start + 1] in ("'", '"'):
        quoted = _QUOTED.match(text, start)
        if quoted is None:
            return start  # a string that ends with its line
        found.add(_unescaped(quoted[quoted.lastindex or 0]), kind, in_utf_8=in_utf_8)
        return quoted.end()
    if bare := _BARE.match(text, start):
        found.add(_unescaped(bare[1]), kind, in_utf_8=in_utf_8)
        return bare.end()
    return _BAD_URL.match(text, start).end()  # type: ignore[union-attr]


def _image_set(text: str, at: int, found: RequisiteList) -> int:
    """Read a set of images behind its `(`; returns where to go on."""
    depth, end = 1, len(text)
    while depth and found.step():
        at = _IN_SET.match(text, at).end()  # type: ignore[union-attr]
        if at >= end or text[at] in "{};":
            break
        if text[at] in "\"'":
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                break
            if depth == 1:
                found.add(_unescaped(quoted[quoted.lastindex or 0]), "image")
            at = quoted.end()
            continue
        at += 1
        if text[at - 1] == ")":
            depth -= 1
        elif _is_function(text, at, "url"):
            at = _url(text, at, found, "image")
            depth += text[at - 1] != ")"  # that of a quoted one comes
        else:
            depth += 1
    return at


def _is_function(text: str, at: int, name: str) -> bool:
    """Is this the name right before the `(` that ends at `at`?"""
    start = at - 1 - len(name)
    if start < 0 or text[start : at - 1].lower() != name:
        return False
    before = text[start - 1 : start]
    is_named_longer = before.isalnum() or before in ("-", "_", "#", "\\") or before >= "\x80"
    return not before or not (is_named_longer or text[start - 2 : start - 1] == "\\")


def _prepared(text: str) -> str:
    """The text as tokens are read from it (CSS Syntax 3.3), with the letters of names unescaped."""
    if "\r" in text or "\f" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    text = text.replace("\0", _NOT_A_CHARACTER)
    return _ESCAPED.sub(_plain, text) if _HIDES_NAMES.search(text) else text


def _plain(escape: re.Match[str]) -> str:
    """An escape that is a letter or digit as such, another one in a form that takes nothing that follows."""
    digits, other = escape.groups()
    if digits is None:
        return other if other.isascii() and other.isalnum() else escape[0]
    number = int(digits, 16)
    if number < 0x80 and (chr(number).isalnum() or number in b"-_"):
        return chr(number)
    return f"\\{number:06x} "


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    digits, other = escape.groups()
    if digits is None:
        return "" if other == "\n" else str(other)
    number = int(digits, 16)
    is_one = 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    return chr(number) if is_one else _NOT_A_CHARACTER


def _charset_of(body: bytes, content_type: str) -> str:
    """The codec of a sheet (CSS Syntax 3.2): by byte-order mark, header, @charset, else UTF-8. The next is the encoding
    of the page that has it, which is not known here: that of the West.
    """
    if stated := stated_charset(body, content_type) or _charset_rule(body):
        return stated
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _charset_rule(body: bytes) -> str | None:
    if not body.startswith(_CHARSET_RULE):
        return None
    label, quote, _ = body[len(_CHARSET_RULE) :][:_CHARSET_CHARS_MAX].partition(b'";')
    codec = CODECS.get(label.decode("latin-1").strip().lower()) if quote else None
    return "utf-8" if codec and is_unicode(codec) else codec  # what it is written in is no UTF-16
