"""What the archive tells of TLS: version and cipher suite, by the names that the fields of WARC have for them."""

import ssl
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.warc import request_record, response_record
from crawler.web.tls import ResumingContext, names_of
from tests.support.hostile_server import Close, HostileServer
from tests.support.tls import Authority
from tests.web.fetching import HELLO, fetching, response_of

NAMES = {"*.test": ["127.0.0.1"]}
LAST = HELLO.replace(b"Content-Type", b"Connection: close\r\nContent-Type")
SUITES = [
    (ssl.TLSVersion.TLSv1_3, "", "tls/1.3", "TLS_AES_256_GCM_SHA384"),
    (
        ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", "tls/1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305", "tls/1.2",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
]  # fmt: skip


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize(("version", "cipher", "told", "suite"), SUITES)
async def test_a_response_has_version_and_suite_of_its_connection(
    authority: Authority, version: ssl.TLSVersion, cipher: str, told: str, suite: str
) -> None:
    context = authority.server(san="DNS:h.test")
    context.maximum_version = version
    if cipher:
        context.set_ciphers(cipher)
    async with HostileServer(LAST, Close(), tls=context) as server, fetching(table=NAMES) as fetcher:
        found = response_of(await fetcher.fetch(f"https://h.test:{server.port}/"))
    assert (found.tls_version, found.cipher_suite) == (told, suite)
    fields = f"WARC-Protocol: http/1.1\r\nWARC-Protocol: {told}\r\nWARC-Cipher-Suite: {suite}\r\n".encode()
    assert fields in response_record(found, "<urn:uuid:x>")[0]
    assert b"WARC-Protocol" not in request_record(found, "<urn:uuid:y>", "<urn:uuid:x>")
    unknown = response_record(replace(found, cipher_suite=""), "<urn:uuid:x>")[0]
    assert b"WARC-Cipher-Suite" not in unknown


async def test_without_tls_the_status_line_tells_all() -> None:
    async with HostileServer(LAST, Close()) as server, fetching(table=NAMES) as fetcher:
        found = response_of(await fetcher.fetch(f"http://h.test:{server.port}/"))
    assert (found.tls_version, found.cipher_suite) == ("", "")
    assert b"WARC-Protocol" not in response_record(found, "<urn:uuid:x>")[0]


class Connected:
    """A connection with a cipher of this name."""

    def __init__(self, name: str, version: str | None = "TLSv1.2") -> None:
        self._name, self._version = name, version

    def version(self) -> str | None:
        return self._version

    def cipher(self) -> tuple[str, str, int] | None:
        return (self._name, "", 128) if self._name else None


def test_each_suite_that_we_offer_has_a_name() -> None:
    for one in ResumingContext.create(insecure=True).get_ciphers():
        tls: Any = Connected(one["name"])
        assert names_of(tls)[1].startswith("TLS_"), one["name"]


@pytest.mark.parametrize(("name", "version"), [("ADH-AES128-SHA", "TLSv1.2"), ("", None), ("x", "SSLv3")])
def test_what_has_no_known_name_is_left_out(name: str, version: str | None) -> None:
    tls: Any = Connected(name, version)
    assert names_of(tls)[1] == ""
    assert names_of(tls)[0] in ("", "tls/1.2")
