"""The fields of a page's forms: which form owns each, what kind it is, and whether it is switched off. Pure.

Who owns a field: the form that its `form` attribute names, else the one that is open where it begins (form_owners.py),
else the form around it.

A tree may hold 100,000 fields in any nesting: what lies around them is read once for each element, not for each field.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from crawler.content.form_owners import NUMBER, with_owners
from crawler.content.form_values import CLEANED
from crawler.content.html import NO_EVENTS
from crawler.rules.text import one_line

FIELDS_MAX = 10_000
SHOWN = 20  # names in a message
SHOWN_CHARS = 60  # of each

BOXES = frozenset(("checkbox", "radio"))
PRESSED = frozenset(("submit", "image"))
_BUTTONS = frozenset(("submit", "image", "reset", "button"))
_CONTROLS = "input,button,select,textarea"
_FOREIGN, _HTML_IN_FOREIGN = frozenset(("svg", "math")), frozenset(("foreignObject", "desc", "title"))
_UNSEEN = ("display:none", "visibility:hidden")


class Field(NamedTuple):
    """`kind`: the type of an input or a button, else "select" or "textarea"."""

    node: LexborNode
    kind: str
    name: str
    is_disabled: bool
    is_unseen: bool  # as far as the markup tells, without style sheets
    direction: str  # of the text around it

    @property
    def value(self) -> str:
        return self.node.attrs.sget("value") or ""

    @property
    def is_button(self) -> bool:
        return self.kind in _BUTTONS

    def has(self, attribute: str) -> bool:
        return attribute in self.node.attrs


class _Place(NamedTuple):
    """What the elements around a field make of it."""

    form: int = 0  # the nearest
    is_disabled: bool = False
    is_unseen: bool = False
    is_suggestion: bool = False  # in a datalist
    is_foreign: bool = False  # in a picture or a formula: not a field at all
    direction: str = "ltr"


_OUTSIDE = _Place()


class _Places:
    """The place that each element is for what it holds."""

    def __init__(self) -> None:
        self._known: dict[int, _Place] = {}
        self._legends: dict[int, int] = {}

    def around(self, node: LexborNode) -> _Place:
        path, above = list[LexborNode](), node.parent
        while above is not None and above.is_element_node and above.mem_id not in self._known:
            path.append(above)
            above = above.parent
        place = self._known.get(above.mem_id, _OUTSIDE) if above is not None else _OUTSIDE
        for one in reversed(path):
            self._known[one.mem_id] = place = self._within(one, place)
        return place

    def _within(self, node: LexborNode, place: _Place) -> _Place:
        tag = node.tag
        if tag == "form":
            place = place._replace(form=node.mem_id)
        elif tag == "fieldset" and "disabled" in node.attrs:
            place = place._replace(is_disabled=True)
        elif tag == "legend" and (fieldset := node.parent) is not None and fieldset.tag == "fieldset":
            if self._first_legend(fieldset) == node.mem_id:
                place = place._replace(is_disabled=self.around(fieldset).is_disabled)
        elif tag == "datalist":
            place = place._replace(is_suggestion=True)
        elif tag in _FOREIGN or tag in _HTML_IN_FOREIGN:
            place = place._replace(is_foreign=tag in _FOREIGN)
        if not place.is_unseen and _is_unseen(node):
            place = place._replace(is_unseen=True)
        direction = (node.attrs.sget("dir") or "").lower()
        return place._replace(direction=direction) if direction in ("ltr", "rtl") else place

    def _first_legend(self, fieldset: LexborNode) -> int:
        if fieldset.mem_id not in self._legends:
            found = next((child.mem_id for child in fieldset.iter() if child.tag == "legend"), 0)
            self._legends[fieldset.mem_id] = found
        return self._legends[fieldset.mem_id]


def _is_unseen(node: LexborNode) -> bool:
    if "hidden" in node.attrs or (node.attrs.sget("aria-hidden") or "").lower() == "true":
        return True
    style = (node.attrs.sget("style") or "").lower().replace(" ", "")
    return any(one in style for one in _UNSEEN)


def numbered(tree: LexborHTMLParser, form: LexborNode) -> tuple[LexborHTMLParser, LexborNode]:
    """The same page and form, with the numbers of forms; as it is if the tree was changed after it was parsed."""
    forms = tree.css("form")
    found = LexborHTMLParser(with_owners(tree.raw_html), options=NO_EVENTS)
    same = found.css("form")
    at = next((n for n, one in enumerate(forms) if one.mem_id == form.mem_id), len(forms))
    return (found, same[at]) if len(same) == len(forms) > at else (tree, form)


def fields_by_owner(tree: LexborHTMLParser) -> Iterator[tuple[int, Field]]:
    """All fields of a page in its order, each with the `mem_id` of its form (0: none)."""
    places = _Places()
    by_number = {number: form.mem_id for form in tree.css("form") if (number := form.attrs.sget(NUMBER))}
    by_id: dict[str, int] | None = None  # of the first element with an id, once a field names one
    for node in tree.css(_CONTROLS):
        place = places.around(node)
        if "form" in node.attrs:
            if by_id is None:
                by_id = {}
                for one in tree.css("[id]"):
                    by_id.setdefault(one.attrs.sget("id") or "", one.mem_id if one.tag == "form" else 0)
                by_id[""] = 0
            owner = by_id.get(node.attrs.sget("form") or "", 0)
        else:
            number = node.attrs.sget(NUMBER)
            owner = by_number.get(number, 0) if number else place.form
        if place.is_suggestion or place.is_foreign:
            continue
        is_disabled = place.is_disabled or "disabled" in node.attrs
        is_unseen = place.is_unseen or _is_unseen(node)
        name = node.attrs.sget("name") or ""
        yield owner, Field(node, _kind_of(node), name, is_disabled, is_unseen, place.direction)


def fields_of(tree: LexborHTMLParser, form: LexborNode) -> list[Field]:
    """The fields that a form owns. Raises ValueError for too many."""
    found = list[Field]()
    for owner, field in fields_by_owner(tree):
        if owner == form.mem_id:
            if len(found) == FIELDS_MAX:
                raise ValueError(f"{told(form)} has more than {FIELDS_MAX:,} fields")
            found.append(field)
    return found


def _kind_of(node: LexborNode) -> str:
    tag = node.tag or ""
    if tag in ("select", "textarea"):
        return tag
    kind = (node.attrs.sget("type") or "").lower()
    if tag == "button":
        return kind if kind in ("reset", "button") else "submit"
    return kind if kind in _BUTTONS or kind in BOXES or kind in CLEANED or kind in ("hidden", "file") else "text"


def default_button(fields: Iterable[Field]) -> Field | None:
    """The button that Enter presses in a browser: the first that sends the form.

    One that is disabled counts, too: its page waits for the fields to be filled before a script enables it.
    """
    return next((field for field in fields if field.kind in PRESSED), None)


def matching(tree: LexborHTMLParser, selector: str) -> list[LexborNode]:
    """Raises ValueError for what is not a selector."""
    try:
        return tree.css(selector)
    except SelectolaxError:
        raise ValueError(f"{selector!r} is not a valid selector") from None


def told(node: LexborNode) -> str:
    """A form as a selector."""
    for attribute in ("id", "name", "action"):
        if value := node.attrs.sget(attribute):
            return f'{node.tag}[{attribute}="{value[:SHOWN_CHARS]}"]'
    return str(node.tag)


def shown(names: Iterable[str]) -> str:
    """Names for a message: each once, in one line, not too many."""
    distinct = list(dict.fromkeys(one_line(name[: 2 * SHOWN_CHARS]) for name in names))
    more = f" and {len(distinct) - SHOWN:,} more" if len(distinct) > SHOWN else ""
    return (", ".join(distinct[:SHOWN]) or "none") + more
