"""MATLAB files: one array of a known shape, or one cell array of texts and numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordingError
from .reader_process import read_apart


def read_array(path: Path, variable: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a real, finite array of this shape, or raise and say what the file holds instead."""
    array = _load(path, variable)
    if array.shape != shape or array.dtype.kind not in "fiu":
        raise RecordingError(
            f"{path}: {variable} is {array.dtype} of shape {array.shape}; expected real numbers of {shape}."
        )
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise RecordingError(f"{path}: {variable} has NaN or infinity (first at {where}, counted from 0).")
    return array


def read_cell(path: Path, variable: str) -> list[list[Any]]:
    """Return the rows of a cell array. Texts are stripped, and whole numbers are integers; empty is ""."""
    cell = _load(path, variable)
    if cell.dtype != object or cell.ndim != 2 or len(cell) < 2:
        raise RecordingError(
            f"{path}: {variable} is {cell.dtype} of shape {cell.shape}; expected a cell array with a row of "
            "names and a row for each participant."
        )
    return [[_plain(value) for value in row] for row in cell]


def _plain(value: Any) -> Any:
    """Return a text or a number out of whatever MATLAB wrapped it in."""
    while isinstance(value, np.ndarray):
        if value.size != 1:
            return "" if value.size == 0 else value.tolist()
        value = value.reshape(-1)[0]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value


def _load(path: Path, variable: str) -> NDArray[Any]:
    if not path.is_file():
        raise FileNotFoundError(f"No file {path}.")
    content = path.read_bytes()
    array: NDArray[Any] = read_apart(_variable, path, content, variable, str(path), n_bytes=len(content))
    return array


def _variable(content: bytes, variable: str, name: str) -> NDArray[Any]:
    from scipy.io import loadmat

    try:
        variables = loadmat(io.BytesIO(content))
    except NotImplementedError:
        raise RecordingError(
            f"{name} is a MATLAB 7.3 file, unlike the provider's; store it with save(..., '-v7')."
        ) from None
    except Exception as error:  # of zlib, struct and scipy itself, and all of them mean the same
        raise RecordingError(f"{name} is damaged, or not a MATLAB file: {error}. Fetch it again.") from None
    if variable not in variables:
        names = ", ".join(sorted(name for name in variables if not name.startswith("__")))
        raise RecordingError(f"{name} has no variable {variable!r}. Variables: {names or 'none'}.")
    return np.asarray(variables[variable])
