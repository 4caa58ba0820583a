"""What requests carry: what people may give, how it is told apart, and what a redirect takes along."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.codec import as_new, make_stamp, member_of, pack_request, parts_of, read_stamp
from crawler.model import Request
from crawler.rules.places import Fingerprints
from crawler.rules.requests import (
    BODY_BYTES_MAX,
    META_BYTES_MAX,
    becomes_get,
    redirected,
    request_of,
    takes_body_away,
    with_fields,
)

HERE, THERE = "https://a.test/form", "https://b.test/form"
URL = "https://shop.test/search"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
requests = st.builds(
    Request,
    method=st.sampled_from(("GET", "POST", "PUT")),
    headers=st.dictionaries(st.sampled_from(("X-One", "Accept")), texts, max_size=2),
    body=st.binary(max_size=40),
    meta=st.dictionaries(texts, st.one_of(texts, st.integers(-(2**53), 2**53), st.booleans(), st.none()), max_size=3),
    key=texts,
    session=st.sampled_from(("", "two")),
    is_sent=st.booleans(),
)


def test_a_plain_get_carries_nothing() -> None:
    assert request_of() is None
    assert request_of(method="get", headers={}, meta={}, form=None) is None


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ({"form": {"q": "tea & ä", "n": [1, 2], "out": None}}, ("POST", b"q=tea+%26+%C3%A4&n=1&n=2", FORM)),
        ({"form": {}}, ("POST", b"", FORM)),
        ({"json": {"q": ["ä"]}}, ("POST", '{"q":["ä"]}'.encode(), {"Content-Type": "application/json"})),
        ({"json": 0}, ("POST", b"0", {"Content-Type": "application/json"})),
        ({"body": "ä", "method": "put"}, ("PUT", "ä".encode(), {})),
        ({"body": b""}, ("POST", b"", {})),
        ({"json": [], "headers": {"content-type": "x/y"}}, ("POST", b"[]", {"content-type": "x/y"})),
        ({"method": "DELETE"}, ("DELETE", b"", {})),
    ],
)
def test_the_body_decides_the_method(given_: dict[str, Any], wanted: tuple[str, bytes, dict[str, str]]) -> None:
    found = request_of(**given_)
    assert found is not None
    assert (found.method, found.body, found.headers) == wanted


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"method": "GET", "body": b"x"}, "a GET request has no body"),
        ({"method": "CONNECT"}, "method='CONNECT'"),
        ({"method": "GE T"}, "method='GE T'"),
        ({"body": b"x", "json": 1}, "give one of"),
        ({"body": b"x" * (BODY_BYTES_MAX + 1)}, "the body has 65,537 bytes"),
        ({"meta": {"x": "y" * META_BYTES_MAX}}, "meta has 4,104 bytes"),
        ({"meta": {"x": object()}}, "meta can't be written as JSON"),
        ({"meta": {"x": "\ud800"}}, "meta can't be written as JSON"),
        ({"meta": {"x": [[]] * 2} | {"deep": eval("[" * 70 + "]" * 70)}}, "meta is nested more than 64 deep"),
        ({"headers": {"Authorization": "Bearer x"}}, "would be stored in the clear"),
        ({"headers": {"cookie": "a=b"}}, "would be stored in the clear"),
        ({"headers": {"Host": "a.test"}}, "the header Host can't be set: it comes from the URL"),
        ({"headers": {"X": "a\r\nY: b"}}, "has characters that can't be sent"),
        ({"headers": {"X": "→"}}, "has characters that can't be sent"),
        ({"headers": {"X Y": "a"}}, "can't be the name of a header"),
        ({"headers": {f"X-{n}": "y" * 100 for n in range(90)}}, "headers of more than 8,192 bytes"),
        ({"key": "k" * 201}, "key has 201 characters"),
        ({"session": "a/b"}, "session='a/b'"),
    ],
)
def test_what_can_not_be_sent_or_stored_is_refused(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        request_of(**given_)


@pytest.mark.parametrize(
    "given_",
    [{"meta": []}, {"meta": ["x"]}, {"headers": [("a", "b")]}, {"headers": {"a": 1}}, {"form": "a=b"}, {"body": 1},
     {"key": 1}, {"method": 1, "body": b""}, {"session": None}],
)  # fmt: skip
def test_wrong_types_are_told(given_: dict[str, Any]) -> None:
    if given_ == {"meta": []}:
        assert request_of(**given_) is None
        return
    with pytest.raises(TypeError):
        request_of(**given_)


def test_meta_arrives_as_json_makes_of_it() -> None:
    found = request_of(meta={"pair": (1, 2), 3: "three"})
    assert found is not None
    assert found.meta == {"pair": [1, 2], "3": "three"}


def test_requests_are_told_apart_by_method_body_session_and_key_alone() -> None:
    prints = Fingerprints(b"k" * 16)
    same = [None, Request(), Request(meta={"a": 1}), Request(headers={"X": "y"}), Request(is_sent=True)]
    assert {prints.of(URL, one) for one in same} == {prints.of(URL)}
    body = Request(method="POST", body=b"q=1")
    others = [
        Request(method="POST"), Request(method="PUT"), body, Request(method="POST", body=b"q=2"),
        Request(method="POST", key="q=1"), Request(key="q=1"), Request(session="one"), Request(session="two"),
        Request(key="one"), Request(session="one", key="one"),
    ]  # fmt: skip
    assert len({prints.of(URL, one) for one in (None, *others)}) == len(others) + 1
    assert prints.of(URL, body.without_body()) == prints.of(URL, body)
    assert body.without_body().without_body() == body.without_body()


@given(requests)
def test_what_it_carries_survives_the_queue(request: Request) -> None:
    stamp = make_stamp(1_790_000_000, 7, "list") + '"' + pack_request(request)
    for queue, url in (("shop.test", URL), ("other.test", "https://odd.shop.test:81/x")):
        member, origin = member_of(url, queue, stamp)
        found, read = parts_of(("" if not origin else "%") + member, queue, origin)
        assert found == url
        known = read_stamp(read, 1_790_000_100.0)
        assert (known.request, known.label, known.seed_number) == (request, "list", 7)
    assert not {"/", " "} & set(pack_request(request))
    assert (as_new(request) or Request()).is_sent is False


def test_a_redirect_takes_along_what_it_may() -> None:
    post = Request(
        method="POST", body=b"q=1", headers=FORM | {"X-App": "1"}, meta={"n": 1}, key="k", session="s",
        is_repeatable=True, is_secret=True,
    )  # fmt: skip
    for status in (301, 302, 303):
        for target, headers in ((HERE, {"X-App": "1"}), (THERE, {})):
            wanted = Request(headers=headers, meta={"n": 1}, key="k", session="s")
            assert redirected(post, status, HERE, target) == wanted
    for status in (307, 308):
        assert redirected(post, status, HERE, HERE) == post
    assert redirected(Request(method="POST", body=b"q", is_sent=True), 307, HERE, HERE) == Request(
        method="POST", body=b"q"
    )
    anywhere = Request(method="POST", body=b"q=1", headers=FORM, goes_anywhere=True)
    assert redirected(anywhere, 308, HERE, THERE) == anywhere
    assert redirected(Request(headers={"X": "y"}), 302, HERE, THERE) is None
    assert redirected(None, 307, HERE, THERE) is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
def test_which_methods_become_get(status: int, method: str) -> None:
    """As in the standard of fetching (4.4, step 12)."""
    wanted = (status in (301, 302) and method == "POST") or (status == 303 and method not in ("GET", "HEAD"))
    assert becomes_get(method, status) == wanted


def test_a_body_goes_to_no_other_origin_unasked() -> None:
    post = Request(method="POST", body=b"q=1")
    assert takes_body_away(post, 307, HERE, THERE)
    assert takes_body_away(post.without_body(), 308, HERE, HERE.replace("https", "http"))
    assert takes_body_away(Request(method="PUT", body=b"x"), 302, HERE, THERE)
    for status, target in ((307, HERE), (303, THERE), (302, THERE)):
        assert not takes_body_away(post, status, HERE, target)
    assert not takes_body_away(Request(method="POST", body=b"x", goes_anywhere=True), 307, HERE, THERE)
    assert not takes_body_away(Request(method="POST"), 307, HERE, THERE)
    assert not takes_body_away(None, 307, HERE, THERE)


def test_fields_of_a_form_by_get_replace_the_query() -> None:
    assert with_fields("https://a.test/s?old=1", "q=tea") == "https://a.test/s?q=tea"
    assert with_fields("https://a.test/s?old=1", "") == "https://a.test/s"
