"""The login page, as a function that fills in its form gets it: it notes which secrets it was given."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.login_forms import filled_login
from crawler.handlers.page import Page

GIVEN_MAX = 1000  # values that a function puts into a form


class LoginPage(Page):
    """A login page. It notes what its form is filled with; `passwords`: what came into fields for these."""

    _may_have_secret_urls = True

    def __init__(self, *response: Any, **more: Any) -> None:
        super().__init__(*response, **more)
        self.given: list[str] = []
        self.passwords: list[str] = []

    @property
    def is_html(self) -> bool:
        return self._is_html

    @cached_property
    def html(self) -> LexborHTMLParser:
        """The tree. Raises RuntimeError for what is not HTML: nothing could be said of its elements."""
        if not self.is_html:
            raise RuntimeError("this page is not HTML")
        return super().html

    def submit(
        self, form: str | LexborNode = "form", values: Mapping[str, Any] | None = None, **more: Any
    ) -> int:  # fmt: skip
        self._note(values)
        names = {node.attributes.get("name") for node in self.css('input[type="password" i]')}
        self.passwords += _texts_in([value for name, value in (values or {}).items() if name in names])
        return super().submit(form, values, **more)

    def follow(
        self, target: str, *, form: Mapping[str, Any] | None = None, json: Any = None,
        body: bytes | str | None = None, headers: Mapping[str, str] | None = None, **more: Any,
    ) -> int:  # fmt: skip
        given = [form, json, None if self.passwords else body]  # that of a form that was submitted is known already
        self._note(*given, headers)
        self.passwords += _texts_in(given)
        return super().follow(target, form=form, json=json, body=body, headers=headers, **more)

    def submit_login(self, form: str, user: str, password: str) -> None:
        """Fill in and send the login form, or the one that a CSS selector names.

        Raises LookupError for a page without one, ValueError for what can't be sent.
        """
        found, typed = filled_login(
            self.html, form, user, password, url=self.url, base=self._base, charset=self.charset
        )  # fmt: skip
        self._note(user, password, typed)
        self.passwords += [password, typed]
        self._send(found)

    def _note(self, *given: Any) -> None:
        self.given += _texts_in(given)
        del self.given[GIVEN_MAX:]


def _texts_in(value: Any, depth: int = 5) -> list[str]:
    """The texts in what a user's function gives."""
    if isinstance(value, str | bytes):
        return [value if isinstance(value, str) else value.decode("utf-8", "replace")]
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list | tuple) or not depth:
        return []
    return [text for one in value[:GIVEN_MAX] for text in _texts_in(one, depth - 1)]
