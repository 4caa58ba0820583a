"""Tunes this process for a crawl: when Python collects garbage cycles, and how much memory malloc keeps.

Imports create tens of thousands of containers that stay: collections among them take 50 ms of a crawl's start. The
pipeline creates hardly any cycles; with Python's own threshold, collections take 5 % of a crawl.

By default glibc returns the memory of a page's tree to the kernel and takes it again for the next one: some 80 page
faults a page, which cost as much as the parsing itself (measured: 480 us a page of 30 KB with them, 230 without).
"""

import gc
import resource

# Containers allocated between two collections; Python's own: 700.
_AT_START = 500_000  # three times what a crawl imports
_THEN, _OFTEN = 50_000, 2_000
_COUNTLESS = 1 << 20  # open files, where there is no limit


def delay_gc() -> None:
    """Collect no garbage while this program is imported. Long-running commands call `collect_rarely` then."""
    gc.set_threshold(_AT_START, 20, 50)


def is_gc_delayed() -> bool:
    return gc.get_threshold()[0] == _AT_START


def collect_rarely() -> None:
    """Collect seldom from now on; exempt what exists now."""
    gc.freeze()
    gc.set_threshold(_THEN, 20, 50)


def collect_often() -> None:
    """For a program that answers requests: each leaves a few cycles, which took 70 MB in an hour of views."""
    gc.set_threshold(_OFTEN, 10, 10)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h
_KEEP_BYTES = 32 * 1024 * 1024  # free memory at the top of the heap that stays ours
_ARENAS = 1  # with an arena for each thread, selectors that run in threads take a third longer
_MMAP_BYTES = 4 * 1024 * 1024  # larger single blocks (bodies near the limit) still go back at once


def keep_freed_memory() -> bool:
    """Keep the memory that the HTML parser frees after each page. False where the C library has no such setting."""
    import ctypes  # takes 3 ms, which commands that do not crawl save

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = ((_M_MMAP_THRESHOLD, _MMAP_BYTES), (_M_TRIM_THRESHOLD, _KEEP_BYTES), (_M_ARENA_MAX, _ARENAS))
    return all(bool(mallopt(what, value)) for what, value in wanted)


def open_files_max() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _COUNTLESS if soft == resource.RLIM_INFINITY else soft
