"""Euclidean alignment: whiten the channels of every source by that source's mean trial covariance."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._common.parameters import Constraint, number
from ._signals import Floats, Parts, SignalBaseline

# Below this share of the largest eigenvalue, the smallest is rounding: float32 signals with an average
# reference leave about 1e-14, recordings of full rank more than 1e-8.
SINGULAR = 1e-10


class EuclideanAlignment(SignalBaseline):
    """Give every source the same mean trial covariance, the identity: X' = R^(-1/2) X.

    Reference: He & Wu, IEEE Transactions on Biomedical Engineering 67(2), 2020. R is the mean over trials of
    X Xᵀ / T, each channel of a trial demeaned (the paper does not divide by T).

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
        R^(-1/2) of every source.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"ridge": number(0)}

    def __init__(self, *, ridge: float = 0.0) -> None:
        self.ridge = ridge

    def _learn(self, parts: Parts, y: Any, codes: Any) -> dict[Any, Floats]:
        return {label: self._whitener(label, X) for label, X in parts.items()}

    def _whitener(self, label: Any, X: Floats) -> Floats:
        X = X - X.mean(axis=2, keepdims=True)
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

    def _apply(self, X: Floats, learned: Floats) -> Floats:
        return np.asarray(learned @ X)
