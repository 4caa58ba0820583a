"""Options of `crawler scale`."""

import argparse

from crawler.cli.options import add_common, duration_type, whole_type

SCALE_EPILOG = """\
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


def add_scale(p: argparse.ArgumentParser) -> None:
    p.description = "Change the number of instances of a running 'crawler run -n' or 'crawler crawl -n', or show it."
    p.epilog = SCALE_EPILOG
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
    p.set_defaults(run="crawler.cli.scale:run_scale", takes_urls=False)
