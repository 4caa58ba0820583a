"""Sitemaps in every form that sites serve, hostile ones included."""

import base64
import gzip
import json
from pathlib import Path

import pytest

from crawler.content.sitemap import INFLATED_BYTES_MAX, URLS_MAX, SitemapUrl, parse_sitemap
from tests.support.growth import LINEAR_MAX, growth

URL = "http://h.test/sitemap.xml"
IN_2000 = 946_684_800.0
HEAD = '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'

RSS = (
    "<rss><channel><link>/no</link><item><title>t</title><link>http://h.test/a</link></item>"
    "<item><link>/b</link><pubDate>x</pubDate></item></channel></rss>"
)
ATOM = (
    "<feed><link href='/no'/><entry><link rel='self' href='/s'/><link href='/a'/></entry>"
    "<entry><link rel='alternate' href='/b'/></entry></feed>"
)


def locs(text, url=URL):
    return [entry.loc for entry in parse_sitemap(text.encode() if isinstance(text, str) else text, url).urls]


def test_urls_come_with_date_and_priority():
    found = parse_sitemap(
        (HEAD + "<url><loc> http://h.test/a?x=1&amp;y=2 </loc><lastmod>2024-01-02</lastmod>"
         "<priority>0.8</priority></url>"
         "<url><priority>NaN</priority><loc><![CDATA[http://h.test/b]]></loc></url>"
         "<url><loc>/c</loc><priority>7</priority></url></urlset>").encode(), URL)  # fmt: skip
    assert found.urls == (
        SitemapUrl(loc="http://h.test/a?x=1&y=2", lastmod="2024-01-02", priority=0.8),
        SitemapUrl(loc="http://h.test/b"),
        SitemapUrl(loc="http://h.test/c"),
    )
    assert found.sitemaps == ()


def test_an_index_names_sitemaps_and_no_pages():
    text = "<sitemapindex><sitemap><loc>http://h.test/1.xml</loc></sitemap><sitemap><loc>/2.xml.gz</loc></sitemap>"
    found = parse_sitemap(text.encode(), URL)
    assert found.sitemaps == ("http://h.test/1.xml", "http://h.test/2.xml.gz")
    assert found.urls == ()


@pytest.mark.parametrize(
    "text",
    [
        "http://h.test/a\r\n\nhttp://h.test/b\nnot a url\nftp://h.test/\n",
        "\ufeffhttp://h.test/a\nhttp://h.test/b",
        HEAD + "<url><loc>http://h.test/a</loc></url><url><loc>http://h.test/b</lo",
        HEAD + "<url><loc>http://h.test/a</loc><url><loc>http://h.test/b</url>",
        "<s:urlset><s:url><s:loc>http://h.test/a</s:loc></s:url><s:url><s:loc>http://h.test/b</s:loc></s:url>",
        HEAD + "<!-- <url><loc>http://h.test/no</loc></url> --><url><loc>/a</loc></url><url><loc>/b</loc></url>",
        HEAD + "<url><loc>/a</loc></url><url><loc>/b</loc></url><url><loc>/a</loc></url><url><loc></loc></url>",
        RSS,
        ATOM,
    ],
)
def test_every_form_gives_its_pages(text):
    assert locs(text) == ["http://h.test/a", "http://h.test/b"]
    assert locs(gzip.compress(text.encode())) == ["http://h.test/a", "http://h.test/b"]
    assert locs(text.removeprefix("\ufeff").encode("utf-16")) == ["http://h.test/a", "http://h.test/b"]


def test_dates_of_feeds_are_kept():
    assert (
        parse_sitemap(b"<feed><entry><updated>2024</updated><link href='/a'/></entry>", URL).urls[0].lastmod == "2024"
    )


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2000-01-02", 86400.0),
        ("2000", 0.0),
        ("2000-02", 31 * 86400.0),
        ("2000-01-01T01:00:00+01:00", 0.0),
        ("2000-01-01T00:01Z", 60.0),
        (" 2000-01-01T00:00:01.5Z ", 1.5),
        ("2000-01-01 00:00:02", 2.0),
        ("Sat, 01 Jan 2000 00:00:03 GMT", 3.0),
        ("Sat, 01 Jan 2000 01:00:00 +0100", 0.0),
        ("1999-12-31", -86400.0),
        ("1970-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00", None),
        ("0001-01-01T00:00:00+23:00", None),
        ("", None),
        ("yesterday", None),
        ("0000-00-00", None),
        ("2024-13", None),
        ("2024-02-30T99:00", None),
        ("9" * 5000, None),
        ("Mon, 99 Foo 99999999999999999999 00:00:00", None),
    ],
)
def test_dates_are_read_in_all_forms_that_sitemaps_and_feeds_have(written, seconds):
    entry = SitemapUrl(loc=URL, lastmod=written)
    assert entry.changed_at == (None if seconds is None else IN_2000 + seconds)


def test_a_torn_gzip_gives_what_was_whole():
    body = gzip.compress((HEAD + "".join(f"<url><loc>/{n * n}</loc></url>" for n in range(5000))).encode())
    assert 1000 < len(locs(body[: len(body) // 2])) < 5000
    assert locs(b"\x1f\x8bjunk") == []


def test_no_entity_is_expanded_and_no_file_is_read():
    text = (
        "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'><!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]>"
        "<urlset><url><loc>http://h.test/&e;</loc></url><url><loc>http://h.test/&b;</loc></url></urlset>"
    )
    assert locs(text) == ["http://h.test/&e;", "http://h.test/&b;"]


@pytest.mark.slow(ci=True)
def test_the_number_of_urls_and_the_inflated_size_are_bounded():
    assert len(locs(HEAD + "".join(f"<url><loc>/{n}</loc></url>" for n in range(URLS_MAX + 1)))) == URLS_MAX
    bomb = gzip.compress(b" " * (INFLATED_BYTES_MAX + 1000) + b"<urlset><url><loc>/late</loc></url>", 1)
    assert locs(bomb) == []


@pytest.mark.parametrize(
    ("before", "unit"), [("", "<url>"), ("", "<loc>"), ("", "<!--"), ("", "<link "), ("<feed>", "<entry><link ")]
)
def test_hostile_files_cost_linear_time(before, unit):
    small, large = [(before + unit * (size // len(unit))).encode() for size in (25_000, 250_000)]
    assert growth(lambda body: parse_sitemap(body, URL), small, large) < LINEAR_MAX


def test_a_web_page_is_not_a_sitemap():
    assert locs("<!doctype html><p><a href=/x>http://h.test/no</a>") == []
    assert locs(b"") == []
    assert locs(bytes(range(256)) * 10) == []


@pytest.mark.parametrize(
    "token",
    [
        "<entry>",
        "<channel xml:base='a/'>",
        "<w:link xmlns:w='http://www.w3.org/2005/Atom' href=a>",
        "<loc>a</loc>",
        "<loc ",
        "<loc>",
        "<url>",
        "<url ",
        "<link ",
        "href=",
        "<!--",
        "<![CDATA[",
        "<loc><![CDATA[",
        "&#9",
    ],
)
def test_a_token_again_and_again_costs_linear_time(token):
    for before in ("<urlset><url>", "<feed><entry>", "<urlset>", f"<feed xml:base='http://h.test/{'b' * 4000}/'>"):
        small, large = [(before + token * (size // len(token))).encode() for size in (10_000, 100_000)]
        assert growth(lambda body: parse_sitemap(body, URL), small, large) < LINEAR_MAX


def test_a_reference_to_a_character_of_thousands_of_digits_costs_its_url_alone():
    text = f"<urlset><url><loc>http://a.test/&#{'9' * 5000};</loc></url><url><loc>http://a.test/b</loc></url></urlset>"
    assert [url.loc for url in parse_sitemap(text.encode(), "http://a.test/").urls] == ["http://a.test/b"]


@pytest.mark.slow(ci=True)
def test_a_torn_gzip_keeps_what_is_before_the_damage():
    urls = "".join(f"<url><loc>http://a.test/{n * n * 7919 % 99991}</loc></url>" for n in range(30_000))
    packed = bytearray(gzip.compress(f"<urlset>{urls}</urlset>".encode()))
    assert len(packed) > 100_000
    packed[-70_000] ^= 0xFF
    packed[-69_999] ^= 0xFF
    found = parse_sitemap(bytes(packed), "http://a.test/sitemap.xml").urls
    assert len(found) > 1000


def test_comments_are_left_out_and_one_without_an_end_hides_the_rest():
    text = "<urlset><!-- <url><loc>http://a.test/0</loc></url> -->"
    text += "<url><!-- x <!-- y --><loc>http://a.test/1</loc></url><!-- <url><loc>http://a.test/2</loc>"
    assert [url.loc for url in parse_sitemap(text.encode(), "http://a.test/").urls] == ["http://a.test/1"]


def test_a_file_of_endless_repeats_is_read_to_a_bound(monkeypatch):
    monkeypatch.setattr("crawler.content.sitemap.ENTRIES_MAX", 3)
    lines = "".join(f"http://a.test/{n}\n" for n in range(9))
    assert len(parse_sitemap(lines.encode(), "http://a.test/").urls) == 3
    entries = "".join(f"<url><loc>http://a.test/{n}</loc></url>" for n in range(9))
    assert len(parse_sitemap(f"<urlset>{entries}".encode(), "http://a.test/").urls) == 3


def test_a_date_of_thousands_of_characters_is_ignored():
    assert SitemapUrl(loc="http://a.test/", lastmod="2" * 5000).changed_at is None
    assert SitemapUrl(loc="http://a.test/", lastmod="Sun, 06 Nov " + "1" * 5000).changed_at is None


ROWS = [json.loads(line) for line in (Path(__file__).parent / "sitemaps.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_what_sites_send_is_read_as_it_is_meant(row):
    """`by`: the standard that says so. "lenient": it is no XML or not the protocol, and each URL in it is clear."""
    body = base64.b64decode(row["base64"]) if "base64" in row else row["text"].encode()
    found = parse_sitemap(body, URL)
    short = [f"{one.loc} {one.lastmod}".strip() for one in found.urls] + [f"sitemap:{loc}" for loc in found.sitemaps]
    assert [text.replace("http://h.test", "") for text in short] == row["urls"]
    assert bool(found.flaw) == (row["by"] in ("cut", "no sitemap"))
    assert bool(found.left_out) == (row["by"] == "left out")
    assert ("more than a URL" in found.oddity) == (row["by"] == "mended")


def test_versions_in_other_languages_are_counted():
    link = '<xhtml:link rel="alternate" hreflang="{0}" href="/{0}/a"/>'
    text = "<urlset><url><loc>/a</loc>" + "".join(map(link.format, ("en", "de", "fr"))) + "</url></urlset>"
    assert parse_sitemap(text.encode(), URL).alternates == 3
    feed = "<feed><entry><link href='/a'/><link rel='alternate' hreflang='de' href='/de/a'/></entry></feed>"
    assert parse_sitemap(feed.encode(), URL).alternates == 1


def test_where_a_sitemap_stops_being_xml_is_said():
    body = f"<urlset>\n<url><loc>{URL}?a&b</loc></url>\n</urlset>".encode()
    assert parse_sitemap(body, URL).oddity == "it is no XML at line 2: not well-formed (invalid token)"
