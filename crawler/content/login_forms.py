"""The login form of a page: which form, which field for the user, which for the password, which button. Pure.

People see what a form is for, and style sheets hide what is a trap. Without them, in this order:

    form        the one with a password to fill in. Of several: autocomplete=current-password, no new-password, in
                sight, one password only, nothing about registering in its names, the fewest fields, the first
    password    autocomplete=current-password, in sight, the first
    user        autocomplete=username, in sight, a name that says so, the last one before the password, else behind it
    button      the one that Enter presses; but one before both fields is of something else where another follows them
                (pages that are one form, with a search at the top)

What is switched off is not filled in, nor what has no name: neither is sent. Password managers decide likewise.
"""

from collections.abc import Sequence
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.form_fields import (
    FIELDS_MAX,
    Field,
    default_button,
    fields_by_owner,
    fields_of,
    matching,
    numbered,
    told,
)
from crawler.content.form_values import CLEANED
from crawler.content.forms import Submission, sent

_TYPED = frozenset(("text", "search", "tel", "url", "email", "number"))
_CUT = frozenset(("text", "search", "tel", "url", "email", "password"))  # where `maxlength` counts
_USER_WORDS = ("user", "login", "logon", "mail", "account", "ident", "nick", "member", "signin")
_OTHER_WORDS = ("regist", "signup", "sign-up", "sign_up", "join", "create", "forgot", "reset", "recover", "search")
_NOT_USER = frozenset(("one-time-code", "new-password", "current-password"))


class LoginForm(NamedTuple):
    """What is filled in and pressed; `button`: None where the form has none."""

    form: LexborNode
    fields: list[Field]
    user: Field
    password: Field
    button: Field | None


def filled_login(
    tree: LexborHTMLParser, form: str, user: str, password: str, *, url: str, base: str, charset: str
) -> tuple[Submission, str]:
    """What a login sends, and the password in it: a field may take a part of it only. `form`: a CSS selector, "": the
    form is found. `url`, `base`, `charset` of the page.

    Raises LookupError for a page without a login form, ValueError for what can't be sent, each in one line.
    """
    found = login_form(tree, form)
    typed = _typed(found.form, found.password, password)
    given = {found.user.node.mem_id: [_typed(found.form, found.user, user)], found.password.node.mem_id: [typed]}
    return sent(found.form, found.fields, found.button, given, url=url, base=base, charset=charset), typed


def login_form(tree: LexborHTMLParser, selector: str = "") -> LoginForm:
    """The login form of a page. Raises LookupError, ValueError."""
    form, fields = _named(tree, selector) if selector else _found(tree)
    password = _password_of(fields)
    if password is None:
        raise LookupError(f"{told(form)} has no password to fill in")
    user = _user_of(fields, password)
    if user is None:
        raise LookupError(f"{told(form)} has no field for the user; @app.login can fill it in")
    return LoginForm(form, fields, user, password, _button_of(fields, user, password))


def _named(tree: LexborHTMLParser, selector: str) -> tuple[LexborNode, list[Field]]:
    nodes = matching(tree, selector)
    if not nodes:
        raise LookupError(f"no form fits {selector!r}")
    if nodes[0].tag != "form":
        raise ValueError(f"{selector!r} matches a {nodes[0].tag}, not a form")
    tree, form = numbered(tree, nodes[0])
    return form, fields_of(tree, form)


def _found(tree: LexborHTMLParser) -> tuple[LexborNode, list[Field]]:
    forms = tree.css("form")
    if forms:
        tree, _ = numbered(tree, forms[0])
    by_owner = dict[int, list[Field]]()
    for owner, field in fields_by_owner(tree):
        by_owner.setdefault(owner, []).append(field)
    candidates = [
        (_unlikeliness(form, fields, password), n, form, fields)
        for n, form in enumerate(tree.css("form"))
        if (fields := by_owner.get(form.mem_id)) and (password := _password_of(fields)) is not None
    ]
    if not candidates:
        is_outside = _password_of(by_owner.get(0, ())) is not None
        raise LookupError(
            "its password field is in no form, so a script sends it; @app.login can do that"
            if is_outside
            else "no form has a password to fill in"
        )
    _, _, form, fields = min(candidates, key=lambda one: one[:2])
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"{told(form)} has more than {FIELDS_MAX:,} fields")
    return form, fields


def _unlikeliness(form: LexborNode, fields: Sequence[Field], password: Field) -> tuple[int, ...]:
    names = " ".join(form.attrs.sget(name) or "" for name in ("action", "id", "name", "class")).lower()
    passwords = sum(_may_fill(field) and field.kind == "password" and not field.is_unseen for field in fields)
    filled = sum(_may_fill(field) and field.kind in _TYPED and not field.is_unseen for field in fields)
    return (
        _password_rank(password),
        password.is_unseen,
        passwords > 1,
        any(word in names for word in _OTHER_WORDS),
        filled,
    )


def _may_fill(field: Field) -> bool:
    return bool(field.name) and not field.is_disabled


def _hints(field: Field) -> list[str]:
    """The words of `autocomplete`."""
    return (field.node.attrs.sget("autocomplete") or "").lower().split()


def _password_of(fields: Sequence[Field]) -> Field | None:
    found = [
        field
        for field in fields
        if _may_fill(field)
        and (field.kind == "password" or (field.kind == "text" and "current-password" in _hints(field)))
    ]
    return min(found, key=lambda one: (_password_rank(one), one.is_unseen), default=None)


def _password_rank(field: Field) -> int:
    hints = _hints(field)
    return 0 if "current-password" in hints else 2 if "new-password" in hints else 1


def _user_of(fields: Sequence[Field], password: Field) -> Field | None:
    at = _place(fields, password)
    found = [
        ((*_user_rank(field), n > at, abs(at - n)), field)
        for n, field in enumerate(fields)
        if field.kind in _TYPED and n != at and _may_fill(field) and not _NOT_USER & set(_hints(field))
    ]
    return min(found, key=lambda one: one[0])[1] if found else None


def _user_rank(field: Field) -> tuple[bool, bool, bool]:
    hints = _hints(field)
    names = f"{field.name} {field.node.attrs.sget('id') or ''}".lower()
    is_named = field.kind == "email" or "email" in hints or any(word in names for word in _USER_WORDS)
    is_trap = field.is_unseen or (field.node.attrs.sget("tabindex") or "").strip().startswith("-")
    return "username" not in hints, is_trap, not is_named


def _button_of(fields: Sequence[Field], user: Field, password: Field) -> Field | None:
    button = default_button(fields)
    if button is None:
        return None
    first, last = sorted((_place(fields, user), _place(fields, password)))
    following = default_button(fields[last + 1 :])
    return following if following is not None and _place(fields, button) < first else button


def _place(fields: Sequence[Field], field: Field) -> int:
    return next(n for n, one in enumerate(fields) if one.node.mem_id == field.node.mem_id)


def _typed(form: LexborNode, field: Field, text: str) -> str:
    """What a field has after somebody typed into it. Raises ValueError if it takes no such text."""
    most = (field.node.attrs.sget("maxlength") or "").strip()
    if field.kind in _CUT and most.isascii() and most.isdigit():
        text = text.encode("utf-16-le")[: 2 * int(most[:6])].decode("utf-16-le", "ignore")
    clean = CLEANED.get(field.kind)
    found = clean(text, field.node) if clean else text
    if text and not found:
        raise ValueError(f"the field {field.name!r} of {told(form)} takes a {field.kind} only")
    return found
