"""Takes secrets out of text that people read or keep: messages, logs, crash reports, command lines.

Two ways, for neither is enough: what looks like a password in a URL or in its query, and the secrets of the settings,
wherever they stand. Each pattern begins with literal text and has a bound, so the time is linear in the text.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"
SHORTEST = 4  # characters: to hide a shorter secret wherever it stands would tear words apart
UNMISTAKABLE = 8  # characters of a login's secret: wherever it is in a URL, it is no word of the site's
PASSWORD_MAX = 1000  # characters, in a URL

# Not what our own messages tell to write: USER:PASSWORD@HOST.
# Of engines and databases, up to the last @: people forget to encode a slash or an @ in a password.
_SERVER = re.compile(
    r"((?:redis|rediss|valkey|valkeys|postgres|postgresql)(?:\+[a-z]{1,20})?://[^\s:/?#@'\"]{0,1000}):(?!PASSWORD@HOST)"
    rf"[^\s'\"]{{0,{PASSWORD_MAX}}}@",
    re.IGNORECASE,
)
# A login without a colon may be a password alone.
_ENGINE = re.compile(r"((?:redis|rediss)(?:\+[a-z]{1,20})?://)(?!USER@HOST)[^\s:/?#@'\"]{1,1000}@", re.IGNORECASE)
_ANY = re.compile(rf"(://[^\s:/?#@'\"]{{0,1000}}):(?!PASSWORD@HOST)[^\s/?#'\"]{{0,{PASSWORD_MAX}}}@")
_NAMED = re.compile(
    r"((?:[?&;](?:pwd|secret|token|access_token|api_key|apikey)|\b(?:ssl_?|sentinel_)?passw(?:or)?d)=)[^&\s'\"]+",
    re.IGNORECASE,
)
_SECRET_NAMES = frozenset(
    {"password", "passwd", "pwd", "secret", "sentinel_password", "ssl_password", "sslpassword", "token"}
)
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_WORDS = re.compile(r"[A-Za-z0-9]+")
_SECRET_HEADER = re.compile(r"auth|cookie|token|key|secret|session|password", re.IGNORECASE)
HEADER_MIN = 12  # characters of another header's value: so long that it is no word of ours

_SENT = ("--header", "--cookie", "--data")  # options whose values may be secret, however short they are

_secrets: dict[str, None] = {}  # of this process: what its settings have, and what functions fill in
_of_logins: dict[str, "_Spelt"] = {}  # passwords that forms get
_known: tuple[str, ...] = ()  # the secrets in all spellings, the longest first


class _Spelt(NamedTuple):
    """A password in all spellings. `probe`: its longest word, which all have but `coded`, those in base64."""

    user: str
    probe: str
    coded: tuple[str, ...]
    every: frozenset[str]


class Secrets(NamedTuple):
    """What a process has learned, for one that it starts."""

    known: tuple[str, ...] = ()
    of_logins: tuple[tuple[str, str], ...] = ()  # user and password


def shown(text: str) -> str:
    """Text, or a URL, without what looks like a password in it; what the settings have is not looked for."""
    text = _SERVER.sub(rf"\1:{HIDDEN}@", text)
    text = _ENGINE.sub(rf"\1{HIDDEN}@", text)
    text = _ANY.sub(rf"\1:{HIDDEN}@", text)
    return _NAMED.sub(rf"\1{HIDDEN}", text)


def redact(text: str) -> str:
    """The same, and without the secrets that were learned, in any spelling of theirs."""
    for secret in _known:
        text = text.replace(secret, HIDDEN)
    return shown(text)


def shown_words(words: Sequence[str]) -> list[str]:
    """The words of a command line as they may be shown: of a header that is sent, only the name."""
    found, option = list[str](), ""
    for word in words:
        name, equals, value = word.partition("=")
        if option:
            found.append(_without_value(option, word))
        elif equals and name in _SENT:
            found.append(f"{name}={_without_value(name, value)}")
        else:
            found.append(redact(word))
        option = word if not option and word in _SENT else ""
    return found


def _without_value(option: str, text: str) -> str:
    name, colon, _ = text.partition(":")
    return f"{name}: {HIDDEN}" if colon and option == "--header" else HIDDEN


def learn(secrets: Iterable[str]) -> None:
    """These are not to be shown from here on, in any spelling of theirs."""
    global _known
    new = dict.fromkeys(one for one in secrets if len(one) >= SHORTEST and one not in _secrets)
    if new:
        _secrets.update(new)
        _known = tuple(sorted({*_known, *(text for one in new for text in spellings(one))}, key=len, reverse=True))


def learned() -> Secrets:
    return Secrets(tuple(_secrets), tuple((spelt.user, password) for password, spelt in _of_logins.items()))


def learn_all(secrets: Secrets) -> None:
    """What another process has learned."""
    learn(secrets.known)
    for user, password in secrets.of_logins:
        learn_login(user, password)


def spellings(secret: str) -> set[str]:
    """As it is, percent-encoded (also twice, in lower case, or as Latin-1), and as Python, JSON, HTML, forms and base64
    write it.
    """
    from html import escape

    octets = [secret.encode("utf-8", "replace")]
    if not secret.isascii():
        octets.append(secret.encode("latin-1", "replace"))
    quoted = {quote(one, safe=safe) for one in octets for safe in ("", "/")}
    quoted |= {in_form(secret)} | {quote(one) for one in quoted}
    quoted |= {_ESCAPE.sub(lambda found: found[0].lower(), one) for one in quoted}
    coded = b64encode(octets[0]).decode()
    written = {repr(secret)[1:-1], ascii(secret)[1:-1], _in_json(secret), json.dumps(secret)[1:-1], escape(secret)}
    return {secret, coded, quote(coded, safe=""), _in_json(repr(secret)[1:-1])} | quoted | written


def has_any(text: str, secrets: Iterable[str]) -> bool:
    """Is one of these in a text, in some spelling?"""
    return any(_has(text, spellings(secret)) for secret in secrets if secret)


def _has(text: str, spelt: Iterable[str]) -> bool:
    texts = {text}
    if "%" in text or "+" in text:
        once = unquote(text)
        texts |= {once, unquote(once), unquote_plus(text), unquote(text, "latin-1"), unquote_plus(text, "latin-1")}
    return any(one in some for one in spelt for some in texts)


def without(text: str, secrets: Iterable[str]) -> str:
    """A text without these; of one with few characters only what is in quotes, or between other marks than letters."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        for one in sorted(spellings(secret), key=len, reverse=True) if secret else ():
            is_short = len(one) < SHORTEST
            text = re.sub(rf"(?<!\w){re.escape(one)}(?!\w)", HIDDEN, text) if is_short else text.replace(one, HIDDEN)
    return text


def learn_login(user: str, password: str) -> None:
    """The password of a login: not to be shown, nor to be part of a URL that is kept."""
    learn(secrets_of_login(user, password))
    if password and password not in _of_logins:
        pair = b64encode(f"{user}:{password}".encode("utf-8", "replace")).decode()
        alone = b64encode(password.encode("utf-8", "replace")).decode()
        coded = tuple({pair, alone, quote(pair, safe=""), quote(alone, safe="")})
        probe = max(_WORDS.findall(password), key=len, default="")
        _of_logins[password] = _Spelt(user, probe, coded, frozenset({*spellings(password), *coded}))


def has_logins() -> bool:
    """Is there a password that a URL might have?"""
    return bool(_of_logins)


def bears_login(url: str) -> bool:
    """Has a URL the password of a login in it? A short one counts as the value of a parameter only."""
    return bool(_of_logins) and any(_bears(url, *one) for one in _of_logins.items())


def _bears(url: str, password: str, spelt: _Spelt) -> bool:
    is_long = len(password) >= UNMISTAKABLE
    if spelt.probe not in url:
        return is_long and any(one in url for one in spelt.coded)
    if is_long:
        return _has(url, spelt.every)
    query = url.partition("?")[2].partition("#")[0]
    codecs = ("utf-8",) if password.isascii() else ("utf-8", "latin-1")
    return bool(query) and any(value == password for code in codecs for _, value in parse_qsl(query, encoding=code))


def forget() -> None:
    """For tests."""
    global _known
    _known = ()
    _secrets.clear()
    _of_logins.clear()


def in_form(text: str) -> str:
    """As a form sends it (WHATWG URL, 5.2)."""
    return quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def shown_server(url: str) -> str:
    """The URL of a server without who logs in, also when it is no URL: redis://***@host/0."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not at:  # what looks like a port may be a password whose host was forgotten
        hosts, slash, more = place.partition("/")
        place = ",".join(map(_without_odd_port, hosts.split(","))) + slash + more
    who = f"{user}:{HIDDEN}" if colon else HIDDEN if login else ""
    return shown(f"{scheme}{mark}{who}{at}{place}")


def _without_odd_port(host: str) -> str:
    name, colon, port = host.partition(":")
    return host if host.startswith("[") or not colon or port.isdigit() else f"{name}:{HIDDEN}"


def secrets_of_url(url: str) -> Iterator[str]:
    """The password of a server's URL, as it is written and decoded, and those in its query."""
    login = url.partition("://")[2] or url
    password = login.rpartition("@")[0].partition(":")[2]
    yield from (password, unquote(password))
    for part in url.partition("?")[2].split("&"):
        name, _, value = part.partition("=")
        if name.lower() in _SECRET_NAMES:
            yield from (value, unquote(value), unquote_plus(value))


def secrets_of_login(user: str, password: str) -> Iterator[str]:
    """A password, or a user without one, which is a key then; and both as HTTP sends them."""
    if user or password:
        yield from (password or user, b64encode(f"{user}:{password}".encode()).decode())


def secrets_of_site(auth: str, cookies: Mapping[str, str], headers: Mapping[str, str]) -> Iterator[str]:
    """What a table of [[sites]] sends, as it is sent. A header that looks harmless counts if its value is long."""
    if auth:
        yield from (auth, auth.partition(":")[2], b64encode(auth.encode()).decode())
    yield from cookies.values()
    for name, value in headers.items():
        if _SECRET_HEADER.search(name) or len(value) >= HEADER_MIN:
            yield from (value, value.partition(" ")[2])  # behind "Bearer"


def _in_json(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
