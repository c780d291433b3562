"""Riemannian Procrustes analysis: recentre, rescale and rotate the trial covariances of every source."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from .._common.parameters import Constraint, flag, one_of, source_label, text, whole
from ..estimators.base import MethodTags
from ..pairs import encode_source
from ._base import reference_index
from ._signals import Floats, GroupedSignals, SignalBaseline, check_signals

NO_SPREAD = 1e-10


def _pyriemann(module: str) -> Any:
    try:
        return import_module(f"pyriemann.{module}")
    except ImportError as error:
        raise missing("RiemannianProcrustes", "pyriemann") from error


def require_spd(C: Floats, remedy: str) -> None:
    """Raise if a matrix is not symmetric positive definite, naming the first bad trial."""
    eps = float(np.finfo(C.dtype).eps)
    asymmetric = abs(C - C.transpose(0, 2, 1)).max(axis=(1, 2)) > eps**0.5 * abs(C).max(axis=(1, 2))
    if asymmetric.any():
        raise ValueError(
            f"{int(asymmetric.sum())} of {len(C)} matrices are not symmetric (first: trial "
            f"{int(asymmetric.argmax())}); covariances are. For signals use input='signals'."
        )
    values = np.linalg.eigvalsh(C.astype(np.float64))
    # Rounding of the input, also of float32 signals, leaves singular matrices with tiny eigenvalues.
    singular = values[:, 0] <= max(1e-12, 4 * eps) * abs(values[:, -1])
    if singular.any():
        raise ValueError(
            f"{int(singular.sum())} of {len(C)} covariances are not positive definite (first: trial "
            f"{int(singular.argmax())}), as after an average reference or with a flat channel. {remedy}"
        )


def require_shared_classes(y: Any, trials: GroupedSignals) -> NDArray[np.int64]:
    """Return each trial's class; raise unless there are two or more and every source has them all."""
    if y is None:
        raise ValueError(
            "y is missing: the rotation matches class means, so pass the task labels, or use rotate=False."
        )
    classes, task = encode_source(y, len(trials.X), name="y")
    if len(classes) < 2:
        raise ValueError(
            f"y has 1 class ({classes[0].item()!r}); a rotation needs two or more. Use rotate=False."
        )
    for code, label in enumerate(trials.sources.tolist()):
        # pyRiemann compares the number of classes only, and would match unlike classes by their order.
        rows = trials.codes == code
        total = np.bincount(task[rows], trials.weight[rows], minlength=len(classes))
        if missing := classes[total == 0].tolist():
            raise ValueError(
                f"Source {label!r} has no trials of class {missing}; the rotation needs every class in every "
                "source. Keep the shared classes, or use rotate=False."
            )
    return task


def domain_labels(codes: NDArray[np.int64], task: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return pyRiemann's "domain/class" strings, of numbers: it would split a label at its own slashes."""
    return np.array([f"{code}/{label}" for code, label in zip(codes, task, strict=True)])


def stretch(C: Floats, dispersion: float) -> Floats:
    """Return C^√(1/D), which has dispersion 1 about the identity."""
    if dispersion == 1.0:
        return C
    return np.asarray(_pyriemann("geometry.base").powm(C, np.sqrt(1.0 / dispersion)))


class RiemannianProcrustes(SignalBaseline):
    """Align trial covariances: every source to mean I and dispersion 1, then its classes to the reference's.

    Needs source labels and, to rotate, task labels of every source in ``fit``; no pairs. The source is needed
    at application, task labels are not. A new source can be recentred and rescaled by :meth:`adapt`, never
    rotated, as that takes its task labels.

    What it cannot do: give signals back. The output is covariances, for Riemannian classifiers. Using the
    task labels of the sources one evaluates on leaks them; use the labels of calibration trials, or
    ``rotate=False``. With two classes the recentred class means nearly share their axes, so a rotation is
    found only up to the axes' signs; with more, pyRiemann's descent may end in a local minimum.

    Parameters
    ----------
    reference : label or int
        The source onto whose class means the others are rotated: a source label or, if it is none, a
        position among the sorted sources.
    scale : bool
        Bring the dispersion, the mean squared Riemannian distance to the mean, to 1.
    rotate : bool
        Rotate. Without it no task labels are needed.
    metric : {"euclid", "riemann"}
        Distance between class means that the rotation minimises; "euclid" is pyRiemann's default.
    max_iter : int
        Steps of the rotation's descent at most. From some 20 channels on pyRiemann tends to warn that
        convergence was not reached although its loss has long settled; fewer steps then lose nothing.
    input : {"signals", "covariances"}
        Whether X holds signals (n, channels, times) or covariances (n, channels, channels).
    estimator : str
        How covariances are estimated from signals: any of ``pyriemann.estimation.Covariances``. Shrinkage
        ("oas", "lwf") keeps them positive definite, also after an average reference.

    Attributes
    ----------
    whiteners_ : dict of (channels, channels) arrays
        G^(-1/2) of every source, G the geometric mean of its covariances.
    dispersions_ : dict of float
        D of every source; covariances are raised to the power √(1/D). 1 with scale=False.
    rotations_ : dict of (channels, channels) arrays
        Orthogonal Q of every source (reflections included); I for the reference and for adapted sources.
    reference_ : label
        The reference.
    sources_ : array
        Source labels, fitted and adapted.
    n_channels_in_ : int
        Number of channels.

    Notes
    -----
    pyRiemann does the mathematics: ``Covariances``, ``TLCenter``, ``TLScale`` and ``TLRotate`` learn, and the
    output for the fitted trials is that of their ``fit_transform``. Applying is ours, since their
    ``transform`` treats every trial as one of the reference.

    References
    ----------
    Rodrigues, Jutten & Congedo, "Riemannian Procrustes analysis: transfer learning for brain-computer
    interfaces", IEEE Transactions on Biomedical Engineering 66(8), 2019.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 3, 60))
    >>> y = np.tile([0, 1], 20)
    >>> X[y == 1, 0] *= 2
    >>> X[20:] = np.array([[0.0, 1, 0], [2, 0, 0], [0, 0, 1]]) @ X[20:]
    >>> source = np.repeat(["gel", "dry"], 20)
    >>> model = RiemannianProcrustes(reference="gel").fit(X, y, source=source)
    >>> aligned = model.transform(X, source=source)
    >>> aligned.shape, bool((aligned[y == 1, 0, 0] > 1).mean() > 0.9)
    ((40, 3, 3), True)
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_task=True, acts_on="signals")

    whiteners_: dict[Any, Floats]
    dispersions_: dict[Any, float]
    rotations_: dict[Any, Floats]
    reference_: Any

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label,
        "scale": flag,
        "rotate": flag,
        "metric": one_of("euclid", "riemann"),
        "max_iter": whole(1),
        "input": one_of("signals", "covariances"),
        "estimator": text,
    }

    def __init__(
        self,
        *,
        reference: Any = 0,
        scale: bool = True,
        rotate: bool = True,
        metric: str = "euclid",
        max_iter: int = 10_000,
        input: str = "signals",
        estimator: str = "oas",
    ) -> None:
        self.reference = reference
        self.scale = scale
        self.rotate = rotate
        self.metric = metric
        self.max_iter = max_iter
        self.input = input
        self.estimator = estimator

    def _check(self, X: Any, n_channels: int | None = None) -> Floats:
        if self.input == "signals":
            return check_signals(X, n_channels=n_channels)
        C = check_signals(X, n_channels=n_channels, axes="(trials, channels, channels)")
        if C.shape[1] != C.shape[2]:
            raise ValueError(
                f"X has shape {C.shape}; covariances are square. For signals use input='signals'."
            )
        return C

    def _prepare(self, X: Floats) -> Floats:
        """Return covariances."""
        if self.input == "covariances":
            require_spd(X, "Drop a channel, or shrink the covariances.")
            return X
        estimation = _pyriemann("estimation")
        C = np.asarray(estimation.Covariances(self.estimator).fit_transform(X.astype(np.float64)))
        require_spd(C, "Drop a channel, or use estimator='oas'.")
        return C

    def _fit(self, trials: GroupedSignals, y: Any) -> None:
        reference = reference_index(self.reference, trials.sources)
        task = require_shared_classes(y, trials) if self.rotate else np.zeros_like(trials.codes)
        whiteners, dispersions, C = self._centre_and_scale(trials)
        labels = trials.sources.tolist()
        rotations = {label: np.eye(C.shape[1]) for label in labels}
        if self.rotate and C.shape[1] > 1:
            TLRotate = _pyriemann("transfer").TLRotate
            learned = TLRotate(str(reference), metric=self.metric, maxiter=self.max_iter)
            learned.fit(C, domain_labels(trials.codes, task), trials.weight)
            rotations |= {labels[int(code)]: Q for code, Q in learned.rotations_.items()}
        self.whiteners_, self.dispersions_, self.rotations_ = whiteners, dispersions, rotations
        self.reference_ = labels[reference]

    def _centre_and_scale(self, trials: GroupedSignals) -> tuple[dict[Any, Floats], dict[Any, float], Floats]:
        """Return each source's whitener and dispersion, and the covariances so aligned."""
        transfer = _pyriemann("transfer")
        labels, domains = trials.sources.tolist(), domain_labels(trials.codes, trials.codes)
        # The target domain matters to pyRiemann's transform only, which is not used.
        center = transfer.TLCenter(target_domain="0")
        centred = center.fit_transform(trials.X.astype(np.float64), domains, trials.weight)
        whiteners = {label: center.centers_[str(code)].filters_ for code, label in enumerate(labels)}
        if not self.scale:
            return whiteners, dict.fromkeys(labels, 1.0), centred
        scale = transfer.TLScale(target_domain="0", centered_data=True).fit(centred, domains, trials.weight)
        dispersions = {label: float(scale.scales_[str(code)]) for code, label in enumerate(labels)}
        if same := [label for label, dispersion in dispersions.items() if dispersion < NO_SPREAD]:
            raise ValueError(
                f"All covariances of source {same} are the same, so their dispersion cannot be scaled to 1. "
                "Pass more trials, or use scale=False."
            )
        for code, label in enumerate(labels):
            rows = trials.codes == code
            centred[rows] = stretch(centred[rows], dispersions[label])
        return whiteners, dispersions, centred

    def _adapt(self, trials: GroupedSignals) -> None:
        whiteners, dispersions, _ = self._centre_and_scale(trials)
        if self.rotate:
            warnings.warn(
                f"Source {list(whiteners)} is recentred{' and rescaled' * self.scale} but not rotated: "
                "a rotation takes task labels, which adapt does not use.",
                stacklevel=3,
            )
        self.whiteners_, self.dispersions_ = self.whiteners_ | whiteners, self.dispersions_ | dispersions
        self.rotations_ = self.rotations_ | {label: np.eye(trials.X.shape[1]) for label in whiteners}

    def _apply(self, X: Floats, label: Any) -> Floats:
        W, Q = self.whiteners_[label], self.rotations_[label]
        C = Q @ stretch(W.T @ X @ W, self.dispersions_[label]) @ Q.T
        return np.asarray((C + C.transpose(0, 2, 1)) / 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.rotate
        return tags
