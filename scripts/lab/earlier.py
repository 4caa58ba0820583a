"""This crawler as it was at another commit, to be measured in turn with what it is now.

It runs in the same environment: what only libraries changed is not seen, and a commit that needs others does not start.
"""

import compileall
import contextlib
import dataclasses
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clients import Client
from environments import ROOT, UnavailableError

NAME = "before"


@contextlib.contextmanager
def earlier(client: Client, revision: str) -> Iterator[Client]:
    """The client with the package of that commit, which lies in a temporary folder. Raises UnavailableError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        _unpack(revision, Path(folder))
        compileall.compile_dir(folder, quiet=2)  # as users have it after their first start
        yield dataclasses.replace(
            client,
            name=NAME,
            title=f"{client.title} at {revision}",
            environment=client.environment | {"PYTHONPATH": folder},
        )


def _unpack(revision: str, folder: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", f"{revision}^{{commit}}", "crawler"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["git gave no reason"])[-1]
        raise UnavailableError(f"commit {revision} can't be had: {reason}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
