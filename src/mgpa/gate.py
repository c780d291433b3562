"""Where a correction may act (section 3, "Estimating the measurement gate").

A gate is an orthonormal basis B of the directions along which paired measurements of the same thing
differ. Corrections move embeddings inside its span only. :class:`MeasurementGate` learns B from paired
contrasts; the other gates are the paper's controls, which ignore the pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import scipy.stats
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ._common.parameters import (
    Constraint,
    check_parameters,
    nothing,
    number,
    one_of,
    read_seed,
    seed,
    share,
    whole,
)
from ._common.scatter import Scatter
from .errors import Mention, MissingEvidence, UsageError

Floats = NDArray[np.float64]
Folds = list[tuple[NDArray[np.intp], NDArray[np.intp]]]  # (train, test)

# The published share of directional energy that a gate retains.
ENERGY = 0.9
# How often noise may look like a direction that pairs support, in a t-test over participants.
CHANCE = 0.01
# A contrast shorter than this (in standardised units) is two copies of the same embedding.
ZERO_NORM = 1e-10


class Gate(BaseEstimator):  # type: ignore[misc]
    """Common to all gates: a fitted orthonormal ``basis_`` and the projections it defines.

    A gate knows nothing of units: it is fitted on, and applied to, standardised coordinates.
    """

    #: What ``fit`` takes: paired "contrasts" or embedding "rows"; "given" needs neither.
    fitted_on: ClassVar[str] = "rows"
    _parameter_constraints: ClassVar[dict[str, Constraint]]

    basis_: Floats
    rank_: int
    cumulative_energy_: Floats
    mean_contrast_: Floats

    def editable(self, H: Any) -> Floats:
        """Return Z = Bᵀh for every row: the coordinates a correction may change."""
        check_is_fitted(self, "basis_")
        return np.asarray(H) @ self.basis_

    def preserved(self, H: Any) -> Floats:
        """Return Q = (I - BBᵀ)h for every row: what no correction changes (eq. (1))."""
        H = np.asarray(H)
        return np.asarray(H - self.editable(H) @ self.basis_.T)

    def coverage(self, contrasts: Any) -> float:
        """Return the share of directional energy that these contrasts have inside the gate.

        Evaluate it on pairs the gate was not fitted on: near 1, the gate also covers their measurement
        change; well below the retained energy, the gate has learnt its own pairs. Contrasts must be
        standardised as those the gate was fitted on; the estimators' ``coverage(pairs)`` sees to that.
        """
        check_is_fitted(self, "basis_")
        directions = unit_rows(check_array(contrasts, dtype=np.float64))
        if not len(directions):
            raise MissingEvidence("All contrasts are zero: identical views say nothing about coverage.")
        return float(np.mean(np.sum((directions @ self.basis_) ** 2, axis=1)))

    def _set_basis(self, basis: Floats, energy: Floats, mean: Floats) -> Self:
        self.basis_, self.rank_ = basis, basis.shape[1]
        self.cumulative_energy_, self.mean_contrast_ = energy, mean
        return self


class MeasurementGate(Gate):
    """The leading right singular vectors of unit-length paired contrasts.

    Parameters
    ----------
    rank : "auto", int or float
        An int is the rank. A float in (0, 1] is the share of directional energy to retain. "auto" retains
        90 % of it, but only as far as held-out pairs support the directions, so that noise of the pairs is
        not taken for an effect (:func:`supported_directions`).
    norm_quantile : float
        Contrasts shorter than this quantile of the non-zero lengths are left out: the direction of a very
        short contrast is mostly noise, and unit length would give it full weight.
    max_contrasts : int or None
        If there are more, use this many, evenly spaced in the order given.

    Attributes
    ----------
    basis_ : (d, r) array
        Orthonormal; the largest entry of each column is positive.
    rank_ : int
        0 if all contrasts are zero or, with "auto", if held-out pairs support no direction.
    cumulative_energy_ : (d,) array
        Share of directional energy inside the first 1, 2, … directions.
    mean_contrast_ : (d,) array
        Mean of the contrasts as given (neither filtered nor scaled).
    n_contrasts_ : int
        Contrasts that passed the filter.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> contrasts = rng.normal(size=(200, 2)) @ np.eye(2, 6) + 0.01 * rng.normal(size=(200, 6))
    >>> gate = MeasurementGate(rank=0.9).fit(contrasts)
    >>> gate.rank_, bool(gate.coverage(contrasts) > 0.99)
    (2, True)
    """

    fitted_on: ClassVar[str] = "contrasts"
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "rank": whole() | share | one_of("auto"),
        "norm_quantile": number(0, below=1),
        "max_contrasts": whole(1) | nothing,
    }

    def __init__(
        self,
        rank: int | float | str = "auto",
        *,
        norm_quantile: float = 0.05,
        max_contrasts: int | None = None,
    ) -> None:
        self.rank = rank
        self.norm_quantile = norm_quantile
        self.max_contrasts = max_contrasts

    def fit(
        self, X: Any, y: Any = None, *, kind: Any = None, groups: Any = None, rows: Scatter | None = None
    ) -> Self:
        """Fit on contrasts, one per row (second view minus first).

        Parameters
        ----------
        X : (m, d) array
            Contrasts.
        y : None
            Ignored.
        kind, groups, rows
            What ``rank="auto"`` knows about them; see :func:`supported_directions`. Other ranks need none of
            it, and do not depend on the contrasts' signs.
        """
        check_parameters(self)
        self._seen: list[Floats] = []
        return self._fit(validate_data(self, X, dtype=np.float64), kind, groups, rows)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add contrasts. The result equals one fit on all of them, whatever the batches.

        The filter and the scaling depend on all contrasts, so they are kept (m x d numbers).
        """
        check_parameters(self)
        first = not getattr(self, "_seen", None)
        return self._fit(validate_data(self, X, dtype=np.float64, reset=first), None, None, None)

    def _fit(self, X: Floats, kind: Any, groups: Any, rows: Scatter | None) -> Self:
        self._seen = [*self._seen, X] if hasattr(self, "_seen") else [X]
        contrasts = self._seen[0] if len(self._seen) == 1 else np.concatenate(self._seen)
        some: Any = slice(None)
        if self.max_contrasts is not None and len(contrasts) > self.max_contrasts:
            some = np.linspace(0, len(contrasts) - 1, self.max_contrasts).astype(int)
        kept = self._select(contrasts[some])
        self.n_contrasts_ = len(kept)
        vectors, energy = principal_directions(kept, contrasts.shape[1])
        rank = choose_rank(ENERGY if self.rank == "auto" else self.rank, energy, len(kept), "contrasts")
        basis = vectors[:, :rank]
        if self.rank == "auto" and rank:
            kind, groups = (None if labels is None else np.asarray(labels)[some] for labels in (kind, groups))
            basis = supported_directions(contrasts[some], basis, kind, groups, rows, self.norm_quantile)
            if not np.array_equal(basis, vectors[:, : basis.shape[1]]):  # the mean came first
                along = kept @ basis
                _, rest = principal_directions(kept - along @ basis.T, len(energy))
                energy = np.concatenate([np.sum(along**2, axis=0), rest])[: len(energy)]
        return self._set_basis(basis, cumulative_share(energy), contrasts.mean(axis=0))

    def _select(self, contrasts: Floats) -> Floats:
        norms = row_norms(contrasts)
        moving = norms > ZERO_NORM
        if not moving.any():
            return contrasts[:0]
        return unit_rows(contrasts[moving & (norms >= np.quantile(norms[moving], self.norm_quantile))])


class PCAGate(Gate):
    """Control: the leading principal directions of the embeddings themselves, blind to the pairs.

    Parameters
    ----------
    rank : int or float
        As in :class:`MeasurementGate`; the float is the share of variance.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"rank": whole() | share}

    def __init__(self, rank: int | float = 0.9) -> None:
        self.rank = rank

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on (standardised) embeddings, one per row."""
        check_parameters(self)
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        vectors, energy = principal_directions(X - X.mean(axis=0), X.shape[1])
        rank = choose_rank(self.rank, energy, len(X), "rows")
        return self._set_basis(vectors[:, :rank], cumulative_share(energy), np.zeros(X.shape[1]))


class RandomGate(Gate):
    """Control: a random subspace of the given rank.

    Parameters
    ----------
    rank : int or float
        Dimension of the subspace; a float in (0, 1] is that share of the features, rounded up.
    random_state : int, RandomState or None
        Seed. The basis is the sign-fixed QR factor of a normal matrix, hence uniformly distributed.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"rank": whole() | share, "random_state": seed}

    def __init__(self, rank: int | float = 1, *, random_state: Any = None) -> None:
        self.rank = rank
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on anything of the right width; only the number of columns is used."""
        check_parameters(self)
        X = validate_data(self, X, dtype=np.float64)
        d = X.shape[1]
        rank = choose_rank(self.rank, np.ones(d), d, "features")
        normal = np.random.default_rng(read_seed(self.random_state)).normal(size=(d, rank))
        Q, R = np.linalg.qr(normal)
        basis = Q * np.where(np.diag(R) < 0, -1.0, 1.0)
        return self._set_basis(basis, np.arange(1, d + 1) / d, np.zeros(d))


class FullGate(Gate):
    """Control: no restriction; every direction may be edited."""

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on anything of the right width; only the number of columns is used."""
        X = validate_data(self, X, dtype=np.float64)
        d = X.shape[1]
        return self._set_basis(np.eye(d), np.arange(1, d + 1) / d, np.zeros(d))


def _is_orthonormal(value: Any) -> bool:
    try:
        basis = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if basis.ndim != 2 or not np.isfinite(basis).all():
        return False
    return np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=2e-5)  # float32 will do


class FixedGate(Gate):
    """A gate that is known already: from other pairs, from tokens, from physics.

    Parameters
    ----------
    basis : (d, r) array
        Orthonormal columns, in standardised coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> gate = FixedGate(np.eye(4)[:, :1]).fit(np.zeros((1, 4)))
    >>> gate.preserved([[1.0, 2, 3, 4]])
    array([[0., 2., 3., 4.]])
    """

    fitted_on: ClassVar[str] = "given"
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "basis": Constraint(
            "an array (d, r) with orthonormal columns, as numpy.linalg.qr makes them", _is_orthonormal
        )
    }

    def __init__(self, basis: Any) -> None:
        self.basis = basis

    def fit(self, X: Any, y: Any = None) -> Self:
        """Take the basis as it is; of X only the number of columns is used."""
        check_parameters(self)
        basis, d = np.asarray(self.basis, dtype=np.float64), np.shape(X)[1]
        if len(basis) != d:
            raise ValueError(f"basis has shape {basis.shape}; expected columns of {d} features.")
        self.n_features_in_ = d
        return self._set_basis(basis, np.ones(d), np.zeros(d))


def row_norms(rows: Floats) -> Floats:
    """Return the length of every row, without a copy of them all."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def unit_rows(contrasts: Floats) -> Floats:
    """Return the non-zero rows scaled to unit length, so that directions count and magnitudes do not."""
    norms = row_norms(contrasts)
    moving = norms > ZERO_NORM
    return np.asarray(contrasts[moving] / norms[moving, None])


def principal_directions(rows: Floats, n_features: int) -> tuple[Floats, Floats]:
    """Return right singular vectors (columns, largest entry positive) and squared singular values of rows."""
    if not len(rows):
        return np.zeros((n_features, 0)), np.zeros(n_features)
    few = 2 * len(rows) < n_features
    energy, vectors = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    energy, vectors = energy[::-1], vectors[:, ::-1]
    resolved = energy > energy[0] * max(rows.shape) * np.finfo(np.float64).eps
    vectors = vectors[:, resolved]
    if few:
        vectors = rows.T @ (vectors / np.sqrt(energy[resolved]))
        # Products of rows cost the weak directions some digits of their right angles: restore them.
        lower = np.linalg.cholesky(vectors.T @ vectors)
        vectors = scipy.linalg.solve_triangular(lower, vectors.T, lower=True, overwrite_b=True).T
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    padded = np.zeros(n_features)
    padded[: resolved.sum()] = energy[resolved]
    return vectors, padded


def cumulative_share(energy: Floats) -> Floats:
    """Return cumulative energy as a share of the total (zeros if there is none)."""
    total = energy.sum()
    return np.asarray(np.cumsum(energy) / total) if total > 0 else np.zeros_like(energy)


def choose_rank(rank: Any, energy: Floats, n_rows: int, what: str) -> int:
    """Turn ``rank`` (an int, or a float share of energy) into a number of directions."""
    available = int((energy > 0).sum())
    if isinstance(rank, (int, np.integer)):
        if rank > len(energy):
            limit = f" does not fit {len(energy)} features; use 0 to {len(energy)}."
            raise UsageError(Mention("rank", int(rank)), limit)
        if rank > available and available:
            raise UsageError(
                Mention("rank", int(rank)),
                f" needs {rank} independent {what}; the {n_rows} usable ones give {available}. Lower the "
                "rank, supply more, or ask for a share of energy such as ",
                Mention("rank", 0.9),
                ".",
            )
        return min(int(rank), available)
    retained = cumulative_share(energy)
    return min(int(np.searchsorted(retained, float(rank), side="left")) + 1, available)


def supported_directions(
    contrasts: Floats, leading: Floats, kind: Any, groups: Any, rows: Scatter | None, norm_quantile: float
) -> Floats:
    """Return the directions that pairs support which did not choose them, an orthonormal (d, r).

    Two things support directions, both by more than chance gives once in a hundred times (:data:`CHANCE`).
    Held-out contrasts *vary* along a direction at least twice as much as noise would, in which contrasts are
    like rows of one source. And held-out contrasts have a *mean* along the other contrasts' mean: then the
    leading directions that hold :data:`ENERGY` of what both means share are supported, if they are not more
    than there are means; if they are, noise comes before the effect, and the mean's own direction is put in
    front. Leading directions count up to the first that nothing supports.

    Of three sources and more, two may differ by little of what the others differ by: its energy is nothing
    beside theirs, and readers need no more. So the directions in which mean contrasts differ, but for the
    first, are taken as long as held-out contrasts share them: K - 1 in all.

    Parameters
    ----------
    contrasts : (m, d) array
        In standardised coordinates.
    leading : (d, k) array
        Their principal directions to consider, in the order of their energy.
    kind : (m,) array or None
        Which two sources a contrast is between, since each two have a mean of their own; None: all the same.
    groups : (m,) array or None
        Participants, who are held out as a whole. None, or a single one: contrasts are held out.
    rows : Scatter or None
        Of standardised rows about their sources' means; None: all directions are alike.
    norm_quantile : float
        As in :class:`MeasurementGate`.

    Returns
    -------
    (d, r) array
        r = 0 if the pairs show nothing; all that lead if there are too few pairs to hold any out.
    """
    folds = contrast_folds(contrasts, groups)
    if not folds:
        return leading
    m, n_leading = len(contrasts), leading.shape[1]
    people = np.zeros(m, np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
    # Two people's means have one product, which cannot tell how far it varies: their contrasts have to.
    units = people if people.max() > 1 else np.arange(m)
    kind = np.unique(np.zeros(m) if kind is None else kind, return_inverse=True)[1]
    held_out = _HeldOut(contrasts, kind, folds, rows, norm_quantile)
    agreed, error = _mean_of_units(held_out.along_mean(), units)
    # Folds share contrasts, which makes chance look a little surer than it is: few units must be very sure.
    errors = float(scipy.stats.t.ppf(1.0 - CHANCE, units.max()))
    errors *= np.sqrt(2.0) if people.max() == 1 else 1.0  # of two people, all products are of the same two
    has_mean = bool(agreed[0] > errors * error[0])
    means = held_out.means_of(np.arange(m), held_out.directions)
    n_supported, k = 0, 0
    while n_supported == k < n_leading:  # more directions are looked at only if all so far are supported
        k = min(max(64, 2 * k), n_leading)
        energy, noise, shared = held_out.along_leading(k)
        excess, error = _mean_of_units(energy - 2.0 * noise, units)
        supported = excess > errors * error
        enough = np.cumsum(shared.mean(axis=0)) >= ENERGY * agreed[0]
        n_mean = int(np.argmax(enough)) + 1 if enough.any() else n_leading + 1
        if has_mean and n_mean <= len(means):
            supported[:n_mean] = True
        n_supported = k if supported.all() else int(np.argmin(supported))
    chosen = leading[:, :n_supported]
    if has_mean and n_mean > n_supported:
        vectors, size = principal_directions(means, contrasts.shape[1])
        n_own = choose_rank(ENERGY, size, len(means), "means")
        chosen = orthonormal(vectors[:, :n_own], chosen)
    # The fewest sources that have as many means two by two; K of them have K - 1 effects, of which one is in.
    n_effects = int(np.ceil((np.sqrt(8 * len(means) + 1) - 1) / 2)) if has_mean else 0
    for j in range(1, n_effects):
        agreed, error = _mean_of_units(held_out.along_effect(j), units)
        if agreed[0] <= errors * np.sqrt(2.0) * error[0]:  # both factors are of the same few units
            break
        effect = held_out.effect(np.arange(m), j)
        if np.sum((chosen.T @ effect) ** 2) < ENERGY:  # what little is outside of a gate that has it is noise
            chosen = orthonormal(chosen, effect)
    return chosen


class _HeldOut:
    """Contrasts against what the others, of all folds but their own, lead one to expect of them."""

    def __init__(
        self, contrasts: Floats, kind: NDArray[np.intp], folds: Folds, rows: Scatter | None, quantile: float
    ) -> None:
        norms = row_norms(contrasts)
        moving = norms > ZERO_NORM
        self.contrasts, self.kind, self.folds, self.rows = contrasts, kind, folds, rows
        self.directions = contrasts / np.where(moving, norms, np.inf)[:, None]
        self.long_enough = moving & (norms >= np.quantile(norms[moving], quantile))
        self.others_means = [self.means_of(train, self.directions) for train, _ in folds]
        few = self.long_enough.sum() < contrasts.shape[1]
        self.whole = None if few else Scatter.of_rows(self.directions[self.long_enough])

    def means_of(self, some: NDArray[np.intp], rows: Floats) -> Floats:
        """Return the mean of each kind among some rows (directions, or contrasts), 0 where there are none."""
        means = np.zeros((self.kind.max() + 1, rows.shape[1]))
        for i in range(len(means)):
            chosen = some[self.kind[some] == i]
            if len(chosen):
                means[i] = rows[chosen].mean(axis=0)
        return means

    def along_mean(self) -> Floats:
        """Return every contrast along the others' mean of its kind, (m, 1)."""
        along = np.zeros((len(self.directions), 1))
        for means, (_, test) in zip(self.others_means, self.folds, strict=True):
            along[test, 0] = (self.directions[test] @ means.T)[np.arange(len(test)), self.kind[test]]
        return along

    def effect(self, some: NDArray[np.intp], j: int) -> Floats:
        """Return the direction, (d, 1), of which mean contrasts of some pairs have most but for j others."""
        means = self.means_of(some, self.contrasts)
        return principal_directions(means, means.shape[1])[0][:, j : j + 1]

    def along_effect(self, j: int) -> Floats:
        """Return what every contrast shares with the others' mean of its kind in direction j, (m, 1)."""
        along = np.zeros((len(self.contrasts), 1))
        for train, test in self.folds:
            v, means = self.effect(train, j), self.means_of(train, self.contrasts)
            if v.shape[1]:
                along[test] = (self.contrasts[test] @ v) * (means @ v)[self.kind[test]]
        return along

    def along_leading(self, k: int) -> tuple[Floats, Floats, Floats]:
        """Return what every contrast has along the others' k leading directions, three (m, k) arrays.

        Its energy; what that would be, were it noise; and what it shares with the others' mean of its kind.
        """
        rows = self.rows
        total = float(self.directions.shape[1] if rows is None else rows.diagonal.sum())
        energy, noise, shared = (np.zeros((len(self.directions), k)) for _ in range(3))
        for means, (train, test) in zip(self.others_means, self.folds, strict=True):
            V = leading_directions(self._scatter_of(train, test), k)
            along, among = self.directions[test] @ V, np.ix_(test, np.arange(V.shape[1]))
            energy[among], shared[among] = along**2, along * (means @ V)[self.kind[test]]
            # What is left of a contrast, were it noise, has the shape of what is left of the rows' spread.
            variance = np.ones(V.shape[1]) if rows is None else rows.along(V)
            left = np.maximum(total - _before(variance[None]), variance)
            noise[among] = (1.0 - _before(along**2)) * variance / left
        return energy, noise, shared

    def _scatter_of(self, train: NDArray[np.intp], test: NDArray[np.intp]) -> Scatter:
        if self.whole is None:
            return Scatter.of_rows(self.directions[train[self.long_enough[train]]])
        held_out = self.directions[test[self.long_enough[test]]]  # they leave the rest of the whole
        return Scatter(self.whole.matrix - held_out.T @ held_out)


def leading_directions(scatter: Scatter, k: int) -> Floats:
    """Return up to k principal directions of rows with this scatter, as columns; cheap if k is small."""
    gram = scatter.gram() if scatter.factored else scatter.matrix
    if 4 * k < len(gram):
        values, vectors = scipy.sparse.linalg.eigsh(gram, k=k, v0=np.ones(len(gram)))
    else:
        values, vectors = np.linalg.eigh(gram)
    order = np.argsort(-values, kind="stable")[:k]
    values, vectors = values[order], vectors[:, order]
    resolved = values > values.max(initial=0.0) * scatter.n_features * np.finfo(np.float64).eps
    values, vectors = values[resolved], vectors[:, resolved]
    return scatter.back(vectors / np.sqrt(values)) if scatter.factored else np.asarray(vectors)


def orthonormal(first: Floats, second: Floats) -> Floats:
    """Return an orthonormal basis: the columns of ``first``, which are so, then what ``second`` adds."""
    Q, R = np.linalg.qr(second - first @ (first.T @ second))
    added = Q[:, np.abs(np.diag(R)) > 1e-8]
    added = added * np.sign(added[np.abs(added).argmax(axis=0), np.arange(added.shape[1])])
    return np.concatenate([first, added], axis=1)


def _before(values: Floats) -> Floats:
    """Return, at each column, the sum of the columns before it."""
    return np.cumsum(values, axis=1) - values


def contrast_folds(contrasts: Floats, groups: Any = None) -> Folds:
    """Return up to five (train, test) splits of contrasts, by participant where several are known.

    Without participants, or of a single one, contrasts are dealt out by their length, so that their order
    does not matter. There is no split of a single contrast.
    """
    if groups is None or len(np.unique(groups)) < 2:
        units = np.empty(len(contrasts), np.int64)
        units[np.argsort(row_norms(contrasts), kind="stable")] = np.arange(len(contrasts)) % 5
    else:
        units = np.unique(groups, return_inverse=True)[1]
    n_folds = min(5, len(np.unique(units)))
    return list(GroupKFold(n_folds).split(contrasts, groups=units)) if n_folds > 1 else []


def _mean_of_units(values: Floats, units: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the mean of rows and its standard error, whose rows belong to units that go together."""
    mean = values.mean(axis=0)
    sums = np.zeros((units.max() + 1, values.shape[1]))
    np.add.at(sums, units, values - mean)
    n = len(sums)
    return mean, np.sqrt(n / (n - 1) * np.sum(sums**2, axis=0)) / len(values)


def held_out_coverage(contrasts: Any, *, groups: Any = None, n_splits: int = 5) -> Floats:
    """Return the held-out directional energy inside gates of rank 1, 2, …: evidence for choosing a rank.

    Parameters
    ----------
    contrasts : (m, d) array
        Paired contrasts, standardised as the estimator would (divided by the feature scale).
    groups : (m,) array or None
        Participants; contrasts of one participant are never on both sides of a split.
    n_splits : int
        Number of folds.

    Returns
    -------
    (k,) array
        Mean over folds; entry i is the coverage of rank i + 1, up to the largest rank every fold supports.
        The curve flattens where further directions are no longer shared between pairs.
    """
    contrasts = check_array(contrasts, dtype=np.float64, ensure_min_samples=2)
    splitter = KFold(n_splits, shuffle=True, random_state=0) if groups is None else GroupKFold(n_splits)
    curves = []
    for train, test in splitter.split(contrasts, groups=groups):
        gate = MeasurementGate(rank=1.0).fit(contrasts[train])
        directions = unit_rows(contrasts[test])
        if gate.rank_ and len(directions):
            curves.append(np.cumsum(np.mean((directions @ gate.basis_) ** 2, axis=0)))
    if not curves:
        raise MissingEvidence("All contrasts are zero: identical views say nothing about coverage.")
    shortest = min(map(len, curves))
    return np.asarray(np.mean([curve[:shortest] for curve in curves], axis=0))


def fit_gate(
    gate: Any,
    contrasts: Floats,
    rows: Callable[[], Floats],
    editable: NDArray[np.bool_],
    known: Callable[[], dict[str, Any]],
) -> Any:
    """Fit ``gate`` (a clone) on the editable features only, then express it in all features.

    A feature that never varied in the fitting data gets exact zeros in the basis, so it is never edited.
    ``known`` says what a gate that chooses its rank by held-out pairs wants to know about them.
    """
    if not editable.any():
        raise ValueError(
            f"All {len(editable)} features of X are constant, so there is nothing to correct. "
            "Check that the embeddings were computed."
        )
    if gate.fitted_on == "given":
        gate = gate.fit(np.empty((0, len(editable))))
        if gate.basis_[~editable].any():
            raise ValueError("The given basis edits features that are constant in the fitting rows.")
        return gate
    if gate.fitted_on == "contrasts":
        about = known() if gate.rank == "auto" else {}
        if about:
            about["rows"] = about["rows"].take(editable)
        gate = gate.fit(contrasts if editable.all() else contrasts[:, editable], **about)
    else:
        gate = gate.fit(rows()[:, editable])
    gate._seen = []  # an estimator that takes more data keeps its own; twice would be once too often
    if not editable.all():
        d = len(editable)
        basis, mean, energy = np.zeros((d, gate.rank_)), np.zeros(d), np.ones(d)
        basis[editable], mean[editable] = gate.basis_, gate.mean_contrast_
        energy[: editable.sum()] = gate.cumulative_energy_
        gate.basis_, gate.mean_contrast_, gate.cumulative_energy_ = basis, mean, energy
        gate.n_features_in_ = d
    return gate
