"""JSON bodies in odd encodings, and JSON-LD as sites write it."""

from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content.json_text import json_of, jsonld_of
from tests.support.growth import LINEAR_MAX, growth


def blocks(*texts: str, kind: str = "application/ld+json") -> tuple[list[dict[str, Any]], int]:
    return jsonld_of(LexborHTMLParser("".join(f"<script type='{kind}'>{text}</script>" for text in texts)))


@pytest.mark.parametrize(
    ("body", "charset", "value"),
    [
        ('{"a": "é"}'.encode(), "utf-8", {"a": "é"}),
        (b'\xef\xbb\xbf{"a": 1}', "utf-8", {"a": 1}),
        ('"é"'.encode("utf-16"), "cp1252", "é"),
        ('"é"'.encode("utf-16-le"), "cp1252", "é"),
        ('"é"'.encode("utf-32-be"), "cp1252", "é"),
        ('"é"'.encode("latin-1"), "cp1252", "é"),
        ('"é"'.encode(), "cp1252", "é"),  # whatever is declared: JSON is in UTF-8
        ('"日"'.encode("gb18030"), "gb18030", "日"),
        (b" 1 \n", "utf-8", 1),
    ],
)
def test_a_body_is_read_in_its_encoding(body: bytes, charset: str, value: Any) -> None:
    assert json_of(body, charset) == value


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is not JSON: Expecting value, line 1 column 1"),
        (b"<p>", "the body is not JSON: Expecting value, line 1 column 1"),
        (b'{"a": 1}\n{"a": 2}\n', "Extra data, line 2 column 1; of JSON Lines, parse each line of page.text"),
        (b'{"a": 1} {"a": 2}', "the body is not JSON: Extra data, line 1 column 10"),
        (b"[" * 100_000, "nested too deep"),
        (b"1" * 5000, "Exceeds the limit"),
        (b'"\xff', "Unterminated string"),
    ],
)
def test_what_is_not_json_is_one_line(body: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        json_of(body, "utf-8")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"@type": "A"}', [{"@type": "A"}]),
        ('[{"@type": "A"}, [{"@type": "B"}], 1, null]', [{"@type": "A"}, {"@type": "B"}]),
        ('{"@context": "c", "@graph": [{"@type": "A"}, {"@type": "B"}]}', [{"@type": "A"}, {"@type": "B"}]),
        ('{"@graph": {"@type": "A"}}', [{"@type": "A"}]),
        ('{"name": "x", "@graph": [{"@graph": [{"a": 1}]}, {"b": 2}]}', [{"name": "x"}, {"a": 1}, {"b": 2}]),
        ('{"parts": [{"a": 1}]}', [{"parts": [{"a": 1}]}]),
        ('\ufeff\n {"a": 1} ;\n', [{"a": 1}]),
        ('<!--\n{"a": "-->"}\n-->', [{"a": "-->"}]),
        ('//<![CDATA[\n{"a": 1}\n//]]>', [{"a": 1}]),
        ('/*<![CDATA[*/{"a": 1}/*]]>*/', [{"a": 1}]),
        ('<![CDATA[{"a": "]]>"}]]>', [{"a": "]]>"}]),
        ('{"a": "two\nlines\tand a tab"}', [{"a": "two\nlines\tand a tab"}]),
        ('{"a": [1, 2,], "b": {"c": 3, }, }', [{"a": [1, 2], "b": {"c": 3}}]),
        ('{"a": 1},', [{"a": 1}]),
        ('{"a": ",]", "b": "\\\\", "c": "\\",}",}', [{"a": ",]", "b": "\\", "c": '",}'}]),
        ('{"a": "http://x//y", /* a\n comment, */ "b": 1, // another "\n}', [{"a": "http://x//y", "b": 1}]),
        ('{"a": "/* none */", "b": "// none"}', [{"a": "/* none */", "b": "// none"}]),
        ('{"a": "&quot;&amp;"}', [{"a": "&quot;&amp;"}]),  # in a script, these are no references
        ("[]", []),
        ("", []),
        (" <!-- --> ", []),
    ],
)
def test_blocks_are_read_as_sites_write_them(text: str, found: list[dict[str, Any]]) -> None:
    assert blocks(text) == (found, 0)


@pytest.mark.parametrize(
    "text", ["{", '{"a": 1} {"b": 2}', "{a: 1}", '"text"', "1", "null", "[" * 50_000, "9" * 5000, "/*", '"']
)
def test_a_block_that_cannot_be_read_is_counted_and_the_others_are_there(text: str) -> None:
    assert blocks('{"a": 1}', text, '{"b": 2}') == ([{"a": 1}, {"b": 2}], 1)


@pytest.mark.parametrize(
    ("kind", "is_read"),
    [
        ("application/ld+json", True), ("Application/LD+JSON; charset=utf-8", True), (" application/ld+json ", True),
        ("application/json", False), ("text/javascript", False), ("application/ld+jsonx", False), ("", False),
    ],
)  # fmt: skip
def test_the_type_of_the_script_counts(kind: str, is_read: bool) -> None:
    assert blocks('{"a": 1}', kind=kind) == ([{"a": 1}] * is_read, 0)


@pytest.mark.parametrize(
    "unit", ['"', "/*", "//", ",", ", ", '\\"', '"\\', "[", "*/", "/**", "<!--", "-->", "{,}", '["a",],']
)
def test_time_is_linear_in_the_length_of_a_block(unit: str) -> None:
    def read(tree: LexborHTMLParser) -> None:
        jsonld_of(tree)

    small, large = (
        LexborHTMLParser(f"<script type=application/ld+json>x{unit * (size // len(unit))}</script>")
        for size in (20_000, 200_000)
    )
    assert growth(read, small, large) <= LINEAR_MAX
