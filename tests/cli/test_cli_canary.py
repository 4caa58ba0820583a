"""A password is in nothing that exists after a crawl: every kind of login form, and every place.

Each kind is a site of one crawl, with a secret of its own: CORE and the site's name, and characters around it that are
written in another way in URLs, forms and JSON. The core is looked for in any spelling, in all that is left: the folder
with its compressed files, the engine's keys, a backup, the outputs, the terminal, each command, and each answer of the
API.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import re
import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import pytest

from crawler.api.routes import ROUTES
from crawler.crawl.opening import open_crawl
from crawler.hosts import login
from crawler.settings import load
from crawler.testing import Answer, Asked, serve
from tests.api.api_lab import served
from tests.cli.cli_lab import Ran, forget_apps, in_process
from tests.crawl.members_site import html
from tests.support.processes import Nursery, nursery

CORE = "zQk7Canary"
MIRRORED = "zQk7Mirrored"  # of sites that write the password into their pages
PUBLIC = "zQk7Public"  # of one that writes it into its robots.txt, which anybody may read, and the engine keeps
FORM = '<meta charset={charset}><form id=in action="{action}" method={method} enctype="{enctype}">{fields}</form>'
FIELDS = "<input name=user><input type=password name=pass><button name=go>in</button>"
IN = ("Set-Cookie", "sid=ok; Path=/")
URLENCODED = "application/x-www-form-urlencoded"


def core_of(kind: str) -> str:
    return f"{PUBLIC if kind == 'mrobots' else MIRRORED if kind in MIRRORS else CORE}{kind}"


def secret_of(kind: str) -> str:
    return f"ü/{core_of(kind)}\"'& ~+%"


class Kind(NamedTuple):
    """`answer`: to the form, (status, Location, body); "PASS" in a Location is the password as it came. `table`: of the
    login in the settings; `code`: in a function instead, which may judge the pages (`judges`).
    """

    method: str = "post"
    answer: tuple[int, str, str] = (303, "/home", "")
    table: str = ""
    action: str = "/in"
    enctype: str = URLENCODED
    charset: str = "utf-8"
    fields: str = FIELDS
    robots: str = ""
    code: str = ""
    judges: str = "None"
    is_in: bool = True  # does the login succeed?


GET = "allow_get = true"
KINDS = {
    "post": Kind(),
    "multipart": Kind(enctype="multipart/form-data"),
    "plain": Kind(enctype="text/plain"),
    "latin": Kind(method="get", charset="latin-1", table=GET),
    "getrefused": Kind(method="get", is_in=False),
    "getallowed": Kind(method="get", table=GET),
    "getforbidden": Kind(method="get", table=GET, robots="User-agent: *\nDisallow: /in", is_in=False),
    "getnotallowed": Kind(method="get", robots="User-agent: *\nDisallow: /in", is_in=False),
    "postforbidden": Kind(robots="User-agent: *\nDisallow: /in", is_in=False),
    **{f"post{n}": Kind(answer=(n, "/home?p=PASS", "")) for n in (301, 302, 303, 307, 308)},
    **{f"get{n}": Kind(method="get", answer=(n, "/home?p=PASS", ""), table=GET) for n in (301, 302, 303, 307, 308)},
    "inpath": Kind(answer=(303, "/home/PASS", "")),
    "othersite": Kind(answer=(303, "//evil.test/?p=PASS", ""), is_in=False),
    "otherhost": Kind(answer=(303, "//www.HOST/?p=PASS", ""), is_in=False),
    "inhost": Kind(answer=(303, "http://PASS.evil.test/", ""), is_in=False),
    "loop": Kind(method="get", answer=(302, "/in?p=PASS", ""), table=GET, is_in=False),
    "nowhere": Kind(method="get", answer=(302, "ftp://x/?p=PASS", ""), table=GET, is_in=False),
    "busy": Kind(method="get", answer=(503, "", ""), table=GET, is_in=False),
    "error": Kind(method="get", answer=(500, "", ""), table=GET, is_in=False),
    "refused": Kind(method="get", answer=(403, "", ""), table=GET, is_in=False),
    "missing": Kind(method="get", answer=(404, "", ""), table=GET, is_in=False),
    "large": Kind(method="get", answer=(200, "", "LARGE"), table=GET),
    "named": Kind(method="get", action="//www.HOST/in", table=f'{GET}, action_hosts = ["www.HOST"]'),
    "unnamed": Kind(action="//www.HOST/in", is_in=False),
    "elsewhere": Kind(method="get", action="//evil.test/in", table=GET, is_in=False),
    "dead": Kind(method="get", action="//no.HOST/in", table=f'{GET}, action_hosts = ["no.HOST"]', is_in=False),
    "port": Kind(method="get", action="http://HOST:22/in", table=f'{GET}, action_hosts = ["HOST:22"]', is_in=False),
    "again": Kind(method="get", answer=(200, "", "<form id=in>"), table=GET, judges="False", is_in=False,
                  code="page.submit('#in', {'user': 'me', 'pass': SECRET})"),
    "judgefails": Kind(method="get", answer=(200, "", "<p>in"), judges="page.css_first('#none')", is_in=False,
                       code="page.submit('#in', {'user': 'me', 'pass': SECRET})"),
    "select": Kind(fields="<input name=user><select name=pass><option>a</select>", is_in=False,
                   code="page.submit('#in', {'user': 'me', 'pass': SECRET})"),
    "nofield": Kind(fields="<input name=user>", is_in=False, code="page.submit('#in', {'user': 'me', 'pass': SECRET})"),
    "raises": Kind(code="page.submit('#in', {'user': 'me', 'pass': SECRET}); raise ValueError(SECRET)", is_in=False),
    "followed": Kind(method="get", code="page.follow('/in', method='GET', form={'pass': SECRET})"),
    "json": Kind(answer=(303, "/home?p=PASS", ""), code="page.follow('/in', json={'a': [{'pass': SECRET}]})"),
    "token": Kind(code="page.follow('/in', form={'pass': SECRET}, headers={'X-Token': ASCII}, cross_origin=True)"),
}  # fmt: skip
# Sites that have the password in their pages, which are archived as they came: it gets into nothing else, and is not
# requested. P: percent-encoded.
SPELLINGS: list[Callable[[str], str]] = [
    quote_plus,
    lambda text: quote(text, safe=""),
    lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text.encode("latin-1"), safe="")),
    lambda text: quote(quote(text, safe="")),
    escape,
    lambda text: quote(base64.b64encode(text.encode())),
    lambda text: quote(base64.b64encode(f"me:{text}".encode())),
    lambda text: quote(json.dumps(text)),
]
MIRRORS = {
    "mlink": "".join(f'<a href="/l{n}?p=S{n}">x</a><a href="/l/S{n}">x</a>' for n in range(len(SPELLINGS))),
    "mbase": '<base href="/P/"><a href="one">x</a>',
    "mfragment": '<a href="/f#P">x</a><a href="/g?a=1#p=P">x</a>',
    "mcanonical": '<link rel=canonical href="/c?p=P">',
    "mrefresh": '<meta http-equiv=refresh content="9; url=/r?p=P">',
    "mtitle": "<title>Hello S4</title>",
    "mframe": '<iframe src="/f?p=P"></iframe><area href="/a?p=P">',
    "mheader": "",  # Refresh, Link, Location, Content-Location, Set-Cookie
    "mredirect": '<a href="/to">x</a>',
    "mrobots": "",  # a sitemap
}
# Requests for pages that have a secret: by the settings, and by handlers, which are refused.
SENT = {
    "auth": 'auth = "me:{ascii}"',
    "header": 'headers = {{ "X-Api-Token" = {{ env = "PW_HEADER_ASCII" }} }}',
    "cookie": 'cookies = {{ id = "{ascii}" }}',
}
HANDLED = {
    "getform": "page.submit('form', {'user': 'me', 'pass': SECRET})",
    "geturl": "page.follow('/x?p=' + quote(SECRET))",
    "getsecret": "page.follow('/x', method='GET', form={'a': SECRET}, secret=True)",
    "start": "Crawler.request('http://geturl.test/?p=' + quote(SECRET))",
    "hraises": "raise ValueError(SECRET)",
    "hkey": "{}[SECRET]",
    "hbase": "raise ValueError(b64encode(SECRET.encode()).decode() + escape(SECRET) + json.dumps(SECRET))",
    "hlogs": "page.log.warning(SECRET, extra={'a': [SECRET], 'b': escape(SECRET), 'c': repr(SECRET)})",
    # With processes=True:
    "praises": "raise ValueError(SECRET)",
    "pkey": "{}[SECRET]",
    "pfollows": "page.follow('/x?p=' + quote(SECRET))",
    "pform": "page.submit('form', {'user': 'me', 'pass': SECRET})",
}


class Web:
    """All sites. `got`: kinds whose secret has arrived."""

    hosts = tuple(f"{sub}{kind}.test" for kind in (*KINDS, *SENT, *HANDLED, *MIRRORS, "evil") for sub in ("", "www."))

    def __init__(self) -> None:
        self.got = set[str]()
        self.led = list[str]()  # to what pages say

    def answer(self, url: str) -> Answer | None:
        raise NotImplementedError

    def respond(self, asked: Asked) -> Answer | None:
        parts = urlsplit(asked.url)
        host, path = str(parts.hostname), parts.path
        name = host.removesuffix(".test").rpartition(".")[2]
        text = f"{asked.url} {asked.headers} {asked.body.decode('latin-1')}"
        if any(found in text for found in spellings_of(core_of(name))):
            self.got.add(name)
        if name in MIRRORS and found_in(unquote(asked.url).encode(), cores=(MIRRORED, PUBLIC)):
            self.led.append(asked.url)
        kind = KINDS.get(name) or (Kind() if name in MIRRORS else None)
        if path == "/robots.txt":
            sitemap = (
                f"Sitemap: http://mrobots.test/s?p={quote(secret_of(name), safe='')}\n" if name == "mrobots" else ""
            )
            return (
                Answer(body=f"{kind.robots}{sitemap}".encode()) if kind is not None and kind.robots + sitemap else None
            )
        if kind is None:
            return self._plain(name, path)
        if path == "/login":
            return html(FORM.format(**kind._asdict()).replace("HOST", f"{name}.test"))
        if path == "/in":
            return self._sent_to(name, kind, asked)
        if "sid=ok" not in asked.headers.get("cookie", ""):
            return Answer(status=303, headers=[(b"Location", f"http://{name}.test/login?next={path}".encode())])
        if name in MIRRORS:
            return mirrored(name, path)
        return html("<title>in</title><a href=/p/1>1</a><a href=/missing>x</a>", IN)

    def _sent_to(self, name: str, kind: Kind, asked: Asked) -> Answer:
        status, location, body = kind.answer
        body = body.replace("LARGE", "<p>x</p>" * 400_000)
        came = secret_in(asked)
        is_host = "PASS." in location
        location = location.replace("PASS", "".join(filter(str.isalnum, came)) if is_host else came)
        headers = [(b"Content-Type", b"text/html"), (b"Set-Cookie", f"sid=ok; Path=/; Domain={name}.test".encode())]
        if location:
            headers.append((b"Location", location.replace("HOST", f"{name}.test").encode("latin-1")))
        return Answer(status=status, headers=headers, body=body.encode())

    def _plain(self, name: str, path: str) -> Answer:
        if path == "/p/1":
            return Answer(status=302, headers=[(b"Location", b"/p/2")])
        if path == "/p/2":
            return Answer(status=500)
        form = FORM.format(action="/in", method="get", enctype="", charset="utf-8", fields=FIELDS)
        return html(f"{form}<a href=/p/1>1</a>")


def mirrored(name: str, path: str) -> Answer:
    """A page with the password of its login."""
    secret = secret_of(name)
    text = MIRRORS[name].replace("P", quote(secret, safe=""))
    for n, spell in enumerate(SPELLINGS):
        text = text.replace(f"S{n}", spell(secret))
    headers = [IN] if path != "/" else []
    if name == "mheader" or path == "/to":
        where = f"/h?p={quote(secret, safe='')}"
        headers += [("Refresh", f"9; url={where}"), ("Link", f"<{where}>; rel=canonical"), ("Location", where)]
        headers += [("Content-Location", where), ("Set-Cookie", f"p={quote(secret)}")]
    answer = html(text, *headers)
    return replace(answer, status=302) if path == "/to" else answer


def secret_in(asked: Asked) -> str:
    """As it came, percent-encoded."""
    if asked.url.partition("?")[2]:
        pairs = dict(parse_qsl(asked.url.partition("?")[2]))
        return quote(pairs.get("pass") or pairs.get("p") or "", safe="")
    with contextlib.suppress(ValueError):
        return quote(json.loads(asked.body)["a"][0]["pass"], safe="")
    return quote(dict(parse_qsl(asked.body.decode("latin-1"))).get("pass", ""), safe="")


def spellings_of(core: str) -> list[str]:
    """What a text has if the core is in it, plain or in base64, whatever stands before it."""
    coded = [base64.b64encode(b"x" * n + core.encode()).decode()[2 * n : -4] for n in range(3)]
    return [core, *(one.lstrip("=")[2:] for one in coded)]


def app_of() -> str:
    """The file of an app with the logins and handlers in code."""
    lines = [
        "import json, os",
        "from base64 import b64encode",
        "from html import escape",
        "from urllib.parse import quote",
        "from crawler import Crawler",
        "app = Crawler()",
    ]
    for name, kind in KINDS.items():
        if kind.code:
            lines += [
                f"@app.login('http://{name}.test/login', allow_get=True)", f"def login_{name}(page):",
                f"    SECRET = os.environ['PW_{name.upper()}']; ASCII = {CORE + name!r}", f"    {kind.code}",
            ]  # fmt: skip
    judges = {name: kind.judges for name, kind in KINDS.items() if kind.judges != "None"}
    lines += ["@app.logged_in", "def judge(page):"]
    lines += [f"    if '//{name}.test/' in page.url: return bool({code})" for name, code in judges.items()]
    apart = [name for name in HANDLED if name.startswith("p")]
    patterns = ", ".join(f"'http://{name}.test/'" for name in apart)
    for head, function, names in (
        ("statuses=(200, 404)", "every", [name for name in HANDLED if name not in apart]),
        (f"{patterns}, processes=True", "apart", apart),
    ):
        lines += [f"@app.page({head})", f"def {function}(page):", "    page.log.info('seen')"]
        for name in names:
            lines += [f"    if page.url == 'http://{name}.test/':", f"        SECRET = os.environ['PW_{name.upper()}']"]
            lines += [f"        {HANDLED[name]}"]
        lines += ["    yield {'url': page.url}"]
    return "\n".join([*lines, ""])


def config_of() -> str:
    tables = []
    for name, kind in KINDS.items():
        if not kind.code:
            more = f", {kind.table}".replace("HOST", f"{name}.test") if kind.table else ""
            tables += [
                f'[[sites]]\nmatch = "{name}.test"',
                f'login = {{url = "http://{name}.test/login", user = "me", password_env = "PW_{name.upper()}"{more}}}',
            ]  # fmt: skip
    for name, line in SENT.items():
        tables.append(f'[[sites]]\nmatch = "http://{name}.test/"\n{line.format(ascii=CORE + name)}')
    # A handler can only know the secrets of logins.
    for name in MIRRORS:
        more = f'url = "http://{name}.test/login", user = "me", password_env = "PW_{name.upper()}"'
        tables.append(f'[[sites]]\nmatch = "{name}.test"\nlogin = {{{more}}}')
    for name in HANDLED:
        more = f'url = "http://{name}-login.test/login", user = "me", password_env = "PW_{name.upper()}"'
        tables.append(f'[[sites]]\nmatch = "{name}-login.test"\nlogin = {{{more}}}')
    return "\n".join(tables)


def found_in(*data: bytes, cores: Sequence[str] = (CORE, MIRRORED)) -> list[str]:
    """Where a core is, in any spelling; of compressed data also within."""
    words = [one.lower() for core in cores for one in spellings_of(core)]
    found = [*data]
    for one in data:
        if one.startswith(b"\x1f\x8b"):
            with contextlib.suppress(OSError, EOFError, zlib.error):
                found.append(gzip.decompress(one))
    texts = [one.decode("latin-1").lower() for one in found]
    return [text[max(0, at - 200) : at + 60] for text in texts for word in words for at in [text.find(word)] if at >= 0]


class Canary(NamedTuple):
    """A crawl that is over. `said` on the terminal; `got`: sites whose secret arrived there."""

    folder: Path
    programs: Nursery
    where: list[str]
    said: Ran
    got: frozenset[str]
    led: list[str]
    environment: dict[str, str]

    def run(self, line: str) -> bytes:
        """What a command says."""
        ran = in_process(self.programs, *shlex.split(line.replace("FOLDER", str(self.folder))), *self.where)
        return f"{ran.code}\n{ran.out}\n{ran.err}".encode()


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    folder, web = tmp_path_factory.mktemp("canary"), Web()
    (folder / "app.py").write_text(app_of())
    (folder / "crawler.toml").write_text(config_of())
    environment = {f"PW_{name.upper()}": secret_of(name) for name in (*KINDS, *SENT, *HANDLED, *MIRRORS)}
    environment |= {"PW_HEADER_ASCII": f"{CORE}header", "CRAWLER_CRAWL_PARTITIONS": "16"}
    environment |= {"CRAWLER_HOSTS_FAILURES": "100", "CRAWLER_LOG_LEVEL": "debug"}
    environment |= {f"CRAWLER_RETRY_{kind}BACKOFF_S": "0.05" for kind in ("", "SERVER_ERROR_", "SERVER_BUSY_")}
    where = ["--dir", str(folder / "c"), "--config", str(folder / "crawler.toml")]
    out = [word for name in ("o.jsonl", "o.csv") for word in ("-o", str(folder / name))]
    with pytest.MonkeyPatch.context() as patch, serve(web) as served:
        forget_apps(patch)
        patch.setattr(login, "TRY_AGAIN_MS", 10)
        environment |= served.environment
        with nursery(environment) as programs:
            words = [*SEEDS, *where, "--app", str(folder / "app.py"), "--delay", "0", "-vv", *out]
            said = in_process(programs, "crawl", *words)
            yield Canary(folder, programs, where, said, frozenset(web.got), web.led, environment)


SEEDS = [f"http://{name}.test/" for name in (*KINDS, *SENT, *HANDLED, *MIRRORS)]
COMMANDS = (
    "stats", "stats --json", "stats --losses", "stats --top 100", "seeds", "seeds --json", "oplog", "oplog --json",
    "dead list", "dead list --json", "dead show", "ring", "ring --json", "check", "settings", "doctor", "audit",
    "export -o -", "export --items -o -", "export --columns links -o -", "backup FOLDER/b.backup", "jobs list", "boost",
    "fetch http://auth.test/", "dead retry --reason handler", "unblock post303.test", "history --domain geturl.test",
    *(f"{command} {name}.test" for name in ("getforbidden", "judgefails", "loop") for command in ("stats",)),
    *(f"explain http://{name}.test/" for name in ("getforbidden", "judgefails", "loop", "dead", "getform")),
)  # fmt: skip
FAIL = {name for name, kind in KINDS.items() if not kind.is_in}


@pytest.mark.slow(ci=True)
def test_no_secret_is_in_what_a_crawl_leaves_and_says(canary: Canary) -> None:
    log = (canary.folder / "c" / "log").rglob("*")
    failed = {
        line["site"].removesuffix(".test")
        for file in log if file.is_file()
        for line in map(json.loads, file.read_text().splitlines()) if line.get("event") == "login.failed"
    }  # fmt: skip
    assert failed == FAIL, canary.said
    assert canary.got >= {name for name, kind in KINDS.items() if kind.is_in} | {*SENT}
    assert not canary.got & {*HANDLED}
    assert canary.led == []
    assert found_in(canary.said.out.encode(), canary.said.err.encode()) == []
    assert _files(canary.folder) == {}
    for command in ("stats --top 100", "oplog --json", "stats getforbidden.test", "explain http://getforbidden.test/"):
        said = canary.run(command)
        assert found_in(said) == []
        assert b"getforbidden" in said
    assert _files(canary.folder) == {}


def _files(folder: Path) -> dict[str, list[str]]:
    """Files of the folder that have a secret, but for the two that we gave."""
    found = {}
    for file in folder.rglob("*"):
        is_ours = file.name in ("app.py", "crawler.toml") or file.suffix == ".pyc"
        cores = (CORE,) if file.parent.name == "warc" else (CORE, MIRRORED)
        if file.is_file() and not is_ours and (those := found_in(file.read_bytes(), cores=cores)):
            found[str(file.relative_to(folder))] = those
    return found


@pytest.mark.slow(seconds=40)
def test_no_secret_is_in_what_commands_and_the_api_answer(canary: Canary) -> None:
    for command in COMMANDS:
        said = canary.run(command)
        assert found_in(said) == [], command
        assert not said.startswith(b"1\n"), said  # a bug
    answers = asyncio.run(_api(canary))
    assert len(answers) > 3 * len(SEEDS)
    assert {path: those for path, raw in answers.items() if (those := found_in(raw))} == {}
    assert _files(canary.folder) == {}


async def _api(canary: Canary) -> dict[str, bytes]:
    """What each route answers to a GET; of those for a domain or a URL, for each of ours."""
    options = {"archive.dir": str(canary.folder / "c")}
    settings = load(canary.folder / "crawler.toml", environment=canary.environment, options=options)
    paths = [route.path for route in ROUTES if route.method == "GET" and "{" not in route.path]
    for seed in SEEDS:
        host = seed[7:-1]
        paths += [
            f"/v1/domains/{host}",
            f"/v1/explain?url={seed}",
            f"/v1/history?url={seed}",
            f"/v1/ring/place?url={seed}",
        ]
    answers = {}
    async with open_crawl(settings, create=False) as crawl, served(crawl) as api:
        for path in paths:
            async with api.http.get(api.url(path)) as answer:
                answers[path] = await (answer.content.readany() if path == "/v1/events" else answer.read())
    return answers


def test_the_canary_is_seen_where_it_is() -> None:
    """In each spelling, also compressed."""
    secret = secret_of("post")
    for text in (secret, json.dumps(secret), quote(secret), quote_plus(secret), repr(secret), secret.upper()):
        assert found_in(text.encode())
        assert found_in(gzip.compress(text.encode()))
    for before in ("", "a", "ab"):
        assert found_in(base64.b64encode(f"{before}{secret}".encode()))
    assert found_in(b"innocent") == []
