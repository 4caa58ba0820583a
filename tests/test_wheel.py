"""The wheel holds all of the program, and runs without the checkout; libraries are those of these tests."""

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import PathDistribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.processes import ROOT

PAGES = 10  # of the example web's first site


def wheel(folder: Path) -> ZipFile:
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("shardcrawl-*.whl")
    return ZipFile(path)


def environment_with(built: ZipFile, folder: Path) -> Path:
    """Install it; the folder of the packages."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    built.extractall(packages)
    # A folder named in it is searched; files like it in there, of which one names the checkout, are not read.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return packages


@pytest.mark.slow(ci=True)
def test_the_wheel_has_the_package_and_crawls_without_the_checkout(tmp_path: Path) -> None:
    built = wheel(tmp_path)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "crawler"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    found = {name for name in built.namelist() if not name.startswith("shardcrawl-")}
    assert found == set(listed or found)  # elsewhere than in a checkout, git lists nothing
    packages = environment_with(built, tmp_path / "environment")
    (info,) = packages.glob("shardcrawl-*.dist-info")
    commands = {one.name: one.value for one in PathDistribution(info).entry_points if one.group == "console_scripts"}
    assert commands == dict.fromkeys(("crawler", "shardcrawl"), "crawler.cli.main:program")

    (tmp_path / "crawler.py").write_text("raise RuntimeError\n")  # somebody's own: it must not be taken for ours
    python = str(tmp_path / "environment" / "bin" / "python")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CRAWLER_", "PYTHON"))}

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-P", *words], cwd=tmp_path, env=clean, capture_output=True, text=True)

    assert ran("-c", "import crawler; print(crawler.__file__)").stdout.startswith(str(packages))
    crawl = [python, "-P", "-m", "crawler", "crawl", "http://quotes.test/", "--delay", "0", "-o", "quotes.jsonl"]
    crawled = ran("-m", "crawler", "replay", "run", "--example", "--", *crawl)
    assert crawled.returncode == 0, crawled.stderr
    assert len((tmp_path / "quotes.jsonl").read_text().splitlines()) == PAGES
