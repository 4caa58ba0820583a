"""A caching DNS resolver over c-ares that returns only addresses that may be connected to.

Answers are cached for their TTL, within limits, also negative ones. Concurrent look-ups of one name are combined.
/etc/hosts is used, search domains are not.
"""

import asyncio
import contextlib
import itertools
import math
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.errors import UsageError
from crawler.lazy_module import LazyModule
from crawler.model import FailureKind
from crawler.rules.addresses import is_public, refused_text
from crawler.rules.health import jitter_of
from crawler.settings import DnsSettings

# fmt: on

if TYPE_CHECKING:
    import aiodns
    import pycares
else:  # a proxy may resolve all names, and a command may look up none
    aiodns, pycares = LazyModule("aiodns"), LazyModule("pycares")

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
SYSTEM_FILE = Path("/etc/resolv.conf")  # where c-ares finds the name servers if the settings name none
LOOK_S = 1.0  # at most so often it is looked whether that file has changed
TTL_MAX_S = 3600.0  # answers are kept for no longer: hosts move
_ERROR_TTL_S = 5.0  # a server that failed is queried again soon, but not for every queued URL


def _is_not_found(code: int) -> bool:
    """Does this error of c-ares say that there is no such address?"""
    return code in (pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME)


class LookupFailedError(Exception):
    """No address to connect to; `kind` is DNS_NOT_FOUND, DNS_ERROR, ADDRESS_REFUSED or NETWORK. `refused`: addresses
    that may not be connected to.
    """

    def __init__(self, kind: FailureKind, detail: str, refused: Collection[str] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.refused = refused


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    """What another content has another of; None for a file that is away, as while it is replaced."""
    with contextlib.suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_ino, status.st_size
    return None


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
        self._system, self._looked_at = _stamp_of(SYSTEM_FILE), clock()
        self.unanswered = 0  # look-ups
        self.answers = 0  # of DNS servers, also that a name does not exist; not those with refused addresses alone

    def cached(self, host: str) -> tuple[str, ...] | None:
        """Cached addresses; None when a look-up is needed. Raises LookupFailedError for a cached failure."""
        entry = self._cache.get(host)
        if entry is None or entry.expires_at <= self._clock():
            return None
        self._cache.move_to_end(host)
        if entry.failure is not None:
            raise LookupFailedError(entry.failure.kind, entry.failure.detail, entry.failure.refused)
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
            raise LookupFailedError(entry.failure.kind, entry.failure.detail, entry.failure.refused)
        return entry.addresses

    def forget(self, host: str) -> None:
        """Look this name up again when it is needed next."""
        self._cache.pop(host, None)

    async def ask_again(self, host: str) -> list[str] | None:
        """IPv4 addresses that a DNS server has for this name now; None: no server answers. What is cached does not
        count, here or in c-ares. The system's settings are read again: they may have changed since.
        """
        channel = self._new_channel(self._settings.tries)
        try:
            async with asyncio.timeout(self._settings.timeout_s * self._settings.tries):
                found = await channel.getaddrinfo(host, socket.AF_INET)
        except aiodns.error.DNSError as error:
            return [] if _is_not_found(error.args[0]) else None
        except TimeoutError:
            return None
        finally:
            await channel.close()
        return [node.addr[0].decode("ascii") for node in found.nodes]

    def renew(self) -> None:
        """Read the system's settings again, and drop all answers."""
        for channel in (*self._channels.values(), *self._opened_alone):
            channel._channel.reinit()  # noqa: SLF001 - aiodns does not expose it. In a thread of its own

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

    def _open(self, tries: int = 0) -> "aiodns.DNSResolver":
        tries = tries or self._settings.tries
        if tries not in self._channels:
            self._channels[tries] = self._new_channel(tries)
        return self._channels[tries]

    def _new_channel(self, tries: int) -> "aiodns.DNSResolver":
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
            if not _is_not_found(error.args[0]):
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
        if self._looked_up % FLUSH_AFTER == 0 or self._has_changed():
            self.renew()

    def _has_changed(self) -> bool:
        """Has the system other name servers than at the last look?"""
        now_s = self._clock()
        if self._settings.nameservers or now_s - self._looked_at < LOOK_S:
            return False
        before, self._system, self._looked_at = self._system, _stamp_of(SYSTEM_FILE), now_s
        return self._system not in (before, None)

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
        is_answer = entry.failure is None or entry.failure.kind is FailureKind.DNS_NOT_FOUND
        self.answers += is_answer
        self.unanswered += not is_answer
        self._cache[host] = entry
        self._cache.move_to_end(host)
        while len(self._cache) > self._settings.cache_size:
            self._cache.popitem(last=False)
        return entry

    def _answered(self, host: str, result: "pycares.AddrInfoResult") -> _Entry:
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
            return _Entry((), LookupFailedError(FailureKind.ADDRESS_REFUSED, refused, addresses), expires_at)
        return _Entry(_in_turns(allowed), None, expires_at)

    def _failed(self, code: int, detail: str) -> _Entry:
        not_found = _is_not_found(code)
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
