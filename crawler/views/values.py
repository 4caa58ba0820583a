"""Values of commands as people write them. Imports little: commands read them before an engine is started."""

from crawler.crawl.url_input import url_of_site
from crawler.errors import UsageError
from crawler.frontier.deferred import kind_of
from crawler.model import FailureKind
from crawler.rules.job_runs import DEPTH_MAX
from crawler.rules.places import registrable_domain
from crawler.rules.schedules import parse_duration
from crawler.rules.urls import host_of
from crawler.settings.schema import PRIORITY_MAX
from crawler.views.losses import RELEASED

DELAY_MAX_S = 86_400
BOOST_MAX = 9
UNDONE_BY = {"paused": "resume", "blocked": "unblock"}  # deferred for this reason -> what releases them


def domain_of(text: str) -> str:
    """The domain of a domain, host or URL as people write it. Raises InvalidUrl."""
    return registrable_domain(host_of(url_of_site(text)))


def domain_alone(text: str, command: str) -> str:
    """The same for a command that acts on a domain: raises UsageError for a URL below its host, which would not be all
    that the command acts on.
    """
    domain = domain_of(text)
    _, _, path = url_of_site(text).partition("://")[2].partition("/")
    if path.strip("/"):
        raise UsageError(f"{text}: {command} acts on all of a domain: 'crawler {command} {domain}'")
    return domain


def delay_ms_of(text: str) -> int | None:
    """A delay as people write it: seconds or a duration; None for "auto". Raises UsageError."""
    if text == "auto":
        return None
    seconds = parse_duration(text)
    if not 0 <= seconds <= DELAY_MAX_S:
        raise UsageError(f"delay {text}: expected seconds from 0 to {DELAY_MAX_S:,}, or auto")
    return round(seconds * 1000)


def boost_of(text: str) -> int:
    """A boost as people write it. Raises UsageError."""
    try:
        n = int(text)
    except ValueError:
        n = BOOST_MAX + 1
    if not -BOOST_MAX <= n <= BOOST_MAX:
        raise UsageError(f"boost {text}: expected a whole number from -{BOOST_MAX} to {BOOST_MAX}")
    return n


def check_release(reason: str, urls_max: int) -> None:
    """May these be given to `release`? Raises UsageError."""
    if urls_max < 0:
        raise UsageError(f"urls {urls_max}: expected a number of URLs")
    if reason in UNDONE_BY:
        raise UsageError(f"reason {reason}: use 'crawler {UNDONE_BY[reason]} DOMAIN'")
    if reason and kind_of(reason) not in RELEASED:
        raise UsageError(f"reason {reason}: expected one of {', '.join(RELEASED)}")


def letter_reason_of(text: str) -> str:
    """A reason of dead letters. Raises UsageError."""
    if text not in list(FailureKind):
        raise UsageError(f"reason {text}: expected one of {', '.join(FailureKind)}")
    return text


def check_seed_options(depth: int, priority: float | None) -> None:
    """May seeds have this depth and priority? Raises UsageError."""
    if not 0 <= depth <= DEPTH_MAX:
        raise UsageError(f"depth {depth}: expected 0 to {DEPTH_MAX}")
    if priority is not None and not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise UsageError(f"priority {priority}: expected -{PRIORITY_MAX:,} to {PRIORITY_MAX:,}")
