"""Environments of their own for the peers, below .cache: installed when first needed, and what is in them."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_TELL = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


class UnavailableError(Exception):
    """A peer can't take part; the message is one line that says why and what to do."""


def environment(*packages: str) -> Path:
    """Python of an environment with these packages in their newest versions. Raises UnavailableError."""
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
                last = ((done.stderr or done.stdout).strip().splitlines() or ["no reason given"])[-1]
                raise UnavailableError(f"{packages[0]} can't be installed: {last}")
        stamp.touch()
    return python


def clean_environment() -> dict[str, str]:
    """That of this process without settings of the crawler, which is imported from this tree.

    Nor any of Python: users compile a program once, not at each start, and their streams have buffers.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CRAWLER_", "PYTHON"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def namespace() -> list[str]:
    """What runs a command in a mount namespace of its own."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]


def need_namespaces() -> None:
    """For programs that must have an /etc/hosts of their own. Raises UnavailableError."""
    try:
        done = subprocess.run([*namespace(), "true"], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise UnavailableError("there is no unshare: apt install util-linux") from None
    if done.returncode:
        raise UnavailableError(f"it needs an /etc/hosts of its own, and {done.stderr.strip()}")


def versions_in(python: Path, *packages: str) -> dict[str, str]:
    names = [name.partition("[")[0] for name in packages]
    done = subprocess.run([str(python), "-c", _TELL, *names], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def own_versions(*packages: str) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in packages}


def program_version(name: str, package: str) -> dict[str, str]:
    """The first number with dots that `NAME --version` tells. Raises UnavailableError without such a program."""
    if not shutil.which(name):
        raise UnavailableError(f"there is no {name}: apt install {package}")
    done = subprocess.run([name, "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout)
    return {name: found[0] if found else "unknown"}


def scrapy_environment() -> Path:
    """Python with Scrapy alone; ends the program where that can't be."""
    try:
        return environment("scrapy", "uvloop")
    except UnavailableError as error:
        raise SystemExit(str(error)) from None
