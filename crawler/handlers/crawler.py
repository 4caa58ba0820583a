"""The object that a user's module makes: which function is called with which page, and what else is listened to.

app = Crawler()

@app.page("*.example.com/product/*")
async def product(page):
    yield {"title": page.css_first("h1").text()}
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args

import msgspec

from crawler.errors import UsageError
from crawler.handlers.functions import Stream, check_callable, is_plain, name_of, stream_of
from crawler.handlers.item_encoding import Packer, packer_of
from crawler.model import LABEL, Followed
from crawler.redaction import bears_login
from crawler.rules.patterns import UrlPattern
from crawler.rules.requests import form_in_url, request_of
from crawler.rules.urls import canonicalize

Function = TypeVar("Function", bound=Callable[..., Any])
Event = Literal["fetch", "skip", "error", "domain_done", "finish"]
TIMEOUT_S = 30.0
_LABEL = re.compile(LABEL)


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a page, and how it is called. `timeout_s`: how long one page may take it.

    `statuses`: of the responses that it is for; empty: 200 to 299. `pack` turns what it yields into JSON text.
    """

    name: str
    function: Callable[..., Any]
    is_plain: bool  # called in a thread
    stream: Stream  # of one that is not
    pack: Packer
    patterns: tuple[UrlPattern, ...]
    label: str
    timeout_s: float
    statuses: frozenset[int]
    processes: bool  # called in another process

    @property
    def is_default(self) -> bool:
        """Called for all pages that no other handler is for."""
        return not self.patterns and not self.label

    def takes(self, status: int) -> bool:
        return status in self.statuses if self.statuses else 200 <= status < 300

    def fits(self, url: str) -> bool:
        return any(pattern.matches(url) for pattern in self.patterns)


class LoginFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that fills the form of a login page, and where the form may be sent."""

    function: Callable[..., Any]
    action_hosts: tuple[str, ...]
    allow_get: bool


class ItemFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that items go through, and how it is called."""

    name: str
    function: Callable[..., Any]
    is_plain: bool  # called in a thread
    stream: Stream  # of one that is not
    takes_page: bool  # beside the item


class Crawler:
    """Handlers of pages, functions that their items go through, and hooks of other events.

    A page goes to one handler: that of its label, if `page.follow` gave it one; else to the first whose pattern fits,
    by the order of their definition; else to the one without pattern and label. Handlers for other statuses are
    passed over.
    """

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.pipeline: list[ItemFunction] = []
        self.listeners: dict[Event, list[Callable[..., Any]]] = {event: [] for event in get_args(Event)}
        self.starts: list[Callable[..., Any]] = []
        self.request_functions: list[Callable[..., Any]] = []
        self.logins: dict[str, LoginFunction] = {}
        self.logged_in_functions: list[Callable[..., Any]] = []

    def page(
        self,
        *patterns: str,
        label: str = "",
        item: Any = None,
        statuses: Iterable[int] = (),
        timeout_s: float = TIMEOUT_S,
        processes: bool = False,
    ) -> Callable[[Function], Function]:
        """Decorator: call this function with pages whose URL fits a pattern (crawler/rules/scope.py)
        or that have the label, and whose status is one of `statuses` (default: 200 to 299).

        `item`: what it yields, as msgspec.Struct, dataclass, TypedDict or pydantic model. With `processes` it is called
        in a process of its own. Raises UsageError for patterns that are none, a label that has a handler, a second
        default.
        """
        if len(patterns) == 1 and not isinstance(patterns[0], str):
            raise UsageError('write @app.page() with its brackets, or @app.page("HOST/PATH")')
        parsed = tuple(UrlPattern.parse(text) for text in patterns)
        wanted = _statuses(statuses)
        if not timeout_s > 0:
            raise UsageError(f"timeout_s={timeout_s}: expected seconds above 0")
        if label and not _LABEL.match(label):
            raise UsageError(f"label={label!r}: expected at most 32 letters, digits, dots, dashes or underscores")
        packer = packer_of(item)

        def register(function: Function) -> Function:
            check_callable(function, "page")
            self._add(
                Handler(
                    name=name_of(function), function=function, is_plain=is_plain(function),
                    stream=stream_of(function), pack=packer, patterns=parsed, label=label, timeout_s=timeout_s,
                    statuses=wanted, processes=processes,
                )
            )  # fmt: skip
            return function

        return register

    def start(self, function: Function) -> Function:
        """Decorator: yields the first requests of a crawl whose command names no URL. Each is a URL, or what `request`
        makes.
        """
        check_callable(function)
        self.starts.append(function)
        return function

    def before_request(self, function: Function) -> Function:
        """Decorator: called with each request for a page before it is sent (`OutgoingRequest`). It may add headers, or
        refuse the request.
        """
        check_callable(function, "request")
        self.request_functions.append(function)
        return function

    def login(
        self, where: str, *, action_hosts: Iterable[str] = (), allow_get: bool = False
    ) -> Callable[[Function], Function]:
        """Decorator: called with the login page of a site before the first page of it, and when its session is lost; it
        submits the form (`page.submit`). `where`: "shop.example", for https://shop.example/login, or that page's URL.

        The form may be sent to the host of that page, and to `action_hosts` of the site. With `allow_get` it may be
        sent by GET, which puts the password into a URL. Raises UsageError for a second one of a site.
        """
        if isinstance(action_hosts, str):
            raise UsageError(f"@app.login({where!r}): action_hosts is a list of hosts")
        hosts = tuple(action_hosts)

        def register(function: Function) -> Function:
            check_callable(function, "page")
            if where in self.logins:
                raise UsageError(f"@app.login({where!r}): there is another")
            self.logins[where] = LoginFunction(function=function, action_hosts=hosts, allow_get=allow_get)
            return function

        return register

    def logged_in(self, function: Function) -> Function:
        """Decorator: whether a page of a site with a login shows that it holds: True, False, or None for a page that
        can't tell. Called with each page of the site, also its errors, and with the one behind the login.
        """
        check_callable(function, "page")
        self.logged_in_functions.append(function)
        return function

    @staticmethod
    def request(url: str, *, label: str = "", priority: float = 0.0, **carried: Any) -> Followed:
        """A first request, for `start`: `carried` has the further arguments of `page.follow`, but for `again`.

        Raises InvalidUrl, ValueError for what can't be sent or stored, TypeError for what is of the wrong type.
        """
        if not _LABEL.match(label):
            raise ValueError(f"label={label[:40]!r}: expected at most 32 letters, digits, dots, dashes or underscores")
        url, carried["form"] = form_in_url(url, str(carried.get("method", "")), carried.get("form"))
        if bears_login(url):
            raise ValueError("a URL with the password of a login is not requested: it would be in every file and log")
        return Followed(canonicalize(url), label, float(priority), request_of(**carried))

    def _add(self, handler: Handler) -> None:
        for other in self.handlers:
            if handler.label and handler.label == other.label:
                raise UsageError(f"handler {handler.name}: the label {handler.label!r} is already used by {other.name}")
            if handler.is_default and other.is_default and handler.statuses == other.statuses:
                raise UsageError(f"handler {handler.name}: {other.name} also has neither a pattern nor a label")
        self.handlers.append(handler)

    def handler_for(self, url: str, label: str = "", status: int = 200) -> Handler | None:
        """The handler for the page of a canonical URL, or None. A label without a handler counts as none."""
        for handler in self.handlers if label else ():
            if handler.label == label:
                return handler if handler.takes(status) else None
        for handler in self.handlers:
            if handler.takes(status) and handler.fits(url):
                return handler
        return next((handler for handler in self.handlers if handler.is_default and handler.takes(status)), None)

    @property
    def labels(self) -> list[str]:
        return [handler.label for handler in self.handlers if handler.label]

    def item(self, function: Function) -> Function:
        """Decorator: each item that a handler yields goes through this function, in the order of their definition.

        It is called with the item, or with the item and its page, before the item is checked and stored. It returns
        that item or another one, None to drop it, or yields several. What it raises fails the page.
        """
        takes_page = _takes(function, "item", "page")
        if not takes_page:
            check_callable(function, "item")
        self.pipeline.append(
            ItemFunction(
                name=name_of(function), function=function, is_plain=is_plain(function), stream=stream_of(function),
                takes_page=takes_page,
            )
        )  # fmt: skip
        return function

    def on_fetch(self, function: Function) -> Function:
        """Decorator: called with the page of each response, before its handler and whether it has one or not."""
        return self._listen("fetch", function, "page")

    def on_skip(self, function: Function) -> Function:
        """Decorator: called with a URL that was due and is not fetched, and the reason."""
        return self._listen("skip", function, "url", "reason")

    def on_error(self, function: Function) -> Function:
        """Decorator: called with a URL whose attempt failed, and the Failure."""
        return self._listen("error", function, "url", "failure")

    def on_domain_done(self, function: Function) -> Function:
        """Decorator: called with a domain of which nothing is left for now: links to it may be found later."""
        return self._listen("domain_done", function, "domain")

    def on_finish(self, function: Function) -> Function:
        """Decorator: called once in each instance, at its end, with why: "finished", "pages", "time", "signal" ..."""
        return self._listen("finish", function, "why")

    def _listen(self, event: Event, function: Function, *arguments: str) -> Function:
        check_callable(function, *arguments)
        self.listeners[event].append(function)
        return function


def _takes(function: Callable[..., Any], *arguments: str) -> bool:
    with contextlib.suppress(UsageError):
        check_callable(function, *arguments)
        return True
    return False


def _statuses(given: Iterable[int]) -> frozenset[int]:
    with contextlib.suppress(TypeError):
        wanted = frozenset(given)
        if all(100 <= status < 600 for status in wanted):
            return wanted
    raise UsageError(f"statuses={given!r}: expected HTTP statuses, like (404, 410)")
