"""Calibration transfer, fitted on pairs: samples measured on both instruments.

Spectral space transformation, (piecewise) direct standardisation and FEATMAP map rows to a reference, with
settings chosen on held-out pairs. Slope/bias correction, which acts on predictions, is in ``predictors``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .._common.parameters import Constraint, flag, nothing, number, one_of, source_label, whole
from ..errors import UsageError
from ..estimators.base import MethodTags
from ..linalg import blas_for
from ..maps import RoutedMap
from ..statistics import Statistics
from ._base import (
    Floats,
    ReferencedMethod,
    Transport,
    direction_words,
    reference_index,
    require_matrices,
    routed_map,
    views_of,
)
from .paired_regressions import (
    ROUNDING,
    by_components,
    fewest_training,
    pair_folds,
    piecewise,
    principal_axes,
    principal_regression,
)

FEWEST_PAIRS = 3
auto = one_of("auto")


def tried(value: Any, candidates: Iterable[Any]) -> list[Any]:
    """Return the candidates for "auto", or the given setting as the only candidate."""
    return list(candidates) if isinstance(value, str) and value == "auto" else [value]


class PairedTransfer(ReferencedMethod):
    """Base class of methods that map each source to the reference by a matrix fitted on centred paired views.

    Settings that are "auto" are chosen on held-out pairs: five folds (of whole participants, if known) and
    the squared error along the principal axes of the reference's views (:func:`principal_axes`).
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_pairs=True)

    standardize: bool
    _chosen: dict[Any, dict[str, Any]]

    @property
    def chosen_(self) -> dict[Any, dict[str, Any]]:
        """The given or chosen settings of each source's map, by source label."""
        _ = self._fitted
        return self._chosen

    def _settings(self, A: Floats) -> list[dict[str, Any]]:
        """Return the candidate settings for views A of a source; a single one is used without a test."""
        raise NotImplementedError

    def _matrix(self, A: Floats, B: Floats, **setting: Any) -> Floats:
        """Return the map's matrix from centred views A of a source and B of the reference, both (m, d)."""
        raise NotImplementedError

    def _predict(
        self, A: Floats, B: Floats, new: Floats, axes: Floats, settings: list[dict[str, Any]]
    ) -> Iterable[Floats]:
        """Yield the predictions of each setting for new centred rows, along ``axes`` (d, k)."""
        for setting in settings:
            yield new @ (self._matrix(A, B, **setting) @ axes)

    def _choose(self, A: Floats, B: Floats, people: NDArray[Any] | None) -> dict[str, Any]:
        settings = self._settings(A)
        if len(settings) == 1 or not np.ptp(B, axis=0).any():
            return settings[0]
        if len(A) < FEWEST_PAIRS:
            names = " and ".join(settings[0])
            raise UsageError(
                f"{type(self).__name__} chooses {names} by held-out pairs and needs {FEWEST_PAIRS} pairs, "
                f"but a source has {len(A)} pair(s) with the reference. Add pairs, or pass {names}."
            )
        folds, axes, errors = pair_folds(len(A), people), principal_axes(B), np.zeros(len(settings))
        for fold in range(int(folds.max()) + 1):
            held = folds == fold
            start, end = A[~held].mean(axis=0), B[~held].mean(axis=0)
            truth = (B[held] - end) @ axes
            fits = self._predict(A[~held] - start, B[~held] - end, A[held] - start, axes, settings)
            errors += [np.square(predicted - truth).sum() for predicted in fits]
        return settings[int(errors.argmin())]

    def _solve(self, data: Statistics) -> RoutedMap:
        K, d = len(data.sources), data.moments.n_features
        target = reference_index(self.reference, data.sources)
        standardizer = data.standardizer(self.standardize)
        require_matrices(2 * K, d, type(self).__name__)
        transports: list[Transport] = [None] * K
        pairs, n_pairs, chosen = data.pairs(), 0, {}
        for s in range(K):
            if s != target:
                *views, people = views_of(pairs, data.sources, s, target)
                A, B = ((view - standardizer.center) / standardizer.scale for view in views)
                A[:, ~standardizer.varies] = 0.0
                start, end = A.mean(axis=0), B.mean(axis=0)
                with blas_for(len(A), d):
                    setting = self._choose(A, B, people)
                    transports[s] = self._matrix(A - start, B - end, **setting), start, end
                chosen[data.sources[s].item()] = setting
                n_pairs += len(A)
        self._chosen = chosen
        facts = {"n_contrasts": n_pairs, "evidence": self._words(target, data.sources)}
        return routed_map(standardizer, transports, self._evidence_info(data, **facts))

    def _words(self, target: int, sources: NDArray[Any]) -> str:
        """Return the text stored in the map: its direction and settings."""
        settings = {
            ", ".join(f"{name} {value:.3g}" if value is not None else f"{name} all"
                      for name, value in setting.items())
            for setting in self._chosen.values()
        }  # fmt: skip
        return f"{direction_words(target, sources)} ({'; '.join(sorted(settings))})"


class ComponentTransfer(PairedTransfer):
    """Base class of transfers by leading components; their number is given or chosen on held-out pairs."""

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label | nothing, "n_components": whole(1) | auto, "standardize": flag,
    }  # fmt: skip

    def __init__(
        self, *, reference: Any = None, n_components: int | str = "auto", standardize: bool = False
    ) -> None:
        self.reference = reference
        self.n_components = n_components
        self.standardize = standardize


class SST(ComponentTransfer):
    """Spectral space transformation: map the loadings of one instrument to those of another.

    Reference: Du, Chen, Chen, Yu, Huang, Wang, "Maintaining the predictive abilities of multivariate
    calibration models by spectral space transformation", Analytica Chimica Acta 690, 2011. The concatenated
    views have loadings P₁ (reference) and P₂; x' = x + x (P₂ᵀ)⁺ (P₁ - P₂)ᵀ, here for centred views.

    Needs pairs and source labels, and the source again at application. No task.

    What it cannot do: correct differences outside the leading components, or a row of an unknown source.

    Parameters
    ----------
    n_components : int or "auto"
        Number of components of the concatenated views; "auto" tries 1 to 15 on held-out pairs.
    reference, standardize
        As in :class:`FEATMAP`.
    """

    def _settings(self, A: Floats) -> list[dict[str, Any]]:
        most = max(1, min(15, fewest_training(A) - 1))
        return [{"n_components": k} for k in tried(self.n_components, range(1, most + 1))]

    def _matrix(self, A: Floats, B: Floats, **setting: Any) -> Floats:
        P1, P2 = np.split(self._loadings(A, B)[: setting["n_components"]], 2, axis=1)
        return np.asarray(np.eye(A.shape[1]) + np.linalg.pinv(P2) @ (P1 - P2))

    def _predict(
        self, A: Floats, B: Floats, new: Floats, axes: Floats, settings: list[dict[str, Any]]
    ) -> Iterator[Floats]:
        loadings = self._loadings(A, B)  # one decomposition for all settings
        for setting in settings:
            P1, P2 = np.split(loadings[: setting["n_components"]], 2, axis=1)
            yield new @ axes + new @ np.linalg.pinv(P2) @ ((P1 - P2) @ axes)

    def _loadings(self, A: Floats, B: Floats) -> Floats:
        """Return the loadings (r, 2d) of the concatenated views, the reference first."""
        _, values, rows = np.linalg.svd(np.hstack([B, A]), full_matrices=False)
        return np.asarray(rows[values > ROUNDING * values[0]])


class DS(ComponentTransfer):
    """Direct standardisation: regress each feature of the reference on all features of a source.

    Reference: Wang, Veltkamp, Kowalski, "Multivariate instrument standardization", Analytical Chemistry 63,
    1991. The regression is on principal components.

    Needs pairs and source labels, and the source again at application. No task.

    What it cannot do: correct a row of an unknown source. Directions that the pairs do not span collapse to
    their mean, and noisy pairs shrink the mapped rows.

    Parameters
    ----------
    n_components : int or "auto"
        Number of principal components of the source's views; "auto" tries 1 to 30 on held-out pairs.
    reference, standardize
        As in :class:`FEATMAP`.
    """

    def _settings(self, A: Floats) -> list[dict[str, Any]]:
        most = max(1, min(30, A.shape[1], fewest_training(A) - 1))
        return [{"n_components": k} for k in tried(self.n_components, range(1, most + 1))]

    def _matrix(self, A: Floats, B: Floats, **setting: Any) -> Floats:
        rows, slopes = principal_regression(A, B, setting["n_components"])
        return np.asarray(rows.T @ slopes)

    def _predict(
        self, A: Floats, B: Floats, new: Floats, axes: Floats, settings: list[dict[str, Any]]
    ) -> Iterator[Floats]:
        return by_components(A, B @ axes, new, [setting["n_components"] for setting in settings])


class PDS(PairedTransfer):
    """Piecewise direct standardisation: regress each feature of the reference on its neighbourhood.

    Reference: Wang, Veltkamp, Kowalski, "Multivariate instrument standardization", Analytical Chemistry 63,
    1991. Regressions are on principal components. With ``window=None`` the neighbourhood is all features,
    which gives direct standardisation (:class:`DS`).

    Needs pairs and source labels, and the source again at application. No task. Features must be ordered, as
    wavelengths are, unless ``window=None``.

    What it cannot do: correct a row of an unknown source. If pairs are noisy, mapped rows shrink towards
    their mean. Each feature has its own regression, and the errors of all regressions add up in a model on
    many features: with few pairs, correct the predictions instead (slope/bias), or use a method that maps all
    features jointly.

    Parameters
    ----------
    window : int, None or "auto"
        Number of neighbours on each side of a feature; None: all features. "auto" tries 0, 1, 2, 3, 5 and 8
        on held-out pairs.
    n_components : int or "auto"
        Maximum number of principal components of a neighbourhood; "auto" tries 1 to 4.
    reference, standardize
        As in :class:`FEATMAP`.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label | nothing, "window": whole() | nothing | auto,
        "n_components": whole(1) | auto, "standardize": flag,
    }  # fmt: skip

    def __init__(
        self, *, reference: Any = None, window: int | str | None = "auto", n_components: int | str = "auto",
        standardize: bool = False,
    ) -> None:  # fmt: skip
        self.reference = reference
        self.window = window
        self.n_components = n_components
        self.standardize = standardize

    def _settings(self, A: Floats) -> list[dict[str, Any]]:
        windows, components = tried(self.window, (0, 1, 2, 3, 5, 8)), tried(self.n_components, range(1, 5))
        pairs = list(product(windows, components))
        some = [(w, k) for w, k in pairs if w is None or k <= min(2 * w + 1, A.shape[1])] or pairs[:1]
        return [{"window": w, "n_components": k} for w, k in some]

    def _matrix(self, A: Floats, B: Floats, **setting: Any) -> Floats:
        (d, k), window = (A.shape[1], setting["n_components"]), setting["window"]
        if window is None:
            rows, slopes = principal_regression(A, B, k)
            return np.asarray(rows.T @ slopes)
        matrix = np.zeros((d, d))
        for j in range(d):
            near = slice(max(0, j - window), j + window + 1)
            rows, slopes = principal_regression(A[:, near], B[:, j], k)
            matrix[near, j] = rows.T @ slopes
        return matrix

    def _predict(
        self, A: Floats, B: Floats, new: Floats, axes: Floats, settings: list[dict[str, Any]]
    ) -> Iterator[Floats]:
        gram, cross = A.T @ A, A.T @ B
        for window in dict.fromkeys(setting["window"] for setting in settings):
            counts = [setting["n_components"] for setting in settings if setting["window"] == window]
            if window is None:
                yield from by_components(A, B @ axes, new, counts)
                continue
            for matrix in piecewise(gram, cross, window, counts):
                yield new @ (matrix @ axes)


class FEATMAP(PairedTransfer):
    """Map each source's embeddings to the reference's embeddings of the same event.

    Reference: Donle et al. 2026, bioRxiv 10.64898/2026.07.02.736184. Implemented from its description, which
    has no ridge (:meth:`paper`).

    Needs pairs and source labels, and the source again at application. No task.

    What it cannot do: correct a row of an unknown or unseen source. With fewer pairs than features,
    directions that the pairs do not span collapse to their mean. With noisy pairs the regression shrinks the
    variance of mapped rows, which reveals their source. A ridge reduces the first problem and increases the
    second.

    Parameters
    ----------
    reference : label, int or None
        The source to map to: a label, or a position among the sorted labels. None: the first. ``reference_``
        and the first line of the map's summary name the source.
    ridge : float or "auto"
        Penalty of the regression, in standardised units. 0 is least squares (with minimum norm if the pairs
        do not determine the solution). "auto" tries sixteen values on held-out pairs.
    standardize : bool
        Scale features to unit variance before fitting.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label | nothing, "ridge": number(0) | auto, "standardize": flag,
    }  # fmt: skip

    def __init__(
        self, *, reference: Any = None, ridge: float | str = "auto", standardize: bool = True
    ) -> None:
        self.reference = reference
        self.ridge = ridge
        self.standardize = standardize

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return the published settings: least squares without a ridge. ``changes`` override parameters."""
        settings: dict[str, Any] = {"ridge": 0.0}
        return cls(**(settings | changes))

    def _settings(self, A: Floats) -> list[dict[str, Any]]:
        squares = np.square(A - A.mean(axis=0)).sum() / A.shape[1]  # mean sum of squares of a feature
        return [{"ridge": r} for r in tried(self.ridge, (squares * 10.0 ** np.arange(-6, 2, 0.5)).tolist())]

    def _matrix(self, A: Floats, B: Floats, **setting: Any) -> Floats:
        if setting["ridge"]:
            penalty = setting["ridge"] * np.eye(A.shape[1])
            return np.asarray(scipy.linalg.solve(A.T @ A + penalty, A.T @ B, assume_a="pos"))
        return np.asarray(np.linalg.lstsq(A, B, rcond=None)[0])

    def _predict(
        self, A: Floats, B: Floats, new: Floats, axes: Floats, settings: list[dict[str, Any]]
    ) -> Iterator[Floats]:
        U, values, rows = np.linalg.svd(A, full_matrices=False)
        along, target = new @ rows.T, U.T @ (B @ axes)
        for setting in settings:
            yield (along * (values / (values**2 + setting["ridge"]))) @ target
