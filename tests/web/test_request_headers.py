"""What [[sites]] add to requests goes to the URLs that fit and to no others, and secrets stay out of what is kept."""

import base64

import pytest
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.settings import ArchiveSettings, FromEnvironment, SiteSettings
from crawler.web.fetcher import SiteHeaders
from tests.support.hostile_server import HostileServer
from tests.web.fetching import HELLO, fetching, response_of

HOST = "127.0.0.1"
LOGIN = b"Authorization: Basic " + base64.b64encode("ü:p:w".encode())


def lines_of(head: bytes) -> list[bytes]:
    return head.split(b"\r\n")


async def test_headers_cookies_and_a_login_go_to_the_urls_that_fit() -> None:
    sites = (
        SiteSettings(
            match=f"http://{HOST}/shop/*", auth="ü:p:w", headers={"X-A": "1", "user-agent": "me"}, cookies={"a": "b"}
        ),
        SiteSettings(match=f"http://{HOST}", headers={"x-a": "2", "X-B": "3"}, cookies={"a": "c", "d": "e"}),
        SiteSettings(match="other.test", headers={"X-Other": "no"}),
    )
    async with HostileServer(HELLO) as server, fetching(sites=sites) as fetcher:
        await fetcher.fetch(server.url + "shop/1")
        await fetcher.fetch(server.url + "robots.txt")
        shop, robots = map(lines_of, server.requests)
    assert {b"X-A: 1", b"X-B: 3", LOGIN, b"Cookie: a=b; d=e"} <= set(shop)
    assert b"user-agent: me" in shop
    assert not any(line.startswith(b"User-Agent") for line in shop)
    assert {b"x-a: 2", b"X-B: 3", b"Cookie: a=c; d=e"} <= set(robots)
    assert not any(line.lower().startswith((b"authorization", b"x-other")) for line in robots)


async def test_a_cookie_from_the_site_wins_over_those_of_the_settings() -> None:
    sites = (SiteSettings(match=f"http://{HOST}", cookies={"a": "file", "b": "file"}),)
    async with HostileServer(HELLO) as server, fetching(sites=sites) as fetcher:
        await fetcher.fetch(server.url, cookies={"a": "site", "c": "site"}.items())
        assert b"Cookie: b=file; a=site; c=site" in lines_of(server.requests[0])


async def test_secrets_are_sent_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "hush-key")
    sites = (
        SiteSettings(
            match=f"http://{HOST}", auth="me:hush-word", cookies={"s": "hush-cookie"},
            headers={"X-Key": FromEnvironment(env="A_KEY"), "X-Plain": "plain", "Proxy-Authorization": "hush"},
        ),
    )  # fmt: skip
    secrets = (b"hush", base64.b64encode(b"me:hush-word"))
    async with HostileServer(HELLO) as server:
        async with fetching(sites=sites) as fetcher:
            kept = response_of(await fetcher.fetch(server.url)).request_head
        async with fetching(sites=sites, archive=ArchiveSettings(request_secrets=True)) as fetcher:
            assert response_of(await fetcher.fetch(server.url)).request_head == server.requests[1]
        sent = server.requests[0]
    assert all(secret in sent for secret in (*secrets, b"hush-key", b"hush-cookie"))
    assert not any(secret in kept for secret in secrets)
    for name in (b"Authorization", b"Cookie", b"X-Key", b"Proxy-Authorization"):
        assert name + b": (not archived)" in lines_of(kept)
    assert b"X-Plain: plain" in lines_of(kept)


async def test_a_url_that_matches_no_table_is_fetched_without_additions() -> None:
    async with HostileServer(HELLO) as server:
        for sites in ((SiteSettings(match=f"{HOST}/x", headers={"X-A": "1"}),), ()):
            async with fetching(sites=sites) as fetcher:
                await fetcher.fetch(server.url)
        assert server.requests[0] == server.requests[1]


SECRETS = SiteSettings(
    match="a.test", auth="u:p", cookies={"s": "hush"},
    headers={"X-Plain": "1", "Proxy-Authorization": "hush", "X-Key": FromEnvironment(env="A")},
)  # fmt: skip


@pytest.mark.parametrize(
    ("match", "url", "is_sent"),
    [
        ("a.test", "http://a.test/", False),
        ("a.test:8080", "http://a.test:8080/", False),
        ("a.test/x/*", "http://a.test/x/1", False),
        ("a.test", "https://a.test/", True),
        ("https://a.test", "https://a.test/", True),
        ("http://a.test", "http://a.test/", True),
        ("HTTP://a.test", "http://a.test/", True),
    ],
)
def test_secrets_go_over_http_only_where_the_pattern_names_it(match: str, url: str, is_sent: bool) -> None:
    sites = SiteHeaders.of((replace(SECRETS, match=match),), {"A": "hush"})
    assert sites is not None
    found = sites.additions(url)
    assert found is not None
    secret = {"authorization", "proxy-authorization", "x-key"}
    assert set(found.headers) == ({"x-plain"} | secret if is_sent else {"x-plain"})
    assert found.cookies == ({"s": "hush"} if is_sent else {})


def test_the_scheme_decides_for_each_url_whatever_came_before() -> None:
    sites = SiteHeaders.of((SECRETS,), {"A": "hush"})
    assert sites is not None
    for url, is_sent in (("https://a.test/", True), ("http://a.test/", False), ("https://a.test/", True)):
        found = sites.additions(url)
        assert found is not None
        assert ("authorization" in found.headers) is is_sent


def test_a_table_whose_secret_is_not_sent_hides_none_of_a_later_one() -> None:
    sites = SiteHeaders.of((SECRETS, SiteSettings(match="http://a.test", auth="other:pw")), {"A": "hush"})
    assert sites is not None
    found = sites.additions("http://a.test/")
    assert found is not None
    assert found.headers["authorization"][1] == "Basic " + base64.b64encode(b"other:pw").decode()


BAD = [
    ({"headers": {"X": FromEnvironment(env="GONE")}}, {}, "sites[0].headers.X: the environment has no variable GONE"),
    ({"auth": FromEnvironment(env="A")}, {"A": "hush"}, "sites[0].auth: the value of A is not of the form"),
    (
        {"cookies": {"a": FromEnvironment(env="A")}},
        {"A": "hush;"},
        "sites[0].cookies.a: the value of A has a semicolon",
    ),
    ({"headers": {"X": FromEnvironment(env="A")}}, {"A": "hush\r\nY: 1"}, "is not printable ASCII"),
]


@pytest.mark.parametrize(("table", "environment", "said"), BAD)
def test_a_value_that_can_not_be_had_is_one_line_without_it(
    table: dict[str, object], environment: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        SiteHeaders.of((SiteSettings(match="a.test", **table),), environment)  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)
