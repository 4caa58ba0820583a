"""What a page loads, by its markup: pictures, styles, scripts, fonts, media, frames. Pure; nothing is run.

`FORMS` is the table: which attribute of which element names what. It has what a browser loads at any size of its
window, and by `LAZY` what common scripts load from attributes of their own. So more is found than a browser requests
for one view of the page. docs/internals/decisions/requisites.md compares both.

    iframe, frame                    kind `frame`, and a link as well (html.py): where both are followed, the page wins
    meta property=og:image           never: other sites load these
    Link headers                     never: what they name is in the markup as well
    link rel=canonical, next, alternate, dns-prefetch     never
    iframe [srcdoc], template        never, as for links; declarative shadow roots yes, behind the document
    /favicon.ico                     as browsers do, for a page that names no icon
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.css_urls import read_css
from crawler.content.requisite_list import RequisiteList
from crawler.model import Requisite
from crawler.rules.urls import JoinCache, origin_of

__all__ = ["FORMS", "Requisite", "manifest_icons", "requisites_of"]

MANIFEST_BYTES_MAX = 256 * 1024
_PROLOG_BYTES = 8 * 1024  # of an XML document, in which style sheets are looked for
_PROLOG_STYLES_MAX = 10

_BLANKS_AND_COMMAS = re.compile(r"[ \t\n\f\r,]*+")
_UNTIL_BLANK = re.compile(r"[^ \t\n\f\r]++")
_DESCRIPTORS = re.compile(r"(?:[^,(]++|\([^)]*+\)?+)*+")


def _url(value: str, kind: str, found: RequisiteList) -> None:
    found.add(value, kind)


def candidates(value: str, kind: str, found: RequisiteList) -> None:
    """All candidates of a `srcset` (HTML 4.8.4.2.2), whatever their descriptors."""
    at = 0
    while found.step():
        at = _BLANKS_AND_COMMAS.match(value, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        url = _UNTIL_BLANK.match(value, at)
        if url is None:
            return
        at = url.end()
        if url[0].endswith(","):
            found.add(url[0].rstrip(","), kind)
        else:
            found.add(url[0], kind)
            at = _DESCRIPTORS.match(value, at).end()  # type: ignore[union-attr]
    found.cut += max(1, value.count(",", at))


def _css(value: str, _kind: str, found: RequisiteList) -> None:
    read_css(value, found)


def _background(value: str, kind: str, found: RequisiteList) -> None:
    """A URL, or one in `url()`: scripts take both."""
    (_css if "url(" in value.lower() else _url)(value, kind, found)


class Form(NamedTuple):
    """What an attribute names, and how its value is read."""

    kind: str
    read: Callable[[str, str, RequisiteList], None] = _url


_IMAGE, _IMAGES = Form("image"), Form("image", candidates)
_MEDIA, _OBJECT, _FRAME, _SCRIPT = Form("media"), Form("object"), Form("frame"), Form("script")
_BACKGROUND = Form("image", _background)

# Attributes from which scripts load what an element shows, when it comes into view: those of lazysizes, lozad,
# vanilla-lazyload, jQuery Lazy, WordPress and its plugins.
_LAZY_NAMES = (
    "data-src", "data-original", "data-lazy", "data-lazy-src", "data-lazyload", "data-lazysrc", "data-ll-src",
    "data-hi-res-src", "data-actualsrc", "data-echo", "data-original-src", "data-img-src", "data-src-retina",
)  # fmt: skip
_LAZY_SETS = ("data-srcset", "data-lazy-srcset", "data-original-set", "data-ll-srcset", "data-lazysrcset")
# Attributes of SVG whose values are those of CSS; looked for where there is SVG.
_PRESENTED = (
    "fill", "stroke", "filter", "mask", "clip-path", "marker-start", "marker-mid", "marker-end", "cursor",
)  # fmt: skip
_BACKGROUNDS = {
    "data-bg": _BACKGROUND,
    "data-background": _BACKGROUND,
    "data-background-image": _BACKGROUND,
    "data-bg-src": _BACKGROUND,
    "data-bg-image": _BACKGROUND,
    "data-bgset": _IMAGES,
}
_CSS = Form("image", _css)
_OF_ALL = {"style": _CSS, **dict.fromkeys(_PRESENTED, _CSS), **_BACKGROUNDS}


def _lazily(form: Form) -> dict[str, Form]:
    return {**dict.fromkeys(_LAZY_NAMES, form), **dict.fromkeys(_LAZY_SETS, _IMAGES)}


_PICTURE = {**_lazily(_IMAGE), "src": _IMAGE, "srcset": _IMAGES}
_REFERRING = {"href": _IMAGE, "xlink:href": _IMAGE}
_BEHIND = {"background": _IMAGE}

# By element; what all elements may have comes on top. link is read by `_link`, the text of style by `read_css`.
FORMS: Mapping[str, Mapping[str, Form]] = {
    "img": _PICTURE,
    "input": {"src": _IMAGE},  # of type=image alone
    "source": {**_lazily(_MEDIA), "src": _MEDIA, "srcset": _IMAGES},
    "video": {**_lazily(_MEDIA), "src": _MEDIA, "poster": _IMAGE, "data-poster": _IMAGE},
    "audio": {**_lazily(_MEDIA), "src": _MEDIA},
    "track": {"src": _MEDIA},
    "embed": {"src": _OBJECT},
    "object": {"data": _OBJECT},
    "iframe": {**_lazily(_FRAME), "src": _FRAME},
    "frame": {"src": _FRAME},
    "script": {"src": _SCRIPT, "data-src": _SCRIPT, "href": _SCRIPT, "xlink:href": _SCRIPT},
    **dict.fromkeys(
        ("image", "use", "feImage"), _REFERRING
    ),  # of SVG; all else there that refers stays in its document
    **dict.fromkeys(("body", "table", "thead", "tbody", "tfoot", "tr", "td", "th"), _BEHIND),
}
_FORMS = {element: {**_OF_ALL, **forms} for element, forms in FORMS.items()}

RELS: Mapping[str, str] = {
    "stylesheet": "style",  # also "alternate stylesheet"
    "icon": "icon",  # also "shortcut icon"
    "apple-touch-icon": "icon",
    "apple-touch-icon-precomposed": "icon",
    "mask-icon": "icon",
    "manifest": "manifest",
    "modulepreload": "script",
}
PRELOADED: Mapping[str, str] = {  # [as] of rel=preload and rel=prefetch
    "style": "style",
    "script": "script",
    "worker": "script",
    "font": "font",
    "image": "image",
    "track": "media",
    "video": "media",
    "audio": "media",
    "fetch": "other",
}
# The body, tables and their parts are found by [background], which is rare. Names that the parser does not know take
# longer to find than all elements together, so these are looked for only where the markup has them.
_SELECTOR = (
    "img,source,video,audio,track,embed,object,iframe,frame,link[rel],script,style,image,use,feImage,"
    'input[type="image" i],[style*="("],[background]'
)
_LATE_SELECTOR = "".join(f",[{name}]" for name in _BACKGROUNDS)
_PRESENTED_SELECTOR = "".join(f',[{name}*="url("]' for name in _PRESENTED)


def _selector_for(markup: bytes) -> str:
    selector = _SELECTOR
    if b"data-b" in markup:  # as all of _BACKGROUNDS begin
        selector += _LATE_SELECTOR
    if b"<svg" in markup and markup.count(b"url(") > markup.count(b"url(#"):
        selector += _PRESENTED_SELECTOR
    return selector


def requisites_of(
    tree: LexborHTMLParser,
    base_url: str,
    *,
    markup: bytes,
    limit: int,
    own_url: str = "",
    query_charset: str = "",
    joins: JoinCache | None = None,
    shadow_roots: Iterable[LexborNode] = (),
    with_favicon: bool = False,
) -> tuple[tuple[Requisite, ...], int]:
    """What a document loads, unique, in its order, and how many references were left out, at least.

    `base_url` is its base. `markup` is what the tree was made of, as the parser got it; of XML, its instructions are
    not in the tree. `own_url`: its own, which is never returned. `query_charset` and `joins`: as for links.
    `with_favicon`: also /favicon.ico of its site, if it names no icon. References count as left out beyond `limit`
    different URLs and beyond the bounds of RequisiteList; those in another spelling of a returned URL may be among
    them. Of elements that are no longer looked at each counts as one.
    """
    found = RequisiteList(base_url, limit, own_url=own_url, query_charset=query_charset, joins=joins)
    if markup.startswith(b"<?xml"):
        _read_prolog(markup[:_PROLOG_BYTES].decode("utf-8", "replace"), found)
    selector = _selector_for(markup)
    for nodes in (tree.css(selector), *(root.css(selector) for root in shadow_roots)):
        for n, node in enumerate(nodes):
            if not found.step():
                found.cut += len(nodes) - n
                break
            _read_element(node, found)
    if with_favicon and not found.names_icon:
        found.add(origin_of(own_url) + "/favicon.ico", "icon")
    return found.found()


def _read_element(node: LexborNode, found: RequisiteList) -> None:
    element = node.tag or ""
    attributes = node.attributes
    if element == "link":
        _link(attributes, found)
    elif element == "style" and (text := node.text(deep=False)):  # its own: those in it are read for themselves
        read_css(text, found)
    forms = _FORMS.get(element, _OF_ALL)
    for name, value in attributes.items():
        if value and name in forms:
            form = forms[name]
            form.read(value, form.kind, found)


def _link(attributes: Mapping[str, str | None], found: RequisiteList) -> None:
    rels = (attributes.get("rel") or "").lower().split()
    kind = next((RELS[rel] for rel in rels if rel in RELS), "")
    found.names_icon = found.names_icon or "icon" in rels
    if not kind and ("preload" in rels or "prefetch" in rels):
        kind = PRELOADED.get((attributes.get("as") or "").lower(), "" if "preload" in rels else "other")
    if kind:
        found.add(attributes.get("href") or "", kind)
        if srcset := attributes.get("imagesrcset"):
            candidates(srcset, "image", found)


def _read_prolog(prolog: str, found: RequisiteList) -> None:
    """The style sheets of an XML document: <?xml-stylesheet href="..."?>."""
    for part in prolog.split("<?xml-stylesheet")[1 : 1 + _PROLOG_STYLES_MAX]:
        link = LexborHTMLParser(f"<link {part.partition('?>')[0]}>").css_first("link")
        if link is not None:
            found.add(link.attrs.sget("href") or "", "style")


def manifest_icons(body: bytes, base_url: str, *, limit: int) -> tuple[tuple[Requisite, ...], int]:
    """The icons of a web app manifest, and how many references were left out; nothing of what is no manifest."""
    found = RequisiteList(base_url, limit, own_url=base_url)
    try:
        manifest = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf") if len(body) <= MANIFEST_BYTES_MAX else b"")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        manifest = None
    icons = manifest.get("icons") if isinstance(manifest, dict) else None
    for icon in icons if isinstance(icons, list) else ():
        source = icon.get("src") if isinstance(icon, dict) else None
        if isinstance(source, str):
            found.add(source, "icon")
    return found.found()
