"""Seeds by HTTP: a JSON document, or lines that are added while they come."""

from collections.abc import AsyncIterator
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from crawler.api.body_stream import BodyStream
from crawler.api.call import Call, NoQuery
from crawler.api.problem import ProblemError, not_valid
from crawler.api.route import JSON, check_media, decoded_json
from crawler.crawl.url_input import GivenUrl
from crawler.errors import UsageError
from crawler.rules.cron import moment_of
from crawler.terminal.words import counted, moment
from crawler.views.seeds import SeedResult, add_seeds

NDJSON = "application/x-ndjson"


BATCH = 1_000


LINE_BYTES_MAX = 64 * 1024


COMPLAINTS_MAX = 20  # in an answer


class SeedList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """URLs with their scheme. In NDJSON each line is a URL as a JSON string, or an object with "url".

    `at`, also of such an object: they are fetched at that time or later (ISO 8601; UTC unless it has an offset).
    """

    urls: list[str]
    at: str = ""


class SeedLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of NDJSON."""

    url: str
    at: str = ""


_line = msgspec.json.Decoder(str | SeedLine)


async def add(call: Call[NoQuery, SeedList]) -> SeedResult:
    """Add seeds; each opens the scope of the crawl for its site.

    Repeating is safe: a URL that is known counts as seen. What was added before an error stays added.
    """
    context, body = call.context, call.stream
    media = check_media(call.http, (JSON, NDJSON))
    with context.seed_places.taken(call.identity.owner):
        crawl = await call.crawl()
        if media == JSON:
            raw = await body.whole(context.limits.seed_list_bytes)
            seeds = decoded_json(raw, SeedList)
            urls, at = seeds.urls, _time_of(seeds.at)
            given = [GivenUrl(f"URL {n}", url, visible_at=at) for n, url in enumerate(urls, 1)]
            what = counted(len(urls), "URL") + (f", for {moment(at)}" if at else "")
            found = await add_seeds(crawl, [given], given=what, actor=call.actor)
        else:
            found = await add_seeds(crawl, _batches(body), given="a stream of URLs", actor=call.actor)
    return replace(found, complaints=found.complaints[:COMPLAINTS_MAX])


def _time_of(text: str) -> float:
    """Wall time (s); 0 for none. Raises UsageError."""
    return moment_of(text) if text else 0.0


async def _batches(body: BodyStream) -> AsyncIterator[list[GivenUrl]]:
    batch: list[GivenUrl] = []
    async for number, line in body.lines(LINE_BYTES_MAX):
        try:
            one = _line.decode(line)
            seed = SeedLine(url=one) if isinstance(one, str) else one
            at = _time_of(seed.at)
        except (msgspec.DecodeError, UsageError) as error:
            what = not_valid(error, SeedLine) if isinstance(error, msgspec.ValidationError) else error
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY, f"line {number}: {what}; lines before it may be added"
            ) from None
        batch.append(GivenUrl(f"line {number}", seed.url, visible_at=at))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
