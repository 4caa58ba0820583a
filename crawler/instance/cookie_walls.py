"""Sites that redirect a URL to itself until their cookie comes back: one more try, with what they set.

Cookies live for that one try. Nothing else is kept of any site.
"""

from collections import OrderedDict
from collections.abc import Iterable

from crawler.model import Claim, Response

BYTES_MAX = 4096  # of the cookies of one URL, as browsers allow for a single one; further ones are left out
KEPT_MAX = 10_000  # cookies of URLs whose next try may have gone to another instance


class CookieWalls:
    """What the next try of a claim sends."""

    def __init__(self) -> None:
        self._cookies: OrderedDict[str, dict[str, str]] = OrderedDict()

    def cookies_for(self, claim: Claim) -> dict[str, str] | None:
        """The cookies that the last answer set, once."""
        return self._cookies.pop(claim.fingerprint, None)

    def offers_another_try(self, claim: Claim, response: Response, *, sent: bool) -> bool:
        """Note the cookies of a redirect to itself; False if there are none, or if some were `sent` in this try."""
        if claim.fingerprint in self._cookies or sent:
            return False
        cookies = _cookies(response.headers)
        if cookies:
            self._cookies[claim.fingerprint] = cookies
            if len(self._cookies) > KEPT_MAX:
                self._cookies.popitem(last=False)
        return bool(cookies)


def _cookies(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    cookies: dict[str, str] = {}
    room = BYTES_MAX
    for key, value in headers:
        if key.lower() == b"set-cookie":
            pair = value.partition(b";")[0]
            room -= len(pair)
            if room < 0:
                break
            name, _, rest = pair.decode("latin-1").partition("=")
            cookies[name.strip()] = rest.strip()
    return cookies
