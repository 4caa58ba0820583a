"""Which answers are a firewall's test, and which only speak of one: tables of pages."""

import pytest

from crawler.rules.challenge_markers import BODIES, HEADERS
from crawler.rules.challenges import BODY_BYTES, LINKS_MAX, challenge_of
from tests.support.growth import growth

Headers = tuple[tuple[bytes, bytes], ...]
NO_HEADERS: Headers = (
    (b"Content-Type", b"text/html"),
    (b"Server", b"cloudflare"),
    (b"CF-RAY", b"8a"),
    (b"X-Iinfo", b"1"),
)
CLOUDFLARE = (
    b'<!DOCTYPE html><html lang="en-US"><head><title>Just a moment...</title><meta name="robots" content="noindex">'
    b"</head><body><noscript>Enable JavaScript and cookies to continue</noscript><script>(function(){"
    b"window._cf_chl_opt={cvId: '3',cZone: \"shop.example\",cType: 'managed'};var a = document.createElement('script');"
    b"a.src = '/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1?ray=8a';}());</script></body></html>"
)
ANUBIS = (
    b"<!doctype html><html><head><title>Making sure you&#39;re not a bot!</title></head><body><h1>Making sure</h1>"
    b'<script id="anubis_challenge" type="application/json">{"rules":{"difficulty":4}}</script>'
    b"<details><summary>Why am I seeing this?</summary><p>"
    + b"You see this because of robots. "
    * 25
    + b"</p></details>"
    b'<a href="https://anubis.example/">Anubis</a></body></html>'
)
IMPERVA = (
    b'<html><head><META NAME="robots" CONTENT="noindex,nofollow"><script src="/_Incapsula_Resource?'
    b'SWJIYLWA=5074a744e2e3d891814e9a2dace20bd4,719d34d31c8e3a6e6fffd425f7e032f3"></script></head><body></body></html>'
)
FRAME = (
    b'<html><body style="margin:0"><iframe id="main-iframe" src="/_Incapsula_Resource?CWUDNSAI=23&incident_id=1" '
    b"frameborder=0>Request unsuccessful. Incapsula incident ID: 1</iframe></body></html>"
)
CHALLENGES: dict[str, tuple[Headers, bytes]] = {
    "Cloudflare, by its header": (((b"CF-Mitigated", b"challenge"),), b""),
    "AWS WAF, 202 without a body": (((b"x-amzn-waf-action", b"challenge"),), b""),
    "AWS WAF, a captcha": (((b"X-Amzn-Waf-Action", b" CAPTCHA "),), b"<html></html>"),
    "Vercel, by its header": (((b"x-vercel-mitigated", b"challenge"),), b""),
    "Cloudflare, by its page": (NO_HEADERS, CLOUDFLARE),
    "Cloudflare, behind a mark": (NO_HEADERS, b"\xef\xbb\xbf\r\n" + CLOUDFLARE),
    "AWS WAF, by its page": (
        NO_HEADERS, b'<html><script>window.awsWafCookieDomainList = [];window.gokuProps = {"key":"x"};</script></html>',
    ),
    "Akamai": (NO_HEADERS, b'<html><body><div id="sec-if-cpt-container"></div>Powered and protected by</body></html>'),
    "Akamai, which reloads itself": (
        NO_HEADERS,
        (b'<html><head><meta http-equiv="refresh" content="5; URL=\'/?bm-verify=AAQ\'"></head><body><script>'
        b'xhr.open("POST", "/_sec/verify?provider=interstitial", false);</script></body></html>'),
    ),
    "Imperva": (NO_HEADERS, IMPERVA),
    "Imperva, a frame": (NO_HEADERS, FRAME),
    "DataDome": (
        NO_HEADERS,
        (b"<html><head><title>shop.example</title></head><body><script>var dd={'rt':'c','cid':'A','host':"
        b"'geo.captcha-delivery.com'}</script><script src=\"https://ct.captcha-delivery.com/c.js\"></script></body></html>"),
    ),
    "HUMAN": (
        NO_HEADERS,
        (b'<html><head><title>Access denied</title></head><body><div id="px-captcha"></div>'
        b"<script>window._pxAppId = 'PX1';</script></body></html>"),
    ),
    "Sucuri": (
        NO_HEADERS,
        (b"<html><title>You are being redirected...</title><noscript>Javascript is required.</noscript>"
        b"<script>var s={},w=String.fromCharCode,sucuri_cloudproxy_js='',S='YT0n';</script></html>"),
    ),
    "DDoS-Guard": (
        NO_HEADERS,
        (b'<html><head><title>DDoS-Guard</title><script src="/.well-known/ddos-guard/js-challenge/index.js"></script>'
        b"</head><body>Checking your browser</body></html>"),
    ),
    "Anubis": (NO_HEADERS, ANUBIS),
    "Kasada": (
        NO_HEADERS,
        b"<html><script>window.KPSDK={};KPSDK.now=1;</script><script src='/149e/2d20/ips.js?x=1'></script></html>",
    ),
    "Vercel, by its page": (
        NO_HEADERS,
        (b"<html><head><title>Vercel Security Checkpoint</title></head><body>"
        b'<script src="/.well-known/vercel/security/static/challenge.v2.min.js"></script></body></html>'),
    ),
    "Fastly": (
        NO_HEADERS,
        (b'<html><head><title>Client Challenge</title><link href="/_fs-ch-1T1w/assets/styles.css"></head>'
        b"<body></body></html>"),
    ),
    "SiteGround": (
        NO_HEADERS, b'<html><head><meta http-equiv="refresh" content="0;/.well-known/sgcaptcha/?r=%2F"></head></html>',
    ),
}  # fmt: skip


def quoted(page: bytes) -> bytes:
    return page.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;").replace(b'"', b"&quot;")


def article(inner: bytes, *, head: bytes = b"") -> bytes:
    return b"<!doctype html><html><head>" + head + b"</head><body><h1>How it works</h1>" + inner + b"</body></html>"


ALL_TEXTS = b" ".join(text for marker in BODIES for text in marker.texts)
INNOCENT: dict[str, tuple[Headers, bytes]] = {
    "a page": (NO_HEADERS, article(b"<p>hello</p>")),
    "nothing": (NO_HEADERS, b""),
    "an article that quotes a challenge": (NO_HEADERS, article(b"<pre>" + quoted(CLOUDFLARE) + b"</pre>")),
    "the same, of each mark": (NO_HEADERS, article(b"<pre>" + quoted(ALL_TEXTS) + b"</pre>")),
    "names of all marks in its text": (NO_HEADERS, article(b"<p>" + quoted(ALL_TEXTS) + b"</p>")),
    "in a description, too": (
        NO_HEADERS,
        article(b"<p>short</p>", head=b'<meta name="description" content="_cf_chl_opt, /cdn-cgi/challenge-platform/h/, '
        b'sucuri_cloudproxy_js, fromCharCode, KPSDK /ips.js?">'),
    ),
    "in its data": (
        NO_HEADERS,
        article(b"<p>short</p>", head=b'<script type="application/ld+json">{"articleBody": "_cf_chl_opt and '
        b'/cdn-cgi/challenge-platform/h/"}</script>'),
    ),
    "in the state of an app": (
        NO_HEADERS, article(b'<script>self.__next_f.push([1,"' + CLOUDFLARE.replace(b'"', rb"\"") + b'"])</script>'),
    ),
    "in the state of another": (
        NO_HEADERS, article(b'<div id=app></div><script>\nwindow.__NUXT__={text:"' + ALL_TEXTS + b'"}</script>'),
    ),
    "in what a button copies": (
        NO_HEADERS, article(b'<button data-clipboard-text="' + quoted(CLOUDFLARE) + b'">copy</button>'),
    ),
    "in a comment": (NO_HEADERS, article(b"<!-- " + CLOUDFLARE + b" --><p>short</p>")),
    "in a box to copy from": (NO_HEADERS, article(b"<textarea>" + CLOUDFLARE + b"</textarea>")),
    "with the marks and a long text": (NO_HEADERS, CLOUDFLARE + article(b"<p>word word word</p>" * 500)),
    "with the marks and many links": (
        NO_HEADERS, b"<html>" + b"<a href=/x>x</a>" * (LINKS_MAX + 1) + CLOUDFLARE,
    ),
    "Cloudflare's script that looks on": (
        NO_HEADERS,
        article(b"<p>shop</p><script>a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';</script>"),
    ),
    "a form with Turnstile": (
        NO_HEADERS,
        article(b'<form><input type=password><div class="cf-turnstile" data-sitekey="0x4"></div></form>'
        b'<script src="https://challenges.cloudflare.com/turnstile/v0/api.js"></script>'),
    ),
    "a form with reCAPTCHA": (
        NO_HEADERS,
        article(b'<form><div class="g-recaptcha" data-sitekey="6L"></div></form>'
        b'<script src="https://www.google.com/recaptcha/api.js"></script>'),
    ),
    "a form with hCaptcha": (NO_HEADERS, article(b'<div class="h-captcha"></div><script src="https://js.hcaptcha.com/1/api.js">')),
    "Imperva's analytics in an empty shell": (
        NO_HEADERS,
        (b"<html><body><div id=app></div><script>_analytics_scr.src = '/_Incapsula_Resource?SWJIYLWA="
        b"719d34d31c8e3a6e6fffd425f7e032f3&ns=2&cb=3';</script></body></html>"),
    ),
    "HUMAN's sensor in an empty shell": (
        NO_HEADERS, b"<html><body><div id=app></div><script>window._pxAppId='PX1';</script></body></html>",
    ),
    "Kasada's script in an empty shell": (
        NO_HEADERS, b"<html><body><div id=app></div><script src='/149e/2d20/p.js'></script></body></html>",
    ),
    "DataDome's tag in an empty shell": (
        NO_HEADERS, b"<html><script>window.ddjskey='A'</script><script src='https://js.datadome.co/tags.js'></script></html>",
    ),
    "a page named like one": (NO_HEADERS, b"<html><title>Just a moment...</title><p>A song of 1985.</p></html>"),
    "one that is only busy": (((b"Retry-After", b"5"),), b"<html><h1>429 Too Many Requests</h1></html>"),
    "a denial": (NO_HEADERS, b"<html><h1>Access Denied</h1>Reference #18.2e errors.edgesuite.net</html>"),
    "the header with another value": (((b"cf-mitigated", b"block"), (b"x-vercel-mitigated", b"deny")), b""),
    "text with the marks": (NO_HEADERS, ALL_TEXTS),
    "JSON with the marks": (NO_HEADERS, b'{"html": "' + CLOUDFLARE + b'"}'),
    "behind what is looked at": (NO_HEADERS, b"<html>" + b" " * BODY_BYTES + CLOUDFLARE),
}  # fmt: skip


@pytest.mark.parametrize("name", CHALLENGES)
def test_challenges_of_all_products_are_known(name: str) -> None:
    assert challenge_of(*CHALLENGES[name]) == name.partition(",")[0]


@pytest.mark.parametrize("name", INNOCENT)
def test_pages_that_only_speak_of_a_challenge_are_pages(name: str) -> None:
    assert challenge_of(*INNOCENT[name]) == ""


def test_each_product_has_a_page_and_each_mark_a_source() -> None:
    products = {marker.product for marker in (*HEADERS, *BODIES)}
    assert products - {"go-away"} == {name.partition(",")[0] for name in CHALLENGES}
    assert all(marker.source for marker in (*HEADERS, *BODIES))
    assert all(name == name.lower() for name in (marker.name for marker in HEADERS))


@pytest.mark.parametrize(
    "part", [b"<", b"<!--", b"<script>", b"<title>", b"<a", b"</", b"<p>x", b"<textarea>", b"<script></script>"]
)
def test_time_is_linear(part: bytes) -> None:
    """Of whatever is repeated; the page has all hints, so that it is looked at."""
    begin = b"<html>" + ALL_TEXTS

    def judged(size: int) -> str:
        return challenge_of((), begin + part * (size // len(part)))

    assert growth(judged, BODY_BYTES // 8, BODY_BYTES // 2, enough=12) < 12
