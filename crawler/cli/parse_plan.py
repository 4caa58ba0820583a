"""Options of `crawler plan`."""

import argparse

PLAN_EPILOG = """\
examples:
  crawler plan --urls 1e9 --domains 5e7 --rate 5000/s
  crawler plan --urls 3e6 --domains 1000 --rate 200 --page-kb 60 --delay 2

Calculated from constants that were measured on one machine, for crawls without handlers. The
formulas are in docs/operate/planning.md. Numbers may be written like 50000000, 5e7, 50M, 1G.

exit codes: 0 done, 2 a number that can't be used
"""


_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


AMOUNT_MAX = 1e15


def amount_type(text: str) -> float:
    """For argparse: a positive number, like 1e9 or 50M; a rate may end in /s."""
    plain = text.strip().lower().removesuffix("/s").replace("_", "").replace(",", "")
    factor = _FACTORS.get(plain[-1:], 1.0)
    try:
        number = float(plain[:-1] if factor > 1 else plain) * factor
    except ValueError:
        number = 0.0
    if number >= AMOUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is too large (below {AMOUNT_MAX:g})")
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number (like 1e9, 50M or 200/s)")
    return number


def delay_type(text: str) -> float:
    """For argparse: seconds, maybe 0."""
    return 0.0 if text.strip() in ("0", "0.0") else amount_type(text)


def add_plan(p: argparse.ArgumentParser) -> None:
    p.description = "Print what a crawl of a given size needs: instances, engine, memory, disk, bandwidth, time, money."
    p.epilog = PLAN_EPILOG
    p.add_argument("--urls", type=amount_type, required=True, metavar="N", help="URLs that the crawl will know")
    p.add_argument("--domains", type=amount_type, required=True, metavar="N", help="on so many domains")
    p.add_argument("--rate", type=amount_type, required=True, metavar="R", help="pages a second")
    p.add_argument("--pages", type=amount_type, metavar="N", help="that are fetched (default: all URLs)")
    p.add_argument(
        "--page-kb", type=amount_type, default=240.0, metavar="KB", help="of HTML, unpacked (default: 240, as in 2025)"
    )
    p.add_argument("--delay", type=delay_type, default=1.0, metavar="S", help="of a domain (default: 1)")
    p.add_argument("--replicas", type=int, choices=range(3), default=1, help="of each primary (default: 1)")
    p.add_argument(
        "--price", type=amount_type, default=0.0446, metavar="$", help="of a vCPU for an hour (default: 0.0446)"
    )
    p.add_argument("--json", action="store_true", help="as one JSON object")
    p.set_defaults(run="crawler.cli.plan:run_plan", takes_urls=False)
