"""An HTML page as Markdown (CommonMark, with the tables of GitHub): from the tree that is parsed already.

Linear in the page: its elements are bounded in number, those nested deeper than a bound belong to the one around them,
and so does what would be indented further. No text is lost by that. Links are absolute; those that a reader can't
follow (javascript:, data:) and images that are no files are their text alone. What the text has of Markdown's own
characters is escaped where it would be read as such.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.content.charset import with_query_in
from crawler.content.html import base_of, shadow_roots
from crawler.content.main_text import UnreadableTextError
from crawler.redaction import bears_login
from crawler.rules.urls import Joiner, is_plain, looked_at, scheme_of

NODES_MAX = 300_000  # elements and texts: some 100 MB
DEPTH_MAX = 60
INDENTED_MAX = 10  # lists and quotations within each other
_SPAN_MAX = 10  # columns of one cell
_URL_CHARS_MAX = 8192
_URLS_CHARS_MAX = 16 << 20  # of all that are written: a base of 8 kB makes 8 kB of each short link
_LANGUAGE_CHARS_MAX = 30
_SHINGLE = 3  # words
_KEPT_SHARE = 0.6  # of the shingles of a block that are in the main text

_UNSEEN = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "head",
        "iframe",
        "object",
        "embed",
        "svg",
        "canvas",
        "audio",
        "video",
        "select",
        "textarea",
        "button",
        "input",
        "datalist",
        "map",
        "frameset",
        "noframes",
        "annotation",
        "annotation-xml",
        "-comment",
        "-doctype",
        "title",
        "meta",
        "link",
    ]
)
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "dialog",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "legend",
        "li",
        "main",
        "menu",
        "nav",
        "ol",
        "p",
        "pre",
        "search",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_STRONG, _STRESSED = frozenset(("b", "strong")), frozenset(("em", "i", "cite", "dfn", "var"))
_DELETED, _CODE = frozenset(("del", "s", "strike")), frozenset(("code", "kbd", "samp", "tt"))
_MARKS = {**dict.fromkeys(_STRONG, "**"), **dict.fromkeys(_STRESSED, "*"), **dict.fromkeys(_DELETED, "~~")}
_KNOWN_INLINE = frozenset((*_MARKS, *_CODE, "a", "img", "br", "q"))
_LISTS = frozenset(("ul", "ol", "menu", "dir"))
_PARTS_OF_TABLES = frozenset(("tbody", "thead", "tfoot"))
_IN_NO_CELL = frozenset(("table", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "article", "section", "form"))
_HTTP = ("http://", "https://")
_FOLLOWED = frozenset(("http", "https", "mailto", "tel", "ftp", ""))
_HIDDEN = (
    '[hidden],[style*="display:none" i],[style*="display: none" i],td.linenos,td.gutter,a.headerlink,a.anchorjs-link'
)
_AROUND_MAIN = (
    "nav,footer,[role=navigation],[role=contentinfo],[role=search],[role=complementary],[class*=sidebar i],"
    "[id*=sidebar i]"
)
_ANCHORS = frozenset("¶#§🔗")
_BREAK = "\x1e"
_CONTROLS = dict.fromkeys([*range(9), 0x0B, *range(0x0E, 0x20), 0x7F])

_SPECIAL = re.compile(
    r"[\\`]|\*(?!\s)|\](?=[(\[:]|\Z)|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?[A-Za-z0-9]{1,32};)|~(?=~)"
)
_AT_START = re.compile(r"#{1,6}(?=\s|\Z)|[-+*](?=\s|\Z)|>|[=-]+\Z|~~~|\d{1,9}(?=[.)](?:\s|\Z))|\|")
_ODD = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\\`*\]_<&~]")  # texts without these have nothing to escape
_ODD_IN_URL = re.compile(r"[\x00-\x20\x7f()<>\\|]")
_FENCES = re.compile(r"`+")
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9+#._-]*\Z")
_LIST = re.compile(r"- |\d{1,9}\. ")
_WORDS = re.compile(r"\w+")
_IN_URL = str.maketrans({"(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\\": "%5C", " ": "%20", "|": "%7C"})
_NO_LANGUAGES = frozenset(
    ("default", "text", "none", "plain", "plaintext", "notranslate", "source", "code", "nohighlight")
)


class _Element:
    __slots__ = ("has_blocks", "node", "parts", "tag")

    def __init__(self, tag: str, node: LexborNode | None) -> None:
        self.tag, self.node = tag, node
        self.parts: list[str | _Element] = []
        self.has_blocks = False


def markdown(
    tree: LexborHTMLParser, url: str, charset: str = "", *, main: str | None = None, nodes_max: int = NODES_MAX
) -> str:
    """The page as Markdown, with one line end at the end; "" of a page without text.

    `url`: of the page, canonical. `charset`: of its queries, "" for UTF-8. `main`: the page's main text; then only the
    blocks that are in it. Raises UnreadableTextError for a page with more elements and texts than
    `nodes_max`, or with links that are too long together.
    """
    root = _read(tree, nodes_max, _HIDDEN if main is None else f"{_HIDDEN},{_AROUND_MAIN}")
    if main is not None and not _Main(main).prune(root):
        root = _read(tree, nodes_max, _HIDDEN)  # all of it is in what is around the text elsewhere
        _Main(main).prune(root)
    blocks = _Writer(base_of(tree, url, charset), charset).blocks(root)
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _read(tree: LexborHTMLParser, left: int, unseen: str) -> _Element:
    """What a reader sees; declarative shadow roots follow the document."""
    root = _Element("body", None)
    hidden = {node.mem_id for node in tree.css(unseen)}
    split: dict[int, _Element] = {}
    is_lifted = False
    for body in (tree.body, *shadow_roots(tree)):
        if body is not None:
            left, is_one = _add(root, body, hidden, left, split)
            is_lifted = is_lifted or is_one
    for one in split.values():
        one.parts = _merged(one.parts)
    if is_lifted:
        _lift(root)
    return root


def _add(root: _Element, body: LexborNode, hidden: set[int], left: int, split: dict[int, _Element]) -> tuple[int, bool]:
    """How many nodes are left then, and whether a block is in an inline element. `split` gets the elements with a text
    behind a text.
    """
    around: dict[int, tuple[_Element, int]] = {body.mem_id: (root, 0)}
    is_lifted = False
    for node in body.traverse(include_text=True):
        parent = node.parent
        place = around.get(parent.mem_id) if parent is not None else None
        if place is None:
            continue
        left -= 1
        if left < 0:
            raise UnreadableTextError("too many elements and texts")
        up, depth = place
        tag = node.tag or ""
        if tag == "-text":
            if text := node.text_content:
                if up.parts and isinstance(up.parts[-1], str):
                    split[id(up)] = up
                up.parts.append(text)
            continue
        number = node.mem_id
        if tag in _UNSEEN or number in hidden:
            continue
        is_block = tag in _BLOCKS
        if not is_block and tag not in _KNOWN_INLINE:
            around[number] = place  # what is in it is in the element around it
            continue
        one = _Element(tag, node)
        up.parts.append(one)
        if is_block:
            up.has_blocks = True
            is_lifted = is_lifted or up.tag not in _BLOCKS
        around[number] = (one, depth + 1) if depth < DEPTH_MAX else place
    return left, is_lifted


def _merged(parts: "list[str | _Element]") -> "list[str | _Element]":
    """Texts that follow each other as one, in linear time."""
    found: list[str | _Element] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        some = list(group)
        found += ["".join(map(str, some))] if is_text else some
    return found


def _lift(root: _Element) -> None:
    """An inline element with blocks in it has blocks for the ones around it, too."""
    order, at = [root], 0
    while at < len(order):
        order += [part for part in order[at].parts if isinstance(part, _Element)]
        at += 1
    for one in reversed(order):
        if not one.has_blocks:
            one.has_blocks = any(isinstance(p, _Element) and (p.tag in _BLOCKS or p.has_blocks) for p in one.parts)


def _is_block(part: "str | _Element") -> bool:
    return isinstance(part, _Element) and (part.tag in _BLOCKS or part.has_blocks)


def _plain(parts: "list[str | _Element]") -> str:
    """The text of these without any mark."""
    found: list[str] = []
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    left = list(reversed(parts))
    while left:
        part = left.pop()
        if isinstance(part, str):
            found.append(part)
        else:
            if part.tag == "br":
                found.append(" ")
            left += reversed(part.parts)
    return "".join(found)


def _says_something(parts: "Sequence[str | _Element]") -> bool:
    """As soon as one is found: blocks in blocks ask for the same texts."""
    left = list(reversed(parts))
    while left:
        part = left.pop()
        if isinstance(part, str):
            if _WORDS.search(part):
                return True
        else:
            left += reversed(part.parts)
    return False


class _Main:
    """Which blocks are in the main text: those most of whose words are there, three at a time."""

    def __init__(self, text: str) -> None:
        words = _WORDS.findall(text)
        self._shingles = {tuple(words[at : at + _SHINGLE]) for at in range(len(words) - _SHINGLE + 1)}
        self._lines = {tuple(_WORDS.findall(line)) for line in text.split("\n")}
        self._words = set(words)

    def has(self, text: str) -> bool | None:
        """None: there is no word in it."""
        words = _WORDS.findall(text)
        if not words:
            return None
        if len(words) < _SHINGLE:
            return tuple(words) in self._lines
        found = [tuple(words[at : at + _SHINGLE]) in self._shingles for at in range(len(words) - _SHINGLE + 1)]
        return sum(found) >= _KEPT_SHARE * len(found)

    def prune(self, element: _Element) -> bool:
        """Leave the parts that are in the main text; is anything left? What has no words stays between what does."""
        if element.tag in ("pre", "tr", "table"):
            whole = self.has(_plain(element.parts))
            if element.tag != "table" or whole:
                return bool(whole)
        if not element.has_blocks:
            found = self.has(_plain(element.parts))
            return bool(found) or (found is None and _has_image(element))
        kept: list[str | _Element] = []
        wordless: list[str | _Element] = []
        is_any = False
        for run in _runs(element.parts):
            one = run[0]
            if _is_block(one) and isinstance(one, _Element):
                has_words = _says_something(one.parts)
                is_kept = self.prune(one)
            else:
                text = _plain(run)
                has_words = bool(_WORDS.search(text))
                is_kept = bool(self.has(text))
            if not has_words:
                wordless += run if is_any else []
            elif is_kept:
                kept += [*wordless, *run]
                wordless, is_any = [], True
        element.parts = kept
        return is_any


def _has_image(element: _Element) -> bool:
    return any(isinstance(part, _Element) and (part.tag == "img" or _has_image(part)) for part in element.parts)


def _runs(parts: "list[str | _Element]") -> "Iterator[list[str | _Element]]":
    """Each block by itself, and what is between blocks together."""
    run: list[str | _Element] = []
    for part in parts:
        if isinstance(part, _Element) and (part.has_blocks or part.tag in _BLOCKS):
            if run:
                yield run
                run = []
            yield [part]
        else:
            run.append(part)
    if run:
        yield run


class _Writer:
    def __init__(self, base: str, charset: str) -> None:
        self._base, self._charset = base, charset
        self._joiner: Joiner | None = None
        self._urls: dict[str, str] = {}
        self._chars_left = _URLS_CHARS_MAX
        self._indented = 0

    # --- blocks ---

    def blocks(self, element: _Element, link: str = "") -> list[str]:
        """The blocks of an element, each some lines. `link`: where its first text leads."""
        found: list[str] = []
        for run in _runs(element.parts) if element.has_blocks else (element.parts,):
            one = run[0] if run else ""
            if isinstance(one, _Element) and _is_block(one):
                new = self._block(one, link)
            elif len(run) == 1 and isinstance(one, str) and one.isspace():
                continue
            else:
                text = _at_line_starts(self._inline(run, in_link=bool(link)))
                new = [_linked(text, link) if link else text] if text else []
            if new:
                found += new
                link = ""
        return found

    def _block(self, one: _Element, link: str) -> list[str]:
        tag = one.tag
        if level := _HEADINGS.get(tag):
            return self._heading(one, level, link)
        if tag == "pre":
            return self._pre(one)
        if tag == "hr":
            return ["---"]
        if tag in _LISTS:
            return self._list(one)
        if tag == "dl":
            return self._definitions(one)
        if tag == "table":
            return self._table(one)
        if tag == "blockquote":
            return self._nested(one, "> ", "> ")
        if tag == "li":
            return self._nested(one, "- ", "  ")
        if tag in ("dt", "summary", "caption", "legend"):
            text = self._flat(one)
            return [_marked(text, "**")] if text else []
        if tag == "a":
            return self.blocks(one, link or self._url_of(one, "href"))
        return self.blocks(one, link)

    def _heading(self, one: _Element, level: int, link: str) -> list[str]:
        text = self._flat(one, in_link=bool(link))
        return [f"{'#' * level} {_linked(text, link) if link else text}"] if text else []

    def _nested(self, one: _Element, first: str, more: str) -> list[str]:
        """Behind a mark, but not further in than a bound."""
        if self._indented >= INDENTED_MAX:
            return self.blocks(one)
        self._indented += 1
        blocks = self.blocks(one)
        self._indented -= 1
        return [_indent(_joined(blocks), first, more)] if blocks else []

    def _list(self, one: _Element) -> list[str]:
        number = _number_of(one, "start", 1)
        items: list[list[str]] = []  # an item, and the lists behind it
        is_loose = False
        for run in _runs(one.parts):
            part = run[0]
            if isinstance(part, _Element) and part.tag in _LISTS and items and self._indented < INDENTED_MAX:
                self._indented += 1
                nested = self._list(part)  # directly in a list: of the item before
                self._indented -= 1
                items[-1] += [f"\n{_indent(text, '  ', '  ')}" for text in nested]
                continue
            if not isinstance(part, _Element) or part.tag != "li":
                part = _Element("li", None)
                part.parts, part.has_blocks = run, any(map(_is_block, run))
            mark = f"{number}. " if one.tag == "ol" else "- "
            new = self._nested(part, mark, " " * len(mark))
            number += 1
            is_loose = is_loose or any("\n\n" in text for text in new)
            items += [[text] for text in new]
        return [("\n\n" if is_loose else "\n").join(map("".join, items))] if items else []

    def _definitions(self, one: _Element) -> list[str]:
        """A list whose items are a term, or several, and what is said of it."""
        items: list[str] = []
        terms: list[str] = []
        for part in _definition_parts(one):
            if part.tag == "dt":
                terms += self._block(part, "")
                continue
            said = self.blocks(part)
            items += self._definition(terms, said)
            terms = []
        items += self._definition(terms, [])
        return ["\n\n".join(items)] if items else []

    def _definition(self, terms: list[str], said: list[str]) -> list[str]:
        blocks = [*(["  \n".join(terms)] if terms else []), *said]
        if not blocks:
            return []
        return ["\n\n".join(blocks)] if self._indented >= INDENTED_MAX else [_indent("\n\n".join(blocks), "- ", "  ")]

    def _pre(self, one: _Element) -> list[str]:
        text = _plain_lines(one.parts).translate(_CONTROLS).replace("\r\n", "\n").replace("\r", "\n")
        lines = [line.rstrip() for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            del lines[0]
        if not lines:
            return []
        fence = "`" * max(3, 1 + max(map(len, _FENCES.findall(text)), default=0))
        return ["\n".join([f"{fence}{_language(one)}", *lines, fence])]

    # --- tables ---

    def _table(self, one: _Element) -> list[str]:
        rows, captions = _rows_of(one)
        cells = [cell for row in rows for cell in row]
        is_layout = max(map(len, rows), default=0) < 2 or any(map(_is_no_cell, cells))
        before = [block for caption in captions for block in self._block(caption, "")]
        if is_layout or _attribute(one, "role") in ("presentation", "none"):
            return [*before, *(block for cell in cells for block in self.blocks(cell))]
        texts = [[text for cell in row for text in self._cell(cell)] for row in rows]
        texts, heads = [row for row in texts if any(row)], rows[0]
        if not texts:
            return before
        is_headed = all(cell.tag == "th" for cell in heads) and any(map(_has_words, heads))
        width = max(map(len, texts))
        head = texts.pop(0) if is_headed else []
        head += [""] * (width - len(head))
        lines = [_row(head), "|" + " --- |" * width, *map(_row, texts)]
        return [*before, "\n".join(lines)]

    def _cell(self, cell: _Element) -> list[str]:
        parts = [self._inline(item.parts) for item in (_lines_of(cell) if cell.has_blocks else (cell,))]
        text = "<br>".join(part for part in parts if part).replace("|", "\\|").replace("  \n", "<br>")
        return [text, *[""] * (min(_number_of(cell, "colspan", 1), _SPAN_MAX) - 1)]

    # --- inline ---

    def _flat(self, one: _Element, *, in_link: bool = False) -> str:
        """All text of an element in one line."""
        return self._inline(one.parts, in_link=in_link, is_flat=True).replace("  \n", " ")

    def _inline(self, parts: "list[str | _Element]", *, in_link: bool = False, is_flat: bool = False) -> str:
        """Text with marks; a line for each that ends in <br>."""
        found = self._text(parts, frozenset(), in_link=in_link, is_flat=is_flat)
        if _BREAK not in found:
            return " ".join(found.split())
        lines = [" ".join(line.split()) for line in found.split(_BREAK)]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            del lines[0]
        return "  \n".join(line for line in lines if line)

    def _text(self, parts: "list[str | _Element]", marks: frozenset[str], *, in_link: bool, is_flat: bool) -> str:
        found: list[str] = []
        for number, part in enumerate(parts, 1):
            if isinstance(part, str):
                text = _escaped(part, in_link=in_link)
                if number < len(parts) and not in_link and text.endswith("!"):
                    text = f"{text[:-1]}\\!"  # before a link: no image
                found.append(text)
                continue
            tag = part.tag
            if tag == "br":
                found.append(_BREAK)
            elif tag == "img":
                found.append(self._image(part))
            elif tag in _CODE:
                found.append(_code(_plain(part.parts)))
            elif tag == "a" and not in_link:
                found.append(self._link(part, marks, is_flat=is_flat))
            else:
                mark = _MARKS.get(tag, "")
                inner = marks | {mark} if mark else marks
                text = self._text(part.parts, inner, in_link=in_link, is_flat=is_flat)
                if mark and mark not in marks and not part.has_blocks:
                    text = _marked(text, mark)
                elif tag == "q":
                    text = f'"{text}"'
                found.append(f" {text} " if tag in _BLOCKS else text)
        return "".join(found)

    def _link(self, one: _Element, marks: frozenset[str], *, is_flat: bool) -> str:
        url = self._url_of(one, "href")
        text = self._text(one.parts, marks, in_link=bool(url), is_flat=is_flat)
        if not text.strip(" \t\n\f\r\x1e"):
            return text
        if url and text.strip() in _ANCHORS and "#" in url:
            return ""
        return _linked(text.replace(_BREAK, " "), url) if url else text

    def _image(self, one: _Element) -> str:
        alt = " ".join(_escaped(_attribute(one, "alt"), in_link=True).split())
        url = self._url_of(one, "src")
        return f"![{alt}]({url})" if url else alt

    def _url_of(self, one: _Element, name: str) -> str:
        href = _attribute(one, name)
        if not href or len(href) > _URL_CHARS_MAX:
            return ""
        known = self._urls.get(href)
        if known is None:
            known = self._urls[href] = self._absolute(href)
        self._chars_left -= len(known)
        if self._chars_left < 0:
            raise UnreadableTextError(f"its links are longer than {_URLS_CHARS_MAX >> 20} MiB together")
        return known

    def _absolute(self, href: str) -> str:
        scheme = scheme_of(href) if ":" in href else ""
        if scheme not in _FOLLOWED:
            return ""
        if scheme in ("mailto", "tel"):
            return " ".join(href.split()).translate(_CONTROLS).translate(_IN_URL)
        try:
            joiner = self._joiner = self._joiner or Joiner(self._base)
            if self._charset:
                href = with_query_in(self._charset, href)
            url = joiner.plain(href) if is_plain(href) else looked_at(href, joiner.plain, joiner.beyond, joiner.base)
        except ValueError:
            return ""
        if (not url.startswith(_HTTP) and scheme_of(url) not in _FOLLOWED) or bears_login(url):
            return ""
        return url.translate(_CONTROLS).translate(_IN_URL) if _ODD_IN_URL.search(url) else url


def _attribute(one: _Element, name: str) -> str:
    return (one.node.attrs.sget(name) or "") if one.node is not None else ""


def _number_of(one: _Element, name: str, default: int) -> int:
    text = _attribute(one, name).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else default


def _escaped(text: str, *, in_link: bool) -> str:
    if _ODD.search(text):
        text = _SPECIAL.sub(r"\\\g<0>", text.translate(_CONTROLS))
    return text.replace("[", "\\[").replace("]", "\\]").replace("\\\\]", "\\]") if in_link else text


def _at_line_starts(text: str) -> str:
    if "\n" not in text:
        return _at_start(text)
    return "\n".join(map(_at_start, text.split("\n")))


def _at_start(line: str) -> str:
    found = _AT_START.match(line)
    if found is None:
        return line
    return f"{found[0]}\\{line[found.end() :]}" if found[0][0].isdigit() else f"\\{line}"


def _marked(text: str, mark: str) -> str:
    """With a mark around it, within the blanks at its ends."""
    inner = text.strip(" \t\n\f\r\x1e")
    if not inner or _BREAK in inner:
        return text
    at = text.index(inner)
    return f"{text[:at]}{mark}{inner}{mark}{text[at + len(inner) :]}"


def _code(text: str) -> str:
    """A span of code, however many backticks are in it."""
    inner = " ".join((text.translate(_CONTROLS) if _ODD.search(text) else text).split())
    if not inner:
        return " " if text else ""
    fence = "`" * (1 + max(map(len, _FENCES.findall(inner)))) if "`" in inner else "`"
    blank = " " if inner[0] == "`" or inner[-1] == "`" else ""
    before, after = text[:1].isspace(), text[-1:].isspace()
    return f"{' ' if before else ''}{fence}{blank}{inner}{blank}{fence}{' ' if after else ''}"


def _linked(text: str, url: str) -> str:
    inner = " ".join(text.split())
    before, after = text[:1].isspace(), text[-1:].isspace()
    return f"{' ' if before else ''}[{inner}]({url}){' ' if after else ''}"


def _indent(text: str, first: str, more: str) -> str:
    blank = more.rstrip()
    first_line, *lines = text.split("\n")
    return "\n".join([first + first_line, *(f"{more}{line}" if line else blank for line in lines)])


def _joined(blocks: list[str]) -> str:
    """Blocks of a list's item: a list right behind its text."""
    text = blocks[0]
    for block in blocks[1:]:
        is_list = _LIST.match(block) is not None
        text += ("\n" if is_list and "\n\n" not in block else "\n\n") + block
    return text


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _has_words(cell: _Element) -> bool:
    return bool(_plain(cell.parts).strip())


def _plain_lines(parts: "list[str | _Element]") -> str:
    """As `_plain`, with the line ends of <br> and blocks."""
    found: list[str] = []
    left = list(reversed(parts))
    while left:
        part = left.pop()
        if isinstance(part, str):
            found.append(part)
        elif part.tag == "br":
            found.append("\n")
        else:
            if part.tag in _BLOCKS and found and not found[-1].endswith("\n"):
                found.append("\n")
            left += reversed(part.parts)
    return "".join(found)


def _language(pre: _Element) -> str:
    """Of code, as classes of highlighters name it, on the block, the code in it or what is around it."""
    nodes: list[LexborNode | None] = [part.node for part in pre.parts if isinstance(part, _Element)][:1]
    node = pre.node
    nodes.insert(0, node)
    for _ in range(2):
        node = node.parent if node is not None else None
        nodes.append(node)
    for one in nodes:
        if one is None:
            continue
        words = (one.attrs.sget("class") or "")[:500].split()
        for number, word in enumerate(words):
            name = ""
            for prefix in ("language-", "lang-", "highlight-source-", "highlight-"):
                if word.startswith(prefix):
                    name = word.removeprefix(prefix)
                    break
            if word in ("brush:", "sourceCode") and number + 1 < len(words):
                name = words[number + 1].rstrip(";")
            if name and len(name) <= _LANGUAGE_CHARS_MAX and _LANGUAGE.match(name):
                return "" if name.lower() in _NO_LANGUAGES else name.lower()
    return ""


def _definition_parts(one: _Element) -> Iterator[_Element]:
    """Terms and what is said of them, also of those that are in a <div> each."""
    for run in _runs(one.parts):
        part = run[0]
        if isinstance(part, _Element) and part.tag == "div":
            yield from _definition_parts(part)
        elif isinstance(part, _Element) and part.tag in ("dt", "dd"):
            yield part
        elif _plain(run).strip() or any(isinstance(one, _Element) for one in run):
            loose = _Element("dd", None)
            loose.parts, loose.has_blocks = run, any(map(_is_block, run))
            yield loose


def _rows_of(table: _Element) -> tuple[list[list[_Element]], list[_Element]]:
    """The cells of its rows, and its captions and whatever else is in it."""
    rows: list[list[_Element]] = []
    others: list[_Element] = []
    left = [part for part in reversed(table.parts) if isinstance(part, _Element)]
    while left:
        part = left.pop()
        if part.tag in _PARTS_OF_TABLES:
            left += [one for one in reversed(part.parts) if isinstance(one, _Element)]
        elif part.tag == "tr":
            cells = [one for one in part.parts if isinstance(one, _Element) and one.tag in ("td", "th")]
            if cells:
                rows.append(cells)
        else:
            others.append(part)
    return rows, others


def _is_no_cell(cell: _Element) -> bool:
    """Has it what no cell of Markdown can have?"""
    left = [cell] if cell.has_blocks else []
    while left:
        for part in left.pop().parts:
            if isinstance(part, _Element):
                if part.tag in _IN_NO_CELL:
                    return True
                if part.has_blocks:
                    left.append(part)
    return False


def _lines_of(cell: _Element) -> Iterator[_Element]:
    """Each block of a cell that has no blocks, and what is between them."""
    left: list[list[str | _Element]] = list(reversed(list(_runs(cell.parts))))
    while left:
        run = left.pop()
        one = run[0]
        if isinstance(one, _Element) and one.has_blocks:
            left += reversed(list(_runs(one.parts)))
        elif isinstance(one, _Element) and one.tag in _BLOCKS:
            yield one
        else:
            line = _Element("p", None)
            line.parts = run
            yield line
