"""`crawler completion`: what a shell offers is what the command line takes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from crawler.cli.main import main, parser
from tests.cli.cli_lab import crawler
from tests.support.processes import Nursery

COMPLETE = r"""
source "$1"; shift
function=$(complete -p crawler | sed 's/.*-F \([^ ]*\).*/\1/')
COMP_WORDS=(crawler "$@"); COMP_CWORD=$#; COMP_LINE="crawler $*"; COMP_POINT=${#COMP_LINE}
$function
printf '%s\n' "${COMPREPLY[@]}"
"""


def test_bash_offers_commands_actions_options_values_and_files(programs: Nursery, tmp_path: Path) -> None:
    script = tmp_path / "crawler.bash"
    script.write_text(crawler(programs, "completion", "bash").out)
    (tmp_path / "folder").mkdir()
    (tmp_path / "shop.toml").touch()

    def offered(*words: str) -> set[str]:
        ran = subprocess.run(
            ["bash", "--norc", "-c", COMPLETE, "bash", str(script), *words],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert ran.stderr == ""
        return set(ran.stdout.split())

    assert offered("cra") == {"crawl", "crawls"}
    assert {"pause", "purge", "pin"} & offered("") == {"pause", "purge"}
    assert offered("ring", "pi") == {"pin", "pins"}
    assert offered("ring", "pin", "--re") == {"--redis"}
    assert offered("crawls", "rm", "--y") == {"--yes"}
    assert offered("crawl", "--scope", "") == {"domain", "host", "prefix", "any"}
    assert offered("dead", "re") == {"retry"}
    assert offered("crawl", "--dir", "") == {"folder"}
    assert "shop.toml" in offered("check", "sh")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_all_commands_and_is_accepted_by_its_shell(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert [name for name in parser()[1] if name not in text] == []
    assert "--sitemap" in text or "-l sitemap" in text
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        assert subprocess.run([program, "-n", tmp_path / "script"], capture_output=True, check=True).stderr == b""


def test_another_shell_is_refused_in_one_line(programs: Nursery) -> None:
    refused = crawler(programs, "completion", "tcsh")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
