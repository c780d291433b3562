"""Long computations: a progress line, and several processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Any

from ..errors import ParameterError, WorkerError


def tell(text: str) -> None:
    """Write to stderr; in a notebook, which shows that as a red box, to stdout."""
    stream = sys.stdout if type(sys.stderr).__module__.startswith("ipykernel") else sys.stderr
    stream.write(text)
    stream.flush()


def _show(text: str, end: str = "\r") -> None:
    tell(f"\r{text:<78}{end}")


def progress(steps: range, label: str, enabled: bool) -> Iterator[int]:
    """Yield from ``steps``; if enabled, print how many are done and the time left.

    In a log file or a pipe nothing can be updated: there, one line at the end says how long it took.
    """
    start = time.monotonic()
    try:
        for done, step in enumerate(steps):
            if enabled and sys.stderr.isatty():
                elapsed = time.monotonic() - start
                remaining = f", at most {elapsed / done * (len(steps) - done):.0f} s left" if done else ""
                _show(f"{label} {done}/{len(steps)}, {elapsed:.0f} s{remaining}")
            yield step
    finally:
        if enabled:
            took = f"{label} done in {time.monotonic() - start:.1f} s"
            _show(took, "\n") if sys.stderr.isatty() else tell(f"{took}\n")


@contextmanager
def waiting(label: str, enabled: bool = True) -> Iterator[None]:
    """Show on a terminal what is computed now; remove the line afterwards."""
    visible = enabled and sys.stderr.isatty()
    if visible:
        _show(f"{label} …")
    try:
        yield
    finally:
        if visible:
            _show("")


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
    from joblib import Parallel

    if n_jobs == 0:
        raise ParameterError("n_jobs", n_jobs, "1 or more, or -1 for all cores")
    worker: dict[str, Any] = {"initializer": start_worker, "initargs": (os.getpid(),)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        try:
            yield from Parallel(n_jobs=n_jobs, return_as="generator", **worker)(calls)
        except BrokenExecutor:
            raise WorkerError(
                "A worker process was killed, perhaps for lack of memory. Run it again, perhaps with fewer "
                "jobs; what was finished is kept."
            ) from None


def start_worker(parent: int) -> None:
    """Make this process a worker: it leaves signals to its parent, and ends soon after it.

    A killed parent cannot tell its workers to end.
    """
    if os.getpid() == parent:  # a thread
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
