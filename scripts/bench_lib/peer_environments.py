"""Environments that programs run in: clean ones for this crawler, and one for each peer below .cache."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CRAWLER = [sys.executable, "-m", "crawler"]
_VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


class UnavailableError(Exception):
    """A client can't run here; the message is one line with the reason and what to do."""


def environment(*packages: str) -> Path:
    """Python of an environment with the newest versions of these packages, which is made when first needed.

    Raises UnavailableError.
    """
    home = ROOT / ".cache" / "peers" / "-".join(name.partition("[")[0] for name in packages)
    python = home / "bin" / "python"
    stamp = home / ".installed"
    if not stamp.exists():
        print(f"installing {', '.join(packages)} into {home} (once) ...", file=sys.stderr, flush=True)
        for step in (
            [sys.executable, "-m", "venv", "--clear", str(home)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
        ):
            done = subprocess.run(step, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                last = ((done.stderr or done.stdout).strip().splitlines() or ["pip printed nothing"])[-1]
                raise UnavailableError(f"{packages[0]} can't be installed: {last}")
        stamp.touch()
    return python


def clean_environment() -> dict[str, str]:
    """That of this process without settings of the crawler and of Python; the crawler is imported from this tree.

    Without PYTHONDONTWRITEBYTECODE and the like, programs run as users run them: compiled once, with buffered streams.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CRAWLER_", "PYTHON"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def namespace() -> list[str]:
    """The start of a command line that runs the rest in a new mount namespace."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]


def need_namespaces() -> None:
    """Check that programs can get their own /etc/hosts. Raises UnavailableError."""
    try:
        done = subprocess.run([*namespace(), "true"], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise UnavailableError("unshare is missing: apt install util-linux") from None
    if done.returncode:
        raise UnavailableError(f"it needs its own /etc/hosts: {done.stderr.strip()}")


def versions_in(python: Path, *packages: str) -> dict[str, str]:
    names = [name.partition("[")[0] for name in packages]
    done = subprocess.run([str(python), "-c", _VERSIONS, *names], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def own_versions(*packages: str) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in packages}


def program_version(name: str, package: str) -> dict[str, str]:
    """The first number with dots that `NAME --version` prints. Raises UnavailableError if the program is missing."""
    if not shutil.which(name):
        raise UnavailableError(f"{name} is missing: apt install {package}")
    done = subprocess.run([name, "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout)
    return {name: found[0] if found else "unknown"}


def scrapy_environment() -> Path:
    """Python with Scrapy. Raises SystemExit when it can't be installed."""
    try:
        return environment("scrapy", "uvloop")
    except UnavailableError as error:
        raise SystemExit(str(error)) from None
