"""Cookie walls: pages that redirect until their cookie comes back, to themselves or through pages that set it.

A page that redirects to itself and sets a cookie gets one more try, with the cookie. A redirect to another URL of its
origin that looks like a wall is followed in the page's own turns, each with the queue's delay. If the chain leads back,
the page is requested again with the cookies of the chain. Otherwise the redirect is the page's result as usual, and the
responses of the chain are kept for their own URLs. Cookies last for one chain, and go to the page's origin only: to the
URLs of it that they are for. A page with a session has those of the session instead.
"""

from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote

from crawler.content.html import redirect_target
from crawler.model import REDIRECTS, Claim, Response
from crawler.rules.cookies import Jar
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import wall_s
from crawler.worker.page_requests import Answered, Step

BYTES_MAX = 6144  # of the cookies of one chain: room for one as long as may be, with its host and path
KEPT_MAX = 10_000  # chains; the next step of some may have gone to another instance
STEPS_MAX = 4  # URLs in a chain
REDIRECT_BYTES_MAX = 4096  # of the page's own redirect, which is kept meanwhile
# Chains of an origin that led nowhere before its redirects are no longer followed: a URL of the chain may have been
# fetched before. Few redirects are walls if they neither set a cookie nor name the URL to return to.
MISSES_RETURN_MAX, MISSES_COOKIE_MAX, MISSES_SEED_MAX = 8, 2, 1
ORIGINS_MAX = 10_000
ANSWERS_MAX = 64  # responses of a chain, kept until the turns of their URLs
ANSWER_BYTES_MAX = 256 * 1024
ANSWER_S = 600.0


class CookieWalls:
    """The next request of a claim, when that is not simply its page. `may_ask`: may this URL be requested?"""

    def __init__(self, now_s: Callable[[], float] = wall_s) -> None:
        """`now_s`: the wall clock."""
        self._now_s = now_s
        self._steps: OrderedDict[str, Step] = OrderedDict()  # by fingerprint
        self._misses: OrderedDict[str, int] = OrderedDict()  # by origin
        self._answers: OrderedDict[str, Answered] = OrderedDict()  # by URL

    def url_of(self, claim: Claim) -> str:
        """The URL that the claim's turn requests."""
        step = self._steps.get(claim.fingerprint)
        return claim.url if step is None else step.url

    def take(self, claim: Claim) -> Step | None:
        """Remove and return the next step of the claim."""
        return self._steps.pop(claim.fingerprint, None)

    def put_back(self, claim: Claim, step: Step | None) -> None:
        """The step was not done: no request was sent, or it was not answered."""
        if step is not None:
            self._keep(claim, step)

    def starts(self, claim: Claim, response: Response, target: str, may_ask: Callable[[str], bool]) -> bool:
        """Does the page's redirect to `target` start a chain? Then the claim's next turn follows it."""
        if not _is_plain(claim):
            return False
        jar = self._after(Jar(), claim.url, response)
        if target == claim.url:
            return self._are_for(jar, target) and self._keep(claim, Step(url=target, jar=jar))
        if not _is_near(claim, target) or _bytes_of(response) > REDIRECT_BYTES_MAX:
            return False
        if self._misses.get(origin_of(claim.url), 0) >= _misses_max(claim, target, jar) or not may_ask(target):
            return False
        return self._keep(claim, Step(url=target, jar=jar, first=response, number=1))

    def continues(self, claim: Claim, step: Step, answered: Answered, may_ask: Callable[[str], bool]) -> bool:
        """Does this response of the chain lead to a next step? If not, the page's own redirect is its result."""
        response = answered.result.response
        if response is not None and len(response.raw_body) + len(response.body) <= ANSWER_BYTES_MAX:
            self._answers[step.url] = answered
            if len(self._answers) > ANSWERS_MAX:
                self._answers.popitem(last=False)
        if response is not None and response.status in REDIRECTS:
            target = redirect_target(step.url, response.header("location")) or ""
            jar = self._after(step.jar, step.url, response)
            if target == claim.url and self._are_for(jar, target):
                return self._keep(claim, Step(url=target, jar=jar, first=step.first))
            is_next = len(jar) and step.number < STEPS_MAX and target != claim.url and _is_near(claim, target)
            if is_next and may_ask(target):
                return self._keep(claim, Step(url=target, jar=jar, first=step.first, number=step.number + 1))
        self._missed(claim)
        return False

    def returned(self, claim: Claim, step: Step, response: Response) -> None:
        """The page was requested with the cookies of the chain."""
        if step.first is None:
            return
        if response.status in REDIRECTS:
            self._missed(claim)
        else:
            self._misses.pop(origin_of(claim.url), None)

    def answer_for(self, claim: Claim, now_s: float) -> Answered | None:
        """Remove and return a recent response for the claim's URL from the chain of another page."""
        answered = self._answers.pop(claim.url, None) if _is_plain(claim) else None
        return answered if answered is not None and now_s - answered.finished_at < ANSWER_S else None

    def _after(self, jar: Jar, url: str, response: Response) -> Jar:
        """The cookies of a chain after a response of it."""
        found = Jar(jar.cookies, bytes_max=BYTES_MAX)
        found.take(url, response.headers, self._now_s())
        return found

    def _are_for(self, jar: Jar, url: str) -> bool:
        return bool(jar.sent_to(url, self._now_s()))

    def _keep(self, claim: Claim, step: Step) -> bool:
        self._steps[claim.fingerprint] = step
        if len(self._steps) > KEPT_MAX:
            self._steps.popitem(last=False)
        return True

    def _missed(self, claim: Claim) -> None:
        origin = origin_of(claim.url)
        self._misses[origin] = self._misses.pop(origin, 0) + 1
        if len(self._misses) > ORIGINS_MAX:
            self._misses.popitem(last=False)


def _is_plain(claim: Claim) -> bool:
    """Is a GET of its URL what it wants? Others are not repeated for the sake of a cookie."""
    return claim.request is None or not claim.request.identity


def _is_near(claim: Claim, url: str) -> bool:
    """Is it of the page's origin? Its robots.txt is known then, its queue is the same, and cookies may go there."""
    return bool(url) and origin_of(url) == origin_of(claim.url)


def _misses_max(claim: Claim, target: str, jar: Jar) -> int:
    """Misses after which the redirect is not followed; higher the more it looks like a wall, 0 for never."""
    path = claim.url[len(origin_of(claim.url)) :]
    if len(path) > 1 and path in unquote(target.partition("?")[2]):
        return MISSES_RETURN_MAX
    if len(jar):
        return MISSES_COOKIE_MAX
    return MISSES_SEED_MAX if claim.seed else 0


def _bytes_of(response: Response) -> int:
    return len(response.raw_body) + len(response.body) + sum(len(key) + len(value) for key, value in response.headers)
