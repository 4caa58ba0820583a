"""Settings by site: which table a URL gets a key from."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules.patterns import UrlPattern
from crawler.rules.sites import SiteRules, complaints, first_with, is_limited, of_queues, patterns_of_site
from crawler.rules.urls import canonicalize
from crawler.settings import Settings, SiteSettings, load
from crawler.settings.schema import FromEnvironment


def sites(*tables: dict[str, Any], **options: Any) -> Settings:
    return load(environment={}, options={k.replace("__", "."): v for k, v in options.items()} | {"sites": list(tables)})


def rules(settings: Settings, *keys: str) -> SiteRules:
    made = SiteRules.of(settings.sites, *keys)
    assert made is not None
    return made


def test_each_key_comes_from_the_first_table_that_fits_and_has_it() -> None:
    made = rules(
        sites(
            {"match": "*.a.test/shop/*", "priority": 5.0},
            {"match": "*.a.test", "depth_max": 2, "label": "any"},
            {"match": "*", "priority": -1.0, "depth_max": 9},
        ),
        "priority",
        "depth_max",
        "label",
    )
    found = {
        url: (made.first(url, "priority"), made.first(url, "depth_max"), made.first(url, "label"))
        for url in ("http://a.test/shop/x", "https://www.a.test/", "http://b.test/shop/x")
    }
    assert found == {
        "http://a.test/shop/x": (5.0, 2, "any"),
        "https://www.a.test/": (-1.0, 2, "any"),
        "http://b.test/shop/x": (-1.0, 9, None),
    }


def test_zero_is_a_value_and_nothing_is_none() -> None:
    made = sites({"match": "a.test", "priority": 0.0, "depth_max": 0}, {"match": "*", "priority": 1.0, "depth_max": 5})
    assert rules(made, "priority").first("http://a.test/", "priority") == 0.0
    assert rules(made, "depth_max").first("http://a.test/", "depth_max") == 0


def test_secrets_of_a_table_are_named_by_their_keys() -> None:
    headers = {"Authorization": "x", "X-Trace": "1", "X-Key": FromEnvironment(env="KEY")}
    for more, named in (({"auth": "u:p"}, ["auth"]), ({"cookies": {"a": "b"}}, ["cookies"]), ({}, [])):
        made = SiteRules.of([SiteSettings(match="a.test", headers=headers, **more)], "headers")
        assert made is not None
        assert made.tables[0].secrets == [*named, "headers.Authorization", "headers.X-Key"]


def test_where_nothing_is_said_there_is_nothing_to_look_up() -> None:
    settings = sites({"match": "a.test", "label": "x"})
    assert SiteRules.of(settings.sites, "priority", "headers") is None
    assert SiteRules.of((), "label") is None
    assert of_queues((), "delay_s")("a.test") is None


def test_a_queue_has_what_fits_its_own_name() -> None:
    of = of_queues(sites({"match": "*.a.test", "delay_s": 5}, {"match": "b.test", "delay_s": 7}).sites, "delay_s")
    assert [of(queue) for queue in ("a.test", "www.a.test", "b.test", "www.b.test")] == [5, 5, 7, None]


def test_a_limit_of_depth_for_some_urls_is_one_of_the_crawl() -> None:
    for table, limited in (({"depth_max": 0}, True), ({"depth_max": -1}, False), ({"priority": 1}, False)):
        settings = sites({"match": "a.test"} | table)
        assert is_limited(settings.scope, settings.budget, settings.sites) is limited


BAD = [
    ({"match": "/shop/*", "label": "x"}, "sites[0].match: pattern '/shop/*': expected HOST/PATH"),
    ({"match": "a.test/shop/*", "delay_s": 2}, "sites[0].delay_s applies to whole queues, whatever the path"),
    ({"match": "https://a.test", "concurrency": 2}, "sites[0].concurrency applies to whole queues"),
    ({"match": "a.test:8080", "concurrency": 2}, "with match = 'a.test'"),
    ({"match": "www.a.test", "delay_s": 2}, "set match = 'a.test', or frontier.queue_by = 'host'"),
    ({"match": "*.www.a.test", "delay_s": 2}, "set match = 'a.test'"),
    (
        {"match": "https://a.test:8443/x", "insecure_tls": True},
        "sites[0].insecure_tls applies to connections, whatever",
    ),
    ({"match": "a.test:8443/x", "insecure_tls": False}, "with match = 'a.test:8443'"),
    ({"match": "*", "auth": "u:p"}, "sites[0].auth: match = '*' would send it to every host"),
    ({"match": "*/x", "cookies": {"a": "b"}}, "sites[0].cookies: match = '*/x'"),
    ({"match": "*", "headers": {"Authorization": "Bearer x"}}, "sites[0].headers.Authorization"),
    ({"match": "*", "headers": {"X-Key": {"env": "KEY"}}}, "sites[0].headers.X-Key"),
]


@pytest.mark.parametrize(("table", "said"), BAD, ids=[str(table) for table, _ in BAD])
def test_each_mistake_is_one_line(table: dict[str, Any], said: str) -> None:
    (complaint,) = complaints(sites(table))
    assert said in complaint
    assert "\n" not in complaint


def test_valid_tables_give_no_complaint() -> None:
    fine: list[dict[str, Any]] = [
        {"match": "*.a.test", "delay_s": 2, "concurrency": 3},
        {"match": "a.test/*", "delay_s": 2},
        {"match": "*", "delay_s": 2, "headers": {"X-Hello": "you"}},
        {"match": "*.test", "delay_s": 2},
        {"match": "127.0.0.1", "delay_s": 2},
        {"match": "https://a.test:8443", "insecure_tls": True},
        {"match": "*.a.test/*", "insecure_tls": True},
        {"match": "*", "insecure_tls": False},
        {"match": "https://a.test/x", "auth": "u:p"},
    ]
    assert list(complaints(sites(*fine))) == []
    assert list(complaints(sites({"match": "www.a.test", "delay_s": 2}, frontier__queue_by="host"))) == []


@pytest.mark.parametrize(
    ("given", "fits", "others"),
    [
        ("https://www.shop.co.uk/a", "https://shop.co.uk/ https://a.b.shop.co.uk:8443/x", "http://shop.co.uk/"),
        ("https://shop.test/", "https://shop.test/", "https://myshop.test/ https://shop.test.evil.test/"),
        ("http://shop.test:81/", "http://a.shop.test/ https://shop.test/", "http://test/ http://shop.example/"),
        ("https://me.github.io/", "https://me.github.io/ https://x.me.github.io/", "https://you.github.io/"),
        ("https://github.io/", "https://github.io/x", "https://me.github.io/ https://github.io:444/"),
        ("https://co.uk/", "https://co.uk/", "https://shop.co.uk/"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/x", "http://127.0.0.1/ https://127.0.0.1:8000/"),
        ("http://[::1]:8000/", "http://[::1]:8000/x", "http://[::1]/ http://[::2]:8000/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]/", "http://127.0.0.1/"),
        ("http://localhost:8000/", "http://localhost:8000/x", "http://localhost/ http://a.localhost:8000/"),
        ("https://bücher.example/", "https://de.xn--bcher-kva.example/", "https://bucher.example/"),
        ("http://*.com/", "", "http://shop.com/ https://shop.com/ http://*.com/"),
        ("http://a*.test/", "", "http://ab.test/ https://ab.test/"),
        ("http://a..test/", "", "http://a.test/ http://a..test/"),
    ],
)
def test_a_secret_goes_to_the_site_it_was_given_for_alone(given: str, fits: str, others: str) -> None:
    patterns = [UrlPattern.parse(text) for text in patterns_of_site(canonicalize(given))]
    for urls, wanted in ((fits, True), (others, False)):
        for url in map(canonicalize, urls.split()):
            assert any(pattern.matches(url) for pattern in patterns) is wanted, url
    assert all(pattern.names_scheme for pattern in patterns)


def test_a_pattern_that_is_none_is_told_where_rules_are_made() -> None:
    with pytest.raises(UsageError, match=r"sites\[1\].match"):
        SiteRules.of((SiteSettings(match="a.test", label="x"), SiteSettings(match="a b", label="x")), "label")


hosts = st.sampled_from(("a.test", "www.a.test", "b.test", "x.www.a.test", "127.0.0.1"))
patterns = st.sampled_from(
    (
        "*",
        "a.test",
        "*.a.test",
        "www.a.test/x/*",
        "*/x/*",
        "https://a.test",
        "a.test:80",
        "b*.test",
        "127.0.0.1",
        "*.test/",
    )
)
tables = st.lists(st.tuples(patterns, st.none() | st.integers(0, 9)), max_size=6)


@given(tables=tables, urls=st.lists(st.tuples(hosts, st.sampled_from(("/", "/x/1", "/y"))), min_size=1, max_size=8))
def test_the_index_by_host_finds_what_a_look_at_every_table_finds(
    tables: list[tuple[str, int | None]], urls: list[tuple[str, str]]
) -> None:
    given_ = tuple(SiteSettings(match=match, priority=priority) for match, priority in tables)
    made = SiteRules.of(given_, "priority")
    for host, path in urls:
        url = f"http://{host}{path}"
        plain = [s.priority for s in given_ if s.priority is not None and UrlPattern.parse(s.match).matches(url)]
        found = None if made is None else made.first(url, "priority")
        assert found == (plain[0] if plain else None)
        assert made is None or (first_with(made.fitting(url), "priority") is None) == (not plain)
