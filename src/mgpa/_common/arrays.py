"""Operations with different names in numpy and torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .checks import is_tensor as is_tensor

Array = Any  # numpy array or torch tensor


def namespace(array: Array) -> Any:
    """Return the module whose functions work on ``array``: numpy or torch."""
    return sys.modules["torch"] if is_tensor(array) else np


def double(array: Array) -> Array:
    """Return the array as float64 on its device, or on the CPU for Apple GPUs, which lack float64."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float64)
    return (array.cpu() if array.device.type == "mps" else array).double()


def cast(values: Any, like: Array, dtype: Any = None) -> Array:
    """Return values as an array with the library, device and (by default) precision of ``like``."""
    if isinstance(like, np.ndarray):
        return np.asarray(values, dtype=dtype or like.dtype)
    return namespace(like).as_tensor(values, dtype=dtype or like.dtype, device=like.device)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return float64 zeros in the library and on the device of ``like``."""
    xp = namespace(like)
    return xp.zeros(shape, dtype=xp.float64, **({} if xp is np else {"device": like.device}))


def copy_rows(X: Array, out: Array) -> bool:
    """Copy rows unchanged into ``out`` and return whether they are finite."""
    np.copyto(out, X)
    return bool(np.isfinite(out).all())


def token_rows(X: Any, layout: str) -> Any:
    """Return tokens (n, t, d) as rows: their mean (summed in float64), or all tokens in a row ("joint")."""
    if layout == "joint":
        return X.reshape(len(X), -1)
    if is_tensor(X):
        return X.double().mean(dim=1).to(X.dtype)
    return np.asarray(X).mean(axis=1, dtype=np.float64).astype(X.dtype)
