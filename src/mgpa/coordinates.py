"""Transform the raw features of an encoder to the embedding that a map corrects.

Principal components and standardisation are fitted only on given rows and stored in the file of the map, so
that the deployed map can be applied to raw features.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._common.checks import as_float_matrix
from .errors import UsageError

WHOLE = 192  # block of rows: a multiple of BLAS block sizes on all processors, also with two threads


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The affine map x ↦ (x - origin) Vᵀ / scale, with V the principal axes, or without them.

    ``origin`` (D,) is the mean of the fitting rows, ``scale`` (d,) their standard deviation along each
    coordinate, and ``components`` V (d, D) has orthonormal rows; None keeps the features (d = D).
    """

    origin: NDArray[Any]
    scale: NDArray[Any]
    components: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        for name in ("origin", "scale", "components"):
            values = getattr(self, name)
            if values is None:
                continue
            values = np.array(values, order="C")
            if values.dtype not in (np.float32, np.float64) or not np.isfinite(values).all():
                raise ValueError(f"{name} must be finite float32 or float64 numbers; it is {values.dtype}.")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        D, d = self.n_raw, self.n_coordinates
        shapes = [None if a is None else a.shape for a in (self.origin, self.scale, self.components)]
        if shapes not in ([(D,), (d,), (d, D)], [(D,), (D,), None]):
            raise ValueError("origin {}, scale {} and components {} do not fit together.".format(*shapes))
        if not (self.scale > 0).all():
            raise ValueError("scale must be positive everywhere.")

    @property
    def n_raw(self) -> int:
        """Number of raw features."""
        return int(self.origin.size)

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates."""
        return int(self.scale.size)

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the coordinates of raw features (n, D) or tokens (n, t, D), in the precision of X."""
        X = np.asarray(X)
        flat = as_float_matrix(X.reshape(-1, X.shape[-1]), n_features=self.n_raw)
        if self.components is None:
            moved = flat - self.origin
        else:
            # BLAS computes the last rows of a product differently, which changes their last bits. With whole
            # blocks, rows (and fingerprints of fits) are bit-identical in every batch.
            n = len(flat)
            moved = np.zeros((-(-n // WHOLE) * WHOLE, self.n_raw), np.result_type(flat, self.origin))
            np.subtract(flat, self.origin, out=moved[:n])
            moved = (moved @ self.components.T)[:n]
        return np.asarray(moved / self.scale, dtype=flat.dtype).reshape(*X.shape[:-1], self.n_coordinates)

    @cached_property
    def digest(self) -> str:
        """A checksum of the numbers."""
        digest = hashlib.sha256()
        for values in (self.origin, self.scale, self.components):
            digest.update(b"none" if values is None else f"{values.dtype.str}{values.shape}".encode())
            digest.update(b"" if values is None else values.tobytes())
        return digest.hexdigest()[:16]


def fit_coordinates(
    X: Any,
    *,
    n_components: int | None = None,
    standardize: bool = True,
    floor: float | None = None,
    dtype: Any = np.float64,
) -> Coordinates:
    """Fit coordinates on the given rows.

    Parameters
    ----------
    X : (n, D) or (n, t, D) array
        Raw features; each token counts as a row.
    n_components : int or None
        Leading principal components to keep (exact, by a full decomposition); None keeps the features.
    standardize : bool
        Divide by the population standard deviation along each coordinate.
    floor : float or None
        Smallest spread to divide by. None divides constant coordinates by 1.
    dtype : dtype
        Precision of the stored numbers; they are computed in float64.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 8)) * np.arange(1, 9)
    >>> Z = fit_coordinates(X, n_components=3).transform(X)
    >>> Z.shape, bool(np.allclose(Z.std(axis=0), 1) and np.allclose(Z.mean(axis=0), 0))
    ((50, 3), True)
    """
    X = np.asarray(X)
    rows = as_float_matrix(X.reshape(-1, X.shape[-1])).astype(np.float64)
    if len(rows) < 2:
        raise ValueError(f"Coordinates need at least two rows to be fitted on; got {len(rows)}.")
    origin, components = rows.mean(axis=0), None
    if n_components is not None:
        most = min(rows.shape)
        if not 1 <= n_components <= most:
            raise UsageError(
                f"n_components is {n_components}; {len(rows)} rows of {rows.shape[1]} features have at most "
                f"{most}."
            )
        from sklearn.decomposition import PCA

        pca = PCA(n_components, svd_solver="full").fit(rows)
        origin, components = pca.mean_, pca.components_
    along = rows - origin if components is None else (rows - origin) @ components.T
    scale = np.ones(along.shape[1])
    if standardize:
        spread = along.std(axis=0)
        # Components without variance have only rounding noise, far below the leading component.
        noise = max(rows.shape) * np.finfo(np.float64).eps
        varies = spread > noise * (np.abs(rows).max(axis=0) if components is None else spread.max())
        scale = np.where(varies, spread, 1.0) if floor is None else np.maximum(spread, floor)
    return Coordinates(
        origin.astype(dtype), scale.astype(dtype), None if components is None else components.astype(dtype)
    )
