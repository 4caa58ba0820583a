"""Options of what steers a crawl: the domain commands, `users`, `token`, `crawls`, `dead`, `ring`, `scale`."""

import argparse

from crawler.cli.options import SHOWN, add_common, duration_type, named_type, whole_type

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
    p.set_defaults(run="crawler.cli.admin:operate", takes_urls=False)


# `crawler users`: the users who share a crawl, and their weights.

USERS_EPILOG = """\
examples:
  crawler users                   users with waiting URLs, and their weights
  crawler users ann 3             ann gets three times the share of a user with weight 1
  crawler users ann 1             back to the default share
  crawler users --crawl 0.5       the weight of the crawl itself: URLs that belong to no job

Jobs belong to users ('crawler jobs add --user U'). While several users have URLs that are due,
they take turns by weight: in each domain, and in what an instance fetches. A user with nothing
to fetch leaves the share to the others. Running instances follow within two seconds.

exit codes: 0 done, 2 no such crawl, bad name or weight, 3 engine
"""


def add_users(p: argparse.ArgumentParser) -> None:
    p.description = "List users with waiting URLs, or set the weight of one."
    p.epilog = USERS_EPILOG
    p.add_argument("user", nargs="?", metavar="USER", help="whose weight to set (default: all users are listed)")
    p.add_argument("weight", nargs="?", metavar="WEIGHT", type=_number, help="from 0.01 to 1000; 1 is the default")
    p.add_argument("--crawl", metavar="WEIGHT", type=_number, help="the weight of URLs that belong to no job")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run="crawler.cli.admin:run_users", takes_urls=False)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


# `crawler token`: makes, lists and removes the tokens of the HTTP API.

TOKENS_EPILOG = """\
examples:
  crawler token add --user ops --role write    print a new token, for this time only
  crawler token list                           ids, users and roles
  crawler token rm 1f9a02c4                    no longer valid, within a second

  curl -H "Authorization: Bearer $TOKEN" -X POST http://127.0.0.1:8800/v1/pause

Tokens belong to a crawl. The engine has a digest of each, never the token itself.

exit codes: 0 done, 2 no such crawl, user name or token, 3 engine
"""


def add_token(p: argparse.ArgumentParser) -> None:
    p.description = "Make, list and remove tokens for the HTTP API of 'crawler serve'."
    p.epilog = TOKENS_EPILOG
    p.set_defaults(run="crawler.cli.admin:run_token", act=None, parser=p)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=name, parser=one)
        add_common(one)
        return one

    one = add("add", "make a token and print it")
    one.add_argument("--user", required=True, metavar="U", help="whose it is; in the operator log")
    one.add_argument("--role", required=True, choices=("read", "write"), help="what its bearer may do")
    one = add("list", "ids, users and roles of all tokens")
    one.add_argument("--json", action="store_true", help="as one JSON object")
    one = add("rm", "remove a token")
    one.add_argument("id", metavar="ID", help="as in 'crawler token list'")


# `crawler crawls`: lists the crawls of an engine, and removes one from it.

CRAWLS_EPILOG = """\
examples:
  crawler crawls --redis redis://queue.example/              the crawls of an engine
  crawler crawls rm old-shop --redis redis://queue.example/  remove one, after a question
  crawler crawls rm old-shop --yes                           the same of the embedded engine, without one

A crawl that an earlier release created is listed once it was opened by this one. `rm` deletes
what the engine has of a crawl: queue, seen-set, counters, dead letters. The crawl folder stays,
with archive and results. 'crawler rebuild' brings the crawl back from it. While the crawl is
being removed, nobody can open it. A removal that was interrupted is finished by the same command.

exit codes: 0 done, 2 no such crawl, or not confirmed, 3 engine, 4 instances take part
"""


def add_crawls(p: argparse.ArgumentParser) -> None:
    p.description = "The crawls of an engine. Without an action: list."
    p.epilog = CRAWLS_EPILOG
    _add_crawls_options(p)
    p.set_defaults(run="crawler.cli.admin:list_crawls")
    actions = p.add_subparsers(metavar="ACTION", title="actions")
    one = actions.add_parser("list", help="name, time of creation, pages, pending URLs, instances", description="List.")
    _add_crawls_options(one, is_action=True)
    one.set_defaults(parser=one)
    one = actions.add_parser(
        "rm", help="remove a crawl from the engine; its folder stays", description="Remove a crawl from the engine."
    )
    one.add_argument("removed", metavar="NAME", help="the crawl's name")
    one.add_argument("--yes", action="store_true", help="do not ask")
    _add_crawls_options(one, is_action=True)
    one.set_defaults(run="crawler.cli.admin:remove_crawl", parser=one)


def _add_crawls_options(p: argparse.ArgumentParser, *, is_action: bool = False) -> None:
    known = len(p._actions)  # noqa: SLF001 - argparse has no list of its options
    p.add_argument("--json", action="store_true", help="for programs")
    add_common(p, has_name=False)
    if is_action:
        for option in p._actions[known:]:  # noqa: SLF001
            option.default = argparse.SUPPRESS  # options before the name of the action count as well


# `crawler move`, `backup` and `restore`: a crawl goes to another engine, or into a file and back.

EMBEDDED = "embedded"

MOVE_EPILOG = """\
examples:
  crawler move --to redis://queue.example/                           out of the embedded engine
  crawler move --redis redis://queue.example/ --to redis+cluster://a.example,b.example
  crawler move --redis redis://queue.example/ --to embedded --dir crawl-data

Stop all instances first. The crawl folder stays where it is. All that the engine has of the
crawl is copied by partition and compared; from the end of the move on the crawl can only be
opened in the new engine. If it is interrupted, run the same command again: it goes on, or
--undo takes it back. If the other engine is gone, --undo --without-target does: the crawl gets a
new begin, and nobody goes on with a copy that comes back. Delays, jobs, leases, pins and tokens
go along; versions and products of the engines do not matter. The number of partitions stays:
'crawler rebuild --partitions N' makes the crawl with another one, see docs/operate/moving.md.

exit codes: 0 done, 2 no such crawl or engine, 3 engine, 4 instances are running, or the other
engine has another crawl of this name or a copy that did not come by this move, 5 disk
"""

BACKUP_EPILOG = """\
examples:
  crawler backup main.backup
  crawler backup main.backup --pause                   while instances run
  crawler backup - | ssh backup.example 'cat > main.backup'
  crawler restore main.backup --redis redis://queue.example/

Stop all instances first, or let --pause have them stand still: they end what is open, wait until
the file is complete, and go on by themselves, also when this command is killed. The file has what
the engine has, and URLs that wait on disk; it does not have the crawl folder, with the archive and
the index, nor who takes part. It is complete once it has its name; - is standard output.

exit codes: 0 done, 2 no such crawl, or the file exists, 3 engine, 4 instances are running, or
did not stand still within a minute, 5 disk
"""

RESTORE_EPILOG = """\
examples:
  crawler restore main.backup
  crawler restore main.backup --redis redis+cluster://a.example,b.example --dir crawl-data
  crawler restore main.backup --name before --redis redis://queue.example/ --dir elsewhere
                                                       next to the crawl that it is of

The whole file is checked first. If a restore is interrupted, run the same command again.

exit codes: 0 done, 2 the file is none, or damaged, 3 engine, 4 the engine has a crawl of this
name, or a part of another backup, 5 disk
"""


def add_move(p: argparse.ArgumentParser) -> None:
    p.description = "Move a crawl to another engine: embedded, a server, or a cluster."
    p.epilog = MOVE_EPILOG
    p.add_argument(
        "--to", required=True, metavar="URL", type=named_type,
        help=f"the other engine, or {EMBEDDED!r} for that of the crawl folder",
    )  # fmt: skip
    p.add_argument("--undo", action="store_true", help="take back a move that was interrupted: the crawl stays")
    p.add_argument(
        "--without-target",
        action="store_true",
        help="with --undo, when the other engine is gone and does not come back",
    )
    add_common(p)
    p.set_defaults(run="crawler.cli.move:run_move")


def add_backup(p: argparse.ArgumentParser) -> None:
    p.description = "Write what the engine has of a crawl into a new file, which any engine can take."
    p.epilog = BACKUP_EPILOG
    p.add_argument("file", metavar="FILE", type=named_type, help="a new file, or - for standard output")
    p.add_argument("--pause", action="store_true", help="have running instances stand still meanwhile")
    add_common(p)
    p.set_defaults(run="crawler.cli.move:run_backup")


def add_restore(p: argparse.ArgumentParser) -> None:
    p.description = "Bring a crawl back from a file of 'crawler backup', into an engine that does not have it."
    p.epilog = RESTORE_EPILOG
    p.add_argument("file", metavar="FILE", type=named_type)
    add_common(p)
    p.set_defaults(run="crawler.cli.move:run_restore")


# `crawler dead`: lists dead letters, puts them back into their queues, or purges them.

ACTIONS = ("list", "show", "retry", "purge")

DEAD_EPILOG = """\
examples:
  crawler dead list                                the newest, and how many for each reason
  crawler dead show https://docs.example/slow      everything about one, with each attempt
  crawler dead retry --domain docs.example         retry all of them when their site is back
  crawler dead retry https://docs.example/slow
  crawler dead purge --reason dns_not_found
  crawler dead list --run 0k3v9x2m7q.1.trvm5c      those of a run of a job

A retried URL counts as new and gets all its attempts again. A running crawl takes it up at
once; a finished one with 'crawler crawl'. URLs of a run of a job are put back while it goes on;
'crawler jobs retry' repeats one that has failed. A purged URL stays seen: it is not crawled again,
and counts as refused ("purged").

With --json, `list` prints one object a line, and all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, URL or reason, 3 engine
"""


def add_dead(p: argparse.ArgumentParser) -> None:
    p.usage = "crawler dead list|show|retry|purge [URL ...] [options]"
    p.description = "Dead letters: URLs whose last attempt failed, with the reason and each attempt."
    p.epilog = DEAD_EPILOG
    p.add_argument("action", choices=ACTIONS, metavar="ACTION", help="list, show, retry or purge")
    p.add_argument("urls", nargs="*", metavar="URL", help="of these URLs only")
    p.add_argument("--domain", metavar="D", help="only of this domain")
    p.add_argument("--reason", metavar="R", help="only those that failed for this reason, like timeout or dns_error")
    p.add_argument("--run", dest="of_run", metavar="RUN", help="only of this run of a job")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"at most N (default: all; {SHOWN} in a table)")
    p.add_argument("--all", action="store_true", help="retry or purge all there are")
    p.add_argument("--json", action="store_true", help="for programs; times in seconds")
    add_common(p)
    p.set_defaults(run="crawler.cli.admin:run_dead", takes_urls=True)


# `crawler ring`: members and shares, the owner of a URL, what a change of nodes would move, pins, eviction.

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


# `crawler scale`: how many instances the supervisor of a machine runs; changes it, or shows it.

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
    p.set_defaults(run="crawler.cli.ring:run_scale", takes_urls=False)
