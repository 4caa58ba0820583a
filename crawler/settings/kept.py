"""Settings that belong to a crawl: what its results depend on is stored with it, by name, and holds for every command.

    FIXED      what the engine's keys were made of; nothing changes it
    RESULTS    what is fetched, kept and given up; `crawler settings` changes it, for the whole crawl
    TREATMENT  how sites are treated, and budgets: a command that names other values changes them for the whole crawl,
               and says so; nothing is lost by that

What is in none of them belongs to the process: addresses, memory, files, what this machine allows, and secrets.
"""

import enum
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.errors import ConflictError
from crawler.settings.internals import INTERNALS
from crawler.settings.schema import LoadedSettings, OrderSettings, Settings


class Kept(enum.Enum):
    """See above; PERMISSION: whether the crawl needs it is stored, and each machine gives it."""

    FIXED = "fixed"
    RESULTS = "results"
    TREATMENT = "treatment"
    PERMISSION = "permission"
    PROCESS = "process"


_SECTIONS = {
    "scope": Kept.RESULTS,
    "fetch": Kept.RESULTS,
    "identity": Kept.TREATMENT,
    "robots": Kept.RESULTS,
    "rights": Kept.RESULTS,
    "requisites": Kept.TREATMENT,
    "budget": Kept.TREATMENT,
    "traps": Kept.RESULTS,
    "politeness": Kept.TREATMENT,
    "retry": Kept.TREATMENT,
    "hosts": Kept.TREATMENT,
}
_KEYS = {
    "crawl.partitions": Kept.FIXED,
    "frontier.queue_by": Kept.FIXED,
    **{f"frontier.{name}": Kept.FIXED for name in OrderSettings.__struct_fields__},
    "fetch.contact": Kept.TREATMENT,
    "fetch.connect_timeout_s": Kept.TREATMENT,
    "fetch.idle_timeout_s": Kept.TREATMENT,
    "fetch.total_timeout_s": Kept.TREATMENT,
    "handlers.items_max": Kept.RESULTS,
    "fetch.concurrency": Kept.PROCESS,
    "fetch.bytes_in_flight_max": Kept.PROCESS,
    "fetch.gateway": Kept.PROCESS,
    "fetch.proxy": Kept.PROCESS,
    "fetch.allow_private": Kept.PERMISSION,
    "fetch.insecure_tls": Kept.PERMISSION,
    "handlers.app": Kept.PERMISSION,
    "identity.key_file": Kept.PERMISSION,
}


def class_of(key: str) -> Kept:
    """Where "section.key" belongs. Internals belong to the process."""
    if key in INTERNALS:
        return Kept.PROCESS
    return _KEYS.get(key) or _SECTIONS.get(key.partition(".")[0], Kept.PROCESS)


def kept_of(settings: Settings) -> dict[str, Any]:
    """All that belongs to the crawl, by name, as JSON has it."""
    return {
        f"{section}.{key}": value
        for section, keys in msgspec.to_builtins(settings).items()
        if isinstance(keys, dict)
        for key, value in keys.items()
        if class_of(f"{section}.{key}") in (Kept.FIXED, Kept.RESULTS, Kept.TREATMENT)
    }


def given_of(settings: Settings) -> frozenset[str]:
    """The keys that some source of these settings named."""
    return settings.given if isinstance(settings, LoadedSettings) else frozenset()


def with_stored(settings: Settings, stored: Mapping[str, Any]) -> Settings:
    """The settings with what is stored in the place of what nobody named. Raises ConflictError.

    A stored name that is not a setting any more has no effect.
    """
    given, sections = given_of(settings), dict[str, dict[str, Any]]()
    for key, value in stored.items():
        section, _, name = key.partition(".")
        if key not in given and name in getattr(getattr(settings, section, None), "__struct_fields__", ()):
            sections.setdefault(section, {})[name] = value
    changed = {}
    for section, values in sections.items():
        old = getattr(settings, section)
        try:
            changed[section] = msgspec.convert(msgspec.to_builtins(old) | values, type(old))
        except msgspec.ValidationError as error:
            raise ConflictError(f"this crawl has settings that this release can't read: {section}: {error}") from None
    return replace(settings, **changed)


def shown(value: Any) -> str:
    """A value as `--set KEY=VALUE` takes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)
