"""What commands share: options, the settings that they make with file and environment, and who acts."""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.errors import UsageError
from crawler.redaction import learn, learn_login, secrets_of_login, secrets_of_site, secrets_of_url

if TYPE_CHECKING:
    from crawler.cli.request_options import Additions
    from crawler.frontier.operator_log import Actor
    from crawler.settings import Settings
    from crawler.settings.schema import Text


def actor(via: str = "cli") -> "Actor":
    """The one who runs this process; by number where the user has no name, as in many containers.

    `via`: a value of `Via`.
    """
    import pwd

    from crawler.frontier.operator_log import Actor, Via

    try:
        who = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        who = f"uid {os.getuid()}"
    return Actor(who=who, via=Via(via))


LIST_FORMATS = ("lines", "csv", "jsonl")  # of `url_files.ListForm`

# Options that all commands share, and the settings that they make together with file and environment.

NO_FOLDER = ""  # as archive.dir: crawl/opening.py borrows one for the time of the command

OPTIONS_VARIABLE = (
    "CRAWLER_OPTIONS_JSON"  # how a supervisor hands its options on: {"section.key": value, "config": FILE}
)

ADDITIONS = "additions"  # in there: headers and cookies, as cli/request_options.py has them

COUNT_MAX = 2**53
SHOWN = 50  # rows of a table, unless --limit is given
SHOWN_MAX = 40

COMMON = {"dir": "archive.dir", "redis": "frontier.redis", "name": "crawl.name", "engine": "frontier.engine"}


LOG_EVENTS = "show log events on stderr"


def add_common(
    parser: argparse.ArgumentParser,
    *,
    many_folders: bool = False,
    has_name: bool = True,
    verbose_help: str = LOG_EVENTS,
) -> None:
    """Where the crawl is, and how settings are given. With `many_folders`, --dir may be repeated and is a list.

    Without `has_name`, the command is about an engine, or names its crawl otherwise.
    """
    group = parser.add_argument_group("where the crawl is")
    several = "; may be repeated: the folders of all machines" if many_folders else ""
    group.add_argument(
        "--dir", metavar="DIR", type=named_type, action="append" if many_folders else "store",
        help=f"crawl folder: archive, index, embedded engine (default: crawl-data){several}",
    )  # fmt: skip
    group.add_argument(
        "--redis",
        metavar="URL",
        type=named_type,
        help="use this Redis >= 7 or Valkey >= 7.2 instead of the embedded engine: redis://, rediss://, unix://, "
        "redis+cluster://, redis+sentinel://",
    )
    if has_name:
        group.add_argument("--name", metavar="NAME", help="name of the crawl in the engine (default: main)")
    group.add_argument(
        "--engine", metavar="PATH", type=named_type, help="path of another server program for the embedded engine"
    )
    add_settings(parser, verbose_help=verbose_help)


def add_settings(parser: argparse.ArgumentParser, *, verbose_help: str = LOG_EVENTS) -> None:
    """How settings are given, for commands that need no crawl."""
    group = parser.add_argument_group("settings and messages")
    group.add_argument(
        "--config",
        metavar="FILE",
        type=named_type,
        help="settings file in TOML (default: $CRAWLER_CONFIG); options override it",
    )
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="any setting, like fetch.total_timeout_s=30"
    )
    group.add_argument("-v", "--verbose", action="count", default=0, help=verbose_help)


def add_urls(parser: argparse.ArgumentParser) -> None:
    """Positional URLs, and files of them."""
    parser.add_argument("urls", nargs="*", metavar="URL", help="where to begin; - reads URLs from standard input")
    parser.add_argument(
        "-i",
        "--input-file",
        dest="inputs",
        metavar="FILE",
        action="append",
        default=[],
        help="read URLs from FILE, one a line (- for standard input); # begins a comment, { a seed in JSON; also CSV, "
        "gzip and zstd; may be repeated",
    )
    add_list_form(parser)
    parser.set_defaults(takes_urls=True)


def add_list_form(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """How files of URLs are read."""
    parser.add_argument(
        "--format", choices=LIST_FORMATS,
        help="what files of URLs are: a URL a line, CSV, or JSON a line (default: by name and content)",
    )  # fmt: skip
    parser.add_argument(
        "--column", metavar="NAME|N", type=named_type,
        help="where the URLs are in CSV or JSON: the name of the column, or its number from 1 (default: url, or what "
        "has URLs)",
    )  # fmt: skip


def named_type(text: str) -> str:
    """For argparse: a path or a name. An empty one is a variable of a script that has no value: without this, the
    option would count as not given.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give it a value, or leave it out")
    return text


def count_type(least: int, most: int = COUNT_MAX, *, hint: str = "") -> Callable[[str], int]:
    """For argparse: a whole number within bounds."""

    def read(text: str) -> int:
        shown = repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}...")
        try:
            number = int(text)
        except ValueError:  # not a number, or thousands of digits
            raise argparse.ArgumentTypeError(f"{shown} is not a valid number{hint and f' ({hint[2:]})'}") from None
        if least <= number <= most:
            return number
        if number > most == COUNT_MAX:
            raise argparse.ArgumentTypeError(f"{shown} is too large a number")
        bounds = f"{least:,} to {most:,}" if most < COUNT_MAX else f"at least {least:,}"
        raise argparse.ArgumentTypeError(f"{shown} is not a valid number (use {bounds}{hint})")

    return read


def whole_type(text: str) -> int:
    """For argparse: a whole number that the engine can hold; its command checks the bounds."""
    return count_type(-COUNT_MAX)(text)


def limit_type(text: str) -> float:
    """For argparse: a duration that limits something; without the option there is no limit."""
    seconds = duration_type(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid limit (leave it out for no limit)")
    return seconds


def duration_type(text: str) -> float:
    """For argparse: a time in seconds, or with units."""
    from crawler.rules.schedules import parse_duration

    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def moment_type(text: str) -> float:
    """For argparse: a date or time, as wall time in seconds."""
    from crawler.rules.cron import moment_of

    try:
        return moment_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("at ")) from None


def options_of(arguments: argparse.Namespace, keys: Mapping[str, str]) -> dict[str, Any]:
    """The options that were given, as settings: `keys` maps an argument's name to "section.key"."""
    options: dict[str, Any] = {}
    for text in arguments.set:
        options |= _set(text)
    for name, key in {**COMMON, **keys}.items():
        value = getattr(arguments, name, None)
        if value is not None:
            options[key] = value
    return options


def config_of(arguments: argparse.Namespace) -> Path | None:
    """The settings file, if there is one."""
    config = arguments.config or _handed_on().get("config") or os.environ.get("CRAWLER_CONFIG")
    return Path(config) if config else None


def settings_of(
    arguments: argparse.Namespace, keys: Mapping[str, str] | None = None, *, in_folder: bool = False
) -> "Settings":
    """Defaults < file < environment < what a supervisor handed on < options. Raises UsageError.

    `in_folder`: the command reads or writes a crawl folder. Others, with --redis, have none unless it is named: what
    lies in the working folder is of another crawl, maybe.
    """
    from msgspec.structs import replace

    from crawler.settings import load
    from crawler.settings.load import is_given

    handed, config = _handed_on(), config_of(arguments)
    handed.pop("config", None)
    additions = _additions_of(arguments, handed.pop(ADDITIONS, None))
    options = handed | options_of(arguments, keys or {})
    settings = load(file=config, options=options)
    _learn_secrets(settings)
    if settings.frontier.redis and not in_folder and not is_given("archive.dir", file=config, options=options):
        settings = replace(settings, archive=replace(settings.archive, dir=NO_FOLDER))
    if settings.sites:
        from crawler.rules.sites import complaints

        for complaint in complaints(settings):
            raise UsageError(f"{config}: {complaint}")
    if settings.frontier.redis:
        check_engine_url(settings.frontier.redis)
    if settings.frontier.redis and settings.frontier.engine:
        raise UsageError(
            "--redis and --engine can't be used together: --redis names a running server, --engine a program to start"
        )
    return settings if additions is None else _with_additions(settings, additions)


def _additions_of(arguments: argparse.Namespace, handed: Any) -> "Additions | None":
    """What the options add to requests, or those of whoever started this process. Raises UsageError."""
    if handed is None and not (getattr(arguments, "header", None) or getattr(arguments, "cookie", None)):
        return None
    from crawler.cli.request_options import Additions, additions_of

    return additions_of(arguments) if handed is None else Additions(**handed)


def _with_additions(settings: "Settings", additions: "Additions") -> "Settings":
    """With the tables of options before those of the file, which have their numbers only as long as they are alone."""
    from msgspec.structs import replace

    from crawler.web.fetcher import SiteHeaders

    SiteHeaders.of(settings.sites, os.environ)  # raises UsageError
    settings = replace(settings, sites=(*additions.tables, *settings.sites))
    _learn_secrets(settings)
    return settings


def check_engine_url(url: str) -> None:
    """Raises UsageError for what can't name an engine, as far as its text tells."""
    from crawler.engine.address import read_url

    read_url(url)


def _learn_secrets(settings: "Settings") -> None:
    learn(_secrets_of(settings))
    for site in settings.sites:
        if site.login is not None:
            learn_login(site.login.user, os.environ.get(site.login.password_env, ""))


def with_logins(settings: "Settings") -> "Settings":
    """The settings of a command that reads links of archived pages: without the passwords of logins it could not tell
    which of these were left out, and would show or store them. Raises UsageError.
    """
    for number, site in enumerate(settings.sites):
        if site.login is not None and not os.environ.get(site.login.password_env):
            raise UsageError(f"sites[{number}].login: the environment has no variable {site.login.password_env}")
    return settings


def _secrets_of(settings: "Settings") -> Iterator[str]:
    """What no message, log or crash report may show."""
    from crawler.settings.site_checks import fixed_cookies

    def sent(text: "Text") -> str:
        return text if isinstance(text, str) else os.environ.get(text.env, "")

    yield from secrets_of_url(settings.frontier.redis)
    if settings.fetch.proxy or settings.sites:
        from crawler.settings.proxies import proxies_of

        for proxy in proxies_of(settings):
            yield from secrets_of_login(proxy.user, proxy.password)
    for site in settings.sites:
        cookies = {name: sent(text) for name, text in fixed_cookies(site).items()}
        headers = {name: sent(text) for name, text in site.headers.items()}
        yield from secrets_of_site(sent(site.auth), cookies, headers)
        for text in site.headers.values():
            if not isinstance(text, str):
                yield sent(text)  # a value kept in the environment is treated as a secret


def handed_to_children(arguments: argparse.Namespace, keys: Mapping[str, str]) -> str:
    """What goes into a child's OPTIONS_VARIABLE so that it has the same settings as we."""
    options = options_of(arguments, keys)
    if arguments.config:
        options["config"] = arguments.config
    if (additions := _additions_of(arguments, None)) is not None:
        options[ADDITIONS] = additions.as_json
    return json.dumps(options)


def _handed_on() -> dict[str, Any]:
    text = os.environ.get(OPTIONS_VARIABLE)
    return dict(json.loads(text)) if text else {}


def _set(text: str) -> dict[str, Any]:
    """One --set, typed by the setting it names."""
    from crawler.settings import Settings
    from crawler.settings.load import read_one

    key, equals, value = text.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot:
        raise UsageError(f"--set {text!r}: write SECTION.KEY=VALUE, like fetch.concurrency=32")
    if section not in (*Settings.__struct_fields__, "internals"):
        raise UsageError(f"--set {text}: unknown section {section} (known: {', '.join(Settings.__struct_fields__)})")
    variable = f"CRAWLER_{section}_{name}".upper().replace(".", "_")
    try:
        return {f"{section}.{name}": read_one(variable, value.strip())}
    except UsageError as error:
        said = str(error).removeprefix(f"{variable}: ").removeprefix(f"{variable}={value.strip()!r}: ")
        raise UsageError(f"--set {text}: {said.removeprefix('settings: ')}") from None
