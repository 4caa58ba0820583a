"""Signs requests when they are sent: one signature for each authority, for half of its life, or one for each request.

Which authorities have asked for signatures, and how, is in memory, like all that an owner learns of hosts: whoever
takes over is asked again.
"""

import logging
import os
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from crawler.errors import UsageError
from crawler.rules.signatures import (
    ALGORITHM,
    TAG,
    Declined,
    Wish,
    base_of,
    components_of,
    parameters_of,
    text_item,
    wish_in,
)
from crawler.settings import IdentitySettings, Settings
from crawler.settings.relations import SIGNATURE_HEADERS
from crawler.web.signing_keys import SigningKeys, place_of, private_key, read_keys, state_of, usable_keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

log = logging.getLogger(__name__)

SIGNED_MAX = 16_384  # authorities whose signatures are kept
ASKED_MAX = 50_000  # authorities of which is known that they ask; with their names some 15 MB
EXPIRES_S = 3600  # a signature's life; the drafts recommend at most a day
LOOK_S = 5.0  # between looks at the key file
EARLY_S = 30  # signatures say that they are this much older, for servers whose clocks are late
NONCE_BYTES = 24
REFUSED = frozenset({401, 403})  # answers after which a request is sent once more, with a signature
KEPT_OUT = "(not archived)"
_NO_WISH = Wish()


class Signed(NamedTuple):
    """Header lines and the end of the head, as they are sent and as they are archived; the times between which they may
    be sent, s since 1970.
    """

    sent: bytes
    kept: bytes
    from_s: float
    until_s: float


class _Shape(NamedTuple):
    """What signatures of a key have in common: the lines of their base behind the authority, the parameters before and
    behind those that differ, and the header line that names the directory.
    """

    covered: str
    before: str
    after: str
    agent: str


class Signer:
    """The signatures of one process. Build with `of`."""

    def __init__(
        self, identity: IdentitySettings, keys: SigningKeys, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._identity = identity
        self._path = place_of(identity.key_file)
        self._clock = clock
        self._keys = keys
        self._looked_at = clock()
        self._trouble = ""
        self._always = identity.sign == "always"
        self._private: tuple[str, Ed25519PrivateKey] | None = None
        self._signed: OrderedDict[str, Signed] = OrderedDict()
        self._wishes: OrderedDict[str, Wish] = OrderedDict()
        self._unmet: OrderedDict[str, None] = OrderedDict()
        self._shape = lru_cache(maxsize=64)(self._new_shape)

    @classmethod
    def of(cls, settings: Settings) -> "Signer | None":
        """None when nothing is signed: not the requests to the gateway of a replay, either. Raises UsageError."""
        if settings.identity.sign == "off" or settings.fetch.gateway:
            return None
        return cls(settings.identity, usable_keys(settings.identity.key_file, time.time()))

    @property
    def keyid(self) -> str:
        """Of the key that signs now."""
        return self._keys.current(self._clock()).kid

    @property
    def published_ids(self) -> tuple[str, ...]:
        """Of the keys that have to be in the directory now."""
        now_s = self._clock()
        return tuple(key.kid for key in self._keys.published(now_s) if key.exp == 0)

    def lines(self, authority: str, headers: Iterable[str] = ()) -> Signed | None:
        """The header lines for a request that is about to be sent to this authority, with these headers of its own.

        None for one that is sent without: also where a program has put a signature of its own into it.
        """
        now_s = self._clock()
        if not 0 <= now_s - self._looked_at < LOOK_S:
            self._look(now_s)
        known = self._signed.get(authority)
        # A clock that was set back makes it one of the future.
        if known is not None and not headers and known.from_s <= now_s < known.until_s:
            return known
        wish = self._wishes.get(authority, _NO_WISH)
        if wish is _NO_WISH and not self._always:
            return None
        if headers and not SIGNATURE_HEADERS.isdisjoint(name.lower() for name in headers):
            return None
        if wish.nonce:  # it is good for one request
            self._wishes[authority] = wish._replace(nonce="")
            return self._sign(authority, wish, now_s, text_item(wish.nonce))
        if self._identity.nonce:
            return self._sign(authority, wish, now_s, f'"{b64encode(os.urandom(NONCE_BYTES)).decode()}"')
        signed = self._signed[authority] = self._sign(authority, wish, now_s, "")
        if len(self._signed) > SIGNED_MAX:
            self._signed.popitem(last=False)
        return signed

    def example(self, authority: str) -> bytes:
        """The header lines of such a request, without the signature itself."""
        return self._sign(authority, _NO_WISH, self._clock(), "").kept

    def answered(self, authority: str, status: int, field: bytes, *, was_signed: bool) -> bool:
        """Note that an answer had an Accept-Signature. Is the request to be sent once more, with a signature?"""
        found = wish_in(field, covers_agent=bool(self._identity.agent), keyids=self._keys.ids)
        if found is None:
            return False
        if isinstance(found, Declined):
            self._is_unmet(authority, found.why)
            return False
        if was_signed and status in REFUSED:
            self._is_unmet(authority, "")
            if not found.nonce:
                return False
        known = self._wishes.get(authority)
        if known is None:
            log.info("identity.asked", extra={"authority": authority})
        if known != found:
            self._signed.pop(authority, None)
            self._wishes[authority] = found
            if len(self._wishes) > ASKED_MAX:
                self._wishes.popitem(last=False)
        return status in REFUSED and not was_signed

    def _is_unmet(self, authority: str, declined: str) -> None:
        """Log, once, that an authority does not take what we sign. What it refuses is counted as a loss."""
        if authority in self._unmet:
            return
        self._unmet[authority] = None
        if len(self._unmet) > ASKED_MAX:
            self._unmet.popitem(last=False)
        if declined:
            log.info("identity.declined", extra={"authority": authority, "why": declined})
        else:
            log.info("identity.refused", extra={"authority": authority})

    def _look(self, now_s: float) -> None:
        """Read the key file again if it has changed. What can't be read does not stop a crawl: the keys are here."""
        self._looked_at = now_s
        try:
            if state_of(self._path.stat()) == self._keys.state:
                return
            keys = read_keys(str(self._path))
        except (OSError, UsageError) as error:
            if self._trouble != (trouble := type(error).__name__):
                self._trouble = trouble
                log.warning("identity.key_file", extra={"error": str(error)})
            return
        self._trouble = ""
        if keys.keys != self._keys.keys:
            log.warning("identity.renewed", extra={"keyids": ", ".join(keys.ids)})
            self._signed.clear()
            self._shape.cache_clear()
        self._keys = keys

    def _sign(self, authority: str, wish: Wish, now_s: float, nonce: str) -> Signed:
        """A signature. `nonce` is as a field has it, with its quotes."""
        created, key = int(now_s) - EARLY_S, self._keys.current(now_s)
        if self._private is None or self._private[0] != key.kid:
            self._private = key.kid, private_key(key)
        shape = self._shape(key.kid, wish.label)
        own = f";created={created};expires={created + EXPIRES_S}" + (f";nonce={nonce}" if nonce else "")
        parameters = f"{shape.before}{own}{shape.after}"
        base = f'"@authority": {authority}\n{shape.covered}"@signature-params": {parameters}'
        signature = b64encode(self._private[1].sign(base.encode("ascii"))).decode()
        head = f"{shape.agent}Signature-Input: {wish.label}={parameters}\r\nSignature: "
        sent, kept = f"{head}{wish.label}=:{signature}:\r\n\r\n", f"{head}{KEPT_OUT}\r\n\r\n"
        until_s = min(now_s + EXPIRES_S / 2, self._keys.next_at(now_s))
        return Signed(sent.encode("ascii"), kept.encode("ascii"), now_s, until_s)

    def _new_shape(self, keyid: str, label: str) -> _Shape:
        components = components_of("", self._identity.agent, label)
        whole = parameters_of(components, {"created": 0, "keyid": keyid, "alg": ALGORITHM, "tag": TAG})
        before, _, after = whole.partition(";created=0")
        lines = base_of(components, "").decode().split("\n")[1:-1]
        agent = f"Signature-Agent: {label}={text_item(self._identity.agent)}\r\n" if self._identity.agent else ""
        return _Shape("".join(f"{line}\n" for line in lines), before, after, agent)
