"""Options of `crawler audit`."""

import argparse

from crawler.cli.options import add_common, count_type, named_type

REPLAYED_MAX = 10_000
AUDIT_EPILOG = """\
examples:
  crawler audit
  crawler audit --dir a --dir b --redis redis://queue.example/ --web-log access.log
  crawler audit -o pages.jsonl -o 'postgresql://crawler@db.example/web'
  crawler audit --replay 100 --pictures seen
  crawler audit --json | jq '.findings.lost.examples[].url'

It reads the archive (every page is parsed again; each link in scope must be pending,
committed, deferred, dead or refused), then the web server's log, and then the index.
Where several machines crawled, name the folders of all of them. The crawl may be running.

A web log has JSON lines with start, end (seconds), host, target, agent and status, or the
common or combined format, as nginx and Apache write it unless told otherwise; name its host
then: --web-log docs.example=access.log. Times in whole seconds are too coarse for short
delays, which are "not judged" then. Write the host in front, and times to the millisecond
or finer behind the User-Agent; other fields may follow:
  nginx   '$http_host $remote_addr - $remote_user [$time_local] "$request" $status
           $bytes_sent "$http_referer" "$http_user_agent" $msec $request_time'
  Apache  "%{Host}i %h %l %u %t \\"%r\\" %>s %b \\"%{Referer}i\\" \\"%{User-Agent}i\\" %{usec}t %D"

With --replay it opens pages in Chromium instead, which gets nothing but what is in the archive,
and tells what was there and what is missing: by domain, and of the ten worst pages. It needs the
folder, but no engine.

exit codes: 0 clean, or all pages of --replay opened, 2 bad folder, crawl or log, or no Chromium,
3 engine, 8 not clean, or a web log that has nothing of this crawl, or a page of --replay that
could not be opened
"""


def percent_type(text: str) -> float:
    """For argparse: more than 0, at most 100."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = 0.0
    if not 0 < number <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage, more than 0 and at most 100")
    return number


def add_audit(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Check a crawl against its archive and the web server's log: was anything lost, committed twice, "
        "requested too early or against robots.txt?"
    )
    p.epilog = AUDIT_EPILOG
    p.add_argument(
        "--web-log", action="append", default=[], metavar="[HOST=]FILE", type=named_type,
        help="access log of the web server that was crawled, and its host where the lines don't tell it; may be "
        "repeated; .gz is unpacked",
    )  # fmt: skip
    p.add_argument(
        "--agent", metavar="TEXT",
        help="what the crawler's User-Agent has in the web log; other requests are left out (default: the product's "
        "name, and all requests of a log in JSON lines)",
    )  # fmt: skip
    p.add_argument(
        "-o", "--output", action="append", default=[], metavar="TARGET",
        help="also compare this file or database of -o with the index: does it have every record, each once? May be "
        "repeated",
    )  # fmt: skip
    p.add_argument("--items", action="store_true", help="these targets have items (default: what -o wrote there)")
    p.add_argument(
        "--partitions", dest="of_partitions", metavar="A-B",
        help="judge what is of these partitions alone, so that several audits may share the work",
    )  # fmt: skip
    p.add_argument(
        "--sample", type=percent_type, metavar="PERCENT", help="judge a random sample of the partitions, like 2"
    )
    p.add_argument(
        "--replay", type=count_type(1, REPLAYED_MAX), metavar="N",
        help="open N pages in Chromium on the archive alone, and tell what they request that is missing",
    )  # fmt: skip
    p.add_argument(
        "--pictures", metavar="DIR", type=named_type, help="with --replay: a picture of each page, as a PNG file in DIR"
    )
    p.add_argument("--json", action="store_true", help="as one JSON object, with up to 10,000 examples of each finding")
    p.add_argument(
        "--ignore-robots", dest="obey_robots", action="store_false", default=None,
        help="the crawl was told to ignore robots.txt: do not judge by it",
    )  # fmt: skip
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.audit:run_audit", takes_urls=False)
