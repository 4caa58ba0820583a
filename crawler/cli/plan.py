"""`crawler plan`: what a crawl of a given size needs."""

import argparse

import msgspec
from msgspec.structs import asdict

from crawler.errors import UsageError
from crawler.terminal.output import out, out_json


def run_plan(arguments: argparse.Namespace) -> int:
    """Calculate and print. Raises UsageError for more pages, or more domains, than URLs."""
    from crawler.views.plan import Wanted, constants, plan_of, plan_text

    a = arguments
    if (a.pages or 0) > a.urls:
        raise UsageError(f"--pages {a.pages:g} is more than --urls {a.urls:g}: each page is a URL")
    if a.domains > a.urls:
        raise UsageError(f"--domains {a.domains:g} is more than --urls {a.urls:g}: each domain has a URL")
    wanted = Wanted(
        urls=a.urls, pages=a.pages or a.urls, domains=a.domains, rate=a.rate, page_kb=a.page_kb, delay_s=a.delay,
        replicas=a.replicas, vcpu_price=a.price,
    )  # fmt: skip
    known = constants()
    plan = plan_of(wanted, known)
    if a.json:
        out_json({"wanted": asdict(wanted), "needed": asdict(plan), "constants": msgspec.to_builtins(known)})
    else:
        out(plan_text(wanted, plan, known))
    return 0
