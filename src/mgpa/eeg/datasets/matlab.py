"""MATLAB files: one array of a known shape, or one cell array of texts and numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reader_process import ProviderFile, read_apart


@read_apart
def read_array(path: ProviderFile, variable: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a real, finite array of this shape, or raise and say what the file holds instead."""
    array = _load(path, variable)
    if array.shape != tuple(shape):
        raise ValueError(f"{path}: {variable} has shape {array.shape}; expected {tuple(shape)}.")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{path}: {variable} has dtype {array.dtype}; expected real numbers.")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{path}: {variable} has NaN or infinity (first at {where}, counted from 0).")
    return array


@read_apart
def read_cell(path: ProviderFile, variable: str) -> list[list[Any]]:
    """Return the rows of a cell array. Texts are stripped, and whole numbers are integers; empty is ""."""
    cell = _load(path, variable)
    if cell.dtype != object or cell.ndim != 2 or len(cell) < 2:
        raise ValueError(
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


def _load(path: ProviderFile, variable: str) -> NDArray[Any]:
    from scipy.io import loadmat

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        variables = loadmat(io.BytesIO(path.read_bytes()))
    except NotImplementedError:
        raise ValueError(
            f"{path} is a MATLAB 7.3 file, as the provider's are not; store it with save(..., '-v7')."
        ) from None
    except Exception as error:
        # scipy lets errors of zlib, struct and its own through, and all of them mean the same.
        raise OSError(f"{path} is damaged, incomplete or no MATLAB file: {error}") from error
    if variable not in variables:
        names = ", ".join(sorted(name for name in variables if not name.startswith("__"))) or "no variables"
        raise ValueError(f"{path} has no variable {variable!r}; it has {names}.")
    return np.asarray(variables[variable])
