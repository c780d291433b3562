"""A progress line on stderr for loops that take more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

WIDTH = 24


def progress(steps: range, label: str, enabled: bool) -> Iterator[int]:
    """Yield from ``steps``; if enabled, keep one updating line with counts and the time left.

    In a log file or a pipe nothing can be updated: there, one line at the end says how long it took.
    """
    if not enabled:
        yield from steps
        return
    live = sys.stderr.isatty()
    start = time.monotonic()
    try:
        for done, step in enumerate(steps):
            if live:
                elapsed = time.monotonic() - start
                left = f", at most {elapsed / done * (len(steps) - done):.0f} s left" if done else ""
                filled = WIDTH * done // len(steps)
                bar = "█" * filled + "·" * (WIDTH - filled)
                sys.stderr.write(f"\r{label} {bar} {done}/{len(steps)}{left}   ")
                sys.stderr.flush()
            yield step
    finally:
        took = f"{label} done in {time.monotonic() - start:.1f} s"
        sys.stderr.write(f"\r{took}{' ' * 40}\n" if live else f"{took}\n")
        sys.stderr.flush()
