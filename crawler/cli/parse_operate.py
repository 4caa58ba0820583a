"""Options of what steers domains: `pause`, `resume`, `block`, `unblock`, `delay`, `boost`, `purge`, `release`."""

import argparse

from crawler.cli.options import add_common, whole_type

BOOST_MAX = 9  # as in views/values.py, which --help must not import
AHEAD = ("pause", "block", "delay", "boost")  # commands that also hold for URLs found later
WITHOUT_DOMAIN = ("pause", "resume", "boost", "purge", "release")

OPERATE_EPILOG = """\
examples:
  crawler pause                        the whole crawl: no request starts anywhere
  crawler pause docs.example           one domain; its URLs wait, and the crawl waits for them
  crawler resume                       continue
  crawler block docs.example           fetch nothing from it; the crawl ends without it
  crawler unblock docs.example
  crawler delay docs.example 5         5 s between its requests, whatever robots.txt has
  crawler delay docs.example auto      by robots.txt and the settings again
  crawler boost docs.example 5         before domains with a lower boost; -5 after the others, 0 for none
  crawler boost                        list domains with a boost
  crawler purge docs.example           drop its queued and deferred URLs permanently
  crawler purge --matching '\\.pdf$' --dry-run    count what would be dropped, in all domains
  crawler release --reason urls        deferred URLs back into their queues

Running instances obey within two seconds; open requests end as usual. A command given while
no instance runs is stored for the next one. It holds until another command undoes it.

exit codes: 0 done, 2 no such crawl, domain or reason, 3 engine
"""


def add_domain_command(p: argparse.ArgumentParser) -> None:
    """Of the command that is the last word of `p.prog`."""
    name = p.prog.split()[-1]
    p.epilog = OPERATE_EPILOG
    if name in WITHOUT_DOMAIN:
        wholes = {"boost": "all boosts are listed", "purge": "with --matching the whole crawl"}
        whole = wholes.get(name, "the whole crawl")
        p.add_argument("domain", nargs="?", metavar="DOMAIN", help=f"a domain, host or URL (default: {whole})")
    else:
        p.add_argument("domain", metavar="DOMAIN", help="a domain, host or URL")
    if name in AHEAD:
        p.add_argument("--ahead", action="store_true", help="also for a domain that the crawl has not met yet")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    if name == "delay":
        p.add_argument("delay", metavar="SECONDS|auto", help="seconds, or auto to use robots.txt and the settings")
    elif name == "boost":
        n = f"from -{BOOST_MAX} to {BOOST_MAX}: higher goes first; 0 for none"
        p.add_argument("boost", nargs="?", metavar="N", help=n)
    elif name == "purge":
        p.add_argument("--matching", metavar="REGEX", help="only URLs in which it is found, as for --exclude")
        p.add_argument("--dry-run", action="store_true", help="only count what --matching would drop")
    elif name == "release":
        p.add_argument(
            "--reason",
            metavar="R",
            default="",
            help="only those deferred for this reason, like urls, pages or trap:RULE",
        )
        p.add_argument("--urls", metavar="N", type=whole_type, default=0, help="at most about N (default: all)")
    p.set_defaults(run="crawler.cli.operate:operate", takes_urls=False)
