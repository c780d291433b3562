"""A line on stderr that says how far a loop is, or what is being waited for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WIDTH = 24
EVERY = 1.0  # seconds after which the line says again that something is going on

# Of lines within lines, the innermost is shown.
_shown: list[_Line] = []


class _Line:
    """A line of a terminal that is written again every second, until it is closed."""

    def __init__(self, text: Callable[[], str]) -> None:
        self.text, self._lock, self._closed = text, threading.Lock(), threading.Event()
        self._width = 0
        _shown.append(self)
        threading.Thread(target=self._tick, daemon=True).start()

    def write(self) -> None:
        """Write the line as it is now."""
        with self._lock:
            if self._closed.is_set():
                return
            text = self.text()
            self._width = max(self._width, len(text))
            # Back at the start of the line, so that what somebody else prints does not hang on its end.
            sys.stderr.write(f"\r{text:<{self._width}}\r")
            sys.stderr.flush()

    def close(self, last: str = "") -> None:
        """Put what is to stay in place of the line; nothing leaves an empty one."""
        with self._lock:
            self._closed.set()
            _shown.remove(self)
            if last:
                sys.stderr.write(f"\r{last:<{self._width}}\n")
            elif self._width:
                sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.flush()

    def _tick(self) -> None:
        while not self._closed.wait(EVERY):
            if _shown and _shown[-1] is self:
                self.write()


def progress(steps: range, label: str, enabled: bool) -> Iterator[int]:
    """Yield from ``steps``; if enabled, keep one updating line with counts and the time left.

    In a log file or a pipe nothing can be updated: there, one line at the end says how long it took.
    """
    if not enabled:
        yield from steps
        return
    start = time.monotonic()
    done, left = 0, ""

    def text() -> str:
        filled = WIDTH * done // len(steps)
        bar = "█" * filled + "·" * (WIDTH - filled)
        # A step that takes long shows that it is still going on.
        waited = time.monotonic() - start
        return f"{label} {bar} {done}/{len(steps)}, {waited:.0f} s{left}"

    line = _Line(text) if sys.stderr.isatty() else None
    try:
        for done, step in enumerate(steps):
            elapsed = time.monotonic() - start
            left = f", at most {elapsed / done * (len(steps) - done):.0f} s left" if done else ""
            if line is not None:
                line.write()
            yield step
    finally:
        took = f"{label} done in {time.monotonic() - start:.1f} s"
        if line is not None:
            line.close(took)
        else:
            sys.stderr.write(f"{took}\n")
            sys.stderr.flush()


@contextmanager
def waiting(label: str, enabled: bool = True) -> Iterator[None]:
    """Say, on a terminal, what is being waited for, if it takes longer than a second; then it is gone."""
    if not (enabled and sys.stderr.isatty()):
        yield
        return
    start = time.monotonic()
    line = _Line(lambda: f"{label} … {time.monotonic() - start:.0f} s")
    try:
        yield
    finally:
        line.close()
