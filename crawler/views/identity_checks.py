"""What the doctor says of who we say we are: contact, keys, the published directory, and what a site's owner sees."""

import time
from email.utils import parsedate_to_datetime

import msgspec

from crawler.crawl.terms import check_key_place
from crawler.errors import CrawlerError
from crawler.model import Response
from crawler.rules.signatures import DIRECTORY_PATH, DIRECTORY_TYPE, dictionary_of
from crawler.settings import Settings
from crawler.settings.contact import fault_of_contact
from crawler.terminal.words import duration
from crawler.version import program_version
from crawler.views.doctor import Check, Level, ok
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.web.signing import EARLY_S, EXPIRES_S, Signer
from crawler.web.signing_keys import usable_keys

EXAMPLE_URL = "https://example.com/"
LATE_MAX_S = EXPIRES_S / 2 - 2 * EARLY_S  # by which our clock may be late: signatures are sent for half of their life
DIRECTORY_BYTES_MAX = 256 * 1024
SHOWN_FOR = "Signature lines go to sites that ask for them"


async def check_identity(settings: Settings, url: str) -> list[Check]:
    """All of them. The one request that is sent goes to our own directory of keys (identity.agent)."""
    resolver = CachingResolver(settings.dns, allow_private=settings.fetch.allow_private)
    checks = [_contact(settings.fetch.contact)]
    try:
        if settings.identity.sign != "off":
            checks.append(_key(settings))
            check_key_place(settings.identity.key_file)
        async with Fetcher(settings, resolver=resolver, version=program_version()) as fetcher:
            if fetcher.signer is not None:
                checks += await _directory(settings, fetcher)
            checks.append(_request(settings, fetcher, url))
    except CrawlerError as error:
        checks.append(Check("identity", Level.FAIL, str(error), "see docs/guide/identity.md"))
    finally:
        await resolver.close()
    return checks


def _contact(contact: str) -> Check:
    if not contact:
        mend = "add --contact with a web page or mail address"
        return Check("contact", Level.WARN, "none: site owners can't reach you", mend)
    if fault := fault_of_contact(contact):
        return Check("contact", Level.WARN, f"{contact!r}: {fault}", "give another --contact")
    return ok("contact", contact)


def _key(settings: Settings) -> Check:
    now_s = time.time()
    keys = usable_keys(settings.identity.key_file, now_s)
    found = f"signs with the key {keys.current(now_s).kid}"
    if (next_s := keys.next_at(now_s)) != float("inf"):
        found += f", in {duration(next_s - now_s)} with the key {keys.keys[-1].kid}"
    return ok("identity", found)


def _request(settings: Settings, fetcher: Fetcher, url: str) -> Check:
    """The head of a request, and the word in robots.txt that is for us."""
    head = fetcher.example_head(url).decode("latin-1").replace("(not archived)", "(not shown)")
    lines = tuple(head.split("\r\n")[:-2])
    if settings.identity.sign == "asked":
        lines += (f"({SHOWN_FOR})",)
    obeyed = f"the rules for {settings.robots.agent} in robots.txt" if settings.robots.obey else "no robots.txt"
    return msgspec.structs.replace(ok("request", f"obeys {obeyed}; a site's owner sees:"), lines=lines)


async def _directory(settings: Settings, fetcher: Fetcher) -> list[Check]:
    """Is the key published, and does our clock agree with that of where it is?"""
    signer, agent = fetcher.signer, settings.identity.agent
    assert signer is not None
    if not agent:
        mend = "publish it, and set identity.agent to its origin: docs/guide/identity.md"
        return [Check("directory", Level.WARN, "identity.agent is not set: few sites can find your key", mend)]
    began_s = time.time()
    result = await fetcher.fetch(f"{agent}{DIRECTORY_PATH}", body_bytes_max=DIRECTORY_BYTES_MAX)
    between_s = (began_s + time.time()) / 2
    publish = "publish what 'crawler identity show --to FOLDER' writes"
    if result.response is None:
        detail = result.failure.detail if result.failure is not None else ""
        return [Check("directory", Level.FAIL, f"{agent}{DIRECTORY_PATH} can't be read: {detail}", publish)]
    return [_published(signer, agent, result.response, publish), *_clock(result.response, agent, between_s)]


def _published(signer: Signer, agent: str, response: Response, publish: str) -> Check:
    place = f"{agent}{DIRECTORY_PATH}"
    if response.status != 200:
        return Check("directory", Level.FAIL, f"{place} answers with status {response.status}", publish)
    try:
        keys = msgspec.json.decode(response.body, type=dict[str, list[dict[str, object]]]).get("keys", [])
    except (msgspec.MsgspecError, UnicodeError):
        return Check("directory", Level.FAIL, f"{place} is not a JWK set", publish)
    missing = [keyid for keyid in signer.published_ids if keyid not in {key.get("kid") for key in keys}]
    if missing:
        return Check("directory", Level.FAIL, f"{place} has no key {', '.join(missing)}", publish)
    kind = response.header("content-type") or "none"
    if kind.partition(";")[0].strip().lower() != DIRECTORY_TYPE:
        return Check("directory", Level.WARN, f"{place} has the type {kind[:80]}", f"serve it as {DIRECTORY_TYPE}")
    if (until_s := signed_until(response.header("signature-input") or "")) < time.time():
        what = "its signatures have expired" if until_s else "it is not signed"
        return Check("directory", Level.WARN, f"{place}: {what}", publish)
    return ok("directory", f"{place} has the key; its signatures are valid for {duration(until_s - time.time())}")


def signed_until(field: str) -> float:
    """Until when the signatures of a directory are valid, s since 1970; 0: there are none that we can read."""
    members = dictionary_of(field.encode("latin-1", "replace")) or {}
    times = [own.get("expires", 0) for _, own in members.values()]
    return min((float(one) for one in times if isinstance(one, int)), default=0.0)


def _clock(response: Response, agent: str, now_s: float) -> list[Check]:
    """By the Date of the answer, which is right to a second or two."""
    try:
        ahead_s = now_s - parsedate_to_datetime(response.header("date") or "").timestamp()
    except (TypeError, ValueError, OverflowError):
        return []
    which = "ahead of" if ahead_s > 0 else "behind"
    found = f"{duration(abs(ahead_s))} {which} that of {agent}"
    if -LATE_MAX_S <= ahead_s <= EARLY_S:
        return [ok("time", f"signatures are valid elsewhere: this clock is within {duration(max(1.0, abs(ahead_s)))}")]
    why = "not yet valid" if ahead_s > 0 else "expired"
    mend = "let NTP set the clock of this machine"
    return [Check("time", Level.FAIL, f"sites take signatures as {why}: this clock is {found}", mend)]
