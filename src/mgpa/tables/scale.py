"""Process tables larger than memory in parts, locally or on a Dask cluster, and merge results as a tree.

The shape of the tree depends only on the number of parts, so results are bit-identical for any number of
workers, even if a worker is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any

from .._common.extras import missing
from .._common.progress import progress
from ..errors import ClusterError, UsageError
from .files import TableFile
from .table import Table

RETRIES = 3


@contextmanager
def connect(scheduler: str | None) -> Iterator[Any]:
    """Yield a Dask client for a scheduler address or for a local cluster ("local"); yield None for None.

    A lost cluster raises a :class:`ClusterError`.
    """
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        raise missing("A cluster", "dask") from None
    # By default, Dask shows its dashboards to the whole network; before 2025, dashboards of workers even if a
    # host is given.
    local = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:8787",
        "worker_dashboard_address": "127.0.0.1:0",
    }
    if scheduler != "local" and "://" not in scheduler:
        raise UsageError(f"scheduler must be tcp://host:port or 'local'; got {scheduler!r}.")
    try:
        with Client(**(local if scheduler == "local" else {"address": scheduler})) as client:
            yield client
    except (CancelledError, KilledWorker, CommClosedError) as error:
        raise ClusterError(
            f"The cluster did not finish ({type(error).__name__}: {error}): its scheduler was restarted, or "
            "its workers were lost repeatedly. Run the command again; finished parts are kept."
        ) from None


def reduce_parts(
    jobs: Sequence[Callable[[], Any]],
    combine: Callable[[Any, Any], Any],
    *,
    client: Any = None,
    verbose: bool = False,
) -> Any:
    """Run jobs in this process or with a Dask client, and return the combined result."""
    if client is None:
        return merge_tree((job() for job in watched(jobs, "reading", verbose)), combine)
    submit = partial(client.submit, pure=False, retries=RETRIES)
    total = merge_tree((submit(job) for job in jobs), partial(submit, combine))
    return None if total is None else total.result()


def merge_tree(results: Iterable[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine results in pairs, then pairs of pairs, with at most one result per level in memory.

    Examples
    --------
    >>> merge_tree("abcde", lambda a, b: f"({a} {b})")
    '(((a b) (c d)) e)'
    """
    levels: list[tuple[int, Any]] = []
    for result in results:
        level, total = 0, result
        while levels and levels[-1][0] == level:
            level, total = level + 1, combine(levels.pop()[1], total)
        levels.append((level, total))
    while len(levels) > 1:
        (_, a), (level, b) = levels[-2:]
        levels[-2:] = [(level, combine(a, b))]
    return levels[0][1] if levels else None


def batches(part: TableFile) -> Iterator[Table]:
    """Yield batches of about 8 MiB; float64 copies of a batch take several times as much."""
    return part.batches(max(1, part.block_rows // 4))


def watched(steps: Sequence[Any], label: str, verbose: bool) -> Iterator[Any]:
    """Yield the steps, with a progress line if stderr is a terminal."""
    for i in progress(range(len(steps)), label, verbose and sys.stderr.isatty()):
        yield steps[i]
