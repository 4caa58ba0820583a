"""The file of the keys that requests are signed with: a private JWK set (RFC 7517, RFC 8037), for its owner only.

It lies outside of crawl folders, since those are copied and shown to others. What is kept with a crawl is the id of a
key, never the key. Of two keys the newer one signs as soon as it is valid (`nbf`); the older one stays in the published
directory until it is retired (`exp`).
"""

import binascii
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from crawler.errors import UsageError
from crawler.rules.signatures import thumbprint
from crawler.version import how_to_install

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE_BYTES_MAX = 64 * 1024
MAKE_ONE = "'crawler identity new FILE' makes one"


class SigningKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key, as a JWK. `kid`: its thumbprint; `nbf` and `exp`: s since 1970, 0: always."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    kid: str
    x: str
    d: str
    use: str = "sig"
    nbf: int = 0
    exp: int = 0

    def __repr__(self) -> str:
        """Without the key, because this may be logged."""
        return f"SigningKey(kid={self.kid})"

    @property
    def public(self) -> dict[str, str | int]:
        """As the directory has it."""
        found: dict[str, str | int] = {"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": self.x, "use": "sig"}
        return found | ({"nbf": self.nbf} if self.nbf else {}) | ({"exp": self.exp} if self.exp else {})


class _KeySet(msgspec.Struct, frozen=True):
    keys: tuple[SigningKey, ...]


class SigningKeys(msgspec.Struct, frozen=True):
    """The keys of a file, oldest first, and its state (of `os.stat`) as they were read."""

    keys: tuple[SigningKey, ...]
    state: tuple[int, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(key.kid for key in self.keys)

    def current(self, now_s: float) -> SigningKey:
        """The one that signs now."""
        valid = [key for key in self.keys if key.nbf <= now_s]
        return valid[-1] if valid else self.keys[0]

    def next_at(self, now_s: float) -> float:
        """When another one begins to sign, s since 1970; infinite if none waits."""
        return min((float(key.nbf) for key in self.keys if key.nbf > now_s), default=float("inf"))

    def published(self, now_s: float) -> tuple[SigningKey, ...]:
        """Those that belong into the directory."""
        return tuple(key for key in self.keys if not 0 < key.exp <= now_s)


def place_of(path: str) -> Path:
    """Where a key file is. Raises UsageError."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: there is no such user") from None


def check_libraries() -> None:
    """Raises UsageError where signing is not installed."""
    if any(find_spec(name) is None for name in ("cryptography", "http_sf")):
        how = how_to_install("identity", "shardcrawl[identity]")
        raise UsageError(f"signatures need two more libraries: {how}")


def new_key(*, nbf: int) -> SigningKey:
    """A key made of random bytes."""
    seed = os.urandom(32)
    public = _public_of(seed)
    return SigningKey(kty="OKP", crv="Ed25519", kid=thumbprint(public), x=public, d=_encoded(seed), nbf=nbf)


def encoded_keys(keys: Sequence[SigningKey]) -> bytes:
    """The content of a file of them."""
    return msgspec.json.format(msgspec.json.encode(_KeySet(tuple(keys))), indent=1) + b"\n"


def private_key(key: SigningKey) -> "Ed25519PrivateKey":
    """The key as the library has it."""
    return _private(_decoded(key.d))


def read_keys(path: str) -> SigningKeys:
    """The keys of a file. Raises UsageError, with one line that has nothing of what is in it."""
    check_libraries()
    if not path:
        raise UsageError(f"identity.key_file is not set: name the file with the key of this machine ({MAKE_ONE})")
    try:
        with place_of(path).open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no key file {path}: copy it from a machine that has it; {MAKE_ONE}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"can't read the key file {path}: {why}") from None
    if status.st_mode & 0o077:
        raise UsageError(f"other users can read the key file {path}: chmod 600 {path}")
    try:
        keys = msgspec.json.decode(content, type=_KeySet).keys
        usable = len(keys) > 0 and all(_is_right(key) for key in keys)
    except (msgspec.MsgspecError, ValueError, UnicodeError):
        usable = False
    if not usable:
        raise UsageError(f"{path} is not a file of Ed25519 keys as 'crawler identity new' makes it")
    return SigningKeys(tuple(sorted(keys, key=lambda key: key.nbf)), state_of(status))


def usable_keys(path: str, now_s: float) -> SigningKeys:
    """The same, for requests: raises UsageError, too, when the last key of a file is retired."""
    keys = read_keys(path)
    if 0 < (until := keys.current(now_s).exp) <= now_s:
        since = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d")
        raise UsageError(f"the key in {path} is retired since {since}: copy the renewed file from where it was renewed")
    return keys


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """What changes with a file's content."""
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def _is_right(key: SigningKey) -> bool:
    """Do its parts belong together?"""
    return _public_of(_decoded(key.d)) == key.x and thumbprint(key.x) == key.kid


def _private(seed: bytes) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


def _public_of(seed: bytes) -> str:
    return _encoded(_private(seed).public_key().public_bytes_raw())


def _encoded(octets: bytes) -> str:
    return urlsafe_b64encode(octets).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("not base64") from None
