"""Tests, over participants, of whether pairs and rows show an effect.

Rows of one participant are correlated, and a difference between sources may be a difference between
participants. Therefore each decision (whether to correct, in which directions, how many stages) compares an
estimate with its standard error over participants, as in a t-test (:func:`t_quantile`). If participants are
unknown, rows or pairs are the units.

The published gates contain a share of the energy of the contrasts (90 or 99 %), or a chosen number of
directions. If paired views differ by noise, these are mostly directions of noise.
``MeasurementGate(rank="auto")`` therefore tests directions on pairs of held-out participants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import scipy.stats
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from .labels import Labels
from .linalg import BLOCK, Scatter, blocks
from .pairs import effect_weights

Floats = NDArray[np.float64]
Folds = list[tuple[NDArray[np.intp], NDArray[np.intp]]]  # (train, test)

# Error rate of decisions that are made once.
LEVEL = 0.05
# The published share of directional energy in a gate.
ENERGY = 0.9
# Error rate of the t-test (over participants) for directions that pairs support.
CHANCE = 0.01

# A contrast shorter than this (in standardised units) is two copies of the same embedding.
ZERO_NORM = 1e-10


def t_quantile(level: float, df: float) -> float:
    """Return the t quantile with upper tail probability ``level``; infinity if df is 0."""
    return float(scipy.stats.t.isf(level, df)) if df > 0 else np.inf


def mean_over_units(values: Any, units: Any = None) -> tuple[Any, Any, int]:
    """Return the mean of values (m,) or (m, k), its standard error, and the error's degrees of freedom.

    ``units`` (m,) are participants, whose values are correlated. The mean is the mean of their means, so that
    participants have equal weights and the t-test is valid. With None, or with a single participant, every
    value is a unit. The error is infinite if there is only one unit.
    """
    values = np.asarray(values, dtype=np.float64)
    names, codes = np.unique(np.zeros(len(values)) if units is None else units, return_inverse=True)
    if len(names) == 1:  # with one participant, or unknown participants, rows are the units
        codes = np.arange(len(values))
    n = int(codes.max()) + 1
    sums = np.zeros((n, *values.shape[1:]))
    np.add.at(sums, codes, values)
    means = (sums.T / np.bincount(codes)).T
    mean = means.mean(axis=0)
    if n == 1:
        return mean, mean + np.inf, 0
    return mean, means.std(axis=0, ddof=1) / np.sqrt(n), n - 1


def jackknife(value: float, left_out: Any, n_sources: int, crossed: bool) -> tuple[float, int]:
    """Return a standard error and its degrees of freedom, from the estimates without each unit.

    ``left_out`` (P,) is NaN if a source has only that unit; the error is then infinite. If every unit has all
    sources (``crossed``), one mean was subtracted from P units; otherwise, one mean per source.
    """
    left_out = np.asarray(left_out, dtype=np.float64)
    P = len(left_out)
    error = float(np.sqrt((P - 1) / P * np.sum((left_out - value) ** 2)))
    return np.inf if np.isnan(error) else error, P - 1 if crossed else P - n_sources


def row_norms(rows: Floats) -> Floats:
    """Return the length of each row without copying the rows."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def unit_rows(contrasts: Floats, shortest: float = 0.0) -> Floats:
    """Return the non-zero rows scaled to unit length, so that only their directions matter.

    Rows shorter than ``shortest`` are left out.
    """
    norms = row_norms(contrasts)
    moving = (norms > ZERO_NORM) & (norms >= shortest)
    rows = contrasts[moving]
    rows /= norms[moving, None]
    return np.asarray(rows)


def principal_directions(
    rows: Floats, n_features: int, count: int | Callable[[Floats], int] | None = None
) -> tuple[Floats, Floats]:
    """Return right singular vectors (columns, largest entry positive) and squared singular values of rows.

    Only the leading ``count`` vectors are returned; ``count`` is a number or a function of the squared
    singular values.
    """
    few = 2 * len(rows) < n_features
    energy, vectors = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    energy, vectors = energy[::-1], vectors[:, ::-1]
    resolved = energy > energy.max(initial=0.0) * max(rows.shape) * np.finfo(np.float64).eps
    padded = np.zeros(n_features)
    padded[: resolved.sum()] = energy[resolved]
    k = count(padded) if callable(count) else count
    energy, vectors = energy[resolved][:k], vectors[:, resolved][:, :k]
    if few:
        vectors = rows.T @ (vectors / np.sqrt(energy))
    if few and len(energy):
        # Restore the orthogonality of weak directions, which products of rows reduce.
        lower = np.linalg.cholesky(vectors.T @ vectors)
        vectors = scipy.linalg.solve_triangular(lower, vectors.T, lower=True, overwrite_b=True).T
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    return vectors, padded


def leading_axes(gram: Floats, k: int, n_features: int) -> tuple[Floats, Floats]:
    """Return up to k largest eigenvalues above rounding level, with their vectors; fast for small k."""
    if 4 * k < len(gram):
        values, vectors = scipy.sparse.linalg.eigsh(gram, k=k, v0=np.ones(len(gram)))
    else:
        values, vectors = np.linalg.eigh(gram)
    order = np.argsort(-values, kind="stable")[:k]
    values, vectors = values[order], vectors[:, order]
    resolved = values > values.max(initial=0.0) * n_features * np.finfo(np.float64).eps
    return values[resolved], vectors[:, resolved]


def orthonormal(first: Floats, second: Floats) -> Floats:
    """Return an orthonormal basis: orthonormal columns of ``first``, then new directions of ``second``."""
    Q, R = np.linalg.qr(second - first @ (first.T @ second))
    added = Q[:, np.abs(np.diag(R)) > 1e-8]
    added = added * np.sign(added[np.abs(added).argmax(axis=0), np.arange(added.shape[1])])
    return np.concatenate([first, added], axis=1)


def cumulative_share(energy: Floats) -> Floats:
    """Return cumulative energy as a share of the total (zeros if there is none)."""
    total = energy.sum()
    return np.asarray(np.cumsum(energy) / total) if total > 0 else np.zeros_like(energy)


def supported_directions(
    contrasts: Floats, leading: Floats, kind: Any, groups: Any, rows: Scatter | None, norm_quantile: float
) -> Floats:
    """Return the directions that held-out pairs support, an orthonormal (d, r).

    Two kinds of evidence support directions, both at the level of one in a hundred (:data:`CHANCE`). First,
    held-out contrasts *vary* along a direction at least twice as much as noise, assumed to vary like rows
    of one source, would. Second, held-out contrasts have a *mean* along the mean of the other contrasts.
    Then the leading directions with a share :data:`ENERGY` of the common part of both means are supported. If
    the clear directions of the means contain as much energy and are fewer, noise precedes the effects, and
    these directions are put first. Leading directions are kept up to the first one without support. With
    three or more sources, further directions of the mean contrasts are added if held-out contrasts share
    them, up to K - 1 in total.

    ``leading`` (d, k) are the principal directions of the standardised contrasts (m, d), ``kind`` (m, 2) the
    two sources of each, ``groups`` its participant, ``rows`` the scatter of rows about their sources' means.
    All leading directions are returned if there are too few pairs to hold any out, and none if pairs show no
    effect.
    """
    folds = contrast_folds(contrasts, groups)
    if not folds:
        return leading
    between = np.tile([0, 1], (len(contrasts), 1)) if kind is None else np.asarray(kind)
    units = np.arange(len(contrasts))
    if groups is not None and len(participants := np.unique(groups)) > 1:
        units = np.searchsorted(participants, groups)
    # With one participant, contrasts are the units; with several, participants are the units.
    held_out = _HeldOut(contrasts, between, folds, rows, norm_quantile)
    agreed, clear = held_out.shared_means(units, count_effects(np.unique(between, axis=0)))
    n_shared = 1 + int(np.argmax(cumulative_share(clear) >= ENERGY)) if len(clear) else 0
    n_supported, n_mean = held_out.count_supported(leading.shape[1], units, agreed, n_shared)
    chosen, everything = leading[:, :n_supported], np.arange(len(contrasts))
    if len(clear) and n_mean > n_supported:
        means = held_out.means_of(everything)
        chosen = orthonormal(principal_directions(means, contrasts.shape[1], n_shared)[0], chosen)
    effects = principal_directions(held_out.source_effects(everything), contrasts.shape[1])[0]
    for j in range(min(n_mean, n_shared), len(clear)):
        if not clear[j] > 0:
            break
        effect = effects[:, j : j + 1]
        if np.sum((chosen.T @ effect) ** 2) < ENERGY:  # if the gate has this share, the rest is noise
            chosen = orthonormal(chosen, effect)
    return chosen


def count_effects(kinds: Labels) -> int:
    """Return the number of directions in which the contrasted sources can differ.

    This is K minus the number of groups of sources that are not connected by contrasts.

    Examples
    --------
    >>> count_effects(np.array([[0, 1], [0, 2], [1, 2]])), count_effects(np.array([[0, 1], [0, 2], [0, 3]]))
    (2, 3)
    """
    sources = np.unique(kinds)
    between = (kinds[:, 1:] == sources).astype(int) - (kinds[:, :1] == sources)
    return int(np.linalg.matrix_rank(between))


class _HeldOut:
    """Comparison of contrasts with predictions from other folds."""

    def __init__(
        self, contrasts: Floats, between: Labels, folds: Folds, rows: Scatter | None, quantile: float
    ) -> None:
        norms = row_norms(contrasts)
        moving = norms > ZERO_NORM
        self.contrasts, self.folds, self.rows = contrasts, folds, rows
        self.kind = np.unique(between, axis=0, return_inverse=True)[1].ravel()
        sources = np.unique(between)
        self.first, self.second = np.searchsorted(sources, between.T)
        self.n_sources = len(sources)
        self.inverse_norms = 1.0 / np.where(moving, norms, np.inf)
        self.long_enough = moving & (norms >= np.quantile(norms[moving], quantile))
        self.others_means = [self.means_of(train) for train, _ in folds]
        self.whole: Floats | None = None
        if self.long_enough.sum() >= (d := contrasts.shape[1]):
            some, total = np.flatnonzero(self.long_enough), np.zeros((d, d))
            for part in blocks(len(some), max(1, BLOCK // (4 * d))):
                directions = self.directions(some[part])
                total += directions.T @ directions
            self.whole = total

    def directions(self, some: NDArray[np.intp]) -> Floats:
        """Return some contrasts, scaled to unit length."""
        return np.asarray(self.contrasts[some] * self.inverse_norms[some, None])

    def means_of(self, some: NDArray[np.intp]) -> Floats:
        """Return the mean direction of each kind of some contrasts; 0 for a kind without any."""
        return self._means(some, self.kind[some], int(self.kind.max()) + 1)

    def _means(self, some: NDArray[np.intp], label: NDArray[np.intp], n_labels: int) -> Floats:
        """Return the mean direction of the contrasts of each label, without copying them."""
        shape = n_labels, len(self.contrasts)
        sums = scipy.sparse.csr_array((self.inverse_norms[some], (label, some)), shape=shape) @ self.contrasts
        sums /= np.maximum(np.bincount(label, minlength=n_labels), 1)[:, None]
        return np.asarray(sums)

    def along_mean(self) -> Floats:
        """Return the projection (m,) of each contrast on the mean of other contrasts of its kind."""
        along = np.zeros(len(self.contrasts))
        for means, (_, test) in zip(self.others_means, self.folds, strict=True):
            along[test] = (self.directions(test) @ means.T)[np.arange(len(test)), self.kind[test]]
        return along

    def shared_means(self, units: NDArray[np.intp], n_effects: int) -> tuple[float, Floats]:
        """Return the agreement of means over units, in total and for each effect; 0 if not significant."""
        agreed, error, df = mean_over_units(self.along_mean(), units)
        # Both factors of a product of means come from the same few units, which doubles the variance.
        errors = np.sqrt(2.0) * t_quantile(CHANCE / 2, df)
        # Two tests at half the level each: agreement along one direction, and over all directions.
        along_one = df > 1 and bool(agreed > errors * error)
        if not (along_one or self.mean_chance(units, n_effects) < CHANCE / 2):
            return agreed, np.zeros(0)
        effects = [mean_over_units(self.along_effect(j), units) for j in range(n_effects)]
        return agreed, np.array([shared if shared > errors * error else 0.0 for shared, error, _ in effects])

    def count_supported(
        self, n_leading: int, units: NDArray[np.intp], agreed: float, n_shared: int
    ) -> tuple[int, int]:
        """Return the number of supported leading directions, and the number that contain the shared mean."""
        n_supported, n_mean, k = 0, n_leading + 1, 0
        while n_supported == k < n_leading:  # test more directions only if all so far are supported
            k = min(max(64, 2 * k), n_leading)
            energy, noise, shared = self.along_leading(k)
            # Two participants give only one product, which has no estimate of its variance.
            excess, error, df = mean_over_units(energy - 2.0 * noise, units)
            supported = (excess > t_quantile(CHANCE, df) * error) & (df > 1)
            enough = np.cumsum(mean_over_units(shared, units)[0]) >= ENERGY * agreed
            n_mean = int(np.argmax(enough)) + 1 if enough.any() else n_leading + 1
            if n_mean <= n_shared:
                supported[:n_mean] = True
            n_supported = k if supported.all() else int(np.argmin(supported))
        return n_supported, n_mean

    def mean_chance(self, units: NDArray[np.intp], n_effects: int) -> float:
        """Return the p-value of a common mean over units (Dempster's test).

        The length of the mean over units is compared with the spread of units about it. Both are sums of
        about as many independent squares as there are dimensions, so even two participants can show an
        agreement beyond chance.
        """
        dimensions = float(self.contrasts.shape[1])  # if rows vary equally in all directions
        if self.rows is not None:
            gram = self.rows.gram() if self.rows.factored else self.rows.matrix
            dimensions = max(1.0, float(np.trace(gram) ** 2 / np.sum(gram**2)))
        common, spread, n_units = 0.0, 0.0, len(np.unique(units))
        for kind in range(self.kind.max() + 1):
            members = np.flatnonzero(self.kind == kind)
            codes = np.unique(units[members], return_inverse=True)[1]
            means = self._means(members, codes, codes.max() + 1)
            center = means.mean(axis=0)
            common += len(means) * float(center @ center)
            means -= center
            spread += float(np.vdot(means, means))
        if not spread > 0:
            return 0.0 if n_units > 1 and common > 0 else 1.0
        n_kinds = self.kind.max() + 1
        ratio = (common / n_kinds) / (spread / (n_kinds * (n_units - 1)))
        df = dimensions * n_effects
        return float(scipy.stats.f.sf(ratio, df, df * (n_units - 1)))

    def source_effects(self, some: NDArray[np.intp]) -> Floats:
        """Return the effect of each source relative to the mean of all, (K, d), from selected contrasts.

        Means for each kind of contrast are not used: if all pairs are with one source, its noise is in all of
        these means and looks like a shared direction.
        """
        weights, _ = effect_weights(self.first, self.second, self.n_sources, some)
        return np.asarray(weights @ self.contrasts)

    def along_effect(self, j: int) -> Floats:
        """Return the product of each contrast and its prediction from others along direction j, (m,)."""
        along = np.zeros(len(self.contrasts))
        for train, test in self.folds:
            effects = self.source_effects(train)
            v = principal_directions(effects, effects.shape[1])[0][:, j : j + 1]
            if v.shape[1]:
                expected = (effects @ v)[self.second[test]] - (effects @ v)[self.first[test]]
                along[test] = ((self.contrasts[test] @ v) * expected)[:, 0]
        return along

    def along_leading(self, k: int) -> tuple[Floats, Floats, Floats]:
        """Return the coordinates of contrasts along k leading directions of other contrasts, three (m, k).

        The arrays are the energy, its expectation for noise, and the part shared with the mean of other
        contrasts of the same kind.
        """
        rows, (m, d) = self.rows, self.contrasts.shape
        total = float(d if rows is None else rows.diagonal.sum())
        energy, noise, shared = (np.zeros((m, k)) for _ in range(3))
        if self.whole is None:  # directions are sums of a few contrasts, so use products of contrasts
            D = self.directions(np.arange(m))
            gram, inside = D @ D.T, None if rows is None else rows.inside(D.T)
        for means, (train, test) in zip(self.others_means, self.folds, strict=True):
            if self.whole is None:
                fitted = train[self.long_enough[train]]
                values, vectors = leading_axes(gram[np.ix_(fitted, fitted)], k, d)
                vectors = vectors / np.sqrt(values)
                along, mean = gram[np.ix_(test, fitted)] @ vectors, means @ D[fitted].T @ vectors
                scatter = None if inside is None else inside[np.ix_(fitted, fitted)] @ vectors
            else:
                out = self.directions(test[self.long_enough[test]])
                vectors = leading_axes(self.whole - out.T @ out, k, d)[1]
                along, mean = self.directions(test) @ vectors, means @ vectors
                scatter = None if rows is None else rows.matrix @ vectors
            among = np.ix_(test, np.arange(vectors.shape[1]))
            energy[among], shared[among] = along**2, along * mean[self.kind[test]]
            # For noise, the remaining part of a contrast has the covariance of the remaining spread of rows.
            variance = np.ones(vectors.shape[1]) if scatter is None else np.sum(vectors * scatter, axis=0)
            remaining = np.maximum(total - _before(variance[None]), variance)
            noise[among] = (1.0 - _before(along**2)) * variance / remaining
        return energy, noise, shared


def _before(values: Floats) -> Floats:
    """Return, for each column, the sum of all previous columns."""
    return np.cumsum(values, axis=1) - values


def contrast_folds(contrasts: Floats, groups: Any = None) -> Folds:
    """Return up to five (train, test) splits of contrasts, by participant if several are known.

    Without participants, or with a single one, contrasts are assigned to folds by their length, so that their
    order does not matter. A single contrast cannot be split.
    """
    if groups is None or len(np.unique(groups)) < 2:
        units = np.empty(len(contrasts), np.int64)
        units[np.argsort(row_norms(contrasts), kind="stable")] = np.arange(len(contrasts)) % 5
    else:
        units = np.unique(groups, return_inverse=True)[1]
    n_folds = min(5, len(np.unique(units)))
    return list(GroupKFold(n_folds).split(contrasts, groups=units)) if n_folds > 1 else []
