"""Hosts of URLs: what DNS can't have costs nothing, and letters beyond ASCII are encoded."""

import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import InvalidUrl
from crawler.rules.urls import ForeignSchemeError, canonicalize, is_plain, join, join_all, looked_at
from tests.support.growth import LINEAR_MAX, growth

LONG_LETTERS = "".join(map(chr, range(0x4E00, 0x4E00 + 8000)))
REFERENCES = ("http://{}/", "https:{}", "//{}/x", "\\\\{}\\x", "  ht\ttp://{}?q", "ftp://{}/")


@pytest.mark.parametrize(
    "host",
    [
        LONG_LETTERS,
        LONG_LETTERS + ".test",
        "".join(f"%{byte:02X}" for byte in LONG_LETTERS.encode()),
        "a" * 64 + ".test",
        "a." * 127 + "test",
        "\u3002".join(["a"] * 130),
        "\u00fc" * 60 + ".test",  # 60 letters, 68 once they are encoded
        ("\u00fc" * 20 + ".") * 10 + "test",  # 214 letters, 274 once they are encoded
        "u:p@" + "a" * 64 + ".test:80",
        "xn--" + "a" * 60 + ".test",
    ],
    ids=[
        "letters",
        "a label of letters",
        "octets",
        "label",
        "name",
        "ideographic dots",
        "encoded",
        "encoded name",
        "user",
        "coded",
    ],
)
@pytest.mark.parametrize("reference", REFERENCES)
def test_a_host_that_dns_can_not_have_is_refused(host, reference):
    text = reference.format(host)
    with pytest.raises(InvalidUrl):
        canonicalize(text)
    assert join("http://a.test/", text) is None
    assert join_all("http://a.test/", [text]) == ([], 1)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("kind", ["{}", "{}.test", "octets"])
def test_a_long_host_is_refused_before_it_is_encoded(kind, reference):
    """Punycode takes quadratic time, and more."""

    def refused(letters):
        host = "".join(f"%{byte:02X}" for byte in letters.encode()) if kind == "octets" else kind.format(letters)
        text = reference.format(host)
        with suppress(InvalidUrl):
            canonicalize(text)
        join("http://a.test/", text)

    assert growth(refused, LONG_LETTERS[:800], LONG_LETTERS) < LINEAR_MAX


def test_the_longest_host_that_dns_can_have_is_a_host():
    host = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])
    assert len(host) == 253
    assert canonicalize(f"http://{host}:81/") == f"http://{host}:81/"
    assert canonicalize(f"http://{host}./") == f"http://{host}/"
    assert canonicalize("http://" + "u" * 300 + "@a.test/" + "p" * 300) == "http://a.test/" + "p" * 300
    assert join("http://a.test/b/", "p" * 300) == "http://a.test/b/" + "p" * 300
    assert join("http://a.test/b/", "http:" + "p" * 300) == "http://a.test/b/" + "p" * 300
    assert join("https://a.test/b/", "http:" + "p" * 300) is None
    assert join("http://a.test/b/", "http:/" + "p" * 300) == "http://a.test/" + "p" * 300
    assert join("http://a.test/b/", "no_scheme:" + "p" * 300) == "http://a.test/b/no_scheme:" + "p" * 300


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("http://fa\u1e9e.de/", "http://xn--fa-hia.de/"),
        ("http://FA\u1e9e.de:81/a%41", "http://xn--fa-hia.de:81/aA"),
        ("http://fa%E1%BA%9E.de/", "http://xn--fa-hia.de/"),
        ("http://\U0001fae9.test/", "http://xn--b39h.test/"),  # a letter of Unicode 16
        ("http://xn--b39h.test/x", "http://xn--b39h.test/x"),
        ("http://XN--B39H.test/", "http://xn--b39h.test/"),
        ("http://u:p@b\u00fccher.test./a?", "http://xn--bcher-kva.test/a"),
        ("http://\uff41.test/", "http://a.test/"),
        ("http://a\u00ad.test/", "http://a.test/"),
        ("http://a\u3002test/", "http://a.test/"),
    ],
)
def test_letters_beyond_ascii_are_encoded_by_the_tables_of_today(raw, canonical):
    assert canonicalize(raw) == canonical
    assert canonicalize(canonical) == canonical
    assert join("http://x.test/", raw) == canonical
    assert join(canonical, "y?z") == canonical.rpartition("/")[0] + "/y?z"


@pytest.mark.parametrize(
    "host", ["xn--a", "xn--", "xn--a.test", "a\u200db.test", "\u0300a.test", "xn--a\u00fc.test", "\u00adxn--a.test"]
)
def test_coded_labels_that_encode_nothing_are_refused(host):
    with pytest.raises(InvalidUrl):
        canonicalize(f"http://{host}/")
    assert join("http://x.test/", f"//{host}/") is None
    assert not is_plain(f"http://{host}/{'p' * 99}")
    assert not is_plain(f"  //{host}/{'p' * 99}")


def test_a_crawl_of_hosts_in_ascii_does_not_import_the_second_parser():
    code = "import sys; from crawler.rules.urls import join; join('http://a.test/', '//b.test/ü')"
    code += "; sys.exit('ada_url' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PIECES = ["http:", "https:", "HTTP:", "ftp:", "1a:", "//", *"/\\a.?#@: \té", "b.test", "xn--a", "%41", "[::1]"]
LONG_PIECES = ["x" * 40, "y" * 64, "z" * 254, "p/" * 40]


@pytest.mark.slow(ci=True)
@given(st.lists(st.sampled_from(PIECES + LONG_PIECES), min_size=1, max_size=7).map("".join))
@settings(max_examples=500)
def test_what_passes_unseen_would_have_passed_a_look(reference):
    if not is_plain(reference):
        return
    for base in ("http://s.test/", "https://s.test/"):
        with suppress(ForeignSchemeError):
            assert looked_at(reference, lambda _: "plain", lambda _: "http://beyond/", base) == "plain"
