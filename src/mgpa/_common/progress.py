"""Show the progress of long computations and run them in several processes."""

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
    """Write to stderr, or to stdout in notebooks, which show stderr as a red box."""
    stream = sys.stdout if type(sys.stderr).__module__.startswith("ipykernel") else sys.stderr
    stream.write(text)
    stream.flush()


def _show(text: str, end: str = "\r") -> None:
    tell(f"\r{text:<78}{end}")


def progress(steps: range, label: str, enabled: bool) -> Iterator[int]:
    """Yield from ``steps``; if enabled, print the number of completed steps and the time left.

    A log file or pipe gets one line at the end with the total time, because its lines cannot be updated.
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
    """Show a label on the terminal during a computation and remove it afterwards."""
    visible = enabled and sys.stderr.isatty()
    if visible:
        _show(f"{label} …")
    try:
        yield
    finally:
        if visible:
            _show("")


def in_processes(calls: Iterable[Any], n_jobs: int) -> Iterator[Any]:
    """Run :func:`joblib.delayed` calls, up to ``n_jobs`` in parallel, and yield their results in order.

    joblib replaces a process that has grown by 300 MB, which loading torch and numba can exceed. No result is
    lost, so joblib's warning is suppressed: as an error, it would end the thread that collects results.

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
                "A worker process was killed, perhaps for lack of memory. Run this again, perhaps with fewer "
                "jobs; finished parts are kept."
            ) from None


def start_worker(parent: int) -> None:
    """Make this process a worker that ignores interrupts and ends soon after its parent.

    The worker watches its parent, because a killed parent cannot end its workers.
    """
    if os.getpid() == parent:  # called in a thread of the parent
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
