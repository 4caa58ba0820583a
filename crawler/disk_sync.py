"""Makes what was written reach the disk, on each system that we run on.

On macOS, `fsync` leaves the data in the disk's own cache, which a power cut empties, and `fdatasync` and
`posix_fallocate` don't exist. Linux has all three, and its `fsync` empties that cache.
"""

import fcntl
import os

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS
_BLOCK = bytes(64 * 1024)


def sync(descriptor: int) -> None:
    """Wait until a file or folder is on disk. Raises OSError."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
        except OSError:  # not on each file system, as those of networks: there `fsync` is what there is
            pass
    os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Like `sync`, but times of the file may come later. Raises OSError."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync(descriptor)


def reserve(descriptor: int, size: int) -> None:
    """Give an empty file `size` bytes of disk, zeros: a full disk fails here (OSError), and not when it is used."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    done = 0
    while done < size:
        done += os.pwrite(descriptor, _BLOCK[: size - done], done)
