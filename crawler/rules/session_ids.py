"""Session ids whose names say so: they never tell pages apart, so they have no part in a URL's identity. Pure."""

import re

# Given out by servers and shops for sessions and for nothing else. `sid`, `session` and the like name things, too.
_PATH_FORMS = re.compile(
    r";(?:jsessionid|phpsessid|sessionid)=[0-9A-Za-z._!:%*+-]*|/\((?:[A-Z]\([0-9A-Za-z_-]{8,}\))+\)(?=/)",
    re.IGNORECASE,
)
_NAMES = r"jsessionid|phpsessid|aspsessionid[a-z]{8}|asp\.net_sessionid|oscsid|zenid"
_QUERY_FORMS = re.compile(rf"(?<![^?&])(?:(?:{_NAMES})=[^&]*|cfid=\d+&cftoken=[^&]*)(?:&|$)", re.IGNORECASE)


def without_session(url: str) -> str:
    """The identity of a canonical URL: what to fingerprint. The URL itself when it has no session id."""
    if "=" not in url and "/(" not in url:
        return url
    lowered = url.lower()
    if not (  # spelled out, and before any pattern: each link passes here
        "sessi" in lowered or "/(" in lowered or "cfid=" in lowered or "oscsid=" in lowered or "zenid=" in lowered
    ):
        return url
    address, _, query = url.partition("?")
    start = address.index("/", 8)
    address = address[:start] + _PATH_FORMS.sub("", address[start:])
    kept = _QUERY_FORMS.sub("", query)
    if kept != query:
        query = kept.removesuffix("&")
    return f"{address}?{query}" if query else address
