"""What is signed, by the vectors of RFC 9421 (B.1.4, B.2.6), RFC 8037 (A.3) and Web Bot Auth; what sites ask for."""

from base64 import b64decode, b64encode, urlsafe_b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from crawler.rules.signatures import (
    ALGORITHM,
    ASKED_BYTES_MAX,
    Declined,
    Wish,
    base_of,
    components_of,
    member,
    parameters_of,
    thumbprint,
    wish_in,
)

PUBLIC = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"
PRIVATE = Ed25519PrivateKey.from_private_bytes(urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU="))
KEYID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"


def signed(base: bytes) -> str:
    return b64encode(PRIVATE.sign(base)).decode()


def test_thumbprints_are_those_of_the_standards() -> None:
    assert thumbprint(PUBLIC) == KEYID
    assert thumbprint("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo") == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_the_base_and_signature_of_rfc_9421_b26() -> None:
    components = (
        ("date", {}, "Tue, 20 Apr 2021 02:07:55 GMT"), ("@method", {}, "POST"), ("@path", {}, "/foo"),
        ("@authority", {}, "example.com"), ("content-type", {}, "application/json"), ("content-length", {}, "18"),
    )  # fmt: skip
    parameters = parameters_of(components, {"created": 1618884473, "keyid": "test-key-ed25519"})
    assert parameters == (
        '("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"'
    )
    expected = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    assert signed(base_of(components, parameters)) == expected
    assert member("sig-b26", b64decode(expected)) == f"sig-b26=:{expected}:"


BOTS = [
    (
        "", "sig1",
        "zIW8+cdmA3vdYagbxojpONwa/l0EKJ/O3/wD486VvsQjO/RxPaSt6ZxvQaMcQzNnqKN/mQ6hpGiFro2L2qkz5A==",
        "QKN4fTdIYfh82fvoZCQiQA1weuozfCS/Led2zTMbewMMqH8PI2Wsy/5c4ao6B6D09nraNQdBNOADg8aM1MqfCg==",
    ),
    (
        "https://signature-agent.test", "agent2",
        "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==",
        "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "label", "nonce", "expected"), BOTS)
def test_the_vectors_of_web_bot_auth(agent: str, label: str, nonce: str, expected: str) -> None:
    components = components_of("example.com", agent, label)
    values = {
        "created": 1735689600, "keyid": KEYID, "alg": ALGORITHM, "expires": 4889289600, "nonce": nonce,
        "tag": "web-bot-auth",
    }  # fmt: skip
    assert signed(base_of(components, parameters_of(components, values))) == expected


LONG = "a" * 65
WISHES: list[tuple[str, object]] = [
    ('sig1=("@authority");created;expires;keyid="K";tag="web-bot-auth"', Wish("sig1")),
    ('sig=("@authority" "signature-agent";key="sig");created;tag="web-bot-auth"', Wish("sig")),
    ('sig=("@authority" "signature-agent")', Wish("sig")),
    ("x=()", Wish("x")),
    ('a=("@authority");alg="ed25519";nonce="abc";tag="web-bot-auth"', Wish("a", "abc")),
    ('a=("@method");tag="web-bot-auth", b=("@authority");tag="web-bot-auth"', Wish("b")),
    ('a=("@authority");tag="another"', None),
    ("", None),
    ('a=("@authority" "@path");tag="web-bot-auth"', Declined("components")),
    ('a=("@authority";req)', Declined("components")),
    ('a=("signature-agent";key="b")', Declined("components")),
    ('a=("content-digest")', Declined("components")),
    ('a=("@authority");alg="rsa-pss-sha512"', Declined("key")),
    ('a=("@authority");keyid="other"', Declined("key")),
    ('a=("@authority");keyid=5', Declined("key")),
    ('a=("@authority");nonce', Declined("too long")),
    (f'a=("@authority");nonce="{"n" * 257}"', Declined("too long")),
    (f'{LONG}=("@authority")', Declined("too long")),
    ('a="@authority"', Declined("malformed")),
    ('a=("@authority"', Declined("malformed")),
    ("a=(1 2)", Declined("components")),
    ("a=(" + '"@authority" ' * 400 + ")", Declined("too long")),
    ("\x00\xff", Declined("malformed")),
    ("a=:====:", Declined("malformed")),
    ("a=@99999999999999999999999", Declined("malformed")),
    ('a=%"%zz"', Declined("malformed")),
]


@pytest.mark.parametrize(("field", "expected"), WISHES)
def test_what_a_site_asks_for(field: str, expected: object) -> None:
    assert wish_in(field.encode("latin-1"), covers_agent=True, keyids=("K", "L")) == expected


def test_a_signature_agent_is_covered_only_where_there_is_one() -> None:
    field = b'sig=("@authority" "signature-agent";key="sig")'
    assert wish_in(field, covers_agent=False, keyids=("K",)) == Declined("components")
    assert len(field) < ASKED_BYTES_MAX
