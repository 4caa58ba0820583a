"""The page that a handler gets: its tree, parsed on first use, and the URLs it follows."""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from crawler.content.charset import with_query_in
from crawler.content.html import LINK_BYTES_MAX, NO_EVENTS, base_of, extract_text
from crawler.content.sniff import decode, detect_charset
from crawler.handlers.tasks import storable
from crawler.media_type import declared_type, is_html, is_xml
from crawler.model import GET, PLAIN, Followed, ParsedPage, Request, Response, Rights
from crawler.redaction import bears_login
from crawler.rules.requests import bytes_of, form_of, request_of, with_fields
from crawler.rules.urls import join

if TYPE_CHECKING:
    from crawler.content.forms import Submission

PRIORITY_MAX = 1000.0
FOLLOW_MAX = 20_000
CARRIED_BYTES_MAX = (
    16 << 20
)  # of what the requests that a page leads to carry: they are in memory until it is committed
RETRY_MAX_S = 7 * 86_400.0
NOTHING_SAID = Rights()
MARKDOWN_NODES_MAX = 60_000  # half a second
_REFERENCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/|\.{1,2}/|\?")
_LINKS = frozenset(("a", "area", "iframe", "frame"))
_log = logging.getLogger("crawler.handler")


class Headers(Mapping[str, str]):
    """By name in any case; of several lines with one name, the first."""

    def __init__(self, lines: Sequence[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in lines:
            self._values.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def labels_text(labels: Collection[str]) -> str:
    """Which labels handlers have, like "there are: cart, list"."""
    return f"there are: {', '.join(sorted(labels)) or 'none'}"


class Page:
    """One page of the crawl, in the hands of its handler."""

    _may_have_secret_urls = False  # of what is followed

    def __init__(
        self, response: Response, parsed: ParsedPage, *, domain: str, depth: int = 0, label: str = "",
        run: str = "", request: Request | None = None, fingerprint: str = "",
        tree: LexborHTMLParser | None = None, labels: Collection[str] | None = None, follow_max: int = FOLLOW_MAX,
        may_parse: bool = True, rights: Rights | None = None,
    ) -> None:  # fmt: skip
        """`tree`: of the body, where it was parsed already. `labels`: that there are; None: they are not looked at.
        `fingerprint`: of the request.

        Without `may_parse`, the body is too expensive to be parsed in this process.
        """
        self.url = response.url
        self.status = response.status
        self.body = response.body
        self.domain = domain
        self.depth = depth  # links from a seed
        self.label = label
        self.run = run  # of the job that it was fetched for; "": of none
        self.request = request or PLAIN  # that brought it
        self.meta = self.request.meta  # given along by who followed it
        self.title = parsed.title
        self.canonical = parsed.canonical  # URL that it names, ""
        self.noindex = parsed.noindex  # it asks search engines not to show it
        self.truncated = response.truncated  # "", or why the body is cut: "length", "time", "disconnect"
        self.rights = rights or NOTHING_SAID  # what was said about its use, as far as is known
        self.is_unchanged = response.is_unchanged  # since an earlier run of its job: the body is that of the archive
        self.decode_error = response.decode_error  # "", or what is wrong with the Content-Encoding of the body
        self._links = parsed.links
        self._followed: list[Followed] = []
        self._followed_bytes = self._carried_bytes = self._again = 0
        self._fingerprint = fingerprint
        self.retry_s: float | None = None  # set by `retry`
        self._response = response
        self._charset = parsed.charset
        self._query_charset = parsed.query_charset
        self._tree = tree
        self._labels = labels
        self._follow_max = follow_max
        self._may_parse = may_parse

    @cached_property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Log events, which name the page."""
        return logging.LoggerAdapter(_log, {"url": self.url})

    @cached_property
    def headers(self) -> Headers:
        """Of the response."""
        return Headers(self._response.headers)

    @cached_property
    def charset(self) -> str:
        """Of the body, as it was found out."""
        return self._charset or detect_charset(self.body, declared_type(self._response))

    @cached_property
    def html(self) -> LexborHTMLParser:
        """The tree; empty unless it is HTML. Raises RuntimeError when it is too expensive to parse in a hook."""
        tree, self._tree = self._tree, None
        if tree is None:
            self._check_may_parse()
        return tree or LexborHTMLParser(decode(self.body, self.charset) if self._is_html else "", options=NO_EVENTS)

    def _check_may_parse(self) -> None:
        if not self._may_parse:
            raise RuntimeError("this page may take seconds to parse: only its handler sees its tree and text")

    @property
    def followed(self) -> list[Followed]:
        """The URLs that were followed so far."""
        return list(self._followed)

    def forget_followed(self) -> None:
        """Before another handler is called with it."""
        self._followed, self.retry_s = [], None
        self._followed_bytes = self._carried_bytes = self._again = 0

    def close(self) -> None:
        """Free the tree, which takes ten times the memory of the body, even if the page is kept."""
        self._tree = None
        self.__dict__.pop("html", None)
        self.__dict__.pop("_main", None)
        self.__dict__.pop("_xpath_tree", None)

    @cached_property
    def text(self) -> str:
        """The visible text; the whole body unless it is HTML."""
        self._check_may_parse()
        return extract_text(self.body, self.charset) if self._is_html else decode(self.body, self.charset)

    @property
    def _is_html(self) -> bool:
        return is_html(declared_type(self._response), self.body)

    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is none."""
        from crawler.content.json_text import json_of

        return json_of(self.body, self.charset)

    def jsonld(self) -> list[dict[str, Any]]:
        """All objects of its JSON-LD blocks, without the lists and graphs around them. Blocks that can't be read are
        left out, and logged.
        """
        from crawler.content.json_text import jsonld_of

        found, unread = jsonld_of(self.html)
        if unread:
            _log.warning("jsonld.unreadable", extra={"url": self.url, "blocks": unread})
        return found

    def main_text(self) -> str:
        """The main text, without menus and footers: a line for each block; the whole body unless it is HTML.

        Needs resiliparse (the extra `text`). Raises RuntimeError as `html` does, and ValueError for a page whose main
        text would take too long to be found.
        """
        return self._main if self._is_html else self.text

    @cached_property
    def _main(self) -> str:
        from crawler.content.main_text import main_text

        return main_text(self.body, self.charset, self.html)

    def markdown(self, *, main: bool = False) -> str:
        """The page as Markdown, or its main text alone (which needs what `main_text` needs); "" unless it is HTML.

        Raises RuntimeError as `html` does, and ValueError for a page with too many elements.
        """
        if not self._is_html:
            return ""
        from crawler.content.markdown import markdown

        text = self.main_text() if main else None
        return markdown(self.html, self.url, self._query_charset, main=text, nodes_max=MARKDOWN_NODES_MAX)

    @cached_property
    def language(self) -> str:
        """The language of its main text as it was detected, like "en"; "" of a short one. Raises as `main_text`."""
        from crawler.content.main_text import language_of

        return language_of(self.main_text())

    @cached_property
    def declared_language(self) -> str:
        """The language that it declares, in lower case, like "en-gb"; "" where it does not."""
        from crawler.content.page_head import declared_language_of

        return declared_language_of(self.html, self.headers.get("content-language", ""))

    @cached_property
    def description(self) -> str:
        """Its own description, or ""."""
        from crawler.content.page_head import description_of

        return description_of(self.metadata())

    def metadata(self) -> dict[str, Any]:
        """What its <meta> say, by name in lower case (OpenGraph, author, dates ...): a text, or a list of several."""
        from crawler.content.page_head import meta_of

        return meta_of(self.html)

    def links(self, selector: str = "") -> list[str]:
        """Canonical URLs, each once, in order, in scope or not: all links, or those that match a CSS selector or are
        in an element that does. At most as many as the crawl takes of a page (fetch.links_max).

        Raises ValueError for an invalid selector.
        """
        if not selector:
            return list(self._links)
        found: dict[str, None] = {}
        size = 0
        for href in self._hrefs_in(selector):
            url = self._joined(href)
            if not url or url in found:
                continue
            size += len(url)
            if len(found) == self._follow_max or size > LINK_BYTES_MAX:
                break
            found[url] = None
        return list(found)

    def _hrefs_in(self, selector: str) -> Iterator[str]:
        """References of elements that match, and of links within them; each element is looked at once."""
        matching = {node.mem_id for node in self.css(selector)}
        known: dict[int, bool] = {}  # elements: are they, or is one around them, among these?
        for node in self.html.css("[href],[src]") if matching else ():
            is_link = node.tag in _LINKS and _is_within(node, matching, known)
            if is_link or node.mem_id in matching:
                yield from self._hrefs((node,))

    def css(self, selector: str) -> list[LexborNode]:
        """All elements that match. Raises ValueError for an invalid selector."""
        try:
            return self.html.css(selector)
        except SelectolaxError:
            raise ValueError(f"{selector!r} is not a valid CSS selector") from None

    def css_first(self, selector: str) -> LexborNode:
        """The first element that fits. Raises LookupError when there is none: the page is not as it was expected."""
        found = self.css(selector)
        if not found:
            raise LookupError(f"nothing fits {selector!r} on {self.url}")
        return found[0]

    def xpath(self, expression: str, *, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Any:
        """What an XPath 1.0 expression gives, as lxml has it: a list of elements or texts, or a text, number or bool.

        The tree is of HTML as libxml2 reads it, or of XML; it is empty for anything else. `variables` are those that
        the expression names ($name). Raises ValueError for an invalid expression and for a page that libxml2 does not
        read whole (nested more than 2,048 deep, in XML 256; entities of its own), RuntimeError as `html` does.
        """
        from crawler.content.xpath import evaluate

        return evaluate(self._xpath_tree, expression, namespaces, variables)

    @cached_property
    def _xpath_tree(self) -> Any:
        from crawler.content.xpath import tree_of

        self._check_may_parse()
        is_read = self._is_html or is_xml(declared_type(self._response))
        return tree_of(
            self.url, decode(self.body, self.charset) if is_read else "", is_html=self._is_html or not is_read
        )

    def follow(
        self, target: str, *, label: str = "", priority: float = 0.0, meta: Mapping[str, Any] | None = None,
        method: str = "", form: Mapping[str, Any] | None = None, json: Any = None, body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None, key: str = "", again: bool = False, session: str = "",
        idempotent: bool = False, cross_origin: bool = False, secret: bool = False,
    ) -> int:  # fmt: skip
        """Crawl a URL, or what the links lead to that fit a CSS selector: how many URLs.

        A URL has a scheme or begins with a slash, a dot or a question mark; anything else is a selector. What it
        leads to is in the crawl's scope or not, as any link.

        `meta` (JSON, 4 KB) comes with the page, as `page.meta`. `form` (fields), `json` or `body` (64 KB) make it a
        POST, unless `method` says otherwise. What was requested before is not requested again: by method, URL, body,
        session and `key`; with `again`, this page makes it anew. Requests that change something (POST, PATCH) are not
        repeated when their answer is lost, unless they are `idempotent`. `cross_origin`: a redirect may take the body
        to another origin; `secret`: the body is not archived.

        Raises ValueError for a priority beyond +-1,000, a label that no handler has, too many URLs, a URL with the
        password of a login, and what can't be sent or stored; TypeError for what is of the wrong type.
        """
        if again and key:
            raise ValueError("page.follow: give key= or again=True")
        target, label = _text("target", target), storable(_text("label", label))
        priority = self._checked(_number("page.follow: priority", priority), label)
        urls = [self._joined(target)] if _is_reference(target) else self._linked(target)
        if form is not None and method.upper() == GET:
            urls, form = [url and with_fields(url, form_of(form)) for url in urls], None
        if again:
            self._again += 1
            key = f"again {self._fingerprint} {self._again}"
        request = request_of(
            method=method, form=form, json=json, body=body, headers=headers, meta=meta, key=key, session=session,
            idempotent=idempotent, cross_origin=cross_origin, secret=secret,
        )  # fmt: skip
        return self._add(urls, label, priority, request)

    def _checked(self, priority: float, label: str) -> float:
        if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority={priority}: expected -{PRIORITY_MAX:.0f} to {PRIORITY_MAX:.0f}")
        if label and self._labels is not None and label not in self._labels:
            raise ValueError(f"no handler has the label {label!r} ({labels_text(self._labels)})")
        return priority

    def _add(self, urls: Sequence[str | None], label: str, priority: float, request: Request | None) -> int:
        found = list(dict.fromkeys(url for url in urls if url))
        if not self._may_have_secret_urls and any(map(bears_login, found)):
            raise ValueError("a URL with the password of a login is not followed: it would be in every file and log")
        if len(self._followed) + len(found) > self._follow_max:
            raise ValueError(f"more than {self._follow_max} URLs are followed from one page (fetch.links_max)")
        self._followed_bytes += sum(map(len, found))
        if self._followed_bytes > LINK_BYTES_MAX:
            raise ValueError("more than 1 MiB of URLs are followed from one page")
        if request is not None:
            self._carried_bytes += len(found) * bytes_of(request)
            if self._carried_bytes > CARRIED_BYTES_MAX:
                raise ValueError("more than 16 MiB of meta, headers and bodies are followed from one page")
        self._followed += [Followed(url, label, priority, request) for url in found]
        return len(found)

    def submit(
        self, form: str | LexborNode = "form", values: Mapping[str, Any] | None = None, *,
        button: str | None = "", label: str = "", priority: float = 0.0, extra: bool = False, **carried: Any,
    ) -> int:  # fmt: skip
        """Send a form of the page, as a browser would: with its method, action, hidden fields and defaults.

        `form`: a CSS selector that one form matches, or its node; without one the only form. `values`: what to put into
        its fields, by name: a text, a list for several, True or False for a box, None to leave it out; `extra`: also
        into fields and options that it does not have, as a script would add them. `button`: name or selector of the one
        to press; "": the one that Enter presses; None: none. `carried`: `meta`, `headers`, `key`, `session` ... as of
        `follow`.

        Raises LookupError for a form, field or button that there is not, ValueError and TypeError for what can't be
        chosen or sent, and for a password that would be part of a URL (GET), and what `follow` raises.
        """
        from crawler.content.forms import filled

        found = filled(
            self.html, form, values or {}, url=self.url, base=self._base, charset=self.charset, button=button,
            extra=extra,
        )  # fmt: skip
        return self._send(found, label=label, priority=priority, **carried)

    def _send(self, found: "Submission", **carried: Any) -> int:
        if found.has_password and not self._may_have_secret_urls:
            raise ValueError("this form puts the password into a URL (GET), which would be in every file and log")
        if found.method != GET:
            carried |= {
                "body": found.body,
                "headers": {"Content-Type": found.content_type, **carried.pop("headers", {})},
            }
        return self.follow(found.url, **carried)

    def retry(self, delay: float = 0.0) -> None:
        """Have this page requested again, in `delay` seconds at the earliest, as a failed attempt: items and links of
        this one don't count. After [retry.handler_retry] attempts the URL is a dead letter.

        Raises ValueError for a delay that is negative or longer than a week, TypeError for none.
        """
        delay = _number("page.retry: delay", delay)
        if not 0 <= delay <= RETRY_MAX_S:
            raise ValueError(f"page.retry: delay={delay}: expected 0 to {RETRY_MAX_S:.0f} seconds")
        self.retry_s = delay

    def _linked(self, selector: str) -> list[str | None]:
        return [self._joined(href) for href in self._hrefs(self.css(selector))]

    def _hrefs(self, nodes: Iterable[LexborNode]) -> Iterator[str]:
        """Their references, in the encoding of the page."""
        charset = self._query_charset
        for node in nodes:
            if href := node.attrs.sget("href") or node.attrs.sget("src"):
                yield with_query_in(charset, href) if charset else href

    def _joined(self, href: str) -> str | None:
        return join(self._base, href)

    @cached_property
    def _base(self) -> str:
        return base_of(self.html, self.url, self._query_charset)


def _is_within(node: LexborNode, matching: Collection[int], known: dict[int, bool]) -> bool:
    """Does an element match, or one around it? `known` grows."""
    path, one = list[int](), node
    while (key := one.mem_id) not in known:
        path.append(key)
        above = one.parent
        if key in matching or above is None:
            known[key] = key in matching
            break
        one = above
    found = known[key]
    known.update(dict.fromkeys(path, found))
    return found


def _is_reference(target: str) -> bool:
    return _REFERENCE.match(target) is not None


def _text(name: str, value: Any) -> str:
    """As a plain str: what a subclass of it does is nobody's matter later."""
    if not issubclass(type(value), str):
        raise TypeError(f"page.follow: {name} is a str, not {type(value).__name__}")
    return str.__str__(value)


def _number(name: str, value: Any) -> float:
    """Decimals, fractions and numbers of libraries become a float; text does not."""
    if not hasattr(type(value), "__float__") and not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None
