"""Names to addresses: a caching resolver over c-ares that hands out only addresses that may be connected to.

Answers live as long as their TTL says, within bounds; a name is looked up once at a time however many wait for it;
what does not exist is remembered too. /etc/hosts is honoured, search domains are not. Knows nothing of HTTP.
"""

import asyncio
import contextlib
import itertools
import math
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import aiodns
import msgspec
import pycares

from crawler.errors import UsageError
from crawler.model import FailureKind
from crawler.rules.retry import jitter_of
from crawler.settings import DnsSettings
from crawler.web.address_guard import is_public, refused_text

ADDRESSES_MAX = 4  # per host: as many as are worth trying
# Look-ups begun together, two datagrams each: what a server can't take in at once is lost, which costs it seconds. The
# next one begins when one has its answer, or has waited longer than most: names that nobody answers for hold up few.
BURST_MAX = 64
BURST_S = 0.25
# c-ares waits only so long for a server that has been quick, whatever it is told, and twice as long at each try.
_FIRST_WAIT_S = 0.25
# c-ares closes a socket on which a reply came that it can't read, and fails every query that it had sent there.
ALONE_MAX = 16  # look-ups at a time that have a socket of their own; each costs a thread, too
CNAMES_MAX = 8
# c-ares keeps all answers for as long as their TTLs say, up to an hour and without a bound, 2 KB each and more.
FLUSH_AFTER = 1_000  # look-ups
_ERROR_TTL_S = 5.0  # a server that failed is asked again soon, but not once per queued URL
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
    """A bound on look-ups that begin together. Every other turn goes to the name that came last: thousands that nobody
    answers for hold up a new one as little as a few, and later ones can't starve the first.
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
            if not waiter.cancelled():  # it had its turn already
                self.give_back()
            raise

    def give_back(self) -> None:
        """The next one's turn."""
        self._is_last_next = not self._is_last_next
        while self._waiting:
            waiter = self._waiting.pop() if self._is_last_next else self._waiting.popleft()
            if not waiter.done():  # cancelled
                waiter.set_result(None)
                return
        self._free += 1


class CachingResolver:
    """One per instance. Addresses come at most four to a host, IPv4 and IPv6 in turns, IPv4 first.

    `clock` is in seconds. With one that counts a machine's sleep, cached answers age while it sleeps.
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
        """Addresses known by now; None when a lookup is needed. Raises LookupFailedError for a known failure."""
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
        # Shielded: the one who gives up waiting must not take the answer away from the others.
        entry = await asyncio.shield(task)
        if entry.failure is not None:
            raise LookupFailedError(entry.failure.kind, entry.failure.detail)
        return entry.addresses

    def nameservers(self) -> tuple[str, ...]:
        """The servers that are asked, as host:port; empty when the system names none."""
        return tuple(server for server in self._open()._channel.servers if server)  # noqa: SLF001 - aiodns drops the ports

    def has_nameservers(self) -> bool:
        return bool(self.nameservers())

    async def check(self) -> str:
        """Ask for the root's name servers: '' when anyone answered at all, else one line that says what is wrong."""
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
            await asyncio.sleep(0)  # callbacks of cancelled queries come through the loop

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
        """Ask until the time is over: a name that takes longer than most is no name that can't be resolved."""
        settings = self._settings
        # c-ares doubles its time-out at each try and goes through all servers; this bounds the whole.
        async with asyncio.timeout(settings.timeout_s * settings.tries):
            try:
                return await self._open().getaddrinfo(host, socket.AF_UNSPEC)
            except aiodns.error.DNSError as error:
                if error.args[0] == pycares.errno.ARES_EBADRESP:
                    return await self._ask_alone(host)
                if error.args[0] != pycares.errno.ARES_ETIMEOUT:
                    raise
            enough = math.ceil(math.log2(settings.timeout_s * settings.tries / _FIRST_WAIT_S + 1))
            return await self._open(max(settings.tries, enough)).getaddrinfo(host, socket.AF_UNSPEC)

    async def _ask_alone(self, host: str) -> Any:
        """Ask again where no other look-up can be meant by a reply that can't be read.

        After a part of a pause: what failed in step would be asked in step.
        """
        async with self._alone:
            await asyncio.sleep(BURST_S * jitter_of(host, 1))
            if not self._idle_alone:
                self._idle_alone.append(self._new_channel(self._settings.tries))
                self._opened_alone += self._idle_alone
            channel = self._idle_alone.pop()
            try:
                return await channel.getaddrinfo(host, socket.AF_UNSPEC)
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
                # Reads the system's settings anew, in a thread of its own, and forgets the answers.
                channel._channel.reinit()  # noqa: SLF001 - aiodns has no name for it

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
        """RFC 1035 3.2.1 TTLs, clamped: zero would ask at each connection (and help rebinding), a month never again."""
        settings = self._settings
        if len(result.cnames) > CNAMES_MAX:
            return self._failed(pycares.errno.ARES_EBADRESP, f"{len(result.cnames)} aliases one after the other")
        found = [(node.addr[0].decode("ascii"), node.ttl) for node in result.nodes]
        ttl_s = min((ttl for _, ttl in found), default=0)
        expires_at = self._clock() + min(max(ttl_s, settings.ttl_min_s), settings.ttl_max_s)
        addresses = tuple(dict.fromkeys(address for address, _ in found))
        allowed = tuple(a for a in addresses if self._allow_private or is_public(a))
        if not allowed:
            detail = refused_text(*addresses[:ADDRESSES_MAX]) if addresses else f"{host} has no address"
            return _Entry((), LookupFailedError(FailureKind.ADDRESS_REFUSED, detail), expires_at)
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
    """IPv4 and IPv6 alternating, so that the few that are kept hold both families."""
    four = (a for a in addresses if ":" not in a)
    six = (a for a in addresses if ":" in a)
    pairs = itertools.zip_longest(four, six)
    return tuple(a for pair in pairs for a in pair if a is not None)[:ADDRESSES_MAX]
