"""Our own network fails, or seems to: a table of what fails, and whose fault it is said to be."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.model import FailureKind
from crawler.rules import outage
from crawler.settings import load
from crawler.web import fetcher as fetcher_module
from crawler.web import resolver as resolver_module
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver, LookupFailedError
from tests.support.dns_server import NXDOMAIN, REFUSED, SERVFAIL, DnsAnswer, DnsServer
from tests.support.hostile_server import HostileServer

HERE = ("127.0.0.1",)
SILENT, BROKEN, REFUSES = DnsAnswer(silent=True), DnsAnswer(rcode=SERVFAIL), DnsAnswer(rcode=REFUSED)
ABSENT = DnsAnswer(rcode=NXDOMAIN)
KNOWN = ("a.test", "b.test", "c.test")


class Net:
    """A resolver and web servers that can be switched off."""

    def __init__(self, dns: DnsServer, fetcher: Fetcher) -> None:
        self.dns, self.fetcher = dns, fetcher
        self._server: asyncio.Server | None = None
        self.port = 0

    async def serve(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    def url(self, host: str) -> str:
        return f"http://{host}:{self.port}/"

    async def fetched(self, *hosts: str) -> None:
        """These answer, which is noted as an instance does."""
        for host in hosts:
            result = await self.fetcher.fetch(self.url(host))
            assert result.response is not None, result.failure
            self.fetcher.note_answer(self.url(host), host, 0)

    def is_silent(self) -> None:
        """No DNS server answers, and nobody waits for long."""
        self.dns.table = {"*": SILENT}
        resolver = self.fetcher._resolver
        resolver._settings = replace(resolver._settings, timeout_s=0.2)

    async def kind_of(self, host: str) -> FailureKind | None:
        result = await self.fetcher.fetch(self.url(host))
        return result.failure.kind if result.failure is not None else None

    async def back(self) -> None:
        """Look until nothing is awaited."""
        network = self.fetcher.network
        async with asyncio.timeout(20):
            while network.is_away:
                network.look()
                await asyncio.sleep(0.01)


@pytest.fixture
async def net(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Net]:
    monkeypatch.setattr(outage, "PAUSES", outage.Policy(attempts=1, backoff_s=0.05, factor=1.0, max_s=0.05))
    options: dict[str, Any] = {"fetch.allow_private": True, "dns.timeout_s": 10.0, "dns.tries": 1}
    async with DnsServer(dict.fromkeys((*KNOWN, "new.test", "d.test"), HERE)) as dns:
        settings = load(environment={}, options=options | {"dns.nameservers": [dns.address]})
        resolver = CachingResolver(settings.dns, allow_private=True)
        async with Fetcher(settings, resolver=resolver, version="1") as fetcher:
            made = Net(dns, fetcher)
            await made.serve()
            try:
                yield made
            finally:
                await made.stop()
        await resolver.close()


# What the DNS servers say from some moment on, who answered before, and whose fault that a new name can't be resolved.
OURS, THEIRS = FailureKind.NETWORK, FailureKind.DNS_ERROR
NAMES: dict[str, tuple[dict[str, DnsAnswer], tuple[str, ...], FailureKind]] = {
    "silent": ({"*": SILENT}, KNOWN, OURS),
    "a forwarder whose uplink is away": ({"*": BROKEN}, KNOWN, OURS),
    "it refuses everything": ({"*": REFUSES}, KNOWN, OURS),
    "silent, and two known": ({"*": SILENT}, KNOWN[:2], THEIRS),
    "silent, and none known: at the very start": ({"*": SILENT}, (), THEIRS),
    "this name alone": ({"new.test": BROKEN, "*": DnsAnswer(addresses=HERE)}, KNOWN, THEIRS),
    "all but one of those known": (
        {"*": BROKEN, "b.test": DnsAnswer(addresses=HERE)}, KNOWN, THEIRS,
    ),
    "that a known name does not exist is an answer": ({"*": BROKEN, "c.test": ABSENT}, KNOWN, THEIRS),
    "that no name exists is an answer": ({"*": ABSENT}, KNOWN, FailureKind.DNS_NOT_FOUND),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
async def test_whose_fault_it_is_that_a_name_can_not_be_resolved(case: str, net: Net) -> None:
    table, known, kind = NAMES[case]
    await net.fetched(*known)
    net.dns.table = table
    if table == {"*": SILENT}:
        net.is_silent()
    assert await net.kind_of("new.test") is kind
    assert bool(net.fetcher.network.trouble) == (kind is OURS)
    assert (net.fetcher.own_wait_ms(net.url("other.test")) > 0) == (kind is OURS), "names that are not known wait"
    for name in known:
        assert net.fetcher.own_wait_ms(net.url(name)) == 0, "a name that is known needs no DNS server"


PORTAL, OTHER = "10.0.0.1", "10.0.0.2"
REFUSED_KIND = FailureKind.ADDRESS_REFUSED
# As above, of a resolver whose network wants a login first: it sends every name to one address of its own.
PORTALS: dict[str, tuple[dict[str, Sequence[str]], tuple[str, ...], FailureKind | None]] = {
    "every name": ({"*": [PORTAL]}, KNOWN, OURS),
    "every name, with two addresses": ({"*": [PORTAL, "fd00::1"]}, KNOWN, OURS),
    "every name, and two known": ({"*": [PORTAL]}, KNOWN[:2], REFUSED_KIND),
    "every name, and none known: at the very start": ({"*": [PORTAL]}, (), REFUSED_KIND),
    "this name alone": ({"new.test": [PORTAL], "*": HERE}, KNOWN, REFUSED_KIND),
    "all but one of those known": ({"*": [PORTAL], "b.test": HERE}, KNOWN, REFUSED_KIND),
    "each name another address": (
        {"*": [PORTAL], "a.test": [OTHER], "b.test": ["10.0.0.3"], "c.test": ["10.0.0.4"]}, KNOWN, REFUSED_KIND,
    ),
    "one known name another private address": ({"*": [PORTAL], "a.test": [OTHER]}, KNOWN, REFUSED_KIND),
    "no other name exists": ({"new.test": [PORTAL]}, KNOWN, REFUSED_KIND),
    "a public address for every name: a search page": ({"*": HERE}, KNOWN, None),
}  # fmt: skip


@pytest.fixture
async def guarded(net: Net, monkeypatch: pytest.MonkeyPatch) -> Net:
    """The servers are at a public address, as far as the guard knows."""
    for module in (resolver_module, fetcher_module):
        monkeypatch.setattr(module, "is_public", lambda address: address in HERE)
    net.fetcher._resolver._allow_private = False
    return net


@pytest.mark.parametrize("case", PORTALS)
async def test_whose_fault_it_is_that_a_name_leads_to_a_private_address(case: str, guarded: Net) -> None:
    table, known, kind = PORTALS[case]
    await guarded.fetched(*known)
    guarded.dns.table = {name: DnsAnswer(addresses=addresses) for name, addresses in table.items()}
    assert await guarded.kind_of("new.test") is kind
    trouble = guarded.fetcher.network.trouble
    assert trouble.startswith("all names lead to 10.0.0.1") == (kind is OURS), trouble
    assert bool(trouble) == (kind is OURS)
    assert [await guarded.kind_of(name) for name in ("other.test", "new.test")] == [
        FailureKind.DNS_NOT_FOUND if "no other" in case else kind if "this name" not in case else None, kind,
    ]  # fmt: skip


async def test_after_the_login_names_lead_where_they_did(guarded: Net) -> None:
    await guarded.fetched(*KNOWN)
    before, guarded.dns.table = guarded.dns.table, {"*": DnsAnswer(addresses=[PORTAL])}
    assert await guarded.kind_of("new.test") is OURS
    await asyncio.sleep(0)
    guarded.fetcher.network.look()
    assert guarded.fetcher.network.is_away, "the answers with its address end nothing"
    guarded.dns.table = before
    await guarded.back()
    assert await guarded.kind_of("new.test") is None


async def test_a_resolver_that_is_silent_first_and_a_portal_then_is_one_outage(guarded: Net) -> None:
    await guarded.fetched(*KNOWN)
    before, guarded.dns.table = guarded.dns.table, {"*": BROKEN}
    kinds = [await guarded.kind_of("new.test")]
    guarded.dns.table = {"*": DnsAnswer(addresses=[PORTAL])}
    for _ in range(20):
        guarded.fetcher.network.look()
        await asyncio.sleep(0.02)
        kinds.append(await guarded.kind_of("new.test"))
    assert set(kinds) == {OURS}
    guarded.dns.table = before
    await guarded.back()
    assert await guarded.kind_of("new.test") is None


# Of sixteen that answered before, who fails when they are asked, and when these are asked again: is it ours?
FLAPS: dict[str, tuple[int, int, FailureKind]] = {
    "most fail, then others": (14, 3, OURS),
    "most fail, then all answer": (14, 0, OURS),
    "the same fail again": (14, 14, THEIRS),
    "few fail, then none": (5, 0, THEIRS),
}


@pytest.mark.parametrize("case", FLAPS)
async def test_servers_that_answer_now_and_then_are_at_fault_and_names_that_never_do_are(case: str, net: Net) -> None:
    failing, again, kind = FLAPS[case]
    names = [f"w{number}.test" for number in range(16)]
    net.dns.table = {"*": DnsAnswer(addresses=HERE)}
    await net.fetched(*names)
    asked = Counter[str]()

    def answer(name: str) -> DnsAnswer:
        asked[name] += 1
        fails = name == "new.test" or len(asked) <= (failing + 1 if asked[name] == 1 else 0)
        fails = fails or (asked[name] > 1 and list(asked).index(name) <= again)
        return BROKEN if fails else DnsAnswer(addresses=HERE)

    net.dns.answer_for = answer  # type: ignore[method-assign]
    assert await net.kind_of("new.test") is kind
    assert bool(net.fetcher.network.trouble) == (kind is OURS)


async def test_a_name_that_failed_just_before_the_end_of_an_outage_is_looked_up_again(net: Net) -> None:
    await net.fetched(*KNOWN)
    before, net.dns.table = net.dns.table, {"*": BROKEN}
    assert await net.kind_of("new.test") is OURS
    resolver, raised = net.fetcher._resolver, LookupFailedError(THEIRS, "it failed when none answered")
    net.dns.table = before
    await net.back()
    lookup = resolver.lookup

    async def late(host: str) -> tuple[str, ...]:
        resolver.lookup = lookup  # type: ignore[method-assign]
        raise raised

    resolver.lookup = late  # type: ignore[method-assign]
    assert await net.kind_of("new.test") is None


async def test_names_are_looked_up_again_once_a_server_answers(net: Net) -> None:
    await net.fetched(*KNOWN)
    before, net.dns.table = net.dns.table, {"*": BROKEN}
    assert await net.kind_of("new.test") is OURS
    net.dns.table = before
    await net.back()
    assert await net.kind_of("new.test") is None, "the failure is not cached"


async def test_one_of_two_resolvers_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async with DnsServer({"*.test": HERE}) as good, DnsServer({"*": SILENT}) as silent:
        settings = load(
            environment={},
            options={
                "fetch.allow_private": True, "dns.timeout_s": 0.5, "dns.tries": 8,
                "dns.nameservers": [silent.address, good.address],
            },
        )  # fmt: skip
        resolver = CachingResolver(settings.dns, allow_private=True)
        async with Fetcher(settings, resolver=resolver, version="1") as fetcher:
            for name in KNOWN:
                fetcher.note_answer(f"http://{name}/", name, 0)
            assert await fetcher.address_of("http://new.test/") == "127.0.0.1"
            assert not fetcher.network.trouble
        await resolver.close()


async def test_a_way_to_no_host_is_our_network(net: Net) -> None:
    await net.fetched(*KNOWN, "new.test")
    await net.stop()
    assert await net.kind_of("new.test") is OURS
    assert net.fetcher.own_wait_ms(net.url("d.test")) > 0
    assert "no host answers" in net.fetcher.network.trouble
    await net.serve()
    await net.back()
    assert await net.kind_of("new.test") is None


async def test_three_that_die_together_do_not_hold_up_who_was_not_asked_yet(net: Net) -> None:
    await net.fetched(*KNOWN)
    async with HostileServer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as innocent:
        await net.stop()
        assert await net.kind_of(KNOWN[0]) is OURS
        waits = f"http://new.test:{innocent.port}/"
        assert net.fetcher.own_wait_ms(waits) > 0
        await net.back()
        assert net.fetcher.own_wait_ms(waits) == 0
        assert await net.kind_of(KNOWN[0]) is FailureKind.CONNECT, "somebody can be reached now"
        assert not net.fetcher.network.trouble


async def test_an_answer_about_any_name_shows_that_a_dns_server_answers(net: Net) -> None:
    await net.fetched(*KNOWN)
    net.dns.table = {"new.test": DnsAnswer(addresses=HERE), "*": BROKEN}
    assert await net.kind_of("x.a.test") is OURS
    assert await net.kind_of("new.test") is None, "names that wait are looked up, too"
    net.fetcher.network.look()
    assert not net.fetcher.network.trouble


@pytest.mark.parametrize("known", [KNOWN[:2], ()])
async def test_few_domains_are_judged_one_by_one(known: tuple[str, ...], net: Net) -> None:
    await net.fetched(*known)
    await net.stop()
    assert await net.kind_of("new.test") is FailureKind.CONNECT
    assert not net.fetcher.network.trouble


async def test_a_host_that_is_away_is_at_fault_while_others_answer(net: Net) -> None:
    """Also where these have nothing more to fetch: then one of them is asked."""
    await net.fetched(*KNOWN)
    asked = net.dns.queries.copy()
    dead = f"http://new.test:{net.port + 1 if net.port < 65_535 else 1}/"
    for _ in range(3):
        result = await net.fetcher.fetch(dead)
        assert result.failure is not None
        assert result.failure.kind is FailureKind.CONNECT
    assert not net.fetcher.network.trouble
    assert [name for name, _ in net.dns.queries[len(asked) :] if name in KNOWN] == [], "by its address"


async def test_waiters_share_a_check_and_may_be_cancelled(net: Net) -> None:
    await net.fetched(*KNOWN, "new.test")
    net.is_silent()
    tasks = [asyncio.create_task(net.kind_of(f"n{n}.test")) for n in range(30)]
    await asyncio.sleep(0.25)
    tasks[0].cancel()
    kinds = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(kinds[0], asyncio.CancelledError)
    assert set(kinds[1:]) == {OURS}
    assert max(net.dns.asked(name) for name in KNOWN) <= 3
