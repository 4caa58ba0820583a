"""Forms as browsers send them: which fields, in which order, and how they are encoded."""

from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content.forms import FIELDS_MAX, Submission, filled, form_at

URL = "https://shop.test/a/page?old=1"


def sent(html: str, values: dict[str, Any] | None = None, *, selector: str = "", **more: str) -> Submission:
    tree = LexborHTMLParser(html)
    return filled(tree, form_at(tree, selector), values or {}, url=URL, base=URL, **more)


def query(html: str, values: dict[str, Any] | None = None, *, button: str = "") -> str:
    return sent(f"<form>{html}</form>", values, button=button).url.partition("?")[2]


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<input name=a value=1><input name=a value=2>", "a=1&a=2"),
        ("<input value=1><input name='' value=2>", ""),
        ("<input name=a>", "a="),
        ("<input name=a value='x &amp; ä~*-._'>", "a=x+%26+%C3%A4%7E*-._"),
        ("<input name=a type=hidden value=1><input name=b type=password value=2>", "a=1&b=2"),
        (
            "<input name=a type=checkbox><input name=b type=checkbox checked><input name=c type=radio checked value=1>",
            "b=on&c=1",
        ),
        ("<input name=a type=checkbox checked value=''>", "a="),
        ("<input name=a disabled value=1><textarea name=b disabled>x</textarea>", ""),
        ("<fieldset disabled><legend><input name=a value=1></legend><input name=b value=2></fieldset>", "a=1"),
        ("<fieldset disabled><div><legend><input name=a value=1></legend></div></fieldset>", ""),
        ("<fieldset disabled><legend></legend><legend><input name=a value=1></legend></fieldset>", ""),
        ("<fieldset><input name=a value=1></fieldset>", "a=1"),
        ("<datalist><input name=a value=1></datalist>", ""),
        ("<select name=s><option value=1>one<option>two words </select>", "s=1"),
        ("<select name=s><option value=1>one<option selected> two   words </select>", "s=two+words"),
        ("<select name=s><option disabled value=1>one<option value=2>two</select>", "s=2"),
        ("<select name=s multiple><option value=1>one<option value=2>two</select>", ""),
        ("<select name=s multiple><option selected value=1>one<option selected value=2>two</select>", "s=1&s=2"),
        ("<select name=s><optgroup disabled><option value=1>one</optgroup><option value=2>two</select>", "s=2"),
        ("<textarea name=t>\none\ntwo</textarea>", "t=one%0D%0Atwo"),
        ("<button name=b value=1>go</button><input type=submit name=c value=2><input type=image name=d>", ""),
        ("<input type=reset name=r value=1><input type=button name=s value=2>", ""),
        ("<input type=hidden name=_charset_>", "_charset_=UTF-8"),
        ("<input type=file name=f>", "f="),
        ("<table><tr><td><input name=a value=1></table>", "a=1"),
        ("<input name=a value='1\n2'>", "a=12"),
    ],
)
def test_fields_are_sent_as_the_page_made_them(html: str, wanted: str) -> None:
    assert query(html) == wanted


@pytest.mark.parametrize(
    ("html", "values", "wanted"),
    [
        ("<input name=a value=1><input name=b value=2>", {"a": "x"}, "a=x&b=2"),
        ("<input name=a value=1><input name=b value=2>", {"a": None}, "b=2"),
        ("<input name=a><input name=b><input name=a>", {"a": ["1", "2", "3"]}, "a=1&a=2&a=3&b="),
        ("<input name=a type=checkbox value=y>", {"a": True}, "a=y"),
        ("<input name=a type=checkbox checked value=y>", {"a": False}, ""),
        ("<input name=a type=radio value=1 checked><input name=a type=radio value=2>", {"a": "2"}, "a=2"),
        ("<select name=s><option value=1><option value=2></select>", {"s": 2}, "s=2"),
        ("<select name=s multiple><option value=1><option value=2></select>", {"s": [1, 2]}, "s=1&s=2"),
        ("<input name=a disabled>", {"a": "x"}, "a=x"),
        ("<textarea name=t></textarea>", {"t": "a\nb"}, "t=a%0D%0Ab"),
    ],
)
def test_values_are_put_into_the_fields(html: str, values: dict[str, Any], wanted: str) -> None:
    assert query(html, values) == wanted


@pytest.mark.parametrize(
    ("button", "wanted"),
    [("go", "a=1&go=yes"), ("second", "a=1&x=2"), ("map", "a=1&map.x=0&map.y=0")],
)
def test_a_button_is_sent_when_it_is_named(button: str, wanted: str) -> None:
    html = (
        "<input name=a value=1><button name=go value=yes></button><input type=submit id=second name=x value=2>"
        "<input type=image name=map>"
    )
    assert query(html, button=button) == wanted


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ("", "https://shop.test/a/page?a=1"),
        ("action=''", "https://shop.test/a/page?a=1"),
        ("action='next?x=9#f'", "https://shop.test/a/next?a=1"),
        ("action='//other.test/x' method=get", "https://other.test/x?a=1"),
        ("method=nonsense", "https://shop.test/a/page?a=1"),
    ],
)
def test_where_a_form_leads(attributes: str, wanted: str) -> None:
    assert sent(f"<form {attributes}><input name=a value=1></form>") == Submission("GET", wanted, None, "")


def test_a_form_is_posted_in_three_encodings() -> None:
    field = "<input type=hidden name='a \"b' value='x\ny'><button name=go value=1 formaction=/other formmethod=get>"
    plain = sent(f"<form method=post enctype=text/plain action=/x>{field}</form>")
    assert (plain.method, plain.url, plain.body) == ("POST", "https://shop.test/x", b'a "b=x\r\ny\r\n')
    usual = sent(f"<form method=POST action=/x>{field}</form>")
    assert (usual.body, usual.content_type) == (b"a+%22b=x%0D%0Ay", "application/x-www-form-urlencoded")
    parts = sent(f"<form method=post enctype=multipart/form-data>{field}</form>")
    assert parts == sent(f"<form method=post enctype=multipart/form-data>{field}</form>")
    boundary = parts.content_type.partition("boundary=")[2]
    assert parts.body == (
        f'--{boundary}\r\nContent-Disposition: form-data; name="a %22b"\r\n\r\nx\r\ny\r\n--{boundary}--\r\n'.encode()
    )
    pressed = sent(f"<form method=post action=/x>{field}</form>", button="go")
    assert (pressed.method, pressed.url) == ("GET", "https://shop.test/other?a+%22b=x%0D%0Ay&go=1")


def test_fields_elsewhere_belong_to_the_form_that_they_name() -> None:
    inside = "<input name=in value=2><input form=g name=no>"
    html = f"<input form=f name=out value=1><form id=f>{inside}</form><form id=g></form>"
    assert sent(html, selector="#f").url.endswith("?out=1&in=2")
    assert sent(html, selector="#g").url.endswith("?no=")


def test_text_is_sent_in_the_encoding_of_the_page() -> None:
    html = "<form><input name=a value='ä→'></form>"
    assert sent(html, charset="cp1252").url.endswith("?a=%E4%26%238594%3B")
    assert sent("<form accept-charset='utf-8'><input name=a value=ä></form>", charset="cp1252").url.endswith(
        "?a=%C3%A4"
    )


@pytest.mark.parametrize(
    ("html", "values", "button", "said"),
    [
        ("<p>", {}, "", "the page has no form"),
        (
            "<form id=a></form><form action=/x></form>",
            {},
            "",
            r"the page has 2 forms: name one with a selector \(form\[id='a'\], form\[action='/x'\]\)",
        ),
        ("<form><input name=user></form>", {"usr": "x"}, "", r"the form has no field 'usr' \(there are: user\)"),
        ("<form><button name=go></button></form>", {}, "went", r"no button 'went' \(there are: go\)"),
        ("<form><select name=s><option>a</select></form>", {"s": "b"}, "", r"has no choice 'b' \(there are: a\)"),
        ("<form method=dialog></form>", {}, "", "the form sends nothing"),
        ("<form action='javascript:x()'></form>", {}, "", "the form sends nothing"),
    ],
)
def test_what_can_not_be_sent_is_told(html: str, values: dict[str, Any], button: str, said: str) -> None:
    with pytest.raises((LookupError, ValueError), match=said):
        sent(html, values, button=button)


def test_a_form_of_a_hundred_thousand_fields_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{FIELDS_MAX:,} can be sent"):
        sent(f"<form>{'<input name=a>' * 100_000}</form>")


def test_a_selector_may_name_what_is_in_the_form() -> None:
    assert sent("<form></form><form><input id=x name=a value=1></form>", selector="#x").url.endswith("?a=1")
    with pytest.raises(LookupError, match="no form fits 'p'"):
        sent("<p></p><form></form>", selector="p")
