"""Whose fault a lost session is: its time was over, a URL ends sessions, or a URL wants more than this login.

An answer that leads to the login can mean each of these, and a login for each would be one for each such URL. So a page
that came well before is requested once more (a check, which belongs to no page):

- it leads to the login, too: the session has ended. After the next login pages are requested one at a time, the one
  that led to the login first. If it does so again, and the check says that the session has ended with it: it ends
  sessions. What else was answered since the last good page is suspect by its path.
- it comes well: the session holds, and the URL wants more.

Only a page that nobody gets without the session can tell. One that @app.logged_in says yes to is one; another page is
requested once without cookies, which has to lead to the login. Where no page can tell, a URL that leads to the login
twice, right after a login, wants more.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from crawler.model import Claim, FailureKind
from crawler.rules.logins import ENDS_MAX, paths_of

FRESH_ANSWERS = 16  # after a login: until then it is sure to hold, and after a loss pages are requested one at a time
FATES_MAX = 10_000  # URLs of which something is known
WATCHES_MAX = 10_000  # sessions
WINDOW_MAX = 32  # answers since the last good page
GOOD_MAX = 2  # good pages that are remembered: the last ones, and the 1st, 2nd, 4th, 8th ... of all
EARLIER_MAX = 16
PAGES_MAX = 4  # of a check
PUBLIC_MAX = 64  # pages that anybody gets
SURVIVED_MAX = 4096  # paths of a site that sessions survived lately
STRIKES_MAX = 1000  # suspect paths of a site
TRIES_MAX = 3  # checks that are not answered
Value = TypeVar("Value")
PATH_STRIKES, FOLDER_STRIKES = 2, 3  # URLs of a path, or of a folder, with which sessions ended


class Sight(Enum):
    """What an answer shows of its session."""

    LOST = "lost"
    GOOD = "good"
    PROOF = "proof"  # good, as @app.logged_in says
    NOTHING = "nothing"  # a redirect elsewhere, an error


class Seen(msgspec.Struct, frozen=True):
    """`why` it is lost: like "it leads to the login"."""

    sight: Sight
    why: str = ""


class Fate(msgspec.Struct, frozen=True):
    """How a URL ends."""

    kind: FailureKind
    detail: str


class Check(msgspec.Struct):
    """A session that may have ended with a URL. The first of `pages` is requested, at last without cookies."""

    url: str
    fingerprint: str
    why: str
    pages: list[str]
    is_second: bool  # led to the login after the last login, too
    is_first: bool  # is the first answer since then
    is_anonymous: bool = False
    tries: int = 0


class Paths:
    """Which paths of a site end sessions: URLs of theirs did, and none that came lately did not."""

    def __init__(self, ends: Sequence[str] = ()) -> None:
        self.ends = list(ends)  # the newest last
        self._survived: OrderedDict[str, None] = OrderedDict()
        self._strikes: OrderedDict[str, set[str]] = OrderedDict()  # path -> fingerprints

    def survived(self, url: str) -> None:
        """A session went on after this URL."""
        for path in paths_of(url):
            _put(self._survived, path, None, SURVIVED_MAX)

    def strike(self, url: str, fingerprint: str, *, is_sure: bool = False) -> str:
        """A session ended after this URL, as far as it is known, or surely. Returns the widest of its paths that ends
        sessions.
        """
        found = ""
        for path in paths_of(url):
            if path in self._survived:
                continue
            strikes = self._strikes.get(path, set())
            if len(strikes) < FOLDER_STRIKES:
                _put(self._strikes, path, strikes | {fingerprint}, STRIKES_MAX)
            is_folder = path.endswith("/*")
            wanted = FOLDER_STRIKES if is_folder else 1 if is_sure else PATH_STRIKES
            if len(self._strikes[path]) >= wanted:
                found = path
                if path not in self.ends:
                    self.ends = [*self.ends[-(ENDS_MAX - 1) :], path]
        return found

    def ending(self, url: str) -> str:
        """The path of a URL that ends sessions; "" for most."""
        return next((path for path in paths_of(url) if path in self.ends), "") if self.ends else ""


class Watch(msgspec.Struct, kw_only=True):
    """What is known of a session's answers. `open`: requests that are under way; `paths`: of its site."""

    epoch: int
    paths: Paths
    open: int = 0
    careful: int = 0  # answers until several are requested at a time again
    check: Check | None = None
    control: str = ""  # a page that only the session gets
    good: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=GOOD_MAX))
    earlier: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=EARLIER_MAX))
    good_count: int = 0
    public: OrderedDict[str, None] = msgspec.field(default_factory=OrderedDict)
    window: list[tuple[str, str]] = []  # URL and fingerprint of what was answered since the last good page, and of it


class SessionLosses:
    """Those of one instance."""

    def __init__(self) -> None:
        self._watches: OrderedDict[str, Watch] = OrderedDict()  # by session
        self._paths: dict[str, Paths] = {}  # by site
        self._lost_with: OrderedDict[str, int] = OrderedDict()  # fingerprint -> the login that it was lost with
        self._wants_more: OrderedDict[str, int] = OrderedDict()  # -> the login that held nevertheless
        self._fates: OrderedDict[str, Fate] = OrderedDict()

    def watch(self, site: str, name: str, epoch: int, ends: Sequence[str] = ()) -> Watch:
        """That of a session; `ends`: paths that are known already, if its site is a new one."""
        key = f"{site} {name}"
        known = self._watches.get(key)
        if known is None or known.epoch != epoch:
            paths = self._paths.get(site) or self._paths.setdefault(site, Paths(ends))
            known = self._watches[key] = Watch(epoch=epoch, paths=paths)
            if len(self._watches) > WATCHES_MAX:
                self._watches.popitem(last=False)
        return known

    def fate_of(self, claim: Claim, watch: Watch) -> Fate | None:
        """How a claim ends without another request; None for most."""
        if self._fates and (fate := self._fates.pop(claim.fingerprint, None)) is not None:
            return fate
        path = watch.paths.ending(claim.url)
        return Fate(FailureKind.ENDS_SESSION, f"not requested: {path} ends sessions") if path else None

    # --- answers ---

    def came(self, claim: Claim, watch: Watch, seen: Seen) -> None:
        """A page was answered, and does not lead to the login."""
        watch.careful = max(0, watch.careful - 1)
        for known in (self._lost_with, self._wants_more):
            known.pop(claim.fingerprint, None)
        if seen.sight is Sight.NOTHING:
            watch.window = [*watch.window[-WINDOW_MAX:], (claim.url, claim.fingerprint)]
            return
        for url, _ in watch.window:
            watch.paths.survived(url)
        watch.window = []
        if seen.sight is Sight.GOOD:  # it may be the one that says good-bye
            watch.window.append((claim.url, claim.fingerprint))
        if claim.request is None and claim.url not in watch.public:
            watch.good.append(claim.url)
            watch.good_count += 1
            if watch.good_count.bit_count() == 1:
                watch.earlier.append(claim.url)
        if seen.sight is Sight.PROOF and claim.request is None:
            watch.control = claim.url

    def lost(self, claim: Claim, watch: Watch, seen: Seen, *, login: int, answers: int) -> Fate | bool:
        """A page of the session leads to the login: how its URL ends; or True: the session counts as ended; False: that
        is checked first. Then the page is requested again.
        """
        fingerprint, before = claim.fingerprint, self._lost_with.get(claim.fingerprint)
        if self._wants_more.pop(fingerprint, None) == login:
            self._lost_with.pop(fingerprint, None)
            watch.paths.survived(claim.url)
            return Fate(FailureKind.LOGIN_REQUIRED, f"{seen.why}, though the session holds")
        self.suspect(claim, login)
        is_second = before is not None and before < login and answers <= FRESH_ANSWERS
        pages = _pages_for_check(watch, claim.url)
        if pages:
            watch.check = Check(claim.url, fingerprint, seen.why, pages, is_second, answers == 1)
            return False
        if is_second:
            self._lost_with.pop(fingerprint, None)
            return Fate(FailureKind.LOGIN_REQUIRED, f"{seen.why} again, right after a login")
        self.ended(watch)
        return True

    def suspect(self, claim: Claim, login: int) -> None:
        """It led to the login, after this login."""
        _put(self._lost_with, claim.fingerprint, login)

    # --- checks ---

    def checked(self, watch: Watch, seen: Seen | None, *, login: int) -> bool:
        """The answer to a check; None: there is none. Has the session ended?"""
        check = watch.check
        assert check is not None
        page = check.pages[0]
        if seen is None:
            check.tries += 1
            return check.tries >= TRIES_MAX and self._has_ended(watch, check)
        if check.is_anonymous:
            if seen.sight is Sight.LOST:
                watch.control = page
                return self._holds(watch, check, login)
            _put(watch.public, page, None, PUBLIC_MAX)
            if watch.control == page:
                watch.control = ""
            return self._next(watch, check)
        if seen.sight is Sight.LOST:
            return self._has_ended(watch, check)
        if seen.sight is Sight.PROOF or (seen.sight is Sight.GOOD and page == watch.control):
            return self._holds(watch, check, login)
        if seen.sight is Sight.GOOD:
            check.is_anonymous = True
            return False
        if watch.control == page:
            watch.control = ""
        return self._next(watch, check)

    def can_not_tell(self, watch: Watch) -> bool:
        """The page of a check can't be requested. Has the session ended?"""
        return watch.check is not None and self._next(watch, watch.check)

    def _next(self, watch: Watch, check: Check) -> bool:
        """Has the session ended, after a page that can't tell?"""
        check.pages, check.is_anonymous = check.pages[1:], False
        if check.pages:
            return False
        if check.is_second:
            watch.check = None
            detail = f"{check.why} again, right after a login"
            _put(self._fates, check.fingerprint, Fate(FailureKind.LOGIN_REQUIRED, detail))
            return False
        return self._has_ended(watch, check, is_known=False)

    def _holds(self, watch: Watch, check: Check, login: int) -> bool:
        watch.check = None
        watch.paths.survived(check.url)
        if check.is_second:
            detail = f"{check.why}, though the session holds"
            _put(self._fates, check.fingerprint, Fate(FailureKind.LOGIN_REQUIRED, detail))
        else:
            _put(self._wants_more, check.fingerprint, login)
        return False

    def _has_ended(self, watch: Watch, check: Check, *, is_known: bool = True) -> bool:
        watch.check = None
        if is_known and check.is_second and check.is_first:
            self._lost_with.pop(check.fingerprint, None)
            watch.paths.strike(check.url, check.fingerprint, is_sure=True)
            detail = f"the session ended with it twice ({check.why})"
            _put(self._fates, check.fingerprint, Fate(FailureKind.ENDS_SESSION, detail))
        elif is_known:
            for url, fingerprint in watch.window:
                watch.paths.strike(url, fingerprint)
        self.ended(watch)
        return True

    def ended(self, watch: Watch) -> None:
        """There is a login next."""
        watch.window, watch.careful, watch.check = [], FRESH_ANSWERS, None


def _pages_for_check(watch: Watch, url: str) -> list[str]:
    """That came well, and that may tell whether the session holds; not the one that led to the login."""
    pages = dict.fromkeys((watch.control, *reversed(watch.good), *reversed(watch.earlier)))
    return [page for page in pages if page not in ("", url) and page not in watch.public][:PAGES_MAX]


def _put(known: OrderedDict[str, Value], key: str, value: Value, most: int = FATES_MAX) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
