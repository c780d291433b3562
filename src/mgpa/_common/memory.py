"""How much memory there is: what cannot fit is refused before it is begun."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import NotEnoughMemory

# Where Linux says what a container may have; the file says "max" where there is no limit.
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def total_memory() -> float:
    """Return the bytes this machine has, or this process may have; infinity where the system does not say."""
    try:
        total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return float("inf")
    try:
        return min(total, float(CGROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return total


def require_memory(n_bytes: float, what: str, instead: str) -> None:
    """Raise if something takes more memory than there is.

    Parameters
    ----------
    n_bytes : float
        What it takes at the least.
    what : str
        What takes it, as the beginning of a sentence.
    instead : str
        What to do, as a sentence.
    """
    total = total_memory()
    if n_bytes > total:
        needed, available = (f"{size / 2**30:.3g} GiB" for size in (n_bytes, total))
        raise NotEnoughMemory(f"{what} need {needed} of memory, and there are {available}. {instead}")
