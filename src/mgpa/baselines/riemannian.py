"""Riemannian alignment of signals and of their covariances, using pyRiemann."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from .._common.parameters import Constraint, flag, nothing, source_label, whole
from ..estimators.base import MethodTags
from ..labels import encode_source
from ._base import reference_index
from .signals import Floats, Parts, SignalBaseline, SpatialFilter

NO_SPREAD = 1e-10


class RiemannianRecentring(SpatialFilter):
    """Whiten each source by the geometric mean G of its trial covariances: X' = G^(-1/2) X.

    Reference: Zanini, Congedo, Jutten, Said, Berthoumieu, IEEE Transactions on Biomedical Engineering 65(5),
    2018. This is the first step of :class:`RiemannianProcrustes`, here as a filter of signals. pyRiemann
    computes the covariances (with "oas" shrinkage) and their mean.

    Needs source labels, in fit and at application. No pairs, no task.

    What it cannot do: equalise anything but the mean spatial covariance. Unequal class proportions enter the
    mean. Channels are mixed, so the output's channels are not electrodes.

    Attributes
    ----------
    filters_ : dict of (channels, channels) arrays
        G^(-1/2) of each source.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def _learn(self, parts: Parts, y: Any, codes: Any) -> dict[Any, Floats]:
        mean = _pyriemann("geometry.mean").mean_riemann
        power = _pyriemann("geometry.base").powm
        return {label: np.asarray(power(mean(covariances(X)), -0.5)) for label, X in parts.items()}


class RiemannianProcrustes(SignalBaseline):
    """Align trial covariances: each source to mean I and dispersion 1, then its classes to the reference.

    Reference: Rodrigues, Jutten & Congedo, IEEE Transactions on Biomedical Engineering 66(8), 2019.
    pyRiemann's ``Covariances``, ``TLCenter``, ``TLScale`` and ``TLRotate`` fit the alignment. The application
    is ours, because their ``transform`` treats each trial as a trial of the reference. The output is an
    embedding for linear classifiers: the tangent vectors at I.

    Needs source labels, in fit and at application; the rotation also needs task labels of each source in the
    fit. No pairs.

    What it cannot do: return signals (:class:`RiemannianRecentring` does), or correct the embedding of
    another encoder. Task labels of the evaluated trials would leak; use labels of calibration trials, or
    ``rotate=False``. With two classes, the rotation is determined only up to the signs of its axes.

    Parameters
    ----------
    reference : label, int or None
        The source with the target class means of the rotation: a label, or a position among the sorted
        labels. None: the first.
    rotate : bool
        Rotate class means; False needs no task labels.
    max_iter : int
        Maximum number of descent steps for the rotation.

    Attributes
    ----------
    filters_ : dict of tuples
        For each source: G^(-1/2), with G the geometric mean of its covariances; the power √(1 / dispersion);
        and an orthogonal rotation Q (I for the reference).
    reference_ : label
        The reference source.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_task=True, acts_on="signals")

    reference_: Any

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label | nothing, "rotate": flag, "max_iter": whole(1),
    }  # fmt: skip

    def __init__(self, *, reference: Any = None, rotate: bool = True, max_iter: int = 10_000) -> None:
        self.reference = reference
        self.rotate = rotate
        self.max_iter = max_iter

    def _learn(self, parts: Parts, y: Any, codes: NDArray[np.int64]) -> dict[Any, Any]:
        transfer, labels = _pyriemann("transfer"), list(parts)
        reference = reference_index(self.reference, np.array(labels))
        # pyRiemann splits labels "domain/class" at slashes, so both parts are given as positions.
        task = self._classes(y, codes, labels) if self.rotate else np.zeros_like(codes)
        order = np.argsort(codes, kind="stable")  # trials in the order of the parts
        domains = np.array([f"{code}/{k}" for code, k in zip(codes[order], task[order], strict=True)])
        C = np.concatenate([covariances(X) for X in parts.values()])
        center = transfer.TLCenter(target_domain="0")
        C = center.fit_transform(C, domains)
        dispersions = transfer.TLScale(target_domain="0", centered_data=True).fit(C, domains).scales_
        if same := [label for i, label in enumerate(labels) if dispersions[str(i)] < NO_SPREAD]:
            raise ValueError(f"All covariances of source {same} are equal; pass more trials.")
        powers = [float(np.sqrt(1.0 / dispersions[str(i)])) for i in range(len(labels))]
        rotations = {str(i): np.eye(C.shape[1]) for i in range(len(labels))}
        if self.rotate and C.shape[1] > 1:
            for i, power in enumerate(powers):
                C[codes[order] == i] = _pyriemann("geometry.base").powm(C[codes[order] == i], power)
            learned = transfer.TLRotate(str(reference), metric="euclid", maxiter=self.max_iter)
            rotations |= learned.fit(C, domains).rotations_
        self.reference_ = labels[reference]
        return {
            label: (center.centers_[str(i)].filters_, powers[i], rotations[str(i)])
            for i, label in enumerate(labels)
        }

    def _classes(self, y: Any, codes: NDArray[np.int64], sources: list[Any]) -> NDArray[np.int64]:
        """Return the class of each trial; raise unless there are two or more classes, all in each source.

        pyRiemann compares only the numbers of classes, and would match different classes by their order.
        """
        if y is None:
            raise ValueError("y is missing: the rotation matches class means. Pass it, or use rotate=False.")
        classes, task = encode_source(y, len(codes), name="y")
        if len(classes) < 2:
            raise ValueError(f"y has 1 class ({classes[0].item()!r}); a rotation needs two: rotate=False.")
        for i, label in enumerate(sources):
            if absent := sorted(set(classes.tolist()) - set(classes[task[codes == i]].tolist())):
                raise ValueError(
                    f"Source {label!r} has no trials of class {absent}; the rotation needs every class in "
                    "every source. Keep the shared classes, or use rotate=False."
                )
        return task

    def _apply(self, X: Floats, learned: tuple[Floats, float, Floats]) -> Floats:
        W, power, Q = learned
        C = Q @ _pyriemann("geometry.base").powm(W.T @ covariances(X) @ W, power) @ Q.T
        C = (C + C.transpose(0, 2, 1)) / 2
        return np.asarray(_pyriemann("geometry.tangentspace").tangent_space(C, np.eye(C.shape[1])))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.rotate
        return tags


def covariances(X: Floats) -> Floats:
    """Return shrunk ("oas") trial covariances, which are positive definite even with an average reference."""
    C = np.asarray(_pyriemann("estimation").Covariances("oas").fit_transform(X))
    values = np.linalg.eigvalsh(C)
    if (singular := values[:, 0] <= 1e-12 * values[:, -1]).any():
        raise ValueError(f"{singular.sum()} of {len(C)} covariances are singular; drop flat channels.")
    return C


def _pyriemann(module: str) -> Any:
    try:
        return import_module(f"pyriemann.{module}")
    except ImportError as error:
        raise missing("Riemannian alignment", "pyriemann", "numpy>=2.0") from error
