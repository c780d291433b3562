"""End a command (finished, refused, or stopped by a signal) with one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from .._common.remote import Place

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_outputs: dict[Place, Any] = {}


class Stopped(KeyboardInterrupt):
    """Ctrl-C, or another signal that asks a command to end."""


def will_write(path: Place) -> None:
    """Record the state of an output path, to find out later whether the command wrote there."""
    _outputs[path] = _version(path)


def _version(path: Place) -> Any:
    """Return the identity of a file version; for a folder, that of its index."""
    if not isinstance(path, Path):
        return path.exists()
    from ..tables.layout import INDEX

    for file in (path / INDEX, path):
        if file.is_file():
            facts = file.stat()
            return facts.st_ino, facts.st_mtime_ns, facts.st_size
    return None


def written() -> list[Place]:
    """Return the outputs that the command has written completely."""
    return [path for path, before in _outputs.items() if _version(path) not in (None, False, before)]


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Convert the first signal to an exception and end the process at a second one; yield the signals."""
    _outputs.clear()
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def stop(number: int, _: FrameType | None) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        raise Stopped(signal.Signals(number).name)

    def swallowed(unraisable: Any) -> None:
        # Python cannot raise in a destructor, so send the signal again afterwards.
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)
            return
        number = came.pop()
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    hook, sys.unraisablehook = sys.unraisablehook, swallowed
    try:
        yield came
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def about_signal(came: list[int]) -> tuple[int, str]:
    """Return exit code and message of a stopped command; success if its output is complete."""
    if paths := written():
        return 0, f"interrupted after {', '.join(map(str, paths))} was complete."
    word = "interrupted" if came[:1] == [signal.SIGINT] or not came else "terminated"
    return 128 + (came or [signal.SIGINT])[0], f"{word}; what was finished is kept."
