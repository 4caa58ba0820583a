"""Encodings: mark before header before meta before the bytes, and never UTF-7."""

import codecs
import random

import pytest

from crawler.content.charset import CODECS, _attributes
from crawler.content.sniff import decode, detect_charset
from tests.support.growth import LINEAR_MAX, growth


@pytest.mark.parametrize(
    ("body", "header", "codec"),
    [
        (b"\xef\xbb\xbfx", "text/html; charset=latin1", "utf-8"),
        (b"\xff\xfex\0", "text/html; charset=utf-8", "utf-16-le"),
        (b"\xfe\xff\0x", "", "utf-16-be"),
        (b"x", "text/html; charset=ISO-8859-1", "cp1252"),
        (b"x", "text/html; Charset=\"utf-8\"", "utf-8"),
        (b"<meta charset=utf-8>\xe9", "text/html; charset=windows-1251", "cp1251"),
        (b"<meta charset=windows-1251>\xe9", "text/html; charset=unknown-8", "cp1251"),
        (b"<meta charset='koi8-r'>", "text/html", "koi8-r"),
        (b'<meta http-equiv=content-type content="text/html; charset=gb2312">', "", "gb18030"),
        (b"<meta charset=utf-8><meta charset=koi8-r>", "", "utf-8"),
        (b"<meta charset=utf-16>", "", "utf-8"),
        (b"<?xml version='1.0' encoding='iso-8859-2'?>", "", "iso8859-2"),
        (b" " * 1100 + b"<meta charset=koi8-r>", "", "koi8-r"),
        (b"<p>" + b" " * 1100 + b"<meta charset=koi8-r>", "", "utf-8"),
        (b"<title>x</title><script>" + b"'<p>'" * 300 + b"</script><meta charset=koi8-r>", "", "koi8-r"),
        (b"<script>" + b" " * 70_000 + b"</script><meta charset=koi8-r>", "", "utf-8"),
        (b"plain", "", "utf-8"),
        (b"", "", "utf-8"),
        ("é".encode()[:1] * 0 + "caf\u00e9".encode()[:-1], "", "utf-8"),
        ("<html>abc</html>".encode("utf-16-le"), "", "utf-16-le"),
        ("<html>abc</html>".encode("utf-16-be"), "", "utf-16-be"),
        (b"+ADw-script+AD4-", "text/html; charset=utf-7", "utf-8"),
        (b"<meta charset=utf-7>", "", "utf-8"),
    ],
)  # fmt: skip
def test_the_first_declaration_of_an_encoding_counts(body, header, codec):
    assert detect_charset(body, header) == codec


def test_undeclared_cyrillic_is_detected():
    text = "Привет, мир! Это проверка определения кодировки текста на странице. " * 30
    assert decode(text.encode("cp1251"), detect_charset(text.encode("cp1251"), "")) == text


def test_detection_looks_at_a_bounded_sample():
    """Without a bound, a thousand times the body takes a thousand times the time."""
    body = ("<p>été à la plage</p>" * 500_000).encode("cp1252")
    assert growth(lambda part: detect_charset(part, ""), body[:10_000], body) < LINEAR_MAX


def test_every_answer_is_a_codec_that_replaces_what_it_cannot_read():
    for codec in set(CODECS.values()):
        codecs.lookup(codec)
        assert isinstance(decode(bytes(range(256)), codec), str)
        assert "utf-7" not in codec


@pytest.mark.parametrize(
    ("header", "charset"),
    [
        ("text/html; charset=windows-1251", "cp1251"),
        ("text/html; charset = 'windows-1251'; x", "cp1251"),
        ('text/html;charset=" windows-1251 "', "cp1251"),
        ("text/html; charset=; charset=windows-1251", "cp1251"),
        ("text/html; CHARSET=Windows-1251,x", "cp1251"),
        ("text/html; charset", "utf-8"),
        ("text/html; charset=", "utf-8"),
        ("text/html; charset=" + " " * 60_000 + "windows-1251", "utf-8"),
    ],
)
def test_a_header_names_its_charset_in_any_spelling(header: str, charset: str) -> None:
    assert detect_charset(b"x", header) == charset


@pytest.mark.parametrize(
    ("head", "charset"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<META http-equiv=Content-Type content='text/html; charset=koi8-r'>", "koi8-r"),
        (b"<META http-equiv=x content='text/html; charset=koi8-r'>", "utf-8"),
        (b"<meta name=x><meta charset><meta charset='koi8-r'/>", "koi8-r"),
        (b"<metacharset=koi8-r>", "utf-8"),
        (b"<p charset=koi8-r>", "utf-8"),
        (b"<?xml version='1.0' encoding='koi8-r'?>", "koi8-r"),
        (b' <?xml encoding = "koi8-r" ?>', "utf-8"),
        (b"<meta " + b"charset = " * 100, "utf-8"),
    ],
)
def test_a_page_names_its_charset_in_any_spelling(head: bytes, charset: str) -> None:
    assert detect_charset(head, "") == charset


def test_skipped_attributes_end_where_read_ones_do() -> None:
    rng, parts = random.Random(41), (b'"', b"'", b"=", b" ", b">", b"/", b"a", b"b=c", b'd="e"', b"\n", b"<")
    for _ in range(20_000):
        data = b"".join(rng.choices(parts, k=rng.randrange(14)))
        assert _attributes(data, 0, are_wanted=False)[1] == _attributes(data, 0, are_wanted=True)[1], data
