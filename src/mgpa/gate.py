"""Gates: the directions in which a correction may act (section 3, "Estimating the measurement gate").

A gate is an orthonormal basis B of the directions along which paired measurements of one event differ.
Corrections move embeddings only inside its span. :class:`MeasurementGate` learns B from paired contrasts.
:class:`PCAGate`, :class:`RandomGate` and :class:`FullGate` are the paper's controls, which do not use pairs.
:class:`FixedGate` has a given basis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
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
from .errors import MissingEvidence, UsageError, identical_views
from .evidence import (
    ENERGY,
    ZERO_NORM,
    cumulative_share,
    principal_directions,
    row_norms,
    supported_directions,
    unit_rows,
)
from .linalg import Scatter
from .moments import Standardizer
from .pairs import Pairs

Floats = NDArray[np.float64]


class Gate(BaseEstimator):  # type: ignore[misc]
    """Base class of gates, with a fitted orthonormal ``basis_`` and its projections.

    Gates are fitted on, and applied to, standardised coordinates.
    """

    #: Input of ``fit``: paired "contrasts" or embedding "rows"; "given" needs neither.
    fitted_on: ClassVar[str] = "rows"
    _parameter_constraints: ClassVar[dict[str, Constraint]]

    basis_: Floats
    rank_: int
    cumulative_energy_: Floats
    mean_contrast_: Floats

    @property
    def retained_energy(self) -> float | None:
        """Share of the contrasts' directional energy inside the gate; None for gates without contrasts."""
        if self.fitted_on != "contrasts":
            return None if self.rank_ else 0.0
        return float(self.cumulative_energy_[self.rank_ - 1]) if self.rank_ else 0.0

    def editable(self, H: Any) -> Floats:
        """Return Z = Bᵀh for each row: the coordinates that a correction may change."""
        check_is_fitted(self, "basis_")
        return np.asarray(H) @ self.basis_

    def preserved(self, H: Any) -> Floats:
        """Return Q = (I - BBᵀ)h for each row: the part that no correction changes (eq. (1))."""
        H = np.asarray(H)
        return np.asarray(H - self.editable(H) @ self.basis_.T)

    def coverage(self, contrasts: Any) -> float:
        """Return the share of the directional energy of standardised contrasts inside the gate.

        Use pairs on which the gate was not fitted. Near 1, the gate also covers their measurement change.
        Well below the retained energy, the gate is overfitted to its own pairs.
        """
        check_is_fitted(self, "basis_")
        directions = unit_rows(check_array(contrasts, dtype=np.float64))
        if not len(directions):
            raise MissingEvidence("All contrasts are zero: identical views show nothing about coverage.")
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
        90 % of the energy, but only directions that held-out pairs support, so that noise in pairs is not
        mistaken for an effect (:func:`supported_directions`).
    norm_quantile : float
        Contrasts shorter than this quantile of the non-zero lengths are left out: the direction of a very
        short contrast is mostly noise, and unit length would give it full weight.
    max_contrasts : int or None
        Maximum number of contrasts; from more, evenly spaced contrasts are used.

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
        Number of contrasts that passed the filter.

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
        """Fit on contrasts X (m, d), second view minus first.

        ``kind``, ``groups`` and ``rows`` are used for ``rank="auto"``; see :func:`supported_directions`.
        Other ranks do not need them and do not depend on the signs of the contrasts.
        """
        check_parameters(self)
        contrasts = validate_data(self, X, dtype=np.float64)
        some: Any = slice(None)
        if self.max_contrasts is not None and len(contrasts) > self.max_contrasts:
            some = np.linspace(0, len(contrasts) - 1, self.max_contrasts).astype(int)
        norms = row_norms(contrasts[some])
        moving = norms > ZERO_NORM
        shortest = np.quantile(norms[moving], self.norm_quantile) if moving.any() else 0.0
        self.n_contrasts_ = n = int(np.sum(moving & (norms >= shortest)))
        wanted = ENERGY if self.rank == "auto" else self.rank
        leading, energy = principal_directions(
            unit_rows(contrasts[some], shortest),
            contrasts.shape[1],
            lambda e: choose_rank(wanted, e, n, "contrasts"),
        )
        basis = leading
        if self.rank == "auto" and leading.size:
            kind, groups = (None if labels is None else np.asarray(labels)[some] for labels in (kind, groups))
            basis = supported_directions(contrasts[some], basis, kind, groups, rows, self.norm_quantile)
            if not np.array_equal(basis, leading[:, : basis.shape[1]]):  # directions of the mean come first
                selected = unit_rows(contrasts[some], shortest)
                along = selected @ basis
                _, rest = principal_directions(selected - along @ basis.T, len(energy), 0)
                energy = np.concatenate([np.sum(along**2, axis=0), rest])[: len(energy)]
        return self._set_basis(basis, cumulative_share(energy), contrasts.mean(axis=0))


class PCAGate(Gate):
    """Control: the leading principal directions of the embeddings, without pairs.

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
        basis, energy = principal_directions(
            X - X.mean(axis=0), X.shape[1], lambda e: choose_rank(self.rank, e, len(X), "rows")
        )
        return self._set_basis(basis, cumulative_share(energy), np.zeros(X.shape[1]))


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
        """Fit on any array; only its number of columns is used."""
        check_parameters(self)
        X = validate_data(self, X, dtype=np.float64)
        d = X.shape[1]
        rank = choose_rank(self.rank, np.ones(d), d, "features")
        normal = np.random.default_rng(read_seed(self.random_state)).normal(size=(d, rank))
        Q, R = np.linalg.qr(normal)
        basis = Q * np.where(np.diag(R) < 0, -1.0, 1.0)
        return self._set_basis(basis, np.arange(1, d + 1) / d, np.zeros(d))


class FullGate(Gate):
    """Control: no restriction, so that all directions may be edited."""

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on any array; only its number of columns is used."""
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
    return np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=2e-5)  # float32 precision is enough


class FixedGate(Gate):
    """A gate with a given basis: from other pairs, from tokens, from physics.

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
        """Use the given basis; only the number of columns of X is used."""
        check_parameters(self)
        basis, d = np.asarray(self.basis, dtype=np.float64), np.shape(X)[1]
        if len(basis) != d:
            raise ValueError(f"basis has shape {basis.shape}; expected columns of {d} features.")
        self.n_features_in_ = d
        return self._set_basis(basis, np.ones(d), np.zeros(d))


def no_gate(n_features: int) -> FixedGate:
    """Return a gate without any direction."""
    return FixedGate(np.zeros((n_features, 0))).fit(np.zeros((0, n_features)))


def choose_rank(rank: Any, energy: Floats, n_rows: int, what: str) -> int:
    """Return the number of directions for ``rank`` (a number, or a share of energy)."""
    available = int((energy > 0).sum())
    if isinstance(rank, (int, np.integer)):
        if rank > len(energy):
            raise UsageError(f"rank={rank} does not fit {len(energy)} features; use 0 to {len(energy)}.")
        if rank > available and available:
            raise UsageError(
                f"rank={rank} needs {rank} independent {what}; the {n_rows} usable ones give {available}. "
                "Lower the rank, supply more, or pass a share of energy such as rank=0.9."
            )
        return min(int(rank), available)
    retained = cumulative_share(energy)
    return min(int(np.searchsorted(retained, float(rank), side="left")) + 1, available)


def held_out_coverage(contrasts: Any, *, groups: Any = None, n_splits: int = 5) -> Floats:
    """Return the share of held-out directional energy inside gates of rank 1, 2, …, to choose a rank.

    ``contrasts`` (m, d) are divided by the feature scale. ``groups`` are their participants; no participant
    is on both sides of a split. Entry i is the coverage of rank i + 1, a mean over folds, up to the largest
    rank that every fold supports. The curve flattens where further directions are no longer shared.
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
        raise MissingEvidence("All contrasts are zero: identical views show nothing about coverage.")
    shortest = min(map(len, curves))
    return np.asarray(np.mean([curve[:shortest] for curve in curves], axis=0))


def as_gate(gate: Any) -> Any:
    """Return an unfitted gate from a gate (cloned), a rank (a MeasurementGate), or None (the default).

    Examples
    --------
    >>> as_gate(2), as_gate(None)
    (MeasurementGate(rank=2), MeasurementGate())
    """
    if hasattr(gate, "fitted_on"):
        return clone(gate)
    return MeasurementGate() if gate is None else MeasurementGate(gate)


def fit_gate(
    gate: Any,
    pairs: Pairs,
    standardizer: Standardizer,
    rows: Callable[[], NDArray[Any]],
    spread: Callable[[], Scatter],
) -> Any:
    """Fit a clone of ``gate`` on the features that vary, then express it in all features.

    A feature that is constant in the fitting data has exact zeros in the basis, so it is never edited.
    """
    gate = as_gate(gate)
    editable = standardizer.require_variation().varies
    if gate.fitted_on == "given":
        gate = gate.fit(np.empty((0, len(editable))))
        if gate.basis_[~editable].any():
            raise ValueError("The given basis edits features that are constant in the fitting rows.")
        return gate
    if gate.fitted_on == "contrasts":
        details: dict[str, Any] = {}
        if gate.rank == "auto":
            rows_scatter = spread().take(editable)
            details = {"kind": pairs.kind, "groups": pairs.participants, "rows": rows_scatter}
        values = pairs.contrasts
        values /= standardizer.scale
        gate = gate.fit(values if editable.all() else values[:, editable], **details)
    else:
        gate = gate.fit(rows()[:, editable])
    if not editable.all():
        d = len(editable)
        basis, mean, energy = np.zeros((d, gate.rank_)), np.zeros(d), np.ones(d)
        basis[editable], mean[editable] = gate.basis_, gate.mean_contrast_
        energy[: editable.sum()] = gate.cumulative_energy_
        gate.basis_, gate.mean_contrast_, gate.cumulative_energy_ = basis, mean, energy
        gate.n_features_in_ = d
    if gate.rank_ or gate.fitted_on != "contrasts":
        return gate
    if not gate.n_contrasts_:
        raise identical_views(len(pairs))
    if gate.rank == "auto":
        raise MissingEvidence(
            f"The {len(pairs)} pairs show no common difference in position: held-out pairs confirm "
            "neither a mean difference nor a direction. Check that ids join views of the same event, "
            "or add pairs. MGPA() also corrects gains and rotations."
        )
    return gate
