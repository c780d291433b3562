"""The few operations that numpy and torch spell differently."""

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
    """Return the array in float64 on its device; on the CPU for Apple devices, which lack float64."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float64)
    return (array.cpu() if array.device.type == "mps" else array).double()


def cast(values: Any, like: Array, dtype: Any = None) -> Array:
    """Return values as an array like ``like``: same library, device and (unless given) precision."""
    if isinstance(like, np.ndarray):
        return np.asarray(values, dtype=dtype or like.dtype)
    return namespace(like).as_tensor(values, dtype=dtype or like.dtype, device=like.device)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return float64 zeros in the library and on the device of ``like``."""
    xp = namespace(like)
    return xp.zeros(shape, dtype=xp.float64, **({} if xp is np else {"device": like.device}))
