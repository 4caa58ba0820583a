"""`crawler ring` and `scale`: members and shares, pins, eviction; how many instances a machine runs."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from crawler.cli.crawl_options import INSTANCES_MAX
from crawler.cli.event_loop import run_async, run_on
from crawler.cli.options import actor, settings_of
from crawler.cli.parse_admin import LEAVE_S
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import UsageError
from crawler.frontier.supervisors import SupervisorChild
from crawler.settings import Settings
from crawler.supervisor.scale_requests import SupervisorStatus, look, picked, scale
from crawler.terminal.text import NOTHING, counted, duration, or_nothing, out, out_json, say, shortened, show, table
from crawler.views.pins import evict, pin, pins, unpin
from crawler.views.ring_text import evict_text, members_text, pin_text, pins_text, place_text, plan_text, unpin_text
from crawler.views.shares import members, place, planned

Answer = tuple[object, str]  # for programs and for people


def run_ring(arguments: argparse.Namespace) -> int:
    """Open the crawl and print the answer. Raises UsageError."""
    return run_on(arguments, _ring)


async def _ring(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    found, text = await ANSWERS[arguments.answer](crawl, arguments)
    show(found, text, as_json=arguments.json)


async def _show(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    if arguments.url is None:
        listed = await members(crawl)
        return listed, members_text(listed)
    found = await place(crawl, arguments.url)
    return found, place_text(found)


async def _plan(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    if not arguments.changes:
        raise UsageError("a plan needs a change: --add 2, --add NODE:WEIGHT, --remove 1 or --remove NODE")
    try:
        found = await planned(crawl, arguments.changes)
    except UsageError as error:  # add NODE: ..., remove NODE: ...
        raise UsageError(f"--{error}") from None
    return found, plan_text(found)


async def _pin(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    found = await pin(crawl, arguments.domain, arguments.node, actor=actor())
    return found, pin_text(found)


async def _unpin(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    found = await unpin(crawl, arguments.domain, actor=actor())
    return found, unpin_text(found)


async def _pins(crawl: OpenCrawl, _: argparse.Namespace) -> Answer:
    found = await pins(crawl)
    return found, pins_text(found)


async def _evict(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    found = await evict(crawl, arguments.node, actor=actor())
    return found, evict_text(found)


ANSWERS: Mapping[str, Callable[[OpenCrawl, argparse.Namespace], Awaitable[Answer]]] = {
    "show": _show, "plan": _plan, "pin": _pin, "unpin": _unpin, "pins": _pins, "evict": _evict
}  # fmt: skip


# `crawler scale`: how many instances the supervisor of a machine runs; changes it, or shows it.

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
