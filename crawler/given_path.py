"""Is there something at a path that people gave? Without an answer, that path is at fault, and not what follows."""

import errno
from pathlib import Path

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def exists(path: Path) -> bool:
    """As `Path.exists` until Python 3.13. Raises OSError where that can't be told: the path is too long, or what is
    above it must not be looked at. Newer versions answer no.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise
    except ValueError:  # a NUL byte
        return False
    return True
