"""Compiled stages, used if numba is installed, unless the environment has ``MGPA_NUMBA=0``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from types import ModuleType

from ...linalg import in_threads

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


def on_blocks(function: Callable[[slice], bool], n_rows: int, block: int) -> bool:
    """Run ``function`` on blocks of rows and return whether it was true for all blocks.

    Blocks, and therefore results, do not depend on the number of threads.
    """
    return all(in_threads(function, [slice(i, i + block) for i in range(0, n_rows, block)]))
