"""What this process may take of the machine: cores, and memory that it gives back.

The C library keeps what threads have freed, in up to eight heaps for each core: after shards have gone through a
few threads that is several times what is in use. It can be asked to let go of what is free, and, by whoever owns
the process, to make do with few heaps.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

FEW_HEAPS = 2
_M_ARENA_MAX = -8  # of glibc's malloc.h


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def release_freed_memory() -> None:
    """Give freed memory back to the operating system; takes milliseconds, so once in a stage, not in a loop."""
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)


def use_few_heaps() -> None:
    """Keep the process's memory small, for good: for commands and workers, not for a caller's own process."""
    set_option = _of_c_library("mallopt")
    if set_option is not None:
        set_option(_M_ARENA_MAX, FEW_HEAPS)


def _of_c_library(name: str) -> Callable[..., int] | None:
    """A function of glibc, or None where another C library is in use."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found
