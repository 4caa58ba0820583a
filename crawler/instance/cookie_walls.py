"""Sites that redirect a URL to itself until their cookie comes back: one more try, with what they set.

Cookies live for that one try. Nothing else is kept of any site.
"""

from collections import OrderedDict

from crawler.model import Claim, Response

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
        cookies = {}
        for key, value in response.headers:
            if key.lower() == b"set-cookie":
                name, _, rest = value.decode("latin-1").partition("=")
                cookies[name.strip()] = rest.partition(";")[0].strip()
        if cookies:
            self._cookies[claim.fingerprint] = cookies
            if len(self._cookies) > KEPT_MAX:
                self._cookies.popitem(last=False)
        return bool(cookies)
