"""How an optional part is installed: the line that is printed works where it is printed."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from crawler import version

ROOT = Path(version.__file__).parent.parent


def test_a_checkout_names_itself_and_its_constraints() -> None:
    words = shlex.split(version.how_to_install("parquet", "pyarrow"))
    assert words[-4:] == ["-c", f"{ROOT}/constraints.txt", "-e", f"{ROOT}[parquet]"]
    assert sys.executable in words
    pip = words[: words.index("install")]
    assert subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0


def test_an_installed_package_names_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(version, "__file__", str(tmp_path / "site-packages" / "crawler" / "version.py"))
    assert shlex.split(version.how_to_install("parquet", "pyarrow"))[-2:] == ["install", "pyarrow"]


def test_an_environment_without_pip_is_filled_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "find_spec", lambda name: None)
    words = shlex.split(version.how_to_install("text", "trafilatura"))
    assert words[:5] == ["python3", "-m", "pip", "--python", sys.executable]
