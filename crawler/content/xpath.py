"""XPath over pages, by lxml, in bounds. Pure. Imported when a page is first asked: it takes 30 ms.

libxml2 stops within a page that is nested too deep, and goes on as if nothing was missing: that is an error here. The
entities that a document defines may grow without bounds wherever a text is taken, so there may be none. Elements have
the methods of lxml.html; what they find is plain, too: lxml's own texts keep the tree of the page, and EXSLT's regular
expressions may take time without bounds.
"""

from collections.abc import Mapping
from typing import Any

from lxml import etree, html

_UNREAD = etree.ErrorTypes.ERR_RESOURCE_LIMIT


class _Plain:
    def xpath(self, expression: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Any:
        """As `page.xpath`, from this element on."""
        return evaluate(self, expression, namespaces, variables)

    def text_content(self) -> str:
        """All text in it."""
        return str(evaluate(self, "string()", None, {}))


class _HtmlElement(_Plain, html.HtmlElement):  # type: ignore[misc]
    pass


class _XmlElement(_Plain, etree.ElementBase):  # type: ignore[misc]
    pass


def tree_of(url: str, text: str, *, is_html: bool) -> Any:
    """The root of a page, of an empty one if there is none. Raises ValueError for one that is not read whole."""
    parser = _html_parser() if is_html else _xml_parser()
    root = etree.fromstring(text.encode(), parser)
    if root is None:
        return etree.fromstring(b"<html/>", _html_parser())
    last = parser.error_log.last_error
    if last is not None and last.type == _UNREAD:
        raise ValueError(f"libxml2 does not read all of {url}: {last.message.partition(', ')[0].strip()}")
    dtd = None if is_html else root.getroottree().docinfo.internalDTD
    if dtd is not None and dtd.entities():
        raise ValueError(f"{url} defines entities, which may grow without bounds: parse page.body yourself")
    return root


def evaluate(node: Any, expression: str, namespaces: Mapping[str, str] | None, variables: Mapping[str, Any]) -> Any:
    """What lxml makes of an expression. Raises ValueError for an invalid one."""
    try:
        return etree.XPathEvaluator(node, namespaces=namespaces, regexp=False, smart_strings=False)(
            expression, **variables
        )
    except etree.XPathError as error:
        raise ValueError(f"XPath {expression!r}: {error}") from None


def _html_parser() -> Any:
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True)
    parser.set_element_class_lookup(etree.ElementDefaultClassLookup(element=_HtmlElement))
    return parser


def _xml_parser() -> Any:
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True, recover=True)
    parser.set_element_class_lookup(etree.ElementDefaultClassLookup(element=_XmlElement))
    return parser
