"""Tables larger than memory: work on their parts, here or on a Dask cluster, merged as a tree.

The tree's shape depends on the number of parts only; so one process, two workers, or a worker lost on the way
give the same bits.
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
    """Yield a Dask client: of a scheduler's address, of a cluster on this machine ("local"), or None.

    A cluster that is lost while the client is used is a :class:`ClusterError`.
    """
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        raise missing("A cluster", "dask") from None
    # Dask would show its dashboards, which say what is computed here, to the whole network; before 2025 its
    # workers' even if they have a host.
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
            "its workers were lost again and again. Run the command again; finished parts are kept."
        ) from None


def reduce_parts(
    jobs: Sequence[Callable[[], Any]],
    combine: Callable[[Any, Any], Any],
    *,
    client: Any = None,
    verbose: bool = False,
) -> Any:
    """Do the jobs, here or where a Dask client works, and return their combined result."""
    if client is None:
        return merge_tree((job() for job in watched(jobs, "reading", verbose)), combine)
    submit = partial(client.submit, pure=False, retries=RETRIES)
    total = merge_tree((submit(job) for job in jobs), partial(submit, combine))
    return None if total is None else total.result()


def merge_tree(results: Iterable[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine in pairs, then pairs of pairs, holding no more than one result of each level.

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
    """Yield about 8 MiB at a time; float64 copies of a batch take several times that."""
    return part.batches(max(1, part.block_rows // 4))


def watched(steps: Sequence[Any], label: str, verbose: bool) -> Iterator[Any]:
    """Yield the steps, with a progress line if stderr is a terminal."""
    for i in progress(range(len(steps)), label, verbose and sys.stderr.isatty()):
        yield steps[i]
