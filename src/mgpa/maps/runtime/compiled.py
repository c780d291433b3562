"""Compiled stages, used if numba is installed, unless the environment has ``MGPA_NUMBA=0``."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType

from ...linalg import one_blas_thread

VARIABLE = "MGPA_NUMBA"


def kernels() -> ModuleType | None:
    """Return the module of compiled functions, or None to use numpy."""
    return None if os.environ.get(VARIABLE) == "0" else _load()[0]


def unavailable_reason() -> str | None:
    """Return why stages do not run compiled and the remedy, or None if they do."""
    return f"{VARIABLE} is 0" if os.environ.get(VARIABLE) == "0" else _load()[1]


@cache
def _load() -> tuple[ModuleType | None, str | None]:
    try:
        from . import numba_kernels
    except ImportError as error:  # numba also raises this if numpy is too new
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        return None, "pip install 'numba'" if missing else f"numba does not load: {error}"
    return numba_kernels, None


def n_threads() -> int:
    """Return the number of threads that share the rows: cores of this process, at most OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) else cores


def on_blocks(function: Callable[[slice], bool], n_rows: int, block: int) -> bool:
    """Run ``function`` on blocks of rows and return whether it was true for all blocks.

    Each thread processes whole blocks, including their matrix products: a BLAS that divides each small
    product among its threads spends most of the time waiting. Blocks, and therefore results, do not depend on
    the number of threads.
    """
    blocks = [slice(i, i + block) for i in range(0, n_rows, block)]
    threads = min(n_threads(), len(blocks)) if len(blocks) > 1 else 1
    if threads > 1:
        with one_blas_thread() as granted, ThreadPoolExecutor(threads if granted else 1) as pool:
            return all(list(pool.map(function, blocks)))
    return all(list(map(function, blocks)))
