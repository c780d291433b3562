"""Task heads: decoders that measure whether a correction keeps the task.

A head is trained on HEAD rows of one source and tested on EVAL rows of another. Existing heads (T_f) are
fitted once on uncorrected rows and used for all methods; refitted heads (T_r) are fitted on corrected rows.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.linear_model import RidgeClassifier, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from .._common.extras import torch_device
from .._common.parameters import Constraint, check_parameters, read_seed, seed, text, whole
from ..labels import encode_source, to_numpy
from .readers import SEED, check_rows, check_tokens, token_scaling, train_networks

Floats = NDArray[np.float64]

# The head of source k has the seed ``seed`` + 10 + k.
SOURCE_SEED_OFFSET = 10


def ridge_head(alpha: float = 10.0) -> Pipeline:
    """Return the head for vectors: standardised, balanced ridge classification."""
    return make_pipeline(
        StandardScaler(), RidgeClassifier(alpha=alpha, class_weight="balanced", solver="lsqr")
    )


class TokenNetworkHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The head for tokens (n, t, d): a network on standardised tokens that keeps their order.

    LayerNorm, a d → 64 GELU layer shared by all tokens, then all t · 64 values to the classes.

    Parameters
    ----------
    epochs : int
        Number of epochs.
    device : str
        "auto" is CUDA if available.
    random_state : int, RandomState or None
        Seed of the initial weights and of the order of rows.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "epochs": whole(1),
        "device": text,
        "random_state": seed,
    }

    def __init__(self, epochs: int = 50, device: str = "auto", random_state: Any = None) -> None:
        self.epochs = epochs
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on tokens X (n, t, d) with labels y."""
        check_parameters(self)
        tokens = check_tokens(X, "X")
        self.classes_, codes = encode_source(y, len(tokens), "y")
        self.center_, self.scale_ = token_scaling(tokens)
        place = torch_device(self.device, "TokenNetworkHead")
        rows, seeds = (tokens - self.center_) / self.scale_, [read_seed(self.random_state)]
        trained = train_networks("grid_gelu", rows, codes, seeds, [self.epochs], device=place)
        self.network_ = trained[self.epochs]
        return self

    def _logits(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        tokens, expected = check_tokens(X, "X"), self.center_.shape
        if tokens.shape[1:] != expected:
            raise ValueError(f"X has tokens of shape {tokens.shape[1:]}; this head was fitted on {expected}.")
        return np.asarray(self.network_((tokens - self.center_) / self.scale_)[0])

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return logits (n, K), or for two classes the second minus the first (n,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, (n, K)."""
        return np.asarray(softmax(self._logits(X).astype(np.float64), axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row."""
        return np.asarray(self.classes_[self._logits(X).argmax(1)])


def fit_heads(
    X: Any,
    y: Any,
    source: Any,
    head: Any = None,
    seed: int = SEED,
    *,
    task: str = "classification",
    device: str = "auto",
) -> dict[Any, Any]:
    """Fit one head per source, and return them by source.

    Parameters
    ----------
    X : (n, d) array, or tokens (n, t, d)
        HEAD rows: uncorrected for existing heads, corrected for refitted heads.
    y, source : (n,) labels
        Task and source of each row. Each source needs all classes.
    head : scikit-learn classifier or regressor, or None
        Copies of it are fitted. Classifiers need ``decision_function`` or ``predict_proba``, and sorted
        ``classes_``. None: :func:`ridge_head` for vectors, a network for tokens, ridge for numbers.
    seed : int
        Seed for every ``random_state`` of the head that is None: ``seed`` + 10 + k for the k-th source.
    task, device : str
        "classification" or "regression"; the device on which a network is trained if ``head`` is None.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, source = np.tile([0, 1], 50), np.repeat(["dry", "wet"], 50)
    >>> X = rng.normal(size=(100, 3)) + 2 * y[:, None]
    >>> heads = fit_heads(X, y, source)
    >>> {pair: scores.shape for pair, (_, scores, _) in transfer_scores(heads, X, source).items()}
    {('dry', 'wet'): (50,), ('wet', 'dry'): (50,)}
    """
    rows = check_rows(X, "X")
    sources, codes = encode_source(source, len(rows))
    if len(sources) < 2:
        raise ValueError(f"source has {len(sources)} distinct value; transfer needs two sources or more.")
    labels = to_numpy(y) if task == "regression" else _class_labels(y, codes, sources.tolist())
    head = _template(head, task, rows.ndim, device)
    return {
        name: _seeded(head, seed + SOURCE_SEED_OFFSET + k).fit(rows[codes == k], labels[codes == k])
        for k, name in enumerate(sources.tolist())
    }


def fit_pooled_head(
    X: Any, y: Any, head: Any = None, seed: int = SEED, *, task: str = "classification", device: str = "auto"
) -> Any:
    """Fit one head on the rows of all sources together; parameters are those of :func:`fit_heads`."""
    rows = check_rows(X, "X")
    labels = to_numpy(y) if task == "regression" else _class_labels(y, np.zeros(len(rows), np.int64), ["all"])
    return _seeded(_template(head, task, rows.ndim, device), seed + SOURCE_SEED_OFFSET).fit(rows, labels)


def _template(head: Any, task: str, ndim: int, device: str) -> Any:
    """Return the head to copy: the given head, or the default for rows, tokens or numeric labels."""
    if head is None and task == "regression":  # ridge with a leave-one-out penalty
        head = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-4, 4, 17)))
    elif head is None:
        head = TokenNetworkHead(device=device) if ndim == 3 else ridge_head()
    check_head(head, task)
    return head


def _class_labels(y: Any, codes: NDArray[np.int64], names: list[Any]) -> NDArray[Any]:
    """Return labels for scikit-learn; every source needs every class, and there must be two classes."""
    classes, targets = encode_source(y, len(codes), "y")
    for k, name in enumerate(names):
        present = np.unique(targets[codes == k])
        if len(present) < max(len(classes), 2):
            raise ValueError(
                f"Source {name!r} has HEAD rows of classes {classes[present].tolist()}; a head needs all "
                f"of {classes.tolist()}, two or more. Add such rows, or drop the class."
            )
    # scikit-learn does not accept classes such as 12.5 and 13.5, so their positions are used.
    return targets if classes.dtype.kind == "f" and (classes % 1).any() else classes[targets]


def check_head(head: Any, task: str) -> None:
    """Raise if a head does not fit the task."""
    scores = hasattr(head, "decision_function") or hasattr(head, "predict_proba")
    if task == "regression" and (not hasattr(head, "predict") or is_classifier(head)):
        raise ValueError(f"Labels are numbers and {type(head).__name__} does not predict numbers.")
    if task != "regression" and not scores:
        raise ValueError(
            f"{type(head).__name__} has neither decision_function nor predict_proba; a head must score rows."
        )


def _seeded(head: Any, seed: int) -> Any:
    """Return an unfitted copy with all random states set, so that an audit can be repeated."""
    copy = clone(head)
    states = {k: v for k, v in copy.get_params().items() if k.rpartition("__")[2] == "random_state"}
    return copy.set_params(**{name: seed for name, value in states.items() if value is None})


def transfer_scores(
    heads: dict[Any, Any], X_eval: Any, source_eval: Any
) -> dict[tuple[Any, Any], tuple[NDArray[np.intp], Floats, NDArray[Any]]]:
    """Score the EVAL rows of each source with the heads of all other sources.

    ``heads`` are from :func:`fit_heads`; sources without a head are left out. The result has, for each
    ordered pair (a, b) of sources, the rows of b, and the result of :func:`score_rows` for them with the head
    of a.
    """
    rows = check_rows(X_eval, "X_eval")
    sources, codes = encode_source(source_eval, len(rows), "source_eval")
    members = {name: np.flatnonzero(codes == k) for k, name in enumerate(sources.tolist())}
    return {
        (a, b): (members[b], *score_rows(heads[a], rows[members[b]]))
        for a, b in permutations(heads, 2)
        if b in members
    }


def score_rows(head: Any, rows: NDArray[Any]) -> tuple[Floats, NDArray[Any]]:
    """Return the scores of a head for rows, and the positions of the predicted classes.

    Scores are (n,) for two classes (higher means the second) or (n, K). For numeric labels, both are the
    predictions.
    """
    predicted = np.asarray(head.predict(rows)).reshape(len(rows))
    if hasattr(head, "decision_function") or hasattr(head, "predict_proba"):
        return _scores(head, rows), np.searchsorted(head.classes_, predicted)
    return predicted.astype(np.float64), predicted.astype(np.float64)


def outputs(head: Any, rows: NDArray[Any]) -> Floats:
    """Return the outputs of a head: probabilities (n, K), predicted classes (n, K), or numbers (n, 1)."""
    if hasattr(head, "predict_proba"):
        return np.asarray(head.predict_proba(rows), dtype=np.float64)
    predicted = np.asarray(head.predict(rows)).reshape(len(rows))
    if not hasattr(head, "classes_"):
        return predicted.astype(np.float64)[:, None]
    return np.asarray(predicted[:, None] == np.asarray(head.classes_)[None], dtype=np.float64)


def _scores(head: Any, X: Any) -> Floats:
    """Return a fitted head's scores: (n,) for two classes, (n, K) for more.

    Two classes: ``decision_function`` if there is one. More classes: probabilities, if available.
    """
    classes = np.asarray(getattr(head, "classes_", []))
    K = len(classes)
    prefers = ("decision_function", "predict_proba") if K == 2 else ("predict_proba", "decision_function")
    method = next(name for name in prefers if hasattr(head, name))
    scores = np.asarray(getattr(head, method)(X), dtype=np.float64)
    if K == 2 and scores.ndim == 2:
        scores = scores[:, 1]
    if K < 2 or (np.sort(classes) != classes).any() or scores.shape != (len(X), K)[: 1 if K == 2 else 2]:
        raise ValueError(
            f"{type(head).__name__} has classes_ {classes.tolist()} and scores {scores.shape}; expected "
            "sorted classes_ and a score for each (an SVC needs decision_function_shape='ovr')."
        )
    return scores
