"""Keys of answers to other requests than GET, as pywb 2.10 makes them; and how the index finds such lines again."""

# ruff: noqa: E501 - bodies as they are sent, and their keys

from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.archive.index import key_of, pruned, surt, to_entry, to_line
from crawler.archive.index_reader import IndexReader, find_url
from crawler.archive.index_writer import IndexWriter
from crawler.archive.method_query import QUERY_MAX, body_query, url_with_method
from crawler.model import CommitEntry, Request
from tests.archive.archive_samples import entry, folder_in

# Method, Content-Type, body, URL, and the key of pywb's own code.
PYWB = [
    ("POST", "application/x-www-form-urlencoded", b"a=1", "http://a.test/s", "test,a)/s?__wb_method=post&a=1"),
    ("POST", "application/x-www-form-urlencoded", b"b=2&a=1", "http://a.test/s", "test,a)/s?__wb_method=post&a=1&b=2"),
    (
        "POST",
        "application/x-www-form-urlencoded",
        b"q=x+y%26z&0=1",
        "http://a.test/s",
        "test,a)/s?0=1&__wb_method=post&q=x%20y&z",
    ),
    (
        "POST",
        "application/x-www-form-urlencoded",
        b"q=%C3%BC%23k&z=%0Aq",
        "http://a.test/s",
        "test,a)/s?__wb_method=post&q=%c3%bc",
    ),
    (
        "POST",
        "application/x-www-form-urlencoded",
        b"\xff=1",
        "http://a.test/s",
        "test,a)/s?__wb_method=post&__wb_post_data=/z0x",
    ),
    ("POST", "application/x-www-form-urlencoded", b"a", "http://a.test/s", "test,a)/s?__wb_method=post&a"),
    ("POST", "application/x-www-form-urlencoded", b"a=%2525", "http://a.test/s", "test,a)/s?__wb_method=post&a=%25"),
    (
        "POST",
        "application/x-www-form-urlencoded",
        b"q=\xc3\xbc",
        "http://a.test/s",
        "test,a)/s?__wb_method=post&q=%c3%bc",
    ),
    ("POST", "application/x-www-form-urlencoded", b"Q=Upper", "http://a.test/s", "test,a)/s?__wb_method=post&q=upper"),
    (
        "POST",
        "application/json; charset=utf-8",
        b'{"a": 1, "b": {"c": [1, 2, {"c": null}], "d": true}, "e": 1.0, "f": 1.5, "q":"x y&z"}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&a=1&c=1&c.2_=2&c.3_=null&d=true&e=1&f=1.5&q=x+y&z",
    ),
    (
        "POST",
        "text/plain",
        b'{"a": 1, "b": {"c": [1, 2, {"c": null}], "d": true}, "e": 1.0, "f": 1.5, "q":"x y&z"}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&a=1&c=1&c.2_=2&c.3_=null&d=true&e=1&f=1.5&q=x+y&z",
    ),
    ("POST", "application/json; charset=utf-8", b"[1]", "http://a.test/s", "test,a)/s?__wb_method=post"),
    ("POST", "text/plain", b"[1]", "http://a.test/s", "test,a)/s?__wb_method=post"),
    ("POST", "application/json; charset=utf-8", b"{", "http://a.test/s", "test,a)/s?__wb_method=post"),
    ("POST", "text/plain", b"{", "http://a.test/s", "test,a)/s?__wb_method=post&__wb_post_data=ew=="),
    (
        "POST",
        "application/json; charset=utf-8",
        b'{"a":{"a":1}, "b":[3,4,5]}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&a=1&b=3&b.2_=4&b.3_=5",
    ),
    (
        "POST",
        "text/plain",
        b'{"a":{"a":1}, "b":[3,4,5]}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&a=1&b=3&b.2_=4&b.3_=5",
    ),
    ("POST", "application/json; charset=utf-8", b'"x"', "http://a.test/s", "test,a)/s?__wb_method=post"),
    ("POST", "text/plain", b'"x"', "http://a.test/s", "test,a)/s?__wb_method=post"),
    ("POST", "application/json; charset=utf-8", b"", "http://a.test/s", "test,a)/s?__wb_method=post"),
    ("POST", "text/plain", b"", "http://a.test/s", "test,a)/s?__wb_method=post"),
    (
        "POST",
        "application/json; charset=utf-8",
        b'{"k":"\\u00fc#"}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&k=%c3%bc%23",
    ),
    ("POST", "text/plain", b'{"k":"\\u00fc#"}', "http://a.test/s", "test,a)/s?__wb_method=post&k=%c3%bc%23"),
    (
        "POST",
        "application/json; charset=utf-8",
        b'{"n": 12345678901234567890, "e": 1e30}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&e=1000000000000000019884624838656&n=12345678901234567890",
    ),
    (
        "POST",
        "text/plain",
        b'{"n": 12345678901234567890, "e": 1e30}',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&e=1000000000000000019884624838656&n=12345678901234567890",
    ),
    (
        "POST",
        "text/plain",
        b"just text \xff",
        "http://a.test/s",
        "test,a)/s?__wb_method=post&__wb_post_data=anvzdcb0zxh0ip8=",
    ),
    ("POST", "", b"abc", "http://a.test/s", "test,a)/s?__wb_method=post&__wb_post_data=ywjj"),
    ("DELETE", "", b"", "http://a.test/s", "test,a)/s?__wb_method=delete"),
    ("PATCH", "application/json", b"{}", "http://a.test/s", "test,a)/s?__wb_method=patch"),
    (
        "POST",
        "multipart/form-data; boundary=XX",
        b'--XX\r\nContent-Disposition: form-data; name="up"; filename="x.bin"\r\nContent-Type: image/png\r\n\r\n\x00\xff\x01\r\n--XX\r\nContent-Disposition: form-data; name="n"\r\n\r\nv\r\nw\r\n--XX--\r\n',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&n=v%0d%0aw&up=%00%ff%01",
    ),
    (
        "POST",
        "multipart/form-data",
        b'--XX\r\nContent-Disposition: form-data; name="up"; filename="x.bin"\r\nContent-Type: image/png\r\n\r\n\x00\xff\x01\r\n--XX\r\nContent-Disposition: form-data; name="n"\r\n\r\nv\r\nw\r\n--XX--\r\n',
        "http://a.test/s",
        "test,a)/s?__wb_method=post&__wb_post_data=ls1ywa0kq29udgvudc1eaxnwb3npdglvbjogzm9ybs1kyxrhoybuyw1lpsj1cci7igzpbgvuyw1lpsj4lmjpbiincknvbnrlbnqtvhlwztogaw1hz2uvcg5ndqoncgd/aq0kls1ywa0kq29udgvudc1eaxnwb3npdglvbjogzm9ybs1kyxrhoybuyw1lpsjuig0kdqp2dqp3dqotlvhyls0ncg==",
    ),
    (
        "POST",
        "application/x-www-form-urlencoded",
        b"q=x+y%26z&0=1",
        "http://a.test/s?Zed=1&0=2",
        "test,a)/s?0=1&0=2&__wb_method=post&q=x%20y&z&zed=1",
    ),
    (
        "POST",
        "application/x-www-form-urlencoded",
        b"q=\xc3\xbc",
        "http://a.test/s?Zed=1&0=2",
        "test,a)/s?0=2&__wb_method=post&q=%c3%bc&zed=1",
    ),
    (
        "POST",
        "application/json; charset=utf-8",
        b"[1]",
        "http://a.test/s?Zed=1&0=2",
        "test,a)/s?0=2&__wb_method=post&zed=1",
    ),
    (
        "POST",
        "text/plain",
        b'{"a":{"a":1}, "b":[3,4,5]}',
        "http://a.test/s?Zed=1&0=2",
        "test,a)/s?0=2&__wb_method=post&a=1&b=3&b.2_=4&b.3_=5&zed=1",
    ),
    (
        "POST",
        "application/json; charset=utf-8",
        b'{"k":"\\u00fc#"}',
        "http://a.test/s?Zed=1&0=2",
        "test,a)/s?0=2&__wb_method=post&k=%c3%bc%23&zed=1",
    ),
    (
        "POST",
        "multipart/form-data; boundary=XX",
        b'--XX\r\nContent-Disposition: form-data; name="up"; filename="x.bin"\r\nContent-Type: image/png\r\n\r\n\x00\xff\x01\r\n--XX\r\nContent-Disposition: form-data; name="n"\r\n\r\nv\r\nw\r\n--XX--\r\n',
        "http://a.test/s?Zed=1&0=2",
        "test,a)/s?0=2&__wb_method=post&n=v%0d%0aw&up=%00%ff%01&zed=1",
    ),
]


def head_of(mime: str) -> bytes:
    line = b"Content-Type: " + mime.encode() + b"\r\n" if mime else b""
    return b"POST /s HTTP/1.1\r\nHost: a.test\r\n" + line + b"\r\n"


@pytest.mark.parametrize(("method", "mime", "body", "url", "key"), PYWB)
def test_keys_of_requests_are_those_of_pywb(method: str, mime: str, body: bytes, url: str, key: str) -> None:
    assert surt(url_with_method(url, method, body_query(method, head_of(mime), body))) == key


def test_a_long_body_is_cut_as_in_pywb() -> None:
    query = body_query("POST", head_of("application/x-www-form-urlencoded"), b"a=" + b"x" * 10_000)
    assert query == ("a=" + "x" * 10_000)[:QUERY_MAX]
    assert len(body_query("PUT", head_of("image/png"), b"\0" * (3 << 20))) == QUERY_MAX


def test_json_as_deep_as_one_likes_gives_no_error() -> None:
    assert body_query("POST", head_of("application/json"), b"[" * 100_000) == ""


def posted(number: int, query: str, **fields: str) -> CommitEntry:
    asked = Request(method="POST", body_digest=f"{number:032x}")
    return replace(entry(number), fingerprint=str(number), request=asked, request_body=query, **fields)


def test_each_answer_to_a_form_has_a_line_that_is_found_by_its_url(tmp_path: Path) -> None:
    folder, url = folder_in(tmp_path), "http://d0.test/find?b=1"
    plain = replace(entry(1), url=url, fingerprint="1")
    forms = [posted(number, f"a={number}&Z=x", url=url) for number in (2, 3)]
    other = posted(4, "a=2", url="http://d0.test/find?c=1")
    index = IndexWriter(folder, "aa11")
    for one in (plain, *forms, other):
        index.add(one)
    index.sync()
    for _ in ("open", "sealed"):
        assert {one.fingerprint for one in find_url(folder, url)} == {"1", "2", "3"}
        assert [one.fingerprint for one in find_url(folder, other.url)] == ["4"]
        index.close()
    assert {one.fingerprint for one in IndexReader(folder).entries()} == {"1", "2", "3", "4"}
    line = to_line(forms[0])
    assert line.startswith(b"test,d0)/find?__wb_method=post&a=2&b=1&z=x ")
    assert b'"requestBody":"a=2&Z=x"' in line
    assert to_entry(line) == forms[0]


def test_a_pruned_answer_keeps_its_key() -> None:
    one = posted(2, "a=1")
    assert key_of(pruned(one)) == key_of(one)
