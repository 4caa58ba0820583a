"""HTTP Message Signatures: what is signed of a request, and what a site asks for. Pure.

RFC 9421, with structured fields (RFC 9651), and Web Bot Auth: draft-ietf-webbotauth-httpsig-protocol-00 of 1 September
2026 (read in its source of 20 August), before draft-meunier-web-bot-auth-architecture-05.

A request's signature covers its authority, and the member of Signature-Agent that names our directory of keys. It says
who asks, and holds for all requests to that authority until it expires. So it is made for one authority and sent to no
other, and is as good as a password for that time: logs and archives don't have it.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from crawler.lazy_module import LazyModule

if TYPE_CHECKING:
    import http_sf
else:
    http_sf = LazyModule("http_sf")

TAG, DIRECTORY_TAG = "web-bot-auth", "http-message-signatures-directory"
ALGORITHM = "ed25519"
LABEL = "sig1"
AUTHORITY, AGENT = "@authority", "signature-agent"
DIRECTORY_PATH = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE = "application/http-message-signatures-directory+json"
ASKED_BYTES_MAX = 4096  # of Accept-Signature: longer ones are declined
LABEL_MAX, NONCE_MAX = 64, 256  # characters of what a site wants to have back

Component = tuple[str, Mapping[str, str | bool], str]  # its name, its parameters, and its value in the message


class Wish(NamedTuple):
    """How a site wants a signature: under which label, and with which nonce ("": any)."""

    label: str = LABEL
    nonce: str = ""


class Declined(NamedTuple):
    """Why a site does not get the signature that it asks for."""

    why: str


def thumbprint(public: str) -> str:
    """The id of an Ed25519 key by its `x` (RFC 7638 section 3, RFC 8037 appendix A.3)."""
    members = f'{{"crv":"Ed25519","kty":"OKP","x":"{public}"}}'
    return urlsafe_b64encode(hashlib.sha256(members.encode()).digest()).decode().rstrip("=")


def components_of(authority: str, agent: str, label: str) -> tuple[Component, ...]:
    """What is covered of a request."""
    if not agent:
        return ((AUTHORITY, {}, authority),)
    return ((AUTHORITY, {}, authority), (AGENT, {"key": label}, text_item(agent)))


def text_item(text: str) -> str:
    """A string as an item of a structured field."""
    return str(http_sf.ser((text, {})))


def parameters_of(components: Sequence[Component], parameters: Mapping[str, str | int]) -> str:
    """The value of @signature-params, and of a member of Signature-Input."""
    whole: Any = {LABEL: ([(name, dict(own)) for name, own, _ in components], dict(parameters))}
    return str(http_sf.ser(whole))[len(LABEL) + 1 :]


def base_of(components: Sequence[Component], parameters: str) -> bytes:
    """The bytes that are signed (RFC 9421 section 2.5)."""
    named: list[tuple[Any, str]] = [((name, dict(own)), value) for name, own, value in components]
    lines = [f"{http_sf.ser(item)}: {value}" for item, value in named]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode("ascii")


def member(label: str, value: bytes) -> str:
    """A member of the field Signature."""
    return str(http_sf.ser({label: (value, {})}))


def dictionary_of(field: bytes) -> dict[str, tuple[object, Mapping[str, object]]] | None:
    """The members of a field, with their parameters; None if it is not a dictionary. Takes linear time."""
    try:
        return cast("dict[str, tuple[object, Mapping[str, object]]]", http_sf.parse(field, tltype="dictionary"))
    except (http_sf.StructuredFieldError, ValueError):
        return None


def wish_in(field: bytes, *, covers_agent: bool, keyids: Sequence[str]) -> Wish | Declined | None:
    """What an Accept-Signature wants of us (RFC 9421 section 5.1); None if it is about nothing of ours.

    `keyids`: of the keys that we may sign with. The first member that can be satisfied counts.
    """
    if len(field) > ASKED_BYTES_MAX:
        return Declined("too long")
    members = dictionary_of(field)
    if members is None:
        return Declined("malformed")
    declined: Declined | None = None
    for label, (covered, parameters) in members.items():
        found = _wish(label, covered, parameters, covers_agent=covers_agent, keyids=keyids)
        if isinstance(found, Wish):
            return found
        declined = declined or found
    return declined


def _wish(
    label: str, covered: object, parameters: Mapping[str, object], *, covers_agent: bool, keyids: Sequence[str]
) -> Wish | Declined | None:
    if parameters.get("tag", TAG) != TAG:
        return None
    if not isinstance(covered, list):
        return Declined("malformed")
    for name, own in covered:
        is_agent = covers_agent and name == AGENT and own in ({}, {"key": label})
        if not is_agent and (name != AUTHORITY or own):
            return Declined("components")
    nonce = parameters.get("nonce", "")
    if parameters.get("alg", ALGORITHM) != ALGORITHM or parameters.get("keyid", keyids[0]) not in keyids:
        return Declined("key")
    if not isinstance(nonce, str) or len(nonce) > NONCE_MAX or len(label) > LABEL_MAX:
        return Declined("too long")
    return Wish(label, nonce)
