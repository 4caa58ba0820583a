import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.model import FailureKind
from crawler.settings import DnsSettings
from crawler.web import resolver as of_names
from crawler.web.resolver import BURST_MAX, CachingResolver, LookupFailedError, LookupTurns
from tests.support.dns_server import AAAA, NXDOMAIN, REFUSED, SERVFAIL, DnsAnswer, DnsServer, Table
from tests.support.patience import PATIENCE_S


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def resolving(
    table: Table, *, allow_private: bool = True, clock: Clock | None = None, tcp: bool = False, **dns: float
) -> AsyncIterator[tuple[CachingResolver, DnsServer]]:
    is_silent = any(isinstance(one, DnsAnswer) and (one.silent or one.delay_s > 1) for one in table.values())
    async with DnsServer(table, tcp=tcp) as server:
        timeout_s = 0.3 if is_silent else PATIENCE_S  # a server that answers may be slow on a busy machine
        settings = DnsSettings(nameservers=(server.address,), **{"timeout_s": timeout_s, "tries": 1, **dns})
        resolver = CachingResolver(settings, allow_private=allow_private, clock=clock or Clock())
        try:
            yield resolver, server
        finally:
            await resolver.close()


async def kind_of(resolver: CachingResolver, host: str) -> FailureKind:
    with pytest.raises(LookupFailedError) as caught:
        await resolver.lookup(host)
    return caught.value.kind


async def test_a_name_is_looked_up_once_and_then_known() -> None:
    async with resolving({"*.test": ["127.0.0.7"]}) as (resolver, server):
        assert resolver.cached("a.test") is None
        assert await resolver.lookup("a.test") == ("127.0.0.7",)
        assert await resolver.lookup("a.test") == ("127.0.0.7",)
        assert resolver.cached("a.test") == ("127.0.0.7",)
        assert server.asked("a.test") == 1


async def test_concurrent_callers_share_one_lookup() -> None:
    async with resolving({"slow.test": DnsAnswer(addresses=["127.0.0.7"], delay_s=0.05)}) as (resolver, server):
        answers = await asyncio.gather(*(resolver.lookup("slow.test") for _ in range(50)))
        assert set(answers) == {("127.0.0.7",)}
        assert server.asked("slow.test") == 1


async def test_a_cancelled_caller_does_not_cancel_the_lookup_of_others() -> None:
    async with resolving({"slow.test": DnsAnswer(addresses=["127.0.0.7"], delay_s=0.1)}) as (resolver, server):
        impatient = asyncio.create_task(resolver.lookup("slow.test"))
        patient = asyncio.create_task(resolver.lookup("slow.test"))
        await asyncio.sleep(0.03)
        impatient.cancel()
        assert await patient == ("127.0.0.7",)
        assert server.asked("slow.test") == 1


@pytest.mark.parametrize(("ttl", "lives_s"), [(0, 60), (90, 90), (2**31 - 1, 3600), (59, 60), (3601, 3600)])
async def test_an_answer_lives_as_long_as_its_ttl_within_the_bounds(ttl: int, lives_s: int) -> None:
    clock = Clock()
    async with resolving({"a.test": DnsAnswer(addresses=["127.0.0.7"], ttl=ttl)}, clock=clock) as (resolver, _):
        await resolver.lookup("a.test")
        clock.now += lives_s - 0.5
        assert resolver.cached("a.test") == ("127.0.0.7",)
        clock.now += 1
        assert resolver.cached("a.test") is None


async def test_an_expired_answer_is_asked_for_again() -> None:
    clock = Clock()
    rule = DnsAnswer(times=[["127.0.0.7"], ["127.0.0.8"]], ttl=0)
    async with resolving({"a.test": rule}, clock=clock) as (resolver, server):
        assert await resolver.lookup("a.test") == ("127.0.0.7",)
        clock.now += 61
        assert await resolver.lookup("a.test") == ("127.0.0.8",)
        assert server.asked("a.test") == 2


async def test_no_other_cache_keeps_answers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """c-ares has one of its own, without a bound: it is emptied now and then, next to look-ups that go on."""
    monkeypatch.setattr(of_names, "FLUSH_AFTER", 1)
    clock = Clock()
    rule = DnsAnswer(times=[["127.0.0.7"], ["127.0.0.8"]], ttl=86_400)
    async with resolving({"a.test": rule}, clock=clock) as (resolver, server):
        assert await resolver.lookup("a.test") == ("127.0.0.7",)
        async with asyncio.timeout(PATIENCE_S):
            while server.asked("a.test") < 2:
                clock.now += 3601
                await resolver.lookup("a.test")
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("named", [(), ("127.0.0.1:1",)])
async def test_name_servers_of_the_system_are_read_again_when_their_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    """Looked at once a second at most; one that is away for a moment is being replaced."""
    file, renewed, clock = tmp_path / "resolv.conf", list[float](), Clock()
    monkeypatch.setattr(of_names, "SYSTEM_FILE", file)
    monkeypatch.setattr(CachingResolver, "renew", lambda self: renewed.append(clock.now))
    file.write_text("nameserver 127.0.0.1\n")
    resolver = CachingResolver(DnsSettings(nameservers=named), allow_private=True, clock=clock)

    def look(after_s: float) -> int:
        clock.now += after_s
        resolver._count()
        return len(renewed)

    assert [look(1), look(1)] == [0, 0]
    file.write_text("nameserver 127.0.0.53\n")
    assert look(0.5) == 0
    assert [look(0.5), look(1)] == [int(not named)] * 2
    file.unlink()
    assert look(1) == int(not named)
    (tmp_path / "new").write_text("nameserver 127.0.0.54\n")
    (tmp_path / "new").rename(file)
    assert [look(1), look(1)] == [2 * (not named)] * 2
    await resolver.close()


@pytest.mark.parametrize("rule", [DnsAnswer(rcode=NXDOMAIN), DnsAnswer(), DnsAnswer(cname="loop.test")])
async def test_a_name_that_has_no_address_is_not_found_and_remembered(rule: DnsAnswer) -> None:
    clock = Clock()
    async with resolving({"loop.test": rule}, clock=clock) as (resolver, server):
        assert await kind_of(resolver, "loop.test") is FailureKind.DNS_NOT_FOUND
        clock.now += 59
        assert await kind_of(resolver, "loop.test") is FailureKind.DNS_NOT_FOUND
        assert server.asked("loop.test") == 1
        clock.now += 2
        assert resolver.cached("loop.test") is None


async def test_a_name_that_can_not_be_one_is_not_found_without_asking() -> None:
    async with resolving({}) as (resolver, server):
        assert await kind_of(resolver, "a..b.test") is FailureKind.DNS_NOT_FOUND
        assert server.queries == []


@pytest.mark.parametrize(
    "rule",
    [
        DnsAnswer(rcode=SERVFAIL),
        DnsAnswer(rcode=REFUSED),
        DnsAnswer(silent=True),
        DnsAnswer(malformed=True),
        DnsAnswer(truncated=True, addresses=["127.0.0.1"]),
        DnsAnswer(addresses=["127.0.0.1"], delay_s=5),
    ],
)
async def test_a_failing_server_does_not_prove_that_a_name_is_missing(rule: DnsAnswer) -> None:
    clock = Clock()
    async with resolving({"a.test": rule}, clock=clock) as (resolver, _):
        assert await kind_of(resolver, "a.test") is FailureKind.DNS_ERROR
        clock.now += 6
        assert resolver.cached("a.test") is None


class FamiliesApart(DnsServer):
    """A name has no IPv6 address, and that answer comes last; the first `failing` queries for IPv4 fail."""

    failing = 0

    def handle(self, query: bytes, send: Callable[[bytes], None], *, is_tcp: bool = False) -> None:
        if bytes([0, 0, AAAA, 0, 1]) in query:  # the end of the name, type, class
            self.table["a.test"] = DnsAnswer(delay_s=0.05)
        elif self.asked("a.test") < self.failing:
            self.table["a.test"] = DnsAnswer(rcode=SERVFAIL)
        else:
            self.table["a.test"] = DnsAnswer(addresses=["127.0.0.7"])
        super().handle(query, send, is_tcp=is_tcp)


@pytest.mark.parametrize("failing", [1, 100])
async def test_no_ipv6_address_does_not_hide_that_the_query_for_ipv4_failed(failing: int) -> None:
    """c-ares only reports how the last query ended: that made a name "not found" permanently."""
    async with FamiliesApart({}) as server:
        server.failing = failing
        resolver = CachingResolver(DnsSettings(nameservers=(server.address,), tries=1), allow_private=True)
        if failing == 1:
            assert await resolver.lookup("a.test") == ("127.0.0.7",)
        else:
            assert await kind_of(resolver, "a.test") is FailureKind.DNS_ERROR
        await resolver.close()


async def test_a_process_that_stood_still_does_not_prove_that_a_server_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_names, "LATE_S", 0.1)
    async with resolving({"a.test": DnsAnswer(addresses=["127.0.0.7"], delay_s=0.02)}, timeout_s=0.1) as (resolver, _):
        looked_up = asyncio.create_task(resolver.lookup("a.test"))
        await asyncio.sleep(0.005)
        time.sleep(0.3)
        assert await looked_up == ("127.0.0.7",)


async def test_a_slow_name_does_not_hold_up_another() -> None:
    table = {"slow.test": DnsAnswer(silent=True), "fast.test": ["127.0.0.7"]}
    async with resolving(table, timeout_s=600) as (resolver, _):
        slow = asyncio.create_task(resolver.lookup("slow.test"))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_S):
            assert await resolver.lookup("fast.test") == ("127.0.0.7",)
        slow.cancel()


async def test_a_slow_name_is_waited_for_although_all_others_were_quick() -> None:
    """c-ares learns how quick a server is and then gives up after a fraction of a second."""
    table = {"slow.test": DnsAnswer(addresses=["127.0.0.7"], delay_s=0.9), "*.test": ["127.0.0.8"]}
    async with resolving(table, timeout_s=4) as (resolver, _):
        for n in range(8):
            await resolver.lookup(f"quick{n}.test")
        assert await resolver.lookup("slow.test") == ("127.0.0.7",)


async def test_private_addresses_are_never_handed_out_unless_allowed() -> None:
    table = {
        "inside.test": ["10.0.0.1", "::1", "::ffff:127.0.0.1"],
        "mixed.test": ["127.0.0.1", "93.184.216.34", "fd00::1"],
        "alias.test": DnsAnswer(cname="inside.test", addresses=["192.168.0.1"]),
    }
    async with resolving(table, allow_private=False) as (resolver, _):
        assert await kind_of(resolver, "inside.test") is FailureKind.ADDRESS_REFUSED
        assert await kind_of(resolver, "alias.test") is FailureKind.ADDRESS_REFUSED
        assert await kind_of(resolver, "localhost") is FailureKind.ADDRESS_REFUSED
        assert await resolver.lookup("mixed.test") == ("93.184.216.34",)
    async with resolving(table, allow_private=True) as (resolver, _):
        assert "10.0.0.1" in await resolver.lookup("inside.test")


async def test_a_name_that_turns_private_with_no_ttl_is_refused_when_asked_again() -> None:
    clock = Clock()
    rule = DnsAnswer(times=[["93.184.216.34"], ["127.0.0.1"]], ttl=0)
    async with resolving({"rebind.test": rule}, allow_private=False, clock=clock) as (resolver, server):
        assert await resolver.lookup("rebind.test") == ("93.184.216.34",)
        assert await resolver.lookup("rebind.test") == ("93.184.216.34",)
        assert server.asked("rebind.test") == 1
        clock.now += 61
        assert await kind_of(resolver, "rebind.test") is FailureKind.ADDRESS_REFUSED


async def test_at_most_four_addresses_are_handed_out_with_both_families_among_them() -> None:
    table = {
        "many.test": [f"127.0.1.{n}" for n in range(60)],
        "both.test": ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "::1"],
        "six.test": ["::1"],
    }
    async with resolving(table) as (resolver, _):
        assert len(await resolver.lookup("many.test")) == 4
        assert await resolver.lookup("both.test") == ("127.0.0.1", "::1", "127.0.0.2", "127.0.0.3")
        assert await resolver.lookup("six.test") == ("::1",)


async def test_names_of_the_hosts_file_are_known_without_a_server() -> None:
    async with resolving({"localhost": DnsAnswer(rcode=NXDOMAIN)}) as (resolver, server):
        assert "127.0.0.1" in await resolver.lookup("localhost")
        assert server.queries == []


async def test_the_cache_is_bounded_and_forgets_what_was_not_used_longest() -> None:
    async with resolving({"*.test": ["127.0.0.7"]}, cache_size=2) as (resolver, _):
        await resolver.lookup("a.test")
        await resolver.lookup("b.test")
        assert resolver.cached("a.test")
        await resolver.lookup("c.test")
        assert resolver.cached("a.test")
        assert resolver.cached("b.test") is None


async def test_the_check_tells_a_dead_server_from_one_that_answers() -> None:
    async with resolving({}) as (resolver, server):
        assert await resolver.check() == ""
        assert resolver.nameservers() == (server.address,)
        assert resolver.has_nameservers()
    dead = CachingResolver(DnsSettings(nameservers=("127.0.0.1:1",), timeout_s=0.2, tries=1), allow_private=True)
    assert "127.0.0.1:1" in await dead.check()
    await dead.close()


async def test_a_name_server_without_an_address_is_a_mistake_in_the_settings() -> None:
    resolver = CachingResolver(DnsSettings(nameservers=("not an address",)), allow_private=True)
    with pytest.raises(UsageError, match=r"dns\.nameservers"):
        await resolver.lookup("a.test")
    await resolver.close()


async def test_closing_ends_lookups_that_still_run() -> None:
    async with resolving({"a.test": DnsAnswer(silent=True)}, timeout_s=30) as (resolver, _):
        waiting = asyncio.create_task(resolver.lookup("a.test"))
        await asyncio.sleep(0.02)
        await resolver.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_many_names_at_once_are_asked_for_in_bursts_that_silent_ones_do_not_hold_up_for_long() -> None:
    """A server drops what it can't take in at once, and what is dropped costs seconds."""
    table = {"*.silent.test": DnsAnswer(silent=True), "*.test": ["127.0.0.1"]}
    async with resolving(table, timeout_s=600) as (resolver, server):
        lost = [asyncio.create_task(resolver.lookup(f"{n}.silent.test")) for n in range(BURST_MAX)]
        found = asyncio.create_task(resolver.lookup("a.test"))
        assert await asyncio.wait_for(found, PATIENCE_S) == ("127.0.0.1",)
        names = list(dict.fromkeys(name for name, _ in server.queries))
        assert (len(names), names[-1]) == (BURST_MAX + 1, "a.test")
        for task in lost:
            task.cancel()
        await asyncio.gather(*lost, return_exceptions=True)


async def test_a_new_name_does_not_wait_for_all_the_silent_ones_before_it() -> None:
    """Nor do later ones starve an old one: the first and the last of those that wait have their turns by turns."""
    table = {"*.silent.test": DnsAnswer(silent=True), "*.test": DnsAnswer(addresses=["127.0.0.1"])}
    async with resolving(table, timeout_s=600) as (resolver, _):
        lost = [asyncio.create_task(resolver.lookup(f"{n}.silent.test")) for n in range(BURST_MAX)]
        await asyncio.sleep(0)
        old = asyncio.create_task(resolver.lookup("old.test"))
        lost += [asyncio.create_task(resolver.lookup(f"x{n}.silent.test")) for n in range(10 * BURST_MAX)]
        await asyncio.sleep(0)
        new = asyncio.create_task(resolver.lookup("new.test"))
        assert await asyncio.wait_for(asyncio.gather(old, new), PATIENCE_S) == [("127.0.0.1",)] * 2
        assert not any(task.done() for task in lost)
        for task in lost:
            task.cancel()
        await asyncio.gather(*lost, return_exceptions=True)


async def test_turns_of_cancelled_lookups_go_to_others() -> None:
    turns = LookupTurns(1)
    await turns.take()
    waiting = [asyncio.create_task(turns.take()) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[4].cancel()
    turns.give_back()  # to one who has given up by the time it would go on
    waiting[1].cancel()
    waiting[3].cancel()
    await asyncio.wait(waiting[:2] + waiting[3:])
    await asyncio.wait_for(waiting[2], PATIENCE_S)
    turns.give_back()
    await asyncio.wait_for(turns.take(), PATIENCE_S)


GARBAGE = {
    "records that are not there": b"\x81\x80\0\x01\xff\xff\0\0\0\0" + b"\xff" * 7,
    "nothing": b"",
    "a name that leads to itself": b"\x81\x80\0\x01\0\x01\0\0\0\0\xc0\x0c\0\x01\0\x01\xc0\x0c",
    "zeros": bytes(64),
    "a label without its end": b"\x81\x80\0\x01\0\0\0\0\0\0\x3fabc",
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "much": b"\xaa" * 4000,
}


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
@pytest.mark.parametrize("how", GARBAGE)
async def test_an_unreadable_reply_fails_only_its_own_lookup(how: str, delay_s: float) -> None:
    """c-ares closes the socket on which it came, and fails all that was asked there."""
    table = {
        "*.bad.test": DnsAnswer(raw=GARBAGE[how], delay_s=delay_s),
        "*.test": DnsAnswer(addresses=["127.0.0.7"], delay_s=0.06),
    }
    async with resolving(table, timeout_s=1.0, tries=2) as (resolver, _):
        bad = [asyncio.create_task(kind_of(resolver, f"{n}.bad.test")) for n in range(4)]
        good = await asyncio.gather(*(resolver.lookup(f"{n}.test") for n in range(24)))
        assert good == [("127.0.0.7",)] * 24
        assert {await kind for kind in bad} == {FailureKind.DNS_ERROR}


async def test_what_does_not_fit_into_a_datagram_is_asked_for_over_tcp() -> None:
    table = {
        "long.test": DnsAnswer(truncated=True, addresses=["127.0.0.7"]),
        "many.test": DnsAnswer(truncated=True, addresses=[f"127.0.{n // 250}.{n % 250 + 1}" for n in range(1000)]),
    }
    async with resolving(table, tcp=True) as (resolver, _):
        assert await resolver.lookup("long.test") == ("127.0.0.7",)
        assert len(await resolver.lookup("many.test")) == 4


@pytest.mark.parametrize(("aliases", "found"), [(1, True), (8, True), (9, False), (50, False)])
async def test_aliases_are_followed_a_few_times(aliases: int, found: bool) -> None:
    chain = [f"c{n}.test" for n in range(aliases)]
    async with resolving({"a.test": DnsAnswer(cname=chain, addresses=["127.0.0.7"])}, tcp=True) as (resolver, _):
        if found:
            assert await resolver.lookup("a.test") == ("127.0.0.7",)
        else:
            assert await kind_of(resolver, "a.test") is FailureKind.DNS_ERROR


async def test_aliases_in_a_circle_lead_nowhere() -> None:
    async with resolving({"a.test": DnsAnswer(cname=["b.test", "a.test", "b.test", "a.test"])}) as (resolver, _):
        with pytest.raises(LookupFailedError):
            await resolver.lookup("a.test")


@pytest.mark.parametrize("ttl", [2**31, 2**32 - 1])
async def test_a_ttl_beyond_31_bits_is_clamped(ttl: int) -> None:
    """RFC 2181 8: it counts as zero; what matters here is that it does not last."""
    clock = Clock()
    async with resolving({"a.test": DnsAnswer(addresses=["127.0.0.7"], ttl=ttl)}, clock=clock) as (resolver, _):
        assert await resolver.lookup("a.test") == ("127.0.0.7",)
        clock.now += 59
        assert resolver.cached("a.test")
        clock.now += 3600
        assert resolver.cached("a.test") is None
