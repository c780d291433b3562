"""Check the arrays and provenance of a map, and the columns of data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MapError, first_few

if TYPE_CHECKING:
    from .base import CorrectionMap
    from .info import MapInfo


def require_arrays(m: CorrectionMap) -> None:
    """Raise unless arrays and numbers are finite and consistent; make the arrays read-only."""
    for group in m.optional_tensors:
        absent = [name for name in group if getattr(m, name) is None]
        if absent and len(absent) < len(group):
            raise MapError(f"{', '.join(absent)} missing; expected all of {', '.join(group)}.")
    for name, array in m.tensors.items():
        array = np.asarray(array)
        if array.dtype not in (np.float32, np.float64):
            raise MapError(f"{name} has dtype {array.dtype}; a map holds float32 or float64 arrays.")
        if not np.isfinite(array).all():
            raise MapError(f"{name} holds NaN or infinite values.")
        if array.flags.writeable or not array.flags.c_contiguous or array.base is not None:
            # In C order, so that a reloaded map rounds identically; a copy, so that it stays unchanged.
            array = np.array(array, order="C")
            array.flags.writeable = False
        object.__setattr__(m, name, array)
    for name in m.scalar_names:
        value = getattr(m, name)
        if not isinstance(value, float) or not np.isfinite(value):
            raise MapError(f"{name} must be a finite number; got {value!r}.")
    if not m.n_features:
        raise MapError("A map needs at least one feature.")
    _require_shapes(m)
    if not (m.scale > 0).all():
        raise MapError("scale must be positive everywhere.")
    if m.strength < 0:
        raise MapError(f"strength must not be negative; got {m.strength!r}.")


def _require_shapes(m: CorrectionMap) -> None:
    """Raise unless each array has the shape given in ``shapes``."""
    sizes = {"d": m.n_features}
    for name, array in m.tensors.items():
        forms = [form.split() for form in m.shapes.get(name, "d").split(" or ")]
        axes = next((form for form in forms if len(form) == array.ndim), forms[0])
        expected = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
        same = [sizes.setdefault(axis, n) == n for axis, n in zip(axes, array.shape, strict=False)]
        if array.ndim != len(axes) or not all(same):
            raise MapError(f"{name} has shape {array.shape}; expected ({expected}).")


def require_shape(m: CorrectionMap, name: str, shape: tuple[int, ...]) -> None:
    """Raise unless an array of the map has this shape."""
    actual = getattr(m, name).shape
    if actual != shape:
        raise MapError(f"{name} has shape {actual}; expected {shape}.")


def require_info(m: CorrectionMap) -> None:
    """Raise unless names, tokens, ranges and coordinates match the number of features."""
    d, info = m.n_features, m.info
    if info.feature_names is not None and len(info.feature_names) not in (d, m.n_raw):
        raise MapError(f"{len(info.feature_names)} feature names for {d} features.")
    constant = info.constant_features
    if any(type(i) is not int or not 0 <= i < d for i in constant) or len(set(constant)) != len(constant):
        positions = first_few(list(map(repr, constant)), 4)
        raise MapError(f"constant_features are {positions}; expected distinct integers (int), 0 to {d - 1}.")
    if info.token_layout not in ("mean", "joint"):
        raise MapError(f"token_layout is {info.token_layout!r}; expected 'mean' or 'joint'.")
    joint = info.token_layout == "joint"
    if joint and (info.n_tokens is None or info.n_tokens < 1 or d % info.n_tokens):
        raise MapError(f"token_layout is 'joint', but {info.n_tokens} tokens cannot have {d} features.")
    width = d // (info.n_tokens or 1) if joint else d
    if m.fitted is not None and m.fitted.features.shape[1] != d:
        raise MapError(f"The fitted ranges have {m.fitted.features.shape[1]} features, the map {d}.")
    if m.population is not None and len(m.population.center) != d:
        raise MapError(f"The population has {len(m.population.center)} features, the map {d}.")
    if m.coordinates is not None and m.coordinates.n_coordinates != width:
        raise MapError(f"The map has {width} features, its coordinates {m.coordinates.n_coordinates}.")


def require_names(info: MapInfo, columns: tuple[Any, ...], width: int) -> None:
    """Raise unless the columns of a data frame are the features of the fit, in order."""
    names = info.feature_names
    if names is not None and len(names) == width and columns != names:
        here = first_few(list(map(str, columns)), 4)
        raise ValueError(
            f"X has columns {here} but the map was fitted on {first_few(names, 4)}; reorder or select "
            "columns to match. For a Table, pass table.X."
        )
