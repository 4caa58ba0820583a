"""A caching DNS resolver over c-ares that returns only addresses that may be connected to.

Answers are cached for their TTL, within limits, also negative ones. Concurrent look-ups of one name are combined.
/etc/hosts is used, search domains are not.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import math
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import aiodns
import msgspec
import pycares

from crawler.errors import UsageError
from crawler.model import FailureKind
from crawler.rules.health import jitter_of
from crawler.rules.urls import embedded_v4
from crawler.settings import DnsSettings

# The address guard: which addresses and ports the crawler may connect to. Pure.
#
# It checks addresses, never names: a name is only as public as the address it resolves to at connect time.

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IANA special-purpose registries (RFC 6890 and its updates), listed here because `is_global` of `ipaddress` has changed
# between Python releases, and covers embedded IPv4 addresses only in part. Two clouds have their platform at an address
# of a public range, which inside of them leads nowhere else. All others use ranges that are refused anyway.
_REFUSED_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches localhost on Linux
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; cloud metadata of some providers
        "127.0.0.0/8",
        "168.63.129.16/32",  # the platform of Azure: agent, name server, health probes
        "169.254.0.0/16",  # link-local; cloud metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.80.8.124/32",  # metadata of Equinix Metal (Packet)
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays, withdrawn
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
    )
)
# In IPv6 only 2000::/3 is global unicast: everything else is refused without a list. These are inside it.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)

JUDGED_MAX = 65_536  # addresses whose verdict is cached

# https://fetch.spec.whatwg.org/#port-blocking: services that mistake an HTTP request for their own protocol.
# fmt: off
_DENIED_PORTS = frozenset(
    (
        0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
        102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389,
        427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636,
        989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665,
        6666, 6667, 6668, 6669, 6679, 6697, 10080,
    )
)
# fmt: on


class AddressRefusedError(Exception):
    """A connection to this address is not allowed; raised at the last moment before connecting.

    Deliberately not an OSError: code that tries the next address after an OSError must not swallow it.
    """

    def __init__(self, address: str) -> None:
        super().__init__(refused_text(address))
        self.address = address


def refused_text(*addresses: str) -> str:
    """Why nothing is fetched there, and what to do."""
    if len(addresses) == 1:
        return f"{addresses[0]} is a private address; add --allow-private to crawl it"
    return f"{', '.join(addresses)} are private addresses; add --allow-private to crawl them"


@lru_cache(maxsize=JUDGED_MAX)
def is_public(address: str) -> bool:
    """Whether this textual IP address is on the public internet; False for invalid addresses."""
    try:
        parsed: _Address = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.scope_id is None and _is_public_v6(parsed)
    return _is_public_v4(parsed)


def _is_public_v4(address: ipaddress.IPv4Address) -> bool:
    return not any(address in network for network in _REFUSED_V4)


def _is_public_v6(address: ipaddress.IPv6Address) -> bool:
    embedded = embedded_v4(address)
    if embedded is not None:
        return _is_public_v4(embedded)
    return address in _GLOBAL_V6 and not any(address in network for network in _REFUSED_V6)


def check_address(address: str, *, allow_private: bool) -> None:
    """Raise AddressRefusedError unless `address` may be connected to."""
    if not allow_private and not is_public(address):
        raise AddressRefusedError(address)


def is_port_denied(port: int) -> bool:
    """Whether requests to this port are never made (the "bad ports" of the Fetch standard)."""
    return port in _DENIED_PORTS


def is_address(host: str) -> bool:
    """Whether a URL's host (brackets allowed) is an IP literal, to which no lookup applies."""
    return ":" in host or (host[-1:].isdigit() and _is_v4(host))


def _is_v4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


ADDRESSES_MAX = 4  # per host that are worth trying
# Look-ups started together, two datagrams each: datagrams that a server can't receive at once are lost, which costs
# seconds. The next one starts when one has its answer, or has waited longer than most: so names without any answer
# delay few others.
BURST_MAX = 64
BURST_S = 0.25
# c-ares waits only this long for a server that has been fast, whatever its settings, and twice as long at each try.
_FIRST_WAIT_S = 0.25
LATE_S = 0.5  # a timer that fires this late: the process stood still, which says nothing of the DNS servers
# c-ares closes a socket that received an unreadable reply, and fails all queries that it sent there.
ALONE_MAX = 16  # concurrent look-ups with a socket of their own; each also needs a thread
CNAMES_MAX = 8
# c-ares caches all answers for their TTLs, up to an hour and without a limit, 2 KB each and more.
FLUSH_AFTER = 1_000  # look-ups
TTL_MAX_S = 3600.0  # answers are kept for no longer: hosts move
_ERROR_TTL_S = 5.0  # a server that failed is queried again soon, but not for every queued URL
_NOT_FOUND = frozenset((pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME))


class LookupFailedError(Exception):
    """No address to connect to; `kind` is DNS_NOT_FOUND, DNS_ERROR or ADDRESS_REFUSED."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class _Entry(msgspec.Struct, frozen=True):
    addresses: tuple[str, ...]
    failure: LookupFailedError | None
    expires_at: float  # seconds on the resolver's clock


class LookupTurns:
    """Bounds the look-ups that start together.

    Every other turn goes to the latest name: so thousands of names without an answer delay a new one no more than a
    few do, and later names can't starve the first.
    """

    def __init__(self, count: int = BURST_MAX) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_last_next = False

    async def take(self) -> None:
        """Wait for a turn."""
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it had got its turn already
                self.give_back()
            raise

    def give_back(self) -> None:
        """Pass the turn on."""
        self._is_last_next = not self._is_last_next
        while self._waiting:
            waiter = self._waiting.pop() if self._is_last_next else self._waiting.popleft()
            if not waiter.done():  # cancelled
                waiter.set_result(None)
                return
        self._free += 1


class CachingResolver:
    """One per instance. Returns at most four addresses of a host, IPv4 and IPv6 alternating, IPv4 first.

    `clock` is in seconds. If it counts a machine's sleep, cached answers age meanwhile.
    """

    def __init__(
        self, settings: DnsSettings, *, allow_private: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._allow_private = allow_private
        self._clock = clock
        self._cache: OrderedDict[str, _Entry] = OrderedDict()
        self._running: dict[str, asyncio.Task[_Entry]] = {}
        self._turns = LookupTurns()
        self._channels: dict[int, aiodns.DNSResolver] = {}  # by tries
        self._alone = asyncio.Semaphore(ALONE_MAX)
        self._idle_alone: list[aiodns.DNSResolver] = []
        self._opened_alone: list[aiodns.DNSResolver] = []
        self._looked_up = 0

    def cached(self, host: str) -> tuple[str, ...] | None:
        """Cached addresses; None when a look-up is needed. Raises LookupFailedError for a cached failure."""
        entry = self._cache.get(host)
        if entry is None or entry.expires_at <= self._clock():
            return None
        self._cache.move_to_end(host)
        if entry.failure is not None:
            raise LookupFailedError(entry.failure.kind, entry.failure.detail)
        return entry.addresses

    async def lookup(self, host: str) -> tuple[str, ...]:
        """Addresses of a host name in ASCII, from the cache or the name servers. Raises LookupFailedError."""
        known = self.cached(host)
        if known is not None:
            return known
        task = self._running.get(host)
        if task is None:
            task = asyncio.create_task(self._look_up(host), name=f"dns {host}")
            self._running[host] = task
            task.add_done_callback(lambda _: self._running.pop(host, None))
        # Shielded: a waiter that is cancelled must not cancel the look-up of the others.
        entry = await asyncio.shield(task)
        if entry.failure is not None:
            raise LookupFailedError(entry.failure.kind, entry.failure.detail)
        return entry.addresses

    def nameservers(self) -> tuple[str, ...]:
        """The DNS servers in use, as host:port; empty when none is configured."""
        return tuple(server for server in self._open()._channel.servers if server)  # noqa: SLF001 - aiodns drops the ports

    def has_nameservers(self) -> bool:
        return bool(self.nameservers())

    async def check(self) -> str:
        """Query the root's name servers: '' if there was any answer, else one line on what is wrong."""
        if not self.has_nameservers():
            return "no DNS server is configured (see dns.nameservers)"
        try:
            async with asyncio.timeout(self._settings.timeout_s * self._settings.tries):
                await self._open().query_dns(".", "NS")
        except aiodns.error.DNSError as error:
            if error.args[0] in (pycares.errno.ARES_ETIMEOUT, pycares.errno.ARES_ECONNREFUSED):
                return f"no answer from the DNS servers {', '.join(self.nameservers())}"
        except TimeoutError:
            return f"no answer from the DNS servers {', '.join(self.nameservers())}"
        return ""

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        channels = [*self._channels.values(), *self._opened_alone]
        self._channels, self._idle_alone, self._opened_alone = {}, [], []
        for channel in channels:
            await channel.close()
            await asyncio.sleep(0)  # callbacks of cancelled queries run in the loop

    def _open(self, tries: int = 0) -> aiodns.DNSResolver:
        tries = tries or self._settings.tries
        if tries not in self._channels:
            self._channels[tries] = self._new_channel(tries)
        return self._channels[tries]

    def _new_channel(self, tries: int) -> aiodns.DNSResolver:
        flags = pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_EDNS
        servers = list(self._settings.nameservers)
        try:
            return aiodns.DNSResolver(
                servers or None,
                asyncio.get_running_loop(),
                timeout=self._settings.timeout_s,
                tries=tries,
                flags=flags,
            )
        except pycares.AresError:
            raise UsageError(f"dns.nameservers: not a list of IP addresses: {', '.join(servers)}") from None

    async def _ask(self, host: str) -> Any:
        """Query until the time is over: a slow answer does not mean that the name can't be resolved.

        If the process itself stood still meanwhile, the answer may lie in a socket: the name is queried again.
        """
        loop, whole_s = asyncio.get_running_loop(), self._settings.timeout_s * self._settings.tries
        while True:
            # c-ares doubles its timeout at each try and goes through all servers; this bounds the total.
            deadline = loop.time() + whole_s
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._ask_for_both(host)
            except TimeoutError:
                if loop.time() - deadline < LATE_S:
                    raise

    async def _ask_for_both(self, host: str) -> Any:
        """IPv4 and IPv6 addresses.

        c-ares reports the end of the query that ended last: "no data" when there is no IPv6 address, although the query
        for IPv4 failed or got no answer. So "no data" only counts when each of them says so.
        """
        try:
            return await self._ask_for(host, socket.AF_UNSPEC)
        except aiodns.error.DNSError as error:
            if error.args[0] != pycares.errno.ARES_ENODATA:
                raise
        try:
            return await self._ask_for(host, socket.AF_INET)
        except aiodns.error.DNSError as error:
            if error.args[0] not in _NOT_FOUND:
                raise
        return await self._ask_for(host, socket.AF_INET6)

    async def _ask_for(self, host: str, family: socket.AddressFamily) -> Any:
        settings = self._settings
        try:
            return await self._open().getaddrinfo(host, family)
        except aiodns.error.DNSError as error:
            if error.args[0] == pycares.errno.ARES_EBADRESP:
                return await self._ask_alone(host, family)
            if error.args[0] != pycares.errno.ARES_ETIMEOUT:
                raise
        enough = math.ceil(math.log2(settings.timeout_s * settings.tries / _FIRST_WAIT_S + 1))
        return await self._open(max(settings.tries, enough)).getaddrinfo(host, family)

    async def _ask_alone(self, host: str, family: socket.AddressFamily) -> Any:
        """Query again on a separate socket, where an unreadable reply can't belong to another look-up.

        Waits for a random part of a pause first, because look-ups that failed together would be repeated together.
        """
        async with self._alone:
            await asyncio.sleep(BURST_S * jitter_of(host, 1))
            if not self._idle_alone:
                self._idle_alone.append(self._new_channel(self._settings.tries))
                self._opened_alone += self._idle_alone
            channel = self._idle_alone.pop()
            try:
                return await channel.getaddrinfo(host, family)
            finally:
                self._idle_alone.append(channel)

    async def _ask_in_turn(self, host: str) -> Any:
        await self._turns.take()
        with contextlib.ExitStack() as turn:
            turn.callback(self._turns.give_back)
            timer = asyncio.get_running_loop().call_later(BURST_S, turn.close)
            turn.callback(timer.cancel)
            return await self._ask(host)

    def _count(self) -> None:
        self._looked_up += 1
        if self._looked_up % FLUSH_AFTER == 0:
            for channel in (*self._channels.values(), *self._opened_alone):
                # Reads the system's settings again, in its own thread, and drops all answers.
                channel._channel.reinit()  # noqa: SLF001 - aiodns does not expose it

    async def _look_up(self, host: str) -> _Entry:
        self._count()
        try:
            result = await self._ask_in_turn(host)
        except aiodns.error.DNSError as error:
            entry = self._failed(error.args[0], str(error.args[1]))
        except TimeoutError:
            entry = self._failed(pycares.errno.ARES_ETIMEOUT, "no answer from the DNS servers in time")
        else:
            entry = self._answered(host, result)
        self._cache[host] = entry
        self._cache.move_to_end(host)
        while len(self._cache) > self._settings.cache_size:
            self._cache.popitem(last=False)
        return entry

    def _answered(self, host: str, result: pycares.AddrInfoResult) -> _Entry:
        """The entry, with its TTL (RFC 1035 3.2.1) clamped: zero would help rebinding, a month would become stale."""
        if len(result.cnames) > CNAMES_MAX:
            return self._failed(pycares.errno.ARES_EBADRESP, f"{len(result.cnames)} aliases one after the other")
        found = [(node.addr[0].decode("ascii"), node.ttl) for node in result.nodes]
        ttl_s = min((ttl for _, ttl in found), default=0)
        expires_at = self._clock() + min(max(ttl_s, self._settings.ttl_min_s), TTL_MAX_S)
        addresses = tuple(dict.fromkeys(address for address, _ in found))
        allowed = tuple(a for a in addresses if self._allow_private or is_public(a))
        if not addresses:
            return _Entry((), LookupFailedError(FailureKind.DNS_NOT_FOUND, f"{host} has no address"), expires_at)
        if not allowed:
            refused = refused_text(*addresses[:ADDRESSES_MAX])
            return _Entry((), LookupFailedError(FailureKind.ADDRESS_REFUSED, refused), expires_at)
        return _Entry(_in_turns(allowed), None, expires_at)

    def _failed(self, code: int, detail: str) -> _Entry:
        not_found = code in _NOT_FOUND
        kind = FailureKind.DNS_NOT_FOUND if not_found else FailureKind.DNS_ERROR
        ttl_s = self._settings.negative_ttl_s
        expires_at = self._clock() + (ttl_s if not_found else min(ttl_s, _ERROR_TTL_S))
        return _Entry((), LookupFailedError(kind, detail), expires_at)


def address_family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _in_turns(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """IPv4 and IPv6 alternating, so that the few kept addresses have both families."""
    four = (a for a in addresses if ":" not in a)
    six = (a for a in addresses if ":" in a)
    pairs = itertools.zip_longest(four, six)
    return tuple(a for pair in pairs for a in pair if a is not None)[:ADDRESSES_MAX]
