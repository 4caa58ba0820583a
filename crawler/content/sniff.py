"""Whether a body is HTML, and in which encoding. Pure.

HTML: by the media type, and by the first bytes where there is no type or it is obviously wrong. Follows the WHATWG
MIME Sniffing Standard where it matters to a crawler; text/plain is never taken for HTML.

Encoding: byte-order mark, then header, then meta, then the bytes themselves. Labels are those of the WHATWG Encoding
Standard, results are names of Python codecs. UTF-7 and others that the standard does not name are never used, whatever
a page declares: they can hide markup.
"""

import codecs

HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))

_XML_TYPES = frozenset(("application/xml", "text/xml"))
_SILENT_TYPES = frozenset(("", "*/*", "unknown/unknown", "application/unknown"))
_SNIFFED_BYTES = 512
_BINARY = (b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b\x08", b"Rar!", b"RIFF", b"OggS")
_HTML_BLANKS = b"\t\n\f\r \0"
_HTML_NAMES = b"!doctype html,html,head,script,iframe,h1,div,font,table,a,style,title,b,body,br,p,link,meta,!--"
_HTML_STARTS = tuple(b"<%b" % name for name in _HTML_NAMES.split(b","))
_AFTERS = frozenset((b"\t", b"\n", b"\v", b"\f", b"\r", b" ", b">", b"/", b"-"))
_XHTML_NAMESPACE = b"http://www.w3.org/1999/xhtml"


def media_type(content_type: str) -> str:
    """Type and subtype of a Content-Type header in lower case; "" when absent."""
    return content_type.partition(";")[0].strip().lower()


def is_html(content_type: str, body: bytes) -> bool:
    """True when `body` is to be parsed as HTML."""
    kind = media_type(content_type)
    if kind in HTML_TYPES:
        return not body.startswith(_BINARY)
    head = body[:_SNIFFED_BYTES]
    if kind in _SILENT_TYPES:
        return _begins_as_html(_ascii_view(head).lower())
    return kind in _XML_TYPES and _XHTML_NAMESPACE in head


def _begins_as_html(head: bytes) -> bool:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(_HTML_BLANKS)
    if head.startswith(b"<?xml"):
        head = head.partition(b">")[2].lstrip(_HTML_BLANKS)
    return any(head.startswith(start) and head[len(start) : len(start) + 1] in _AFTERS for start in _HTML_STARTS)


def _ascii_view(head: bytes) -> bytes:
    """UTF-16 with a byte-order mark as ASCII: enough to see a tag."""
    return head[2:].replace(b"\0", b"") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else head


_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
_META_BYTES = 1024  # where the HTML standard stops looking
_SAMPLE_BYTES = 4096  # detection costs about 0.3 ms per KiB
_HEADER_CHARS = 1024  # of Content-Type: nobody needs more, and the search below takes quadratic time
_BLANKS = " \t\n\r\f\v"
_AFTER_VALUE = frozenset(_BLANKS + "\"';,/>")
_FALLBACK = "cp1252"  # as browsers do for Western pages without a declaration

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
    "gb18030": "gb18030 gbk gb2312 gb_2312 gb_2312-80 chinese csgb2312 csiso58gb231280 iso-ir-58 x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "euc-jp x-euc-jp cseucpkdfmtjapanese",
    "iso2022_jp": "iso-2022-jp csiso2022jp",
    "cp932": "shift_jis shift-jis sjis ms932 ms_kanji windows-31j x-sjis csshiftjis",
    "cp949": "euc-kr cseuckr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949 iso-ir-149",
    "utf-16-be": "utf-16be unicodefffe",
    "utf-16-le": "utf-16le utf-16 unicode ucs-2 iso-10646-ucs-2 csunicode unicodefeff",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}


def detect_charset(body: bytes, content_type_header: str) -> str:
    """Name of the Python codec for `body`; always "utf-8" for UTF-8."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return codec
    codec_name = _CODECS.get(_value_of("charset", content_type_header[:_HEADER_CHARS].lower()))
    return codec_name or _from_meta(body[:_META_BYTES]) or _from_bytes(body)


def decode(body: bytes, charset: str) -> str:
    """Text of a body, without its byte-order mark; bytes that can't be decoded become U+FFFD."""
    text = codecs.decode(body, charset, "replace")
    return text.removeprefix("\ufeff")


def _from_meta(head: bytes) -> str | None:
    text = head.decode("latin-1").lower()
    metas = (_value_of("charset", part.partition(">")[0]) for part in text.split("<meta")[1:])
    label = next(filter(None, metas), "")
    if not label:
        declaration = text.lstrip(_BLANKS)
        label = _value_of("encoding", declaration.partition(">")[0]) if declaration.startswith("<?xml") else ""
    codec = _CODECS.get(label)
    # A meta element that is readable as ASCII proves that the page is not UTF-16.
    return "utf-8" if codec in ("utf-16-le", "utf-16-be") else codec


def _value_of(name: str, text: str) -> str:
    """The first non-empty value after `name=`, without quotes; "" when there is none."""
    for part in text.split(name)[1:]:
        rest = part.lstrip(_BLANKS)
        if rest.startswith("="):
            value = rest[1:].lstrip(_BLANKS)
            value = value[1:].lstrip(_BLANKS) if value[:1] in ("'", '"') else value
            end = next((at for at, character in enumerate(value) if character in _AFTER_VALUE), len(value))
            if end:
                return value[:end]
    return ""


def _from_bytes(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end >= len(body) - 3 and error.reason == "unexpected end of data":
            return "utf-8"  # cut in the middle of a character
        return _guess(body, error.start)
    nulls = body[:_META_BYTES].count(0)
    if nulls * 3 > len(body[:_META_BYTES]) > 1:  # UTF-16 of ASCII text is valid UTF-8 full of NULs
        return "utf-16-be" if body[0] == 0 else "utf-16-le"
    return "utf-8"


def _guess(body: bytes, first_odd: int) -> str:
    """Let charset-normalizer guess from a sample around the first byte that is not UTF-8."""
    from charset_normalizer import from_bytes

    start = max(0, first_odd - _SAMPLE_BYTES // 4)
    best = from_bytes(body[start : start + _SAMPLE_BYTES], steps=3, chunk_size=256, cp_exclusion=["utf_7"]).best()
    if best is None:
        return _FALLBACK
    name = best.encoding.replace("_", "-").lower()
    return _CODECS.get(name) or _CODECS.get(name.replace("cp", "windows-")) or _FALLBACK
