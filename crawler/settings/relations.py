"""What the settings must be in relation to each other; each complaint is one line that states the relation."""

import ipaddress
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from crawler.expressions import fault_of
from crawler.lazy_module import LazyModule
from crawler.settings.contact import fault_of_origin
from crawler.settings.proxies import FROM_VARIABLES, fault_of_proxy
from crawler.settings.schema import OrderSettings, Settings
from crawler.settings.site_checks import site_complaints

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = LazyModule("tomllib")


SIGNATURE_HEADERS = frozenset(("signature", "signature-input", "signature-agent"))
HISTORY_BYTES_MIN = 1_000_000  # a 64th of it is a segment, which has to hold some lines with the longest URLs


def complaints(settings: Settings) -> Iterator[str]:
    """What is wrong with the settings taken together, first things first."""
    yield from _budget(settings)
    yield from _endless(settings)
    yield from _proxy(settings)  # before what would show a text that may hold a password
    yield from _texts(settings)
    yield from _nameservers(settings)
    yield from _gateway(settings)
    yield from _headers(settings)
    yield from _history(settings)
    yield from _identity(settings)
    yield from _membership(settings)
    yield from _order(settings)
    yield from _rights(settings)
    yield from _scope(settings)
    yield from site_complaints(settings)
    yield from _times(settings)


def _budget(settings: Settings) -> Iterator[str]:
    depth, limit = settings.budget.depth, settings.scope.depth_max
    if 0 <= limit < depth:
        yield f"budget.depth = {depth} is above scope.depth_max = {limit}, beyond which URLs are refused"


def _rights(settings: Settings) -> Iterator[str]:
    rights = settings.rights
    if rights.policy == "skip" and not rights.purpose:
        yield 'rights.policy = "skip" needs rights.purpose: "search", "ai-input", "ai-train" or "tdm"'
    if rights.tdmrep and not settings.robots.obey:
        yield "rights.tdmrep = true needs robots.obey = true: tdmrep.json is read after robots.txt, if that allows it"


def _endless(settings: Settings) -> Iterator[str]:
    """TOML and float() both know inf; no time here may be endless."""
    for path, value in _leaves(settings, ""):
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{path} = {value}: expected a finite number"


def _texts(settings: Settings) -> Iterator[str]:
    """No name, path or URL has a NUL byte: what opens it would end as an error of ours."""
    for path, value in _leaves(settings, ""):
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and "\0" in text:
                yield f"{path} = {text!r}: has a NUL byte"


def _nameservers(settings: Settings) -> Iterator[str]:
    for server in settings.dns.nameservers:
        if not (_is_address(server) or _is_address_and_port(server)):
            yield f"dns.nameservers: {server!r} is not an IP address (use 192.0.2.53, or 192.0.2.53:53 with a port)"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _is_address_and_port(text: str) -> bool:
    address, _, port = text.rpartition(":")
    return _is_address(address) and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536


def _leaves(record: msgspec.Struct, path: str) -> Iterator[tuple[str, object]]:
    for key in record.__struct_fields__:
        value = getattr(record, key)
        if isinstance(value, msgspec.Struct):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _gateway(settings: Settings) -> Iterator[str]:
    if not settings.fetch.gateway:
        return
    if not _is_address_and_port(settings.fetch.gateway):
        yield f"fetch.gateway = {settings.fetch.gateway!r}: expected an IP address and a port, like 127.0.0.1:8080"


def _proxy(settings: Settings) -> Iterator[str]:
    text = settings.fetch.proxy
    if isinstance(text, str) and text != FROM_VARIABLES and (fault := fault_of_proxy(text)):
        yield f"fetch.proxy: {fault}"


def _headers(settings: Settings) -> Iterator[str]:
    """What goes into request headers is one line of printable ASCII."""
    for key in ("user_agent", "contact", "accept", "accept_language"):
        value = getattr(settings.fetch, key)
        if not (value.isascii() and value.isprintable()):
            yield f"fetch.{key} = {value!r}: expected printable ASCII on one line"
    try:
        settings.fetch.user_agent.format(version="", contact="")
    except (KeyError, IndexError, ValueError, AttributeError):
        yield f"fetch.user_agent = {settings.fetch.user_agent!r}: only {{version}} and {{contact}} can be used"


def _history(settings: Settings) -> Iterator[str]:
    bytes_max, least = settings.history.bytes_max, HISTORY_BYTES_MIN
    if 0 < bytes_max < least:
        yield f"history.bytes_max = {bytes_max} must be at least {least}, or 0 to keep no history"


def _identity(settings: Settings) -> Iterator[str]:
    identity = settings.identity
    if identity.agent and (fault := fault_of_origin(identity.agent)):
        yield f"identity.agent = {identity.agent[:100]!r}: {fault}"
    if identity.sign == "off":
        return
    for number, site in enumerate(settings.sites):
        for name in site.headers:
            if name.lower() in SIGNATURE_HEADERS:
                yield f"sites[{number}].headers.{name} can't be set: identity.sign = {identity.sign} sets it"


def _membership(settings: Settings) -> Iterator[str]:
    m, call_s = settings.membership, settings.frontier.call_timeout_s
    if m.beat_s + call_s >= m.self_stop_s:
        least = 1.75 * call_s  # 5/7 of dead_s, after which it stops, less the beat of 1/7
        yield (
            f"membership.dead_s = {m.dead_s} must be more than {least:g}, 1.75 times frontier.call_timeout_s = "
            f"{call_s}: one lost heartbeat must not stop an instance"
        )


def _order(settings: Settings) -> Iterator[str]:
    f, default = settings.frontier, OrderSettings()
    for number, rule in enumerate(f.rules):
        if fault := fault_of(rule.match):
            yield f"frontier.rules[{number}].match = {rule.match!r}: {fault}"
    if f.order == "breadth":
        for key in ("rules", "depth_weight", "links_weight", "sitemap_weight"):
            if getattr(f, key) != getattr(default, key):
                yield f"frontier.{key} needs frontier.order = priority or freshness: breadth uses only the depth"


def _scope(settings: Settings) -> Iterator[str]:
    for key in ("include", "exclude"):
        for number, pattern in enumerate(getattr(settings.scope, key)):
            if fault := fault_of(pattern):
                yield f"scope.{key}[{number}] = {pattern!r}: {fault}"


def _times(settings: Settings) -> Iterator[str]:
    politeness = settings.politeness
    if politeness.delay_s > politeness.delay_max_s:
        yield f"politeness.delay_s = {politeness.delay_s} is above politeness.delay_max_s = {politeness.delay_max_s}"
