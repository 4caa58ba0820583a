"""Keys, contacts and what sites see, on the command line; and that a key is in nothing that a crawl leaves."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.crawl.opening import open_crawl
from crawler.crawl.terms import settle
from crawler.errors import UsageError
from crawler.rules.signatures import DIRECTORY_TYPE
from crawler.settings import load
from crawler.views import identity
from crawler.web.signing_keys import read_keys
from tests.cli.cli_lab import QUICK, in_process
from tests.support.processes import Nursery, nursery
from tests.support.serving import serve_resources
from tests.support.signing_site import key_of
from tests.support.tls import Authority
from tests.support.web import Resource

HOST = "127.0.0.1"
SIGNED = ("--set", "identity.sign=always", "--set", "identity.key_file=bot.key")
PAGE = Resource(body="<a href='/b'>b</a>", content_type="text/html")


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


def secret_of(path: Path) -> str:
    return read_keys(str(path)).keys[0].d


def test_a_key_is_made_shown_and_renewed(programs: Nursery, tmp_path: Path) -> None:
    made = in_process(programs, "identity", "new", "bot.key", cwd=tmp_path)
    assert made.code == 0
    secret, (old,) = secret_of(tmp_path / "bot.key"), read_keys(str(tmp_path / "bot.key")).ids
    again = in_process(programs, "identity", "new", "bot.key", cwd=tmp_path)
    assert (again.code, again.err.count("\n")) == (2, 1)
    agent = ("--set", "identity.agent=https://bot.example")
    shown = in_process(programs, "identity", "show", "bot.key", *agent, cwd=tmp_path)
    as_json = json.loads(in_process(programs, "identity", "show", "bot.key", *agent, "--json", cwd=tmp_path).out)
    assert as_json["keys"][0]["keyid"] == old
    assert as_json["directory"]["url"] == "https://bot.example/.well-known/http-message-signatures-directory"
    renewed = in_process(programs, "identity", "renew", "bot.key", "--after", "1h", cwd=tmp_path)
    assert (renewed.code, in_process(programs, "identity", "renew", "bot.key", cwd=tmp_path).code) == (0, 2)
    keys = read_keys(str(tmp_path / "bot.key"))
    assert (keys.ids[0], keys.current(time.time()).kid, keys.current(time.time() + 3601).kid) == (old, old, keys.ids[1])
    published = in_process(programs, "identity", "show", "bot.key", *agent, "--to", "out", cwd=tmp_path)
    assert published.code == 0
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert [key["kid"] for key in json.loads(files["http-message-signatures-directory"])["keys"]] == [*keys.ids]
    told = "".join((made.out, made.err, shown.out, renewed.out, renewed.err, *files.values()))
    assert secret not in told
    assert keys.keys[1].d not in told
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_directory_is_signed_by_each_of_its_keys(programs: Nursery, tmp_path: Path) -> None:
    """Verified by hand, as draft-ietf-webbotauth-httpsig-protocol-00 wants it."""
    import base64
    import hashlib

    path = str(tmp_path / "bot.key")
    identity.make_key_file(path, time.time())
    identity.renew_key_file(path, time.time(), after_s=60)
    arguments = ("identity", "show", path, "--set", "identity.agent=https://bot.example:8443", "--json")
    directory = json.loads(in_process(programs, *arguments).out)["directory"]
    headers, keys = dict(directory["headers"]), json.loads(directory["body"])["keys"]
    digest = base64.b64encode(hashlib.sha256(directory["body"].encode()).digest()).decode()
    assert headers["Content-Digest"] == f"sha-256=:{digest}:"
    inputs, signatures = headers["Signature-Input"].split(", "), headers["Signature"].split(", ")
    assert len(inputs) == len(signatures) == len(keys) == 2
    for number, (given, signature, key) in enumerate(zip(inputs, signatures, keys, strict=True), 1):
        label, _, parameters = given.partition("=")
        assert label == f"key{number}"
        assert f'keyid="{key["kid"]}"' in parameters
        assert 'tag="http-message-signatures-directory"' in parameters
        base = (
            f'"@authority";req: bot.example:8443\n"content-digest": {headers["Content-Digest"]}\n'
            f'"@signature-params": {parameters}'
        )
        raw = base64.b64decode(signature.removeprefix(f"{label}=:").removesuffix(":"))
        key_of(key["x"]).verify(raw, base.encode())


def test_a_key_in_a_crawl_folder_or_for_all_to_read_is_refused(programs: Nursery, tmp_path: Path) -> None:
    with serve_resources({(HOST, "/"): PAGE}) as site:
        url = site.url(HOST)
        assert in_process(programs, "crawl", url, *QUICK, cwd=tmp_path).code == 0
        inside = in_process(programs, "identity", "new", "crawl-data/bot.key", cwd=tmp_path)
        assert (inside.code, "inside of the crawl folder" in inside.err) == (2, True)
        assert in_process(programs, "identity", "new", "bot.key", cwd=tmp_path).code == 0
        (tmp_path / "bot.key").chmod(0o644)
        for command in (("crawl", url, "--dir", "new"), ("fetch", url), ("identity", "show")):
            ran = in_process(programs, *command, *SIGNED, *QUICK[:1] * (command[0] != "identity"), cwd=tmp_path)
            assert (ran.code, ran.err.strip().count("\n")) == (2, 0), command
            assert "chmod 600 bot.key" in ran.err


def test_a_machine_without_the_key_does_not_crawl(programs: Nursery, tmp_path: Path) -> None:
    """The same engine, with folders for two machines; the key may be changed for the whole crawl."""
    resources = {(HOST, "/"): PAGE, (HOST, "/b"): PAGE, (HOST, "/c"): PAGE}
    with serve_resources(resources) as site:
        url = site.url(HOST)
        paths = [str(tmp_path / name) for name in ("bot.key", "other.key")]
        for path in paths:
            identity.make_key_file(path, time.time())
        done = in_process(programs, "crawl", url, *QUICK, *SIGNED, "--pages", "1", cwd=tmp_path)
        assert done.code == 0
        secret = secret_of(tmp_path / "bot.key")
        own_settings = in_process(programs, "settings", cwd=tmp_path)
        assert f"the key {read_keys(paths[0]).ids[0]}" in own_settings.out
        again = in_process(programs, "crawl", url, *QUICK, cwd=tmp_path)  # neither sign nor key named again
        assert again.code == 0
        assert all("signature" in one.headers for one in site.requests())
        (tmp_path / "bot.key").rename(tmp_path / "away.key")
        lost = in_process(programs, "crawl", url + "c", *QUICK, cwd=tmp_path)
        assert (lost.code, lost.err.strip().count("\n")) == (2, 0)
        assert "there is no key file" in lost.err
        wrong = in_process(
            programs, "crawl", url + "c", *QUICK, "--set", f"identity.key_file={paths[1]}", cwd=tmp_path
        )  # fmt: skip
        assert (wrong.code, "copy the file" in wrong.err) == (2, True)
        changed = in_process(programs, "settings", f"identity.key_file={paths[1]}", cwd=tmp_path)
        assert (changed.code, read_keys(paths[1]).ids[0] in changed.out) == (0, True)
        assert in_process(programs, "crawl", url + "c", *QUICK, cwd=tmp_path).code == 0
        assert all("signature" in one.headers for one in site.requests())
    left = [path for path in (tmp_path / "crawl-data").rglob("*") if path.is_file()]
    assert not [path for path in left if secret.encode() in path.read_bytes()]


def test_without_the_libraries_there_is_one_line(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crawler.web import signing_keys

    real = signing_keys.find_spec
    monkeypatch.setattr(signing_keys, "find_spec", lambda name: None if name == "http_sf" else real(name))
    for command in (("identity", "new", "bot.key"), ("fetch", "http://127.0.0.1:9/", *SIGNED)):
        ran = in_process(programs, *command, cwd=tmp_path)
        assert (ran.code, ran.err.strip().count("\n")) == (2, 0)
        assert "pip install" in ran.err
    assert not (tmp_path / "bot.key").exists()


BAD = [
    "nonsense", "me", "a@", "@b.example", "ftp://a.example/", "https://", "https://a b/", "https://u@a.example/",
    "https://a.example/(x)", "a@b.example\r\nX-Evil: 1", "a@b@c.example", "mailto:a@b.example", "a,b@c.example",
    "x" * 600 + "@a.example", "https://a.example:x/",
]  # fmt: skip
GOOD = [
    "bot@you.example",
    "https://you.example/bot?a=b#c",
    "http://localhost:8080/",
    "https://[2001:db8::1]/",
    "a.b+c@d",
]


@pytest.mark.parametrize("contact", BAD)
def test_a_contact_that_nobody_can_use_is_refused(programs: Nursery, contact: str) -> None:
    ran = in_process(programs, "fetch", "http://127.0.0.1:9/", "--contact", contact)
    assert (ran.code, ran.err.strip().count("\n")) == (2, 0)
    assert "fetch.contact" in ran.err
    assert "X-Evil: 1\n" not in ran.err


@pytest.mark.parametrize("contact", GOOD)
def test_a_contact_is_sent_where_it_belongs(programs: Nursery, contact: str, tmp_path: Path) -> None:
    with serve_resources({(HOST, "/"): PAGE}) as site:
        in_process(programs, "fetch", site.url(HOST), "--allow-private", "--contact", contact, cwd=tmp_path)
        for one in site.requests():
            assert one.agent.endswith(f"(+{contact})")
            assert one.headers.get("from", "") == (contact if "://" not in contact else "")
    ran = in_process(programs, "doctor", "--contact", contact, "--json", cwd=tmp_path)
    (request,) = [check for check in json.loads(ran.out) if check["name"] == "request"]
    assert f"(+{contact})" in request["lines"][2]


def test_the_doctor_shows_what_the_crawl_of_the_folder_sends(programs: Nursery, tmp_path: Path) -> None:
    with serve_resources({(HOST, "/"): PAGE}) as site:
        more = ("--contact", "bot@a.test", "--set", "robots.agent=ours")
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, *more, cwd=tmp_path).code == 0
    for words, contact in (((), "bot@a.test"), (("--contact", "bot@b.test"), "bot@b.test")):
        ran = in_process(programs, "doctor", *words, "--json", cwd=tmp_path)
        (request,) = [check for check in json.loads(ran.out) if check["name"] == "request"]
        assert f"From: {contact}" in request["lines"]
        assert request["found"].startswith("obeys the rules for ours ")


def test_a_crawl_that_has_another_contact_keeps_it(
    programs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_resources({(HOST, "/"): PAGE}) as site, monkeypatch.context() as patch:
        patch.setattr(sys.modules["crawler.settings.load"], "fault_of_contact", lambda contact: "")
        assert in_process(programs, "crawl", site.url(HOST), *QUICK, "--contact", "me", cwd=tmp_path).code == 0
        patch.undo()
        again = in_process(programs, "crawl", site.url(HOST, "/b"), *QUICK, cwd=tmp_path)
        assert (again.code, site.requests()[-1].agent.endswith("(+me)")) == (0, True)
        changed = in_process(programs, "settings", "fetch.contact=you", cwd=tmp_path)
        assert (changed.code, "fetch.contact" in changed.err) == (2, True)


@contextlib.contextmanager
def directory_of(files: dict[str, Any], tls: Authority, *, skew_s: float = 0.0) -> Iterator[str]:
    """Serves what `identity show` gives over TLS; its clock is off by `skew_s`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files["body"].encode()
            self.send_response_only(files.get("status", 200))
            self.send_header("Date", formatdate(time.time() + skew_s, usegmt=True))
            for name, value in files["headers"]:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.socket = tls.server(name="localhost", san=f"IP:{HOST}").wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"https://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


CASES: list[tuple[str, dict[str, Any], float, int, str]] = [
    ("right", {}, 0.0, 0, "has the key"),
    ("ahead", {}, -3600.0, 7, "not yet valid"),
    ("behind", {}, 3600.0, 7, "expired"),
    ("other key", {"body": '{"keys":[]}'}, 0.0, 7, "has no key"),
    ("no JSON", {"body": "<html>"}, 0.0, 7, "not a JWK set"),
    ("missing", {"status": 404}, 0.0, 7, "status 404"),
    ("unsigned", {"headers": [("Content-Type", DIRECTORY_TYPE)]}, 0.0, 0, "not signed"),
    ("other type", {"headers": [("Content-Type", "text/plain")]}, 0.0, 0, "has the type text/plain"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "other", "skew_s", "code", "said"), CASES)
def test_the_doctor_reads_the_published_directory(
    programs: Nursery, tmp_path: Path, name: str, other: dict[str, Any], skew_s: float, code: int, said: str
) -> None:
    identity.make_key_file(str(tmp_path / "bot.key"), time.time())
    shown = in_process(
        programs, "identity", "show", "bot.key", "--set", "identity.agent=https://bot.example", "--json", cwd=tmp_path
    )  # fmt: skip
    files = json.loads(shown.out)["directory"] | other
    with directory_of(files, Authority(tmp_path), skew_s=skew_s) as agent:
        ran = in_process(
            programs, "doctor", *SIGNED, "--allow-private", "--set", "fetch.insecure_tls=yes",
            "--set", f"identity.agent={agent}", "--contact", "a@b.example", cwd=tmp_path,
        )  # fmt: skip
    assert (ran.code, said in ran.out) == (code, True), ran.out
    assert secret_of(tmp_path / "bot.key") not in ran.out + ran.err
    assert "Signature: (not shown)" in ran.out


async def test_a_crawl_of_an_earlier_release_keeps_a_setting_that_it_did_not_know(tmp_path: Path) -> None:
    """Begun before there were signatures, it has none; a command that wants them wants them for the whole crawl."""
    key_file = str(tmp_path / "bot.key")
    identity.make_key_file(key_file, time.time())
    options = {"archive.dir": str(tmp_path / "c"), "crawl.partitions": 4}
    signed = {"identity.sign": "always", "identity.key_file": key_file}
    async with open_crawl(load(environment={}, options=options), create=True) as crawl:
        old = {key: value for key, value in crawl.record.stored_settings.items() if not key.startswith("identity.")}
        await crawl.crawls.update(lambda record: msgspec.structs.replace(record, settings=old))
    async with open_crawl(load(environment={}, options=options | signed), create=False) as crawl:
        settled, _ = await settle(crawl)
    assert settled.record.stored_settings["identity.sign"] == "always"
    assert settled.record.needs.key == read_keys(key_file).ids[0]
    async with open_crawl(load(environment={}, options=options), create=False) as crawl:
        assert crawl.settings.identity.sign == "always"
        with pytest.raises(UsageError, match="name its file here"):
            await settle(crawl)


def test_who_was_forgotten_at_a_renewal_is_refused_once_others_have_changed_over(
    programs: Nursery, tmp_path: Path
) -> None:
    with serve_resources({(HOST, "/"): PAGE, (HOST, "/b"): PAGE}) as site:
        url, (new, old) = site.url(HOST), (str(tmp_path / name) for name in ("new.key", "old.key"))
        identity.make_key_file(new, time.time() - 100)
        Path(old).write_bytes(Path(new).read_bytes())
        Path(old).chmod(0o600)
        identity.renew_key_file(new, time.time() - 50, after_s=0)
        sign = ("--set", "identity.sign=always", "--set")

        def crawled(path: str, at: str) -> tuple[int, str]:
            ran = in_process(programs, "crawl", url + at, *QUICK, *sign, f"identity.key_file={path}", cwd=tmp_path)
            return ran.code, ran.err

        assert crawled(old, "")[0] == 0
        code, said = crawled(new, "b")
        assert (code, f"signed with the key {read_keys(new).ids[1]}" in said) == (0, True)
        code, said = crawled(old, "c")
        assert (code, "copy the file" in said) == (2, True)
        assert crawled(new, "c")[0] == 0
        used = {one.headers["signature-input"].partition('keyid="')[2].partition('"')[0] for one in site.requests()}
        assert used == {*read_keys(new).ids}
