"""Euclidean alignment of signals, before an encoder; it needs the source of every trial."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from .._common.checks import as_floats, require_finite
from .._common.parameters import Constraint, check_parameters, number
from ..errors import MissingEvidence
from ..estimators.base import MethodTags, forget
from ..labels import encode_source, to_numpy

Floats = NDArray[Any]
# Below this share of the largest eigenvalue, the smallest is rounding: float32 signals with an average
# reference leave about 1e-14, recordings of full rank more than 1e-8.
SINGULAR = 1e-10


class EuclideanAlignment(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Give every source the same mean trial covariance, the identity: X' = R^(-1/2) X.

    Reference: He & Wu, IEEE Transactions on Biomedical Engineering 67(2), 2020. R is the mean over trials of
    X Xᵀ / T, each channel of a trial demeaned (the paper does not divide by T). Equal to pyRiemann's
    ``Whitening(metric="euclid")``, whose filters act on covariances.

    Needs source labels, also at application; no pairs, no task.

    What it cannot do: equalise anything but the mean spatial covariance. Unequal class proportions enter R
    and are "corrected" as well. Channels are mixed, so the output's channels are not electrodes.

    Parameters
    ----------
    ridge : float
        Multiple of the mean channel variance added to the diagonal of R. 0 is the published method; a
        positive value makes a singular R usable.

    Attributes
    ----------
    filters_ : dict of (channels, channels) arrays
        R^(-1/2) of every source; a new source needs a new fit.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, acts_on="signals")
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"ridge": number(0)}

    filters_: dict[Any, Floats]

    def __init__(self, *, ridge: float = 0.0) -> None:
        self.ridge = ridge

    def fit(
        self, X: Any, y: Any = None, *, source: Any = None, pairs: Any = None, pair_id: Any = None,
        X_val: Any = None, source_val: Any = None, sample_weight: Any = None, groups: Any = None,
    ) -> Self:  # fmt: skip
        """Learn each source's filter from trials X (n, channels, times) and their ``source`` (n,).

        The other parameters are accepted so that all methods are called alike; weights are refused.
        """
        check_parameters(self)
        forget(self)
        if sample_weight is not None:
            raise ValueError("EuclideanAlignment weights all trials equally; omit sample_weight.")
        X, labels, codes = self._read(X, source)
        self.filters_ = {label: self._whitener(label, X[codes == i]) for i, label in enumerate(labels)}
        return self

    def _whitener(self, label: Any, X: Floats) -> Floats:
        X = X.astype(np.float64)
        X -= X.mean(axis=2, keepdims=True)
        R = (X @ X.transpose(0, 2, 1)).mean(axis=0) / X.shape[2]
        R += self.ridge * np.trace(R) / len(R) * np.eye(len(R))
        values, vectors = np.linalg.eigh((R + R.T) / 2)
        independent = int((values > SINGULAR * values[-1]).sum())
        if independent < len(R):
            raise ValueError(
                f"The mean covariance of source {label!r} is singular: {independent} of {len(R)} channels "
                "are independent, as after an average reference or with a flat channel. Drop the dependent "
                "channels, or pass ridge=1e-3."
            )
        return np.asarray(vectors / np.sqrt(values) @ vectors.T)

    def transform(self, X: Any, *, source: Any = None) -> Floats:
        """Apply the fitted filter of its source to every trial."""
        check_is_fitted(self, "filters_")
        X, labels, codes = self._read(X, source)
        if unseen := [label for label in labels if label not in self.filters_]:
            raise ValueError(f"source {unseen} was not seen in fit, which had {list(self.filters_)}.")
        filters = np.stack([self.filters_[label] for label in labels])
        if X.shape[1] != filters.shape[1]:
            raise ValueError(f"X has {X.shape[1]} channels; this method was fitted on {filters.shape[1]}.")
        return np.asarray(filters[codes] @ X.astype(np.float64)).astype(X.dtype)

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **fit_params: Any) -> Floats:
        """Fit, then transform the same trials."""
        return self.fit(X, y, source=source, **fit_params).transform(X, source=source)

    def _read(self, trials: Any, source: Any) -> tuple[Floats, list[Any], NDArray[np.int64]]:
        """Return finite trials of float32 or float64, the labels of the sources, and each trial's code."""
        expected = "a float32 or float64 array of shape (trials, channels, times)"
        X = as_floats(to_numpy(trials), "X", expected, category=DataConversionWarning, stacklevel=4)
        if X.ndim != 3 or not X.size:
            hint = " This method acts on signals, before the encoder." if X.ndim == 2 else ""
            raise ValueError(f"X has shape {X.shape}; expected (trials, channels, times), none empty.{hint}")
        require_finite(X, "X")
        if source is None:
            raise MissingEvidence("EuclideanAlignment needs sources: pass source=, one label per trial.")
        labels, codes = encode_source(source, len(X))
        return X, labels.tolist(), codes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags
