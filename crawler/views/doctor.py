"""Checks of what a crawl needs from its machine and its engine, each with its verdict and how to fix it.

Only looks; changes nothing.
"""

import asyncio
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from crawler.archive.folder import DESCRIPTION, free_bytes, is_open_to_others
from crawler.archive.told_log import FILE_MS, FILES
from crawler.engine.address import read_url
from crawler.engine.client import REDIS_MIN, VALKEY_MIN, Engine, EngineInfo, ShardInfo
from crawler.errors import CrawlerError
from crawler.frontier.permissions import lacking_text, missing_permissions
from crawler.settings import Settings
from crawler.settings.proxies import Proxy, proxies_of, unresolved_proxy
from crawler.terminal.tables import table
from crawler.terminal.words import duration, number, size
from crawler.web.resolver import CachingResolver

INTSET_MIN = 512
CLOCK_WARN_S = 2.0
FREE_WARN_BYTES = 4 * 1024**3
HEADROOM_WARN_BYTES = 256 * 1024**2
NODE_TIMEOUT_WARN_S = 5.0
PING_S = 10.0  # that a replica adds to what it may lack: its default time between two pings
TOLD_S = FILE_MS / 1000 * (FILES - 1)
SKEW_WARN = 2
NO_EVICTION = "CONFIG SET maxmemory-policy noeviction"
FILES_BESIDE_SOCKETS = 128  # archive, index, engine, libraries
KEPT_OPEN_FACTOR = 2  # connections kept alive in addition to those in use
PYTHON_MIN = (3, 11)


class Level(StrEnum):
    OK = "ok"
    WARN = "WARN"
    FAIL = "FAIL"


class Check(msgspec.Struct, frozen=True):
    """One check: what was found, and what to do about it (empty when all is well)."""

    name: str
    level: Level
    found: str
    mend: str = ""  # how to fix it
    lines: tuple[str, ...] = ()  # what was found, where that is more than a line


def ok(name: str, found: str) -> Check:
    return Check(name, Level.OK, found)


def report(checks: list[Check]) -> str:
    """A line for each check, and a second one where something must be fixed."""
    rows = table(("check", "", "found"), [(c.name, c.level, c.found) for c in checks], left=3).splitlines()[1:]
    lines = []
    for row, check in zip(rows, checks, strict=True):
        lines.append(row)
        lines += [f"{'':>4}{line}" for line in check.lines]
        if check.mend:
            lines.append(f"{'':>4}fix: {check.mend}")
    return "\n".join(lines)


# --- the machine ---


def check_python() -> Check:
    if sys.version_info[:2] < PYTHON_MIN:
        return Check("python", Level.FAIL, platform.python_version(), "install Python 3.11 or newer")
    return ok("python", f"{platform.python_implementation()} {platform.python_version()}")


def check_files(settings: Settings) -> Check:
    """The hard limit counts: a crawl raises the soft one by itself."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = KEPT_OPEN_FACTOR * settings.fetch.concurrency + FILES_BESIDE_SOCKETS
    if hard == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    found = f"{number(hard)} allowed, {number(needed)} needed for fetch.concurrency = {settings.fetch.concurrency}"
    if hard >= needed:
        return ok("open files", found)
    return Check("open files", Level.FAIL, found, f"ulimit -Hn {needed}, or a smaller --concurrency")


def check_disk(settings: Settings) -> Check:
    """The crawl folder, or the nearest folder above it that exists."""
    folder = Path(settings.archive.dir).resolve()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(
            "disk", Level.FAIL, f"{folder} can't be written", "change its owner or permissions, or use another --dir"
        )
    if (folder / DESCRIPTION).exists() and is_open_to_others(folder):
        return Check("disk", Level.WARN, f"other users can read the crawl folder {folder}", f"chmod 700 {folder}")
    free, least = free_bytes(folder), settings.archive.disk_free_bytes_min
    found = f"{size(free)} free at {folder}"
    if 0 <= free < least:
        mend = f"make room: a crawl needs {size(least)} (archive.disk_free_bytes_min), or use another --dir"
        return Check("disk", Level.FAIL, found, mend)
    if free < FREE_WARN_BYTES:
        return Check("disk", Level.WARN, found, "a million pages of 30 KiB take about 8 GiB")
    return ok("disk", found)


async def check_dns(settings: Settings) -> Check:
    resolver = CachingResolver(settings.dns, allow_private=True)
    try:
        complaint = await resolver.check()
        servers = ", ".join(resolver.nameservers())
    except CrawlerError as error:
        complaint, servers = str(error), ""
    finally:
        await resolver.close()
    if complaint:
        return Check("dns", Level.FAIL, complaint, "check /etc/resolv.conf, or name a server with --nameserver")
    return ok("dns", f"{servers} answers")


async def check_proxies(settings: Settings) -> list[Check]:
    """Does each take connections? What it answers is not asked: that would be a request to a site."""
    if complaint := next(unresolved_proxy(settings, os.environ), ""):
        return [Check("proxy", Level.FAIL, complaint, "set the variable, or correct fetch.proxy")]
    return [await _check_proxy(proxy, settings.fetch.connect_timeout_s) for proxy in proxies_of(settings)]


async def _check_proxy(proxy: Proxy, timeout_s: float) -> Check:
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(proxy.host, proxy.port)
    except (OSError, TimeoutError) as error:
        found = f"{proxy} takes no connections: {str(error) or 'no answer in time'}"
        return Check("proxy", Level.FAIL, found, "start it, or correct fetch.proxy (or proxy of [[sites]])")
    writer.close()
    return ok("proxy", f"{proxy} takes connections")


# --- the engine ---


def check_password_files(url: str) -> list[Check]:
    """Those that the URL of an engine names: can others on this machine read them?"""
    address = read_url(url)
    files = [one.file for one in (address.login, address.sentinel) if one.file]
    open_ones = [file for file in files if Path(file).exists() and is_open_to_others(Path(file))]
    return [Check("password", Level.WARN, f"other users can read {file}", f"chmod 600 {file}") for file in open_ones]


async def check_engine(open_engine: Callable[[], Engine], crawl: str) -> list[Check]:
    """All that an engine can tell, and what its user may do with this crawl; one FAIL when it does not answer."""
    engine = open_engine()
    try:
        permissions = _permissions(await missing_permissions(engine, crawl))
        info = await engine.info()
        before = time.time()
        shards = await engine.shards()
        seconds, micros = await engine.command("TIME")
        skew_s = int(seconds) + int(micros) / 1e6 - (before + time.time()) / 2
    except CrawlerError as error:
        found, _, mend = str(error).partition("; ")
        return [Check("engine", Level.FAIL, found, mend or "start it, or correct --redis")]
    finally:
        await engine.close()
    kept = cluster_checks(shards) if shards else [_policy(info), _persistence(info), _replicas(info)]
    return [_version(info), permissions, *kept, _intset(info), _memory(info), _clock(skew_s)]


def _permissions(missing: list[str]) -> Check:
    if not missing:
        return ok("permissions", "all that are needed")
    mend = "give them with ACL SETUSER: docs/operate/deploy.md has the line"
    return Check("permissions", Level.FAIL, lacking_text(missing), mend)


def cluster_checks(shards: Sequence[ShardInfo]) -> list[Check]:
    """Of a cluster as a whole, and of what may differ between its primaries."""
    there = [one for one in shards if not one.error]
    evicting = [one.name for one in there if one.policy not in ("", "noeviction")]
    forgetful = [one.name for one in there if not one.is_persistent]
    checks = [
        _shards(shards),
        Check("eviction", Level.FAIL, f"{', '.join(evicting)}: URLs would be lost", NO_EVICTION)
        if evicting
        else ok("eviction", "noeviction"),
        Check("persistence", Level.FAIL, f"{', '.join(forgetful)}: no append-only file", "CONFIG SET appendonly yes")
        if forgetful
        else ok("persistence", "append-only file"),
    ]
    if any(one.needs_all_slots for one in there):
        found = "while one shard is down, the others refuse their work, too"
        checks.append(Check("coverage", Level.WARN, found, "CONFIG SET cluster-require-full-coverage no, on each node"))
    timeout_s = max((one.node_timeout_s for one in there), default=0.0)
    if timeout_s > NODE_TIMEOUT_WARN_S:
        found = f"a failover takes at least {duration(timeout_s)} (cluster-node-timeout)"
        checks.append(Check("failover", Level.WARN, found, "CONFIG SET cluster-node-timeout 5000, on each node"))
    lacking_s = max((one.node_timeout_s * one.validity + PING_S if one.validity else 1e9 for one in there), default=0)
    if lacking_s > TOLD_S:
        found = f"a replica may be promoted that lacks more than the last {duration(TOLD_S)}, which are sent again"
        mend = "CONFIG SET cluster-replica-validity-factor 10, on each node"
        checks.append(Check("replicas", Level.WARN, found, mend))
    sizes = sorted(one.used_bytes for one in there)
    if sizes and sizes[-1] > SKEW_WARN * sizes[0] + HEADROOM_WARN_BYTES:
        found = f"the fullest primary uses {size(sizes[-1])}, the emptiest {size(sizes[0])}"
        checks.append(Check("skew", Level.WARN, found, "move slots: redis-cli --cluster rebalance HOST:PORT"))
    return checks


def _shards(shards: Sequence[ShardInfo]) -> Check:
    if silent := [f"{one.name} ({one.error})" for one in shards if one.error]:
        return Check(
            "shards", Level.FAIL, f"no answer from {', '.join(silent)}", "start it, or let a replica take over"
        )
    if alone := [one.name for one in shards if not one.has_replica]:
        found = f"{', '.join(alone)}: no replica that works"
        return Check("shards", Level.WARN, found, "add one: what a primary has is lost with its machine")
    return ok("shards", f"{len(shards)} primaries, each with a replica")


def _version(info: EngineInfo) -> Check:
    least = VALKEY_MIN if info.product == "valkey" else REDIS_MIN
    found = f"{info.product} {'.'.join(map(str, info.version))}"
    if info.version < least:
        return Check("engine", Level.FAIL, found, f"install {info.product} {least[0]}.{least[1]} or newer")
    return ok("engine", found)


def _replicas(info: EngineInfo) -> Check:
    """Of one server. What takes over from it, or may seem to: then two may be written at the same time."""
    found = f"{number(info.replicas)} connected" if info.replicas else "none connected"
    if info.replicas and info.replicas_needed == 0:
        found += "; when one takes over, the old primary may be written, too, until it is stopped"
        return Check("replicas", Level.WARN, found, "CONFIG SET min-replicas-to-write 1, on each server")
    return ok("replicas", found)


def _policy(info: EngineInfo) -> Check:
    if info.policy != "noeviction":
        return Check("eviction", Level.FAIL, f"{info.policy}: URLs would be lost", NO_EVICTION)
    return ok("eviction", "noeviction")


def _persistence(info: EngineInfo) -> Check:
    if not info.persistent:
        return Check(
            "persistence",
            Level.FAIL,
            "no append-only file: a restart would lose the crawl",
            "CONFIG SET appendonly yes",
        )
    return ok("persistence", "append-only file")


def _intset(info: EngineInfo) -> Check:
    found = f"set-max-intset-entries {info.intset_max}"
    if info.intset_max < INTSET_MIN:
        mend = f"CONFIG SET set-max-intset-entries {INTSET_MIN}: otherwise seen URLs take four times the memory"
        return Check("seen-set", Level.FAIL, found, mend)
    return ok("seen-set", found)


def _memory(info: EngineInfo) -> Check:
    if not info.max_bytes:
        return ok("memory", f"{size(info.used_bytes)} used, no maxmemory")
    left = info.max_bytes - info.used_bytes
    found = f"{size(info.used_bytes)} of {size(info.max_bytes)} used"
    if left < HEADROOM_WARN_BYTES:
        return Check("memory", Level.WARN, found, "raise maxmemory: adding URLs is refused when it is full")
    return ok("memory", found)


def _clock(skew_s: float) -> Check:
    """Nothing that is safe rests on clocks that agree; dates do."""
    if abs(skew_s) > CLOCK_WARN_S:
        found = f"the engine's clock is {duration(abs(skew_s))} {'ahead' if skew_s > 0 else 'behind'}"
        return Check(
            "clock", Level.WARN, found, "let NTP set both clocks: dates differ, and jobs may not be triggered here"
        )
    return ok("clock", f"the same as the engine's within {duration(max(0.1, abs(skew_s)))}")
