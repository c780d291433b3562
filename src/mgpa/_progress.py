"""A progress line on stderr for loops that take more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator


def progress(steps: range, label: str, enabled: bool) -> Iterator[int]:
    """Yield from ``steps``; if enabled, keep one updating line with counts and the time left."""
    if not enabled:
        yield from steps
        return
    start = time.monotonic()
    width = 24
    try:
        for done, step in enumerate(steps):
            elapsed = time.monotonic() - start
            left = f", at most {elapsed / done * (len(steps) - done):.0f} s left" if done else ""
            filled = width * done // len(steps)
            bar = "█" * filled + "·" * (width - filled)
            sys.stderr.write(f"\r{label} {bar} {done}/{len(steps)}{left}   ")
            sys.stderr.flush()
            yield step
    finally:
        sys.stderr.write(f"\r{label} done in {time.monotonic() - start:.1f} s{' ' * 40}\n")
        sys.stderr.flush()
