"""`crawler scale`: how many instances the supervisor of a machine runs; changes it, or shows it."""

import argparse
from typing import Any

import msgspec

from crawler.cli.crawl_options import INSTANCES_MAX
from crawler.cli.options import actor, settings_of
from crawler.cli.parse_scale import LEAVE_S
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import UsageError
from crawler.frontier.supervisors import SupervisorChild
from crawler.settings import Settings
from crawler.supervisor.scale_requests import SupervisorStatus, look, picked, scale
from crawler.terminal.output import out, out_json, say
from crawler.terminal.tables import NOTHING, or_nothing, shortened, table
from crawler.terminal.words import counted, duration

WORDS_WIDTH = 50


def run_scale(arguments: argparse.Namespace) -> int:
    """Request the change and wait, or show; EPILOG has the exit codes."""
    if arguments.wanted is not None:
        if arguments.status:
            raise UsageError("--status only shows the state: give either --status or N")
        if not 0 <= arguments.wanted <= INSTANCES_MAX:
            raise UsageError(f"{arguments.wanted}: expected 0 to {INSTANCES_MAX} instances")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    async with open_crawl(settings, create=False) as crawl:
        seen = await look(crawl.supervisors)
        if arguments.wanted is not None:
            seen = [await _scaled(crawl, arguments, seen)]
        elif arguments.host:
            seen = [one for one in seen if one.is_called(arguments.host)]
    if arguments.json:
        out_json({"crawl": settings.crawl.name, "supervisors": [_as_json(one) for one in seen]})
    else:
        out("\n\n".join(_text(one) for one in seen) or "No supervisor is running. Start one: crawler run -n 4")
    return 0


async def _scaled(crawl: OpenCrawl, arguments: argparse.Namespace, seen: "list[SupervisorStatus]") -> SupervisorStatus:
    one = picked(seen, host=arguments.host or "", folder=arguments.dir or "")
    timeout_s = arguments.timeout or crawl.settings.membership.drain_timeout_s + LEAVE_S
    if not arguments.json:
        change = f"Scaling {one.name} from {one.record.wanted} to {arguments.wanted}"
        say(f"{change}; waiting up to {timeout_s:g} s.")
    await crawl.operator_log.add(actor(), "scale", one.name, counted(arguments.wanted, "instance"))
    return await scale(crawl.supervisors, one, arguments.wanted, by=crawl.session, timeout_s=timeout_s)


def _as_json(one: SupervisorStatus) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(one.record)
    kept = ("session", "pid", "folder", "wanted", "age_s", "children")
    return {"host": one.host, "state": one.state, "running": one.running} | {key: record[key] for key in kept}


def _text(one: SupervisorStatus) -> str:
    record = one.record
    head = f"{one.name}: {_state_text(one)}, {record.folder}"
    if not record.children or not one.lives:
        return head
    headers = ("node", "state", "since", "pid", "restarts", "last words")
    rows = [_row(child) for child in record.children]
    return f"{head}\n{table(headers, rows, left=len(headers))}"


def _state_text(one: SupervisorStatus) -> str:
    if one.state == "gone":
        return "gone; it was killed, and its instances have ended or are about to"
    if one.state == "silent":
        return "silent; it was killed, or lost its connection and may come back"
    if not one.record.wanted and not one.record.children:
        return f"no instance is wanted, up {duration(one.record.age_s)}"
    stopping = "stopping, " if one.state == "stopping" else ""
    return f"{stopping}{one.running} of {one.record.wanted} instances run, up {duration(one.record.age_s)}"


def _row(child: SupervisorChild) -> tuple[str, ...]:
    state = f"{child.state} in {duration(child.due_s)}" if child.due_s else child.state
    return (
        child.node,
        state,
        duration(child.for_s),
        or_nothing(str(child.pid), child.pid),
        or_nothing(str(child.restarts), child.restarts),
        shortened(child.last_words, WORDS_WIDTH) or NOTHING,
    )
