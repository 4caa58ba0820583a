"""A small scriptable DNS server on loopback: answers by a table of names, with delays, errors and lies.

    async with DnsServer({"*.test": ["127.0.0.1"], "gone.test": Answer(rcode=NXDOMAIN)}) as dns:
        settings.dns.nameservers = (dns.address,)

An exact name wins over a wildcard, the longest wildcard over shorter ones; an unknown name is NXDOMAIN. For other
processes: `python names.py '*.test=127.0.0.1'` prints its address and serves until it is killed.
"""

import asyncio
import contextlib
import ipaddress
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Self, cast

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
A, CNAME, AAAA = 1, 5, 28
_TYPES = {A: "A", CNAME: "CNAME", AAAA: "AAAA"}
_HEADER = struct.Struct("!HHHHHH")


@dataclass(frozen=True, kw_only=True)
class DnsAnswer:
    """What to say about a name. No addresses and no cname: NODATA. Several cnames: one leads to the next.

    `truncated` holds for UDP only. `raw`: what follows the id of the query in the reply, instead of an answer.
    """

    addresses: Sequence[str] = ()
    cname: str | Sequence[str] = ""
    ttl: int = 300
    rcode: int = NOERROR
    delay_s: float = 0.0
    silent: bool = False
    malformed: bool = False
    raw: bytes | None = None
    truncated: bool = False
    times: list[Sequence[str]] = field(default_factory=list)  # addresses for the 1st, 2nd ... A query, then `addresses`


Table = Mapping[str, DnsAnswer | Sequence[str]]


class DnsServer:
    """An async context manager; `address` is host:port, `queries` what was requested: (name, type) in order.

    With `tcp`, the same port answers over TCP too.
    """

    def __init__(self, table: Table, *, host: str = "127.0.0.1", port: int = 0, tcp: bool = False) -> None:
        self.table = {name: a if isinstance(a, DnsAnswer) else DnsAnswer(addresses=a) for name, a in table.items()}
        self.queries: list[tuple[str, str]] = []
        self._host, self._port, self._tcp = host, port, tcp
        self._server: asyncio.Server | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._delayed: set[asyncio.TimerHandle] = set()

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def asked(self, name: str) -> int:
        """How many A queries came for `name`."""
        return self.queries.count((name, "A"))

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self._tcp:
            self._server = await loop.create_server(lambda: _Stream(self), self._host, self._port)
            self._port = self._server.sockets[0].getsockname()[1]
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: _Protocol(self), local_addr=(self._host, self._port)
        )
        self._port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._delayed:
            handle.cancel()
        if self._transport is not None:
            self._transport.close()
        if self._server is not None:
            self._server.close()
        await asyncio.sleep(0)

    def answer_for(self, name: str) -> DnsAnswer:
        """The rule for a name in lower case."""
        if name in self.table:
            return self.table[name]
        labels = name.split(".")
        for start in range(1, len(labels)):
            rule = self.table.get("*." + ".".join(labels[start:]))
            if rule is not None:
                return rule
        return self.table.get("*", DnsAnswer(rcode=NXDOMAIN))

    def handle(self, query: bytes, send: Callable[[bytes], None], *, is_tcp: bool = False) -> None:
        name, kind, question_end = _parse_question(query)
        self.queries.append((name, _TYPES.get(kind, str(kind))))
        rule = self.answer_for(name)
        if rule.silent:
            return
        if is_tcp and rule.truncated:
            rule = replace(rule, truncated=False)
        reply = _reply(query[:question_end], name, kind, self._scripted(rule, name, kind))
        if not rule.delay_s:
            send(reply)
            return
        handle = asyncio.get_running_loop().call_later(rule.delay_s, send, reply)
        self._delayed.add(handle)

    def _scripted(self, rule: DnsAnswer, name: str, kind: int) -> DnsAnswer:
        """Answers that change from one query to the next."""
        if kind != A or not rule.times:  # counting is slow when there were many queries
            return rule
        turn = self.asked(name) - 1
        if 0 <= turn < len(rule.times):
            return DnsAnswer(addresses=rule.times[turn], ttl=rule.ttl)
        return rule


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.handle(data, partial(self._send, addr))

    def _send(self, peer: tuple[str, int], reply: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(reply, peer)


class _Stream(asyncio.Protocol):
    """RFC 1035 4.2.2: each message has its length before it."""

    def __init__(self, server: DnsServer) -> None:
        self._server = server
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 2 and len(self._received) >= 2 + int.from_bytes(self._received[:2], "big"):
            end = 2 + int.from_bytes(self._received[:2], "big")
            query, self._received = self._received[2:end], self._received[end:]
            self._server.handle(query, self._send, is_tcp=True)

    def _send(self, reply: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(len(reply).to_bytes(2, "big") + reply)


def _parse_question(query: bytes) -> tuple[str, int, int]:
    labels = []
    at = _HEADER.size
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]])
        at += 1 + query[at]
    kind = int.from_bytes(query[at + 1 : at + 3], "big")
    return b".".join(labels).decode("ascii").lower(), kind, at + 5


def _reply(question: bytes, name: str, kind: int, rule: DnsAnswer) -> bytes:
    """RFC 1035 4.1: header, question, answers. A CNAME is followed by the addresses of its target, if any."""
    if rule.raw is not None:
        return question[:2] + rule.raw
    if rule.malformed:
        return question[:2] + b"\x81\x80\x00\x01\x00\x09\x00\x00\x00\x00" + b"\xff" * 7
    records = []
    owner = name
    for alias in [rule.cname] if isinstance(rule.cname, str) else rule.cname:
        if alias:
            records.append(_record(owner, CNAME, rule.ttl, _encode_name(alias)))
            owner = alias
    for address in () if rule.rcode or rule.truncated else rule.addresses:
        packed = ipaddress.ip_address(address).packed
        if kind == (A if len(packed) == 4 else AAAA):
            records.append(_record(owner, kind, rule.ttl, packed))
    flags = 0x8180 | rule.rcode | (0x0200 if rule.truncated else 0)
    header = question[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return header + question[_HEADER.size :] + b"".join(records)


def _record(owner: str, kind: int, ttl: int, data: bytes) -> bytes:
    return _encode_name(owner) + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def _encode_name(name: str) -> bytes:
    labels = [label.encode("ascii") for label in name.split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


async def serve_forever(arguments: Sequence[str]) -> None:
    """Rules as NAME=ADDRESS[,ADDRESS...]; an optional first argument host:port."""
    host, _, port = (arguments[0] if "=" not in arguments[0] else "127.0.0.1:0").partition(":")
    rules = [argument.partition("=") for argument in arguments if "=" in argument]
    table = {name: addresses.split(",") for name, _, addresses in rules}
    async with DnsServer(table, host=host, port=int(port)) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_forever(sys.argv[1:]))
