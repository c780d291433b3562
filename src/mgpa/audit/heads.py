"""Task heads: whether a correction keeps the task, and the cost of a learned shortcut.

A head is trained on HEAD rows of one source and scores EVAL rows of another. Frozen heads (T_f) are fitted
on uncorrected rows, once, and used for every method; refitted ones (T_r) on corrected rows.

Association shift (appendix B): what happens to a head when device and label go together, then come apart.
Every event was recorded by both devices. Choosing which recording a head sees, with a probability that
depends on the label, makes the device predict the label: one way (ξ = 1), not at all (ξ = 0), or the other
way (ξ = -1). The signals never change. A head trained at ξ = 1 learns the shortcut; its AUROC over ξ in
[-1, 1], and above all the lowest point of that curve, tells how much the shortcut costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from .._common.extras import torch_device
from .._common.parameters import Constraint, check_parameters, read_seed, seed, text, whole
from ..critics import balanced_weights
from ..errors import UsageError
from ..labels import encode_source, to_numpy
from ..tables.table import Table
from .bootstrap import ASSOCIATIONS
from .diagnostics import UNASSOCIATED, count_rows, cramers_v
from .ranks import check_scores, participant_auroc
from .readers import SEED, check_rows, check_tokens, token_scaling, train_networks

Floats = NDArray[np.float64]

# Source k's head starts from the seed + 10 + k.
SOURCE_SEED_OFFSET = 10
#: How far, at most, the probability of a device departs from one half.
DEPARTURE = 0.4
#: The inverse regularisations tried for the paper's heads: 10⁻⁶, 10⁻⁵, …, 10.
C_GRID: tuple[float, ...] = tuple(10.0**k for k in range(-6, 2))
#: Values of rows from which on association heads are fitted side by side.
MANY = 2**22


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
        HEAD rows: uncorrected for frozen heads, corrected for refitted ones.
    y, source : (n,) labels
        Task and source of each row. Every source needs every class.
    head : scikit-learn classifier or regressor, or None
        Copies of it are fitted. Classifiers need ``decision_function`` or ``predict_proba``, and sorted
        ``classes_``. None: :func:`ridge_head` for vectors, a network for tokens, ridge for numbers.
    seed : int
        Of every ``random_state`` that the head leaves at None: ``seed`` + 10 + k for the k-th source.
    task, device : str
        "classification" or "regression"; where a network trains if ``head`` is None.

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
    """Return the head to fit copies of: the one passed, or the default of rows, tokens or numbers."""
    if head is None and task == "regression":  # the ridge by leave-one-out
        head = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-4, 4, 17)))
    elif head is None:
        head = TokenNetworkHead(device=device) if ndim == 3 else ridge_head()
    check_head(head, task)
    return head


def _class_labels(y: Any, codes: NDArray[np.int64], names: list[Any]) -> NDArray[Any]:
    """Return labels as scikit-learn takes them; every source needs every class, and there must be two."""
    classes, targets = encode_source(y, len(codes), "y")
    for k, name in enumerate(names):
        present = np.unique(targets[codes == k])
        if len(present) < max(len(classes), 2):
            raise ValueError(
                f"Source {name!r} has HEAD rows of classes {classes[present].tolist()}; a head needs all "
                f"of {classes.tolist()}, two or more. Add such rows, or drop the class."
            )
    # scikit-learn refuses 12.5 and 13.5 Hz as classes; it takes their numbers in order.
    return targets if classes.dtype.kind == "f" and (classes % 1).any() else classes[targets]


def check_head(head: Any, task: str) -> None:
    """Raise if a head cannot do the task."""
    scores = hasattr(head, "decision_function") or hasattr(head, "predict_proba")
    if task == "regression" and (not hasattr(head, "predict") or is_classifier(head)):
        raise ValueError(f"Labels are numbers and {type(head).__name__} does not predict numbers.")
    if task != "regression" and not scores:
        raise ValueError(
            f"{type(head).__name__} has neither decision_function nor predict_proba; a head must score rows."
        )


def _seeded(head: Any, seed: int) -> Any:
    """Return an unfitted copy whose open random states are set, so that an audit can be repeated."""
    copy = clone(head)
    states = {k: v for k, v in copy.get_params().items() if k.rpartition("__")[2] == "random_state"}
    return copy.set_params(**{name: seed for name, value in states.items() if value is None})


def transfer_scores(
    heads: dict[Any, Any], X_eval: Any, source_eval: Any
) -> dict[tuple[Any, Any], tuple[NDArray[np.intp], Floats, NDArray[Any]]]:
    """Score the EVAL rows of every source with the head of every other one.

    ``heads`` are from :func:`fit_heads`; sources without one are left out. For each ordered pair (a, b) of
    sources: the rows of b, and what :func:`score_rows` returns of them for a's head.
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
    """Return the scores that a head gives rows, and the numbers of the classes it predicts.

    Scores are (n,) for two classes, higher meaning the second, or (n, K). Where labels are numbers, both are
    what the head predicts.
    """
    predicted = np.asarray(head.predict(rows)).reshape(len(rows))
    if hasattr(head, "decision_function") or hasattr(head, "predict_proba"):
        return _scores(head, rows), np.searchsorted(head.classes_, predicted)
    return predicted.astype(np.float64), predicted.astype(np.float64)


def outputs(head: Any, rows: NDArray[Any]) -> Floats:
    """Return what a head puts out for rows: probabilities (n, K), votes (n, K), or numbers (n, 1)."""
    if hasattr(head, "predict_proba"):
        return np.asarray(head.predict_proba(rows), dtype=np.float64)
    predicted = np.asarray(head.predict(rows)).reshape(len(rows))
    if not hasattr(head, "classes_"):
        return predicted.astype(np.float64)[:, None]
    return np.asarray(predicted[:, None] == np.asarray(head.classes_)[None], dtype=np.float64)


def _scores(head: Any, X: Any) -> Floats:
    """Return a fitted head's scores: (n,) for two classes, (n, K) for more.

    Two classes: ``decision_function`` if there is one. More: probabilities, if it gives them.
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


# --- association shift -----------------------------------------------------------------------------------


def find_directions(source: Any, label: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the associated (source, label) of two sources and two labels; both, if not associated.

    Rows whose association is none to speak of (Cramér's V, corrected for chance, below .1) have no direction.
    The label is the rarer one, or that of the first row, so that names do not matter.
    """
    names, first = np.unique(source, return_index=True)
    classes, counts = np.unique(label, return_counts=True)
    rare = label[0] if counts[0] == counts[1] else classes[counts.argmin()]
    if cramers_v(count_rows(source, label)) >= UNASSOCIATED:
        share = [np.mean(label[source == name] == rare) for name in names]
        return ((names[int(np.argmax(share))].item(), rare.item()),)
    return tuple((name.item(), rare.item()) for name in names[np.argsort(first)])


def choose_directions(
    stated: tuple[Any, Any] | None, fit: Table, head: Table, evaluation: Table
) -> tuple[tuple[tuple[Any, Any], ...], str]:
    """Return the (source, label) pairs that shortcuts learn, and where they come from.

    No direction, where association shift cannot be measured: it needs events of two sources and two classes
    that both sources saw, in HEAD and in EVAL, and two HEAD participants or more with such events.
    """
    labels = np.unique([] if head.label is None else head.label)
    if head.paired_views() is None or evaluation.paired_views() is None or len(labels) != 2:
        return (), ""
    trained, scored = paired_events(head), paired_events(evaluation)
    if len(np.unique(head.participant[trained[0]])) < 2:
        return (), "shortcuts need two or more HEAD participants with paired events of both labels"
    if not len(scored[0]):
        return (), "no EVAL participant has paired events of both labels"
    if stated is not None:
        # Compared as text, as a command line states them.
        pairs = {(str(s), str(y)): (s, y) for s in head.sources.tolist() for y in labels.tolist()}
        source, label = map(str, stated)
        if (source, label) not in pairs:
            raise UsageError(
                f"association is {source!r}, {label!r}; expected one of {', '.join(map(str, pairs))}."
            )
        return (pairs[source, label],), "stated"
    # FIT rows may have the labels of another task; they then say nothing about this one's.
    same_task = fit.label is not None and np.array_equal(np.unique(fit.label), labels)
    rows, role = (fit, "FIT") if same_task and len(fit.sources) == 2 else (head, "HEAD")
    return find_directions(rows.source, rows.label), role


def paired_events(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both rows of every paired event, of participants who have such events of every label."""
    views = table.paired_views()
    if views is None:
        none = np.empty(0, np.int64)
        return none, none
    who, label = table.participant[views[0]], table.label[views[0]]
    seen = {*zip(who.tolist(), label.tolist(), strict=True)}
    counts = Counter(name for name, _ in seen)
    n_labels = len(np.unique(table.label))
    full = np.isin(who, [name for name, n in counts.items() if n == n_labels])
    return views[0][full], views[1][full]


def assignment_probability(y: Any, participants: Any, xi: float) -> Floats:
    """Return Pr(U = 1 | y, p; ξ), the probability that an event is seen through device 1.

    ½ + .4 ξ (y - π) / max(π, 1 - π), where π is the share of positive events (label 1) of the participant and
    ξ the association, from -1 to 1. Half of each participant's events are expected on each device at every ξ.

    Examples
    --------
    >>> assignment_probability([1, 0, 0, 0], ["p", "p", "p", "p"], xi=1).round(3).tolist()
    [0.9, 0.367, 0.367, 0.367]
    """
    labels = _labels(y)
    if not -1 <= xi <= 1:
        raise ValueError(f"xi must be between -1 (reversed) and 1 (aligned); got {xi!r}.")
    _, who = encode_source(participants, len(labels), name="participants")
    positive = (np.bincount(who, labels) / np.bincount(who))[who]
    return np.asarray(0.5 + DEPARTURE * xi * (labels - positive) / np.maximum(positive, 1 - positive))


def assign_endpoints(
    y: Any, participants: Any, xi: float, seed: int | np.random.Generator = 1017
) -> NDArray[np.int64]:
    """Draw the device, 0 or 1, through which each event is seen.

    Quotas rather than coin flips. Of each participant's n events, ⌊n / 2⌋ get device 1; among the positive
    ones as many as :func:`assignment_probability` adds up to, rounded (half up), the rest among the negative
    ones. Which events, chance decides: participants in string order, positives before negatives.

    Examples
    --------
    >>> y, who = [1] * 10 + [0] * 10, ["p"] * 20
    >>> device = assign_endpoints(y, who, xi=1)
    >>> int(device[:10].sum()), int(device[10:].sum())
    (9, 1)
    """
    labels = _labels(y)
    probability = assignment_probability(labels, participants, xi)
    rng = np.random.default_rng(seed)
    device = np.zeros(len(labels), np.int64)
    people = _people(participants, len(labels))
    for name in np.unique(people):
        events = np.flatnonzero(people == name)
        positives = rng.permutation(events[labels[events]])
        negatives = rng.permutation(events[~labels[events]])
        n_second = len(events) // 2
        quota = int(np.floor(probability[positives].sum() + 0.5))
        quota = min(max(quota, n_second - len(negatives)), len(positives), n_second)
        device[positives[:quota]] = 1
        device[negatives[: n_second - quota]] = 1
    return device


def association_auroc(
    scores0: Any, scores1: Any, y: Any, participants: Any
) -> tuple[tuple[str, ...], Floats]:
    """Return the participants and their AUROC (P, 3) at ξ = -1, 0 and 1, exactly (nothing is drawn).

    ``scores0[i]`` and ``scores1[i]`` are a head's scores of two recordings of event i, with label 0 or 1.
    Both count, each with the probability of being the one seen.

    Examples
    --------
    A head that only sees the device:

    >>> association_auroc([0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], ["p"] * 4)[1].round(3)
    array([[0.1, 0.5, 0.9]])
    """
    scores0, scores1, labels = check_scores(scores0), check_scores(scores1), _labels(y)
    if not scores0.shape == scores1.shape == labels.shape:
        raise ValueError("scores0, scores1 and y must be of the same events; drop events with one view.")
    people = _people(participants, len(labels))
    twice = np.concatenate([scores0, scores1]), np.tile(labels, 2), np.tile(people, 2)
    curves = []
    for xi in ASSOCIATIONS:
        second = assignment_probability(labels, people, xi)
        weight = np.concatenate([1 - second, second])
        names, values = participant_auroc(*twice, weight=weight)
        curves.append(values)
    return names, np.stack(curves, axis=-1)


def fit_association_heads(X0: Any, X1: Any, y: Any, participants: Any) -> tuple[Pipeline, Pipeline]:
    """Fit the shortcut (ξ = 1) and the control head (ξ = 0) on one view of each event.

    Both are balanced logistic regressions on scaled features, every participant weighing the same. C is the
    one of ``C_GRID`` with the best AUROC of the control head on participants left out in turn, both their
    views counting equally; ties go to the smaller C.

    Parameters
    ----------
    X0, X1 : (n, d) arrays
        Original features of the events through device 0 and device 1; row i of both is the same event.
    y, participants : (n,) arrays
        Task labels, 0 or 1, and who each event is from: two or more, each with both labels.
    """
    X0, X1, labels = check_rows(X0, "X0"), check_rows(X1, "X1"), _labels(y)
    people = _people(participants, len(labels))
    everyone = np.unique(people)
    if not (X0.shape == X1.shape and len(X0) == len(labels)) or len(everyone) < 2:
        raise ValueError(
            f"X0 has shape {X0.shape}, X1 {X1.shape}, y {labels.shape}, of {len(everyone)} participants; "
            "expected both views and one label per event, of two participants or more."
        )
    shortcut, control = (
        np.where(assign_endpoints(labels, people, xi)[:, None] == 1, X1, X0) for xi in (1, 0)
    )
    scores = np.full((2, len(labels), len(C_GRID)), 0.5)
    for name in everyone:
        out = people == name
        heads = _fit_heads(control[~out], labels[~out], people[~out], C_GRID)
        for view, X in enumerate((X0[out], X1[out])):
            scaled = heads[0][0].transform(X)  # once: all have the same scaling
            scores[view, out] = np.column_stack([shortcut_scores(head[-1], scaled) for head in heads])
    _, auroc = participant_auroc(np.concatenate(scores), np.tile(labels, 2), np.tile(people, 2))
    best = [C_GRID[int(auroc.mean(axis=0).argmax())]]
    return _fit_heads(shortcut, labels, people, best)[0], _fit_heads(control, labels, people, best)[0]


def _fit_heads(
    X: NDArray[Any], labels: NDArray[np.bool_], people: NDArray[np.str_], grid: Sequence[float]
) -> list[Pipeline]:
    """Return a balanced, participant-weighted logistic head for each C."""
    _, person, counts = np.unique(people, return_inverse=True, return_counts=True)
    weight = 1.0 / counts[person]
    weight /= weight.mean()
    scaler = StandardScaler().fit(X, sample_weight=weight)
    # In float64, as scikit-learn itself did up to 1.7: in float32 its solver can stop before it has begun.
    scaled = scaler.transform(X).astype(np.float64)
    weight = balanced_weights(labels, weight)
    # Products of a matrix and a vector gain nothing from threads, which wait for each other: of many rows,
    # every C has a thread.
    several = Parallel(n_jobs=-1 if scaled.size > MANY else 1, prefer="threads")
    with threadpool_limits(1, user_api="blas"):
        models = several(
            delayed(LogisticRegression(C=C, max_iter=2000).fit)(scaled, labels, sample_weight=weight)
            for C in reversed(grid)  # those that take longest first
        )
    return [make_pipeline(scaler, model) for model in reversed(models)]


def shortcut_scores(head: Any, X: Any) -> NDArray[Any]:
    """Return an association head's probability of label 1 for each row, in the rows' precision."""
    return np.asarray(head.predict_proba(X)[:, 1], dtype=X.dtype)


def _people(participants: Any, n: int) -> NDArray[np.str_]:
    """Return each event's participant as text."""
    names, codes = encode_source(participants, n, name="participants")
    return np.array([str(name) for name in names.tolist()])[codes]


def _labels(y: Any) -> NDArray[np.bool_]:
    labels = to_numpy(y)
    if labels.ndim != 1 or not len(labels) or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"y must be 0 or 1 for each event; got shape {labels.shape}.")
    flags: NDArray[np.bool_] = labels.astype(bool)
    return flags
