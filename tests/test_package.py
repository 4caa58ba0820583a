"""The wheel and the sdist: equal each time, complete, and with a description that needs no checkout."""

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("first"))


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.mark.slow(ci=True)
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    def digests(folder: Path) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    assert len(digests(built)) == 2
    assert digests(build(tmp_path)) == digests(built)


def test_a_wheel_has_all_files_of_the_package_and_no_others(built: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = {path for path in (ROOT / "crawler").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    generated = {"crawler/settings/crawler.toml"}  # config/crawler.toml
    assert names - generated == {path.relative_to(ROOT).as_posix() for path in package} - generated


def test_an_sdist_has_what_its_tests_need(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames()}
    wanted = {"tests", "scripts", "docs", "config", "examples", "deploy", "constraints.txt", "README.md", ".ci"}
    assert wanted <= tops
    assert tops.isdisjoint({".git", ".venv", ".cache", "crawl-data"})


def test_the_description_leads_nowhere_into_a_checkout(built: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        description = wheel.read(name).decode().partition("\n\n")[2]
    assert description.startswith("# shardcrawl\n")
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(description.splitlines()) >= len(readme.splitlines()) - 5
