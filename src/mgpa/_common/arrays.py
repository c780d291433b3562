"""The few places where numpy arrays and torch tensors are not spelled alike."""

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
    """Return the array in float64, where it is; from Apple devices, which have no float64, on the CPU."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float64)
    return (array.cpu() if array.device.type == "mps" else array).double()


def cast(values: Any, like: Array, dtype: Any = None) -> Array:
    """Return values as the kind of array that ``like`` is, in its place and (unless given) its precision."""
    if isinstance(like, np.ndarray):
        return np.asarray(values, dtype=dtype or like.dtype)
    return namespace(like).as_tensor(values, dtype=dtype or like.dtype, device=like.device)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return float64 zeros of the kind and in the place of ``like``."""
    xp = namespace(like)
    return xp.zeros(shape, dtype=xp.float64, **({} if xp is np else {"device": like.device}))
