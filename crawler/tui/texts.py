"""Texts of the screens of `top`: headline, keys, questions. Pure."""

from collections.abc import Iterator, Sequence

from crawler.redaction import redact
from crawler.rules.text import one_line
from crawler.terminal.words import counted
from crawler.views.columns import delay_text
from crawler.views.figures import DomainState, DomainView
from crawler.views.headline import overview_parts, state_text
from crawler.views.snapshot import CrawlState, Overview
from crawler.views.values import BOOST_MAX, domain_of

HELP = """\
Domains
  1 to 6   sort: pages, rate, queue, errors, bytes, due; s: next
  n        all domains by name; Page Down goes on at the end
  /        find by a part of the name; Escape ends it
  Enter    one domain: why it is fetched or not, its numbers

One domain; in the table, the one under the cursor
  p        pause or resume
  b        block (its URLs are deferred) or unblock
  + -      boost: fetch it before others that are due, or after
  D        delay between its requests
  h        its newest attempts (crawl folder on this machine)
  d        its dead letters (on its own screen)

The crawl
  P        pause or resume all of it
  m        members: instances, their partitions, the ring
  d        dead letters by reason; there, r retries them
  o        operator log: who changed what

Escape goes back, q quits. Left and right move long lines.
Whatever changes something asks first.

/s         pages per second, over the last 10 s
errors     4xx, 5xx, and attempts without a response
in flight  open requests ("?": not kept of this domain)
next       when the next request may start, or why none does:
           paused, blocked, budget (used up)
"""

_GAP = "   "


HEAD_LINES = 2


def head_text(o: Overview | None, domains: int | None, width: int) -> str:
    """The headline in at most two lines."""
    if o is None:
        return "reading ..."
    parts = [f"{o.crawl}: {state_text(o)}", *overview_parts(o)]
    if domains is not None:
        parts.append(counted(domains, "domain"))
    return "\n".join(list(wrapped(parts, width))[:HEAD_LINES])


def wrapped(parts: Sequence[str], width: int) -> Iterator[str]:
    """Lines of whole parts, side by side."""
    line = ""
    for part in map(one_line, parts):
        if line and len(line) + len(_GAP) + len(part) > width:
            yield line
            line = ""
        line += (_GAP if line else "") + part
    yield line


def notes_text(o: Overview) -> str:
    """What explains the headline's numbers."""
    return one_line(redact("; ".join(o.notes)))


def keys_text(keys: Sequence[tuple[str, str]], width: int) -> str:
    """As many keys as one line has room for, the first first; always the last two, help and quit."""
    texts = [f"{key} {what}" for key, what in keys]
    ends, kept = texts[-2:], list[str]()
    for text in texts[:-2]:
        if len("  ".join([*kept, text, *ends])) > width:
            break
        kept.append(text)
    return "  ".join([*kept, *ends])


def pause_question(d: DomainView) -> str:
    """What `p` would do."""
    name = domain_of(d.domain)
    if d.stop == "paused":
        return f"Resume {name}? Its requests start again; {_waiting(d)}."
    return f"Pause {name}? No request to it starts until it is resumed; {_waiting(d)}."


def block_question(d: DomainView) -> str:
    """What `b` would do."""
    name = domain_of(d.domain)
    if d.state is DomainState.BLOCKED:
        return f"Unblock {name}? Its deferred URLs return to its queue, and are fetched."
    urls = counted(d.pending, "URL is", "URLs are")
    return f"Block {name}? {urls} deferred, new ones too, and the crawl ends without them."


def boost_question(d: DomainView, by: int) -> tuple[str, int]:
    """What `+` and `-` would do, and the new boost."""
    boost = max(-BOOST_MAX, min(BOOST_MAX, d.boost + by))
    name = domain_of(d.domain)
    if not boost:
        return f"Remove the boost of {name}? It is fetched like all without a boost.", boost
    when = "before" if boost > 0 else "after"
    return f"Boost {name} to {boost}? It is fetched {when} domains without a boost.", boost


def delay_question(d: DomainView) -> str:
    """What `D` asks for."""
    now = f"now {delay_text(d.delay_ms)}" if d.delay_ms >= 0 else "not known yet"
    name = domain_of(d.domain)
    return f"Delay between requests to {name} ({now}): seconds, or auto to follow robots.txt and the settings"


def crawl_question(o: Overview) -> str:
    """What `P` would do."""
    if o.state is CrawlState.PAUSED:
        return f"Resume the whole crawl? Requests start again; {counted(o.pending, 'URL is', 'URLs are')} pending."
    return "Pause the whole crawl? No request starts, to any domain, until it is resumed."


def _waiting(d: DomainView) -> str:
    return f"{counted(d.pending, 'URL waits', 'URLs wait')}"
