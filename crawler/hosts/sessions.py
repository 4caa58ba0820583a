"""Sessions: the cookies of sites, kept by the owner of their partition, and in the engine for the next one.

A session belongs to a site, which is a registrable domain, and has a name if a request gave one. What the engine has is
sealed with a key that people give to each machine, since cookies are as good as passwords. Without a key the cookies
stay in the owner's memory, and are lost with it.
"""

import asyncio
import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crawler.errors import EngineError, UsageError
from crawler.frontier.owner import Frontier
from crawler.membership.held import HeldPartitions
from crawler.model import AckOutcome, Claim
from crawler.rules.cookies import Cookie, Jar
from crawler.rules.patterns import UrlPattern
from crawler.rules.places import registrable_domain
from crawler.rules.sites import SiteRules
from crawler.runtime.clocks import wall_s
from crawler.runtime.ticks import tick
from crawler.settings import CookieSettings, SiteSettings
from crawler.terminal.words import counted

if TYPE_CHECKING:
    from crawler.rules.cookie_file import CookieFile

log = logging.getLogger(__name__)
SESSIONS_MAX = 10_000  # in memory; the one that was used longest ago is forgotten
STORE_EVERY_S = 0.5  # a killed instance loses this much, and logs in again if that ended the session
KEY_CHARS_MIN = 16
NONCE_BYTES = 12


class NotEntitledError(Exception):
    """The request may not be sent now: deadline passed, lease lost, or domain stopped by an operator."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """What is sealed: the cookies, and which login they are of (0: none)."""

    cookies: tuple[Cookie, ...]
    login: int = 0


class Session(msgspec.Struct, kw_only=True):
    """The session of a site, as its owner has it. `login`: how many logins there were; `is_in`: the last one holds."""

    site: str
    name: str
    partition: int
    epoch: int
    jar: Jar = msgspec.field(default_factory=Jar)
    login: int = 0
    is_in: bool = False
    answers: int = 0  # since that login

    @property
    def key(self) -> str:
        return f"{self.site} {self.name}"

    @property
    def is_new(self) -> bool:
        """Is its next login the first of a session that a request named? How many there are, people decide."""
        return bool(self.name) and not self.login


class Seal:
    """Encrypts and authenticates with a key that people gave, bound to what the content is of."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ImportError:
            raise UsageError(
                "cookies.key_env and cookies.key_file need a library: pip install 'shardcrawl[sessions]'"
            ) from None
        self._cipher: ChaCha20Poly1305 = ChaCha20Poly1305(hashlib.sha256(b"cookies\0" + key).digest())

    def close(self, content: bytes, about: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes | None:
        """None: it was sealed with another key, for something else, or is damaged."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            return None


def seal_of(settings: CookieSettings, environment: Mapping[str, str]) -> Seal | None:
    """By the key that the settings name; None without one. Raises UsageError for a key that is missing or too short."""
    if settings.key_env and settings.key_file:
        raise UsageError("give one of cookies.key_env and cookies.key_file")
    if settings.key_env:
        where, text = f"the variable {settings.key_env}", environment.get(settings.key_env, "")
    elif settings.key_file:
        where = settings.key_file
        try:
            text = Path(settings.key_file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"cookies.key_file: can't read {where}: {error.strerror}") from None
    else:
        return None
    if len(text.strip()) < KEY_CHARS_MIN:
        raise UsageError(
            f"cookies: {where} has no key of at least {KEY_CHARS_MIN} characters ('openssl rand -hex 32' prints one)"
        )
    return Seal(text.strip().encode())


class CookieFiles(msgspec.Struct, frozen=True):
    """The cookies with which sessions begin, by site, and what is left out of their files, in a sentence each."""

    by_site: dict[str, list[Cookie]]
    notes: list[str]


def cookies_of_files(sites: Sequence[SiteSettings], now_s: float) -> CookieFiles:
    """What the files of [[sites]] have for the sites that their tables match. `now_s`: wall clock.

    Raises UsageError.
    """
    found, notes = dict[str, list[Cookie]](), list[str]()
    for number, site in enumerate(sites):
        if not isinstance(site.cookies, str) or not site.cookies:
            continue
        try:
            from crawler.rules.cookie_file import read_netscape

            file = read_netscape(Path(site.cookies).read_bytes(), site.cookies)
        except OSError as error:
            raise UsageError(f"sites[{number}].cookies: can't read {site.cookies}: {error.strerror}") from None
        used, note = _used(file, site.match, now_s)
        if note:
            notes.append(f"sites[{number}].cookies: {site.cookies}: {note}")
        for cookie in used:
            found.setdefault(registrable_domain(cookie.host), []).append(cookie)
    return CookieFiles(found, notes)


def _used(file: "CookieFile", match: str, now_s: float) -> tuple[list[Cookie], str]:
    """The cookies of a file that its table uses, and a sentence if these are not all."""
    pattern = UrlPattern.parse(match)
    ours = [cookie for cookie in file.cookies if pattern.fits_site(cookie.host)]
    alive = [cookie for cookie in ours if not 0 < cookie.expires_at <= now_s]
    by_site = dict[str, Jar]()
    for cookie in alive:
        by_site.setdefault(registrable_domain(cookie.host), Jar()).add(cookie)
    used = [cookie for jar in by_site.values() for cookie in jar.cookies]
    counts = (
        (file.left_out, "unreadable line", f" ({file.first})"),
        (len(file.cookies) - len(ours), "cookie", f" of other sites than {match}"),
        (len(ours) - len(alive), "expired cookie", ""),
        (len({cookie.key for cookie in alive}) - len(used), "cookie", " beyond what a session keeps"),
    )
    without = [f"{counted(count, noun)}{more}" for count, noun, more in counts if count]
    return used, f"{counted(len(used), 'cookie')}, without {', '.join(without)}" if without else ""


class Sessions:
    """Those of one instance. `logins`: sites that somebody logs in to."""

    def __init__(
        self,
        frontier: Frontier,
        held: HeldPartitions,
        seal: Seal | None,
        sites: Sequence[SiteSettings],
        logins: frozenset[str],
        *,
        crawl: str,
    ) -> None:
        self._frontier = frontier
        self._held = held
        self._seal = seal
        self._crawl = crawl
        self._rules = SiteRules.of(sites, "session")
        files = cookies_of_files(sites, wall_s())
        for note in files.notes:
            log.warning("cookies.left_out", extra={"why": note})
        self._files = files.by_site
        self._sites = logins | self._files.keys()
        self._known: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._changed: dict[tuple[str, int], Session] = {}  # by key and epoch: not stored yet, but to be
        self._storing = asyncio.Lock()
        self._is_told = seal is not None

    def wants(self, claim: Claim) -> bool:
        """Has this claim's request a session?"""
        if claim.request is not None and claim.request.session:
            return True
        if claim.domain in self._sites:
            return True
        return self._rules is not None and bool(self._rules.first(claim.url, "session"))

    async def of(self, claim: Claim) -> Session:
        """The session of a claim that wants one, from the engine where this owner has none. Raises EngineError."""
        key = claim.domain, claim.request.session if claim.request is not None else ""
        known = self._known.get(key)
        if known is not None and known.epoch == claim.epoch:
            self._known.move_to_end(key)
            return known
        session = Session(site=key[0], name=key[1], partition=claim.partition, epoch=claim.epoch)
        forgotten = self._changed.get((session.key, session.epoch))  # a moment ago, and not stored yet
        if forgotten is not None:
            session = forgotten
        else:
            await self._fill(session)
            known = self._known.get(key)
            if known is not None and known.epoch == claim.epoch:
                return known  # another turn was faster
        self._known[key] = session
        if len(self._known) > SESSIONS_MAX:
            self._known.popitem(last=False)
        return session

    async def _fill(self, session: Session) -> None:
        stored = await self._stored(session)
        if stored is not None:
            session.jar, session.login, session.is_in = Jar(stored.cookies), stored.login, stored.login > 0
        else:
            session.jar = Jar(self._files.get(session.site, ()))

    async def _stored(self, session: Session) -> Stored | None:
        if self._seal is None:
            return None
        sealed = await self._frontier.jar(session.partition, session.key)
        if not sealed:
            return None
        content = self._seal.open(sealed, self._about(session))
        if content is None:
            log.warning(
                "session.unreadable", extra={"site": session.site, "why": "sealed with another key, or damaged"}
            )
            return None
        return msgspec.msgpack.decode(content, type=Stored)

    def _about(self, session: Session) -> str:
        return f"{self._crawl} {session.key}"

    def take(self, session: Session, url: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep what a response sets."""
        if session.jar.take(url, headers, wall_s()):
            self._note_changed(session)

    def _note_changed(self, session: Session) -> None:
        if self._seal is not None:
            self._changed[session.key, session.epoch] = session

    def logged_in(self, session: Session) -> None:
        """A login has succeeded."""
        session.login, session.is_in, session.answers = session.login + 1, True, 0
        self._note_changed(session)
        if not self._is_told:
            self._is_told = True
            log.warning(
                "session.in_memory", extra={"advice": "with cookies.key_env, who takes over could go on with it"}
            )

    def now_ms(self, session: Session) -> int:
        """The time of the session's partition. Raises NotEntitledError once that is another owner's."""
        if self._held.epoch_of(session.partition) != session.epoch:
            raise NotEntitledError
        return self._held.now_of(session.partition)

    def lost(self, session: Session) -> None:
        """The site does not know the session any more. Its cookies stay: some sites remember more than the login."""
        session.is_in = False

    async def run(self) -> None:
        """Store what has changed, until cancelled."""
        while True:
            await tick(STORE_EVERY_S)
            try:
                await self.store()
            except EngineError as error:
                log.warning("session.not_stored", extra={"error": str(error)})

    @property
    def has_changed(self) -> bool:
        """Is there something that the engine lacks, and is to have?"""
        return self._seal is not None and (bool(self._changed) or self._storing.locked())

    async def store(self, partition: int | None = None) -> None:
        """Store all that has changed, or what is of a partition. Raises EngineError."""
        if not self.has_changed:
            return
        async with self._storing:  # who gives a partition back waits for what is on its way
            for place, session in list(self._changed.items()):
                if self._seal is not None and partition in (None, session.partition):
                    del self._changed[place]
                    try:
                        await self._store(session, self._seal)
                    except (EngineError, asyncio.CancelledError):  # when the crawl ends: it is stored with the last
                        self._changed.setdefault(place, session)
                        raise

    async def _store(self, session: Session, seal: Seal) -> None:
        fence = self._held.fence_of(session.partition)
        if fence is None or fence.epoch != session.epoch:
            return
        stored = Stored(tuple(session.jar.cookies), session.login if session.is_in else 0)
        sealed = seal.close(msgspec.msgpack.encode(stored), self._about(session))
        outcome = await self._frontier.store_jar(fence, session.key, sealed)
        if outcome is AckOutcome.GONE:
            log.warning("session.no_room", extra={"site": session.site, "session": session.name})
