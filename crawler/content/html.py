"""Parses an HTML body: links, title, canonical link and robots directives; also its visible text, for exports.

Parsing is a pure function of plain values, so that an expensive page can be parsed in another process. What is
followed:

    a, area [href], a [xlink:href]        yes, unless rel=nofollow (when obeyed)
    link [rel: next, prev, alternate]     yes; canonical is a hint, reported separately; other rels no
    iframe, frame [src]                   yes
    meta http-equiv=refresh               yes, as a link; a Refresh header likewise, by the URL of the page
    base [href]                           the first one, anywhere in the document
    noscript                              its content is markup like any other
    template [shadowrootmode]             its links, like those around it, where browsers make a shadow root of it
    form, img, srcset, script, object, embed, other templates     never; but see requisites.py
    iframe [srcdoc]                       never: a document in an attribute would be a second parse of unknown cost
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.charset import is_unicode, with_query_in
from crawler.content.robots_directives import directives_in, no_index_no_follow, robots_header
from crawler.content.sitemap import URLS_MAX, looks_like_one, parse_sitemap
from crawler.content.sniff import decode, detect_charset
from crawler.errors import InvalidUrl
from crawler.media_type import is_html
from crawler.model import LINK_RULES, ParsedPage, Requisite, Statement
from crawler.rules.rights import DIRECTIVES, LICENSE, META_NAMES, ROBOTS, RSL, VALUE_CHARS_MAX, Said
from crawler.rules.urls import BYTES_MAX, JoinCache, canonicalize, join, join_all, scheme_of

TITLE_CHARS_MAX = 300
LINK_BYTES_MAX = 1024 * 1024  # of the links of one page: they are in memory and on the way to the engine at once

NO_EVENTS = 1  # LexborDocumentOptions.WO_EVENTS: no side effects while the tree is built, of quadratic time for options
_UNSEEN = ["script", "style", "noscript", "head", "iframe", "object", "svg", "textarea", "select"]
_BLOCKS = (
    "address,article,aside,blockquote,br,dd,details,div,dl,dt,figcaption,figure,footer,form,h1,h2,h3,h4,h5,h6,header,"
    "hr,li,main,nav,ol,p,pre,section,summary,table,td,th,tr,ul"
)
_BREAK = "\x1e"  # a control character that pages don't need, and that otherwise counts as a blank
_ELEMENTS = "[href]{},iframe[src],frame[src],meta[content],title,template[shadowrootmode]"
_FOLLOWING_ALL = _ELEMENTS.format("")
_OBEYING_NOFOLLOW = _ELEMENTS.format(':not([rel*="nofollow" i])')  # also "noopener,nofollow"
_JOINED_AT_ONCE = 2_000  # references: with the longest base and references, 32 MiB of URLs
_JOIN_MS_PER_CHAR = 6e-6  # measured; 30 us for a short link, which the number of links bounds
_JOIN_MS_PER_ODD_CHAR = 2e-3  # characters beyond ASCII: escaped in paths one by one, names of hosts by UTS 46
_FOLLOWED_RELS = frozenset(("next", "prev", "alternate"))
_BLANKS = "\t\n\f\r "
_RSL, _RSL_SCRIPTS = b"rsl+xml", 'script[type="application/rsl+xml" i]'
_PLUS_AT = _RSL.index(b"+")
PLUS_MAX = 32  # that are looked at one by one
LICENSES_READ_MAX = 100  # of one page
# Elements that may have a shadow root, by the DOM standard; others are custom elements, whose names have a hyphen.
_SHADOW_HOSTS = frozenset(
    ("article", "aside", "blockquote", "body", "div", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "main",
     "nav", "p", "section", "span")
)  # fmt: skip
_RESERVED = frozenset(
    ("annotation-xml", "color-profile", "font-face", "font-face-format", "font-face-name", "font-face-src",
     "font-face-uri", "missing-glyph")
)  # fmt: skip
_NOWHERE = "nowhere://base/"  # what is relative to it can't be crawled
SCRIPTED_TEXT_MAX = 200  # characters: "please enable JavaScript", and some more
_ANCESTORS_MAX = 32


def _tag_ids() -> dict[str, int]:
    html = "<head><title></title><base><link><meta></head><a></a><area><iframe></iframe><template></template>"
    html += "<math></math><svg><desc></desc><foreignObject></foreignObject></svg>"
    found = {node.tag or "": node.tag_id for node in LexborHTMLParser(html).css("*")}
    frame = LexborHTMLParser("<frameset><frame></frameset>").css_first("frame")
    return {**found, "frame": frame.tag_id if frame else -1}


_IDS = _tag_ids()
_ANCHOR, _AREA = _IDS["a"], _IDS["area"]
_LINK, _META, _BASE = _IDS["link"], _IDS["meta"], _IDS["base"]
_TITLE, _TEMPLATE = _IDS["title"], _IDS["template"]
_FRAMES = (_IDS["iframe"], _IDS["frame"])
_FOREIGN = frozenset((_IDS["svg"], _IDS["math"]))
_HTML_IN_FOREIGN = frozenset((_IDS["foreignObject"], _IDS["desc"], _TITLE))


class Markup(NamedTuple):
    """An HTML body in UTF-8, as the parser gets it, and the charset that it had."""

    body: bytes
    charset: str


class ExpensiveLinksError(Exception):
    """Joining the links of a page takes longer than the caller allows."""


def markup_of(content_type: str, body: bytes, *, decoded_max: int | None = None) -> Markup | None:
    """The body as the parser gets it; None if it is not HTML, or not in UTF-8 and longer than `decoded_max` bytes."""
    if not is_html(content_type, body):
        return None
    charset = detect_charset(body, content_type)
    if charset == "utf-8":
        return Markup(body.removeprefix(b"\xef\xbb\xbf"), charset)
    if decoded_max is not None and len(body) > decoded_max:
        return None
    return Markup(decode(body, charset).encode("utf-8", "replace"), charset)


def parse_page(
    url: str,
    content_type: str,
    x_robots_tag: str,
    body: bytes,
    *,
    links_max: int,
    obey_nofollow: bool,
    bytes_max: int,
    agent: str,
    refresh: str = "",
    joins: JoinCache | None = None,
    link_rules: int = LINK_RULES,
    reads_feeds: bool = False,
    is_sitemap: bool = False,
    requisites_max: int = 0,
    requested_as: str = "",
) -> ParsedPage:
    """Parse one body; see `parse_with_tree`."""
    return parse_with_tree(
        url, content_type, x_robots_tag, body, links_max=links_max, obey_nofollow=obey_nofollow, bytes_max=bytes_max,
        agent=agent, refresh=refresh, joins=joins, link_rules=link_rules, reads_feeds=reads_feeds,
        is_sitemap=is_sitemap, requisites_max=requisites_max, requested_as=requested_as,
    )[0]  # fmt: skip


def parse_with_tree(
    url: str,
    content_type: str,
    x_robots_tag: str,
    body: bytes,
    *,
    links_max: int,
    obey_nofollow: bool,
    bytes_max: int,
    agent: str,
    refresh: str = "",
    joins: JoinCache | None = None,
    markup: Markup | None = None,
    join_ms_max: float = math.inf,
    link_rules: int = LINK_RULES,
    reads_feeds: bool = False,
    is_sitemap: bool = False,
    requisites_max: int = 0,
    requested_as: str = "",
) -> tuple[ParsedPage, LexborHTMLParser | None]:
    """Parse one body: what was found, and the tree if it is HTML.

    `url` is canonical. `content_type` is as `declared_type` has it, the other headers are as received ("" when absent,
    several lines of X-Robots-Tag joined by newlines).
    `bytes_max` bounds each link, `links_max` their number. `agent` is our product token, which directives may name.
    `joins` is shared by the calls of one crawl. A Refresh header is one more link. `markup`: as of `markup_of`, if the
    caller has it. `link_rules`: those of the crawl (see LINK_RULES). `is_sitemap`: it was asked for as one, and is read
    as one; with `reads_feeds`, so is what looks like a sitemap or a feed. `requisites_max`: how many requisites are
    returned; at 0 nothing looks for any. `requested_as`: the kind of requisite that it was requested as, or "". Raises
    ExpensiveLinksError when joining the links may take more than `join_ms_max`; nothing else, whatever a host sent.
    """
    noindex, nofollow = robots_header(x_robots_tag, agent)
    refreshed = refresh_target(url, refresh, bytes_max=bytes_max) if refresh else None
    is_followed = not (nofollow and obey_nofollow)
    if is_sitemap:
        return _sitemap(url, body, URLS_MAX, bytes_max, noindex=noindex, is_followed=is_followed), None
    markup = markup or markup_of(content_type, body)
    if markup is None:
        if reads_feeds and looks_like_one(body):
            return _sitemap(url, body, links_max, bytes_max, noindex=noindex, is_followed=is_followed), None
        links = (refreshed,) if refreshed and is_followed else ()
        if not requisites_max:
            return ParsedPage(noindex=noindex, nofollow=nofollow, links=links), None
        from crawler.content.requisite_bodies import loaded_by

        loaded, cut = loaded_by(url, content_type, body, limit=requisites_max, requested_as=requested_as)
        page = ParsedPage(noindex=noindex, nofollow=nofollow, links=links, requisites=loaded, requisites_cut=cut)
        return page, None
    tree = LexborHTMLParser(markup.body, options=NO_EVENTS)
    selector = _OBEYING_NOFOLLOW if obey_nofollow else _FOLLOWING_ALL
    found = _Found(tree.css(selector), selector, agent)
    nofollow = nofollow or found.nofollow
    spell = _Spelling(query_charset_of(markup.charset, link_rules))
    base = document_base(url, spell.all(found.bases[:1]))
    joined: list[str] = []
    dropped = 0
    if not (nofollow and obey_nofollow):
        hrefs = [*found.hrefs, refreshed] if refreshed else found.hrefs
        # Its references are shorter than the page, so nearly no page needs a look at each of them.
        may_be_long = _join_ms_of(len(base) * len(hrefs) + len(markup.body), len(markup.body)) > join_ms_max
        if may_be_long and _join_ms(base, hrefs[: 2 * links_max]) > join_ms_max:
            raise ExpensiveLinksError
        joined, dropped = _capped(base, hrefs, links_max, bytes_max, joins, spell)
    said, said_cut = found.all_said(base, tree, markup.body)
    loaded, cut = tuple[Requisite, ...](), 0
    if requisites_max:
        from crawler.content.requisites import requisites_of

        loaded, cut = requisites_of(
            tree, base, limit=requisites_max, own_url=url, query_charset=spell.charset, joins=joins,
            shadow_roots=found.shadow_roots, markup=markup.body, with_favicon=not requested_as,
        )  # fmt: skip
    page = ParsedPage(
        said=said,
        said_cut=said_cut,
        title=found.title or "",
        links=tuple(joined),
        links_dropped=dropped,
        canonical=_first_valid([join(base, href) or "" for href in spell.all(found.canonicals[:4])], bytes_max),
        nofollow=nofollow,
        noindex=noindex or found.noindex,
        charset=markup.charset,
        query_charset=spell.charset,
        is_scripted=not (joined or dropped or nofollow) and _has_scripts_only(tree),
        requisites=loaded,
        requisites_cut=cut,
    )
    return page, tree


def _sitemap(url: str, body: bytes, links_max: int, bytes_max: int, *, noindex: bool, is_followed: bool) -> ParsedPage:
    """What a sitemap or a feed names; its protocol has a bound of its own."""
    if not is_followed:
        return ParsedPage(noindex=noindex, nofollow=True)
    found = parse_sitemap(body, url)
    usable = [one.loc for one in found.urls if len(one.loc) <= bytes_max]
    links = tuple(usable[:links_max])
    left_out = found.left_out + len(found.urls) - len(usable)
    return ParsedPage(
        noindex=noindex, links=links, links_dropped=len(usable) - len(links), sitemaps=found.sitemaps,
        flaw=found.flaw or (f"{left_out:,} of its entries have no usable URL" if left_out else ""),
    )  # fmt: skip


def redirect_target(url: str, location: str) -> str | None:
    """Target of a Location header (latin-1, as received) at the canonical `url`; None when it has none.

    Bytes beyond ASCII are escaped unchanged: right for UTF-8, and what browsers do with other encodings.
    """
    if not location.strip():
        return None
    escaped = "".join([c if c < "\x80" else f"%{ord(c):02X}" for c in location[: BYTES_MAX + 1]])
    return join(url, escaped)


def refresh_target(url: str, value: str, *, bytes_max: int = 8192) -> str | None:
    """Target of a Refresh header; None when it only reloads."""
    href = _refresh_href(value)
    return join(url, href, bytes_max=bytes_max) if href else None


class _Found:
    """The relevant elements by kind, each list in document order. In the place of each declarative shadow root is what
    it holds, but for what speaks for the document.
    """

    def __init__(self, nodes: Sequence[LexborNode], selector: str, agent: str) -> None:
        self.hrefs: list[str] = []
        self.bases: list[str] = []
        self.canonicals: list[str] = []
        self.title: str | None = None
        self.noindex = self.nofollow = False
        self.said: Said | None = None  # about the use of the page, by metas
        self.licenses: list[str] = []
        self.shadow_roots: list[LexborNode] = []
        agents = ("robots", agent.lower())
        hrefs = self.hrefs
        hosts: set[int] = set()
        roots: list[Iterator[LexborNode]] = [iter(nodes)]  # the document, and the shadow roots that are open
        while roots:
            for node in roots[-1]:
                tag = node.tag_id
                if tag == _ANCHOR:
                    try:
                        hrefs.append(node.attrs["href"] or "")
                    except KeyError:  # of a picture (SVG)
                        hrefs.append(node.attrs.sget("xlink:href") or "about:blank")
                elif tag != _TEMPLATE:
                    self._take(tag, node, agents, is_in_shadow=len(roots) > 1)
                elif _is_shadow_root(node, hosts):
                    contents = node.template_fragments()
                    self.shadow_roots += contents
                    roots += [iter(content.css(selector)) for content in contents]
                    break
            else:
                roots.pop()

    def _take(self, tag: int, node: LexborNode, agents: tuple[str, ...], *, is_in_shadow: bool) -> None:
        if tag == _LINK:
            self._link(node)
        elif tag == _META:
            if not is_in_shadow:
                self._meta(node, agents)
        elif _is_foreign(node):
            return
        elif tag == _AREA:
            self.hrefs.append(node.attrs.sget("href") or "")
        elif tag in _FRAMES:
            self.hrefs.append(node.attrs.sget("src") or "about:blank")
        elif tag == _BASE and not is_in_shadow:
            self.bases.append(node.attrs.sget("href") or "")
        elif tag == _TITLE and not is_in_shadow and self.title is None:
            self.title = " ".join(node.text()[: 8 * TITLE_CHARS_MAX].split())[:TITLE_CHARS_MAX]

    def _link(self, node: LexborNode) -> None:
        rels = (node.attrs.sget("rel") or "").lower().split()
        if LICENSE in rels and not _is_foreign(node):
            self.licenses.append(node.attrs.sget("href") or "")
        if "canonical" in rels:
            if not _is_foreign(node):
                self.canonicals.append(node.attrs.sget("href") or "")
        elif "stylesheet" not in rels and not _FOLLOWED_RELS.isdisjoint(rels) and not _is_foreign(node):
            self.hrefs.append(node.attrs.sget("href") or "")

    def _meta(self, node: LexborNode, agents: tuple[str, ...]) -> None:
        attrs = node.attrs
        content = attrs.sget("content") or ""
        name = (attrs.sget("name") or "").strip().lower()
        if name in agents:
            directives = directives_in(content)
            noindex, nofollow = no_index_no_follow(directives)
            self.noindex, self.nofollow = self.noindex or noindex, self.nofollow or nofollow
            if forbidden := [word for word in directives if word in DIRECTIVES]:
                self._say("meta", ROBOTS, ", ".join(dict.fromkeys(forbidden)))
        elif name in META_NAMES:
            self._say("meta", name, content)
        elif (attrs.sget("http-equiv") or "").strip().lower() == "refresh":
            href = _refresh_href(content)
            if href:
                self.hrefs.append(href)

    def _say(self, place: str, key: str, value: str) -> None:
        self.said = self.said or Said()
        self.said.add(place, key, value)

    def all_said(self, base: str, tree: LexborHTMLParser, body: bytes) -> tuple[tuple[Statement, ...], int]:
        """What the page says about its use, and how many statements were left out or cut."""
        for href in self.licenses[:LICENSES_READ_MAX]:
            self._say("link", LICENSE, join(base, href) or href)
        if _has_rsl(body):
            for script in tree.css(_RSL_SCRIPTS)[:LICENSES_READ_MAX]:
                self._say("script", RSL, " ".join(script.text()[: 2 * VALUE_CHARS_MAX].split()))
        return (self.said.kept, self.said.cut) if self.said is not None else ((), 0)


def _has_rsl(body: bytes) -> bool:
    """May there be a license of RSL in this body? One character is found much faster than several, and most pages have
    no plus, or few.
    """
    at = body.find(b"+")
    for _ in range(PLUS_MAX):
        if at < 0:
            return False
        if body[at - _PLUS_AT : at + len(_RSL) - _PLUS_AT] == _RSL:
            return True
        at = body.find(b"+", at + 1)
    return _RSL in body


def _has_scripts_only(tree: LexborHTMLParser) -> bool:
    """Has a page without links scripts and little text? Then they make it, and nobody runs them here."""
    body = tree.body
    if body is None:
        return False
    types = [(script.attributes.get("type") or "").strip().lower() for script in tree.css("script")]
    if not any(kind in ("", "module") or kind.endswith("javascript") for kind in types):
        return False
    unseen = sum(_length(node) for node in body.css("script, style, noscript, template"))
    return _length(body) - unseen <= SCRIPTED_TEXT_MAX


def _length(node: LexborNode) -> int:
    """Characters of its text that are no blanks."""
    return len("".join(node.text().split()))


def _is_foreign(node: LexborNode) -> bool:
    """Is it of a picture or a formula (SVG, MathML), as far as the elements right around it tell?"""
    for _ in range(_ANCESTORS_MAX):
        parent = node.parent
        if parent is None or parent.tag_id in _HTML_IN_FOREIGN:
            return False
        if parent.tag_id in _FOREIGN:
            return True
        node = parent
    return False


def _is_shadow_root(template: LexborNode, hosts: set[int]) -> bool:
    """Do browsers make this template the shadow root of its parent? `hosts`: those that have one, which grows."""
    host = template.parent
    if host is None or (template.attrs.sget("shadowrootmode") or "").lower() not in ("open", "closed"):
        return False
    tag = host.tag or ""
    if (tag not in _SHADOW_HOSTS and ("-" not in tag[1:] or tag in _RESERVED)) or host.mem_id in hosts:
        return False
    hosts.add(host.mem_id)
    return True


def _refresh_href(content: str) -> str:
    """The URL by the "shared declarative refresh steps" of the HTML standard; "" when there is none."""
    text = content.lstrip(_BLANKS)
    after = text.lstrip("0123456789.")
    if len(after) == len(text) or not after or after[0] not in ";,\t\n\f\r ":
        return ""
    rest = after.lstrip(_BLANKS)
    rest = rest[1:].lstrip(_BLANKS) if rest[:1] in (";", ",") else rest
    if rest[:3].lower() == "url" and (named := rest[3:].lstrip(_BLANKS)).startswith("="):
        rest = named[1:].lstrip(_BLANKS)
    quote = rest[:1]
    if quote in ("'", '"'):
        rest = rest[1:].partition(quote)[0]
    return rest.strip()


class _Spelling(NamedTuple):
    """How a page spells its references: queries in this charset; "" is UTF-8."""

    charset: str

    def all(self, hrefs: list[str]) -> list[str]:
        charset = self.charset
        return [with_query_in(charset, href) for href in hrefs] if charset else hrefs


def _capped(
    base: str, hrefs: list[str], links_max: int, bytes_max: int, joins: JoinCache | None, spell: _Spelling
) -> tuple[list[str], int]:
    """The links within both bounds, and the number of dropped ones. References far beyond them are not joined."""
    left_out = 0
    if len(hrefs) <= _JOINED_AT_ONCE:
        links, _ = join_all(base, spell.all(hrefs), bytes_max=bytes_max, cache=joins)
    else:
        distinct = list(dict.fromkeys([href.partition("#")[0] for href in hrefs]))
        found: dict[str, None] = {}
        at = size = 0
        while at < min(len(distinct), 2 * links_max) and size <= 2 * LINK_BYTES_MAX:
            part = distinct[at : min(at + _JOINED_AT_ONCE, 2 * links_max)]
            found |= dict.fromkeys(join_all(base, spell.all(part), bytes_max=bytes_max, cache=joins)[0])
            at, size = at + len(part), sum(map(len, found))
        links, left_out = list(found), len(distinct) - at
    kept = min(len(links), links_max)
    if sum(map(len, links[:kept])) > LINK_BYTES_MAX:
        kept = next(n for n, size in enumerate(accumulate(map(len, links))) if size > LINK_BYTES_MAX)
    return links[:kept], len(links) - kept + left_out


def _join_ms(base: str, hrefs: list[str]) -> float:
    """How long it may take to join these references to a base, at worst."""
    whole = "".join(hrefs)
    odd = 0 if whole.isascii() else sum([len(href) for href in hrefs if not href.isascii()])
    return _join_ms_of(len(base) * len(hrefs) + len(whole), odd)


def _join_ms_of(chars: int, odd: int) -> float:
    """The same by numbers of characters: of all references with their bases, and of those beyond ASCII."""
    return chars * _JOIN_MS_PER_CHAR + odd * _JOIN_MS_PER_ODD_CHAR


def document_base(url: str, hrefs: Sequence[str]) -> str:
    """What a document's references are relative to, by the first `hrefs` of its <base> elements: the page's own URL
    where that is none, or is of javascript: or data:. Below one of another scheme they lead nowhere, as in browsers.
    """
    href = next(iter(hrefs), "")
    is_foreign = scheme_of(href) not in ("", "http", "https", "javascript", "data")
    return _NOWHERE if is_foreign else join(url, href) or url


def query_charset_of(charset: str, link_rules: int) -> str:
    """What the queries of links are sent in, on a page in `charset`; "" is UTF-8."""
    return "" if link_rules == 0 or is_unicode(charset) else charset


def base_of(tree: LexborHTMLParser, url: str, charset: str = "") -> str:
    """The same of a whole tree, whose queries are in `charset`; "" is UTF-8."""
    hrefs = [node.attrs.sget("href") or "" for node in tree.css("base[href]") if not _is_foreign(node)]
    return document_base(url, _Spelling(charset).all(hrefs[:1]))


def _first_valid(urls: list[str], bytes_max: int) -> str:
    """The first one that can be crawled, else ""."""
    for url in urls:
        with contextlib.suppress(InvalidUrl):
            return canonicalize(url, bytes_max=bytes_max)
    return ""


def extract_text(body: bytes, charset: str) -> str:
    """Visible text of an HTML body: one line for each block, blanks collapsed, no empty lines.

    That of declarative shadow roots follows that of the document.
    """
    tree = LexborHTMLParser(decode(body, charset), options=NO_EVENTS)
    hosts: set[int] = set()
    parts, lines = [tree.body], list[str]()
    for part in parts:  # grows
        if part is None:
            continue
        part.strip_tags(_UNSEEN)
        for template in part.css("template[shadowrootmode]"):
            if _is_shadow_root(template, hosts):
                parts += template.template_fragments()
        for node in part.css(_BLOCKS):
            node.insert_before(_BREAK)
            node.insert_after(_BREAK)
        found = (" ".join(line.split()) for line in part.text().split(_BREAK))
        lines += [line for line in found if line]
    return "\n".join(lines)


def shadow_roots(tree: LexborHTMLParser) -> list[LexborNode]:
    """The declarative shadow roots of a document, those that are in others too."""
    hosts: set[int] = set()
    parts = [tree.body] if tree.body is not None else []
    for part in parts:  # grows
        for template in part.css("template[shadowrootmode]"):
            if _is_shadow_root(template, hosts):
                parts += template.template_fragments()
    return parts[1:]
