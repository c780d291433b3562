"""Work in several processes of this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from joblib import Parallel

from ..errors import ParameterError


def in_processes(calls: Iterable[Any], n_jobs: int) -> Iterator[Any]:
    """Yield the results of :func:`joblib.delayed` calls in their order, up to ``n_jobs`` of them at a time.

    joblib replaces a process that has grown by 300 MB, for which loading torch and numba is enough. Nothing
    is lost by that, so its warning is not shown; made an error, it would end the thread that awaits results.

    Examples
    --------
    >>> from joblib import delayed
    >>> list(in_processes([delayed(abs)(-1), delayed(abs)(2)], n_jobs=1))
    [1, 2]
    """
    if n_jobs == 0:
        raise ParameterError("n_jobs", n_jobs, "1 or more, or -1 for all cores")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield from Parallel(n_jobs=n_jobs, return_as="generator")(calls)
