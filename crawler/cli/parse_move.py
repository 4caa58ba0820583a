"""Options of `crawler move`, `backup` and `restore`."""

import argparse

from crawler.cli.options import add_common, named_type

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
