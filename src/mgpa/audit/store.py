"""Finished cells on disk: named by what they were computed from, complete or absent, never computed twice."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._files import write_atomically

Arrays = dict[str, NDArray[Any]]


def key_of(*parts: Any) -> str:
    """Return a name for a computation from everything that determines its result."""
    text = json.dumps(parts, sort_keys=True, default=_describe)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def array_digest(*arrays: NDArray[Any] | None) -> str:
    """Return a checksum of arrays, their types and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none;")
            continue
        digest.update(f"{array.dtype.str}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _describe(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return array_digest(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "get_params"):
        return [type(value).__module__, type(value).__qualname__, value.get_params()]
    return repr(value)


class Store:
    """A folder of ``.npz`` files, one a cell; without a folder nothing is kept.

    Files hold arrays only and are read without pickle, so opening one never runs code.
    """

    def __init__(self, folder: Any = None) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path | None:
        """Return where a cell's arrays are or would be kept."""
        return None if self.folder is None else self.folder / f"{key}.npz"

    def get(self, key: str) -> Arrays | None:
        """Return a finished cell, or None. A damaged file counts as none, and says so."""
        path = self.path(key)
        if path is None or not path.exists():
            return None
        try:
            with open(path, "rb") as stream:
                return dict(np.load(stream, allow_pickle=False))
        except Exception as error:  # truncated, altered or something else entirely
            warnings.warn(f"{path} cannot be read ({error}); computing it again.", stacklevel=2)
            return None

    def put(self, key: str, arrays: Arrays) -> Arrays:
        """Keep a finished cell and return it."""
        path = self.path(key)
        if path is None:
            return arrays
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_atomically(path, buffer.getvalue())
        return arrays
