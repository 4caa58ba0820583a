"""Registrable domains against the Public Suffix List's own tests, and where that list is silent."""

import gc
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import tldextract
from publicsuffixlist import PSLFILE, PublicSuffixList

from crawler.frontier.placement import Placement
from crawler.frontier.record import CrawlRecord
from crawler.rules.places import Fingerprints, is_ip, label_of, partition_of, registrable_domain
from crawler.rules.urls import canonicalize, host_of
from crawler.settings import ScopeSettings

TABLE = Path(__file__).parents[3] / "shared/conformance/registrable_domain.jsonl"


def rules() -> list[str]:
    """Of the installed list, as it spells them."""
    lines = [line.strip() for line in Path(PSLFILE).read_text("utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("//")]


def test_every_row_of_the_public_suffix_lists_own_tests_holds():
    if not TABLE.exists():
        pytest.skip("the conformance tables are not next to this checkout")
    rows = [json.loads(line) for line in TABLE.read_text().splitlines()]
    assert len(rows) == 78
    named = [row for row in rows if row["host"] and row["registrable"]]
    assert len(named) > 40
    wrong = [(r["host"], r["registrable"], registrable_domain(r["host"])) for r in named]
    assert [row for row in wrong if row[1] != row[2]] == []


def test_a_host_that_the_list_gives_no_domain_still_has_one():
    if not TABLE.exists():
        pytest.skip("the conformance tables are not next to this checkout")
    rows = [json.loads(line) for line in TABLE.read_text().splitlines()]
    unnamed = [r["host"] for r in rows if r["host"] and not r["registrable"]]
    assert unnamed
    for host in unnamed:
        bare = host.lower().strip(".")
        assert registrable_domain(host)
        assert bare.endswith(registrable_domain(host))


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("[::ffff:7f00:1]", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[::FFFF:a83f:8110]", "168.63.129.16"),
        ("[64:ff9b::808:808]", "8.8.8.8"),
        ("[2002:808:808::1]", "8.8.8.8"),
        ("[2002:808:808:1::2]", "8.8.8.8"),
        ("[::ffff:0:808:808]", "[::ffff:0:808:808]"),  # these lead to no IPv4 address that we know of
        ("[64:ff9b:1::808:808]", "[64:ff9b:1::808:808]"),
        ("[::808:808]", "[::808:808]"),
        ("[2606:4700::1111]", "[2606:4700::1111]"),
        ("[::1", "[::1"),
        ("[]", "[]"),
        ("[v1.x]", "[v1.x]"),
        ("localhost", "localhost"),
        ("com", "com"),
        ("co.uk", "co.uk"),
        ("github.io", "github.io"),
        ("a.github.io", "a.github.io"),
        ("x.a.github.io", "a.github.io"),
        ("b.github.io", "b.github.io"),
        ("www.ck", "www.ck"),
        ("sub.www.ck", "www.ck"),
        ("other.ck", "other.ck"),
        ("a.other.ck", "a.other.ck"),
        ("crawler.test", "crawler.test"),
        ("a.b.crawler.test", "crawler.test"),
        ("d07.internal", "d07.internal"),
        ("WWW.Example.COM", "example.com"),
        ("www.example.com.", "example.com"),
        ("xn--fa-hia.de", "xn--fa-hia.de"),
        ("www.xn--fa-hia.de", "xn--fa-hia.de"),
        ("ex..com", "ex..com"),
        ("a..ex.com", "a..ex.com"),
        ("999.1.1.1.example", "1.example"),
    ],
)
def test_every_kind_of_host_has_one_defined_domain(host, domain):
    assert registrable_domain(host) == domain


def test_every_rule_beyond_ascii_is_known_as_urls_spell_it():
    beyond = [rule for rule in rules() if not rule.isascii()]
    assert len(beyond) > 400
    for rule in beyond:
        host = urlsplit(canonicalize(f"http://www.site.{rule}/")).hostname
        assert host.isascii()
        assert registrable_domain(host) == host.removeprefix("www."), rule


@pytest.mark.slow(ci=True)
def test_the_library_itself_reads_the_list_the_same():
    """Which is given the rules already encoded, for its own way takes twice as long."""
    whole = PublicSuffixList()
    for rule in rules():
        name = rule.lstrip("!*.")
        for host in (name, f"a.{name}", f"c.b.a.{name}", name.encode("idna").decode()):
            assert registrable_domain(host) == (whole.privatesuffix(host) or host)


def test_a_domain_is_its_own_domain():
    for host in ("a.b.example.co.uk", "x.y.test", "10.1.2.3", "deep.a.github.io", "single"):
        assert registrable_domain(registrable_domain(host)) == registrable_domain(host)


def test_the_label_of_a_host_is_what_comes_before_its_domain():
    hosts = {"a.test": "@", "www.a.test": "www", "x.y.a.test": "x.y", "other.test": "other.test"}
    assert {host: label_of("a.test", host) for host in hosts} == hosts


def test_only_dotted_quads_and_brackets_are_ip_literals():
    assert is_ip("10.0.0.1")
    assert is_ip("[::1]")
    assert not is_ip("1.2.3.example")
    assert not is_ip("1.2.3")


def test_importing_the_module_does_not_import_publicsuffixlist():
    code = "import sys, crawler.rules.urls; sys.exit('publicsuffixlist' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def tldextract_of(url: str) -> tldextract.TLDExtract:
    """A second reader of suffix lists, without network or cache."""
    return tldextract.TLDExtract(
        suffix_list_urls=(url,) if url else (),
        cache_dir=None,
        fallback_to_snapshot=not url,
        include_psl_private_domains=True,
    )


def read_differently(other: tldextract.TLDExtract) -> dict[str, set[str]]:
    """Rules of our list, with those hosts under each that the other reader gives another domain."""
    found: dict[str, set[str]] = {}
    for rule in rules():
        name = host_of(canonicalize(f"http://{rule.lstrip('!*.')}/"))
        for host in (name, f"a.{name}", f"c.b.a.{name}"):
            if (other(host).top_domain_under_public_suffix or host) != registrable_domain(host):
                found.setdefault(rule, set()).add(host)
    return found


@pytest.mark.slow(ci=True)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves the file to the collector
@pytest.mark.filterwarnings("ignore:unclosed file")  # the reader leaves its file to the garbage collector
def test_a_second_reader_of_our_list_gives_the_same_domains() -> None:
    """But for the name that a rule like *.ck is about: no rule says what `ck` itself is. Ours takes it for a suffix;
    the other gives it the domain of the rule above it.
    """
    differing = read_differently(tldextract_of(Path(PSLFILE).as_uri()))
    gc.collect()
    assert {rule for rule in differing if not rule.startswith("*.")} == set()
    assert [rule for rule, hosts in differing.items() if hosts != {rule.removeprefix("*.")}] == []


@pytest.mark.slow(ci=True)
def test_another_release_of_the_list_differs_by_its_own_rules_alone() -> None:
    """The reader's own snapshot is of another day: it differs where it lacks a rule of ours."""
    other = tldextract_of("")
    differing = read_differently(other)
    assert 0 < len(differing) < len(rules()) // 5
    assert {rule for rule in differing if rule in other.tlds and not rule.startswith("*.")} == set()


FORMS = ("127.0.0.1", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::1]")


@pytest.mark.parametrize("queue_by", ["domain", "host"])
def test_an_ipv4_address_has_one_queue_in_all_its_forms(queue_by):
    """Two would have two delays, for one server."""
    record = CrawlRecord(
        layout=1, partitions=1024, begun_at=1.8e9, queue_by=queue_by, hash_key=b"", scope=ScopeSettings()
    )
    placement = Placement(record)
    assert {placement.of(f"http://{form}:{8000 + n}/x") for n, form in enumerate(FORMS)} == {
        ("127.0.0.1", "127.0.0.1", partition_of("127.0.0.1", 1024))
    }


def test_a_url_keeps_its_form_and_its_fingerprint():
    urls = [canonicalize(f"http://{form}/") for form in FORMS]
    assert urls == [f"http://{form}/" for form in FORMS]
    assert len({Fingerprints(b"k" * 16).of(url) for url in urls}) == len(FORMS)
    assert Fingerprints(b"k" * 16).of(urls[1]) == "2688809709039537640"
