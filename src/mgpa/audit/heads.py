"""Task heads: is the task still there, across sources, after a correction?

A head is trained on HEAD rows of one source and scores EVAL rows of another. Frozen heads (T_f) are fitted
on uncorrected rows, once, and used for every method; refitted ones (T_r) on corrected rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.linear_model import RidgeClassifier, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from .._common.checks import as_float_matrix, require_finite
from .._common.parameters import Constraint, check_parameters, read_seed, seed, text, whole
from ..estimators.staged import torch_device
from ..pairs import encode_source, to_numpy
from ..tokens import as_tokens
from .readers import SEED, train_networks
from .token_readers import TokenScaling, check_tokens

# Source k's head starts from the seed + 10 + k.
SOURCE_SEED_OFFSET = 10


class Heads(NamedTuple):
    """Fitted task heads by the source they were trained on.

    ``classes`` are the task's, sorted: the order of multi-class scores. None: labels are numbers.
    """

    by_source: dict[Any, Any]
    classes: NDArray[Any] | None


class Transfer(NamedTuple):
    """Which EVAL rows a head of another source scored, and how.

    Scores have shape (n,) for two classes, higher meaning the second, and (n, K) for more; ``predicted`` are
    numbers of classes at the head's own threshold. Of numbers, both are what the head predicts.
    """

    rows: NDArray[np.intp]
    scores: NDArray[np.float64]
    predicted: NDArray[Any]


def ridge_head(alpha: float = 10.0) -> Pipeline:
    """Return the head for vectors: standardised, balanced ridge classification."""
    return make_pipeline(
        StandardScaler(), RidgeClassifier(alpha=alpha, class_weight="balanced", solver="lsqr")
    )


def ridge_regression() -> Pipeline:
    """Return the head for numbers as labels: standardised ridge regression, its ridge by leave-one-out."""
    return make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-4, 4, 17)))


class TokenNetworkHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The head for tokens (n, t, d): a network on standardised tokens that keeps their order.

    LayerNorm, a d → 64 GELU layer shared by all tokens, then all t · 64 values to the classes.

    Parameters
    ----------
    epochs : int
        Passes through the rows.
    device : str
        "auto" is CUDA if torch sees it.
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
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has {len(self.classes_)} distinct values; a head needs at least two classes."
            )
        self.scaling_ = TokenScaling.fit(tokens)
        ((self.network_,),) = train_networks(
            "grid_gelu",
            [self.scaling_.apply(tokens)],
            codes,
            [read_seed(self.random_state)],
            [self.epochs],
            device=torch_device(self.device, "TokenNetworkHead"),
        )
        return self

    def _logits(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        tokens = check_tokens(X, "X")
        expected = self.scaling_.center.shape
        if tokens.shape[1:] != expected:
            raise ValueError(f"X has tokens of shape {tokens.shape[1:]}; this head was fitted on {expected}.")
        return np.asarray(self.network_.logits(self.scaling_.apply(tokens))[0])

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return logits (n, K), or for two classes the second minus the first (n,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
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
) -> Heads:
    """Fit one head per source.

    Parameters
    ----------
    X : (n, d) array, or tokens (n, t, d)
        HEAD rows: uncorrected for frozen heads, corrected for refitted ones.
    y, source : (n,) labels
        Task and source of each row. Every source needs every class.
    head : scikit-learn classifier or regressor, or None
        Copies of it are fitted. Classifiers need ``decision_function`` or ``predict_proba``. None:
        :func:`ridge_head` for vectors, :class:`TokenNetworkHead` for tokens, ridge regression for numbers.
    seed : int
        Of every ``random_state`` that the head leaves at None: ``seed`` + 10 + k for the k-th source.
    task : {"classification", "regression"}
        What the labels are.
    device : str
        Where a :class:`TokenNetworkHead` trains if ``head`` is None.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, source = np.tile([0, 1], 50), np.repeat(["dry", "wet"], 50)
    >>> X = rng.normal(size=(100, 3)) + 2 * y[:, None]
    >>> heads = fit_heads(X, y, source)
    >>> {pair: transfer.scores.shape for pair, transfer in transfer_scores(heads, X, source).items()}
    {('dry', 'wet'): (50,), ('wet', 'dry'): (50,)}
    """
    rows = _check_rows(X, "X")
    sources, codes = encode_source(source, len(rows))
    names = sources.tolist()
    if len(names) < 2:
        raise ValueError(
            f"source has {len(names)} distinct value; transfer goes from one source to another and needs two "
            "or more."
        )
    classes, labels = (None, to_numpy(y)) if task == "regression" else _class_labels(y, codes, names)
    if head is None and task == "regression":
        head = ridge_regression()
    elif head is None:
        head = TokenNetworkHead(device=device) if rows.ndim == 3 else ridge_head()
    check_head(head, task)
    by_source = {
        name: _seeded(head, seed + SOURCE_SEED_OFFSET + k).fit(rows[codes == k], labels[codes == k])
        for k, name in enumerate(names)
    }
    return Heads(by_source, classes)


def _class_labels(y: Any, codes: NDArray[np.int64], names: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the classes, and labels as scikit-learn takes them; every source needs every class."""
    classes, targets = encode_source(y, len(codes), "y")
    if len(classes) < 2:
        raise ValueError(f"y has {len(classes)} distinct value; a head needs two classes or more.")
    for k, name in enumerate(names):
        missing = np.delete(classes, np.unique(targets[codes == k]))
        if len(missing):
            raise ValueError(
                f"Source {name!r} has no rows of class {missing.tolist()} in HEAD; its head could not score "
                "it. Pass such rows, or leave the class out."
            )
    # scikit-learn refuses 12.5 and 13.5 Hz as classes; it takes their numbers in order.
    return classes, targets if _are_fractions(classes) else classes[targets]


def _are_fractions(classes: NDArray[Any]) -> bool:
    return classes.dtype.kind == "f" and bool((classes % 1).any())


def check_head(head: Any, task: str) -> None:
    """Raise if a head cannot do the task."""
    if task == "regression":
        if not hasattr(head, "predict") or is_classifier(head):
            raise ValueError(f"Labels are numbers and {type(head).__name__} does not predict numbers.")
    elif not (hasattr(head, "decision_function") or hasattr(head, "predict_proba")):
        raise ValueError(
            f"{type(head).__name__} has neither decision_function nor predict_proba; a head must score rows, "
            "not only label them."
        )


def transfer_scores(heads: Heads, X_eval: Any, source_eval: Any) -> dict[tuple[Any, Any], Transfer]:
    """Score the EVAL rows of every source with the head of every other one.

    Parameters
    ----------
    heads : Heads
        From :func:`fit_heads`.
    X_eval, source_eval : (n, d) array or tokens (n, t, d), (n,) labels
        Corrected EVAL rows and their sources; sources without a head are left out.

    Returns
    -------
    dict
        For each ordered pair (a, b) of sources, the rows of b and what a's head makes of them.
    """
    rows = _check_rows(X_eval, "X_eval")
    sources, codes = encode_source(source_eval, len(rows), "source_eval")
    members = {name: np.flatnonzero(codes == k) for k, name in enumerate(sources.tolist())}
    transfers = {}
    for a, b in permutations(heads.by_source, 2):
        if b in members:
            head, chosen = heads.by_source[a], rows[members[b]]
            if heads.classes is None:
                predicted = np.asarray(head.predict(chosen), dtype=np.float64).reshape(len(chosen))
                transfers[a, b] = Transfer(members[b], predicted, predicted)
            else:
                scores = head_scores(head, chosen, heads.classes)
                transfers[a, b] = Transfer(members[b], scores, _predicted(head, chosen, heads.classes))
    return transfers


def _predicted(head: Any, X: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of the class that a head predicts for each row; -1: none of these classes."""
    names = np.arange(len(classes)) if _are_fractions(classes) else classes
    labels = np.asarray(head.predict(X))
    if names.dtype.kind in "OUS" or labels.dtype.kind in "OUS":
        names, labels = names.astype(str), labels.astype(str)
    codes = np.minimum(np.searchsorted(names, labels), len(names) - 1)
    return np.where(names[codes] == labels, codes, -1)


def head_scores(head: Any, X: Any, classes: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
    """Return a fitted head's scores: (n,) for two classes, (n, K) for more.

    Two classes: ``decision_function`` if there is one. More: probabilities, if it gives them.
    """
    K = len(classes)
    prefers = ("decision_function", "predict_proba") if K == 2 else ("predict_proba", "decision_function")
    method = next(name for name in prefers if hasattr(head, name))
    scores = np.asarray(getattr(head, method)(X), dtype=np.float64)
    if K == 2 and scores.ndim == 2:
        scores = scores[:, 1]
    expected = (len(X),) if K == 2 else (len(X), K)
    if scores.shape != expected:
        raise ValueError(
            f"{type(head).__name__}.{method} gave scores of shape {scores.shape}; expected {expected}, one "
            "per class. For support vector machines set decision_function_shape='ovr'."
        )
    return scores


def _seeded(head: Any, seed: int) -> Any:
    """Return an unfitted copy whose open random states are set, so that an audit can be repeated."""
    copy = clone(head)
    unset = {
        name: seed
        for name, value in copy.get_params().items()
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    return copy.set_params(**unset)


def _check_rows(X: Any, name: str) -> NDArray[Any]:
    X = to_numpy(X)
    if X.ndim == 3:
        return as_tokens(X, name)
    rows = as_float_matrix(X, name=name)
    require_finite(rows, name)
    return rows
