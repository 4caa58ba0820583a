"""HTML forms, filled in and encoded as a browser does when somebody sends them (HTML, 4.10.21 and 4.10.22). Pure."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.charset import codec_of, in_codec
from crawler.rules.urls import join

FIELDS_MAX = 10_000
NAMES_SHOWN = 20
URLENCODED, MULTIPART, PLAIN = "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"
_FIELDS = "input, select, textarea, button"
_BARRED = f"{_FIELDS}, fieldset, datalist"
_BUTTONS = frozenset({"submit", "image", "reset", "button"})
_SENDING = frozenset({"submit", "image"})
_CHOICES = frozenset({"checkbox", "radio"})


class Submission(NamedTuple):
    """What a browser requests for a form. `body` is None for GET, whose fields are in the URL."""

    method: str
    url: str
    body: bytes | None
    content_type: str


class _Entry(NamedTuple):
    name: str
    value: str


def form_at(tree: LexborHTMLParser, selector: str) -> LexborNode:
    """The form that a selector names, or that holds what it names; without one the only form. Raises LookupError."""
    if not selector:
        forms = tree.css("form")
        if len(forms) != 1:
            if not forms:
                raise LookupError("the page has no form")
            shown = ", ".join(_shown(form) for form in forms[:NAMES_SHOWN])
            raise LookupError(f"the page has {len(forms)} forms: name one with a selector ({shown})")
        return forms[0]
    node = tree.css_first(selector)
    while node is not None and node.tag != "form":
        node = node.parent
    if node is None:
        raise LookupError(f"no form fits {selector!r}")
    return node


def _shown(form: LexborNode) -> str:
    known = form.attributes
    return "form" + "".join(f"[{key}={(known[key] or '')[:40]!r}]" for key in ("id", "name", "action") if key in known)


def filled(
    tree: LexborHTMLParser, form: LexborNode, values: Mapping[str, Any], *, url: str, base: str, charset: str = "",
    button: str = "",
) -> Submission:  # fmt: skip
    """What is sent when these values are put into the form's fields: text, a list for several of one name, True or
    False for a checkbox, None to leave the field out. Others keep what the page gave them. `button`: name or id of the
    one that is pressed; `url` and `base`: of the page.

    Raises LookupError for a field or button that there is not, ValueError for what can't be chosen or sent.
    """
    fields = _fields_of(tree, form)
    pressed = _button_of(fields, button) if button else None
    codec = codec_of(_first_word(form.attributes.get("accept-charset") or "")) or charset or "utf-8"
    entries = list(_entries(tree, fields, pressed, dict(values), codec))

    def said(name: str, default: str) -> str:
        own = pressed.attributes.get(f"form{name}") if pressed is not None else None
        return (own if own is not None else form.attributes.get(name)) or default

    method, kind = said("method", "get").lower(), said("enctype", URLENCODED).lower()
    target = join(base, said("action", url).strip()) if said("action", "") else url
    if method == "dialog" or not target:
        raise ValueError(f"the form sends nothing: method {method}, action {said('action', '')[:100]!r}")
    if method != "post":
        return Submission("GET", f"{target.partition('?')[0]}?{_urlencoded(entries, codec)}", None, "")
    if kind == MULTIPART:
        body, boundary = _multipart(entries, codec)
        return Submission("POST", target, body, f"{MULTIPART}; boundary={boundary}")
    if kind == PLAIN:
        lines = [in_codec(codec, f"{name}={value}\r\n") for name, value in entries]
        return Submission("POST", target, b"".join(lines), PLAIN)
    return Submission("POST", target, _urlencoded(entries, codec).encode(), URLENCODED)


def _first_word(text: str) -> str:
    return next(iter(text.replace(",", " ").split()), "")


def _fields_of(tree: LexborHTMLParser, form: LexborNode) -> list[LexborNode]:
    """The fields that belong to a form, in the order of the tree: those within it, and those that name it."""
    identity, inside = form.attributes.get("id"), {node.mem_id for node in form.css(_FIELDS)}
    fields = []
    for node in tree.css(_FIELDS):
        owner = node.attributes.get("form")
        if (node.mem_id in inside) if owner is None else bool(identity) and owner == identity:
            fields.append(node)
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"the form has {len(fields):,} fields; {FIELDS_MAX:,} can be sent")
    return fields


def _kind(node: LexborNode) -> str:
    if node.tag == "button":
        kind = (node.attributes.get("type") or "submit").lower()
        return kind if kind in _BUTTONS else "submit"
    return (node.attributes.get("type") or "text").lower() if node.tag == "input" else node.tag or ""


def _button_of(fields: list[LexborNode], name: str) -> LexborNode:
    buttons = [node for node in fields if _kind(node) in _SENDING]
    for node in buttons:
        if name in (node.attributes.get("name"), node.attributes.get("id")):
            return node
    known = ", ".join(sorted(filter(None, (node.attributes.get("name") for node in buttons))))
    raise LookupError(f"the form has no button {name!r} (there are: {known or 'none with a name'})")


def _entries(
    tree: LexborHTMLParser, fields: list[LexborNode], pressed: LexborNode | None, values: dict[str, Any], codec: str
) -> Iterator[_Entry]:
    """The entries that are sent. Values stand where the first field of their name stands."""
    named: dict[str, list[LexborNode]] = {}
    for node in fields:
        named.setdefault(node.attributes.get("name") or "", []).append(node)
    if unknown := values.keys() - named.keys():
        known = ", ".join(sorted(name for name in named if name)[:NAMES_SHOWN])
        raise LookupError(f"the form has no field {min(unknown)!r} (there are: {known})")
    done, barred = set[str](), _barred(tree)
    for node in fields:
        name, kind = node.attributes.get("name") or "", _kind(node)
        if name in values and name:
            if name not in done:
                done.add(name)
                yield from (_Entry(name, _normal(value)) for value in _given(name, values[name], named[name]))
        elif node.mem_id not in barred and not _is_off(node, kind, pressed):
            yield from _own(node, name, kind, codec)


def _is_off(node: LexborNode, kind: str, pressed: LexborNode | None) -> bool:
    """Is a field not sent as it is?"""
    if kind in _BUTTONS and (pressed is None or node.mem_id != pressed.mem_id):
        return True
    if kind in _CHOICES and "checked" not in node.attributes:
        return True
    return "disabled" in node.attributes


def _barred(tree: LexborHTMLParser) -> set[int]:
    """Fields that are off for what is around them: data lists, and fieldsets, but for the first legend of these."""
    barred: set[int] = set()
    for around in tree.css("datalist, fieldset[disabled]"):  # no descendants in a selector: each walks to the root
        if around.mem_id in barred:
            continue
        legend = next((one for one in around.iter() if one.tag == "legend"), None) if around.tag == "fieldset" else None
        free = {node.mem_id for node in legend.css(_BARRED)} if legend is not None else set[int]()
        barred |= {node.mem_id for node in around.css(_BARRED)} - free
    return barred


def _own(node: LexborNode, name: str, kind: str, codec: str) -> Iterator[_Entry]:
    """What the page itself put into a field."""
    value = node.attributes.get("value") or ""
    if kind == "image":
        prefix = f"{name}." if name else ""
        yield from (_Entry(f"{prefix}x", "0"), _Entry(f"{prefix}y", "0"))
    elif not name:
        return
    elif kind == "select":
        yield from (_Entry(name, _option(one)) for one in _selected(node))
    elif kind == "textarea":
        yield _Entry(name, _normal(node.text()))
    elif kind in _CHOICES and "value" not in node.attributes:
        yield _Entry(name, "on")
    elif kind == "hidden" and name.lower() == "_charset_":
        yield _Entry(name, codec.upper())
    else:  # a line of text has no line ends, whatever its attribute has
        yield _Entry(name, _normal(value) if kind == "hidden" else value.replace("\r", "").replace("\n", ""))


def _selected(node: LexborNode) -> list[LexborNode]:
    options = [one for one in node.css("option") if not _is_disabled_option(one)]
    chosen = [one for one in options if "selected" in one.attributes]
    if "multiple" in node.attributes:
        return chosen
    return chosen[-1:] or options[:1]


def _is_disabled_option(option: LexborNode) -> bool:
    parent = option.parent
    is_group_off = parent is not None and parent.tag == "optgroup" and "disabled" in parent.attributes
    return "disabled" in option.attributes or is_group_off


def _option(option: LexborNode) -> str:
    value = option.attributes.get("value")
    return " ".join(option.text().split()) if value is None else value


def _given(name: str, value: Any, nodes: list[LexborNode]) -> list[str]:
    """What somebody wants in the fields of a name."""
    if value is None or value is False:
        return []
    if value is True:
        return [node.attributes.get("value") or "on" for node in nodes if _kind(node) in _CHOICES][:1] or ["on"]
    wanted = [str(one) for one in (value if isinstance(value, list | tuple) else [value])]
    kinds = {_kind(node) for node in nodes}
    if kinds <= {"radio", "select"}:
        known = {
            choice
            for node in nodes
            for choice in (
                map(_option, node.css("option")) if node.tag == "select" else [node.attributes.get("value") or "on"]
            )
        }
        if unknown := [one for one in wanted if one not in known]:
            shown = ", ".join(sorted(known)[:NAMES_SHOWN])
            raise ValueError(f"the field {name!r} has no choice {unknown[0]!r} (there are: {shown})")
    return wanted


def _normal(text: str) -> str:
    """Line ends as CRLF."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def _urlencoded(entries: list[_Entry], codec: str) -> str:
    def coded(text: str) -> str:
        return quote_plus(in_codec(codec, text), safe="*").replace("~", "%7E")

    return "&".join(f"{coded(name)}={coded(value)}" for name, value in entries)


def _multipart(entries: list[_Entry], codec: str) -> tuple[bytes, str]:
    """The boundary follows from the content: the same form is the same request."""
    parts = [
        in_codec(codec, f'Content-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{value}\r\n')
        for name, value in entries
    ]
    boundary = f"----crawler{blake2b(b''.join(parts), digest_size=12).hexdigest()}"
    mark = f"--{boundary}".encode()
    return b"".join([mark + b"\r\n" + part for part in parts]) + mark + b"--\r\n", boundary


def _quoted(name: str) -> str:
    return _normal(name).replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
