"""Which release this is, and how to add to it what is optional."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "shardcrawl"


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
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "0"
