"""How answers look by which firewalls tell people from robots: a table, with sources. Facts only; `challenges` uses it.

A marker is of the challenge alone: what these products add to each page that they let through (scripts that look on,
cookies, `server`, `cf-ray`, `x-iinfo`, a widget within a form) is none.
"""

import msgspec


class HeaderMarker(msgspec.Struct, frozen=True):
    """A header, in lower case, whose value is one of these."""

    product: str
    name: bytes
    values: frozenset[bytes]
    source: str


class BodyMarker(msgspec.Struct, frozen=True):
    """Texts that stand together in the tags and scripts of a page, with little text around them."""

    product: str
    texts: tuple[bytes, ...]
    source: str


_CHALLENGE = frozenset({b"challenge"})
HEADERS = (
    HeaderMarker(
        "Cloudflare", b"cf-mitigated", _CHALLENGE,
        "developers.cloudflare.com/cloudflare-challenges/challenge-types/challenge-pages/detect-response",
    ),
    HeaderMarker(
        "AWS WAF", b"x-amzn-waf-action", frozenset({b"challenge", b"captcha"}),
        "docs.aws.amazon.com/waf/latest/developerguide/waf-captcha-and-challenge-actions.html",
    ),
    HeaderMarker(
        "Vercel", b"x-vercel-mitigated", _CHALLENGE,
        "vercel.com/docs/security/attack-challenge-mode; seen with 403 and 429",
    ),
)  # fmt: skip
BODIES = (
    BodyMarker(
        "Cloudflare", (b"_cf_chl_opt", b"/cdn-cgi/challenge-platform/h/"),
        "FlareSolverr/FlareSolverr; the script .../jsd/main.js is added to pages that are let through",
    ),
    BodyMarker("Cloudflare", (b"jschl-answer", b"/cdn-cgi/l/chk_jschl"), "its older form, as cloudscraper knows it"),
    BodyMarker("AWS WAF", (b"awsWafCookieDomainList", b"gokuProps"), "the interstitials of both actions"),
    BodyMarker("Akamai", (b'id="sec-if-cpt-container"',), "Bot Manager's crypto challenge, a page of 2.6 kB"),
    BodyMarker("Akamai", (b"bm-verify=", b"/_sec/verify"), "Bot Manager's interstitial, which reloads itself"),
    BodyMarker(
        "Imperva", (b"/_Incapsula_Resource?SWJIYLWA=5074a744e2e3d891814e9a2dace20bd4",),
        "the script of a challenge; SWJIYLWA=719d34d3... alone is its analytics, in each page",
    ),
    BodyMarker("Imperva", (b"/_Incapsula_Resource?CWUDNSAI=", b"<iframe"), "the frame with an incident ID"),
    BodyMarker("DataDome", (b"captcha-delivery.com/", b"var dd="), "docs.datadome.co: its challenge pages; with 403"),
    BodyMarker("DataDome", (b"captcha-delivery.com/", b"<iframe"), "the same as a frame"),
    BodyMarker("HUMAN", (b"px-captcha", b"_pxAppId"), "docs.humansecurity.com: block pages; _pxAppId is in all"),
    BodyMarker("Sucuri", (b"sucuri_cloudproxy_js", b"fromCharCode"), "its script sets a cookie, and reloads"),
    BodyMarker(
        "DDoS-Guard", (b"/.well-known/ddos-guard/js-challenge/",),
        "FlareSolverr/FlareSolverr; check.ddos-guard.net is in pages that are let through",
    ),
    BodyMarker("DDoS-Guard", (b"/.well-known/ddos-guard/ddg-captcha-page/",), "the same with a captcha"),
    BodyMarker("Anubis", (b'id="anubis_challenge"',), "TecharoHQ/anubis; answers 200 unless told otherwise"),
    BodyMarker("Anubis", (b'id="preact_info"', b"/.within.website/x/"), "TecharoHQ/anubis: its other form"),
    BodyMarker("go-away", (b"/.well-known/.git.gammaspectra.live/git/go-away/cmd/go-away/",), "its source"),
    BodyMarker("Kasada", (b"KPSDK", b"/ips.js?"), "with 429; p.js alone is in pages that are let through"),
    BodyMarker(
        "Vercel", (b"/.well-known/vercel/security/",), "vercel.com/docs/security: the security checkpoint"
    ),
    BodyMarker(
        "Fastly", (b"/_fs-ch-", b"<title>Client Challenge</title>"),
        "fastly.com/documentation/guides/security/bot-management; a page may embed the script alone",
    ),
    BodyMarker("SiteGround", (b"/.well-known/sgcaptcha/", b"http-equiv"), "a page that leads to its captcha"),
)  # fmt: skip
