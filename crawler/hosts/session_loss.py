"""Whose fault a lost session is: its time was over, a URL ends sessions, or a URL wants more than this login.

An answer that leads to the login can mean each of these, and a login for each would be one for each such URL. So a page
that came well before is requested once more (a check, which belongs to no page):

- it leads to the login, too: the session has ended, and there is a login;
- it comes well: the session holds, and the URL wants more. If it does so twice, it is given up.

Only a page that nobody gets without the session can tell. One that @app.logged_in says yes to is one; another page is
requested once without cookies, which has to lead to the login. Where no page can tell, a URL that leads to the login
twice, right after a login, wants more.

What was answered since the last good page before a loss is suspect, by its paths. URLs of such a path are requested
alone, between two checks, so that it is sure whether the session ended with one. Paths that sessions survive are not
suspect any more; of those with several URLs that end sessions, no other one is requested.

Sessions that end by themselves after a few requests look the same, wherever they end. So before the first path of a
site is blamed, a page that only the session gets is requested LONG_ANSWERS times in a row, and has to come each time.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from crawler.model import Claim, FailureKind
from crawler.rules.login_pace import ENDS_MAX, paths_of

FRESH_ANSWERS = 16  # after a login: until then it is sure to hold, and after a loss pages are requested one at a time
FATES_MAX = 10_000  # URLs of which something is known
WATCHES_MAX = 10_000  # sessions
WINDOW_MAX = 32  # answers since the last good page
GOOD_MAX = 2  # good pages that are remembered: the last ones, and the 1st, 2nd, 4th, 8th ... of all
EARLIER_MAX = 16
PAGES_MAX = 4  # of a check
PUBLIC_MAX = 64  # pages that anybody gets
PATHS_MAX = 4096  # of a site: of each kind
TRIES_MAX = 3  # checks that are not answered
LONG_ANSWERS = 8  # where a session does not come to so many, it may have ended by itself, with any URL
PATH_STRIKES, FOLDER_STRIKES = 2, 3  # URLs that end sessions, after which no other one of a path is requested
Value = TypeVar("Value")


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


NOTHING = Seen(Sight.NOTHING)


class Fate(msgspec.Struct, frozen=True):
    """How a URL ends."""

    kind: FailureKind
    detail: str


class Purpose(Enum):
    """Why a check is made."""

    LOST = "lost"  # a URL led to the login
    BEFORE = "before"  # one of a suspect path is requested next
    AFTER = "after"  # one was answered
    LENGTH = "length"  # several URLs seem to end sessions, and it is not known yet that others don't


class Check(msgspec.Struct, kw_only=True):
    """A session that may have ended with a URL. The first of `pages` is requested, at last without cookies."""

    purpose: Purpose
    url: str
    fingerprint: str
    pages: list[str]
    why: str = ""
    is_second: bool = False  # it led to the login after the last login, too
    is_alone: bool = False  # the session surely held before it
    is_anonymous: bool = False
    tries: int = 0
    good: int = 0  # answers, where it is about the length


class Length(Enum):
    """What is known of how long the sessions of a site are."""

    UNKNOWN = "unknown"
    DOUBTFUL = "doubtful"  # a check of it is next
    SHORT = "short"
    LONG = "long"


class Paths:
    """What is known of the paths of a site."""

    def __init__(self, ends: Sequence[str] = ()) -> None:
        self.ends = list(ends)  # that end sessions, the newest last
        self.length = Length.LONG if ends else Length.UNKNOWN
        self._survived: OrderedDict[str, None] = OrderedDict()  # after which a session surely held
        self._suspect: OrderedDict[str, None] = OrderedDict()
        self._strikes: OrderedDict[str, set[str]] = OrderedDict()  # path -> fingerprints of URLs that ended sessions

    def survived(self, url: str) -> None:
        """A session surely held after this URL."""
        for path in paths_of(url):
            _put(self._survived, path, None, PATHS_MAX)
            self._suspect.pop(path, None)

    def suspect(self, url: str) -> None:
        """A session may have ended with this URL."""
        for path in paths_of(url):
            if path not in self._survived:
                _put(self._suspect, path, None, PATHS_MAX)

    def is_suspect(self, url: str) -> bool:
        return bool(self._suspect) and any(path in self._suspect for path in paths_of(url))

    def strike(self, url: str, fingerprint: str, *, is_second: bool = False) -> None:
        """A session surely ended with this URL; `is_second`: with it again."""
        self.suspect(url)
        for path in paths_of(url):
            if path in self._survived or path in self.ends:
                continue
            strikes = self._strikes.get(path, set())
            if len(strikes) < FOLDER_STRIKES:
                strikes = strikes | {fingerprint}
            _put(self._strikes, path, strikes, PATHS_MAX)
            if is_second and not path.endswith("/*"):
                self._blame(path)
        enough = list(filter(self._has_enough, paths_of(url)))
        if self.length is Length.LONG:
            for path in enough:
                self._blame(path)
        elif self.length is Length.UNKNOWN and enough:
            self.length = Length.DOUBTFUL

    def has_strikes(self, url: str, *, with_folder: bool = True) -> bool:
        """Has a session surely ended with a URL of the same path?"""
        return any(path in self._strikes for path in paths_of(url) if with_folder or not path.endswith("/*"))

    def _has_enough(self, path: str) -> bool:
        least = FOLDER_STRIKES if path.endswith("/*") else PATH_STRIKES
        return len(self._strikes.get(path, ())) >= least and path not in self._survived and path not in self.ends

    def _blame(self, path: str) -> None:
        self.ends = [*self.ends[-(ENDS_MAX - 1) :], path]

    def are_long(self) -> None:
        """A session came to LONG_ANSWERS."""
        self.length = Length.LONG
        for path in list(filter(self._has_enough, self._strikes)):
            self._blame(path)

    def are_short(self) -> None:
        """One ended before that with nothing but a page that had come well."""
        self.length = Length.SHORT
        self._strikes.clear()

    def take_off(self, path: str) -> None:
        """An operator does not want it to be in the list."""
        self.ends = [one for one in self.ends if one != path]
        self._strikes.pop(path, None)

    def ending(self, url: str) -> list[str]:
        """The paths of a URL that end sessions; none for most."""
        return [path for path in paths_of(url) if path in self.ends] if self.ends else []


class Watch(msgspec.Struct, kw_only=True):
    """What is known of a session's answers. `open`: requests that are under way; `paths`: of its site."""

    epoch: int
    paths: Paths
    open: int = 0
    is_alone: bool = False  # the one that is under way is suspect
    careful: int = 0  # answers until several are requested at a time again
    is_fresh: bool = True  # nothing was answered since it was sure to hold
    check: Check | None = None
    control: str = ""  # a page that only the session gets
    landing: str = ""  # where the login led to
    good: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=GOOD_MAX))
    earlier: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=EARLIER_MAX))
    good_count: int = 0
    public: OrderedDict[str, None] = msgspec.field(default_factory=OrderedDict)
    window: list[str] = []  # URLs of what was answered since the last good page, and of it


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
        paths = watch.paths.ending(claim.url)
        return Fate(FailureKind.ENDS_SESSION, f"not requested: {paths[0]} ends sessions") if paths else None

    # --- answers ---

    def must_check(self, claim: Claim, watch: Watch) -> bool:
        """Is a check under way, or needed before this claim is requested?"""
        if watch.check is None and watch.paths.length is Length.DOUBTFUL and not watch.open:
            watch.paths.length = Length.UNKNOWN
            self._begin(watch, Purpose.LENGTH, claim)
        if watch.check is None and not watch.is_fresh and watch.paths.is_suspect(claim.url):
            self._begin(watch, Purpose.BEFORE, claim)
        return watch.check is not None

    def _begin(self, watch: Watch, purpose: Purpose, claim: Claim) -> bool:
        """Begin a check, if a page may tell."""
        pages = _pages_for_check(watch, claim.url)
        if purpose is Purpose.LENGTH:
            pages = [page for page in pages if not watch.paths.has_strikes(page, with_folder=False)]
        if pages:
            watch.check = Check(purpose=purpose, url=claim.url, fingerprint=claim.fingerprint, pages=pages)
        return bool(pages)

    def came(self, claim: Claim, watch: Watch, seen: Seen) -> None:
        """A page was answered, and does not lead to the login."""
        was_fresh, watch.is_fresh = watch.is_fresh, False
        watch.careful = max(0, watch.careful - 1)
        for known in (self._lost_with, self._wants_more):
            known.pop(claim.fingerprint, None)
        is_only = watch.open <= 1  # nothing else could end it meanwhile
        if seen.sight is Sight.NOTHING or not is_only:
            watch.window = [*watch.window[-WINDOW_MAX:], claim.url]
        elif seen.sight is Sight.PROOF:
            self._sure(watch, claim.url)
        else:
            watch.window = [claim.url]  # it may be the one that says good-bye
        if seen.sight is not Sight.NOTHING and claim.request is None and claim.url not in watch.public:
            watch.good.append(claim.url)
            watch.good_count += 1
            if watch.good_count.bit_count() == 1:
                watch.earlier.append(claim.url)
            if seen.sight is Sight.PROOF:
                watch.control = claim.url
        is_checked = was_fresh and is_only and watch.check is None
        if is_checked and seen.sight is not Sight.PROOF and watch.paths.is_suspect(claim.url):
            self._begin(watch, Purpose.AFTER, claim)

    def _sure(self, watch: Watch, url: str = "") -> None:
        """The session surely holds, after what was answered."""
        for one in (*watch.window, url) if url else watch.window:
            watch.paths.survived(one)
        watch.window, watch.is_fresh = [], True

    def lost(self, claim: Claim, watch: Watch, seen: Seen, *, login: int, answers: int) -> Fate | bool:
        """A page of the session leads to the login: how its URL ends; or True: the session counts as ended; False: that
        is checked first. Then the page is requested again.
        """
        fingerprint, before = claim.fingerprint, self._lost_with.get(claim.fingerprint)
        was_fresh, watch.is_fresh = watch.is_fresh, False
        if self._wants_more.pop(fingerprint, None) == login:
            self._lost_with.pop(fingerprint, None)
            return Fate(FailureKind.LOGIN_REQUIRED, f"{seen.why}, though the session holds")
        self.suspect(claim, login)
        is_second = before is not None and before < login and answers <= FRESH_ANSWERS
        if self._begin(watch, Purpose.LOST, claim):
            assert watch.check is not None
            watch.check.why, watch.check.is_second = seen.why, is_second
            watch.check.is_alone = was_fresh and watch.open <= 1
            return False
        if is_second:
            self._lost_with.pop(fingerprint, None)
            return Fate(FailureKind.LOGIN_REQUIRED, f"{seen.why} again, right after a login")
        self._ended(watch)
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
            return check.tries >= TRIES_MAX and self._unknown(watch, check)
        if check.is_anonymous:
            if seen.sight is Sight.LOST:
                watch.control, check.is_anonymous = page, False
                return check.purpose is not Purpose.LENGTH and self._holds(watch, check, login)
            _put(watch.public, page, None, PUBLIC_MAX)
            return self._next(watch, check)
        if seen.sight is Sight.LOST:
            watch.control = page
            return self._has_ended(watch, check)
        if seen.sight is Sight.PROOF or (seen.sight is Sight.GOOD and page == watch.control):
            check.good += 1
            if check.purpose is Purpose.LENGTH and check.good < LONG_ANSWERS:
                return False
            return self._holds(watch, check, login)
        if seen.sight is Sight.GOOD:
            check.is_anonymous = True
            return False
        return self._next(watch, check)

    def can_not_tell(self, watch: Watch) -> bool:
        """The page of a check can't be requested. Has the session ended?"""
        return watch.check is not None and self._next(watch, watch.check)

    def _next(self, watch: Watch, check: Check) -> bool:
        """Has the session ended, after a page that can't tell?"""
        if watch.control == check.pages[0]:
            watch.control = ""
        check.pages, check.is_anonymous = check.pages[1:], False
        return not check.pages and self._unknown(watch, check)

    def _unknown(self, watch: Watch, check: Check) -> bool:
        """No page can tell. Has the session ended?"""
        watch.check = None
        if check.purpose is not Purpose.LOST:
            watch.is_fresh = True  # as far as it can be known
            return False
        if check.is_second:
            self._decide(check, FailureKind.LOGIN_REQUIRED, f"{check.why} again, right after a login")
            return False
        self._ended(watch)
        return True

    def _holds(self, watch: Watch, check: Check, login: int) -> bool:
        if check.purpose is Purpose.LENGTH:
            watch.paths.survived(check.pages[0])
            watch.paths.are_long()
        self._sure(watch, check.url if check.purpose in (Purpose.LOST, Purpose.AFTER) else "")
        watch.check = None
        if check.is_second:
            self._decide(check, FailureKind.LOGIN_REQUIRED, f"{check.why}, though the session holds")
        elif check.purpose is Purpose.LOST:
            _put(self._wants_more, check.fingerprint, login)
        return False

    def _has_ended(self, watch: Watch, check: Check) -> bool:
        if check.purpose is Purpose.LENGTH:
            watch.paths.are_short()
        elif check.purpose is Purpose.AFTER or check.is_alone:
            watch.paths.strike(check.url, check.fingerprint, is_second=check.is_second)
            if check.is_second:
                self._decide(check, FailureKind.ENDS_SESSION, f"the session ended with it twice ({check.why})")
        else:
            for url in (*watch.window, check.url) if check.purpose is Purpose.LOST else watch.window:
                watch.paths.suspect(url)
        self._ended(watch)
        return True

    def _decide(self, check: Check, kind: FailureKind, detail: str) -> None:
        self._lost_with.pop(check.fingerprint, None)
        _put(self._fates, check.fingerprint, Fate(kind, detail))

    def _ended(self, watch: Watch) -> None:
        """There is a login next."""
        watch.window, watch.careful, watch.check, watch.is_fresh = [], FRESH_ANSWERS, None, True


def _pages_for_check(watch: Watch, url: str) -> list[str]:
    """That came well, and that may tell whether the session holds; not the one that led to the login. Those that may
    end sessions themselves come last.
    """
    pages = dict.fromkeys((watch.control, *reversed(watch.good), *reversed(watch.earlier), watch.landing))
    fitting = [page for page in pages if page not in ("", url) and page not in watch.public]
    return sorted(fitting, key=watch.paths.has_strikes)[:PAGES_MAX]


def _put(known: OrderedDict[str, Value], key: str, value: Value, most: int = FATES_MAX) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
