"""What a command takes from the crawl, what it may change of it, and what this machine permits.

What results depend on is stored with the crawl (settings/kept.py). A permission is never read from the engine, which
others may write: the crawl stores that it needs one, and it comes from this command's options and settings, or from a
file of this machine's crawl folder in which an earlier command noted it.
"""

import contextlib
import hashlib
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.archive.crawl_binding import bound_to, holds_results
from crawler.archive.folder import archive_error, is_crawl_folder, open_existing, replace_durably
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.frontier.lookup import Progress
from crawler.frontier.record import Needs
from crawler.settings import Settings
from crawler.settings.kept import Kept, class_of, given_of, kept_of, shown, with_stored
from crawler.settings.relations import complaints
from crawler.terminal.words import program

FILE = "permissions.json"
OPTIONS = {"allow_private": "--allow-private", "insecure_tls": "--set fetch.insecure_tls=yes"}


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """What commands on this machine permitted to the crawl that began at `origin`. `app` is as `load_app` takes it, a
    file with its whole path; a module is looked for in `app_folder`. `key_file`: where the key is that signs requests,
    with its whole path.
    """

    origin: float
    allow_private: bool = False
    insecure_tls: bool = False
    app: str = ""
    app_folder: str = ""
    key_file: str = ""


def permitted(settings: Settings) -> Settings:
    """The settings with what earlier commands on this machine permitted to the crawl in this folder."""
    noted, given = _noted(settings), given_of(settings)
    if noted is None:
        return settings
    fetch, handlers = settings.fetch, settings.handlers
    for name in OPTIONS:
        if f"fetch.{name}" not in given and getattr(noted, name):
            fetch = replace(fetch, **{name: True})
    if "handlers.app" not in given and noted.app:
        handlers = replace(handlers, app=noted.app)
        if noted.app_folder not in ("", *sys.path):
            sys.path.insert(0, noted.app_folder)
    return with_key_file(replace(settings, fetch=fetch, handlers=handlers), noted)


def with_key_file(settings: Settings, noted: Permissions | None = None) -> Settings:
    """The settings with the key file that an earlier command on this machine named."""
    if "identity.key_file" in given_of(settings):
        return settings
    noted = noted or _noted(settings)
    if noted is None or not noted.key_file:
        return settings
    return replace(settings, identity=replace(settings.identity, key_file=noted.key_file))


def stored_here(settings: Settings) -> Settings:
    """The settings with what is stored with the crawl of this folder, without asking its engine. Raises ConflictError,
    ArchiveError.
    """
    if not is_crawl_folder(settings.archive.dir):
        return settings
    bound = bound_to(open_existing(settings.archive.dir))
    return with_stored(settings, (bound.record or {}).get("settings", {})) if bound else settings


def _noted(settings: Settings) -> Permissions | None:
    """The file counts only if nobody else may have written it, and for the crawl that the folder is bound to."""
    if not is_crawl_folder(settings.archive.dir):
        return None
    folder = open_existing(settings.archive.dir)
    bound, path = bound_to(folder), folder.root / FILE
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o077
            found = msgspec.json.decode(file.read(), type=Permissions) if is_ours else None
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found and bound and found.origin == bound.first_begun_at else None


async def check_terms(crawl: OpenCrawl) -> None:
    """Raises UsageError when a setting that was given disagrees with the crawl, and must not be changed by the way."""
    _changes(crawl, is_begun=await _is_begun(crawl))


async def settle(crawl: OpenCrawl, progress: Progress | None = None) -> tuple[OpenCrawl, list[str]]:
    """Make command and crawl agree before anything is claimed: the crawl as it is then, and what to tell. `progress`:
    as just read, if it was.

    Raises UsageError as `check_terms` does, and when the crawl needs what nobody permitted on this machine.
    """
    is_begun = await _is_begun(crawl, progress)
    changes, lines = _changes(crawl, is_begun=is_begun)
    needs, told = _needed(crawl, is_begun=is_begun)
    lines += told
    for complaint in complaints(crawl.settings):
        raise UsageError(complaint)
    record = crawl.record
    if changes or record.settings is None:
        record = await crawl.crawls.change_settings({**kept_of(crawl.settings), **record.stored_settings, **changes})
    if needs != record.needs:
        await crawl.crawls.update(lambda stored: replace(stored, needs=needs))
    _note(crawl)
    return (await crawl.reloaded() if record is not crawl.record or needs != record.needs else crawl), lines


async def change(crawl: OpenCrawl, wanted: Mapping[str, Any]) -> list[str]:
    """Change settings of the whole crawl, for `crawler settings`; what to tell. `wanted` are checked values, by name.

    Raises UsageError for what belongs to the process, or can't change.
    """
    stored, changes, lines = crawl.record.stored_settings, dict[str, Any](), list[str]()
    for key, value in wanted.items():
        if class_of(key) is Kept.PROCESS:
            raise UsageError(f"{key} belongs to each command, not to the crawl: give it to the commands that need it")
        if class_of(key) is Kept.FIXED:
            raise UsageError(_fixed(crawl, key, stored[key]))
        if class_of(key) is Kept.PERMISSION or _same(value, stored.get(key)):
            continue
        changes[key] = value
        lines.append(_changed(key, value, stored.get(key)))
    if changes:
        await crawl.crawls.change_settings(changes)
    if not any(class_of(key) is Kept.PERMISSION for key in wanted):
        return lines
    needs, told = _needed(crawl, is_begun=True, may_change=True)
    await crawl.crawls.update(lambda record: replace(record, needs=needs))
    _note(crawl)
    return lines + told


async def _is_begun(crawl: OpenCrawl, progress: Progress | None = None) -> bool:
    """Has it pages, or URLs that wait? Before, and after misspelt seeds, nobody depends on its settings."""
    progress = progress or await crawl.inspect.progress()
    return progress.fetched > 0 or progress.pending > 0


def _changes(crawl: OpenCrawl, *, is_begun: bool) -> tuple[dict[str, Any], list[str]]:
    stored, mine = crawl.record.stored_settings, kept_of(crawl.settings)
    changes, lines = dict[str, Any](), list[str]()
    if crawl.record.settings is not None:  # an earlier release did not know all of them: they have their defaults
        stored = kept_of(Settings()) | stored
    for key in sorted(given_of(crawl.settings) & mine.keys() & stored.keys()):
        value, old = mine[key], stored[key]
        if _same(value, old):
            continue
        if class_of(key) is Kept.FIXED:
            raise UsageError(_fixed(crawl, key, old))
        if class_of(key) is Kept.RESULTS and is_begun:
            has = f"{key} = {shown(old) or 'none'}, not {shown(value) or 'none'}"
            raise UsageError(f"this crawl has {has}: {_instead(crawl, key, value)}")
        changes[key] = value
        if is_begun:
            lines.append(_changed(key, value, old))
    return changes, lines


def _needed(crawl: OpenCrawl, *, is_begun: bool, may_change: bool = False) -> tuple[Needs, list[str]]:
    """What the crawl needs from now on. Raises UsageError for what it needs, and nobody has permitted here."""
    needs, settings, lines = crawl.record.needs, crawl.settings, list[str]()
    given = given_of(settings)
    for name, option in OPTIONS.items():
        key, needed, has = f"fetch.{name}", getattr(needs, name), getattr(settings.fetch, name)
        if needed and not has and key not in given:
            raise UsageError(f"this crawl was begun with {option}, which nobody gave on this machine: add {option}")
        if has != needed:
            needs = replace(needs, **{name: has})
            lines += [_changed(key, has, needed)] * is_begun
    needs, key_lines = _needed_key(crawl, needs, is_begun=is_begun, may_change=may_change)
    lines += key_lines
    app = settings.handlers.app
    if needs.app and not app:
        raise UsageError(f"this crawl passes its pages to {needs.app}: add --app with that file")
    if not app:
        return needs, lines
    name, digest = app_name(app), app_digest(app)
    if needs.app and name != needs.app and is_begun and not may_change:
        what = f"this crawl passes its pages to {needs.app}, not to {name}"
        raise UsageError(f"{what}: {_instead(crawl, 'handlers.app', app, option='--app')}")
    again = f"'{program()} rehandle{where(crawl)}' runs it over the pages that were fetched before"
    if is_begun and name != needs.app:
        lines.append(f"{_changed('handlers.app', name, needs.app)}; {again}")
    elif is_begun and digest != needs.app_digest:
        lines.append(f"{name} is not what it was when this crawl last ran; {again}")
    return replace(needs, app=name, app_digest=digest), lines


def _needed_key(crawl: OpenCrawl, needs: Needs, *, is_begun: bool, may_change: bool) -> tuple[Needs, list[str]]:
    """With the key that signs from now on: the newest one of this machine's file, which must have the known one, too.
    Others can then verify what every machine of the crawl signs by one directory.
    """
    identity, path = crawl.settings.identity, crawl.settings.identity.key_file
    if crawl.settings.fetch.gateway:  # a replay, which is not signed
        return needs, []
    if identity.sign == "off":
        return replace(needs, key=""), []
    from crawler.web.signing_keys import usable_keys

    if needs.key and not path:
        option = "--set identity.key_file=FILE"
        raise UsageError(f"this crawl's requests are signed with the key {needs.key}: name its file here with {option}")
    keys = usable_keys(path, time.time())
    check_key_place(path)
    if needs.key and needs.key not in keys.ids and is_begun and not may_change:
        change = f"{program()} settings{where(crawl)} identity.key_file={shlex.quote(path)}"
        raise UsageError(
            f"this crawl's requests are signed with the key {needs.key}, which is not in {path}: copy the file from a "
            f"machine that has it, or change the key for the whole crawl: {change}"
        )
    current = keys.current(time.time()).kid
    lines = [f"requests are signed with the key {current} (it was {needs.key or 'none'})"]
    return replace(needs, key=current), lines * (is_begun and needs.key != current)


def check_key_place(path: str) -> None:
    """Raises UsageError for a key file inside of a crawl folder, which is copied, backed up and shown to others."""
    from crawler.web.signing_keys import place_of

    try:
        place = place_of(path).resolve()
    except (OSError, RuntimeError) as error:  # a loop of symbolic links
        raise UsageError(f"{path} can't be looked at: {error}") from None
    if folder := next((one for one in place.parents if is_crawl_folder(one)), None):
        raise UsageError(f"{path} is inside of the crawl folder {folder}: keep the key outside of it")


def app_name(app: str) -> str:
    """The app without the folder of its file."""
    return app.rpartition("/")[2]


def app_digest(app: str) -> str:
    """SHA-256 of the file of an app that was loaded, in hexadecimal; "" where there is none."""
    place = app if app.endswith(".py") else app.rpartition(":")[0] or app
    path = place if place.endswith(".py") else getattr(sys.modules.get(place), "__file__", None) or ""
    with contextlib.suppress(OSError):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return ""


def _note(crawl: OpenCrawl) -> None:
    """Note for later commands on this machine what this one permitted. Raises ArchiveError."""
    settings, app = crawl.settings, crawl.settings.handlers.app
    place, colon, name = app.rpartition(":") if ":" in app else (app, "", "")
    is_file = place.endswith(".py") or "/" in place
    now = Permissions(
        origin=crawl.record.first_begun_at,
        allow_private=settings.fetch.allow_private,
        insecure_tls=settings.fetch.insecure_tls,
        app=f"{Path(place).resolve()}{colon}{name}" if is_file else app,
        app_folder=str(Path.cwd()) if app and not is_file else "",
        key_file=_whole_path(settings.identity.key_file) if settings.identity.sign != "off" else "",
    )
    if not settings.archive.dir or now == (_noted(settings) or Permissions(origin=now.origin)):
        return
    path = crawl.folder.root / FILE
    try:
        replace_durably(path, crawl.folder.tmp / f"{FILE}.{secrets.token_hex(4)}", [msgspec.json.encode(now), b"\n"])
    except OSError as error:
        raise archive_error("write", path, error) from None


def _whole_path(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""


def _same(one: Any, other: Any) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def _changed(key: str, value: Any, old: Any) -> str:
    text = f"changed for the whole crawl: {key} = {shown(value) or 'none'} (it was {shown(old) or 'none'})"
    if key == "scope.exclude" and set(value) - set(old or ()):
        text += "; URLs that wait and match it now are refused permanently when their turn comes"
    return text


def _fixed(crawl: OpenCrawl, key: str, old: Any) -> str:
    return f"this crawl has {key} = {shown(old) or 'none'}, which can't change: leave it out, or {to_start_over(crawl)}"


def _instead(crawl: OpenCrawl, key: str, value: Any, option: str = "") -> str:
    command = f"{program()} settings{where(crawl)} {shlex.quote(f'{key}={shown(value)}')}"
    return f"leave {option or 'it'} out, or change it for the whole crawl: {command}"


def where(crawl: OpenCrawl) -> str:
    """The options that name this crawl's folder and name, for a command to type."""
    root, name = crawl.settings.archive.dir, crawl.settings.crawl.name
    folder = f" --dir {shlex.quote(root)}" if root not in ("", "crawl-data") else ""
    return folder + (f" --name {name}" if name != "main" else "")


def to_start_over(crawl: OpenCrawl) -> str:
    """How to start another crawl instead of the existing one, for a message."""
    if not crawl.settings.frontier.redis:
        return f"use another --dir or remove {crawl.folder.root} to crawl again from the start"
    also = " and another --dir" if holds_results(crawl.folder) else ""
    return f"use another --name{also} to crawl again from the start"
