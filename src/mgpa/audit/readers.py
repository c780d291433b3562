"""Independent source readers: models, trained after a correction, that predict the source.

A reader is trained on corrected HEAD rows and scores corrected EVAL rows of other participants. The paper's
bank has two logistic readers and a GELU network with three restarts, each read out at 12, 50 and 200 epochs.
The restarts train side by side as one batched program, each as it would alone.

The full bank, which audits use, has two readers more. Linear readers and small networks hardly see a source
that changes the spread of one feature of many, the sign of a product, or the shape of a distribution. Shallow
boosted trees see what a few features say; the other reader looks along the directions in which the sources'
spreads differ most, as common spatial patterns do (docs/audit.md says how they were chosen).

Tokens (n, t, d) are read as their mean, all together, and as what a shift leaves. A correction of the token
mean shifts all tokens of a row alike, so differences between tokens stay. Readers of the centred tokens
R_t = H_t - mean(H) see nothing else; every such correction leaves them alike, so they are fitted once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.extmath import randomized_svd

from .._common.arrays import double, namespace, zeros
from .._common.checks import as_float_matrix, require_finite
from .._common.extras import torch_device
from ..critics import HIDDEN_WIDTH, Critic, fit_logistic, fit_logistic_on_device
from ..estimators.tokens import as_tokens, token_mean
from ..labels import encode_source, to_numpy

Array = Any  # numpy array or torch.Tensor
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Tokens = NDArray[np.float32]
# By reader: (n,), higher meaning the second of the sorted sources, or the probability of each of them (n, K).
Scores = dict[str, Floats]

#: The banks: the paper's eleven readers (41 for tokens), and these with boosted trees and spread besides.
BANKS = ("full", "paper")
FURTHER = ("boosted_trees", "spread")
SEED = 98
CHECKPOINTS = (12, 50, 200)
SHRINKAGE = 0.01
RIDGE = 1e-8
WIDE = 4096  # features whose products are a matrix too large to decompose
BLOCK = 2048  # rows that are read at a time

# Features that trees are grown on, and principal directions in which spreads are compared: wider rows would
# cost more than they tell.
TREE_FEATURES = 1024
SPREAD_DIRECTIONS = 256
# Directions kept of each source, and how far its covariance is shrunk towards a multiple of I.
KEPT = 12
SPREAD_SHRINKAGE = 0.05
# Further out, a standardised value says no more than that it is far out.
FAR = 6.0

MIN_TOKEN_SCALE = 1e-5
TOKEN_ITERATIONS = 10_000
RESIDUAL_TOLERANCE = 2e-4


def read_sources(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    bank: str = "paper",
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
    seed: int = SEED,
    device: str = "auto",
) -> Scores:
    """Train the bank of source readers on HEAD rows and score EVAL rows with each.

    The readers are "linear", "whitened_linear" and, for each restart and checkpoint, "gelu r0 e12"; in the
    full bank also "boosted_trees" and "spread".

    Parameters
    ----------
    X_head, source_head : (n, d) array, (n,) labels
        Corrected HEAD rows and their sources, two or more.
    X_eval : (n_eval, d) array
        Corrected EVAL rows, of other participants. Their sources are not needed to read them.
    bank : {"paper", "full"}
        The paper's readers alone (the default here), or two more, as in :func:`mgpa.audit.run`.
    restarts, checkpoints : int, increasing ints
        Networks (3), and the epochs after which they are read. Without restarts torch is not needed.
    seed : int
        Restart r starts and shuffles from ``seed`` + 1001 + 10000 r.
    device : str
        Where the networks train; "auto" (the default) is CUDA if torch sees it.

    Returns
    -------
    dict of reader to scores
        Two sources: (n_eval,), higher meaning the second of the sorted labels. More: the probability of each
        of them, (n_eval, K).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics import roc_auc_score
    >>> rng = np.random.default_rng(0)
    >>> source = np.tile(["dry", "wet"], 100)
    >>> X = rng.normal(size=(200, 4)) + (source == "wet")[:, None] * np.eye(4)[0]
    >>> scores = read_sources(X[:100], source[:100], X[100:], restarts=0)
    >>> list(scores), round(float(roc_auc_score(source[100:], scores["linear"])), 2)
    (['linear', 'whitened_linear'], 0.75)
    """
    head, held = check_rows(X_head, "X_head"), check_rows(X_eval, "X_eval")
    if head.ndim == 3 or head.shape[1:] != held.shape[1:]:
        raise ValueError(
            f"X_head has shape {head.shape}, X_eval {held.shape}; expected the same number of features. "
            "For tokens (n, t, d) use read_token_sources."
        )
    codes, n_sources = source_codes(source_head, len(head))
    epochs = check_bank(bank, restarts, checkpoints)
    if not restarts:
        scores = linear_scores(head, codes, n_sources, held)
    else:
        place = torch_device(device, "read_sources")
        scores = linear_scores(_where(head, place), codes, n_sources, _where(held, place))
        trained = train_networks("gelu", head, codes, restart_seeds(seed, restarts), epochs, device=place)
        scores |= network_scores("gelu", trained, held)
    return scores | (further_scores(head, codes, held, seed) if bank == "full" else {})


def _where(X: NDArray[Any], place: Any) -> Array:
    """Return rows where the networks are, if that is a GPU."""
    import torch

    return torch.as_tensor(X, device=place) if place.type == "cuda" else X


# --- networks --------------------------------------------------------------------------------------------

# Networks of all restarts after a number of epochs: their logits (R, n, K) of rows, by that number.
Trained = dict[int, Callable[[NDArray[Any]], NDArray[np.float32]]]


def train_networks(
    architecture: str,
    X: NDArray[Any],
    codes: Codes,
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    *,
    device: Any,
) -> Trained:
    """Train one network per seed on the same rows, side by side, and return them at each checkpoint.

    ``architecture`` is "gelu" for one hidden layer over all values of a row, or "grid_gelu" for one that all
    tokens of a row (t, d) share.
    """
    from ..networks import HiddenLayerNetwork, TokenNetwork, Training

    shape, n_classes = X.shape[1:], int(codes.max()) + 1
    network: HiddenLayerNetwork | TokenNetwork
    if architecture == "gelu":
        network = HiddenLayerNetwork(math.prod(shape), HIDDEN_WIDTH, n_classes)
        optimizer: dict[str, Any] = {"learning_rate": 1e-3}
    else:
        network = TokenNetwork(shape[0], shape[1], n_classes)
        optimizer = {"learning_rate": 5e-4, "batch_size": 128, "clip": 5.0}
    training = Training(network, _as_input(X, device), codes, seeds, **optimizer)
    trained: Trained = {}
    for epoch in range(1, max(checkpoints) + 1):
        training.epoch()
        if epoch in checkpoints:
            trained[epoch] = partial(_logits, network, list(training.parameters()))
    return trained


def _logits(network: Any, parameters: list[Array], X: NDArray[Any]) -> NDArray[np.float32]:
    """Return the logits of each row, (R, n, K)."""
    import torch

    from ..networks import network_logits

    blocks = [torch.zeros((len(parameters[0]), 0, network.n_outputs))]
    for start in range(0, len(X), BLOCK):
        x = _as_input(X[start : start + BLOCK], parameters[0].device)
        blocks.append(network_logits(network, parameters, x).cpu())
    return np.asarray(torch.cat(blocks, dim=1).numpy())


def _as_input(X: NDArray[Any], device: Any) -> Array:
    """Return rows as a float32 tensor where the networks are."""
    import torch

    return torch.from_numpy(np.array(X, dtype=np.float32)).to(device)


def network_scores(name: str, trained: Trained, X: NDArray[Any]) -> Scores:
    """Return the scores of every restart and checkpoint, by reader name."""
    logits = {epochs: networks(X) for epochs, networks in trained.items()}
    restarts = len(next(iter(logits.values())))
    return {
        f"{name} r{r} e{epochs}": source_scores(values[r])
        for r in range(restarts)
        for epochs, values in logits.items()
    }


def source_scores(logits: NDArray[Any]) -> Floats:
    """Return logit 1 - logit 0 for two sources, (n,), and probabilities for more, (n, K)."""
    if logits.shape[1] == 2:
        return np.asarray(logits[:, 1] - logits[:, 0], dtype=np.float64)
    return np.asarray(softmax(logits.astype(np.float64), axis=1))


def restart_seeds(seed: int, restarts: int) -> list[int]:
    """Return the seed of each restart."""
    return [seed + 1001 + 10000 * r for r in range(restarts)]


# --- logistic readers ------------------------------------------------------------------------------------


def linear_scores(head: Array, codes: Codes, n_sources: int, held: Array) -> Scores:
    """Return the scores of the two logistic readers, fitted in float64 on the device of the rows."""
    fit = fit_logistic if isinstance(head, np.ndarray) else fit_logistic_on_device
    plain = fit(head, codes, n_sources)
    center, whitener = whitening(head)
    white = zeros((len(head), whitener.shape[1]), center)
    for start, block in _blocks(head):
        white[start : start + BLOCK] = (block - center) @ whitener
    whitened = fit(white, codes, n_sources)
    scores: dict[str, list[Floats]] = {"linear": [], "whitened_linear": []}
    for _, block in _blocks(held):
        scores["linear"].append(logistic_scores(plain, block))
        scores["whitened_linear"].append(logistic_scores(whitened, (block - center) @ whitener))
    return {name: np.concatenate(parts) for name, parts in scores.items()}


def whitening(X: Array) -> tuple[Array, Array]:
    """Return the mean of the rows and S^-1/2, S their covariance shrunk towards a multiple of I.

    Of fewer rows than very many features only the directions in which they vary, (d, n): a logistic reader
    has no weight in others, and turning the features does not change it, but for rounding.
    """
    n, d = X.shape
    center = sum(block.sum(0) for _, block in _blocks(X)) / n
    if n < d and d > WIDE:
        _, sizes, rows = namespace(X).linalg.svd(double(X) - center, full_matrices=False)
        values = sizes**2 / n
        values = (1 - SHRINKAGE) * values + SHRINKAGE * values.sum() / d + RIDGE
        return center, rows.T / values**0.5
    covariance = sum((block - center).T @ (block - center) for _, block in _blocks(X)) / n
    values, vectors = namespace(X).linalg.eigh(covariance)
    # Shrinking towards I leaves the eigenvectors as they are; rounding may leave a negative eigenvalue.
    values = (1 - SHRINKAGE) * values.clip(0.0) + SHRINKAGE * covariance.trace() / len(values) + RIDGE
    return center, (vectors / values**0.5) @ vectors.T


def _blocks(X: Array) -> Iterator[tuple[int, Array]]:
    """Yield rows in float64, some at a time, and where they begin."""
    for start in range(0, max(len(X), 1), BLOCK):
        yield start, double(X[start : start + BLOCK])


def logistic_scores(reader: Critic, X: Array) -> Floats:
    """Return a logistic reader's scores: the logit difference of two sources, probabilities of more."""
    logits = to_numpy(reader.scores(X))
    return np.asarray(logits[:, 0]) if logits.shape[1] == 1 else source_scores(logits)


# --- readers beyond the paper's --------------------------------------------------------------------------


def further_scores(head: NDArray[Any], codes: Codes, held: NDArray[Any], seed: int) -> Scores:
    """Return the scores of boosted trees and spread readers, fitted on HEAD rows, for EVAL rows.

    As everywhere, these are (n,), larger for the second source, or probabilities (n, K) of more sources.
    """
    scaler, Z = StandardScaler(copy=False), np.empty(head.shape)
    for _, block in _blocks(head):
        scaler.partial_fit(block)

    def scale(X: Floats) -> Floats:
        return np.clip(scaler.transform(X), -FAR, FAR, out=X)

    for start, block in _blocks(head):
        Z[start : start + BLOCK] = scale(block)
    readers = [fit(Z, codes, seed) for fit in (boosted_trees, spread)]
    blocks = [[reader(block) for reader in readers] for block in (scale(rows) for _, rows in _blocks(held))]
    return {name: np.concatenate([block[i] for block in blocks]) for i, name in enumerate(FURTHER)}


def boosted_trees(Z: Floats, codes: Codes, seed: int) -> Callable[[Floats], Floats]:
    """Return a reader of a hundred boosted trees of depth three."""
    chosen = slice(None) if Z.shape[1] <= TREE_FEATURES else telling_features(Z, codes)
    # Without class weights, which AUROC hardly notices and which take scikit-learn twenty times as long.
    model = HistGradientBoostingClassifier(
        max_iter=100, max_depth=3, max_features=0.3, early_stopping=False, random_state=seed
    )
    model.fit(Z[:, chosen], codes)
    return lambda held: _model_scores(model, held[:, chosen])


def telling_features(Z: Floats, codes: Codes) -> NDArray[np.intp]:
    """Return the ``TREE_FEATURES`` features whose mean or mean size differs most between the sources."""
    telling = np.zeros(Z.shape[1])
    for values in (Z, np.abs(Z)):
        mean, spread = values.mean(axis=0), values.std(axis=0)
        for k in range(codes.max() + 1):
            rows_of_k = values[codes == k]
            distance = np.abs(rows_of_k.mean(axis=0) - mean) * np.sqrt(len(rows_of_k))
            telling = np.maximum(telling, distance / np.where(spread > 0, spread, 1.0))
    return np.sort(np.argsort(-telling, kind="stable")[:TREE_FEATURES])


def spread(Z: Floats, codes: Codes, seed: int) -> Callable[[Floats], Floats]:
    """Return a logistic reader of absolute values along the directions where sources differ most in spread.

    Directions are found on one half of the rows and sizes weighed on the other, then the other way round:
    directions that fit the rows they were found on would seem to tell more than they do. Wide rows are
    centred in place.
    """
    center: Any = 0.0
    leading: Any = None
    if Z.shape[1] > SPREAD_DIRECTIONS:
        # Principal directions; scikit-learn's PCA would copy all rows, or leave their squares in their place.
        center = Z.mean(axis=0)
        Z -= center
        leading = randomized_svd(Z, min(SPREAD_DIRECTIONS, len(Z) - 1), random_state=seed)[2].T
        Z = Z @ leading
    half = np.empty(len(Z), np.int64)
    rng = np.random.default_rng(seed)
    for k in range(codes.max() + 1):  # of every source
        rows = rng.permutation(np.flatnonzero(codes == k))
        half[rows] = np.arange(len(rows)) % 2
    fitted = []
    for first, second in ((0, 1), (1, 0)):
        directions = spread_directions(Z[half == first], codes[half == first])
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=0.1, max_iter=1000, class_weight="balanced")
        )
        fitted.append((directions, model.fit(_sizes(Z[half == second], directions), codes[half == second])))

    def scores(held: Floats) -> Floats:
        held = held if leading is None else (held - center) @ leading
        total: Any = sum(_model_scores(model, _sizes(held, directions)) for directions, model in fitted)
        return np.asarray(total / 2)

    return scores


def spread_directions(Z: Floats, codes: Codes) -> Floats:
    """Return directions, in columns, along which each source's variance differs most from the others'.

    For two sources the same directions serve both.
    """
    d, n_sources = Z.shape[1], int(codes.max()) + 1
    level = np.eye(d) * max(float(Z.var(axis=0).mean()), np.finfo(np.float64).tiny)

    def covariance(rows: Floats) -> Floats:
        centred = rows - rows.mean(axis=0)
        return np.asarray((1 - SPREAD_SHRINKAGE) * centred.T @ centred / len(rows) + SPREAD_SHRINKAGE * level)

    directions = []
    for k in range(1 if n_sources == 2 else 0, n_sources):
        ratios, vectors = eigh(covariance(Z[codes == k]), covariance(Z[codes != k]))
        order = np.argsort(-np.abs(np.log(ratios)), kind="stable")
        directions.append(vectors[:, order[:KEPT]])
    return np.concatenate(directions, axis=1)


def _sizes(Z: Floats, directions: Floats) -> Floats:
    along = np.clip(Z @ directions, -FAR, FAR)
    return np.concatenate([np.abs(along), along**2], axis=1)


def _model_scores(model: Any, X: Floats) -> Floats:
    if len(model.classes_) == 2:
        return np.asarray(model.decision_function(X), dtype=np.float64)
    return np.asarray(model.predict_proba(X), dtype=np.float64)


# --- tokens ----------------------------------------------------------------------------------------------


def read_residuals(X_head: Any, source_head: Any, X_eval: Any, **schedule: Any) -> Scores:
    """Read sources from centred tokens: by a standardised logistic reader and by token networks.

    A correction that shifts all tokens of a row alike leaves these as they are, so one reading of uncorrected
    tokens serves all such corrections. The parameters are those of :func:`read_token_sources`.
    """
    head, held = (token_residuals(X) for X in _token_sets(X_head, X_eval))
    return _read_tokens("residual", head, source_head, held, {"grid_gelu": "grid_gelu"}, **schedule)


def read_token_sources(
    X_head: Any, source_head: Any, X_eval: Any, *, residual: Any = None, bank: str = "paper", **schedule: Any
) -> Scores:
    """Train source readers on HEAD tokens and score EVAL tokens with each.

    By name: "mean " and a reader of :func:`read_sources` (11), "tokens linear_raw", "tokens
    linear_standardized", "tokens flat_gelu r0 e12" and "tokens grid_gelu r0 e12" (20), and the "residual "
    reading given (10). In the full bank also "boosted_trees" and "spread", of the mean and of all tokens.

    Parameters
    ----------
    X_head, source_head, X_eval : (n, t, d) array, (n,) labels, (n_eval, t, d) array
        Corrected HEAD tokens and their sources, and corrected EVAL tokens.
    residual : dict or None
        From :func:`read_residuals`; its readers are added.
    bank, restarts, checkpoints, seed, device
        As in :func:`read_sources`.
    """
    head, held = _token_sets(X_head, X_eval)
    mean = read_sources(token_mean(head), source_head, token_mean(held), bank=bank, **schedule)
    readings = {f"mean {name}": scores for name, scores in mean.items()}
    codes, n_sources = source_codes(source_head, len(head))
    raw = _fit_token_logistic("tokens linear_raw", head, codes, n_sources, C=1.0)
    readings["tokens linear_raw"] = logistic_scores(raw, _flat(held))
    networks = {"flat_gelu": "gelu", "grid_gelu": "grid_gelu"}
    readings |= _read_tokens("tokens", head, source_head, held, networks, **schedule)
    if bank == "full":
        head, held = _standardized(head, held)
        further = further_scores(_flat(head), codes, _flat(held), schedule.get("seed", SEED))
        readings |= {f"tokens {name}": scores for name, scores in further.items()}
    return readings | (residual or {})


def _read_tokens(
    prefix: str,
    head: Tokens,
    source_head: Any,
    held: Tokens,
    networks: dict[str, str],
    *,
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
    seed: int = SEED,
    device: str = "auto",
) -> Scores:
    """Read standardised tokens by a logistic reader and by networks: architectures by name."""
    codes, n_sources = source_codes(source_head, len(head))
    epochs = check_bank("paper", restarts, checkpoints)
    head, held = _standardized(head, held)
    name = f"{prefix} linear_standardized"
    linear = _fit_token_logistic(name, head, codes, n_sources, C=0.01)
    readings = {name: logistic_scores(linear, _flat(held))}
    for name, architecture in networks.items() if restarts else ():
        seeds, place = restart_seeds(seed, restarts), torch_device(device, "read_token_sources")
        trained = train_networks(architecture, head, codes, seeds, epochs, device=place)
        readings |= network_scores(f"{prefix} {name}", trained, held)
    return readings


def _token_sets(X_head: Any, X_eval: Any) -> tuple[Tokens, Tokens]:
    """Return HEAD and EVAL tokens, checked."""
    head, held = check_tokens(X_head, "X_head"), check_tokens(X_eval, "X_eval")
    if head.shape[1:] != held.shape[1:]:
        raise ValueError(f"X_eval has tokens of shape {held.shape[1:]}; X_head has {head.shape[1:]}.")
    return head, held


def _standardized(head: Tokens, held: Tokens) -> tuple[Tokens, Tokens]:
    """Return HEAD and EVAL tokens in units of the HEAD tokens' spread."""
    center, scale = token_scaling(head)
    return (head - center) / scale, (held - center) / scale


def token_scaling(X: Tokens) -> tuple[Tokens, Tokens]:
    """Return the mean and the scale of every coordinate of tokens, in float32."""
    center = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    return center, np.maximum(X.std(axis=0, dtype=np.float64), MIN_TOKEN_SCALE).astype(np.float32)


def token_residuals(X: Any) -> Tokens:
    """Return tokens minus their mean over the row, taken in float64, as float32."""
    tokens = np.asarray(X)
    residuals: Tokens = (tokens - tokens.mean(axis=1, dtype=np.float64, keepdims=True)).astype(np.float32)
    return residuals


def moves_tokens_alike(original: Any, corrected: Any) -> bool:
    """Return whether a correction left the centred tokens of these rows unchanged, up to rounding."""
    drift = np.abs(token_residuals(corrected) - token_residuals(original))
    return bool(drift.max(initial=0.0) <= RESIDUAL_TOLERANCE)


def check_tokens(X: Any, name: str) -> Tokens:
    """Return X as (n, t, d) float32 tokens, or raise."""
    return as_tokens(to_numpy(X), name).astype(np.float32, copy=False)


def _flat(X: Tokens) -> Floats:
    return X.reshape(len(X), -1).astype(np.float64)


def _fit_token_logistic(name: str, X: Tokens, codes: Codes, n_sources: int, *, C: float) -> Critic:
    """Fit a balanced logistic reader of flattened tokens; raise if it does not converge."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            return fit_logistic(_flat(X), codes, n_sources, C=C, max_iter=TOKEN_ITERATIONS)
    except ConvergenceWarning as warning:
        raise RuntimeError(f"{name} did not converge; bring the tokens to a common scale first.") from warning


# --- what all share --------------------------------------------------------------------------------------


def source_codes(source: Any, n: int) -> tuple[Codes, int]:
    """Return each HEAD row's source as a number, and how many sources there are."""
    sources, codes = encode_source(source, n, "source_head")
    counts = np.bincount(codes)
    if len(sources) < 2 or counts.min() < 2:
        listed = dict(zip(sources.tolist(), counts.tolist(), strict=True))
        raise ValueError(f"HEAD rows of each source: {listed}; readers need two sources of two rows or more.")
    return codes, len(sources)


def check_bank(bank: str, restarts: int, checkpoints: Sequence[int]) -> tuple[int, ...]:
    """Return the checkpoints as a tuple, or say what is wrong with a bank of readers."""
    epochs = tuple(int(epoch) for epoch in checkpoints)
    if bank not in BANKS:
        raise ValueError(f"No bank of readers {bank!r}; choose {' or '.join(map(repr, BANKS))}.")
    if restarts < 0 or not epochs or epochs[0] < 1 or any(a >= b for a, b in pairwise(epochs)):
        raise ValueError(
            f"restarts={restarts}, checkpoints={epochs}; expected 0 (no networks) or more restarts, and "
            "increasing numbers of epochs, from 1."
        )
    return epochs


def check_rows(X: Any, name: str) -> NDArray[Any]:
    """Return X as finite rows (n, d), or tokens (n, t, d), or raise."""
    X = to_numpy(X)
    if X.ndim == 3:
        return as_tokens(X, name)
    rows = as_float_matrix(X, name=name)
    require_finite(rows, name)
    return rows
