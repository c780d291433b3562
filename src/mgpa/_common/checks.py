"""Checks of input arrays and of memory, which need only numpy."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NotEnoughMemory

Floats = NDArray[Any]
# Files with the memory limit of a Linux container; "max" means no limit.
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def is_tensor(array: Any) -> bool:
    """Return whether ``array`` is a torch tensor, without importing torch."""
    return type(array).__module__.partition(".")[0] == "torch"


def on_cuda(array: Any) -> bool:
    """Return whether ``array`` is a CUDA tensor."""
    return is_tensor(array) and array.device.type == "cuda"


def as_float_matrix(X: Any, *, n_features: int | None = None, name: str = "X") -> Floats:
    """Return X as an (n, d) float32 or float64 array, or raise."""
    refuse_masked(X, name)
    X = np.asarray(X)
    if X.ndim != 2:
        hint = " For tokens (n, t, d) use mgpa.TokenMean or mgpa.transform_tokens." if X.ndim == 3 else ""
        raise ValueError(f"{name} has shape {X.shape}; expected two dimensions (rows, features).{hint}")
    # In C order, so that results are bit-identical whatever the memory layout of X.
    rows = np.ascontiguousarray(as_floats(X, name, "a float32 or float64 array of embeddings"))
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"{name} has {rows.shape[1]} features; this correction was fitted on {n_features}.")
    return rows


def as_floats(
    X: Floats, name: str, expected: str, *, category: type[Warning] = UserWarning, stacklevel: int = 4
) -> Floats:
    """Return an array as float32 or float64 in native byte order, or raise."""
    if X.dtype.kind in "iub":
        warnings.warn(
            f"{name} has integer dtype {X.dtype}; computing and returning float64. "
            "Convert it yourself to choose the precision.",
            category,
            stacklevel=stacklevel,
        )
        return X.astype(np.float64)
    if X.dtype.name in ("float16", "bfloat16"):
        raise ValueError(
            f"{name} is {X.dtype.name}, not precise enough; convert with {name}.astype('float32')."
        )
    native = X.dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise ValueError(f"{name} has dtype {X.dtype}; expected {expected}.")
    return X.astype(native, copy=False)


def require_output(out: Any, X: Floats) -> None:
    """Raise unless ``out`` can hold the corrected rows of X; ``out`` may be X itself."""
    alike = isinstance(out, np.ndarray) and (out.shape, out.dtype) == (X.shape, X.dtype)
    if not alike or not out.flags.writeable:
        got = f"{type(out).__name__} {getattr(out, 'shape', '')} {getattr(out, 'dtype', '')}".rstrip()
        raise ValueError(f"out must be writable, such as np.empty({X.shape}, '{X.dtype}'); got {got}.")
    itself = out.ctypes.data == X.ctypes.data and out.strides == X.strides
    if not itself and np.shares_memory(out, X):
        raise ValueError("out overlaps X; pass X itself to correct it in place, or a separate array.")


def refuse_masked(values: Any, name: str) -> None:
    """Raise if values are masked, sparse or on the meta device; numpy would read masked values as data."""
    if is_tensor(values) and (values.is_meta or str(values.layout) != "torch.strided"):
        kind = "is on the meta device without values" if values.is_meta else f"has layout {values.layout}"
        raise ValueError(f"{name} {kind}; pass a dense tensor (.to_dense()) with values.")
    if hasattr(values, "toarray"):
        raise ValueError(f"{name} is sparse; a correction makes rows dense. Pass {name}.toarray().")
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        raise ValueError(
            f"{name} has {int(np.sum(values.mask))} masked values; drop those rows, or fill them in yourself."
        )


def require_finite(X: Floats, name: str) -> None:
    """Raise if X has NaN or infinite entries, naming the first bad row."""
    with np.errstate(over="ignore", invalid="ignore"):
        # A fast sum first (BLAS if possible); entries are checked only if the sum is not finite.
        if np.isfinite(np.vdot(X, X) if X.flags.c_contiguous else X.sum()):
            return
    bad = ~np.isfinite(X).all(axis=tuple(range(1, X.ndim)))
    if bad.any():
        raise ValueError(
            f"{name} contains NaN or infinite values in {int(bad.sum())} of {len(X)} rows "
            f"(first: row {int(np.flatnonzero(bad)[0])}). Drop or impute those rows yourself."
        )


def total_memory() -> float:
    """Return the memory of this machine or container in bytes; infinity if unknown."""
    try:
        total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return float("inf")
    try:
        return min(total, float(CGROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return total


def require_memory(n_bytes: float, what: str, instead: str) -> None:
    """Raise if an operation needs more memory than this machine has.

    ``what`` is the subject of the message's first sentence; ``instead`` is a sentence of advice.
    """
    total = total_memory()
    if n_bytes > total:
        needed, available = (f"{size / 2**30:.3g} GiB" for size in (n_bytes, total))
        raise NotEnoughMemory(f"{what} need {needed} of memory; this machine has {available}. {instead}")
