"""Which form is open where a field begins: the parser gives the field to that one, and its tree does not tell. Pure.

    <table><form><tr><td><input></td></tr></form></table>     the form is an empty element of the table
    <div><form></div><input></form>                           the form ends with the div

Such pages are common: the standard lets a form own what comes before its end tag, whatever is around it. So the tags
are read as the tokenizer reads them, and each form and field gets the number of its form. The result is parsed again.
What is not looked at: `noscript` is markup, as nobody runs scripts here, and scripts within comments of scripts.
"""

import re

from crawler.content.parse_cost import TAG

NUMBER = "crawler-form"  # the attribute: the number of the form, as the tags come; empty: none is open
_NAME = re.compile(rb"</?([a-zA-Z][^ \t\n\f\r/>]*+)")
_COMMENT_END = re.compile(rb"--!?>")
_FIELDS = frozenset((b"input", b"button", b"select", b"textarea"))
_FOREIGN = frozenset((b"svg", b"math"))
_RAW = {
    name: re.compile(rb"</%b(?=[ \t\n\f\r/>])" % name, re.IGNORECASE)
    for name in (b"script", b"style", b"title", b"textarea", b"xmp", b"iframe", b"noembed", b"noframes")
}


def with_owners(markup: bytes) -> bytes:
    """The same markup, in which each form and each field has its number."""
    parts, copied, at = list[bytes](), 0, 0
    scan = _Scan()
    while (at := markup.find(b"<", at)) >= 0:
        named = _NAME.match(markup, at)
        if named is None:
            at = _behind_other(markup, at)
            continue
        tag = TAG.match(markup, at)
        assert tag is not None
        if markup[tag.end() : tag.end() + 1] != b">":
            break  # it does not end
        name, is_end = named[1].lower(), markup[at + 1 : at + 2] == b"/"
        number = scan.take(name, is_end=is_end, is_void=markup[tag.end() - 1 : tag.end()] == b"/")
        if number is not None:
            parts += (markup[copied : named.end()], b' %b="%b"' % (NUMBER.encode(), number))
            copied = named.end()
        at = tag.end() + 1
        if not is_end and not scan.foreign:
            if name == b"plaintext":
                break
            if name in _RAW:
                end = _RAW[name].search(markup, at)
                at = end.start() if end else len(markup)
    return b"".join(parts) + markup[copied:]


def _behind_other(markup: bytes, at: int) -> int:
    """Behind a comment or what counts as one; behind the bracket if it is text."""
    if markup.startswith(b"<!--", at):
        if markup.startswith((b">", b"->"), at + 4):
            return at + 5
        end = _COMMENT_END.search(markup, at + 4)
        return end.end() if end else len(markup)
    if markup[at + 1 : at + 2] in (b"!", b"?", b"/"):
        found = markup.find(b">", at)
        return found + 1 if found >= 0 else len(markup)
    return at + 1


class _Scan:
    """What the parser knows besides its tree: the form that is open, and where form tags count for nothing."""

    def __init__(self) -> None:
        self.foreign = 0
        self._templates = 0
        self._forms = 0
        self._open = b""
        self._is_in_select = False

    def take(self, name: bytes, *, is_end: bool, is_void: bool) -> bytes | None:
        """The number for a tag; None for one that gets none."""
        if name == b"template":
            self._templates = max(0, self._templates + (-1 if is_end else 1))
        elif name in _FOREIGN and not is_void:
            self.foreign = max(0, self.foreign + (-1 if is_end else 1))
        if self._templates:
            return None
        if name == b"form":
            return self._take_form(is_end=is_end)
        if name not in _FIELDS:
            return None
        if name != b"button":  # each of the others ends a select
            self._is_in_select = name == b"select" and not is_end and not self._is_in_select
        return None if is_end else self._open

    def _take_form(self, *, is_end: bool) -> bytes | None:
        if self._is_in_select:
            return None
        if is_end:
            self._open = b""
            return None
        if self._open:
            return None  # a form in a form is none
        self._open = b"%d" % self._forms
        self._forms += 1
        return self._open
