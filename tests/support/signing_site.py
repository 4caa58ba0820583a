"""Sites that refuse unsigned requests, and two verifiers of signatures: one of our own, and a library's.

Neither uses the code that signs.
"""

import asyncio
import contextlib
import ssl
import time
from base64 import b64decode, urlsafe_b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, MappingKeyResolver
from http_message_signatures.algorithms import ED25519

ASKED = '("@authority" "signature-agent";key="sig1");created;expires;tag="web-bot-auth"'


def key_of(x: str) -> Ed25519PublicKey:
    """A public key by its `x`."""
    return Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(x + "=" * (-len(x) % 4)))


def headers_of(head: bytes) -> dict[str, str]:
    lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line]
    return {name.lower(): value.strip() for name, _, value in lines}


def verified(head: bytes, keys: dict[str, str], now_s: float) -> str:
    """The id of the key that signed a request, by hand; "" for a request that nobody signed. Raises ValueError.

    `keys`: `x` by id. The authority is that of the Host header.
    """
    headers = headers_of(head)
    if "signature" not in headers and "signature-input" not in headers:
        return ""
    label, _, parameters = headers["signature-input"].partition("=")
    covered, _, rest = parameters.partition(")")
    values = dict(one.partition("=")[::2] for one in rest.split(";") if one)
    lines = []
    for component in covered.removeprefix("(").split(" "):
        if component == '"@authority"':
            lines.append(f"{component}: {headers['host']}")
        elif component == f'"signature-agent";key="{label}"':
            name, _, value = headers["signature-agent"].partition("=")
            if name != label:
                raise ValueError("another agent")
            lines.append(f"{component}: {value}")
        else:
            raise ValueError(component)
    if "signature-agent" in headers and len(lines) < 2:
        raise ValueError("the agent is not covered")
    base = "\n".join([*lines, f'"@signature-params": {parameters}'])
    created, expires = int(values["created"]), int(values["expires"])
    if not created <= now_s < expires or expires - created > 86_400 or values["tag"] != '"web-bot-auth"':
        raise ValueError(f"created {created}, expires {expires}, tag {values['tag']} at {now_s}")
    keyid, signature = values["keyid"].strip('"'), headers["signature"].removeprefix(f"{label}=:").removesuffix(":")
    try:
        key_of(keys[keyid]).verify(b64decode(signature), base.encode())
    except InvalidSignature:
        raise ValueError("the signature does not fit") from None
    return keyid


def verified_by_library(head: bytes, keys: dict[str, str], scheme: str = "http") -> list[str]:
    """The ids of the keys that signed a request, by a library. Raises its InvalidSignature."""
    line, headers = head.split(b"\r\n")[0].decode(), headers_of(head)
    method, target, _ = line.split(" ")
    url = target if "://" in target else f"{scheme}://{headers['host']}{target}"
    resolver = MappingKeyResolver(public_keys={keyid: key_of(x) for keyid, x in keys.items()}, private_keys={})
    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=resolver)
    message = SimpleNamespace(method=method, url=url, headers=headers)
    return [str(one.parameters["keyid"]) for one in verifier.verify(message, expect_tag="web-bot-auth")]


Page = Callable[[str, str], tuple[str, str]]  # (host, path) -> (a Location, or "", and a body)


@dataclass
class SigningSite:
    """An async context manager: every host answers 401 with Accept-Signature to what has no valid signature."""

    page: Page
    keys: dict[str, str]
    asked: str = f"sig1={ASKED}"
    open_paths: frozenset[str] = frozenset()  # that need no signature
    accepts: Callable[[dict[str, str]], bool] = lambda headers: True
    port: int = 0
    tls: ssl.SSLContext | None = None
    refused: Counter[str] = field(default_factory=Counter)  # by host
    served: list[tuple[str, str, str]] = field(default_factory=list)  # host, path, id of the key
    faults: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def url(self, host: str, path: str = "/") -> str:
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(headers_of(head).get("content-length", "0")))
                writer.write(self._answer(head))
                await writer.drain()
        writer.close()

    def _answer(self, head: bytes) -> bytes:
        self.heads.append(head)
        headers, path = headers_of(head), head.split(b" ")[1].decode()
        host = headers["host"].partition(":")[0]
        try:
            keyid = verified(head, self.keys, time.time())
        except (ValueError, KeyError) as error:
            self.faults.append(f"{host}{path}: {error!r}")
            keyid = ""
        if path not in self.open_paths and (not keyid or not self.accepts(headers)):
            self.refused[host] += 1
            return _answer("401 Unauthorized", f"Accept-Signature: {self.asked}\r\n", "sign it")
        self.served.append((host, path, keyid))
        target, body = self.page(host, path)
        status = "302 Found" if target else "200 OK" if body else "404 Not Found"
        return _answer(status, f"Location: {target}\r\n" if target else "", body)


def _answer(status: str, more: str, body: str) -> bytes:
    kind = "text/plain" if body.startswith("User-agent") else "text/html"
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode()
