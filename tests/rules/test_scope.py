"""What belongs to a crawl, and the words that say why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.model import RefusalReason
from crawler.rules.job_runs import RunSpec
from crawler.rules.scope import ScopeRules, sites_of
from crawler.rules.urls import canonicalize, readable
from crawler.settings import ScopeSettings

SEED = "https://www.example.co.uk:8443/docs/a/index.html?x=/y/z"


def rules_for(seed: str = SEED, **settings) -> ScopeRules:
    rules = ScopeRules.of(ScopeSettings(**settings))
    return rules.with_roots([rules.root_of(seed)])


@pytest.mark.parametrize(
    ("mode", "root", "inside", "outside"),
    [
        (
            "domain",
            "domain:example.co.uk",
            ["http://example.co.uk/", "https://a.b.example.co.uk:1/x"],
            ["http://other.co.uk/", "http://co.uk/", "http://notexample.co.uk/", "http://example.co.uk.evil.test/"],
        ),
        (
            "host",
            "host:www.example.co.uk:8443",
            ["https://www.example.co.uk:8443/z", "http://www.example.co.uk:8443/"],
            ["https://www.example.co.uk/", "https://example.co.uk:8443/"],
        ),
        (
            "prefix",
            "prefix:https://www.example.co.uk:8443/docs/a/",
            ["https://www.example.co.uk:8443/docs/a/", "https://www.example.co.uk:8443/docs/a/b/c?d"],
            ["https://www.example.co.uk:8443/docs/", "http://www.example.co.uk:8443/docs/a/"],
        ),
        ("any", "any:*", ["http://a.test/", "https://[::1]:9/"], []),
    ],
)
def test_a_seed_opens_its_root_and_nothing_else(mode, root, inside, outside):
    rules = rules_for(mode=mode)
    assert rules.root_of(SEED) == root
    assert rules.roots == {root}
    for url in inside:
        assert rules.allows(url), url
        assert rules.verdict(url, 0).allowed, url
    for url in outside:
        assert not rules.allows(url), url
        verdict = rules.verdict(url, 0)
        assert (verdict.allowed, verdict.refusal) == (False, RefusalReason.SCOPE)


def test_hosts_of_a_private_suffix_are_apart():
    rules = rules_for("http://a.github.io/")
    assert rules.allows("http://x.a.github.io/")
    assert not rules.allows("http://b.github.io/")


@pytest.mark.parametrize(
    ("settings", "url", "depth", "redirects", "allowed", "rule"),
    [
        ({}, "https://example.co.uk/x", 3, 0, True, "domain example.co.uk of a seed"),
        ({"mode": "host"}, SEED, 0, 0, True, "host www.example.co.uk:8443 of a seed"),
        ({"mode": "prefix"}, SEED, 0, 0, True, "prefix https://www.example.co.uk:8443/docs/a/ of a seed"),
        ({"mode": "any"}, "http://z.test/", 0, 0, True, "any URL"),
        ({}, "http://z.test/", 0, 0, False, "no seed is in domain z.test"),
        ({"exclude": ("/logout",)}, "https://example.co.uk/logout", 0, 0, False, "exclude //logout/"),
        ({"exclude": ("/x", "/logout", "out$")}, "https://example.co.uk/logout", 0, 0, False, "exclude //logout/"),
        ({"include": ("[.]html$",)}, "https://example.co.uk/a.pdf", 0, 0, False, "no include matches"),
        ({"include": ("[.]html$", "pdf")}, "https://example.co.uk/a.pdf", 0, 0, True, "domain example.co.uk of a seed"),
        ({"depth_max": 4}, "https://example.co.uk/", 5, 0, False, "depth 5 > limit 4"),
        ({"depth_max": 4}, "https://example.co.uk/", 4, 0, True, "domain example.co.uk of a seed"),
        ({"depth_max": 0}, "https://example.co.uk/", 1, 0, False, "depth 1 > limit 0"),
        ({"redirects_max": 2}, "https://example.co.uk/", 0, 3, False, "redirects 3 > limit 2"),
        ({"redirects_max": 2}, "https://example.co.uk/", 0, 2, True, "domain example.co.uk of a seed"),
    ],
)
def test_a_verdict_names_the_rule_that_decided(settings, url, depth, redirects, allowed, rule):
    verdict = rules_for(**settings).verdict(url, depth, redirects)
    assert (verdict.allowed, verdict.rule) == (allowed, rule)
    assert (verdict.refusal is None) == allowed


def test_exclude_wins_over_include():
    rules = rules_for(include=("keep",), exclude=("keep/not",))
    assert rules.allows("https://example.co.uk/keep/x")
    assert not rules.allows("https://example.co.uk/keep/not")
    assert rules.verdict("https://example.co.uk/keep/not", 0).rule == "exclude /keep/not/"


def test_each_limit_has_its_own_reason_for_refusal():
    rules = rules_for(depth_max=1, redirects_max=1)
    assert rules.verdict("https://example.co.uk/", 2).refusal is RefusalReason.DEPTH
    assert rules.verdict("https://example.co.uk/", 1, 2).refusal is RefusalReason.REDIRECTS


def test_more_roots_give_new_rules_and_leave_the_old_ones():
    old = rules_for("http://example.com/")
    assert not old.allows("http://www.other.test/")
    new = old.with_roots([old.root_of("http://www.other.test/")])
    assert new.allows("http://www.other.test/")
    assert new.allows("http://example.com/")
    assert not old.allows("http://www.other.test/")
    assert new.with_roots(["domain:other.test"]) is new


@pytest.mark.parametrize(
    ("limit", "of_run", "smaller"),
    [(4, 2, 2), (2, 4, 2), (3, 3, 3), (-1, 4, 4), (4, -1, 4), (-1, -1, -1), (0, 4, 0), (4, RunSpec().depth, 4)],
)
def test_of_two_limits_of_depth_the_smaller_holds_in_a_run(limit, of_run, smaller):
    assert rules_for(depth_max=limit).of_run("", ["any:*"], of_run).depth_max == smaller


def test_a_run_has_its_own_roots_and_the_filters_of_the_crawl():
    rules = rules_for("http://example.com/", exclude=("/logout",))
    for mode, is_whole_domain in (("", True), ("host", False)):
        run = rules.of_run(mode, [f"{mode or 'domain'}:other.test"], -1)
        assert {run.root_of("http://other.test/")} == run.roots
        assert run.allows("http://other.test/")
        assert run.allows("http://www.other.test/") is is_whole_domain
        assert not run.allows("http://other.test/logout")
        assert not run.allows("http://example.com/")


def test_the_sites_of_roots_are_their_domains():
    roots = ["domain:a.co.uk", "host:x.b.test:81", "prefix:https://x.c.test/d/", "page:http://y.d.test/ http://a.test/"]
    assert sites_of([*roots, "any:*"]) == {"a.co.uk", "b.test", "c.test", "d.test"}


def test_without_a_root_nothing_is_in_scope():
    assert not ScopeRules.of(ScopeSettings()).allows("http://a.test/")


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_bad_regular_expression_is_one_line_that_names_the_option(option):
    with pytest.raises(UsageError) as refused:
        ScopeRules.of(ScopeSettings(**{option: ("a(",)}))
    assert f"scope.{option}: 'a('" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_remembered_authorities_do_not_change_the_verdict():
    rules = rules_for("http://example.com/docs/", mode="prefix")
    assert rules.allows("http://example.com/docs/1")
    assert not rules.allows("http://example.com/other")
    assert rules.allows("http://example.com/docs/2")


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("/café/", "http://a.test/caf%C3%A9/x", True),
        ("/café/", "http://a.test/caf%E9/x", False),
        ("café|plain", "http://a.test/plain", True),
        ("^https://bücher\\.", "https://xn--bcher-kva.example/", True),
        ("новости/\\d+$", "http://a.test/%D0%BD%D0%BE%D0%B2%D0%BE%D1%81%D1%82%D0%B8/7", True),
        ("[а-я]{4}", "http://xn--e1afmkfd.xn--p1ai/", True),
        ("é%FF", "http://a.test/%C3%A9%FF", True),
        ("é/x", "http://a.test/%C3%A9%2Fx", False),
        ("é a", "http://a.test/%C3%A9%20a", False),
        ("xn--", "https://xn--bcher-kva.example/", True),
        ("%C3%A9", "http://a.test/%C3%A9", True),
    ],
)
def test_patterns_beyond_ascii_are_compared_with_urls_as_people_read_them(
    pattern: str, url: str, matches: bool
) -> None:
    included, left_out = (
        ScopeRules.of(ScopeSettings(mode="any", **{key: (pattern,)})) for key in ("include", "exclude")
    )
    assert included.allows(url) is included.verdict(url, 0).allowed is matches
    assert left_out.allows(url) is left_out.verdict(url, 0).allowed is not matches


@given(st.text(max_size=60))
def test_a_url_as_people_read_it_is_the_same_url(path: str) -> None:
    url = canonicalize(f"http://xn--bcher-kva.test/{path}")
    assert canonicalize(readable(url)) == url
