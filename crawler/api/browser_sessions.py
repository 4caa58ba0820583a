"""Sessions of browsers: begun with a link that works once, held by a cookie that scripts and other sites can't use."""

import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

SESSIONS_MAX = 100


SECRET_BYTES = 32


class BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """`csrf_token`: what a page of ours sends in a header with each write; other sites can't read it."""

    id: str
    csrf_token: str


class BrowserSessions:
    """The sessions of this process; they end with it."""

    def __init__(self, place: str, announce: Callable[[str], None]) -> None:
        """`place`: which server of a host it is. `announce` gets the code of the next link, whenever one was used."""
        self.cookie = f"crawler_session_{place}"  # cookies of all ports of a host are one jar
        self._announce = announce
        self.code = secrets.token_urlsafe(SECRET_BYTES)  # of the link that works now
        self._by_digest: dict[str, BrowserSession] = {}

    def begin(self, code: str) -> str:
        """The cookie's value for whoever has the code; "" when it is not valid (any more)."""
        if not hmac.compare_digest(code.encode(errors="surrogateescape"), self.code.encode()):
            return ""
        value = secrets.token_urlsafe(SECRET_BYTES)
        session = BrowserSession(id=secrets.token_hex(4), csrf_token=secrets.token_urlsafe(SECRET_BYTES))
        while len(self._by_digest) >= SESSIONS_MAX:
            del self._by_digest[next(iter(self._by_digest))]  # the oldest
        self._by_digest[_digest(value)] = session
        self.code = secrets.token_urlsafe(SECRET_BYTES)
        self._announce(self.code)
        return value

    def find(self, value: str) -> BrowserSession | None:
        """The session of a cookie."""
        return self._by_digest.get(_digest(value)) if value else None

    def has(self, session: BrowserSession) -> bool:
        """Does it go on?"""
        return session in self._by_digest.values()


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
