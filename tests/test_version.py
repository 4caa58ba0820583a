"""How an optional part is installed: the line that is printed works where it is printed."""

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from crawler import version
from crawler.engine.embedded import packaged_binary

ROOT = Path(version.__file__).parent.parent


@pytest.mark.slow(ci=True)
def test_a_checkout_names_itself_and_its_constraints() -> None:
    words = shlex.split(version.how_to_install("parquet", "pyarrow"))
    assert words[-4:] == ["-c", f"{ROOT}/constraints.txt", "-e", f"{ROOT}[parquet]"]
    assert sys.executable in words
    pip = words[: words.index("install")]
    assert subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0


def test_an_installed_package_names_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(version, "__file__", str(tmp_path / "site-packages" / "crawler" / "version.py"))
    assert shlex.split(version.how_to_install("parquet", "pyarrow"))[-2:] == ["install", "pyarrow"]


def test_the_versions_are_those_of_this_process_and_of_the_engine_that_would_be_started() -> None:
    ran = subprocess.run([sys.executable, "-m", "crawler", "--version"], capture_output=True, text=True, check=True)
    program, python, engine, libraries = ran.stdout.splitlines()
    assert program == f"crawler {version.program_version()}"
    assert python == f"Python {sys.version.split()[0]}"
    server = subprocess.run([packaged_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    assert engine == f"Valkey {server.partition(' v=')[2].split()[0]} (the embedded engine)"
    assert libraries == ", ".join(f"{name} {metadata.version(name)}" for name in version.DECISIVE)


def test_what_is_not_installed_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "ENGINE_PACKAGE", "no-such-package")
    monkeypatch.setattr(version, "PACKAGE", "no-such-package")
    assert version.version_text().splitlines()[::2] == ["crawler 0", "Valkey not installed (the embedded engine)"]


def test_an_environment_without_pip_is_filled_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "find_spec", lambda name: None)
    words = shlex.split(version.how_to_install("text", "resiliparse"))
    assert words[:5] == ["python3", "-m", "pip", "--python", sys.executable]
