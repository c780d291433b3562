"""A line on stderr that says how far a loop is, or what is being waited for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def _show(text: str, end: str = "\r") -> None:
    sys.stderr.write(f"\r{text:<78}{end}")
    sys.stderr.flush()


def progress(steps: range, label: str, enabled: bool) -> Iterator[int]:
    """Yield from ``steps``; if enabled, say how many are done and how long the others take.

    In a log file or a pipe nothing can be updated: there, one line at the end says how long it took.
    """
    start = time.monotonic()
    try:
        for done, step in enumerate(steps):
            if enabled and sys.stderr.isatty():
                elapsed = time.monotonic() - start
                left = f", at most {elapsed / done * (len(steps) - done):.0f} s left" if done else ""
                _show(f"{label} {done}/{len(steps)}, {elapsed:.0f} s{left}")
            yield step
    finally:
        if enabled:
            took = f"{label} done in {time.monotonic() - start:.1f} s"
            _show(took, "\n") if sys.stderr.isatty() else sys.stderr.write(f"{took}\n")


@contextmanager
def waiting(label: str, enabled: bool = True) -> Iterator[None]:
    """Say, on a terminal, what is being waited for; then it is gone."""
    shown = enabled and sys.stderr.isatty()
    if shown:
        _show(f"{label} …")
    try:
        yield
    finally:
        if shown:
            _show("")
