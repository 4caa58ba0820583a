"""Which text names a domain, and what is known of domains that are forgotten."""

import pytest

from crawler.model import RefusalReason
from crawler.rules.forgotten import ForgottenDomain, Named, digest_of, forgotten_of, united, without_name
from crawler.rules.scope import ScopeRules
from crawler.settings import ScopeSettings

KEY = b"0123456789abcdef"
AT = 1_700_000_000.0


@pytest.mark.parametrize(
    ("domain", "text", "is_named"),
    [
        ("shop.example", "http://shop.example/", True),
        ("shop.example", "http://www.SHOP.example:8080/x", True),
        ("shop.example", "domain:shop.example", True),
        ("shop.example", "shop.example", True),
        ("shop.example", "at shop.example.", True),
        ("shop.example", r'{"detail":"\nshop.example"}', True),
        ("shop.example", "?u=http%3A%2F%2Fshop.example%2F", True),
        ("shop.example", "shop.example.au", False),
        ("shop.example", "webshop.example", False),
        ("shop.example", "my-shop.example", False),
        ("shop.example", "shop.examples", False),
        ("shop.example", "shop-example", False),
        ("shop.example", "", False),
        ("127.0.0.1", "http://127.0.0.1:80/", True),
        ("127.0.0.1", "127.0.0.11", False),
        ("127.0.0.1", "1127.0.0.1", False),
        ("[::1]", "http://[::1]:80/", True),
        ("xn--bcher-kva.example", "https://xn--bcher-kva.example/", True),
        ("com", "http://shop.com/", False),
        ("com", "http://com/", True),
        ("github.io", "http://me.github.io/ and me.github.io", False),
        ("github.io", '{"url":"http://github.io/"}', True),
        ("me.github.io", "http://www.me.github.io/", True),
        ("10.0.0.1", "http://10.0.0.1:80/", True),
    ],
)
def test_text_names_a_domain_as_a_whole(domain: str, text: str, is_named: bool) -> None:
    assert Named(domain).is_in(text.encode()) is is_named


def test_a_long_text_of_near_misses_takes_linear_time() -> None:
    assert not Named("shop.example").is_in(b"shop.examplex" * 200_000)


def test_queues_and_urls_of_a_domain() -> None:
    named = Named("shop.example")
    assert all(map(named.owns_queue, ("shop.example", "www.shop.example")))
    assert not any(map(named.owns_queue, ("example", "shop.example.org", "webshop.example")))
    assert named.owns("https://a.b.shop.example:81/x?y")
    assert not named.owns("http://other.example/?shop.example")


def test_json_keeps_its_form_without_the_name() -> None:
    value = {"a": ["http://shop.example/", 1, None], "b": {"c": "kept"}}
    assert without_name(value, Named("shop.example")) == {"a": ["", 1, None], "b": {"c": "kept"}}


def test_only_the_key_tells_which_domain_a_digest_is_of() -> None:
    domain = ForgottenDomain(digest=digest_of("shop.example", KEY), at=AT)
    assert "shop" not in domain.digest
    assert digest_of("shop.example", b"x" * 16) != domain.digest
    known, other = forgotten_of([domain], KEY), forgotten_of([domain], b"x" * 16)
    assert known
    assert other
    assert known.since("http://www.shop.example/a") == AT
    assert not other.has("http://shop.example/")
    assert forgotten_of((), KEY) is None


def test_the_earliest_time_counts_and_each_domain_once() -> None:
    one, late, two = (ForgottenDomain(digest=digest, at=at) for digest, at in (("a", 2.0), ("a", 3.0), ("b", 1.0)))
    assert united([late, two], [one]) == (two, one)


@pytest.mark.parametrize("mode", ["any", "domain", "host", "prefix"])
def test_the_scope_refuses_it_whatever_its_roots(mode: str) -> None:
    domains = [ForgottenDomain(digest=digest_of("shop.example", KEY), at=AT)]
    rules = ScopeRules.of(ScopeSettings(mode=mode), forgotten=forgotten_of(domains, KEY))
    rules = rules.with_roots([rules.seed_root("http://shop.example/"), "page:http://shop.example/", "any:*"])
    for one in (rules, rules.of_run("any", ["any:*"], -1)):
        verdict = one.verdict("http://shop.example/", 0)
        assert (verdict.allowed, verdict.refusal) == (False, RefusalReason.FORGOTTEN)
        assert "forgotten on 2023-11-14" in verdict.rule
        assert one.excludes("http://shop.example/")
        assert not one.admits("http://shop.example/")
        assert one.allows("http://other.example/")
