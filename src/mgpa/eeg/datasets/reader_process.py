"""Providers' files are read in another process: what a damaged one does to a reader, it does over there.

The libraries that read recordings are partly written in C, and a few changed bytes can crash them, keep them
busy for ever, or make them ask for all the memory there is. Readers are therefore run in one process beside
this one, which is started with the first file, kept for the next, and started anew should a file end it. It
has so much time and memory for a file as the file's size allows.

Requests and answers are JSON, and arrays come back as plain bytes in files. Nothing is unpickled on this
side, so that a reader that a file has brought under its control cannot answer with code. It is no sandbox,
though: such a reader could do whatever its user can.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..._common.files import special_kind
from ...errors import RecordingError

#: A file, or a member of a zip archive.
ProviderFile = Path | zipfile.Path

# What any file may take, and how much more for each byte it has: recordings hold 16 bits a value, readers 64,
# and several copies. A text or an archive unfolds further, within the first.
MEMORY, MEMORY_PER_BYTE = 2 * 2**30, 32
SECONDS, SECONDS_PER_BYTE = 120.0, 1e-6

# Errors that readers raise on purpose, by their names; any other is a fault of the file.
_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (RecordingError, ValueError, OSError, FileNotFoundError, ImportError)
}
# Without the working folder, which may be somebody's data, among the places of modules.
_START = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import serve; serve()"
_WARNINGS = {kind.__name__: kind for kind in (RuntimeWarning, DeprecationWarning, FutureWarning)}
_ARRAY = "__array__"
MAX_ANSWER = 2**26  # characters, besides arrays

P = ParamSpec("P")
R = TypeVar("R")


def read_apart(reader: Callable[P, R]) -> Callable[P, R]:
    """Make a reader do its work in the other process.

    Parameters
    ----------
    reader : callable
        A function of a module. Its first argument is a path, all others, and what it returns, are numbers,
        texts, arrays, and lists and dicts of these.

    Raises
    ------
    RecordingError
        Besides what the reader itself raises: the file ended the process, or took more time or memory than
        files of its size do.
    """

    @wraps(reader)
    def read(*arguments: P.args, **options: P.kwargs) -> R:
        if _serving:
            return reader(*arguments, **options)
        path: Any = arguments[0]
        kind = special_kind(Path(str(path)))
        if kind is not None:
            raise RecordingError(f"{path} is {kind}, and no recording.")
        answer: R = _child.ask(f"{reader.__module__}:{reader.__qualname__}", path, arguments[1:], options)
        return answer

    return read


class _Failed(Exception):
    """What a file did to its reader; the text goes on where its name ends."""


class _Child:
    """The other process, as seen from this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._folder = ""

    def ask(self, reader: str, path: ProviderFile, arguments: Any, options: Any) -> Any:
        """Return what a reader makes of a file, or raise what it raised."""
        size = _size(path)
        request = {
            "reader": reader,
            "path": _path_to_json(path),
            "arguments": arguments,
            "options": options,
            "folder": os.getcwd(),
            "seconds": SECONDS + SECONDS_PER_BYTE * size,
            "memory": MEMORY + MEMORY_PER_BYTE * size,
        }
        with self._lock:
            try:
                warned, raised, result = self._exchange(request)
            except BaseException as error:
                # After an interrupt, too: no question may be given the answer to another.
                self.stop()
                if isinstance(error, _Failed):
                    raise RecordingError(f"{path} {error}: it is damaged. Fetch it again.") from None
                raise
        for category, text in warned:
            warnings.warn(text, _WARNINGS.get(category, UserWarning), stacklevel=4)
        if raised is None:
            return result
        name, text = raised
        if name == "MemoryError":
            raise RecordingError(
                f"{path} takes more memory than files of its size do: it is damaged. Fetch it again."
            )
        if name in _ERRORS:
            raise _ERRORS[name](text)
        raise RecordingError(f"{path} cannot be read ({name}: {text}). Fetch it again.")

    def stop(self) -> None:
        """End the process, and remove what it left."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _exchange(self, request: dict[str, Any]) -> tuple[list[list[str]], list[str] | None, Any]:
        """Return the warnings, the error and the result that answer a request."""
        process, late = self._running(), threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(request["seconds"], end)
        timer.daemon = True
        timer.start()
        try:
            line = _line_for(process, json.dumps(request))
        finally:
            timer.cancel()
        if late.is_set():
            raise _Failed(f"was not read within {request['seconds']:.0f} s, more than files of its size take")
        if len(line) < MAX_ANSWER and not line.endswith("\n"):
            raise _Failed(f"brought its reader down ({_ending(process)})")
        try:
            answer = json.loads(line)
            warned = [[str(category), str(text)] for category, text in answer["warnings"]]
            raised = [str(part) for part in answer["error"]] if "error" in answer else None
            return warned, raised, None if raised else self._with_arrays(answer["result"])
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            raise _Failed("made its reader answer in a form that is not known here") from None

    def _running(self) -> subprocess.Popen[str]:
        """Return the process; a new one if there is none, or it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._folder = tempfile.mkdtemp(prefix="mgpa-")
            places = [place for place in sys.path if place]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, json.dumps(places), self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        return self._process

    def _with_arrays(self, value: Any) -> Any:
        """Return a result with the arrays that it names, each no larger than its file."""
        if isinstance(value, list):
            return [self._with_arrays(one) for one in value]
        if not isinstance(value, dict):
            return value
        if _ARRAY not in value:
            return {name: self._with_arrays(one) for name, one in value.items()}
        number, dtype, shape, order = value[_ARRAY]
        if not re.fullmatch(r"[<>|][biufU]\d+", dtype):
            raise ValueError(dtype)
        path = Path(self._folder) / str(int(number))
        array = np.fromfile(path, dtype).reshape(shape, order=order)
        path.unlink()
        return array


_child = _Child()
_serving = False
atexit.register(_child.stop)
if hasattr(os, "register_at_fork"):  # a copy of this process needs a reader of its own
    os.register_at_fork(after_in_child=_child.__init__)  # type: ignore[misc]


def _line_for(process: subprocess.Popen[str], request: str) -> str:
    """Return the line that answers a request, or less if the process ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    return process.stdout.readline(MAX_ANSWER)


def _ending(process: subprocess.Popen[str]) -> str:
    """Return how a process ended, in words."""
    try:
        code = process.wait(10)
    except subprocess.TimeoutExpired:
        return "it closed its output"
    names = {-one.value: one.name for one in signal.Signals}
    return f"signal {names.get(code, -code)}" if code < 0 else f"exit code {code}"


def serve() -> None:
    """Answer requests on standard input, one a line, until it ends: the main function of the process."""
    global _serving
    _serving = True
    folder = Path(sys.argv[2])
    # Whatever libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line), folder)) + "\n")
        answers.flush()
    shutil.rmtree(folder, ignore_errors=True)


def _answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            module, _, name = request["reader"].partition(":")
            reader = getattr(importlib.import_module(module), name)
            os.chdir(request["folder"])
            _limit(request["memory"], request["seconds"])
            result = reader(_path_from_json(request["path"]), *request["arguments"], **request["options"])
            answer = {"result": _without_arrays(result, folder, [])}
            json.dumps(answer)  # or it is no answer
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            answer = {"error": [next((kind for kind in kinds if kind in _ERRORS), kinds[0]), str(error)]}
        finally:
            _limit(None, 0)
    return answer | {"warnings": [[one.category.__name__, str(one.message)] for one in caught]}


def _limit(memory: int | None, seconds: float) -> None:
    """Let this process have so much more memory and time; where the system cannot, that is its user's."""
    try:
        import resource
    except ImportError:  # Windows; the time is kept by whoever asks
        return
    # Should whoever asks be killed meanwhile, nobody else would end a reader that hangs.
    signal.alarm(int(seconds) + 10 if seconds else 0)
    if not sys.platform.startswith("linux"):  # elsewhere the limit is not kept
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = resource.RLIM_INFINITY if memory is None else pages * resource.getpagesize() + memory
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        most = hard if most == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _without_arrays(value: Any, folder: Path, stored: list[int]) -> Any:
    """Return a value fit for JSON, its arrays in files."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"an array of {value.dtype}")
        order = "F" if value.flags.fnc else "C"
        (value.T if order == "F" else value).tofile(folder / str(len(stored)))
        stored.append(len(stored))
        return {_ARRAY: [stored[-1], value.dtype.str, value.shape, order]}
    if isinstance(value, dict):
        return {name: _without_arrays(one, folder, stored) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(one, folder, stored) for one in value]
    return value


def _path_to_json(path: ProviderFile) -> Any:
    if isinstance(path, zipfile.Path):
        return [str(path.root.filename), path.at]
    return str(path)


def _path_from_json(path: Any) -> ProviderFile:
    return Path(path) if isinstance(path, str) else zipfile.Path(*path)


def _size(path: ProviderFile) -> int:
    """Return how many bytes there are of a file on disk; of one in an archive, those of the archive."""
    file = Path(str(path.root.filename)) if isinstance(path, zipfile.Path) else Path(path)
    return file.stat().st_size if file.is_file() else 0
