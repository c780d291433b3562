"""End-to-end comparators, which predict the task on another source instead of correcting embeddings.

All have ``fit(X, y, source=, X_target=, pairs=)`` and ``predict(X, source=)``. Their tags list the arguments
that they use: labelled rows X, unlabelled rows of the target source, and pairs. :func:`task_scores` scores a
fitted method; :func:`transfer_scores` fits a method on each source and scores it on all others.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from .._common.checks import as_float_matrix, require_memory
from .._common.parameters import (
    Constraint,
    check_parameters,
    flag,
    having,
    nothing,
    number,
    one_of,
    source_label,
    whole,
)
from ..errors import MissingEvidence, UsageError
from ..estimators.base import MethodTags, forget
from ..labels import check_pair_id, encode_source, require_distinct, source_names, to_numpy
from ..moments import Standardizer
from ..pairs import check_views, matched_rows
from ..statistics import NO_PAIRS
from ._base import Decoder, Floats, finite_rows, one_per_row, reference_index, task_classes


class SlopeBias(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Correct the predictions of a calibrated model with a slope and a bias for each source.

    Reference: Osborne & Fearn, "Collaborative evaluation of universal calibrations for the measurement of
    protein and moisture in flour by near infrared reflectance", International Journal of Food Science &
    Technology 18, 1983; the standard first step in practice. The model is fitted on rows of the reference, or
    is already fitted. For each other source, predictions for the reference views of pairs are regressed on
    predictions for the views of that source. Measured values of the pairs are not needed.

    Needs pairs and source labels, and the source again to predict. Gives predictions, not embeddings.

    What it cannot do: correct errors that are not linear in the prediction. A new model on the same
    embeddings needs its own slope and bias.

    Parameters
    ----------
    head : regressor or None
        A scikit-learn regressor. A fitted regressor is not refitted. None: ``RidgeCV()``.
    reference : label, int or None
        The source on which the model was calibrated: a label, or a position among the sorted labels. None is
        the first.
    slope : bool
        Fit a slope and a bias; False: only a bias.

    Attributes
    ----------
    coefficients_ : dict
        Slope and bias of each source.
    reference_ : label
        The reference source.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(
        source_blind=False, needs_pairs=True, needs_task=True, acts_on="predictions"
    )
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "head": having("fit", "predict", example="a regressor such as PLSRegression(8)") | nothing,
        "reference": source_label | nothing, "slope": flag,
    }  # fmt: skip

    coefficients_: dict[Any, tuple[float, float]]
    reference_: Any

    def __init__(self, head: Any = None, *, reference: Any = None, slope: bool = True) -> None:
        self.head = head
        self.reference = reference
        self.slope = slope

    def fit(
        self, X: Any, y: Any = None, *, source: Any = None, X_target: Any = None, pairs: Any = None,
        pair_id: Any = None,
    ) -> Self:  # fmt: skip
        """Fit slopes and biases from ``pairs=(A, B)``, or from rows of X that share a ``pair_id``.

        ``y`` has the measured values of the rows; only those of the reference source are used. If the head is
        fitted, ``y`` may be omitted.
        """
        check_parameters(self)
        forget(self)
        rows = as_float_matrix(to_numpy(X))
        if source is None:
            raise MissingEvidence("SlopeBias needs sources: pass source=, one label per row.")
        sources, codes = encode_source(source, len(rows))
        target = reference_index(self.reference, sources)
        head = RidgeCV() if self.head is None else self.head
        if self.head is None or not is_fitted(head):
            if y is None:
                raise UsageError("The head is not fitted: pass y, or a fitted head.")
            chosen = codes == target
            head = clone(head).fit(rows[chosen], one_per_row(y, len(rows), "y")[chosen])
        views = _views(rows, sources, codes, target, pairs, pair_id)
        coefficients = {sources[target].item(): (1.0, 0.0)}
        for s, (A, B) in views.items():
            seen, wanted = (np.ravel(head.predict(view)) for view in (A, B))
            varies = self.slope and len(seen) > 2 and np.ptp(seen) > 0
            slope = float(np.cov(seen, wanted)[0, 1] / seen.var(ddof=1)) if varies else 1.0
            coefficients[sources[s].item()] = slope, float(wanted.mean() - slope * seen.mean())
        self.coefficients_, self.reference_, self.head_ = coefficients, sources[target].item(), head
        return self

    def predict(self, X: Any, *, source: Any = None) -> Floats:
        """Return corrected predictions; ``source`` has one label per row, or one label for all rows."""
        check_is_fitted(self, "coefficients_")
        predicted = np.ravel(self.head_.predict(as_float_matrix(to_numpy(X)))).astype(np.float64)
        if source is None:
            raise UsageError("SlopeBias corrects by source: pass source=, one label per row, or one for all.")
        labels_of_rows = [source] * len(predicted) if np.ndim(source) == 0 else source
        labels, codes = encode_source(labels_of_rows, len(predicted))
        coefficients = dict(
            zip(source_names(np.array(list(self.coefficients_))), self.coefficients_.values(), strict=True)
        )
        if unseen := [name for name in source_names(labels) if name not in coefficients]:
            raise UsageError(f"source {unseen} was not in the fit, which had {list(coefficients)}.")
        slope, bias = np.array([coefficients[name] for name in source_names(labels)])[codes].T
        return np.asarray(slope * predicted + bias)


def is_fitted(model: Any) -> bool:
    """Return whether a scikit-learn estimator is fitted."""
    with suppress(NotFittedError):
        check_is_fitted(model)
        return True
    return False


def _views(
    rows: NDArray[Any], sources: NDArray[Any], codes: NDArray[np.int64], target: int, pairs: Any, pair_id: Any
) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
    """Return, for each source except the reference, its views and the reference views of the same events."""
    if pairs is not None:
        if len(sources) != 2:
            raise UsageError(f"pairs=(A, B) is for two sources; source has {len(sources)}. Use pair_id=.")
        views = check_views(pairs, rows.shape[1])
        return {1 - target: (views[1 - target], views[target])}
    if pair_id is None:
        raise MissingEvidence(NO_PAIRS)
    ids, views_of_source = check_pair_id(pair_id, len(rows)), {}
    require_distinct(codes, ids)
    for s in range(len(sources)):
        if s != target:
            a, b = matched_rows(codes, ids, s, target)
            if not len(a):
                raise MissingEvidence(f"No pair joins {sources[s].item()!r} and {sources[target].item()!r}.")
            views_of_source[s] = rows[a], rows[b]
    return views_of_source


class AwAR(Decoder):
    """Weighted adaptation regularisation: a kernel classifier adapted to unlabelled rows of a target source.

    Reference: Wu, Lawhern, Hairston, Lance, "Switching EEG headsets made easy: reducing offline calibration
    effort using active weighted adaptation regularization", IEEE Transactions on Neural Systems and
    Rehabilitation Engineering 24, 2016. In closed form, α = ((E + λM) K + σI)⁻¹ E Y. E weights labelled rows:
    rare classes get larger weights, and target rows ``target_weight``. M measures distances between the means
    of the sources in kernel space, over all rows and within each class; classes of unlabelled target rows are
    predicted, ``n_rounds`` times. With more than two classes, Y has one column per class. The first
    predictions come from a support vector machine with default parameters; the paper tunes them. Defaults are
    those of the authors' code (σ .1, λ 10, target rows 10), except for the linear kernel. :meth:`query` is
    the active part: it selects target rows to label next.

    Needs labelled rows, unlabelled rows of the target and the task. No pairs, no source labels. Gives
    predictions, not embeddings.

    What it cannot do: keep an existing decoder, or separate a device from the participants who used it. It is
    fitted for one target and solves a system with as many equations as rows.

    Parameters
    ----------
    sigma, regularization : float
        σ and λ.
    target_weight : float
        Weight of labelled target rows.
    kernel : {"linear", "rbf"}
        Kernel of standardised features; "rbf" has the width √d.
    n_rounds : int
        How many times the classes of target rows are predicted.
    standardize : bool
        Scale features to unit variance before fitting.

    Attributes
    ----------
    classes_ : (n_classes,) array
        Task labels, sorted.
    coef_ : (n, n_classes) array
        α, for labelled rows followed by target rows.
    """

    tags: ClassVar[MethodTags] = MethodTags(
        source_blind=True, needs_source=False, needs_task=True, acts_on="predictions"
    )
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "sigma": number(above=0), "regularization": number(0), "target_weight": number(0),
        "kernel": one_of("linear", "rbf"), "n_rounds": whole(1), "standardize": flag,
    }  # fmt: skip

    coef_: Floats

    def __init__(
        self, *, sigma: float = 0.1, regularization: float = 10.0, target_weight: float = 10.0,
        kernel: str = "rbf", n_rounds: int = 5, standardize: bool = True,
    ) -> None:  # fmt: skip
        self.sigma = sigma
        self.regularization = regularization
        self.target_weight = target_weight
        self.kernel = kernel
        self.n_rounds = n_rounds
        self.standardize = standardize

    def fit(
        self, X: Any, y: Any, *, source: Any = None, X_target: Any = None, pairs: Any = None,
        X_labelled: Any = None, y_labelled: Any = None,
    ) -> Self:  # fmt: skip
        """Fit on labelled rows X and unlabelled target rows ``X_target``.

        ``X_labelled`` and ``y_labelled`` are target rows with labels, such as those selected by
        :meth:`query`.
        """
        check_parameters(self)
        forget(self)
        if X_target is None:
            raise MissingEvidence("AwAR needs a target: pass X_target, unlabelled rows of the new source.")
        rows = finite_rows(X)
        d = rows.shape[1]
        unlabelled = finite_rows(X_target, "X_target", d)
        calibration = np.empty((0, d)) if X_labelled is None else finite_rows(X_labelled, "X_labelled", d)
        n, n_labelled, m = len(rows), len(calibration), len(unlabelled)
        require_memory(
            24.0 * (n + n_labelled + m) ** 2, f"AwAR's kernel of {n + n_labelled + m} rows", "Use fewer rows."
        )
        target_labels = [] if y_labelled is None else list(y_labelled)
        if len(target_labels) != n_labelled:
            raise UsageError(
                f"y_labelled has {len(target_labels)} labels for {n_labelled} rows of X_labelled."
            )
        classes, task = task_classes([*one_per_row(y, n, "y").tolist(), *target_labels], n + n_labelled)
        everything = np.concatenate([rows, calibration, unlabelled]).astype(np.float64)
        self._standardizer = Standardizer.from_rows(everything, None, self.standardize)
        self._rows = self._standardised(everything)
        K, weights = self._kernel(self._rows), np.zeros(len(everything))
        weights[:n] = class_weights(task[:n])
        weights[n : n + n_labelled] = self.target_weight * class_weights(task[n:])
        machine = SVC(class_weight="balanced").fit(self._rows[: n + n_labelled], task)
        guessed = machine.predict(self._rows[n + n_labelled :])
        signs = 2.0 * np.eye(len(classes))[np.concatenate([task, guessed])] - 1.0
        for _ in range(self.n_rounds):
            M = discrepancy(n, np.concatenate([task, guessed]), len(classes))
            system = (weights[:, None] * K) + self.regularization * (M @ K)
            system[np.diag_indices_from(system)] += self.sigma
            self.coef_ = np.linalg.solve(system, weights[:, None] * signs)
            before, guessed = guessed, (K[n + n_labelled :] @ self.coef_).argmax(axis=1)
            if np.array_equal(before, guessed):
                break
        self.classes_, self.n_features_in_ = classes, d
        self._unlabelled = slice(n + n_labelled, None)
        return self

    def _standardised(self, rows: NDArray[Any]) -> Floats:
        s = self._standardizer
        return np.where(s.varies, (rows - s.center) / s.scale, 0.0)

    def _kernel(self, rows: Floats) -> Floats:
        product = rows @ self._rows.T
        if self.kernel == "linear":
            return np.asarray(product)
        squares = np.square(rows).sum(1)[:, None] + np.square(self._rows).sum(1) - 2 * product
        return np.asarray(np.exp(-squares / (2 * rows.shape[1])))

    def _scores(self, X: Any) -> Floats:
        rows = finite_rows(X, n_features=self.n_features_in_)
        scores = self._kernel(self._standardised(rows)) @ self.coef_
        return np.asarray(scores[:, 1] if len(self.classes_) == 2 else scores)

    def query(self, n: int) -> NDArray[np.intp]:
        """Return the positions in ``X_target`` of the n rows nearest to the decision boundary."""
        check_is_fitted(self, "classes_")
        scores = np.sort(self._kernel(self._rows[self._unlabelled]) @ self.coef_, axis=1)
        return np.argsort(scores[:, -1] - scores[:, -2], kind="stable")[:n]


def class_weights(task: NDArray[np.int64]) -> Floats:
    """Return row weights that give each class the total weight of the largest class."""
    if not len(task):
        return np.zeros(0)
    counts = np.bincount(task)
    return np.asarray((counts.max() / np.maximum(counts, 1))[task])


def discrepancy(n: int, task: NDArray[np.int64], n_classes: int) -> Floats:
    """Return the matrix M of squared distances between the means of the first n rows and of the other rows.

    M is the sum of the distance over all rows, counted once per class, and the distances within each class.
    """
    first = np.arange(len(task)) < n
    M = np.zeros((len(task), len(task)))
    for members, weight in [
        (np.ones(len(task), bool), float(n_classes)),
        *((task == c, 1.0) for c in range(n_classes)),
    ]:
        a, b = first & members, ~first & members
        if a.any() and b.any():
            e = a / a.sum() - b / b.sum()
            M += weight * np.outer(e, e)
    return M


def task_scores(model: Any, X: Any, y: Any, source: Any) -> dict[Any, float]:
    """Return the score of a fitted model on the rows of each source, and the lowest score as ``"worst"``.

    The score is the AUROC of a classifier (with more than two classes, the mean AUROC of each class against
    the rest), or the root mean squared error of a regressor. In an audit, these scores are shown in the task
    columns; the other columns are for maps.
    """
    rows = to_numpy(X)
    truth = one_per_row(y, len(rows), "y")
    sources, codes = encode_source(source, len(rows))
    classifies = hasattr(model, "classes_")
    scores: dict[Any, float] = {}
    for s, label in enumerate(sources.tolist()):
        part, wanted = rows[codes == s], truth[codes == s]
        if not classifies:
            errors = np.ravel(model.predict(part, source=np.full(len(part), label))) - wanted
            scores[label] = float(np.sqrt(np.mean(np.square(errors))))
            continue
        values = np.asarray(model.decision_function(part, source=np.full(len(part), label)))
        values = values if values.ndim == 2 else np.column_stack([-values, values])
        present = [k for k, c in enumerate(model.classes_) if 0 < (wanted == c).sum() < len(wanted)]
        if not present:
            raise UsageError(f"Rows of source {label!r} have one task label; an AUROC needs two.")
        scores[label] = float(
            np.mean([roc_auc_score(wanted == model.classes_[k], values[:, k]) for k in present])
        )
    worst = min if classifies else max
    return scores | {"worst": worst(scores.values())}


def transfer_scores(
    model: Any, X: Any, y: Any, source: Any, X_new: Any, y_new: Any, source_new: Any, **given: Any
) -> dict[tuple[Any, Any], float]:
    """Return the scores of a model fitted on rows of each source and scored on new rows of each other source.

    The target rows are the rows of the other source in X, without labels. ``given`` is passed to ``fit``.
    """
    rows, new = to_numpy(X), to_numpy(X_new)
    labels, codes = encode_source(source, len(rows))
    names, truth = np.asarray(source_new), np.asarray(y_new)
    scores = {}
    for a, b in permutations(range(len(labels)), 2):
        fitted = clone(model).fit(
            rows[codes == a], np.asarray(y)[codes == a], source=labels[codes[codes == a]],
            X_target=rows[codes == b], **given,
        )  # fmt: skip
        rows_of_b = names == labels[b]
        scored = task_scores(fitted, new[rows_of_b], truth[rows_of_b], names[rows_of_b])
        scores[labels[a].item(), labels[b].item()] = scored["worst"]
    return scores
