"""Which addresses and ports the crawler may connect to.

Checks addresses, not names: a name is only as public as the address it resolves to at connect time. Of what a proxy
resolves only the name is known: those that are private, whoever resolves them, are refused.
"""

import ipaddress
from functools import lru_cache

from crawler.rules.places import embedded_v4

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


# RFC 6761 6.3, RFC 6762 3 and G, RFC 8375 4, ".internal", which ICANN reserved for private use in 2024, and names that
# it will not delegate because so many networks use them (corp, home, mail). Clusters have .svc; .onion (RFC 7686) and
# .alt (RFC 9476) are no names of DNS.
_PRIVATE_DOMAINS = frozenset(
    ("localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home", "lan", "mail", "svc",
     "onion", "alt")
)  # fmt: skip
_PRIVATE_ZONES = ("home.arpa", "localhost.localdomain")


def is_private_name(host: str) -> bool:
    """Is a name private, whatever it resolves to? One without a dot is that of a machine near the one that resolves."""
    name = host.rstrip(".").lower()
    return (
        "." not in name
        or name.rpartition(".")[2] in _PRIVATE_DOMAINS
        or any(name == zone or name.endswith(f".{zone}") for zone in _PRIVATE_ZONES)
    )


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
