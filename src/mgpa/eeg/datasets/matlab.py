"""MATLAB files: one array of a known shape, or a small table in any of the forms people store tables in."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_array(path: Path, variable: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a real, finite array of this shape, or raise and say what the file holds instead.

    Files of MATLAB 7.3, which are HDF5 files, need h5py.
    """
    variables = _load(path, variable)
    if variable not in variables:
        raise ValueError(
            f"{path} has no variable {variable!r}; it has {', '.join(sorted(variables)) or 'no variables'}."
        )
    array = np.asarray(variables[variable])
    if array.shape != shape:
        raise ValueError(f"{path}: {variable} has shape {array.shape}; expected {shape}.")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{path}: {variable} has dtype {array.dtype}; expected real numbers.")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{path}: {variable} has NaN or infinity (first at {where}, counted from 0).")
    return array


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file's only table: a struct array, a struct of arrays, or a cell with a header.

    Texts are stripped, and whole numbers are integers; an empty entry is "".
    """
    variables = _load(path)
    if "__function_workspace__" in variables:
        raise ValueError(
            f"{path} holds a MATLAB table or another object, which only MATLAB reads; store "
            "table2struct(T) instead."
        )
    if len(variables) != 1:
        names = ", ".join(sorted(variables)) or "none"
        raise ValueError(f"{path} must hold one variable, a struct or a cell array; it has {names}.")
    [(name, value)] = variables.items()
    value = np.asarray(value)
    if value.dtype.names:
        rows = _struct_rows(path, value.reshape(-1))
    elif value.dtype == object and value.ndim == 2 and all(isinstance(_plain(x), str) for x in value[0]):
        header = [_plain(x) for x in value[0]]
        rows = [dict(zip(header, map(_plain, row), strict=True)) for row in value[1:]]
    else:
        raise ValueError(
            f"{path}: {name} is {value.dtype} of shape {value.shape}; expected a struct array, a struct of "
            "arrays, or a cell array whose first row names its columns."
        )
    if not rows:
        raise ValueError(f"{path}: {name} has no rows.")
    return rows


def _struct_rows(path: Path, records: NDArray[Any]) -> list[dict[str, Any]]:
    names = records.dtype.names or ()
    if len(records) != 1:
        return [{name: _plain(record[name]) for name in names} for record in records]
    columns = {name: np.atleast_1d(records[0][name]).reshape(-1) for name in names}
    if len({len(column) for column in columns.values()}) != 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise ValueError(f"{path}: the fields of its struct have different lengths: {lengths}.")
    return [dict(zip(names, map(_plain, row), strict=True)) for row in zip(*columns.values(), strict=True)]


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


def _load(path: Path, variable: str | None = None) -> dict[str, Any]:
    """Return the file's variables, or (``variable``) this one if it is there and the names of the others."""
    from scipy.io import loadmat

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        variables = loadmat(path, squeeze_me=variable is None)
    except NotImplementedError:
        if variable is None:
            raise ValueError(
                f"{path} is a MATLAB 7.3 file; store it again with save(..., '-v7') to have it read."
            ) from None
        return _load_hdf5(path, variable)
    except Exception as error:
        # scipy lets errors of zlib, struct and its own through, and all of them mean the same.
        raise OSError(f"{path} is damaged, incomplete or no MATLAB file: {error}") from error
    return {
        name: value
        for name, value in variables.items()
        if name not in ("__header__", "__version__", "__globals__")
    }


def _load_hdf5(path: Path, variable: str) -> dict[str, Any]:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise ImportError(
            f"{path} is a MATLAB 7.3 file, which needs h5py (pip install h5py); or store it with "
            "save(..., '-v7')."
        ) from None
    try:
        with h5py.File(path, "r") as file:
            variables: dict[str, Any] = {name: None for name in file if not name.startswith("#")}
            if variable in variables:
                # HDF5 counts dimensions from the other end.
                variables[variable] = np.asarray(file[variable]).T
    except OSError as error:
        raise OSError(f"{path} is damaged or incomplete: {error}") from error
    return variables
