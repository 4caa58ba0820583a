"""`crawler audit` on crawls that went well, and on copies of them that were spoiled in one way each."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.index import with_footer
from crawler.archive.journals import Journal
from crawler.archive.seed_journal import SeedLine
from crawler.archive.session_locks import SessionLock
from crawler.audit import judge_frontier
from crawler.cli import audit as audit_command
from crawler.cli.main import main
from tests.archive.archive_samples import response, writer_in
from tests.cli.audit_lab import Kept, Spoiled, add_roots, fingerprint, kept_crawl, rewritten
from tests.support.engine import running_engine
from tests.support.heard_meter import HeardMeter

NOT_CLEAN = 8

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with kept_crawl(tmp_path_factory.mktemp("kept")) as kept:
        yield kept


@pytest.fixture
def crawl(kept: Kept, tmp_path: Path) -> Iterator[Spoiled]:
    with kept.copied(tmp_path) as spoiled:
        yield spoiled


def counts(report: dict[str, Any]) -> dict[str, int]:
    """What was found, by name."""
    return {name: found["count"] for name, found in report["findings"].items() if found and found["count"]}


def test_a_crawl_in_two_folders_that_went_well_is_clean(crawl: Spoiled, capsys: Capture) -> None:
    code, report = crawl.audit(capsys)
    assert counts(report) == {}
    assert (code, report["clean"], report["is_moving"]) == (0, True, False)
    expected = crawl.kept.expected
    assert report["commits"] == report["records"] == len(expected.committed)
    refused = [url for url in expected.refused if "/long/" not in url]  # redirects beyond the limit were never added
    assert (report["dead"], report["refused"], report["pending"]) == (len(expected.dead), len(refused), 0)
    assert report["seen"] == report["commits"] + report["dead"] + report["refused"]
    assert report["links"] >= report["seen"] - 1  # all but perhaps the seed are linked to
    assert report["requests"] == len(crawl.requests)
    assert report["closest"]["delay_s"] == 0.02
    assert report["closest"]["gap_s"] >= 0.02


def test_an_audit_tells_how_far_it_is_in_each_part(
    crawl: Spoiled, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = HeardMeter()
    monkeypatch.setattr(audit_command, "progress", lambda **_: contextlib.nullcontext(meter))
    code, report = crawl.audit(capsys)
    assert code == 0
    assert [part.what for part in meter.parts] == [
        "reading index", "reading archive", "checking links", "counting URLs", "reading requests.jsonl",
        "judging requests", "judging",
    ]  # fmt: skip
    assert meter.part("reading index").share == 1
    archive = meter.part("reading archive")
    assert archive.counts[-1] == report["records"]
    assert archive.share > 0.9, "but for records that are no responses"
    assert meter.part("reading requests.jsonl").counts[-1] > len(crawl.requests) - 256


def test_without_a_web_log_what_it_would_tell_is_not_said_to_be_fine(crawl: Spoiled, capsys: Capture) -> None:
    code, report = crawl.audit(capsys, log=False)
    assert (code, report["has_web_log"], report["notes"]) == (0, False, [])
    assert report["findings"]["politeness"] is None
    assert report["findings"]["lost"]["count"] == 0


def test_a_link_that_the_engine_never_saw_is_lost_and_named_with_its_page(crawl: Spoiled, capsys: Capture) -> None:
    url = next(url for url in crawl.kept.expected.refused if "/private/" in url)
    assert crawl.client.srem(crawl.key("s:0", url), fingerprint(crawl.client, url))
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report) == {"lost": 1, "sums": 1}
    (lost,) = report["findings"]["lost"]["examples"]
    assert lost["url"] == url
    assert lost["linked_from"] in crawl.kept.expected.committed


def test_a_url_that_was_seen_and_is_in_no_state_is_lost(crawl: Spoiled, capsys: Capture) -> None:
    """The result of one page is gone, and nothing of it but its fingerprint is left."""
    path, line = crawl.line_of("/notes.txt")
    crawl.replace_line(path, line)
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report) == {"lost": 1, "sums": 1, "orphans": 1, "uncommitted": 1}
    assert report["findings"]["lost"]["examples"][0]["url"].endswith("/notes.txt")


def test_a_segment_that_is_gone_is_as_many_lost_urls(crawl: Spoiled, capsys: Capture) -> None:
    path = crawl.lines()[0][0]
    lines = len(path.read_bytes().splitlines()) - 1
    path.unlink()
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert report["findings"]["damage"]["examples"][0]["reason"] == "not found"
    assert report["findings"]["lost"]["count"] == report["findings"]["orphans"]["count"] == lines


@pytest.mark.parametrize("left_out", ["a", "b"])
def test_a_folder_that_is_not_given_is_named_and_its_pages_are_not_lost(
    crawl: Spoiled, capsys: Capture, left_out: str
) -> None:
    there = sum(f"/{left_out}/index/" in str(path) for path, _ in crawl.lines())
    crawl.left_out.add(left_out)
    code, report = crawl.audit(capsys, log=False)
    assert (code, counts(report), bool(there)) == (NOT_CLEAN, {}, True)
    (lacking,) = report["lacking"]
    assert lacking == f"{crawl.kept.home / left_out} on {socket.gethostname()}"
    assert report["no_evidence"] == (
        f"{there} pages of the crawl are in no folder given: {lacking} took part, and was not given (--dir)"
    )


def test_what_is_lost_besides_a_folder_that_is_not_given_is_told(crawl: Spoiled, capsys: Capture) -> None:
    (path,) = (crawl.folders[0] / "journal").glob("seeds-*.jsonl")
    Journal(path, SeedLine).append([SeedLine(url=SEED, number=9)])
    crawl.left_out.add("b")
    code, report = crawl.audit(capsys, log=False)
    assert (code, counts(report)) == (NOT_CLEAN, {"lost": 1})


def test_a_folder_that_took_part_and_has_no_page_is_a_note(crawl: Spoiled, capsys: Capture) -> None:
    crawl.client.hset("{main}:folders", "idle", json.dumps({"path": "/srv/idle", "host": "web-9"}))
    code, report = crawl.audit(capsys, log=False)
    assert (code, report["notes"]) == (0, ["/srv/idle on web-9 took part, and was not given: its seeds are not judged"])


def test_without_a_note_of_its_folder_what_is_missing_is_lost(crawl: Spoiled, capsys: Capture) -> None:
    of_b = sum("/b/index/" in str(path) for path, _ in crawl.lines())
    crawl.client.delete("{main}:folders")
    crawl.left_out.add("b")
    code, report = crawl.audit(capsys)
    assert (code, report["findings"]["lost"]["count"]) == (NOT_CLEAN, of_b)
    assert any("--dir" in note for note in report["notes"])


@pytest.mark.slow(ci=True)
def test_a_second_commit_of_one_url_is_told_and_a_second_line_of_one_commit_is_not(
    crawl: Spoiled, capsys: Capture
) -> None:
    path, line = crawl.line_of("/notes.txt")
    other = next(folder for folder in crawl.folders if folder not in path.parents) / "index" / "feed-00000.cdxj"
    other.write_bytes(b"".join(with_footer([line])))
    assert crawl.audit(capsys)[0] == 0
    other.write_bytes(b"".join(with_footer([rewritten(line, rb'"epoch":\d+', b'"epoch":99')])))
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report) == {"twice": 1}
    (twice,) = report["findings"]["twice"]["examples"]
    assert twice["url"].endswith("/notes.txt")
    assert any("epoch 99" in commit for commit in twice["commits"])


SEED = "http://seeded-0.test/"  # nothing leads there

ROOT_LACKS = "seeds opened it, and the engine's scope lacks it"
NEVER_SEEN, NOTED = "the engine never saw it", "the journal of seeds"
SEEDS = [  # what the journal has more, and what is lost of it
    (SeedLine(url=SEED, number=9), {"url": SEED, "reason": NEVER_SEEN, "noted_in": NOTED}),
    (SeedLine(root="domain:z.test"), {"root": "domain:z.test", "reason": ROOT_LACKS}),
]


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(("line", "lost"), SEEDS, ids=["a seed", "a root"])
def test_a_seed_of_the_journal_that_the_engine_never_saw_is_lost(
    crawl: Spoiled, capsys: Capture, line: SeedLine, lost: dict[str, str]
) -> None:
    (path,) = (crawl.folders[0] / "journal").glob("seeds-*.jsonl")
    Journal(path, SeedLine).append([line])
    code, report = crawl.audit(capsys)
    examples = report["findings"]["lost"]["examples"]
    assert (code, examples) == (NOT_CLEAN, [lost])
    assert report["seeds"] == len(crawl.kept.site.web.seeds) + ("url" in lost)
    assert crawl.client.sadd("{main}:scope", line.root) if line.root else True
    crawl.client.sadd(crawl.key("s:0", SEED), fingerprint(crawl.client, SEED))
    code, report = crawl.audit(capsys)
    assert not any(one.get("noted_in") for one in report["findings"]["lost"]["examples"]), "it knows the seed"


def test_seeds_that_a_living_command_adds_are_asked_for_again(
    crawl: Spoiled, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the journal before the engine has them."""
    (path,) = (crawl.folders[0] / "journal").glob("seeds-*.jsonl")
    Journal(path, SeedLine).append([SeedLine(url=SEED, number=9)])
    looks: list[float] = []

    async def pause(seconds: float) -> None:
        looks.append(seconds)

    monkeypatch.setattr(judge_frontier, "asyncio", SimpleNamespace(sleep=pause))
    with contextlib.closing(SessionLock(open_existing(crawl.folders[0]), "other")):
        assert counts(crawl.audit(capsys)[1])["lost"] == 1
    assert len(looks) == judge_frontier.SEED_LOOKS_MAX


def test_a_damaged_line_of_a_journal_is_damage(crawl: Spoiled, capsys: Capture) -> None:
    (file, *_) = (path for folder in crawl.folders for path in (folder / "journal").glob("seeds-*.jsonl"))
    file.write_bytes(file.read_bytes().replace(b"http", b"hppp", 1))
    code, report = crawl.audit(capsys)
    assert (code, counts(report)) == (NOT_CLEAN, {"damage": 1})
    (damage,) = report["findings"]["damage"]["examples"]
    assert damage["file"].endswith(f"journal/{file.name}")
    assert damage["reason"].startswith("line ")


def test_a_record_that_was_cut_is_damage_and_a_commit_without_record(crawl: Spoiled, capsys: Capture) -> None:
    fields = [json.loads(line.split(b" ", 2)[2]) for _, line in crawl.lines()]
    last = max(fields, key=lambda f: (f["filename"], int(f["offset"])))
    (file,) = (
        folder / "warc" / last["filename"] for folder in crawl.folders if (folder / "warc" / last["filename"]).exists()
    )
    with file.open("r+b") as opened:
        opened.truncate(int(last["offset"]) + 50)
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report) == {"damage": 1, "no_record": 1}
    assert report["findings"]["no_record"]["examples"][0]["url"] == last["url"]


@pytest.mark.parametrize(
    ("pattern", "changed", "reason"),
    [
        (rb'"digest":"sha1:.{16}', b'"digest":"sha1:2222222222222222', "another digest"),
        (rb'"status":"200"', b'"status":"404"', "another status"),
        (rb'"offset":"\d+"', b'"offset":"7"', "no whole record there"),
        (rb'"filename":"[^"]+"', b'"filename":"elsewhere.warc.gz"', "the file is in no folder given"),
    ],
)
def test_a_line_whose_record_is_another_or_nowhere_is_told(
    crawl: Spoiled, capsys: Capture, pattern: bytes, changed: bytes, reason: str
) -> None:
    path, line = crawl.line_of("/notes.txt")
    crawl.replace_line(path, line, pattern, changed)
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    (found,) = report["findings"]["no_record"]["examples"]
    assert found["url"].endswith("/notes.txt")
    assert found["reason"] == reason


def test_a_record_that_no_commit_names_is_told_and_is_no_fault(crawl: Spoiled, capsys: Capture) -> None:
    writer = writer_in(open_existing(crawl.folders[0]), "late")
    writer.add(response())
    writer.close()
    code, report = crawl.audit(capsys)
    assert code == 0
    assert counts(report) == {"orphans": 1}
    assert report["findings"]["orphans"]["examples"][0]["url"] == response().url


def page_request(crawl: Spoiled) -> dict[str, Any]:
    """A page that was asked for in the middle of the crawl."""
    return next(r for r in crawl.requests if r["target"] == "/notes.txt")


def test_requests_that_are_too_close_are_told_with_their_delay(crawl: Spoiled, capsys: Capture) -> None:
    page = page_request(crawl)
    crawl.requests.append(page | {"target": "/file.pdf", "start": page["start"] + 0.001})
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report)["politeness"] in (1, 2)  # the one before it, and perhaps the one after
    closest = report["findings"]["politeness"]["examples"][0]
    assert closest["gap_s"] == pytest.approx(0.001)
    assert closest["delay_s"] == report["closest"]["delay_s"] == 0.02
    assert report["closest"]["gap_s"] == pytest.approx(0.001)


def test_a_late_request_that_its_instance_owned_up_to_is_counted_apart(crawl: Spoiled, capsys: Capture) -> None:
    page = page_request(crawl)
    crawl.requests.append(page | {"target": "/file.pdf", "start": page["start"] + 0.001})
    event = {"event": "fetch.late", "url": crawl.kept.site.url(page["host"], "/file.pdf")}
    (crawl.folders[0] / "log" / "node-0.log").write_text(f"{json.dumps(event)}\nfetch.late is no JSON\n")
    code, report = crawl.audit(capsys)
    assert code == 0
    assert counts(report)["late"] in (1, 2)
    assert report["closest"]["gap_s"] >= 0.02


def test_a_request_for_a_forbidden_path_is_told_with_the_line_that_forbids_it(crawl: Spoiled, capsys: Capture) -> None:
    page = next(r for r in crawl.requests if r["host"] == "a0.d0.test" and r["target"] == "/notes.txt")
    crawl.requests.append(page | {"target": "/private/secret", "start": page["start"] + 100})
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report) == {"robots": 1, "uncommitted": 1}
    (found,) = report["findings"]["robots"]["examples"]
    assert found["request"] == "a0.d0.test/private/secret"
    assert "Disallow: /private/" in found["reason"]


def test_a_page_asked_for_before_robots_txt_is_told(crawl: Spoiled, capsys: Capture) -> None:
    page = page_request(crawl)
    page["start"] = page["end"] = crawl.requests[0]["start"] - 100
    code, report = crawl.audit(capsys)
    assert code == NOT_CLEAN
    assert counts(report) == {"robots": 1}
    assert report["findings"]["robots"]["examples"][0]["reason"] == "before robots.txt was read"


def test_a_page_fetched_again_is_counted_with_the_rate_and_is_no_fault(crawl: Spoiled, capsys: Capture) -> None:
    page = page_request(crawl)
    crawl.requests.append(page | {"start": page["start"] + 100})
    crawl.requests.append(page | {"start": page["start"] + 200, "status": 500})
    code, report = crawl.audit(capsys)
    assert code == 0
    assert counts(report) == {"duplicates": 1}
    assert "%" in report["findings"]["duplicates"]["note"]


@pytest.mark.slow(ci=True)
def test_links_into_a_site_that_was_seeded_after_their_page_are_not_missed(
    tmp_path: Path, capsys: Capture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without the version that a root came with, every earlier link into it would count as lost."""
    home = tmp_path_factory.mktemp("scoped")
    with kept_crawl(home, folders=("a",), scope__mode="domain") as kept, kept.copied(tmp_path) as crawl:
        asyncio.run(add_roots(kept.engine.url, "domain:d1.test"))
        assert counts(crawl.audit(capsys)[1]) == {}
        crawl.client.hdel("{main}:history", "root domain:d1.test")
        assert crawl.audit(capsys)[0] == NOT_CLEAN


@pytest.mark.slow(ci=True)
def test_a_crawl_that_was_stopped_midway_is_clean_until_a_pending_url_is_taken_from_it(
    tmp_path: Path, capsys: Capture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("stopped")
    with kept_crawl(home, folders=("a",), crawl__pages_max=60) as kept, kept.copied(tmp_path) as crawl:
        code, report = crawl.audit(capsys)
        assert (code, counts(report)) == (0, {})
        assert report["pending"] > 0
        url = taken(crawl.client)
        code, report = crawl.audit(capsys)
        assert (code, counts(report)) == (NOT_CLEAN, {"lost": 1, "sums": 1})
        assert report["findings"]["lost"]["examples"][0]["url"] == url


def taken(client: Any) -> str:
    """A URL that waited, and now is gone without a trace."""
    (key, *_) = client.keys("*:q:*")
    prefix, _, row = key.decode().partition("q:")
    queue = row.partition("|")[0]
    ((member, _),) = client.zpopmin(key)
    letter, path = member.decode()[0], member.decode().partition("/")[2]
    url = client.hget(f"{prefix}g:{queue}", letter).decode() + "/" + path
    assert client.srem(f"{prefix}s:0", fingerprint(client, url))
    return str(url)


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("kind", ["empty", "another agent", "another host", "other pages", "an older log"])
def test_a_log_without_a_committed_page_proves_nothing(crawl: Spoiled, capsys: Capture, kind: str) -> None:
    changes = {"another host": {"host": "elsewhere.test"}, "other pages": {"target": "/not-crawled"}}
    crawl.requests[:] = [] if kind == "empty" else [r | changes.get(kind, {}) for r in crawl.requests]
    if kind == "an older log":
        crawl.requests[:] = [r for r in crawl.requests if r["target"] == "/robots.txt"]
    options = ("--agent", "others/1") if kind == "another agent" else ()
    code, report = crawl.audit(capsys, *options)
    assert (code, report["clean"]) == (NOT_CLEAN, False)
    assert report["no_evidence"].startswith(f"{report['commits']} committed pages, none of them in the log: wrong file")
    for name in ("politeness", "robots", "duplicates", "uncommitted"):
        assert not report["findings"][name]["is_judged"], name


def test_one_of_two_logs_without_a_committed_page_is_noted(crawl: Spoiled, capsys: Capture, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(page_request(crawl) | {"host": "elsewhere.test", "target": "/robots.txt"}) + "\n")
    code, report = crawl.audit(capsys, "--web-log", str(other))
    assert (code, report["pages_logged"]) == (0, report["commits"])
    assert report["notes"] == [f"{other} has no request for a page that is committed"]


def test_a_crawl_that_ignored_robots_txt_is_not_said_to_have_obeyed_it(crawl: Spoiled, capsys: Capture) -> None:
    _, report = crawl.audit(capsys, "--ignore-robots")
    assert not report["findings"]["robots"]["is_judged"]


def test_a_crawl_in_which_nothing_happened_is_not_judged(tmp_path: Path, capsys: Capture) -> None:
    with running_engine() as engine:
        place = ("--redis", engine.url, "--dir", str(tmp_path / "c"))
        assert main(["seed", "http://a.test/", *place]) == 0
        capsys.readouterr()
        assert main(["audit", *place]) == 0
    out = capsys.readouterr().out
    assert "clean, but twice, no record could not be judged" in out
    assert re.search(r"^- +committed twice +\? +no page is committed$", out, re.MULTILINE)


PARTS = ("0-20", "21", "22-63")


def by_parts(crawl: Spoiled, capsys: Capture) -> list[tuple[int, dict[str, Any]]]:
    return [crawl.audit(capsys, "--partitions", part, log=False) for part in PARTS]


@pytest.mark.slow(ci=True)
def test_audits_of_all_parts_see_what_one_of_the_whole_sees(crawl: Spoiled, capsys: Capture) -> None:
    _, whole = crawl.audit(capsys, log=False)
    parts = by_parts(crawl, capsys)
    assert [code for code, _ in parts] == [0, 0, 0]
    for figure in ("commits", "records", "seen", "dead", "refused", "pending"):
        assert sum(report[figure] for _, report in parts) == whole[figure]
    assert sum(report["links"] for _, report in parts) >= whole["links"]  # what two parts link to is in both
    assert [report["part"] for _, report in parts][1] == "1 of 64 partitions (21)"
    assert all(not report["findings"]["orphans"]["is_judged"] for _, report in parts)


@pytest.mark.slow(ci=True)
def test_a_lost_link_is_found_by_the_part_whose_pages_have_it(crawl: Spoiled, capsys: Capture) -> None:
    url = next(url for url in crawl.kept.expected.refused if "/private/" in url)
    assert crawl.client.srem(crawl.key("s:0", url), fingerprint(crawl.client, url))
    found = [report["findings"]["lost"]["examples"] for _, report in by_parts(crawl, capsys)]
    assert url in {one["url"] for some in found for one in some if "url" in one}
    assert [code for code, _ in by_parts(crawl, capsys)].count(NOT_CLEAN) >= 1


def test_exports_of_all_parts_have_every_page_once(crawl: Spoiled, capsys: Capture) -> None:
    def urls(*words: str) -> list[str]:
        capsys.readouterr()
        assert main(["export", "--dir", str(crawl.folders[0]), *words]) == 0
        return sorted(json.loads(line)["url"] for line in capsys.readouterr().out.splitlines())

    parts = [urls("--partitions", part) for part in PARTS]
    assert sorted(url for some in parts for url in some) == urls()
    assert all(crawl.partition_of(url) <= 20 for url in parts[0])
    assert main(["export", "--dir", str(crawl.folders[0]), "--partitions", "64"]) == 2


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("changed", [b'"offset":"7"', b'"filename":"elsewhere.warc.gz"'])
def test_a_part_misses_the_records_of_its_commits(crawl: Spoiled, capsys: Capture, changed: bytes) -> None:
    path, line = crawl.line_of("/notes.txt")
    pattern = rb'"offset":"\d+"' if b"offset" in changed else rb'"filename":"[^"]+"'
    crawl.replace_line(path, line, pattern, changed)
    found = [one["url"] for _, r in by_parts(crawl, capsys) for one in r["findings"]["no_record"]["examples"]]
    assert len(found) == 1
    assert found[0].endswith("/notes.txt")


def test_a_sample_tells_how_sure_it_is(crawl: Spoiled, capsys: Capture) -> None:
    code, report = crawl.audit(capsys, "--sample", "50", log=False)
    assert code == 0
    assert report["part"] == "32 of 64 partitions (a sample of 32)"
    assert "with 95 % confidence, at most 8.9 % of all partitions have something to find" in report["notes"]
    code, report = crawl.audit(capsys, "--sample", "100", log=False)
    assert "at most 0 % of all partitions" in "".join(report["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--partitions", "3-1"), "the partitions of this crawl are 0 to 63"),
        (("--partitions", "64"), "the partitions of this crawl are 0 to 63"),
        (("--partitions", "all"), "'all' is not a range of partitions (like 0-255)"),
        (("--partitions", "1", "--sample", "3"), "can't be used together"),
        (("--sample", "0"), "is not a percentage"),
    ],
)
def test_a_part_that_there_is_not_is_said(crawl: Spoiled, capsys: Capture, words: tuple[str, ...], said: str) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["audit", *words, "--redis", crawl.kept.engine.url, "--dir", str(crawl.folders[0])]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow(ci=True)
def test_what_people_read_begins_with_the_answer_and_shows_examples(crawl: Spoiled, capsys: Capture) -> None:
    page = page_request(crawl)
    crawl.requests.append(page | {"target": "/file.pdf", "start": page["start"] + 0.001})
    crawl.audit(capsys)
    where = [word for folder in crawl.folders for word in ("--dir", str(folder))]
    log = ["--web-log", str(crawl.home / "requests.jsonl")]
    code = main(["audit", "--redis", crawl.kept.engine.url, *where, *log])
    out, err = capsys.readouterr()
    assert code == NOT_CLEAN
    assert err.startswith("crawler: the crawl is not clean: ")
    assert re.search(r"not clean, \d politeness violation", out.splitlines()[0])
    assert re.search(r"^FAIL +politeness violations +\d", out, re.MULTILINE)
    assert re.search(r"^ok +URLs lost +0$", out, re.MULTILINE)
    assert "0.001 s apart at a delay of 0.02 s" in out
    main(["audit", "--redis", crawl.kept.engine.url, *where])
    assert re.search(r"^- +politeness violations +\? +needs --web-log$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.slow(ci=True)
def test_what_can_not_be_read_is_said_in_one_line(crawl: Spoiled, capsys: Capture, tmp_path: Path) -> None:
    engine, folder = crawl.kept.engine.url, str(crawl.folders[0])
    strange = tmp_path / "strange.log"
    strange.write_text("what is this\n")
    for wrong in (
        ["--dir", folder, "--dir", str(tmp_path / "none")],
        ["--dir", folder, "--web-log", str(tmp_path / "none.log")],
        ["--dir", folder, "--web-log", str(strange)],
    ):
        capsys.readouterr()
        assert main(["audit", "--redis", engine, *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
