"""Affine corrections: one for all rows, or one per source weighted by the posterior of the source."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from .._common.arrays import copy_rows, double
from ..linalg import n_threads
from .adaptation import require_population
from .base import CorrectionMap, Floats
from .info import MapInfo
from .runtime.compiled import kernels, on_blocks
from .runtime.folding import Folded, fold_affine, fold_spread, uncentred
from .validation import require_shape

# Up to this many directions, large arrays are corrected in one compiled pass. For small arrays, loading the
# compiler takes longer than the pass saves.
MOST_COMPILED, COMPILED_BYTES = 4, 2**24
BLOCK_BYTES, PRODUCT_ROWS = 2**19, 2048
# If means are at most this many standard deviations from zero, rows need no centring in float32.
FAR_FROM_ZERO = 8.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AffineMap(CorrectionMap):
    """x' = x - strength · ((x - center) G + offset) Dᵀ, with k-column G and D in the input's units.

    The closed form with K sources has k = K - 1 columns, so applying the map costs little more than copying
    rows. ``k = 0`` is the identity. With k near d, the factors are multiplied in advance, and applying the
    map costs one matrix product.
    """

    readout: Floats
    direction: Floats
    offset: Floats

    kind: ClassVar[str] = "affine"
    shapes: ClassVar[dict[str, str]] = {"readout": "d k", "direction": "d k", "offset": "k"}
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    @classmethod
    def identity(cls, n_features: int, *, info: MapInfo | None = None, **standardisation: Floats) -> Self:
        """Return the map that changes nothing (a zero-rank gate)."""
        nothing = np.zeros((n_features, 0))
        units: dict[str, Any] = {"center": np.zeros(n_features), "scale": np.ones(n_features)}
        info = info or MapInfo(method="identity")
        arrays = units | standardisation
        return cls(**arrays, readout=nothing, direction=nothing, offset=np.zeros(0), info=info)

    @property
    def rank(self) -> int:
        """Dimension of the space of edits."""
        return int(self.readout.shape[1])

    def _weights(self, dtype: np.dtype[Any]) -> Folded:
        folded = fold_affine(self)
        far = (np.abs(self.center) > FAR_FROM_ZERO * self.scale).any()
        if folded.back is not None and not (far and dtype == np.float32):
            # Centring costs a pass over the rows and is needed only if float32 sums would lose digits.
            offset = folded.offset - folded.center @ folded.readout
            folded.center, folded.offset = None, offset
        weights = folded.cast(partial(np.ascontiguousarray, dtype=dtype))
        weights.back = folded.back  # kept in float64: multiplied by the strength before rounding
        return weights

    def _apply(self, X: Floats, out: Floats) -> bool:
        k = self.rank
        if k == 0:
            return copy_rows(X, out)
        weights: Folded = self._prepared(X.dtype)
        if weights.back is None:  # the readout is (d, d) and gives the edits directly
            return self._apply_blocks(X, weights, None, out)
        back = np.ascontiguousarray(self.strength * weights.back, dtype=X.dtype)
        in_order = X.flags.c_contiguous and out.flags.c_contiguous
        if k <= MOST_COMPILED and X.nbytes >= COMPILED_BYTES and in_order:
            compiled = kernels()
            if compiled is not None:
                center, offset = self.center.astype(X.dtype), double(self.offset)
                readout = np.array(self.readout.T, dtype=np.float64, order="C")

                def shift(rows: slice) -> bool:
                    return bool(compiled.shift_rows(X[rows], center, readout, offset, back, out[rows]))

                return on_blocks(shift, len(X), -(-len(X) // n_threads()))
        return self._apply_blocks(X, weights, back, out)

    def _apply_blocks(self, X: Floats, weights: Folded, back: Floats | None, out: Floats) -> bool:
        """Correct rows in blocks that stay in the cache."""
        k, finite = weights.readout.shape[1], True
        block = max(1, BLOCK_BYTES // (X.itemsize * X.shape[1])) if back is not None else PRODUCT_ROWS
        work = np.empty((min(block, len(X)), X.shape[1]), dtype=X.dtype)
        outer = np.multiply if k == 1 else np.matmul
        for start in range(0, len(X), block):
            rows = X[start : start + block]
            centred = rows if weights.center is None else rows - weights.center
            # BLAS is many times faster for matrix times vector than for matrix times one column.
            coefficient = (centred @ weights.readout[:, 0])[:, None] if k == 1 else centred @ weights.readout
            coefficient += weights.offset
            finite &= bool(np.isfinite(coefficient).all())
            if back is None:
                coefficient *= self.strength
            edit = coefficient if back is None else outer(coefficient, back, out=work[: len(rows)])
            np.add(rows, edit, out=out[start : start + block])
        return finite

    def as_posterior(self) -> PosteriorMap:
        """Return the map as a posterior map with equal edits for all sources."""
        population = require_population(self)
        means = population.means
        linear, bias = population.scores(means, self.center, self.scale)
        K, d = len(means), self.n_features
        shared = {f.name: getattr(self, f.name) for f in fields(CorrectionMap) if f.init}
        return PosteriorMap(
            **shared,
            square=np.zeros((0, d)),
            square_weight=np.zeros((0, K)),
            linear=linear,
            bias=bias,
            edit=np.repeat(-(self.scale[:, None] * self.readout)[None], K, axis=0),
            edit_offset=np.repeat(-self.offset[None], K, axis=0),
            direction=self.direction.T / self.scale,
        )

    def _describe(self) -> str:
        k = self.rank
        return f"affine, {k} direction{'s' * (k > 1)}" if k else "identity"


BLOCK_NUMBERS = 2**20  # size of the products of one block of rows; shorter blocks spend more on Python


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PosteriorMap(CorrectionMap):
    """Edits of K sources, weighted by the posterior probability of each source given the row.

        h' = h + Σ_s p_s(h) E_s(h),   p = softmax((h G)² w + h L + b),   E_s(h) = (e_s + h D_s) O

    in standardised coordinates h. The scores are log-densities of Gaussians with unequal covariances, up to a
    common term; they consist of squares of a few linear combinations and a linear part.

    If rows do not reveal the source, all probabilities are equal and each row moves by the mean edit.

    Attributes
    ----------
    square, square_weight : (q, d), (q, K)
        G and w: linear combinations of a row whose squares distinguish sources, and their weights in each
        score.
    linear, bias : (K, d), (K,)
        L and b: the linear part of the scores.
    edit, edit_offset : (K, d, r), (K, r)
        D_s and e_s: the edit for rows of each source along ``direction``.
    direction : (r, d) or None
        O, rows in the span of the contrasts; None: the identity, r = d.
    unseen_whiten, unseen_means : (d, j), (K, j), or None
        Coordinates for comparing rows with the fitted devices, and the devices' means in them.
    unseen_edit, unseen_offset : (d, r), (r,), or None
        The edit for rows of unseen devices, in the form of ``edit`` and ``edit_offset``.
    unseen_odds : (1,) or None
        The log likelihood ratio (unseen device to fitted devices) at which both have probability one half.
    """

    square: Floats
    square_weight: Floats
    linear: Floats
    bias: Floats
    edit: Floats
    edit_offset: Floats
    direction: Floats | None = None
    unseen_whiten: Floats | None = None
    unseen_means: Floats | None = None
    unseen_edit: Floats | None = None
    unseen_offset: Floats | None = None
    unseen_odds: Floats | None = None

    kind: ClassVar[str] = "spread"
    shapes: ClassVar[dict[str, str]] = {
        "square": "q d", "square_weight": "q K", "linear": "K d", "bias": "K",
        "edit": "K d r", "edit_offset": "K r", "direction": "r d",
        "unseen_whiten": "d j", "unseen_means": "K j", "unseen_edit": "d r", "unseen_offset": "r",
        "unseen_odds": "one",
    }  # fmt: skip
    optional_tensors: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("direction",),
        ("unseen_whiten", "unseen_means", "unseen_edit", "unseen_offset", "unseen_odds"),
    )
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction is None:
            require_shape(self, "edit", (len(self.bias), self.n_features, self.n_features))
        if self.unseen_odds is not None:
            require_shape(self, "unseen_odds", (1,))

    @property
    def rank(self) -> int:
        """Dimension of the space of edits."""
        return int(self.edit.shape[2])

    def as_posterior(self) -> PosteriorMap:
        """Return the map itself."""
        return self

    def posterior(self, X: Any) -> Floats:
        """Return the probability of each source for each row, (n, K); sources as in ``info.source_names``."""
        weights: Folded = self._prepared(np.dtype(np.float64))
        return blend(np.asarray(X, dtype=np.float64) @ weights.first, weights)[0]

    def unseen(self, X: Any) -> Floats:
        """Return the probability that no fitted device explains each row, shape (n,)."""
        if self.unseen_odds is None:
            return super().unseen(X)
        weights: Folded = self._prepared(np.dtype(np.float64))
        products = np.asarray(X, dtype=np.float64) @ weights.first + weights.constant
        return unseen_share(products, weights)[:, 0]

    def _apply(self, X: Floats, out: Floats) -> bool:
        weights: Folded = self._prepared(X.dtype)
        strength = X.dtype.type(self.strength)

        def correct(block: slice) -> bool:
            rows = X[block]
            with np.errstate(over="ignore", invalid="ignore"):  # the caller's setting has no effect here
                centred = rows if weights.center is None else rows - weights.center
                _, edit = blend(centred @ weights.first, weights)
                if strength != 1:
                    edit *= strength
                np.add(rows, edit if weights.back is None else edit @ weights.back, out=out[block])
            return bool(np.isfinite(edit).all())

        return on_blocks(correct, len(X), max(1, BLOCK_NUMBERS // (weights.first.shape[1] + 2 * X.shape[1])))

    def _weights(self, dtype: np.dtype[Any]) -> Folded:
        """Return the folded weights as ``dtype``; float64 rows need no centring, which saves a pass."""
        folded = fold_spread(self)
        folded = uncentred(folded) if dtype == np.float64 else folded
        return folded.cast(partial(np.ascontiguousarray, dtype=dtype))

    def _describe(self) -> str:
        n = self.rank
        fades = "" if self.unseen_odds is None else ", and one edit for unseen devices"
        return f"edits of {len(self.bias)} sources read from the row, in {n} direction{'s' * (n != 1)}{fades}"


def blend(products: Floats, weights: Folded) -> tuple[Floats, Floats]:
    """Return posteriors, (n, K), and blended edits, (n, r), from ``products``, which is overwritten.

    The posterior covers the fitted devices. The blended edits include the edit for unseen devices, if any.
    """
    q, K = weights.square_weight.shape
    products += weights.constant
    scores = products[:, q : q + K] + np.square(products[:, :q]) @ weights.square_weight
    p = share = softmax(scores)
    end = products.shape[1]
    if weights.unseen_weight is not None:
        unseen = unseen_share(products, weights)
        share = np.concatenate([p * (1.0 - unseen), unseen], axis=1)
        end -= len(weights.unseen_weight) + K
    edits = np.split(products[:, q + K : end], share.shape[1], axis=1)
    blended = share[:, :1] * edits[0]
    for s in range(1, share.shape[1]):
        edits[s] *= share[:, s : s + 1]
        blended += edits[s]
    return p, blended


def unseen_share(products: Floats, weights: Folded) -> Floats:
    """Return the probability of an unseen device, (n, 1), from the products of rows."""
    K = weights.square_weight.shape[1]
    readings = products[:, -len(weights.unseen_weight) - K : -K]
    # Log-odds against each known device, then zero for the unseen device itself.
    odds = np.zeros((len(products), K + 1), dtype=products.dtype)
    np.subtract(-products[:, -K:], (np.square(readings) @ weights.unseen_weight)[:, None], out=odds[:, :K])
    return softmax(odds)[:, K:]


def softmax(scores: Floats) -> Floats:
    """Turn log-likelihoods (n, K), known up to a constant, into probabilities in place; return them."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
