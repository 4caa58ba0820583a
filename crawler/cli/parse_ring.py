"""Options of `crawler ring`."""

import argparse

from crawler.cli.options import add_common

RING_EPILOG = """\
examples:
  crawler ring                                   members, their state and share
  crawler ring show https://docs.example/a       domain, partition, owner, epoch
  crawler ring plan --add 2                      what two more nodes would move
  crawler ring plan --remove web-3 --add big-0:4
                                                 one node less, another with four times the share
  crawler ring pin shop.example big-0            give a domain to a node; `unpin DOMAIN` ends it
  crawler ring pins                              all pins, and whether they are heard
  crawler ring evict web-3                       take an instance off the crawl, now

A member's state is judged by its heartbeat, read twice: a "silent" member sent none in
between, a "dead" one left its lock file free on this machine. A "quarantined" one came back
so often lately that it has to wait, or its disk is full. One that "disagrees" follows another ring than most: its
settings or its release differ. The ring suggests shares; instances hold leases, which follow
the ring.

Instances own partitions. A pinned domain takes its whole partition along, some 1/1024 of all
domains, so two domains of one partition can't be pinned to different nodes. While the node of
a pin does not take part, the ring decides.

An evicted instance lets go at once and exits with 10. If it hangs, nothing that it writes
counts after a silence of membership.dead_s; others take over then. Started again, it may join.

exit codes: 0 done, 2 no such crawl, bad URL, node or plan, 3 engine,
4 another domain of the partition is pinned to another node, or an evicted node's
partitions stay in its name
"""


def add_ring(p: argparse.ArgumentParser) -> None:
    p.description = "Who takes part in a crawl and has which share. Without an action: show."
    p.epilog = RING_EPILOG
    _add_ring_options(p)
    p.set_defaults(run="crawler.cli.ring:run_ring", answer="show", url=None)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        _add_ring_options(one)
        for option in one._actions[1:]:  # noqa: SLF001 - argparse has no list of its options
            option.default = argparse.SUPPRESS  # options before the name of the action count as well
        one.set_defaults(answer=name, parser=one)
        return one

    one = add("show", "members, their state and share; with a URL: where it belongs")
    one.add_argument("url", nargs="?", metavar="URL", help="a URL or domain")
    one = add("plan", "what a change of nodes would move; changes nothing")
    one.add_argument(
        "--add", dest="changes", action="append", type=lambda text: f"+{text}", metavar="N|NODE[:WEIGHT]",
        help="N more nodes, one more node of that name, or a new weight of a node; repeatable",
    )  # fmt: skip
    one.add_argument(
        "--remove", dest="changes", action="append", type=lambda text: f"-{text}", metavar="N|NODE",
        help="N nodes less, those with the highest numbers, or that node; repeatable",
    )  # fmt: skip
    one = add("pin", "give a domain to a node")
    one.add_argument("domain", metavar="DOMAIN")
    one.add_argument("node", metavar="NODE")
    one = add("unpin", "end a domain's pin")
    one.add_argument("domain", metavar="DOMAIN")
    add("pins", "all pins, and whether they are heard")
    one = add("evict", "take an instance off the crawl, now")
    one.add_argument("node", metavar="NODE")


def _add_ring_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
