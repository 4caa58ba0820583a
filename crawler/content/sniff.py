"""In which encoding a body is. Pure.

Byte-order mark, then header, then what the page declares (charset.py), then the bytes themselves.
"""

import codecs

from crawler.content.charset import AS_BROWSERS, CODECS, EAST_ASIAN, WIDE_IN_JIS, declared, single_byte
from crawler.media_type import content_type_of

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
_NULLS_BYTES = 1024  # of the beginning, that are looked at
_SAMPLE_BYTES = 4096  # detection costs about 0.3 ms per KiB
_FALLBACK = "cp1252"  # as browsers do for Western pages without a declaration


def detect_charset(body: bytes, content_type_header: str) -> str:
    """Name of the Python codec for `body`; always "utf-8" for UTF-8."""
    return stated_charset(body, content_type_header) or declared(body) or _from_bytes(body)


def stated_charset(body: bytes, content_type_header: str) -> str | None:
    """The codec by a byte-order mark or the header, whatever kind of text it is; None where they state none."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return codec
    return CODECS.get(content_type_of(content_type_header).charset.lower())


def decode(body: bytes, charset: str) -> str:
    """Text of a body, without its byte-order mark; bytes that can't be decoded become U+FFFD."""
    if table := single_byte(charset):
        return codecs.charmap_decode(body, "replace", table)[0]
    text = codecs.decode(body, charset, AS_BROWSERS if charset in EAST_ASIAN else "replace")
    if charset == "cp932":  # Python reads four bytes that the standard does not have
        for private in "\uf8f0\uf8f1\uf8f2\uf8f3":
            text = text.replace(private, "\ufffd")
    elif charset in ("euc_jp", "iso2022_jp"):
        for narrow, wide in WIDE_IN_JIS.items():
            text = text.replace(narrow, wide)
    return text.removeprefix("\ufeff")


def _from_bytes(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end >= len(body) - 3 and error.reason == "unexpected end of data":
            return "utf-8"  # cut in the middle of a character
        return _guess(body, error.start)
    nulls = body[:_NULLS_BYTES].count(0)
    if nulls * 3 > len(body[:_NULLS_BYTES]) > 1:  # UTF-16 of ASCII text is valid UTF-8 full of NULs
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
    return CODECS.get(name) or CODECS.get(name.replace("cp", "windows-")) or _FALLBACK
