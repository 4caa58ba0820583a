"""Visible text and digests."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.archive.warc import payload_digest
from crawler.content.html import extract_text
from crawler.content.main_text import main_text


def test_text_is_what_a_reader_sees_block_by_block():
    body = (
        b"<title>T</title><style>s{}</style><h1>Head  line</h1><p>One <b>bold</b>\nword<br>next"
        b"<script>x()</script><noscript>no</noscript><ul><li>a<li>b</ul><template>t</template><!-- c -->"
    )
    assert extract_text(body, "utf-8") == "Head line\nOne bold word\nnext\na\nb"


def test_text_of_shadow_roots_follows_that_of_the_document():
    body = (
        b"<div><template shadowrootmode=open>in<p>a<svg><template></template></svg><section><template shadowrootmode="
    )
    body += (
        b"closed><b>deep</b><script>x()</script></template></section></template>light</div><template>none</template>"
    )
    assert extract_text(body, "utf-8") == "light\nin\na\ndeep"


def test_text_is_read_in_the_given_encoding():
    assert extract_text("<p>été".encode("cp1252"), "cp1252") == "été"
    assert extract_text(b"", "utf-8") == ""
    assert extract_text(b"<p>\xff", "utf-8") == "\ufffd"


def test_digests_are_spelled_as_archives_spell_them():
    assert payload_digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


@given(st.binary(), st.binary())
def test_a_digest_is_the_base_32_of_sha_1_whether_or_not_a_head_is_given_apart(head: bytes, body: bytes):
    expected = "sha1:" + base64.b32encode(hashlib.sha1(head + body).digest()).decode()
    assert payload_digest(head + body) == payload_digest(body, after=head) == expected


def test_main_text_is_the_article_without_what_stands_around_it():
    pytest.importorskip("resiliparse", reason="resiliparse is not installed")
    article = "".join(
        f"<p>Sentence {n} of the story tells something that its readers want to know.</p>" for n in range(9)
    )
    body = (
        "<html><body><nav><ul><li><a href=/>Home</a></li><li><a href=/about>About us</a></li></ul></nav>"
        f"<main><article><h1>A story</h1>{article}</article></main><footer>Copyright by nobody</footer></body></html>"
    )
    found = main_text(body.encode("utf-16"), "utf-16")
    assert found.count("Sentence") == 9
    assert "About us" not in found
    assert "Copyright" not in found
    assert main_text(b"", "utf-8") == ""
