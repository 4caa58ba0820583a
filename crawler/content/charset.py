"""Encodings of the web (WHATWG Encoding, HTML 13.2.3): labels, what a page declares, and queries in its encoding. Pure.

Results are names of Python codecs. UTF-7 and others that the standard does not name are never used, whatever a page
declares: they can hide markup.

A page declares its encoding in a meta element, before anything else that could be one: comments, other elements,
attributes and unfinished tags are skipped as the standard's prescan skips them, in the first 1,024 bytes. Behind them
browsers look on as long as only elements of a head come, and so do we: inline scripts and styles are often longer.

The query of a link is sent in the encoding of its page. What the encoding lacks is sent as a numeric character
reference. Python's codecs for East Asian encodings have other tables than the standard; where they differ, the tables
here are made from decoding, as the standard's are.
"""

import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache

PRESCAN_BYTES = 1024  # where the prescan of the HTML standard stops
HEAD_BYTES = 64 * 1024  # how far a head is looked at

_LABELS = {
    "utf-8": "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "cp866": "ibm866 866 cp866 csibm866",
    "iso8859-2": "iso-8859-2 iso8859-2 iso88592 latin2 l2 iso_8859-2 csisolatin2",
    "iso8859-3": "iso-8859-3 iso8859-3 iso88593 latin3 l3 iso_8859-3 csisolatin3",
    "iso8859-4": "iso-8859-4 iso8859-4 iso88594 latin4 l4 iso_8859-4 csisolatin4",
    "iso8859-5": "iso-8859-5 iso8859-5 iso88595 iso_8859-5 cyrillic csisolatincyrillic",
    "iso8859-6": "iso-8859-6 iso8859-6 iso88596 iso_8859-6 arabic csisolatinarabic asmo-708 ecma-114",
    "iso8859-7": "iso-8859-7 iso8859-7 iso88597 iso_8859-7 greek greek8 csisolatingreek elot_928 ecma-118",
    "iso8859-8": "iso-8859-8 iso8859-8 iso88598 iso_8859-8 hebrew csisolatinhebrew visual iso-8859-8-i logical",
    "iso8859-10": "iso-8859-10 iso8859-10 iso885910 latin6 l6 csisolatin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9 csisolatin9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi8-r koi koi8 koi8_r cskoi8r",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman csmacintosh",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "windows-874 dos-874 tis-620 iso-8859-11 iso8859-11 iso885911",
    "cp1250": "windows-1250 cp1250 x-cp1250",
    "cp1251": "windows-1251 cp1251 x-cp1251",
    "cp1252": "windows-1252 cp1252 x-cp1252 ascii us-ascii ansi_x3.4-1968 iso-8859-1 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 latin1 l1 cp819 ibm819 iso-ir-100 csisolatin1",
    "cp1253": "windows-1253 cp1253 x-cp1253",
    "cp1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 latin5 l5 csisolatin5",
    "cp1255": "windows-1255 cp1255 x-cp1255",
    "cp1256": "windows-1256 cp1256 x-cp1256",
    "cp1257": "windows-1257 cp1257 x-cp1257",
    "cp1258": "windows-1258 cp1258 x-cp1258",
    "gb18030": "gbk gb2312 gb_2312 gb_2312-80 chinese csgb2312 csiso58gb231280 iso-ir-58 x-gbk",
    "gb18030-2000": "gb18030",  # the same codec by another name: GBK is written in two bytes at most
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "euc-jp x-euc-jp cseucpkdfmtjapanese",
    "iso2022_jp": "iso-2022-jp csiso2022jp",
    "cp932": "shift_jis shift-jis sjis ms932 ms_kanji windows-31j x-sjis csshiftjis",
    "cp949": "euc-kr cseuckr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949 iso-ir-149",
    "utf-16-be": "utf-16be unicodefffe",
    "utf-16-le": "utf-16le utf-16 unicode ucs-2 iso-10646-ucs-2 csunicode unicodefeff",
}
CODECS: Mapping[str, str] = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}

_BLANKS = "\t\n\f\r "
_BLANK = rb"[\t\n\f\r ]"
_TAG = re.compile(rb"<(/?)([a-z][^\t\n\f\r >]*+)")
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*+([^\t\n\f\r />][^\t\n\f\r />=]*+)"
    rb"(?:%b*+=%b*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)|(?=>)|([\"'])))?+" % (_BLANK, _BLANK)
)
# All of them, up to one in a quote that does not end. Without groups: in such a loop they can fail in Python 3.11.
_ATTRIBUTES = re.compile(
    rb"(?:[\t\n\f\r /]*+[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rb"(?:%b*+=%b*+(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+|(?=>))|(?!%b*+=%b*+[\"'])))*+"
    % (_BLANK, _BLANK, _BLANK, _BLANK)
)
# What is in them is text, in browsers. The prescan of the standard does not know that.
_RAW = ("script", "style", "title", "textarea", "iframe", "xmp", "noembed", "noframes", "plaintext")
_RAW_ENDS = {name.encode(): re.compile(rb"</%b[\t\n\f\r />]" % name.encode()) for name in _RAW}
# Text, well-formed tags that are no meta and no such elements, and doctypes: what most pages begin with, in one step.
_PASSED = re.compile(
    rb"(?:[^<]*+<(?:![a-z][^>]*+|/?+(?!(?:meta|%b)[\t\n\f\r />])[a-z][a-z0-9:-]*+"
    rb"(?:%b++[a-z][a-z0-9:_.-]*+(?:=\"[^\"]*+\"|='[^']*+'|(?!%b*+=)))*+%b*+/?+)>)*+"
    % ("|".join(_RAW).encode(), _BLANK, _BLANK, _BLANK)
)
_BEFORE_END = re.compile(rb"[\t\n\f\r /]*+>")
_OF_HEAD = frozenset((b"script", b"style", b"noscript", b"link", b"meta", b"object", b"title", b"base"))


def declared(body: bytes) -> str | None:
    """The codec that the beginning of a page declares; None where it declares none that is known."""
    head = body[:PRESCAN_BYTES]
    if head.startswith((b"<\0?\0x\0", b"\0<\0?\0x")):
        return "utf-16-le" if head[0] else "utf-16-be"
    found = _prescan(head.lower()) or _of_xml(head)
    if found or len(body) <= PRESCAN_BYTES:
        return found
    return _prescan(body[:HEAD_BYTES].lower(), is_in_head=True)


def _prescan(data: bytes, *, is_in_head: bool = False) -> str | None:
    """The first declaration in lower-case `data`, wherever browsers see one: by the standard's prescan, but not in the
    text of scripts, styles and titles. `is_in_head`: up to an element that no head has.
    """
    if b"charset" in data:
        for name, found in _start_tags(data, is_in_head=is_in_head):
            if name == b"meta" and (codec := _of_meta(found)):
                return codec
    return None


def _start_tags(data: bytes, *, is_in_head: bool = False) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """Names of the start tags that are whole, and the attributes of meta elements; without plain tags at the beginning.
    `is_in_head`: all, up to a tag that no head has. What looks like one in the text of a script is none.
    """
    at = 0
    if not is_in_head and (passed := _PASSED.match(data)):
        at = passed.end()
    while (at := data.find(b"<", at)) >= 0:
        if data.startswith(b"<!--", at):
            end = data.find(b"-->", at + 2)
        elif tag := _TAG.match(data, at):
            name, is_end = tag[2].partition(b"/")[0], tag[1] == b"/"
            if is_in_head and name not in _OF_HEAD and (is_end or name not in (b"html", b"head")):
                return
            found, end = _attributes(data, tag.start(2) + len(name), are_wanted=name == b"meta")
            if end >= 0 and not is_end:
                yield name, found
                if name in _RAW_ENDS:
                    close = _RAW_ENDS[name].search(data, end)
                    if close is None:
                        return
                    end = close.start() - 1
        elif data[at + 1 : at + 2] in (b"!", b"/", b"?"):
            end = data.find(b">", at)
        else:
            end = at
        if end < 0:
            return
        at = end + 1


def _attributes(data: bytes, at: int, *, are_wanted: bool) -> tuple[dict[bytes, bytes], int]:
    """The attributes of a tag whose name ends there, and where its `>` is; -1: the data end before it."""
    found: dict[bytes, bytes] = {}
    if not are_wanted and (skipped := _ATTRIBUTES.match(data, at)):
        at = skipped.end()
    while one := _ATTRIBUTE.match(data, at):
        found.setdefault(one[1], one[2] or one[3] or one[4] or b"")
        at = one.end()
        if one[5]:
            return found, -1
    end = _BEFORE_END.match(data, at)
    return found, end.end() - 1 if end else -1


def _of_meta(attributes: Mapping[bytes, bytes]) -> str | None:
    if b"charset" in attributes:
        label = attributes[b"charset"].decode("latin-1")
    elif attributes.get(b"http-equiv") == b"content-type" and b"content" in attributes:
        label = _in_content(attributes[b"content"].decode("latin-1"))
    else:
        return None
    return _as_declared(label)


def _in_content(text: str) -> str:
    """The label in the content of a meta element, by the standard's algorithm; "" for none."""
    for named in re.finditer("charset[\t\n\f\r ]*+(=?)", text):
        if named[1]:
            value = text[named.end() :].lstrip(_BLANKS)
            if value[:1] in ("'", '"'):
                label, quote, _ = value[1:].partition(value[0])
                return label if quote else ""
            return re.split("[\t\n\f\r ;\"']", value, maxsplit=1)[0]  # at a quote, too, as browsers do
    return ""


def _of_xml(head: bytes) -> str | None:
    """The encoding of an XML declaration at the very beginning."""
    declaration, end, _ = head.partition(b">")
    rest = declaration.partition(b"encoding")[2].lstrip(bytes(range(33)))
    if not end or not declaration.startswith(b"<?xml") or not rest.startswith(b"="):
        return None
    rest = rest[1:].lstrip(bytes(range(33)))
    label, quote, _ = rest[1:].partition(rest[:1])
    if quote not in (b"'", b'"') or min(label, default=0) <= 0x20:
        return None
    return _as_declared(label.decode("latin-1").lower())


def _as_declared(label: str) -> str | None:
    codec = CODECS.get(label.strip(_BLANKS))
    if codec in ("utf-16-le", "utf-16-be"):  # what is readable as ASCII proves that the page is not UTF-16
        return "utf-8"
    return "cp1252" if label.strip(_BLANKS) == "x-user-defined" else codec


def codec_of(label: str) -> str:
    """The codec of a label, as pages declare them; "" for one that is none."""
    return _as_declared(label.lower()) or ""


def in_codec(codec: str, text: str) -> bytes:
    """Text as a form sends it: what the encoding lacks as numeric character references."""
    if is_unicode(codec) or text.isascii():
        return text.encode("utf-8", "replace")
    if codec == "iso2022_jp":
        return text.encode(codec, "xmlcharrefreplace")
    encode = _encoder(codec)
    return b"".join([c.encode() if c.isascii() else encode(c) or b"&#%d;" % ord(c) for c in text])


_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_TRIMMED = "".join(map(chr, range(0x21)))
_UNSAFE = frozenset(b"\"#'<>")  # in queries, by the URL standard, besides controls and the blank


def is_unicode(codec: str) -> bool:
    """Are queries of its pages in UTF-8?"""
    return codec in ("utf-8", "utf-16-le", "utf-16-be", "")


def with_query_in(codec: str, href: str) -> str:
    """A reference whose query, if it has one beyond ASCII, is percent-encoded as pages in this encoding send it."""
    if href.isascii() and codec != "iso2022_jp":
        return href
    path, mark, rest = href.strip(_TRIMMED).partition("?")
    if "#" in path:
        return href
    query, hash_mark, fragment = rest.partition("#")
    for ignored in "\t\n\r":  # parsers do, and trim; an encoding with states must not see them
        query = query.replace(ignored, "")
    if codec == "iso2022_jp":
        query = _in_iso_2022_jp(query)
    else:
        encoded = _encoder(codec)
        query = _BEYOND_ASCII.sub(lambda run: "".join([_escaped(encoded(c), c) for c in run[0]]), query)
    return path + mark + query + hash_mark + fragment


def form_bytes(codec: str, text: str) -> bytes:
    """Text as forms send it: what the encoding lacks becomes a numeric character reference."""
    if is_unicode(codec):
        return text.encode()
    if codec == "iso2022_jp":
        steps = _steps_in_iso_2022_jp(text)
        return b"".join([_referred(c) if step is None else step for c, step in steps])
    encoder = _encoder(codec)
    parts, at = list[bytes](), 0
    for run in _BEYOND_ASCII.finditer(text):
        parts.append(text[at : run.start()].encode())
        parts += [_referred(c) if (known := encoder(c)) is None else known for c in run[0]]
        at = run.end()
    return b"".join(parts) + text[at:].encode()


def _referred(character: str) -> bytes:
    return character.encode() if character.isascii() else b"&#%d;" % ord(character)


def name_of(codec: str) -> str:
    """The name of an encoding in the Encoding Standard, as forms send it."""
    label = "utf-8" if is_unicode(codec) else _LABELS[codec].partition(" ")[0]
    if label.startswith(("windows-", "mac", "x-mac", "gb1")):
        return label
    return {"big5": "Big5", "shift_jis": "Shift_JIS"}.get(label) or label.upper()


def _escaped(encoded: bytes | None, character: str) -> str:
    if encoded is None:
        return f"%26%23{ord(character)}%3B"
    return "".join([chr(b) if 0x20 < b < 0x7F and b not in _UNSAFE else f"%{b:02X}" for b in encoded])


@cache
def _encoder(codec: str) -> Callable[[str], bytes | None]:
    """Encodes one character; None: the encoding lacks it."""
    if codec == "cp932":
        return _shift_jis
    if codec == "euc_jp":
        return _euc_jp
    if codec == "big5hkscs":
        return _big5().get
    if codec.startswith("gb18030"):
        return _gb18030 if codec == "gb18030-2000" else _gbk
    table = {c: bytes([byte]) for byte, c in enumerate(single_byte(codec)) if c != "\ufffe"}
    return table.get if table else lambda character: _by_codec(codec, character)


def _by_codec(codec: str, character: str) -> bytes | None:
    try:
        return character.encode(codec)
    except UnicodeEncodeError:
        return None


# Encodings for which Python has other tables, and what is different in them beyond the controls of Windows.
_FIXES: Mapping[str, Mapping[int, str]] = {
    **{f"cp{n}": {} for n in (874, 1250, 1251, 1252, 1253, 1254, 1257, 1258)},
    "cp1255": {0xCA: "\u05ba"},
    "koi8-u": {0xAE: "\u045e", 0xBE: "\u040e"},
}


@cache
def single_byte(codec: str) -> str:
    """All characters of such an encoding by their bytes, U+FFFE for none; "" for any other encoding.

    Python leaves controls of Windows undefined; the web does not.
    """
    fixes = _FIXES.get(codec)
    if fixes is None:
        return ""
    text = bytes(range(256)).decode(codec, "replace")
    is_windows = codec.startswith("cp")
    text = "".join([chr(n) if c == "\ufffd" and is_windows and n < 0xA0 else c for n, c in enumerate(text)])
    return "".join([fixes.get(n, c) for n, c in enumerate(text)]).replace("\ufffd", "\ufffe")


# What Python reads in JIS X 0208, and what the standard does.
WIDE_IN_JIS = dict(zip("\u301c\u2016\u2212\u00a2\u00a3\u00ac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2", strict=True))
EAST_ASIAN = frozenset(("cp932", "euc_jp", "big5hkscs", "cp949", "gb18030", "gb18030-2000"))
AS_BROWSERS = "as browsers"  # how errors in these are handled


def _as_browsers(error: UnicodeError) -> tuple[str, int]:
    """What the standard makes of bytes that Python can't decode: one U+FFFD for a pair, unless its second is ASCII."""
    assert isinstance(error, UnicodeDecodeError)
    lead, *trail = error.object[error.start : error.start + 2]
    if lead == 0x80 and error.encoding == "gb18030":
        return "\u20ac", error.start + 1
    if lead in _NO_LEADS.get(error.encoding, b"\x80\xff") or not trail or trail[0] < 0x80:
        return "\ufffd", error.start + 1
    found = _jis_0208_by_place().get((lead - 0xA1, trail[0] - 0xA1)) if error.encoding == "euc_jp" else None
    return found or "\ufffd", error.start + 2


_NO_LEADS = {"cp932": b"\x80\xa0\xff", "euc_jp": bytes({*range(0x80, 0xA1), 0xFF} - {0x8E, 0x8F})}


codecs.register_error(AS_BROWSERS, _as_browsers)

_TRAILS = (*range(0x40, 0x7F), *range(0x80, 0xFD))


def _pairs(codec: str, leads: Iterator[int], trails: tuple[int, ...]) -> Iterator[tuple[str, bytes]]:
    """Each pair of bytes, in order, with its character; "" for none."""
    for lead in leads:
        for trail in trails:
            pair = bytes((lead, trail))
            text = pair.decode(codec, "replace")
            yield (text if len(text) == 1 and text != "\ufffd" else ""), pair


def _leads(*ranges: tuple[int, int]) -> Iterator[int]:
    return (lead for first, last in ranges for lead in range(first, last + 1))


@cache
def _shift_jis_pairs() -> Mapping[str, bytes]:
    """Without the second place of characters that NEC and IBM had chosen, and the private ones."""
    found: dict[str, bytes] = {}
    for text, pair in _pairs("cp932", _leads((0x81, 0x9F), (0xE0, 0xEC), (0xEF, 0xEF), (0xFA, 0xFC)), _TRAILS):
        if text:
            found.setdefault(text, pair)
    return found


@cache
def _jis_0208() -> Mapping[str, tuple[int, int]]:
    """Row and cell, from 0, of each character: those of Shift_JIS in rows of 94."""
    found: dict[str, tuple[int, int]] = {}
    for number, (text, _) in enumerate(_pairs("cp932", _leads((0x81, 0x9F), (0xE0, 0xEF)), _TRAILS)):
        if text:
            found.setdefault(text, divmod(number, 94))
    return found


@cache
def _jis_0208_by_place() -> Mapping[tuple[int, int], str]:
    pairs = enumerate(_pairs("cp932", _leads((0x81, 0x9F), (0xE0, 0xEF)), _TRAILS))
    return {divmod(number, 94): text for number, (text, _) in pairs if text}


_SHIFTS = "\x0e\x0f\x1b"  # would change the state: the standard sends U+FFFD in their place
_ROMAN = {"\u00a5": b"\\", "\u203e": b"~"}
_MINUS = {"\u2212": "\uff0d"}


def _shift_jis(character: str) -> bytes | None:
    if character in _ROMAN or character == "\x80":
        return _ROMAN.get(character, b"\x80")
    if "\uff61" <= character <= "\uff9f":
        return bytes([ord(character) - 0xFF61 + 0xA1])
    return _shift_jis_pairs().get(_MINUS.get(character, character))


def _euc_jp(character: str) -> bytes | None:
    if character in _ROMAN:
        return _ROMAN[character]
    if "\uff61" <= character <= "\uff9f":
        return bytes([0x8E, ord(character) - 0xFF61 + 0xA1])
    place = _jis_0208().get(_MINUS.get(character, character))
    return place and bytes([place[0] + 0xA1, place[1] + 0xA1])


def _in_iso_2022_jp(query: str) -> str:
    """A query with what is beyond ASCII escaped, and with the sequences that lead there and back."""
    steps = _steps_in_iso_2022_jp(query)
    return "".join([c if encoded is None and c.isascii() else _escaped(encoded, c) for c, encoded in steps])


def _steps_in_iso_2022_jp(text: str) -> Iterator[tuple[str, bytes | None]]:
    """Characters and their bytes; None: as it is if it is ASCII, else the encoding lacks it. "": changes the state."""
    state = b"(B"
    for character in text:
        encoded, wanted = _jis_and_state(character, state)
        if wanted != state:
            yield "", b"\x1b" + wanted
            state = wanted
        yield ("\ufffd" if character in _SHIFTS else character), encoded
    if state != b"(B":
        yield "", b"\x1b(B"


def _jis_and_state(character: str, state: bytes) -> tuple[bytes | None, bytes]:
    """A character in ISO-2022-JP, and the state that it needs: ASCII, Roman or JIS X 0208."""
    single = b"(J" if state == b"(J" else b"(B"  # what is escaped stays in Roman
    if character in _SHIFTS:
        return None, single
    if character < "\x80":
        return None, b"(B" if character in "\\~" else single
    if character in _ROMAN:
        return _ROMAN[character], b"(J"
    if "\uff61" <= character <= "\uff9f":  # the encoding has no half-width ones
        marks = {"\uff9e": "\u309b", "\uff9f": "\u309c"}
        character = marks.get(character) or unicodedata.normalize("NFKC", character)
    place = _jis_0208().get(_MINUS.get(character, character))
    return (bytes([place[0] + 0x21, place[1] + 0x21]), b"$B") if place else (None, single)


@cache
def _big5() -> Mapping[str, bytes]:
    """Without the characters of Hong Kong, which are only read. Of some that have two places, the last counts."""
    found: dict[str, bytes] = {}
    trails = (*range(0x40, 0x7F), *range(0xA1, 0xFF))
    for codec, leads in (("cp950", _leads((0xA1, 0xA3))), ("big5hkscs", _leads((0xA4, 0xFE)))):
        for text, pair in _pairs(codec, leads, trails):
            if text and (text not in found or text in "\u2550\u255e\u2561\u256a\u5341\u5345"):
                found[text] = pair
    return found | _BIG5_NEW


def _two_bytes(characters: str, pairs: str) -> dict[str, bytes]:
    packed = bytes.fromhex(pairs)
    return {character: packed[2 * n : 2 * n + 2] for n, character in enumerate(characters)}


_BIG5_NEW = {
    **{chr(0x2400 + n): bytes((0xA3, 0xC0 + n)) for n in range(32)},
    **_two_bytes(
        "\u2421\u4edd\u5605\u5ed0\u5ef4\u60a4\u65e0\u732a\u7676\u96b6",
        "a3e0 c6df fb48 fbf9 c6cf fc6c c6d3 fe52 c6d5 c6d7",
    ),
}

# Two-byte places that the standard of 2022 gave to characters that Python has in four bytes.
_GB_NEW = _two_bytes(
    "\u1e3f\u9fb4\u9fb5\u9fb6\u9fb7\u9fb8\u9fb9\u9fba\u9fbb"
    "\ufe10\ufe11\ufe12\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19",
    "a8bc fe59 fe61 fe66 fe67 fe6d fe7e fe90 fea0 a6d9 a6db a6da a6dc a6dd a6de a6df a6ec a6ed a6f3",
)


def _gb18030(character: str) -> bytes | None:
    if character in _GB_NEW:
        return _GB_NEW[character]
    if character == "\ue7c7":
        return b"\x81\x35\xf4\x37"
    return None if character == "\ue5e5" else _by_codec("gb18030", character)


def _gbk(character: str) -> bytes | None:
    found = b"\x80" if character == "\u20ac" else _gb18030(character)
    return found if found and len(found) <= 2 else None
