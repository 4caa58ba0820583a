"""Reads the settings from where people put them: defaults < TOML file < environment (CRAWLER_*) < options."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from crawler.errors import UsageError
from crawler.lazy_module import LazyModule
from crawler.settings.contact import fault_of_contact
from crawler.settings.internals import INTERNALS
from crawler.settings.relations import complaints
from crawler.settings.schema import FromEnvironment, LoadedSettings, Settings

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = LazyModule("tomllib")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """Merge the sources and validate. Each of them takes internals (settings/removed.py) below `internals.`.

    `options` maps "section.key" (or "section.table.key") to a value; None values are left out. Raises UsageError with
    one line.
    """
    merged = _merged(file, environment, options)
    settings = _convert(merged, "settings")
    for complaint in complaints(settings):
        raise UsageError(complaint)
    given = {f"{name}.{key}" for name, keys in merged.items() if isinstance(keys, dict) for key in keys}
    if "fetch.contact" in given and (fault := fault_of_contact(settings.fetch.contact)):
        # Only where it is given: a crawl that was begun with another one keeps it.
        raise UsageError(f"fetch.contact = {settings.fetch.contact[:100]!r}: {fault}")
    frontier, least_s = settings.frontier, 2 * settings.fetch.total_timeout_s
    if frontier.visibility_timeout_s < least_s:  # or a slow fetch would be delivered again while it goes on
        frontier = replace(frontier, visibility_timeout_s=least_s)
    sections = msgspec.structs.asdict(replace(settings, frontier=frontier))
    return LoadedSettings(**sections, given=frozenset(given))


def read(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """The same, without a look at what settings must be in relation to each other."""
    return _convert(_merged(file, environment, options), "settings")


def is_given(
    key: str,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> bool:
    """Does any of the sources set "section.key", even to its default?"""
    section, _, name = key.partition(".")
    return name in _merged(file, environment, options).get(section, {})


def _merged(
    file: Path | None, environment: Mapping[str, str] | None, options: Mapping[str, Any] | None
) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    if file is not None:
        merged = _read_toml(file)
        _refuse(merged, f"{file}")
        _convert(_with_internals(merged), f"{file}")  # so that the message names the file
    _merge_environment(merged, os.environ if environment is None else environment)
    for dotted, value in (options or {}).items():
        if value is not None:
            _put(merged, dotted, value)
    _refuse(merged, "settings")
    return _with_internals(merged)


def _refuse(raw: Mapping[str, Any], where: str) -> None:
    """Raises UsageError for internals where settings are expected."""
    for key in INTERNALS:
        if _has(raw, key):
            raise UsageError(f"{where}: {_unknown(key)}")


def _has(raw: Any, path: str) -> bool:
    for step in path.split("."):
        if not isinstance(raw, Mapping) or step not in raw:
            return False
        raw = raw[step]
    return True


def _with_internals(raw: dict[str, Any]) -> dict[str, Any]:
    """The sections with what `internals` has for them."""
    given = raw.get("internals")
    if given is None:
        return raw
    sections = {name: value for name, value in raw.items() if name != "internals"}
    for name, keys in given.items() if isinstance(given, dict) else (("", given),):
        if not isinstance(keys, dict) or any(f"{name}.{key}" not in INTERNALS for key in keys):
            raise UsageError(f"internals.{name}: not internals of the crawler (see crawler/settings/internals.py)")
        sections[name] = sections.get(name, {}) | keys
    return sections


def read_one(variable: str, text: str) -> Any:
    """One setting from its text, as `options` of `load` takes it, by the name of its environment variable.

    What it must be in relation to others is not looked at. Raises UsageError with one line.
    """
    merged: Any = {}
    _merge_environment(merged, {variable: text})
    _convert(_with_internals(merged), "settings")
    while isinstance(merged, dict):
        (merged,) = merged.values()
    return merged


def _put(merged: dict[str, Any], path: str, value: Any) -> None:
    *tables, key = path.split(".")
    for table in tables:
        merged = merged.setdefault(table, {})
    merged[key] = value


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read settings file {file}: {error.strerror}") from None
    except ValueError as error:  # also of a number of thousands of digits
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{file} is not valid TOML for settings: its values are nested too deeply") from None


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
        return _unknown(f"{path}.{unknown}" if path else unknown)
    if not path:
        return text
    if text.startswith("Invalid enum value"):
        text = f"expected one of {', '.join(filter(None, _choices_of(path)))}"
    for theirs, ours in _PLAIN_WORDS.items():
        text = text.replace(theirs, ours)
    text = f"{text[0].lower()}{text[1:]}"
    if path == "sites":
        return "sites: expected tables that begin with [[sites]]"
    if _MAY_BE_SECRET.match(path):
        return f"{path.replace('[...]', '.*')}: {text}"
    return f"{path} = {_value_at(raw, path)!r}: {text}"


_MAY_BE_SECRET = re.compile(r"fetch\.proxy\b|sites\[\d+\](\.(auth|cookies|headers|proxy)\b|$)")

# The validator speaks of JSON; people write TOML.
_PLAIN_WORDS = {
    "`str | object`": 'a string or { env = "NAME" }',
    "Object missing required field": "missing",
    "`object`": "a [section]",
    "`array`": "a list",
    "`str`": "a string",
    "`int`": "an integer",
    "`float`": "a number",
    "`bool`": "true or false",
}


def _unknown(key: str) -> str:
    table, _, _ = key.rpartition(".")
    known = (name for name in _keys_of(table) if f"{table}.{name}" not in INTERNALS)
    return f"unknown key {key} (known: {', '.join(sorted(known))})"


def _value_at(raw: Any, path: str) -> Any:
    """What stands at a path like fetch.accept or scope.include[0]."""
    for step in path.replace("[", ".[").split("."):
        raw = raw[int(step[1:-1])] if step.startswith("[") else raw[step]
    return raw


def _choices_of(path: str) -> tuple[str, ...]:
    table, _, key = path.partition("[")[0].rpartition(".")
    choices = get_args(_hint_of(table, key))
    return get_args(choices[0]) or choices  # of the items of a list, or of the value itself


def _keys_of(path: str) -> tuple[str, ...]:
    """Of all settings (""), of a section, of a table in it, or of one of a list of tables like frontier.rules[0]."""
    struct: Any
    if path == "fetch.proxy" or (path.startswith("sites[") and "]." in path):
        struct = FromEnvironment
    elif path.endswith("]"):
        table, _, key = path.rpartition("[")[0].rpartition(".")
        struct = _table_in(table, key)
    else:
        struct = type(_table(path))
    return tuple(struct.__struct_fields__)


def _table(path: str) -> Any:
    """The defaults of a section, or of a table within one."""
    found: Any = Settings()
    for step in path.split(".") if path else ():
        found = getattr(found, step)
    return found


def _hint_of(table: str, key: str) -> Any:
    return get_type_hints(type(_table(table)))[key]


def _table_in(table: str, key: str) -> Any:
    """The record that each table of a list of tables is; None for other kinds of keys."""
    hint = _hint_of(table, key)
    inner = get_args(hint) if get_origin(hint) is tuple else ()
    return inner[0] if inner and isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct) else None


def _merge_environment(merged: dict[str, Any], environment: Mapping[str, str]) -> None:
    """CRAWLER_<SECTION>_<KEY>=value, CRAWLER_<SECTION>_<TABLE>_<KEY>=value.

    Lists are comma-separated, lists of tables written as in TOML.
    """
    for name in sorted(n for n in environment if n.startswith("CRAWLER_")):
        section, _, key = name.removeprefix("CRAWLER_").lower().partition("_")
        is_internal = section == "internals"
        if is_internal:
            section, _, key = key.partition("_")
        if is_internal and section not in Settings.__struct_fields__:
            raise UsageError(f"{name}: not an internal of the crawler (see crawler/settings/internals.py)")
        if section not in Settings.__struct_fields__:
            continue  # CRAWLER_CONFIG and test switches are not settings
        if section == "sites":
            raise UsageError(f"{name}: sites are tables of the settings file, which begin with [[sites]]")
        table, key = _place_of(section, key)
        path = f"{table}.{key}"
        if key not in _keys_of(table) or is_internal != (path in INTERNALS):
            raise UsageError(f"{name}: {_unknown(path)}")
        if isinstance(getattr(_table(table), key), msgspec.Struct):
            raise UsageError(f"{name}: {path} is a table: set one of its keys")
        value = _from_text(name, environment[name], table, key)
        _put(merged, f"internals.{path}" if is_internal else path, value)


def _place_of(section: str, name: str) -> tuple[str, str]:
    """The table that a variable's name leads to, and the key in it."""
    for key, value in zip(_keys_of(section), msgspec.structs.astuple(_table(section)), strict=True):
        if isinstance(value, msgspec.Struct) and name.startswith(f"{key}_"):
            return f"{section}.{key}", name.removeprefix(f"{key}_")
    return section, name


_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _from_text(name: str, text: str, table: str, key: str) -> Any:
    kind, is_tables = _type_of(table, key), _table_in(table, key) is not None
    try:
        if kind is bool:
            return _BOOLEANS[text.lower()]
        if is_tables:
            return tomllib.loads(f"value = {text}")["value"]
        if kind is tuple:
            return [part.strip() for part in text.split(",") if part.strip()]
        return kind(text)
    except (ValueError, KeyError, RecursionError):
        wanted = {bool: "answer (yes or no)", int: "whole number", float: "number"}.get(kind, kind.__name__)
        if is_tables:
            wanted = "list of tables in TOML, like [{match = '/news/', add = 2.0}]"
        raise UsageError(f"{name}={text!r}: not a valid {wanted}") from None


def _type_of(table: str, key: str) -> Any:
    """By the default; where that is None, by the annotation."""
    default = getattr(_table(table), key)
    if default is not None:
        return type(default)
    return get_args(get_type_hints(type(_table(table)))[key])[0]
