"""Health of a container: ends with 0 when all is well, otherwise with 1 and one line.

    healthcheck.py             the entrypoint does not hold the container after exit code 2 or 4
    healthcheck.py /healthz    and `crawler serve` answers; with any status, so no token is needed
    healthcheck.py /readyz     and it reaches its engine; with the token in the file that $READ_TOKEN_FILE names

It needs nothing but Python, and starts in a few hundredths of a second.
"""

import http.client
import os
import sys
import tempfile
from pathlib import Path

TIMEOUT_S = 4.0
OK = 200


def main(path: str = "") -> str:
    """What is wrong, or nothing."""
    held = Path(tempfile.gettempdir()) / "crawler.held"
    if held.exists():
        return f"crawler ended with exit code {held.read_text().strip()}: see the log of the container"
    if not path:
        return ""
    file = os.environ.get("READ_TOKEN_FILE")
    headers = {"Authorization": f"Bearer {Path(file).read_text().strip()}"} if file else {}
    server = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("SERVE_PORT", "8800")), timeout=TIMEOUT_S)
    try:
        server.request("GET", path, headers=headers)
        status = server.getresponse().status
    finally:
        server.close()
    return "" if status == OK or path == "/healthz" else f"{path} answers {status}"


if __name__ == "__main__":
    try:
        problem = main(*sys.argv[1:])
    except (OSError, http.client.HTTPException) as error:
        problem = f"crawler serve does not answer: {error}"
    if problem:
        sys.exit(problem)
