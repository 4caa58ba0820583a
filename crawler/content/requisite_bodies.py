"""What a body loads that is not a page: a style sheet, a picture in SVG, the manifest of a web app. Pure.

The type that a site declares decides, as in browsers. Where it declares none of these, it is what it was requested as.
"""

import enum

from selectolax.lexbor import LexborHTMLParser

from crawler.content.css_urls import css_urls
from crawler.content.parse_cost import BYTES_MAX, Cost, cost_of
from crawler.content.requisites import manifest_icons, requisites_of
from crawler.content.sniff import decode, detect_charset
from crawler.media_type import media_type
from crawler.model import Requisite

SHEET_INLINE_BYTES = 512 * 1024  # of a style sheet that is read in the event loop: 3 ms for most, 150 ms at worst
_SVG = "image/svg+xml"
_NO_EVENTS = 1  # as in html.py


class Reading(enum.Enum):
    """How a body is read."""

    NOT = enum.auto()
    STYLE = enum.auto()
    SVG = enum.auto()
    MANIFEST = enum.auto()


def reading_of(content_type: str, requested_as: str) -> Reading:
    """How a body that is not HTML is read. `requested_as`: the kind of requisite that it was requested as, or ""."""
    kind = media_type(content_type)
    if kind == _SVG:
        return Reading.SVG
    if kind == "text/css" or requested_as == "style":
        return Reading.STYLE
    return Reading.MANIFEST if requested_as == "manifest" else Reading.NOT


def svg_markup(content_type: str, body: bytes) -> bytes:
    """A picture in UTF-8, as the parser gets it."""
    return decode(body, detect_charset(body, content_type)).encode("utf-8", "replace")


def loaded_by(
    url: str, content_type: str, body: bytes, *, limit: int, requested_as: str = ""
) -> tuple[tuple[Requisite, ...], int]:
    """What a body that is not HTML loads, and how many references were left out, at least."""
    reading = reading_of(content_type, requested_as)
    if reading is Reading.STYLE:
        return css_urls(body, url, limit=limit, content_type=content_type)
    if reading is Reading.MANIFEST:
        return manifest_icons(body, url, limit=limit)
    if reading is Reading.NOT:
        return (), 0
    markup = svg_markup(content_type, body)
    tree = LexborHTMLParser(markup, options=_NO_EVENTS)
    return requisites_of(tree, url, limit=limit, own_url=url, markup=markup)


def requisites_cost(content_type: str, body: bytes, requested_as: str, *, guarded: bool) -> Cost:
    """How long it may take to find what a body loads that is not HTML. `guarded`: as if it took long."""
    reading = reading_of(content_type, requested_as)
    if reading is Reading.NOT:
        return Cost.CHEAP
    if guarded or len(body) > (SHEET_INLINE_BYTES if reading is Reading.STYLE else BYTES_MAX):
        return Cost.EXPENSIVE
    return cost_of(svg_markup(content_type, body)) if reading is Reading.SVG else Cost.CHEAP
