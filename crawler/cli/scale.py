"""`crawler scale`: how many instances the supervisor of a machine runs; changes it, or shows it."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import INSTANCES_MAX
from crawler.cli.options import actor, add_common, duration_type, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl
    from crawler.frontier.members import SupervisorChild
    from crawler.settings import Settings
    from crawler.supervisor.scale_requests import SupervisorStatus

EPILOG = """\
examples:
  crawler scale 4                          four instances on this machine
  crawler scale 0 --host worker7           none on another one; its supervisor waits
  crawler scale --status                   supervisors and their instances, on all machines

A supervisor is what 'crawler run -n N' or 'crawler crawl -n N' started, on this machine or,
with --redis, on any. Instances that are stopped, highest slots first, finish their open
requests and hand over: no page is fetched twice. The command waits until all have joined
or ended.

exit codes: 0 done, 2 no such supervisor or more than one, 3 engine, 9 not done in time (it
continues), or the supervisor ended meanwhile
"""

LEAVE_S = 30.0  # beyond the time that an instance has to finish what is in flight
WORDS_WIDTH = 50


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "scale",
        help="change or show the number of instances on a machine",
        description="Change the number of instances of a running 'crawler run -n' or 'crawler crawl -n', or show it.",
        epilog=EPILOG,
    )
    p.add_argument(
        "wanted", nargs="?", type=whole_type, metavar="N", help="how many instances (without N: the same as --status)"
    )
    p.add_argument("--status", action="store_true", help="show supervisors and their instances")
    p.add_argument("--host", metavar="HOST", help="the supervisor of that machine: its host name, or name:pid")
    p.add_argument(
        "--timeout", type=duration_type, metavar="T",
        help=f"wait at most this long (default: membership.drain_timeout_s + {LEAVE_S:g} s)",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Request the change and wait, or show; EPILOG has the exit codes."""
    from crawler.cli.event_loop import run_async

    if arguments.wanted is not None:
        if arguments.status:
            raise UsageError("--status only shows the state: give either --status or N")
        if not 0 <= arguments.wanted <= INSTANCES_MAX:
            raise UsageError(f"{arguments.wanted}: expected 0 to {INSTANCES_MAX} instances")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.crawl.opening import open_crawl
    from crawler.supervisor.scale_requests import look
    from crawler.terminal.text import out, out_json

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


async def _scaled(
    crawl: "OpenCrawl", arguments: argparse.Namespace, seen: "list[SupervisorStatus]"
) -> "SupervisorStatus":
    from crawler.supervisor.scale_requests import picked, scale
    from crawler.terminal.text import counted, say

    one = picked(seen, host=arguments.host or "", folder=arguments.dir or "")
    timeout_s = arguments.timeout or crawl.settings.membership.drain_timeout_s + LEAVE_S
    if not arguments.json:
        change = f"Scaling {one.name} from {one.record.wanted} to {arguments.wanted}"
        say(f"{change}; waiting up to {timeout_s:g} s.")
    await crawl.operator_log.add(actor(), "scale", one.name, counted(arguments.wanted, "instance"))
    return await scale(crawl.supervisors, one, arguments.wanted, by=crawl.session, timeout_s=timeout_s)


def _as_json(one: "SupervisorStatus") -> dict[str, Any]:
    import msgspec

    record: dict[str, Any] = msgspec.to_builtins(one.record)
    kept = ("session", "pid", "folder", "wanted", "age_s", "children")
    return {"host": one.host, "state": one.state, "running": one.running} | {key: record[key] for key in kept}


def _text(one: "SupervisorStatus") -> str:
    from crawler.terminal.text import table

    record = one.record
    head = f"{one.name}: {_state_text(one)}, {record.folder}"
    if not record.children or not one.lives:
        return head
    headers = ("node", "state", "since", "pid", "restarts", "last words")
    rows = [_row(child) for child in record.children]
    return f"{head}\n{table(headers, rows, left=len(headers))}"


def _state_text(one: "SupervisorStatus") -> str:
    from crawler.terminal.text import duration

    if one.state == "gone":
        return "gone; it was killed, and its instances have ended or are about to"
    if one.state == "silent":
        return "silent; it was killed, or lost its connection and may come back"
    if not one.record.wanted and not one.record.children:
        return f"no instance is wanted, up {duration(one.record.age_s)}"
    stopping = "stopping, " if one.state == "stopping" else ""
    return f"{stopping}{one.running} of {one.record.wanted} instances run, up {duration(one.record.age_s)}"


def _row(child: "SupervisorChild") -> tuple[str, ...]:
    from crawler.terminal.text import NOTHING, duration, or_nothing, shortened

    state = f"{child.state} in {duration(child.due_s)}" if child.due_s else child.state
    return (
        child.node,
        state,
        duration(child.for_s),
        or_nothing(str(child.pid), child.pid),
        or_nothing(str(child.restarts), child.restarts),
        shortened(child.last_words, WORDS_WIDTH) or NOTHING,
    )
