"""The commands that steer a crawl: of domains, `users`, `token`, `crawls`, `dead` and `oplog`."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import asdict

from crawler.cli.event_loop import run_async, run_on
from crawler.cli.options import SHOWN, actor, settings_of
from crawler.cli.parse_admin import AHEAD
from crawler.crawl.opening import OpenCrawl, open_crawl, open_engine
from crawler.crawl.url_input import url_of
from crawler.errors import NotMetError, UsageError
from crawler.frontier.api_tokens import ApiTokens, Role
from crawler.frontier.operator_log import LogEntry
from crawler.rules.job_names import check_user
from crawler.rules.shares import CRAWL, check_weight
from crawler.settings import Settings
from crawler.terminal.text import NOTHING, counted, err, moment, number, out, out_json, say, show, table
from crawler.views import crawl_list, operator, values
from crawler.views.crawl_list import CrawlRow, RemovedCrawl, crawl_row, crawl_rows
from crawler.views.dead_letter_changes import LetterFilter, dead_letter, dead_letter_list, dead_letters, purge, retry
from crawler.views.dead_letters import letter_text, letters_table
from crawler.views.operator import CommandResult
from crawler.views.users import list_users, set_weight
from crawler.views.values import domain_of, letter_reason_of


def run_users(arguments: argparse.Namespace) -> int:
    """List users or set a weight. Raises UsageError."""
    if arguments.user is not None and (arguments.weight is None or arguments.crawl is not None):
        raise UsageError(f"users {arguments.user}: give a weight, like 'crawler users {arguments.user} 2'")
    user, weight = arguments.user or CRAWL, arguments.weight if arguments.crawl is None else arguments.crawl
    if weight is not None:
        check_weight(weight)
    if user != CRAWL:
        check_user(user)
    return run_async(_users(arguments, user, weight))


async def _users(arguments: argparse.Namespace, user: str, weight: float | None) -> int:
    async with open_crawl(settings_of(arguments), create=False) as crawl:
        if weight is None:
            await _list_users(crawl, as_json=arguments.json)
            return 0
        await set_weight(crawl, user, weight, actor=actor())
    text = f"{user or 'the crawl itself'}: weight {weight:g}"
    show({"user": user or None, "weight": weight}, text, as_json=arguments.json)
    return 0


async def _list_users(crawl: OpenCrawl, *, as_json: bool) -> None:
    found = await list_users(crawl)
    if as_json:
        out_json({"users": to_builtins(found)})
        return
    waiting = ["-" if one.waiting is None else number(one.waiting) for one in found]
    shown = [(one.user or "(the crawl)", f"{one.weight:g}", n) for one, n in zip(found, waiting, strict=True)]
    out(table(("user", "weight", "URLs waiting"), shown))


# `crawler token`: makes, lists and removes the tokens of the HTTP API.


def run_token(arguments: argparse.Namespace) -> int:
    """Open the crawl and act on its tokens. Raises UsageError."""
    if arguments.act is None:
        raise UsageError("token: give an action: add, list or rm (see 'crawler token --help')")
    if getattr(arguments, "user", None) is not None:
        check_user(arguments.user)
    return run_on(arguments, {"add": _add, "list": _list_tokens, "rm": _remove}[arguments.act])


async def _add(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    await crawl.operator_log.add(actor(), "token add", "", f"user {arguments.user}, role {arguments.role}")
    text = await ApiTokens(crawl.engine, crawl.keys).add(arguments.user, Role(arguments.role))
    say(f"Token of {arguments.user}, role {arguments.role}; it is not shown again:")
    out(text)


async def _list_tokens(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    found = (await ApiTokens(crawl.engine, crawl.keys).read()).values()
    known = [{"id": one.id, "user": one.user, "role": one.role, "created_at": one.created_at} for one in found]
    made = [datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M") for one in found]
    rows = [(one.id, one.user, one.role.value, at) for one, at in zip(found, made, strict=True)]
    text = table(("id", "user", "role", "created (UTC)"), rows)
    none = "no token yet: 'crawler token add --user U --role read|write' makes one"
    show({"tokens": known}, text if rows else none, as_json=arguments.json)


async def _remove(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    tokens = ApiTokens(crawl.engine, crawl.keys)
    if token := (await tokens.read()).get(arguments.id):
        await crawl.operator_log.add(actor(), "token rm", "", f"{token.id} of user {token.user}")
    if not await tokens.remove(arguments.id):
        raise UsageError(f"there is no token {arguments.id} (see 'crawler token list')")
    out(f"token {arguments.id} removed")


# `crawler crawls`: lists the crawls of an engine, and removes one from it.


def list_crawls(arguments: argparse.Namespace) -> int:
    rows = run_async(_read(settings_of(arguments)))
    if arguments.json:
        for row in rows:
            out_json(asdict(row))
    else:
        out(_table(rows) if rows else "no crawls")
    return 0


def remove_crawl(arguments: argparse.Namespace) -> int:
    """Ask, and remove. Raises UsageError without a confirmation."""
    settings = settings_of(arguments, {"removed": "crawl.name"})
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise UsageError(f"add --yes to remove the crawl {arguments.removed!r}: there is no terminal to ask on")
        _ask(run_async(_read_one(settings)))
    removed = run_async(_remove_one(settings))
    text = (
        f"Removed crawl {removed.name!r} from the engine: {counted(removed.keys, 'key')}.\n"
        "Its folder stays, with archive and results: 'crawler rebuild' brings the crawl back from it."
    )
    show({"removed": removed.name, "keys": removed.keys}, text, as_json=arguments.json)
    return 0


async def _read(settings: Settings) -> list[CrawlRow]:
    async with open_engine(settings) as engine:
        return await crawl_rows(engine)


async def _read_one(settings: Settings) -> CrawlRow:
    async with open_engine(settings) as engine:
        return await crawl_row(engine, settings.crawl.name)


async def _remove_one(settings: Settings) -> RemovedCrawl:
    async with open_engine(settings) as engine:
        return await crawl_list.remove_crawl(engine, settings.crawl.name, settings.membership)


def _ask(row: CrawlRow) -> None:
    """Raises UsageError when the answer is not yes."""
    known = ""
    if row.pages is not None and row.pending is not None:
        known = f" ({counted(row.pages, 'page')}, {row.pending:,} pending)"
    err(f"Remove crawl {row.name!r}{known} from the engine? Its folder stays. [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed: nothing was removed")


def _table(rows: list[CrawlRow]) -> str:
    def shown(count: int | None) -> str:
        return NOTHING if count is None else f"{count:,}"

    lines = [
        [
            row.name,
            moment(row.created_at) if row.created_at else NOTHING,
            shown(row.pages),
            shown(row.pending),
            shown(row.instances),
            _note(row),
        ]
        for row in rows
    ]
    columns = 6 if any(line[-1] for line in lines) else 5
    headers = ["crawl", "created", "pages", "pending", "instances", "note"]
    return table(headers[:columns], [line[:columns] for line in lines], left=2)


def _note(row: CrawlRow) -> str:
    match row.condition:
        case "other_layout":
            return f"layout {row.layout}: needs the release that created it"
        case "being_removed":
            return "being removed: run 'rm' again"
        case "moved":
            return f"moved to {row.place}"
        case "leaving":
            return f"on its way to {row.place}"
        case "arriving":
            return f"on its way here from {row.place}"
        case _:
            return ""


# `crawler dead`: lists dead letters, puts them back into their queues, or purges them.


def run_dead(arguments: argparse.Namespace) -> int:
    """Do it. Raises UsageError for an invalid or ambiguous choice of dead letters."""
    _check(arguments)
    return run_on(arguments, _dead)


def _check(arguments: argparse.Namespace) -> None:
    action, urls = arguments.action, arguments.urls
    filters = arguments.domain or arguments.reason or (arguments.of_run and not urls)
    if action == "list" and urls:
        raise UsageError(f"'crawler dead list' takes no URL: write 'crawler dead show {urls[0]}'")
    if action == "show" and len(urls) != 1:
        raise UsageError("name one URL: crawler dead show URL")
    if urls and (filters or arguments.all or arguments.limit is not None):
        raise UsageError("URLs go alone or with --run, without --domain, --reason, --limit and --all")
    if action in ("retry", "purge") and not (urls or filters or arguments.all):
        raise UsageError(f"'crawler dead {action}' needs a choice: give URLs, --domain, --reason, --run or --all")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of dead letters")
    if arguments.reason:
        try:
            letter_reason_of(arguments.reason)
        except UsageError as error:
            raise UsageError(f"--{error}") from None
    arguments.domain = domain_of(arguments.domain) if arguments.domain else ""
    arguments.urls = [url_of(url) for url in urls]


async def _dead(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    wanted = LetterFilter(
        domain=arguments.domain, reason=arguments.reason or "", urls=arguments.urls, run=arguments.of_run or ""
    )
    if wanted.domain and not await operator.is_met(crawl, wanted.domain):
        raise NotMetError(f"this crawl never met {wanted.domain}: it has no dead letter of it")
    if wanted.run and not any([some async for some in dead_letters(crawl, LetterFilter(run=wanted.run), 1)]):
        from crawler.views.jobs import find_run

        await find_run(crawl, wanted.run)  # raises for an unknown one; those of a removed job may be here
    act = {"list": _list_letters, "show": _show, "retry": _retry, "purge": _purge}[arguments.action]
    await act(crawl, wanted, arguments)


async def _list_letters(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    if arguments.json:
        async for some in dead_letters(crawl, wanted, arguments.limit):
            for letter in some:
                out_json(msgspec.to_builtins(letter))
        return
    found = await dead_letter_list(crawl, wanted, arguments.limit or SHOWN)
    out(letters_table(found.newest, found.reasons))


async def _show(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    letter = await dead_letter(crawl, wanted)
    show(letter, letter_text(letter), as_json=arguments.json)


async def _retry(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    done = await retry(crawl, wanted, limit=arguments.limit, actor=actor())
    show({"retried": done.letters}, done.text, as_json=arguments.json)


async def _purge(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    done = await purge(crawl, wanted, limit=arguments.limit, actor=actor())
    show({"purged": done.letters}, done.text, as_json=arguments.json)


# `crawler oplog`: who changed what in a crawl, and when.


def run_oplog(arguments: argparse.Namespace) -> int:
    """Print the log."""
    return run_async(_oplog(settings_of(arguments), limit=arguments.limit, as_json=arguments.json))


async def _oplog(settings: Settings, *, limit: int | None, as_json: bool) -> int:
    async with open_crawl(settings, create=False) as crawl:
        found = await crawl.operator_log.newest()
    if as_json:
        for one in found[-limit:] if limit else found:
            out_json(msgspec.to_builtins(one))
    else:
        out(_text(found, limit or SHOWN))
    return 0


def _text(found: Sequence[LogEntry], limit: int) -> str:
    if not found:
        return "No command has changed this crawl."
    rows = [
        (moment(one.at), one.who, one.via, one.action, one.target or NOTHING, one.told or NOTHING)
        for one in found[-limit:]
    ]
    headers = ("at", "who", "via", "command", "target", "detail")
    more = f"\n\nshown: the last {limit:,} of {len(found):,} (--limit N for more)" if len(found) > limit else ""
    return table(headers, rows, left=len(headers)) + more


# `crawler pause`, `resume`, `block`, `unblock`, `delay`, `boost`, `purge`, `release`: an operator's hand.


def operate(arguments: argparse.Namespace) -> int:
    """Read what was given, before an engine is started, and act. Raises UsageError."""
    given = arguments.domain
    if arguments.command == "purge":
        _check_purge(arguments)
    arguments.domain = values.domain_alone(given, arguments.command) if given else ""
    if arguments.command == "delay":
        arguments.delay = values.delay_ms_of(arguments.delay)
    elif arguments.command == "boost" and arguments.boost is not None:
        arguments.boost = values.boost_of(arguments.boost)
    elif arguments.command == "boost" and given:
        most = values.BOOST_MAX
        raise UsageError(f"boost {given}: give a boost from -{most} to {most}, 0 for none")
    elif arguments.command == "release":
        try:
            values.check_release(arguments.reason, arguments.urls)
        except UsageError as error:
            raise UsageError(f"--{error}") from None
    return run_on(arguments, _operate)


async def _operate(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    if arguments.command == "boost" and not arguments.domain:
        found = (await operator.boosts(crawl)).boosts
        rows = [(domain, str(n)) for domain, n in found.items()]
        text = table(("domain", "boost"), rows) if rows else "no domain has a boost"
        show({"domain": None, "boosts": dict(found)}, text, as_json=arguments.json)
        return
    if arguments.domain and not await operator.is_met(crawl, arguments.domain):
        await _check_unmet(crawl, arguments)
    act, keys = ACTS["purge matching" if getattr(arguments, "matching", None) else arguments.command]
    given = {key: getattr(arguments, name) for key, name in keys.items()}
    result = await act(crawl, arguments.domain, **given, actor=actor())
    show(_json(result), result.text, as_json=arguments.json)


def _check_purge(arguments: argparse.Namespace) -> None:
    """Raises UsageError unless it is told what to drop."""
    if arguments.matching == "":
        raise UsageError("--matching is empty, which is found in every URL: name the domains to purge instead")
    if arguments.matching:
        operator.UrlMatch(arguments.matching)
    elif arguments.dry_run:
        raise UsageError("--dry-run is for --matching")
    elif not arguments.domain:
        raise UsageError("purge: give a domain, or --matching REGEX, which holds for the whole crawl without one")


async def _check_unmet(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    """Raises NotMetError for a domain of which the crawl has no URL, as a misspelt one: unless it was given --ahead, or
    another command holds for it, which this one may take back.
    """
    domain = arguments.domain
    if getattr(arguments, "ahead", False) or (await crawl.operator.overrides()).has(domain):
        return
    later = "; correct the name, or add --ahead to store the command for later" if arguments.command in AHEAD else ""
    raise NotMetError(f"this crawl never met {domain}: nothing is done{later}")


def _json(result: CommandResult) -> dict[str, Any]:
    """The result by the field of its kind; `urls` where there is no other number."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    left_out = {"text", "is_changed"} | ({"urls"} if not {"paused", "blocked"} & found.keys() else set())
    return {"domain": None} | {key: value for key, value in found.items() if key not in left_out}


# What each command does, and which of its arguments go where.
ACTS: Mapping[str, tuple[Callable[..., Awaitable[CommandResult]], Mapping[str, str]]] = {
    "pause": (operator.pause, {}),
    "resume": (operator.resume, {}),
    "block": (operator.block, {}),
    "unblock": (operator.unblock, {}),
    "delay": (operator.set_delay, {"delay_ms": "delay"}),
    "boost": (operator.set_boost, {"boost": "boost"}),
    "purge": (operator.purge, {}),
    "purge matching": (operator.purge_matching, {"matching": "matching", "is_dry": "dry_run"}),
    "release": (operator.release, {"reason": "reason", "urls_max": "urls"}),
}
