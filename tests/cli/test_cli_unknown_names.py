"""A name that a command does not know, as a misspelt one: exit code 2, a line that has it, and nothing changed.

Each command that takes a name of something has a row for each kind of name.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_lab import forget_apps
from tests.cli.operate_lab import Lab, one_page
from tests.support.engine import Engine

APP = "from crawler import Crawler\napp = Crawler()\n@app.page()\ndef all_pages(page): ...\n"
KEPT = "what was there before\n"
RUN = "4f1b2c3d5e6f7081-1790000000"  # as ids of runs look
UNKNOWN = [
    # domains
    ("stats nope.test", "nope.test"),
    *[(f"{command} nope.test", "never met nope.test") for command in ("pause", "block", "resume", "unblock")],
    ("delay nope.test 5", "never met nope.test"),
    ("boost nope.test 2", "never met nope.test"),
    ("release nope.test", "never met nope.test"),
    ("purge nope.test", "never met nope.test"),
    *[(f"dead {action} --domain nope.test", "never met nope.test") for action in ("list", "retry", "purge")],
    ("rehandle --app shop.py --domain nope.test", "never met nope.test"),
    ("ring unpin nope.test", "nope.test is not pinned"),
    # URLs
    *[(f"dead {action} http://nope.test/", "is not a dead letter") for action in ("show", "retry", "purge")],
    # reasons
    *[(f"dead {action} --reason nope", "--reason nope: expected one of") for action in ("list", "retry", "purge")],
    ("release --reason nope", "--reason nope: expected one of"),
    ("release --reason trap:nonsense", "--reason trap:nonsense"),
    # jobs
    *[
        (f"jobs {action} nope", "there is no job 'nope' of user default: 'crawler jobs list' has those there are")
        for action in ("show", "pause", "resume", "rm", "run", "end", "history", "failed", "preview")
    ],
    ("jobs edit nope --every 1h", "there is no job 'nope'"),
    ("jobs retry nope --all", "there is no job 'nope'"),
    ("jobs dismiss nope --all", "there is no job 'nope'"),
    # runs
    *[
        (f"dead {action} --run nope", "there is no run 'nope': 'crawler jobs history")
        for action in ("list", "retry", "purge")
    ],
    (f"dead list --run {RUN}", f"there is no run '{RUN}'"),
    ("export --run nope -o good.jsonl", "no page of run nope"),
    (f"export --run {RUN} -o good.jsonl", "no page of run"),
    (f"export --run {RUN} --changed -o good.jsonl", RUN),
    (f"jobs diff {RUN} {RUN}", RUN),
    ("jobs end news nope", "'nope' is not an active run of job news"),
    ("jobs retry news nope", "'nope' is not a failed run of job news"),
    ("jobs dismiss news nope", "'nope' is not a failed run of job news"),
    # results
    ("export --items -o good.jsonl", "good.jsonl has something: it stays"),
    ("export --partitions 9000-9001 -o good.jsonl", "the partitions of this crawl are"),
    ("audit --partitions 9000-9001", "the partitions of this crawl are"),
    # nodes, crawls, tokens, users' jobs
    ("ring evict nope", "no node 'nope' takes part"),
    ("crawls rm nope --yes", "the engine has no crawl 'nope'"),
    ("token rm nope", "there is no token nope"),
    ("jobs show news --user nope", "there is no job 'news' of user nope"),
    # settings and files
    ("settings politeness.nope", "politeness.nope: not a setting"),
    ("settings nope", "nope: not a setting"),
    ("settings politeness.nope=3", "politeness.nope"),
    ("settings --set politeness.delay_s=3", "without --set"),
    ("settings politeness.delay_s=fast", "not a valid number"),
    ("seed -i nope.txt", "nope.txt"),
    ("import seen nope.txt", "nope.txt"),
    ("restore nope.bak", "nope.bak"),
    ("rehandle --app nope.py", "nope.py"),
]


@pytest.fixture
def lab(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    monkeypatch.chdir(tmp_path)
    forget_apps(monkeypatch)
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "good.jsonl").write_text(KEPT)
    with one_page(tmp_path, engine, capsys) as lab:
        yield lab


@pytest.mark.slow(ci=True)
def test_a_name_that_is_not_known_is_code_2_and_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    lab.say("jobs", "add", "news", "--every", "24h", lab.site.url("quick.test"))
    before = of_others(lab), lab.say("settings", "--all")
    wrong = []
    for command, said in UNKNOWN:
        code, out, err = lab.run(*command.split())
        if (code, out) != (2, "") or said not in err or len(err.splitlines()) > 2:
            wrong.append((command, code, out, err))
    assert wrong == [], "\n".join(map(str, wrong))
    assert (tmp_path / "good.jsonl").read_text() == KEPT
    assert (of_others(lab), lab.say("settings", "--all")) == before


def of_others(lab: Lab) -> list[dict[str, Any]]:
    """What the operator log has, but of the job that there is: an order for a run of it that there is not."""
    rows = [json.loads(line) for line in lab.say("oplog", "--json").splitlines()]
    return [row for row in rows if row["target"] != "default/news"]


def test_a_key_alone_shows_the_value_of_a_setting(lab: Lab) -> None:
    assert lab.say("settings", "politeness.delay_s").split() == ["politeness.delay_s", "0.0"]
    assert lab.json("settings", "robots.obey")["settings"] == {"robots.obey": True}
    code, _, err = lab.run("settings", "robots.obey", "politeness.delay_s=3")
    assert code == 2
    assert "give keys alone" in err
