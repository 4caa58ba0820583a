"""What tests of forms share: a page's address, requests as rows have them, and what Chromium sends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from crawler.content.charset import CODECS, form_bytes
from crawler.content.forms import Submission
from crawler.rules.urls import canonicalize, join

URL = "http://site.test/d/page?x=1"
SENT_S = 60.0  # at most, until a browser sends a form
Row = dict[str, Any]


def base_of(tree: LexborHTMLParser) -> str:
    """The base URL of a page of that address."""
    bases = [join(URL, node.attributes["href"] or "") or "" for node in tree.css("base[href]")]
    return bases[0] if bases else URL


def sent(submission: Submission) -> Row:
    """As rows have it."""
    found: Row = {"method": submission.method, "url": submission.url}
    if submission.method == "POST":
        found |= {"body": submission.body.decode("latin-1"), "type": submission.content_type}
    return without_boundary(found)


def without_boundary(found: Row) -> Row:
    boundary = found.get("type", "").partition("boundary=")[2]
    return {key: value.replace(boundary, "BOUNDARY") if boundary else value for key, value in found.items()}


async def sent_by(
    page: Any, body: str, charset: str, submit: Callable[[], Awaitable[None]], *, wait_s: float
) -> Row | None:
    """What a page of the browser with this body sends when its form is submitted; no request leaves it. None: nothing
    in this time.
    """
    answer = {"status": 200, "headers": {"content-type": f"text/html; charset={charset}"}}
    requests: list[Any] = []
    has_sent = asyncio.Event()

    async def take(route: Any) -> None:
        if not requests:
            await route.fulfill(body=form_bytes(CODECS[charset], body), **answer)
            requests.append(route.request)
            return
        if route.request.is_navigation_request():
            requests.append(route.request)
            has_sent.set()
        await route.abort()

    await page.route("**/*", take)
    await page.goto(URL)
    await submit()
    try:
        await asyncio.wait_for(has_sent.wait(), timeout=wait_s)
    except TimeoutError:
        return None
    finally:
        await page.unroute("**/*")
    request = requests[1]
    found = {"method": request.method, "url": canonicalize(request.url)}
    if request.method == "POST":
        kind = (await request.all_headers()).get("content-type", "")
        found |= {"body": (request.post_data_buffer or b"").decode("latin-1"), "type": kind}
    return without_boundary(found)
