"""robots.txt: the tables of Google and crawler-commons, hostile files, and the line that decided.

A slow test compares mutated rows of odd_robots.jsonl with RFC 9309, restated in `is_allowed` (ODD_MUTATIONS, ODD_SEED).
"""

import base64
import json
import random
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import InvalidUrl
from crawler.model import Decoded, Response
from crawler.rules.challenges import challenge_of
from crawler.rules.robots import (
    ALLOW_ALL,
    NAME_CHARS_MAX,
    READ_BYTES_MIN,
    RobotsRules,
    SharedRobots,
    is_like_robots,
    policy_of,
    robots_policy,
)
from crawler.rules.urls import canonicalize
from tests.content.test_odd_inputs import MUTATIONS, SEED, mutants
from tests.support.growth import LINEAR_MAX, growth

TABLE = Path(__file__).parents[3] / "shared/conformance/robots.jsonl"
AGENT = "shardcrawl"
# One odd file a row, as Latin-1 text; `by`: RFC 9309, the parser that Google published, or on purpose, and then why.
ODD = [json.loads(line) for line in Path(__file__).with_name("odd_robots.jsonl").read_text().splitlines()]

RFC_DECODES_URLS = "Google compares as written; RFC 9309 section 2.2.2 wants both sides encoded alike"
EXCEPTIONS = {
    "ID_Encoding#2": RFC_DECODES_URLS,
    "ID_Encoding#4": RFC_DECODES_URLS,
    "ID_Encoding#5": RFC_DECODES_URLS,
}


def parse(text: str, agent: str = AGENT) -> RobotsRules:
    return RobotsRules.parse(text.encode(), agent)


def test_every_row_of_the_robots_tables_holds():
    if not TABLE.exists():
        pytest.skip("the conformance tables are not next to this checkout")
    rows = [json.loads(line) for line in TABLE.read_text().splitlines()]
    assert len(rows) == 601
    unlike = []
    for row in rows:
        rules = RobotsRules.parse(base64.b64decode(row["robots_b64"]), row["agent"])
        stored = RobotsRules.stored(rules.our_group())
        assert stored == rules, row["id"]
        verdict = rules.verdict(row["url"])
        assert verdict.allowed == rules.allows(row["url"]) == stored.allows(row["url"])
        assert verdict.allowed or verdict.line_number > 0
        if verdict.allowed != row["allow"]:
            unlike.append(row["id"])
    assert sorted(unlike) == sorted(EXCEPTIONS)


def test_the_line_that_decided_is_named_as_written():
    rules = parse("# hello\nUser-agent: *\nDisallow: /a\nAllow: /a/b\n\nDisallow: /a/b/c*d$ # no\nSitemap: /x\n")
    assert rules.verdict("http://h.test/a/x").line_number == 3
    assert rules.verdict("http://h.test/a/b").line == "Allow: /a/b"
    assert rules.verdict("http://h.test/a/b").line_number == 4
    refused = rules.verdict("http://h.test/a/b/c1d")
    assert (refused.allowed, refused.line_number, refused.line) == (False, 6, "Disallow: /a/b/c*d$")
    free = rules.verdict("http://h.test/z")
    assert (free.allowed, free.line_number, free.line) == (True, 0, "")


def test_line_numbers_survive_storage():
    text = "User-agent: other\nDisallow: /\n\nUser-agent: shardcrawl\nDisallow: /no\n"
    stored = RobotsRules.stored(parse(text).our_group())
    assert stored.verdict("http://h.test/no").line_number == 5


@pytest.mark.parametrize("row", ODD, ids=lambda row: row["robots"][:50])
def test_odd_lines_are_read_as_the_table_says(row):
    rules = RobotsRules.parse(row["robots"].encode("latin-1"), AGENT)
    assert rules.allows("http://h.test" + row["url"]) is rules.verdict("http://h.test" + row["url"]).allowed
    assert rules.allows("http://h.test" + row["url"]) is row["allowed"]
    assert rules.crawl_delay_s == row.get("delay_s", rules.crawl_delay_s)
    assert ("why" in row) or row["by"] != "on purpose"


@pytest.mark.parametrize(
    ("text", "below"),
    [
        ("User-agent: *\nContent-Signal: a=b\n\nUser-agent: GPTBot\nDisallow: /", "GPTBot"),
        ("User-agent: *\nCrawl-delay: 5\nUser-agent: GPTBot\nUser-agent: CCBot\nDisallow: /", "CCBot"),
        ("User-agent: *\nSitemap: /s\nUser-agent: GPTBot\nDisallow: /", "GPTBot"),
        ("User-agent: shardcrawl\nCrawl-delay: 5\nUser-agent: *\nDisallow: /", "*"),
        ("User-agent: x\nCrawl-delay: 5\nUser-agent: shardcrawl\nDisallow: /", ""),
        ("User-agent: *\nCrawl-delay: 5\nUser-agent: *\nDisallow: /", ""),
        ("User-agent: *\nUser-agent: GPTBot\nDisallow: /", ""),
        ("User-agent: *\n\n# GPT\nUser-agent: GPTBot\nDisallow: /", ""),
        ("User-agent: *\nDisallow: /\nCrawl-delay: 5\n\nUser-agent: GPTBot\nDisallow: /x", ""),
        ("Crawl-delay: 5\nUser-agent: *\nDisallow: /", ""),
        ("User-agent: *\nCrawl-delay: 5\nUser-agent: " + "x" * 999 + "\nDisallow: /", "x" * NAME_CHARS_MAX),
    ],
)
def test_a_line_below_another_name_says_so(text: str, below: str) -> None:
    rules = parse(text)
    verdict = rules.verdict("http://h.test/a")
    assert (verdict.allowed, verdict.below) == (False, below)
    assert RobotsRules.stored(rules.our_group()).verdict("http://h.test/a") == verdict


def test_rules_that_an_earlier_release_stored_are_read() -> None:
    stored = msgspec.msgpack.encode((False, None, ((False, "/a", 2),), ()))
    assert not RobotsRules.stored(stored).allows("http://h.test/a")


BLANKS = " \t\x0b\x0c"  # at both ends of what is in a line
KEYS = {"user-agent": "agent", "useragent": "agent", "user agent": "agent", "allow": "allow"} | dict.fromkeys(
    ("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), "disallow"
)


def field_of(line: str) -> tuple[str, str]:
    """What a line is, and its value; with the typing errors that Google forgives."""
    line = line.partition("#")[0].strip(BLANKS)
    if (named := re.fullmatch(f"([A-Za-z{BLANKS}-]+):(.*)", line)) and (
        key := " ".join(named[1].lower().split())
    ) in KEYS:
        return KEYS[key], named[2].strip(BLANKS)
    if (named := re.fullmatch(f"([A-Za-z-]+)[{BLANKS}]+([^{BLANKS}]+)", line)) and named[1].lower() in KEYS:
        return KEYS[named[1].lower()], named[2]
    return "", ""


def rules_for(text: str) -> list[tuple[str, str]]:
    """The rules of all groups that name our agent, else of those for everyone (section 2.2.1)."""
    if text[:2] in ("\xff\xfe", "\xfe\xff"):
        text = text.encode("latin-1").decode("utf-16", "replace").encode("utf-8", "replace").decode("latin-1")
    text = re.sub("^\xef(\xbb\xbf?)?", "", text).replace("\0", "")
    groups: list[tuple[list[str], list[tuple[str, str]]]] = []
    for line in re.split("\r\n|\r|\n", text):
        kind, value = field_of(line)
        if kind == "agent":
            if not groups or groups[-1][1]:
                groups.append(([], []))
            groups[-1][0].append(value)
        elif kind and groups:
            groups[-1][1].append((kind, value))
    ours = [one for one in groups if any(is_ours(name) for value in one[0] for name in value.split(","))]
    everyone = [one for one in groups if any(re.match(r"\*(?:[ \t]|\Z)", value) for value in one[0])]
    return [rule for _, rules in ours or everyone for rule in rules]


def is_ours(name: str) -> bool:
    return re.split("[/* \t]", name.strip(BLANKS), maxsplit=1)[0].lower() == AGENT


def octets(text: str) -> str:
    """One private character for each octet, escaped or not; a slash as it is (section 2.2.2)."""
    units = re.findall("%[0-9A-Fa-f]{2}|.", text, re.DOTALL)
    return "".join([one if one == "/" else chr(0xE000 + (int(one[1:], 16) if one[1:] else ord(one))) for one in units])


def expressions(kind: str, pattern: str) -> list[tuple[int, str]]:
    """How many octets each has, as escaped text, and the expression."""
    bare = pattern.removesuffix("$")
    end = "" if bare == pattern else r"\Z"
    length = len(re.sub("%[0-9A-Fa-f]{2}|[^A-Za-z0-9_.~=/*-]", spelled, bare)) + bool(end)
    found = [(length, ".*".join(map(octets, bare.split("*"))) + end)]
    parts = bare.split("*")
    cuts = [re.search(r"%([0-9A-Fa-f]?)\Z", one) for one in parts]
    cuts[-1:] = [None] if end else cuts[-1:]
    if kind == "disallow" and any(cuts):  # on purpose: the beginning of an octet begins any
        pairs = zip(parts, cuts, strict=True)
        begun = [octets(one[: cut.start()]) + begun_by(cut[1]) if cut else octets(one) for one, cut in pairs]
        found.append((length - 2 * sum(map(bool, cuts)), ".*".join(begun) + end))
    if kind == "allow" and pattern.endswith("/index.html"):  # as Google's parser
        found.append((length - len("index.html") + 1, found[0][1].removesuffix(octets("index.html")) + r"\Z"))
    return found


def begun_by(digit: str) -> str:
    """Matches the octets that are always escaped in comparisons, or those of them with this first digit."""
    found = [n for n in range(256) if not spelled_alone(n) and f"{n:02X}".startswith(digit.upper())]
    return "[" + "".join(chr(0xE000 + n) for n in found) + "]" if found else "(?!)"


def spelled_alone(octet: int) -> bool:
    return re.fullmatch("[A-Za-z0-9_.~=-]", chr(octet)) is not None


def spelled(odd: re.Match[str]) -> str:
    octet = int(odd[0][1:], 16) if odd[0][1:] else ord(odd[0])
    return chr(octet) if spelled_alone(octet) else f"%{octet:02X}"


def is_allowed(text: str, path: str) -> bool:
    """By the match with the most octets; Allow of two with as many (section 2.2.2)."""
    if path.partition("?")[0] == "/robots.txt":
        return True
    matched = [
        (length, kind == "allow")
        for kind, pattern in rules_for(text)
        if pattern[:1] in ("/", "*")
        for length, expression in expressions(kind, pattern)
        if re.match(expression, octets(path), re.DOTALL)
    ]
    return max(matched, default=(0, True))[1]


LINES = (
    "\n", "\r", ":", " ", "\t", "#", ",", "-", "\0", "\x0b", "\x85", "\xef\xbb\xbf", "User-agent: ", "User-agent: *\n",
    "User-agent: shardcrawl\n", "User-agent: other\n", "Disallow: ", "Allow: ", "Disallow: /\n", "Allow: /x\n", "/",
)  # fmt: skip
PATHS = (
    "/", "x", "y", "*", "$", "%2F", "%78", "%", "%2", "%E9", "\xa9", "\xc3\xa9", "?", "=", ";", ".", "~", "%7E", " ",
    "|", "%2A", "%24", "%3F", "%25", "^", '"', "'", "{", "\\", "+", "&", "@", ":", "(", "[", "!", "\x7f", "`", ",", "<",
    "index.html", "robots.txt",
)  # fmt: skip


def mutated_files(chance: random.Random) -> list[str]:
    """Rows with other lines, and files of two to five rules with other patterns."""
    plain = [row["robots"] for row in ODD if len(row["robots"]) < 300 and "white space" not in row.get("why", "")]
    files = mutants(plain, MUTATIONS // 2, SEED, LINES)
    patterns = mutants(["/", "/x", "/*x", "/x$", "*/y$", "/%2F", "/x?y=*", ""], 3 * MUTATIONS, SEED, PATHS)
    for _ in range(MUTATIONS - len(files)):
        rules = [f"{chance.choice(('Allow', 'Disallow'))}: {one}" for one in chance.sample(patterns, 4)]
        files.append("\n".join(["User-agent: *", *rules[: chance.randint(1, 4)], chance.choice(("Disallow: /", ""))]))
    return files


def paths_like(text: str, chance: random.Random) -> list[str]:
    """Canonical paths that its patterns may match."""
    patterns = [pattern for _, pattern in rules_for(text)] or ["/"]
    near = [re.sub(r"[*$]", lambda _: chance.choice(PATHS), chance.choice(patterns)) for _ in range(8)]
    found = list[str]()
    for one in (*near, *mutants(near, 8, chance.getrandbits(32), PATHS)):
        path = re.sub("[^\x21-\x7e]", lambda odd: f"%{ord(odd[0]):02X}", one.partition("#")[0])
        try:
            found.append(canonicalize(f"http://h.test/{path.removeprefix('/')}").removeprefix("http://h.test"))
        except InvalidUrl:
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mutated_files_allow_what_the_rfc_allows():
    chance = random.Random(SEED)
    odd, compared, forbidden = [], 0, 0
    for text in mutated_files(chance):
        rules = RobotsRules.parse(text.encode("latin-1"), AGENT)
        for path in (*{row["url"] for row in ODD}, *paths_like(text, chance)):
            ours, theirs = rules.allows(f"http://h.test{path}"), is_allowed(text, path)
            compared, forbidden = compared + 1, forbidden + (not theirs)
            if ours != theirs:
                odd.append(f"{'allowed' if ours else 'forbidden'}: {path!r} by {text!r}")
    print(f"{compared} paths, {forbidden} forbidden")
    assert forbidden > compared / 10
    assert not odd, "\n".join([f"{len(odd)} disagreements", *sorted(odd, key=len)[:20]])


def test_the_stored_form_holds_nothing_about_other_agents():
    text = "User-agent: other\nDisallow: /secret\nUser-agent: shardcrawl\nDisallow: /mine\n"
    compact = parse(text).our_group()
    assert b"/mine" in compact
    assert b"secret" not in compact


@pytest.mark.parametrize(
    ("robots", "url", "allowed"),
    [
        (b"\xef\xbb\xbfUser-agent: *\nDisallow: /", "/x", False),
        (b"\xef\xbbUser-agent: *\nDisallow: /", "/x", False),
        ("User-agent: *\nDisallow: /\n".encode("utf-16"), "/x", False),
        (b"User-agent: *\rDisallow: /x\r", "/x", False),
        (b"User-agent: *\rDisallow: /x\r", "/y", True),
        (b"User-\0agent: *\nDisallow:\0 /", "/x", False),
        (b"User-agent: a\nFoo: bar\nUser-agent: shardcrawl\nDisallow: /", "/x", False),
        (b"User-agent: shardcrawl Bot 2\nDisallow: /", "/x", False),
        (b"User-agent: ShardCrawl/1.2 (+http://x)\nDisallow: /", "/x", False),
        (b"User-agent: shard\nDisallow: /", "/x", True),
        (b"User-agent: shardcrawler\nDisallow: /", "/x", True),
        (b"User-agent: *shardcrawl\nDisallow: /", "/x", True),
        (b"User-agent: shardcrawl\n\nUser-agent: *\nDisallow: /", "/x", False),
        (b"User-agent: shardcrawl\nDisallow:\n\nUser-agent: *\nDisallow: /", "/x", True),
        (b"User-agent: *\nDisallow: /a\nUser-agent: x\nDisallow: /b\nUser-agent: *\nDisallow: /c", "/c", False),
        (b"User-agent: *\nDisallow: /a\nUser-agent: x\nDisallow: /b\nUser-agent: *\nDisallow: /c", "/b", True),
        (b"User-agent: *\nDisallow: /robots.txt\nDisallow: /", "/robots.txt", True),
        (b"User-agent: *\nDisallow: /x\nAllow: /x", "/x", True),
        (b"User-agent: *\nDisallow: /%7Ejoe/%2f", "/~joe/%2F", False),
        ("User-agent: *\nDisallow: /ü".encode(), "/%C3%BCx", False),
        (b"User-agent: *\nDisallow: /\xe9", "/%E9x", False),
        (b"User-agent: *\nDisallow: /*.pdf$", "/a.pdf", False),
        (b"User-agent: *\nDisallow: /*.pdf$", "/a.pdf?x", True),
        (b"User-agent: *\nDisallow: /a*b$", "/ab", False),
        (b"User-agent: *\nDisallow: /ab*b$", "/ab", True),
        (b"User-agent: *\nDisallow: /a?b=", "/a?b=1", False),
        (b"User-agent: *\nDisallow: /a%E", "/a%E9", False),
        (b"User-agent: *\nDisallow: /a%E", "/a%C3%A9", True),
        (b"disallow /\n", "/x", True),
        (b"user-agent *\ndisallow /\n", "/x", False),
        (bytes(range(256)) * 20, "/x", True),
        (b"\x89PNG\r\n\x1a\n\0\0", "/x", True),
    ],
)
def test_files_as_sites_really_serve_them_are_read_to_the_sites_benefit(robots, url, allowed):
    assert RobotsRules.parse(robots, AGENT).allows("http://h.test" + url) is allowed


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [("2", 2.0), ("0.5", 0.5), ("0", 0.0), ("1e9", 1e9), ("-1", None), ("nan", None), ("inf", None), ("5s", 5.0),
     ("2 seconds", 2.0), ("1.5sec", 1.5), ("500 ms", 0.5), ("2 min", 120.0), ("3, please", 3.0), ("10;", 10.0),
     ("s5", None), ("1.2.3 s", None), (".", None), ("-2s", None), ("", None)],
)  # fmt: skip
def test_a_crawl_delay_is_a_finite_number_of_seconds_or_none(value, delay_s):
    assert parse(f"User-agent: *\nCrawl-delay: {value}\nDisallow: /x").crawl_delay_s == delay_s


def test_a_crawl_delay_goes_to_the_agents_named_before_it():
    text = "User-agent: a\nCrawl-delay: 1\nUser-agent: shardcrawl\nCrawl-delay: 3\nUser-agent: b\nCrawl-delay: 7\n"
    assert parse(text).crawl_delay_s == 3
    assert parse(text, "a").crawl_delay_s == 1
    assert parse(text, "none").crawl_delay_s is None


def test_our_own_group_replaces_that_of_everyone():
    text = "User-agent: *\nCrawl-delay: 9\nDisallow: /\nUser-agent: shardcrawl\nDisallow: /x\n"
    rules = parse(text)
    assert rules.crawl_delay_s is None
    assert rules.allows("http://h.test/y")


def test_sitemaps_are_kept_from_every_group():
    text = "Sitemap: http://h.test/a.xml\nUser-agent: x\nSitemap: /b.xml\nDisallow: /\nSitemap: http://h.test/a.xml\n"
    assert parse(text).sitemaps == ("http://h.test/a.xml", "/b.xml")


def test_only_so_many_sitemaps_are_kept():
    assert parse("".join(f"Sitemap: /{n}.xml\n" for n in range(101))).sitemaps == tuple(f"/{n}.xml" for n in range(100))


def test_a_web_page_in_place_of_robots_txt_is_flagged_and_allows_all():
    rules = parse("<!doctype html><title>Not found</title>\n<p>User-agent: * is not here")
    assert rules.flagged
    assert rules.allows("http://h.test/")
    assert RobotsRules.stored(rules.our_group()).flagged
    assert not parse("User-agent: *\nDisallow: /").flagged
    assert not parse("").flagged


@pytest.mark.parametrize(
    ("status", "policy"),
    [
        (199, "disallow_all"), (200, "parse"), (202, "disallow_all"), (204, "parse"),
        (299, "parse"), (300, "allow_all"), (301, "allow_all"),
        (304, "disallow_all"), (400, "allow_all"), (401, "allow_all"), (403, "allow_all"), (404, "allow_all"),
        (410, "allow_all"), (428, "allow_all"), (429, "disallow_all"), (430, "allow_all"), (499, "allow_all"),
        (500, "disallow_all"), (503, "disallow_all"), (599, "disallow_all"), (600, "disallow_all"),
        (999, "disallow_all"), (412, "allow_all"),
    ],
)  # fmt: skip
def test_a_status_means_what_the_rfc_defines(status, policy):
    assert robots_policy(status) == policy


@pytest.mark.parametrize(
    ("given", "policy", "why"),
    [
        ({}, "parse", ""),
        ({"status": 404, "truncated": "time"}, "allow_all", ""),
        ({"status": 500}, "disallow_all", "status 500"),
        ({"truncated": "time"}, "disallow_all", "cut off by time"),
        ({"truncated": "length", "body": b"x" * READ_BYTES_MIN}, "parse", ""),
        ({"truncated": "length", "body": b"x" * (READ_BYTES_MIN - 1)}, "disallow_all", "too little"),
        ({"status": 206}, "disallow_all", "status 206"),
        ({"status": 204}, "parse", ""),
        ({"status": 204, "headers": ((b"Content-Length", b"0"),)}, "parse", ""),
        ({"status": 205, "headers": ((b"Content-Length", b"9"),)}, "disallow_all", "status 205"),
        ({"decoded": Decoded.WHOLE}, "parse", ""),
        ({"decoded": Decoded.UNSURE}, "parse", ""),
        ({"decoded": Decoded.UNSURE, "body": b"no line of one"}, "disallow_all", "decoded"),
        ({"decoded": Decoded.UNCODED}, "disallow_all", "decoded"),
        ({"decoded": Decoded.PART}, "disallow_all", "decoded"),
    ],
)
def test_what_is_not_the_whole_file_forbids_everything(given, policy, why):
    values = {"status": 200, "headers": (), "body": b"User-agent: *\n", "raw_body": b"", "reason": "", **given}
    made = Response(
        url="", http_version="1.1", request_head=b"", remote_ip="", started_at=0.0, fetch_ms=0, **values
    )  # fmt: skip
    found, reason = policy_of(made)
    assert found == policy
    assert reason == "" if why == "" else why in reason


CHALLENGE = b"<html><script>sucuri_cloudproxy_js='';w=String.fromCharCode</script></html>"
PAGE, ONE_RULE = b"<!doctype html><title>Home</title>", b"User-agent: *\nDisallow: /\n"
# Status, body, and whether a header names a challenge -> what it means. 202 is how firewalls say "not yet".
ANSWERS = {
    (200, ONE_RULE, False): "parse", (200, PAGE, False): "parse", (200, b"", False): "parse",
    (200, CHALLENGE, False): "disallow_all", (200, ONE_RULE, True): "disallow_all", (200, b"", True): "disallow_all",
    (202, ONE_RULE, False): "disallow_all", (202, PAGE, False): "disallow_all", (202, b"", False): "disallow_all",
    (202, CHALLENGE, False): "disallow_all", (202, b"", True): "disallow_all",
    (203, ONE_RULE, False): "parse", (203, CHALLENGE, False): "disallow_all",
    (403, PAGE, False): "allow_all", (403, CHALLENGE, False): "disallow_all", (403, b"", True): "disallow_all",
    (404, PAGE, False): "allow_all", (404, CHALLENGE, False): "disallow_all", (405, b"", True): "disallow_all",
    (429, PAGE, False): "disallow_all", (429, CHALLENGE, False): "disallow_all",
    (503, PAGE, False): "disallow_all", (503, CHALLENGE, False): "disallow_all",
}  # fmt: skip


@pytest.mark.parametrize("given", ANSWERS, ids=lambda given: f"{given[0]}-{given[1][:9]!r}-{given[2]}")
def test_a_challenge_tells_nothing_of_the_file(given):
    status, body, is_named = given
    headers = ((b"cf-mitigated", b"challenge"),) if is_named else ()
    made = Response(
        url="", http_version="1.1", request_head=b"", remote_ip="", started_at=0.0, fetch_ms=0, status=status,
        reason="", headers=headers, body=body, raw_body=body,
    )  # fmt: skip
    challenge = challenge_of(headers, body)
    policy, why = policy_of(made, challenge)
    assert policy == ANSWERS[given]
    assert ("this site answers with a challenge" in why) == bool(challenge) == (is_named or body == CHALLENGE)
    if policy == "parse" and body == PAGE:
        assert RobotsRules.parse(body, "x").allows("http://h.test/"), "a site of one page is crawled"


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (b"", True), (b"# nothing\n\n", True), (b"Sitemap: /s\n", True), (b"x: y\nAllow: /\n", True),
        (b"x: y\n", False),
        (b"Allow: /\n\xff", False), (b"Allow: /\n\xc3", True), (b"Allow: /\n\xc3x", False), (b"Allow: /\n\0", False),
    ],
)  # fmt: skip
def test_a_body_of_unknown_coding_counts_if_it_looks_like_robots_txt(body, is_one):
    assert is_like_robots(body) is is_one


@pytest.mark.parametrize(
    ("robots", "count"),
    [
        (lambda count: b"User-agent: *\n" + b"".join(b"Disallow: /*a*%d*b\n" % n for n in range(count)), 25_000),
        (lambda count: b"User-agent: *\nDisallow: /" + b"*a" * count + b"*b\n", 8000),
        (lambda count: b"".join(b"User-agent: bot%d\nDisallow: /x%d\n" % (n, n) for n in range(count)), 10_000),
        (lambda count: b"User-agent: *\nDisallow: /" + b"x" * count, 500_000),
    ],
    ids=["wildcard rules", "wildcards in a rule", "groups", "long line"],
)
def test_hostile_files_cost_bounded_time(robots, count):
    """Ten times the file and ten times the URL: unbounded work takes a hundred times as long."""
    small, large = [
        (RobotsRules.parse(robots(n)[:512_000], AGENT), "http://h.test/" + "a" * chars)
        for n, chars in ((count // 10, 800), (count, 8000))
    ]
    assert growth(lambda given: given[0].allows(given[1]), small, large) < LINEAR_MAX


def test_nothing_that_a_site_serves_is_read_as_a_stored_group():
    """A file that began with the mark of stored groups once ended the crawl: `int` takes at most 4,300 digits."""
    text = b"# our group only\n# flagged\nUser-agent: *\nDisallow: /a #" + b"9" * 5000 + b"\nDisallow: /b #7\n"
    rules = RobotsRules.parse(text, AGENT)
    assert [(rule.pattern, rule.line_number) for rule in rules.rules] == [("/a", 4), ("/b", 5)]
    assert not rules.flagged
    group = rules.our_group()
    again = RobotsRules.parse(group, AGENT)
    assert (again.rules, again.crawl_delay_s, again.sitemaps) == ((), None, ())


@pytest.mark.parametrize("blob", [b"# our group only\nUser-agent: *\n", b"\x94", b"\xff" * 10, b"x"])
def test_other_bytes_are_not_a_stored_group(blob):
    with pytest.raises(ValueError, match="not a stored robots"):
        RobotsRules.stored(blob)
    assert RobotsRules.stored(b"") == RobotsRules()


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_line_is_read_to_the_limit_of_googles_parser(beyond):
    limit = 8 * 2083 - 1
    line = b"Disallow: /".ljust(limit, b"a") + b"b" * beyond
    (rule,) = RobotsRules.parse(b"User-agent: *\n" + line, AGENT).rules
    assert rule.pattern == "/" + "a" * (limit - len("Disallow: /"))


@pytest.mark.parametrize("rules", [ALLOW_ALL, parse("User-agent: *\nDisallow: /x\n")])
def test_shared_rules_are_read_back_with_their_time(rules):
    shared = SharedRobots(1_800_000_000, rules)
    assert shared.pack().partition(b" ")[0] == b"1800000000"
    assert SharedRobots.unpack(shared.pack()) == shared
    assert (len(shared.pack()) < 12) == (rules == ALLOW_ALL)


@pytest.mark.parametrize("blob", [b"", b"x ", b"1 x", b" \x94"])
def test_shared_rules_of_an_unknown_format_are_none(blob):
    assert SharedRobots.unpack(blob) is None


def test_control_characters_in_a_pattern_do_not_start_a_line():
    rules = RobotsRules.parse(b"User-agent: *\nDisallow: /a\x0bAllow: /a\x1cDisallow: /b\x85Disallow: /c\n", AGENT)
    assert not rules.allows("http://h.test/a%0BAllow:%20/a%1CDisallow:%20/b%85Disallow:%20/c")
    assert rules.allows("http://h.test/b")
    assert rules.allows("http://h.test/c")


def test_a_long_url_under_many_wildcards_is_checked_in_bounded_time_and_never_let_in_by_that():
    """A search for "aaa...1...aaa" in a URL of a's takes the product of their lengths."""
    lines = [b"Disallow: /*" + b"a" * 45 + b"%d" % number + b"a" * 44 + b"\n" for number in range(4900)]
    few, rules = [
        RobotsRules.parse(b"User-agent: *\nAllow: /*z\n" + b"".join(lines[:count]), AGENT) for count in (490, 4900)
    ]
    middling, long, short = ["http://h.test/" + "a" * chars for chars in (800, 8000, 30)]
    assert growth(lambda given: given[0].allows(given[1]), (few, middling), (rules, long)) < LINEAR_MAX
    assert not rules.allows(long)
    assert rules.verdict(long).line_number
    assert rules.allows(short)


def test_patterns_and_sitemaps_are_shown_in_printable_ascii():
    """Whatever a site serves: people see them on terminals."""
    rules = RobotsRules.parse(b"User-agent: *\nDisallow: /\x1b[2J\xe9\x7f\nSitemap: /\x1b\xff\n", AGENT)
    assert [rule.pattern for rule in rules.rules] == ["/%1B[2J%E9%7F"]
    assert rules.verdict("http://h.test/%1B%5B2J%E9%7F").line == "Disallow: /%1B[2J%E9%7F"
    assert rules.sitemaps == ("/%1B%FF",)


def test_a_delay_of_many_digits_is_ignored():
    assert parse(f"User-agent: *\nCrawl-delay: {'9' * 5000}").crawl_delay_s is None


@pytest.mark.parametrize("key", ["disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "DISALLOW"])
def test_a_misspelled_disallow_is_one(key):
    assert not parse(f"User-agent: *\n{key}: /").allows("http://h.test/x")


def test_beyond_the_bound_wildcards_only_ever_forbid_more():
    lines = [f"Disallow: /d{n}/*x" for n in range(6000)] + ["Allow: /d5999/*y", "Disallow: /e$*x"]
    rules = parse("User-agent: *\n" + "\n".join(lines))
    assert not rules.allows("http://h.test/d10/ax")
    assert rules.allows("http://h.test/d10/a")
    assert not rules.allows("http://h.test/d5999/y")
    assert not rules.allows("http://h.test/e$x")


@given(st.lists(st.sampled_from([
    "User-agent: *", "User-agent: shardcrawl", "User-agent: x", "Disallow: /", "Disallow: /a", "Allow: /a",
    "Allow: /a*b$", "Disallow: /a$b", "Disallow:", "Crawl-delay: 2", "Sitemap: /s", "junk",
    "Allow: /index.html", "Disallow: /ü#x",
])), st.sampled_from(["/", "/a", "/ab", "/a$b", "/index.html", "/axb", "/%C3%BC"]))  # fmt: skip
def test_storage_and_explanation_never_change_a_verdict(lines, path):
    rules = parse("\n".join(lines))
    stored = RobotsRules.stored(rules.our_group())
    assert stored == rules
    verdict = rules.verdict("http://h.test" + path)
    assert verdict == stored.verdict("http://h.test" + path)
    if verdict.line_number:
        assert verdict.line.partition(":")[0] == ("Allow" if verdict.allowed else "Disallow")
    else:
        assert verdict.allowed


RULES = ("User-agent: *", "Disallow: /", "Allow: /secret|/public", "Allow: /next")


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_wherever_a_file_is_cut_it_allows_no_more_than_its_whole_lines(end: str, coding: str) -> None:
    whole = "".join(line + end for line in RULES).encode(coding)
    for at in range(len(whole)):
        rules = RobotsRules.parse(whole[:at], AGENT, is_cut=True)
        seen = whole[:at].decode(coding, "ignore")
        begun = [line for line in RULES if line + end[0] in seen]
        assert [rule.pattern for rule in rules.rules] == [line.partition(": ")[2] for line in begun[1:]], at
        assert rules == RobotsRules.parse("\n".join(begun).encode(), AGENT)


@pytest.mark.parametrize(
    ("last", "allowed"),
    [
        ("Allow: /secret", False),
        ("Allow: /secret/public # the", True),  # the comment ends the pattern
        ("Disallow: /secret # the", False),
        ("Allow", False),
        ("", False),
    ],
)
def test_the_last_line_of_a_cut_file_counts_if_only_its_comment_is_cut(last: str, allowed: bool) -> None:
    rules = RobotsRules.parse(f"User-agent: *\nDisallow: /\n{last}".encode(), AGENT, is_cut=True)
    assert rules.allows("http://a.test/secret/public") == allowed
    assert not rules.allows("http://a.test/secret/other")


def test_a_file_that_is_whole_needs_no_end_of_line() -> None:
    assert not parse("User-agent: *\nDisallow: /secret").allows("http://a.test/secret")
