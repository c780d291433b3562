"""Euclidean alignment: whiten the channels of every source by that source's mean trial covariance."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Constraint, flag, number
from ._signals import Floats, GroupedSignals, SignalBaseline

# Below this share of the largest eigenvalue, the smallest is rounding: float32 signals with an average
# reference leave about 1e-14, recordings of full rank more than 1e-8.
SINGULAR = 1e-10


def mean_covariance(X: Floats, weight: Floats, *, demean: bool = True) -> Floats:
    """Return R, the (weighted) mean over trials of X Xᵀ / T, each channel of a trial demeaned if asked."""
    if demean:
        X = X - X.mean(axis=2, keepdims=True)
    per_trial = X @ X.transpose(0, 2, 1) / X.shape[2]
    return np.asarray(np.tensordot(weight / weight.sum(), per_trial, axes=1))


def inverse_root(R: Floats, label: Any, ridge: float = 0.0) -> Floats:
    """Return (R + ridge·mean(diag R)·I)^(-1/2), symmetric, or explain that it does not exist."""
    R = R + ridge * np.trace(R) / len(R) * np.eye(len(R))
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    independent = int((values > SINGULAR * values[-1]).sum())
    if independent < len(R):
        raise ValueError(
            f"The mean covariance of source {label!r} is singular: {independent} of its {len(R)} channels "
            "are independent, as after an average reference or an interpolation, with a flat channel or too "
            "few samples. Drop the dependent channels, or pass ridge= (ridge=1e-3 adds 0.001 of the mean "
            "channel variance to every channel)."
        )
    return np.asarray(vectors / np.sqrt(values) @ vectors.T)


class EuclideanAlignment(SignalBaseline):
    """Give every source the same mean trial covariance, the identity: X' = R^(-1/2) X.

    Needs source labels; no pairs, no task labels. The source is needed at application: a trial is filtered
    with its own source's R^(-1/2), and a new source needs :meth:`adapt`.

    What it cannot do: equalise anything but the mean spatial covariance, neither spectra, nor higher moments,
    nor the spread of covariances over trials. Unequal class proportions enter R and are "corrected" as well.
    Channels are mixed, so the output's channels are no longer electrodes; an encoder that expects electrodes
    sees something else.

    Parameters
    ----------
    demean : bool
        Leave each trial's channel means out of R, so that electrode offsets do not count as covariance. The
        output keeps its offsets (filtered like the rest).
    ridge : float
        Multiple of the mean channel variance added to the diagonal of R. 0 is the method as published; a
        positive value makes a singular R usable, at the price of a mean covariance that is only near I, with
        the missing directions left near zero.

    Attributes
    ----------
    filters_ : dict of (channels, channels) arrays
        R^(-1/2) of every source.
    sources_ : array
        Source labels, fitted and adapted.
    n_channels_in_ : int
        Number of channels.

    Notes
    -----
    R is (1/n) Σ XᵢXᵢᵀ/T. The paper's R has no 1/T, which shrinks the output of every source by √T; dividing
    by it keeps sources of different trial lengths comparable.

    References
    ----------
    He & Wu, "Transfer learning for brain-computer interfaces: a Euclidean space data alignment approach",
    IEEE Transactions on Biomedical Engineering 67(2), 2020.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 3, 50))
    >>> X[20:] *= np.array([5.0, 1.0, 0.2])[:, None]
    >>> source = np.repeat(["gel", "dry"], 20)
    >>> aligned = EuclideanAlignment().fit_transform(X, source=source)
    >>> aligned.std(axis=(0, 2)).round(1), aligned[20:].std(axis=(0, 2)).round(1)
    (array([1., 1., 1.]), array([1., 1., 1.]))
    """

    filters_: dict[Any, Floats]

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"demean": flag, "ridge": number(0)}

    def __init__(self, *, demean: bool = True, ridge: float = 0.0) -> None:
        self.demean = demean
        self.ridge = ridge

    def _learn(self, trials: GroupedSignals) -> dict[Any, Floats]:
        return {
            label: inverse_root(mean_covariance(X, weight, demean=self.demean), label, self.ridge)
            for label, X, weight in trials.by_source()
        }

    def _fit(self, trials: GroupedSignals, y: Any) -> None:
        self.filters_ = self._learn(trials)

    def _adapt(self, trials: GroupedSignals) -> None:
        self.filters_ = self.filters_ | self._learn(trials)

    def _apply(self, X: Floats, label: Any) -> Floats:
        return np.asarray(self.filters_[label] @ X)
