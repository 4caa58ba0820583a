"""The keys that requests are signed with: made, renewed, and put into what the owner of a crawler publishes.

A directory is a JWK set, served with a signature by each of its keys, so that nobody else can serve it as theirs
(draft-ietf-webbotauth-httpsig-protocol-00: "Key Distribution and Discovery", and its appendix on domain binding).
"""

import hashlib
import os
import secrets
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec
from msgspec.structs import replace

from crawler.archive.folder import archive_error, open_private, replace_durably, sync_directory, write_durably
from crawler.crawl.terms import check_key_place
from crawler.errors import UsageError
from crawler.rules.signatures import (
    ALGORITHM,
    DIRECTORY_PATH,
    DIRECTORY_TAG,
    DIRECTORY_TYPE,
    Component,
    base_of,
    member,
    parameters_of,
)
from crawler.settings import Settings
from crawler.terminal.words import moment
from crawler.version import program_version
from crawler.web.fetcher import sender_of, user_agent
from crawler.web.signing import EARLY_S
from crawler.web.signing_keys import (
    SigningKey,
    check_libraries,
    encoded_keys,
    new_key,
    place_of,
    private_key,
    read_keys,
)

CACHED_S = 86_400  # how long others may keep the directory
AFTER_S = 2 * CACHED_S  # from the renewal until the new key signs: by then all have seen it in the directory
OVERLAP_S = 7 * 86_400  # how long the old key stays in the directory from then on
SIGNED_S = 30 * 86_400  # how long the directory's own signatures are valid
KEYS_MAX = 8


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """One key, for people. Times are s since 1970, 0: none."""

    keyid: str
    signs_from: int
    retired_at: int
    is_current: bool


class DirectoryView(msgspec.Struct, frozen=True, kw_only=True):
    """What is published at `url` ("": identity.agent is not set): the body, and the header lines that go with it, of
    which the signatures are valid until `expires_at`.
    """

    url: str
    body: str
    headers: tuple[tuple[str, str], ...]
    expires_at: int


class IdentityView(msgspec.Struct, frozen=True, kw_only=True):
    """All of `crawler identity show`."""

    key_file: str
    keys: tuple[KeyView, ...]
    user_agent: str
    contact: str
    robots_agent: str
    sign: str
    agent: str
    directory: DirectoryView


def make_key_file(path: str, now_s: float) -> SigningKey:
    """Make a file with a new key, which nobody else can read. Raises UsageError, also where there is one."""
    check_libraries()
    check_key_place(path)
    place, key = place_of(path), new_key(nbf=int(now_s))
    try:
        draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        try:
            with open(draft, "xb", opener=open_private) as file:
                write_durably(file, [encoded_keys([key])])
            os.link(draft, place)  # fails where there is one
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(place.parent)
    except FileExistsError:
        raise UsageError(f"{path} exists: 'crawler identity renew {path}' adds the next key to it") from None
    except FileNotFoundError:
        raise UsageError(f"there is no folder {place.parent}") from None
    except OSError as error:
        raise archive_error("write", place, error) from None
    return key


def renew_key_file(path: str, now_s: float, *, after_s: float) -> tuple[SigningKey, SigningKey]:
    """Add the next key to a file: the one that signs until then, and the new one. Raises UsageError."""
    keys = read_keys(path)
    check_key_place(path)
    if keys.next_at(now_s) != float("inf"):
        waiting = keys.keys[-1]
        raise UsageError(f"the key {waiting.kid} already waits: it signs from {moment(waiting.nbf)}")
    begins = int(now_s + after_s)
    old, new = keys.current(now_s), new_key(nbf=begins)
    retired = replace(old, exp=begins + OVERLAP_S)
    others = [key for key in keys.published(now_s) if key.kid != old.kid]
    place = place_of(path).resolve()
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        replace_durably(place, draft, [encoded_keys([*others[-KEYS_MAX:], retired, new])])
    except OSError as error:
        raise archive_error("write", place, error) from None
    return retired, new


def identity_view(settings: Settings, path: str, now_s: float) -> IdentityView:
    """What the owner publishes, and the state of the keys. Raises UsageError."""
    keys = read_keys(path)
    current = keys.current(now_s)
    return IdentityView(
        key_file=path,
        keys=tuple(
            KeyView(keyid=key.kid, signs_from=key.nbf, retired_at=key.exp, is_current=key.kid == current.kid)
            for key in keys.published(now_s)
        ),
        user_agent=user_agent(settings, program_version()),
        contact=settings.fetch.contact,
        robots_agent=settings.robots.agent,
        sign=settings.identity.sign,
        agent=settings.identity.agent,
        directory=_directory(settings.identity.agent, keys.published(now_s), int(now_s)),
    )


def _directory(agent: str, keys: Sequence[SigningKey], now_s: int) -> DirectoryView:
    body = msgspec.json.encode({"keys": [key.public for key in keys]}) + b"\n"
    digest = f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"
    headers = [("Content-Type", DIRECTORY_TYPE), ("Cache-Control", f"max-age={CACHED_S}")]
    expires = now_s + SIGNED_S
    if agent:
        authority = agent.partition("://")[2].removesuffix(":443")
        components: tuple[Component, ...] = (("@authority", {"req": True}, authority), ("content-digest", {}, digest))
        inputs, signatures = list[str](), list[str]()
        for number, key in enumerate(keys, 1):
            parameters = parameters_of(
                components,
                {
                    "created": now_s - EARLY_S, "expires": expires, "keyid": key.kid, "alg": ALGORITHM,
                    "tag": DIRECTORY_TAG,
                },
            )  # fmt: skip
            inputs.append(f"key{number}={parameters}")
            signatures.append(member(f"key{number}", private_key(key).sign(base_of(components, parameters))))
        headers += [
            ("Content-Digest", digest), ("Signature-Input", ", ".join(inputs)), ("Signature", ", ".join(signatures))
        ]  # fmt: skip
    url = f"{agent}{DIRECTORY_PATH}" if agent else ""
    return DirectoryView(url=url, body=body.decode(), headers=tuple(headers), expires_at=expires if agent else 0)


def as_text(view: IdentityView) -> str:
    """For people."""
    lines = [f"key file         {view.key_file}"]
    for key in view.keys:
        is_next = not key.is_current and not key.retired_at
        state = "signs" if key.is_current else f"signs from {moment(key.signs_from)}" if is_next else "does not sign"
        until = f", in the directory until {moment(key.retired_at)}" if key.retired_at else ""
        lines.append(f"key              {key.keyid}: {state}{until}")
    lines += [
        f"User-Agent       {view.user_agent}",
        *([f"From             {sender}"] if (sender := sender_of(view.contact)) else []),
        f"robots.txt       the rules for {view.robots_agent}",
        f"Signature-Agent  {view.agent or 'none: identity.agent is not set, so the directory below is not signed'}",
    ]
    directory = view.directory
    where = directory.url or f"https://HOST{DIRECTORY_PATH}"
    lines += ["", f"The directory, for {where}:", "", directory.body.rstrip("\n"), ""]
    until = f"; the signatures are valid until {moment(directory.expires_at)}" if directory.expires_at else ""
    lines += [f"Serve it with these header lines{until}:", ""]
    lines += [f"{name}: {value}" for name, value in directory.headers]
    return "\n".join(lines)


def files_of(view: IdentityView, *, purpose: str) -> dict[str, str]:
    """What is published, by file name: the directory, its header lines as nginx has them, and a page on the bot."""
    name = DIRECTORY_PATH.rpartition("/")[2]
    until = f"# signatures valid until {moment(view.directory.expires_at)}\n" if view.directory.expires_at else ""
    lines = ["types { }", f'default_type "{DIRECTORY_TYPE}";']
    lines += [f"add_header {key} '{value}' always;" for key, value in view.directory.headers if key != "Content-Type"]
    return {
        name: view.directory.body,
        f"{name}.conf": until + "\n".join(lines) + "\n",
        "bot.html": _page(view, purpose),
    }


def _page(view: IdentityView, purpose: str) -> str:
    """A page for the owners of sites."""
    name = view.user_agent.partition("/")[0]
    contact = view.contact
    link = contact if "://" in contact else f"mailto:{contact}"
    rows = [("What it sends as User-Agent", f"<code>{escape(view.user_agent)}</code>")]
    if purpose:
        rows.append(("What for", escape(purpose)))
    if contact:
        rows.append(("Who to ask", f'<a href="{escape(link)}">{escape(contact)}</a>'))
    rows.append(
        (
            "How to keep it out",
            f"by robots.txt: <code>User-agent: {escape(view.robots_agent)}</code>, <code>Disallow: /</code>",
        )
    )
    keys = ", ".join(f"<code>{key.keyid}</code>" for key in view.keys)
    proof = f"by HTTP Message Signatures (RFC 9421, tag web-bot-auth) with these keys: {keys}"
    if view.directory.url:
        proof += f', published at <a href="{escape(view.directory.url)}">{escape(view.directory.url)}</a>'
    rows.append(("How to know that it is not somebody else", proof))
    body = "\n".join(f"<dt>{head}</dt>\n<dd>{text}</dd>" for head, text in rows)
    title = f"About the crawler {escape(name)}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n</head>\n'
        f"<body>\n<h1>{title}</h1>\n<dl>\n{body}\n</dl>\n</body>\n</html>\n"
    )


def write_files(folder: str, files: dict[str, str]) -> list[Path]:
    """Write what is published into a folder; what others read must be readable. Raises UsageError."""
    place = Path(folder).expanduser()
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            draft = place / f".{name}.{secrets.token_hex(4)}"
            draft.write_text(text, encoding="utf-8")
            draft.replace(place / name)
    except OSError as error:
        raise archive_error("write", place, error) from None
    return [place / name for name in files]
