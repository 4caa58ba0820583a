"""This crawler at another commit, to be measured in turn with the present one.

It runs in the same environment: a difference that only libraries make is not seen, and a commit that needs other
libraries does not start.
"""

import compileall
import contextlib
import dataclasses
import functools
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench_lib.peer_clients import Client, exported
from scripts.bench_lib.peer_environments import ROOT, UnavailableError

NAME = "before"


@contextlib.contextmanager
def at_commit(client: Client, revision: str) -> Iterator[Client]:
    """The client with the package of that commit, in a temporary folder. Raises UnavailableError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        _unpack(revision, Path(folder))
        compileall.compile_dir(folder, quiet=2)  # as users have it after their first start
        yield dataclasses.replace(
            client,
            name=NAME,
            title=f"{client.title} at {revision}",
            pages=functools.partial(exported, package=Path(folder)),  # folders of other commits may differ in layout
            environment=client.environment | {"PYTHONPATH": folder},
        )


def _unpack(revision: str, folder: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", f"{revision}^{{commit}}", "crawler"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["git printed nothing"])[-1]
        raise UnavailableError(f"commit {revision} is not available: {reason}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
