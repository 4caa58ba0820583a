"""Signatures of requests: for whom they are made, how long they are used, and what sites that ask for them get."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from crawler.errors import CrawlerError, UsageError
from crawler.model import Request
from crawler.settings import ArchiveSettings, DnsSettings, FetchSettings, IdentitySettings, Settings, SiteSettings
from crawler.views.identity import make_key_file, renew_key_file
from crawler.web import signing
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.web.signing import EARLY_S, EXPIRES_S, KEPT_OUT, Signer
from crawler.web.signing_keys import SigningKeys, read_keys
from tests.support.dns_server import DnsAnswer, DnsServer
from tests.support.hostile_server import HostileServer
from tests.support.signing_site import SigningSite, headers_of, verified, verified_by_library
from tests.support.tls import Authority
from tests.support.web_proxy import WebProxy
from tests.web.fetching import HELLO, response_of

AGENT = "https://bot.example"
ASK = b"HTTP/1.1 401 Unauthorized\r\nAccept-Signature: %s\r\nContent-Length: 2\r\n\r\nno"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "bot.key")
    make_key_file(path, 1_790_000_000)
    return path


def known(path: str) -> dict[str, str]:
    return {key.kid: key.x for key in read_keys(path).keys}


def signer_of(path: str, clock: Clock, **identity: object) -> Signer:
    values = {"sign": "always", "key_file": path, "agent": AGENT} | identity
    return Signer(msgspec.convert(values, IdentitySettings), read_keys(path), clock=clock)


def sent_by(signer: Signer, authority: str = "a.test") -> bytes:
    lines = signer.lines(authority)
    return b"" if lines is None else b"GET / HTTP/1.1\r\nHost: " + authority.encode() + b"\r\n" + lines.sent


@asynccontextmanager
async def fetching(
    key_file: str,
    *,
    sites: tuple[SiteSettings, ...] = (),
    secrets: bool = False,
    proxy: str = "",
    insecure_tls: bool = False,
    **identity: object,
) -> AsyncIterator[Fetcher]:
    values = {"sign": "always", "key_file": key_file, "agent": AGENT} | identity
    async with DnsServer({"*.test": DnsAnswer(addresses=("127.0.0.1",))}) as dns:
        settings = Settings(
            fetch=FetchSettings(allow_private=True, total_timeout_s=5.0, proxy=proxy, insecure_tls=insecure_tls),
            dns=DnsSettings(nameservers=(dns.address,), timeout_s=1.0, tries=1),
            identity=msgspec.convert(values, IdentitySettings),
            archive=ArchiveSettings(request_secrets=secrets),
            sites=sites,
        )
        resolver = CachingResolver(settings.dns, allow_private=True)
        async with Fetcher(settings, resolver=resolver, version="9.9") as fetcher:
            yield fetcher
        await resolver.close()


# --- one signer ---


@pytest.mark.parametrize("agent", [AGENT, ""])
@pytest.mark.parametrize("nonce", [False, True])
@pytest.mark.parametrize("authority", ["a.test", "a.test:8080", "xn--bcher-kva.example", "[::1]:81", "192.0.2.1"])
def test_two_verifiers_take_what_is_signed(key_file: str, agent: str, nonce: bool, authority: str) -> None:
    clock = Clock()
    clock.now_s = time.time()  # the library has no other clock
    head, keys = sent_by(signer_of(key_file, clock, agent=agent, nonce=nonce), authority), known(key_file)
    assert verified(head, keys, clock.now_s) in keys
    assert verified_by_library(head, keys) == list(keys)
    assert (b"Signature-Agent" in head) == bool(agent)
    with pytest.raises(ValueError, match="does not fit"):
        verified(head.replace(authority.encode(), b"evil.test"), keys, clock.now_s)


def test_a_signature_is_used_for_half_of_its_life_and_for_one_authority(key_file: str) -> None:
    clock = Clock()
    signer = signer_of(key_file, clock)
    first = sent_by(signer)
    clock.now_s += EXPIRES_S / 2 - 1
    assert sent_by(signer) == first
    assert verified(first, known(key_file), clock.now_s + EXPIRES_S / 2 - EARLY_S)
    assert signer.lines("b.test") != signer.lines("a.test")
    clock.now_s += 1
    second = sent_by(signer)
    assert second != first
    clock.now_s -= EXPIRES_S  # a clock that is set back: one of the future is not sent
    third = sent_by(signer)
    assert third not in (first, second)
    assert verified(third, known(key_file), clock.now_s)


def test_a_nonce_makes_each_signature_another(key_file: str) -> None:
    signer = signer_of(key_file, Clock(), nonce=True)
    assert len({sent_by(signer) for _ in range(20)}) == 20


def test_memory_is_bounded(key_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "SIGNED_MAX", 100)
    monkeypatch.setattr(signing, "ASKED_MAX", 50)
    signer = signer_of(key_file, Clock())
    for number in range(1000):
        signer.lines(f"h{number}.test")
        signer.answered(f"h{number}.test", 401, b'sig1=("@authority")', was_signed=False)
        signer.answered(f"h{number}.test", 401, b'sig1=("@path")', was_signed=True)
        signer.lines(f"h{number}.test")
    sizes = [len(value) for value in vars(signer).values() if isinstance(value, dict)]
    assert sorted(sizes)[-3:] == [50, 50, 100]


def test_a_renewed_key_is_taken_up_and_signs_from_its_time_on(key_file: str) -> None:
    clock = Clock()
    signer, (old,) = signer_of(key_file, clock), known(key_file)
    assert verified(sent_by(signer), known(key_file), clock.now_s) == old
    _, new = renew_key_file(key_file, clock.now_s, after_s=600)
    clock.now_s += signing.LOOK_S + 1
    assert verified(sent_by(signer), known(key_file), clock.now_s) == old
    clock.now_s += 590
    assert verified(sent_by(signer), known(key_file), clock.now_s) == old
    clock.now_s += 10
    assert verified(sent_by(signer), known(key_file), clock.now_s) == new.kid
    assert signer.keyid == new.kid


def test_a_key_file_that_is_gone_or_damaged_stops_no_running_crawl(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, secret = Clock(), read_keys(key_file).keys[0].d
    signer = signer_of(key_file, clock)
    for damage in (
        lambda: Path(key_file).unlink(), lambda: Path(key_file).write_text(secret), lambda: Path(key_file).chmod(0o644),
    ):  # fmt: skip
        damage()
        clock.now_s += EXPIRES_S
        assert sent_by(signer)
    assert secret not in caplog.text + repr(signer.__dict__)
    assert "identity.key_file" in caplog.text


# --- sites that ask ---


def test_only_who_asks_gets_a_signature(key_file: str) -> None:
    signer = signer_of(key_file, Clock(), sign="asked")
    assert signer.lines("a.test") is None
    assert signer.answered("a.test", 401, b'mine=("@authority");tag="web-bot-auth"', was_signed=False)
    assert b"Signature-Input: mine=(" in sent_by(signer)
    assert signer.lines("b.test") is None
    assert not signer.answered("b.test", 200, b'sig1=("@authority")', was_signed=False)  # later ones have it
    assert b"Signature: sig1=:" in sent_by(signer, "b.test")


def test_what_we_do_not_sign_is_declined_and_counted_once_an_authority(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    signer = signer_of(key_file, Clock(), sign="asked")
    for _ in range(3):
        for field in (b'a=("@path")', b"\xff", b"x" * 5000, b'a=("@authority");alg="hmac-sha256"'):
            assert not signer.answered(f"h{len(field)}.test", 403, field, was_signed=False)
    assert signer.lines("h1.test") is None
    assert caplog.text.count("identity.declined") == 4


def test_a_site_that_asks_each_time_gets_no_more_requests_for_that(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    signer = signer_of(key_file, Clock())
    for _ in range(3):
        assert not signer.answered("a.test", 401, b'sig1=("@authority")', was_signed=True)
    assert caplog.text.count("identity.refused") == 1


def test_a_nonce_of_the_site_is_used_once(key_file: str) -> None:
    signer = signer_of(key_file, Clock(), sign="asked")
    assert signer.answered("a.test", 401, b'sig1=("@authority");nonce="n-1"', was_signed=False)
    assert b';nonce="n-1"' in sent_by(signer)
    assert b"nonce" not in sent_by(signer)
    assert not signer.answered("a.test", 401, b'sig1=("@authority");nonce="n-2"', was_signed=True)
    assert b';nonce="n-2"' in sent_by(signer)


# --- requests ---


async def test_the_archive_has_all_of_a_signature_but_itself(key_file: str) -> None:
    async with HostileServer(HELLO) as server:
        async with fetching(key_file) as fetcher:
            kept = response_of(await fetcher.fetch(server.url)).request_head
        async with fetching(key_file, secrets=True) as fetcher:
            assert response_of(await fetcher.fetch(server.url)).request_head == server.requests[1]
        sent = server.requests[0]
    assert verified(sent, known(key_file), time.time())
    assert headers_of(kept) == headers_of(sent) | {"signature": KEPT_OUT}


async def test_a_site_that_asks_gets_one_more_request(key_file: str) -> None:
    def page(host: str, path: str) -> tuple[str, str]:
        return "", "hello"

    async with SigningSite(page, known(key_file)) as site, fetching(key_file, sign="asked") as fetcher:
        asked = await fetcher.fetch(site.url("a.test"))
        assert asked.wants_signature
        assert response_of(asked).status == 401
        for path in ("/", "/b"):
            done = await fetcher.fetch(site.url("a.test", path))
            assert (response_of(done).status, done.wants_signature) == (200, False)
        assert site.refused == {"a.test": 1}
        assert not site.faults


async def test_what_must_not_be_repeated_is_not(key_file: str) -> None:
    async def note() -> None:
        await asyncio.sleep(0)

    async with HostileServer(ASK % b'a=("@authority")') as server, fetching(key_file, sign="asked") as fetcher:
        sent = await fetcher.fetch(server.url, request=Request(method="POST", body=b"x"), note_sent=note)
        assert not sent.wants_signature
        await fetcher.fetch(server.url)
        assert [b"Signature:" in head for head in server.requests] == [False, True]


async def test_a_request_with_a_signature_of_its_own_keeps_it(key_file: str) -> None:
    async with HostileServer(HELLO) as server, fetching(key_file) as fetcher:
        await fetcher.fetch(server.url, request=Request(headers={"sIGNATURE": "own=:AA==:"}))
        assert b"Signature-Input" not in server.requests[0]
        assert b"sIGNATURE: own=:AA==:" in server.requests[0]


async def test_a_huge_ask_fails_no_other_url(key_file: str) -> None:
    async with (
        HostileServer(HELLO, by_path={"/x": [ASK % (b'a=("@authority" ' + b'"@path" ' * 130_000 + b")")]}) as server,
        fetching(key_file, sign="asked") as fetcher,
    ):
        assert (await fetcher.fetch(server.url + "x")).failure is not None  # more headers than are read
        assert response_of(await fetcher.fetch(server.url)).status == 200


ASKS = [
    b"\xff\x80", b"a=(", b'a=("@path")', b'a=("@authority");keyid="other"', b'a=("@authority");alg="rsa-v1_5-sha256"',
    b"x" * 5000, b'a=("@authority")', b'b=("@authority")', b'c=("@authority");nonce="1"', b'c=("@authority");nonce="2"',
    b'd=("signature-agent";key="d")', b"e=()", b'f=("@authority";sf)', b"sig1", b"a=1, a=2", b"",
]  # fmt: skip


async def test_a_site_that_asks_for_anything_gets_one_more_request(key_file: str) -> None:
    """Whatever it asks for, with each answer: no request leads to two more, and each signature is of us, for it."""
    async with HostileServer(b"") as server, fetching(key_file, sign="asked") as fetcher:
        server._per_request = [[ASK % one] for one in ASKS for _ in range(3)]
        results = [await fetcher.fetch(server.url) for _ in range(3 * len(ASKS))]
        assert sum(one.wants_signature for one in results) == 1
        assert {response_of(one).status for one in results} == {401}
        for head in server.requests:
            assert verified(head, known(key_file), time.time()) in ("", *known(key_file))


async def test_the_origin_and_not_the_proxy_gets_the_signature(key_file: str) -> None:
    async with (
        HostileServer(HELLO) as server,
        WebProxy("http") as proxy,
        fetching(key_file, proxy=proxy.url) as fetcher,
    ):
        await fetcher.fetch(server.url)
        assert verified(server.requests[0], known(key_file), time.time())


async def test_a_connect_has_no_signature(key_file: str, tmp_path: Path) -> None:
    tls = Authority(tmp_path).server(san="DNS:h.test")
    async with HostileServer(HELLO, tls=tls) as server, WebProxy("http") as proxy:
        async with fetching(key_file, proxy=proxy.url, insecure_tls=True) as fetcher:
            await fetcher.fetch(server.url)
        assert len(proxy.heads) == 1
        assert b"ignature" not in proxy.heads[0]
        assert verified(server.requests[0], known(key_file), time.time())


async def test_a_replay_needs_no_key() -> None:
    settings = Settings(fetch=FetchSettings(gateway="127.0.0.1:9"), identity=IdentitySettings(sign="always"))
    assert Signer.of(settings) is None


# --- key files ---


def test_key_files_that_are_no_good_get_one_line(tmp_path: Path, key_file: str) -> None:
    secret = read_keys(key_file).keys[0].d
    good = Path(key_file).read_text()
    cases: dict[str, str | None] = {
        "none": None, "empty": "", "no json": secret, "no keys": '{"keys":[]}', "cut": good[:-20],
        "other key": good.replace(secret, "A" * 43), "other kind": good.replace("Ed25519", "Ed448"),
        "list": f'["{secret}"]', "no base64": good.replace(secret, "!" * 43), "huge": " " * 100_000 + good,
    }  # fmt: skip
    for name, content in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
            path.chmod(0o600)
        with pytest.raises(UsageError) as raised:
            read_keys(str(path))
        assert "\n" not in str(raised.value), name
        assert secret not in str(raised.value), name
    Path(key_file).chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        read_keys(key_file)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (str(tmp_path), str(tmp_path / "loop"), "~nobody-of-that-name/key", str(tmp_path / "loop" / "key")):
        for read in (read_keys, lambda path: make_key_file(path, 0.0)):
            with pytest.raises(CrawlerError) as raised:
                read(path)
            assert "\n" not in str(raised.value)


def test_nothing_that_is_logged_has_the_key(key_file: str, caplog: pytest.LogCaptureFixture) -> None:
    keys: SigningKeys = read_keys(key_file)
    logging.getLogger("x").warning("%r %s", keys, keys.keys[0])
    assert keys.keys[0].d not in caplog.text


def test_a_key_file_is_never_overwritten_and_for_its_owner_alone(key_file: str, tmp_path: Path) -> None:
    before = Path(key_file).read_bytes()
    with pytest.raises(UsageError, match="exists"):
        make_key_file(key_file, 0)
    assert Path(key_file).read_bytes() == before
    assert Path(key_file).stat().st_mode & 0o777 == 0o600
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "crawl.json").write_text("{}")
    with pytest.raises(UsageError, match="inside of the crawl folder"):
        make_key_file(str(tmp_path / "c" / "bot.key"), 0)
    renew_key_file(key_file, time.time(), after_s=0)
    assert Path(key_file).stat().st_mode & 0o777 == 0o600
    assert len(read_keys(key_file).keys) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bot.key", "c"]
