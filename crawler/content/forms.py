"""What a browser sends for a form: its fields by the HTML standard, without scripts and files. Pure.

The standard's "constructing the entry list" goes through the fields whose owner is the form (form_fields.py), in the
order of the document.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.charset import CODECS, form_bytes, is_unicode, name_of, with_query_in
from crawler.content.form_fields import (
    BOXES,
    FIELDS_MAX,
    PRESSED,
    SHOWN_CHARS,
    Field,
    default_button,
    fields_of,
    matching,
    numbered,
    shown,
    told,
)
from crawler.content.form_values import BLANKS, CLEANED
from crawler.errors import InvalidUrl
from crawler.rules.text import one_line
from crawler.rules.urls import canonicalize, join, scalar

BYTES_MAX = 64 * 1024  # of what is sent: it waits in the queue with its URL

URLENCODED, MULTIPART, PLAIN = "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"
_CHOICES = frozenset(("checkbox", "radio", "select"))
_DIRECTED = frozenset(("hidden", "text", "search", "tel", "url", "email", "password", "submit", "textarea"))
_SUBMIT_LABEL = "Submit"  # value of a submit button without one, in an English browser; the standard has "" there
_SAFE = frozenset(b"*-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_FORM_OCTETS = tuple("+" if n == 0x20 else chr(n) if n in _SAFE else f"%{n:02X}" for n in range(256))

Given = Mapping[str, str | int | float | Sequence[str | int | float] | None]


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a form makes it. `body` and `content_type` are empty for GET, whose data are in the URL; of such a
    one, `has_password` is told.
    """

    method: str
    url: str  # canonical
    body: bytes = b""
    content_type: str = ""
    has_password: bool = False  # was a field for one set?


class Entry(NamedTuple):
    """One field as it is sent."""

    name: str
    value: str
    is_file: bool = False


def filled(
    tree: LexborHTMLParser, form: str | LexborNode, values: Given, *, url: str, base: str, charset: str,
    button: str | None = "", extra: bool = False,
) -> Submission:  # fmt: skip
    """What is sent when these fields of a form are set, and a button is pressed.

    `form`: a CSS selector that one form matches ("form": the only one), or its node. `values` by the names of fields:
    a text, several for fields with one name, or None to leave them out. Boxes are ticked and options chosen by their
    value, or the first box by True. `button`: name or selector of the one that is pressed; "": the one that Enter
    presses; None: no button is sent. `url`, `base` and `charset` (a codec) of the page. `extra`: the form may lack the
    fields and options that are named.

    Raises LookupError for what the form does not have, ValueError for what can't be sent, each in one line.
    """
    tree, node = numbered(tree, _form_in(tree, form))
    fields = fields_of(tree, node)
    pressed = None if button is None else _button_in(tree, fields, button) if button else default_button(fields)
    given, beyond = _set(told(node), fields, values, extra=extra)
    return sent(node, fields, pressed, given, beyond, url=url, base=base, charset=charset)


def sent(
    form: LexborNode, fields: list[Field], pressed: Field | None, given: Mapping[int, list[str]],
    beyond: Iterable[Entry] = (), *, url: str, base: str, charset: str,
) -> Submission:  # fmt: skip
    """What a form sends. `given`: the values of fields that were set, by the `mem_id` of their nodes; `beyond`: what is
    sent besides. Raises ValueError for what can't be sent.
    """
    codec = _codec_of(form, charset)
    entries = [*_entries(fields, pressed, given, codec), *beyond]
    if len(entries) > FIELDS_MAX:
        raise ValueError(f"{told(form)} sends more than {FIELDS_MAX:,} fields")
    if sum(len(entry.name) + len(entry.value) for entry in entries) > BYTES_MAX:
        raise ValueError(_TOO_LONG)

    method = _keyword(form, pressed, "method", ("get", "post", "dialog")) or "get"
    if method == "dialog":
        raise ValueError(f"{told(form)} has method=dialog: it closes a dialog, and sends nothing")
    target = _action(form, pressed, url, base, charset)
    pairs = [(form_bytes(codec, _lines(one.name)), form_bytes(codec, _lines(one.value))) for one in entries]
    if method == "get":
        has_password = any(one.kind == "password" and any(given.get(one.node.mem_id, ())) for one in fields)
        return Submission(method="GET", url=_with_query(target, _urlencoded(pairs)), has_password=has_password)
    encoding = _keyword(form, pressed, "enctype", (URLENCODED, MULTIPART, PLAIN))
    if encoding == MULTIPART:
        body, encoding = _multipart(pairs, [entry.is_file for entry in entries])
    elif encoding == PLAIN:
        body = b"".join([b"%b=%b\r\n" % pair for pair in pairs])
    else:
        body, encoding = _urlencoded(pairs).encode(), URLENCODED
    if len(body) > BYTES_MAX:
        raise ValueError(_TOO_LONG)
    return Submission(method="POST", url=target, body=body, content_type=encoding)


_TOO_LONG = f"the data of the form have more than {BYTES_MAX // 1024} KiB"


# --- which form, which fields ---


def _form_in(tree: LexborHTMLParser, form: str | LexborNode) -> LexborNode:
    if not isinstance(form, str):
        if form.tag != "form":
            raise ValueError(f"a {form.tag} is not a form")
        return form
    found = matching(tree, form)
    if len(found) == 1:
        if found[0].tag != "form":
            raise ValueError(f"{form!r} matches a {found[0].tag}, not a form")
        return found[0]
    if found:
        raise ValueError(f"{len(found)} elements match {form!r} ({shown(map(told, found))}): name one form")
    forms = tree.css("form")
    there_are = f"there are: {shown(map(told, forms))}" if forms else "the page has no form"
    raise LookupError(f"no form matches {form!r} ({there_are})")


def _button_in(tree: LexborHTMLParser, fields: list[Field], wanted: str) -> Field:
    """The button that is pressed, by its name or a selector."""
    buttons = [field for field in fields if field.kind in PRESSED]
    found = [field for field in buttons if field.name == wanted]
    if not found:
        fitting = {node.mem_id for node in matching(tree, wanted)}
        found = [field for field in buttons if field.node.mem_id in fitting]
    if len(found) == 1:
        return found[0]
    if found:
        those = shown(f'[name="{one.name}"][value="{one.value}"]' for one in found)
        raise ValueError(f"{len(found)} buttons match {wanted!r} ({those}): name one by a selector")
    raise LookupError(f"no button {wanted!r} (there are: {shown(one.name or '(without a name)' for one in buttons)})")


# --- what they send ---


def _entries(fields: list[Field], pressed: Field | None, given: Mapping[int, list[str]], codec: str) -> list[Entry]:
    """`given`: values of fields that were set."""
    ticked = {field.name: field.node.mem_id for field in fields if field.kind == "radio" and field.has("checked")}
    entries = list[Entry]()
    for field in fields:
        if field.is_button:
            if pressed is not None and field.node.mem_id == pressed.node.mem_id:
                entries += _of_button(field)
            continue
        values = given.get(field.node.mem_id)
        if not field.name or (values is None and field.is_disabled):
            continue
        if values is None:
            is_charset = field.kind == "hidden" and field.name.lower() == "_charset_"
            values = [name_of(codec)] if is_charset else _default(field, ticked)
        entries += [Entry(field.name, value, field.kind == "file") for value in values]
        entries += _direction(field, values)
    return entries


def _of_button(field: Field) -> list[Entry]:
    if field.kind == "image":  # where it was clicked
        prefix = f"{field.name}." if field.name else ""
        return [Entry(f"{prefix}x", "0"), Entry(f"{prefix}y", "0")]
    if not field.name:
        return []
    is_plain_input = field.node.tag == "input" and not field.has("value")
    value = _SUBMIT_LABEL if is_plain_input else field.value
    return [Entry(field.name, value), *_direction(field, [value])]


def _direction(field: Field, values: list[str]) -> list[Entry]:
    """For `dirname`: the direction of the text."""
    name = field.node.attrs.sget("dirname") or ""
    if not name or not values or field.kind not in _DIRECTED:
        return []
    own = (field.node.attrs.sget("dir") or "").lower()
    if own == "auto":
        strong = (unicodedata.bidirectional(c) for c in values[0])
        own = "rtl" if next((kind for kind in strong if kind in ("L", "R", "AL")), "L") != "L" else "ltr"
    elif own not in ("ltr", "rtl"):
        own = "ltr" if field.kind == "tel" else field.direction
    return [Entry(name, own)]


def _default(field: Field, ticked: Mapping[str, int]) -> list[str]:
    if field.kind == "select":
        return _chosen(field)
    if field.kind == "textarea":
        return [field.node.text()]
    if field.kind == "checkbox":
        return [_box_value(field)] if field.has("checked") else []
    if field.kind == "radio":  # ticking one clears the others
        return [_box_value(field)] if ticked.get(field.name) == field.node.mem_id else []
    if field.kind == "file":
        return [""]
    clean = CLEANED.get(field.kind)
    return [clean(field.value, field.node) if clean else field.value]


def _box_value(field: Field) -> str:
    return field.value if field.has("value") else "on"


class _Option(NamedTuple):
    value: str
    is_selected: bool
    is_disabled: bool


def _options(field: Field) -> Iterator[_Option]:
    for node in field.node.css("option"):
        above = node.parent
        group = [above] if above is not None and above.tag == "optgroup" else []
        is_off = any("disabled" in one.attrs for one in (node, *group))
        value = node.attrs.sget("value") or ""
        yield _Option(value if "value" in node.attrs else _label(node), "selected" in node.attrs, is_off)


def _label(option: LexborNode) -> str:
    return " ".join([word for word in option.text().translate(_TO_BLANK).split(" ") if word])


_TO_BLANK = str.maketrans(dict.fromkeys(BLANKS, " "))


def _chosen(field: Field) -> list[str]:
    options = list(_options(field))
    chosen = [option for option in options if option.is_selected]
    if not field.has("multiple"):
        if not chosen and _integer(field.node.attrs.sget("size") or "") <= 1:  # a menu always shows one
            chosen = [option for option in options if not option.is_disabled][:1]
        chosen = chosen[-1:]
    return [option.value for option in chosen if not option.is_disabled]


def _integer(text: str) -> int:
    digits = text.strip(BLANKS)[:6]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


# --- what was set ---


def _set(form: str, fields: list[Field], values: Given, *, extra: bool) -> tuple[dict[int, list[str]], list[Entry]]:
    """The values of each field that is named, and those for which there is none."""
    by_name = dict[str, list[Field]]()
    for field in fields:
        by_name.setdefault(field.name, []).append(field)
    found, beyond = dict[int, list[str]](), list[Entry]()
    for name, value in values.items():
        named = by_name.get(name, [])
        usable = [field for field in named if not field.is_button]
        wanted = _wanted(name, value, usable)
        if named and not usable:
            raise ValueError(f"{name!r} is a button of {form}: name it with button=")
        if not usable and not extra:
            names = shown(one for one, those in by_name.items() if one and not all(field.is_button for field in those))
            raise LookupError(f"{form} has no field {name!r} (there are: {names})")
        if wanted is None:
            found |= {field.node.mem_id: [] for field in usable}
            continue
        assigned, rest, choices = _assigned(name, usable, wanted)
        if rest and not extra:
            is_known = not choices or rest[0] in choices
            why = f"it takes {len(wanted) - len(rest)} in all" if is_known else f"there are: {shown(choices)}"
            raise LookupError(f"the field {name!r} of {form} can't have the value {rest[0]!r} ({why})")
        found |= assigned
        beyond += [Entry(name, one) for one in rest]
    return found, beyond


def _assigned(name: str, fields: list[Field], wanted: list[str]) -> tuple[dict[int, list[str]], list[str], list[str]]:
    """The values of fields with one name, the values that none of them can have, and the choices that there are.

    Boxes and options take the values that they have. The fields for text get the others in order, those that are not
    disabled first; they keep their own when none is left.
    """
    if wanted and any(field.kind == "file" for field in fields):
        raise ValueError(f"the field {name!r} is for a file, which can't be sent")
    found, rest, choices, is_ticked = dict[int, list[str]](), list(wanted), list[str](), False
    for field in fields:
        key = field.node.mem_id
        if field.kind in BOXES:
            is_open = field.kind == "checkbox" or not is_ticked
            found[key] = _common([_box_value(field)] if is_open else [], rest)
            is_ticked |= field.kind == "radio" and bool(found[key])
            choices.append(_box_value(field))
        elif field.kind == "select":
            options = [option.value for option in _options(field)]
            choices += options
            if field.has("multiple"):
                found[key] = _common(options, rest)
            elif chosen := _common(list(rest), [*options])[:1]:
                found[key] = chosen
                rest.remove(chosen[0])
            elif rest:  # it goes to another field, or is one that a script would add
                found[key] = []
    texts = sorted((field for field in fields if field.kind not in _CHOICES), key=lambda field: field.is_disabled)
    found |= {field.node.mem_id: [value] for field, value in zip(texts, rest, strict=False)}
    return found, rest[len(texts) :], choices


def _common(values: list[str], rest: list[str]) -> list[str]:
    """Those of the values that are in the rest, which they leave."""
    found = list[str]()
    for value in values:
        if value in rest:
            rest.remove(value)
            found.append(value)
    return found


def _wanted(name: str, value: Any, fields: list[Field]) -> list[str] | None:
    """Raises TypeError for what is no text, number, list of these, or answer to whether a box is ticked."""
    if value is None:
        return None
    if isinstance(value, bool):
        boxes = [field for field in fields if field.kind in BOXES]
        if fields and not boxes:
            raise TypeError(f"the field {name!r} is no box that is ticked or not: it takes a text")
        return [_box_value(boxes[0]) if boxes else "on"] if value else []
    wanted: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in wanted):
        raise TypeError(f"the field {name!r} takes a text, a number, a list of these, True, False or None")
    return [scalar(str(one)) for one in wanted]


# --- the request ---


def _keyword(form: LexborNode, pressed: Field | None, name: str, known: tuple[str, ...]) -> str:
    """An attribute of the form, which the button's may replace; "" for what is not known."""
    value = form.attrs.sget(name)
    if pressed is not None and pressed.has(f"form{name}"):
        value = pressed.node.attrs.sget(f"form{name}")
    found = (value or "").lower()
    return found if found in known else ""


def _codec_of(form: LexborNode, charset: str) -> str:
    """The first known encoding of `accept-charset`, else that of the page, as browsers do (the standard has UTF-8 where
    none is known, and no commas); UTF-8 in the place of UTF-16.
    """
    accepted = (form.attrs.sget("accept-charset") or "").replace(",", " ").translate(_TO_BLANK).split(" ")
    codec = next((known for label in accepted if (known := CODECS.get(label.lower()))), charset)
    return "utf-8" if is_unicode(codec) else codec


def _action(form: LexborNode, pressed: Field | None, url: str, base: str, charset: str) -> str:
    """Where it is sent. Raises ValueError for what can't be fetched."""
    action = form.attrs.sget("action") or ""
    if pressed is not None and pressed.has("formaction"):
        action = pressed.node.attrs.sget("formaction") or ""
    if not action.strip(BLANKS):
        return url
    target = join(base, action if is_unicode(charset) else with_query_in(charset, action))
    if target is None:
        raise ValueError(f"{told(form)} leads to {one_line(action[: 2 * SHOWN_CHARS])!r}, which is not an http URL")
    return target


def _with_query(target: str, query: str) -> str:
    try:
        return canonicalize(f"{target.partition('?')[0]}?{query}")
    except InvalidUrl as error:
        raise ValueError(f"the URL with the data of the form can't be fetched: {error.reason}") from None


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def _urlencoded(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    return "&".join([f"{_escaped(name)}={_escaped(value)}" for name, value in pairs])


def _escaped(text: bytes) -> str:
    return "".join(map(_FORM_OCTETS.__getitem__, text))


def _multipart(pairs: list[tuple[bytes, bytes]], are_files: list[bool]) -> tuple[bytes, str]:
    """Body and type. The boundary comes from the data: the same data are the same request."""
    parts = list[bytes]()
    for (name, value), is_file in zip(pairs, are_files, strict=True):
        quoted = name.replace(b"\r", b"%0D").replace(b"\n", b"%0A").replace(b'"', b"%22")
        rest = b'; filename=""\r\nContent-Type: application/octet-stream' if is_file else b""
        parts.append(b'\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (quoted, rest, value))
    boundary = b"----form" + blake2b(b"".join(parts), digest_size=12).hexdigest().encode()
    body = b"".join([b"--" + boundary + part for part in parts]) + b"--" + boundary + b"--\r\n"
    return body, f"{MULTIPART}; boundary={boundary.decode()}"
