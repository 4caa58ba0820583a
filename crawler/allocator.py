"""The C allocator, told to keep the memory that the HTML parser frees after each page.

By default glibc hands a page's tree back to the kernel and takes it again for the next one: some 80 page faults
a page, which cost as much as the parsing itself (measured: 480 us a page of 30 KB with them, 230 without).
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h
_KEEP_BYTES = 32 * 1024 * 1024  # free memory at the top of the heap that stays ours
_ARENAS = 1  # threads that read a tree would each have a cold heap of their own: a third more for each selector
_MMAP_BYTES = 4 * 1024 * 1024  # larger single blocks (bodies near the limit) still go back at once


def keep_freed_memory() -> bool:
    """Tune malloc for this process; call once at its start. False where the C library has no such knob."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = ((_M_MMAP_THRESHOLD, _MMAP_BYTES), (_M_TRIM_THRESHOLD, _KEEP_BYTES), (_M_ARENA_MAX, _ARENAS))
    return all(bool(mallopt(what, value)) for what, value in wanted)
