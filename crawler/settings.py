"""One typed record of all settings, validated once: defaults < TOML file < environment (CRAWLER_*) < options.

Knows nothing of what uses it. Times that people set are seconds (`*_s`); sizes are bytes (`*_bytes`).
"""

import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from crawler.errors import UsageError

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections: immutable, and an unknown key is an error."""


class CrawlSettings(_Section, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "main"
    partitions: Annotated[int, Meta(ge=1, le=16384)] = 1024
    pages_max: CountOrZero = 0  # 0: no limit
    time_max_s: NotNegative = 0.0  # 0: no limit


class ScopeSettings(_Section, frozen=True):
    mode: Literal["domain", "host", "prefix", "any"] = "domain"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    depth_max: Annotated[int, Meta(ge=-1, le=255)] = -1  # -1: no limit; 0: seeds only
    redirects_max: CountOrZero = 10
    url_bytes_max: Count = 8192
    nofollow: bool = True  # obey rel=nofollow and meta robots nofollow


class PolitenessSettings(_Section, frozen=True):
    delay_s: NotNegative = 1.0
    delay_max_s: Positive = 60.0  # cap on robots.txt Crawl-delay
    factor: NotNegative = 0.0  # wait at least factor x the last fetch time
    retry_after_max_s: Positive = 3600.0
    concurrency_per_queue: Count = 1
    concurrency_per_address: Count = 8


class FetchSettings(_Section, frozen=True):
    concurrency: Count = 64
    user_agent: str = "shardcrawl/{version} (+{contact})"
    contact: str = ""
    connect_timeout_s: Positive = 10.0
    idle_timeout_s: Positive = 20.0
    total_timeout_s: Positive = 60.0
    body_bytes_max: Count = 10 * 1024 * 1024
    headers_bytes_max: Count = 64 * 1024
    inflate_ratio_max: Count = 100  # beyond the first MiB
    links_max: Count = 5000
    allow_private: bool = False
    insecure_tls: bool = False
    accept: str = "text/html,application/xhtml+xml,*/*;q=0.5"
    accept_language: str = "en,*;q=0.5"


class RobotsSettings(_Section, frozen=True):
    obey: bool = True
    agent: str = "shardcrawl"  # the product token looked up in robots.txt
    ttl_s: Positive = 86400.0
    body_bytes_max: Annotated[int, Meta(ge=512_000)] = 512_000
    redirects_max: CountOrZero = 5


class DnsSettings(_Section, frozen=True):
    nameservers: tuple[str, ...] = ()  # empty: the system's; "host" or "host:port"
    timeout_s: Positive = 5.0
    tries: Count = 2
    ttl_min_s: NotNegative = 60.0
    ttl_max_s: Positive = 3600.0
    negative_ttl_s: NotNegative = 60.0
    cache_size: Count = 100_000


class RetrySettings(_Section, frozen=True):
    attempts: Count = 3
    backoff_s: NotNegative = 2.0  # before the 2nd attempt; times `backoff_factor` each further one
    backoff_factor: Annotated[float, Meta(ge=1)] = 4.0
    backoff_max_s: Positive = 3600.0


class FrontierSettings(_Section, frozen=True):
    redis: str = ""  # empty: the embedded engine in the crawl folder
    engine: str = ""  # path of another server binary for the embedded engine
    queue_by: Literal["domain", "host"] = "domain"
    half_life_s: float = -86400.0  # see docs: negative: older first; positive: fresher first
    claim_urls_max: Count = 64  # per queue and call
    claim_ahead_s: Positive = 2.0  # hand out as many URLs of a queue as its delay allows in this time
    visibility_timeout_s: Positive = 300.0
    call_timeout_s: Positive = 2.0
    recent_urls: CountOrZero = 200_000
    log_entries_max: Count = 10_000  # undrained commit entries of a partition before acks wait
    memory_mark: Annotated[float, Meta(gt=0, le=1)] = 0.85  # claiming stops above this share of maxmemory


class MembershipSettings(_Section, frozen=True):
    node: str = ""  # empty: host name + slot
    weight: Annotated[int, Meta(ge=1, le=100)] = 1
    beat_s: Positive = 1.0
    read_s: Positive = 0.5
    suspect_s: Positive = 3.0
    self_stop_s: Positive = 5.0
    dead_s: Positive = 7.0
    gap_s: Positive = 2.5  # two reads further apart than this start the window afresh
    debounce_s: NotNegative = 0.5
    drain_timeout_s: Positive = 30.0
    virtual_nodes: Count = 150
    load_bound: Annotated[float, Meta(ge=1)] = 1.1


class ArchiveSettings(_Section, frozen=True):
    dir: str = "crawl-data"
    warc: bool = True
    warc_bytes_max: Annotated[int, Meta(ge=1_000_000)] = 1_000_000_000
    compression_level: Annotated[int, Meta(ge=0, le=3)] = 1  # ISA-L levels
    sync_s: Positive = 0.2
    sync_pages: Count = 256
    request_records: bool = True


class LogSettings(_Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "warning"
    file: str = ""


class Settings(_Section, frozen=True):
    """All settings. `load` is the one way to get one."""

    crawl: CrawlSettings = CrawlSettings()
    scope: ScopeSettings = ScopeSettings()
    politeness: PolitenessSettings = PolitenessSettings()
    fetch: FetchSettings = FetchSettings()
    robots: RobotsSettings = RobotsSettings()
    dns: DnsSettings = DnsSettings()
    retry: RetrySettings = RetrySettings()
    frontier: FrontierSettings = FrontierSettings()
    membership: MembershipSettings = MembershipSettings()
    archive: ArchiveSettings = ArchiveSettings()
    log: LogSettings = LogSettings()


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Merge the sources and validate.

    `options` maps "section.key" to a value; None values are left out. Raises UsageError with one line.
    """
    merged: dict[str, dict[str, Any]] = {}
    if file is not None:
        merged = _read_toml(file)
        _convert(merged, f"{file}")  # so that the message names the file
    _merge_environment(merged, os.environ if environment is None else environment)
    for dotted, value in (options or {}).items():
        if value is not None:
            section, _, key = dotted.partition(".")
            merged.setdefault(section, {})[key] = value
    settings = _convert(merged, "settings")
    _check_finite(settings)
    _check_headers(settings)
    _check_relations(settings)
    return settings


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from None


def _convert(raw: Mapping[str, Any], where: str) -> Settings:
    try:
        return msgspec.convert(raw, Settings, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_readable(error, raw)}") from None


def _readable(error: msgspec.ValidationError, raw: Mapping[str, Any]) -> str:
    """Name the key at fault as section.key, and for an unknown one the keys that exist."""
    text, _, path = str(error).partition(" - at `$")
    path = path.strip("`.")
    if "unknown field" in text:
        unknown = text.split("`")[-2]
        return _unknown(f"{path}.{unknown}" if path else unknown, _keys_of(path))
    if not path:
        return text
    if text.startswith("Invalid enum value"):
        text = f"expected one of {', '.join(_choices_of(path))}"
    for theirs, ours in _PLAIN_WORDS.items():
        text = text.replace(theirs, ours)
    return f"{path} = {_value_at(raw, path)!r}: {text[0].lower()}{text[1:]}"


# The validator speaks of JSON; people write TOML.
_PLAIN_WORDS = {
    "`object`": "a [section]",
    "`array`": "a list",
    "`str`": "a string",
    "`int`": "an integer",
    "`float`": "a number",
    "`bool`": "true or false",
}


def _unknown(key: str, known: Iterable[str]) -> str:
    return f"unknown key {key} (known: {', '.join(sorted(known))})"


def _value_at(raw: Any, path: str) -> Any:
    """What stands at a path like fetch.accept or scope.include[0]."""
    for step in path.replace("[", ".[").split("."):
        raw = raw[int(step[1:-1])] if step.startswith("[") else raw[step]
    return raw


def _choices_of(path: str) -> tuple[str, ...]:
    section, _, key = path.partition(".")
    return get_args(type(getattr(Settings(), section)).__annotations__[key])


def _keys_of(section: str) -> tuple[str, ...]:
    struct: Any = type(getattr(Settings(), section)) if section else Settings
    return tuple(struct.__struct_fields__)


def _merge_environment(merged: dict[str, dict[str, Any]], environment: Mapping[str, str]) -> None:
    """CRAWLER_<SECTION>_<KEY>=value; lists are comma-separated."""
    for name in sorted(n for n in environment if n.startswith("CRAWLER_")):
        section, _, key = name.removeprefix("CRAWLER_").lower().partition("_")
        if section not in Settings.__struct_fields__:
            continue  # CRAWLER_CONFIG and test switches are not settings
        if key not in _keys_of(section):
            raise UsageError(f"{name}: {_unknown(f'{section}.{key}', _keys_of(section))}")
        merged.setdefault(section, {})[key] = _from_text(name, environment[name], section, key)


_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _from_text(name: str, text: str, section: str, key: str) -> Any:
    default = getattr(getattr(Settings(), section), key)
    try:
        if isinstance(default, bool):
            return _BOOLEANS[text.lower()]
        if isinstance(default, tuple):
            return [part.strip() for part in text.split(",") if part.strip()]
        return type(default)(text)
    except (ValueError, KeyError):
        kind = "yes or no" if isinstance(default, bool) else type(default).__name__
        raise UsageError(f"{name}={text!r}: not a valid {kind}") from None


def _check_finite(settings: Settings) -> None:
    """TOML and float() both know inf; no time here may be endless."""
    for section in settings.__struct_fields__:
        for key in _keys_of(section):
            value = getattr(getattr(settings, section), key)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{section}.{key} = {value}: expected a finite number")


def _check_headers(settings: Settings) -> None:
    """What goes into request headers is one line of printable ASCII."""
    for key in ("user_agent", "contact", "accept", "accept_language"):
        value = getattr(settings.fetch, key)
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"fetch.{key} = {value!r}: expected printable ASCII on one line")
    try:
        settings.fetch.user_agent.format(version="", contact="")
    except (KeyError, IndexError, ValueError, AttributeError):
        agent = settings.fetch.user_agent
        raise UsageError(f"fetch.user_agent = {agent!r}: {{version}}, {{contact}} have values") from None


def _check_relations(settings: Settings) -> None:
    membership, politeness = settings.membership, settings.politeness
    for low, high in pairwise(("read_s", "gap_s", "suspect_s", "self_stop_s", "dead_s")):
        a, b = getattr(membership, low), getattr(membership, high)
        if a >= b:
            raise UsageError(f"membership.{low} = {a} must be smaller than membership.{high} = {b}")
    if membership.beat_s * 2 > membership.suspect_s:
        raise UsageError(
            f"membership.beat_s = {membership.beat_s} must be at most half of "
            f"membership.suspect_s = {membership.suspect_s}"
        )
    if politeness.delay_s > politeness.delay_max_s:
        raise UsageError(
            f"politeness.delay_s = {politeness.delay_s} is above politeness.delay_max_s = {politeness.delay_max_s}"
        )
    visibility, total = settings.frontier.visibility_timeout_s, settings.fetch.total_timeout_s
    if visibility < 2 * total:
        raise UsageError(
            f"frontier.visibility_timeout_s = {visibility} must be at least twice fetch.total_timeout_s = {total}"
        )
