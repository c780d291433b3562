"""Readers in addition to the paper's, for sources that linear readers and small networks miss.

They detect a source that changes the spread of one of many features, the sign of a product, the shape of a
distribution, or all variances slightly, and effects that appear only relative to participant means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ..._common.arrays import Array, cast, is_tensor, namespace, zeros
from ...labels import to_numpy
from .common import BLOCK, Codes, Floats, Reader, Scores, blocks, model_scores
from .quick import LANDMARKS, PLAIN, WHITENED, class_moments, kernel, lengths, quadratics

# Number of features for trees; more features would take more time than they are worth.
TREE_FEATURES = 1024
# Number of principal directions in which spreads are compared.
SPREAD_DIRECTIONS = 256
# Number of directions per source, and shrinkage of its covariance towards a multiple of I.
KEPT = 12
SPREAD_SHRINKAGE = 0.05
# Standardised values are clipped at this value.
FAR = 6.0
# Covariances of rows with more features are compared in their leading principal directions.
WIDEST = 1024
KERNELS = {"kernel": (False, 1.0), "whitened_kernel": (True, 0.3)}  # whether whitened; kernel width
QUADRATICS = tuple(
    f"{kind}quadratic_{share:.0%}".rstrip("%")
    for kind, shares in (("", PLAIN), ("whitened_", WHITENED))
    for share in shares
)
#: Readers of rows minus the mean row of their participant.
OWN = (f"own_{QUADRATICS[0]}", f"own_{QUADRATICS[-1]}")
LENGTHS = ("length", "whitened_length")
FURTHER = ("boosted_trees", *LENGTHS, *QUADRATICS, *KERNELS, *OWN, "spread")

Participants = tuple[NDArray[Any], NDArray[Any]]
Blocks = Callable[[], Iterator[tuple[int, Array]]]


def further_scores(
    head: Array,
    codes: Codes,
    held: Array,
    seed: int,
    participants: Participants | None = None,
    *,
    kinds: Sequence[str] = ("quick", "slow"),
) -> Scores:
    """Return the scores of the further readers, fitted on HEAD rows, for EVAL rows.

    Scores are (n,), larger for the second of two sources, or probabilities (n, K) of more sources.
    ``participants`` has the participants of HEAD and EVAL rows; without them, readers of rows minus the
    participant mean are omitted. Trees and spread are "slow" readers, all others "quick". Quick readers also
    accept rows on a GPU, with at most ``WIDEST`` features.
    """
    scaled, Z = _scaling(head), zeros(tuple(head.shape), head)
    for start, block in scaled(head):
        Z[start : start + BLOCK] = block
    leading = leading_directions(Z, seed) if Z.shape[1] > WIDEST else None

    def narrow(rows: Iterable[tuple[int, Array]]) -> Iterator[tuple[int, Array]]:
        for start, block in rows:
            yield start, block if leading is None else block @ leading

    found: Scores = {}
    if "quick" in kinds:
        read = _covariance_readers(lambda: narrow(blocks(Z)), codes, seed)
        parts = (read(block) for _, block in narrow(scaled(held)))
        found |= _joined((*LENGTHS, *QUADRATICS, *KERNELS), parts)
    if "quick" in kinds and participants is not None:
        read = _own_readers(lambda: narrow(blocks(Z)), codes, participants[0])
        parts = (read(block) for _, block in _about_own_mean(lambda: narrow(scaled(held)), participants[1])())
        found |= _joined(OWN, parts)
    if "slow" in kinds:
        trees = boosted_trees(Z, codes, seed)
        sizes = spread(Z, codes, seed, leading)  # last, because it changes wide rows in place
        found |= _joined(("boosted_trees", "spread"), ([trees(b), sizes(b)] for _, b in scaled(held)))
    return {name: found[name] for name in FURTHER if name in found}


def _scaling(head: Array) -> Callable[[Array], Iterator[tuple[int, Array]]]:
    """Return a function that yields blocks of rows in the standardised coordinates of HEAD rows."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    for _, block in blocks(head):
        scaler.partial_fit(to_numpy(block))

    def scaled(X: Array) -> Iterator[tuple[int, Array]]:
        for start, block in blocks(X):
            block -= cast(scaler.mean_, block)
            block /= cast(scaler.scale_, block)
            yield start, block.clip(-FAR, FAR)

    return scaled


def _joined(names: Sequence[str], parts: Iterable[list[Floats]]) -> Scores:
    """Return the scores of all rows by reader, from lists of the readers' scores of each block."""
    return {name: np.concatenate(of) for name, of in zip(names, zip(*parts, strict=True), strict=True)}


def _covariance_readers(rows: Blocks, codes: Codes, seed: int) -> Callable[[Array], list[Floats]]:
    """Fit readers of length, covariances and kernels on HEAD rows; return a function that scores rows."""
    first = next(rows())[1]
    n_sources, d, xp = int(codes.max()) + 1, first.shape[1], namespace(first)
    numbered = cast(codes, first, xp.int64)

    def labelled() -> Iterator[tuple[Array, Array]]:
        for start, block in rows():
            yield block, numbered[start : start + BLOCK]

    moments = class_moments(labelled(), n_sources, d)
    sizes = lengths(labelled(), moments)
    discriminants = [quadratics(moments, PLAIN, False), quadratics(moments, WHITENED, True)]
    center, whitener = moments.pooled[0], moments.whitener
    chosen = np.sort(np.random.default_rng(seed).permutation(len(codes))[:LANDMARKS])
    landmarks = xp.concatenate(
        [block[cast(_within(chosen, start), first, xp.int64)] for start, block in rows()]
    )

    def seen(block: Array, whiten: bool) -> Array:
        return (block - center) @ whitener if whiten else block

    kernels = [
        (whiten, kernel(((seen(b, whiten), c) for b, c in labelled()), seen(landmarks, whiten), n_sources, w))
        for whiten, w in KERNELS.values()
    ]

    def read(block: Array) -> list[Floats]:
        found = sizes(block)
        for discriminant in discriminants:
            found += discriminant(block)
        return found + [reader(seen(block, whiten)) for whiten, reader in kernels]

    return read


def _within(rows: NDArray[np.intp], start: int) -> NDArray[np.intp]:
    """Return the positions of chosen rows in the block that begins at ``start``."""
    return rows[(rows >= start) & (rows < start + BLOCK)] - start


def _own_readers(rows: Blocks, codes: Codes, people: NDArray[Any]) -> Callable[[Array], list[Floats]]:
    """Fit readers of rows minus their participant's mean, on HEAD participants with several sources.

    These readers know the participant of each row, but not its source, like anyone who has a batch of rows
    of one participant.
    """
    who = np.unique(people, return_inverse=True)[1]
    seen = np.zeros((who.max() + 1, int(codes.max()) + 1), bool)
    seen[who, codes] = True
    usable = (seen.sum(axis=1) > 1)[who]
    if len(np.unique(codes[usable])) <= codes.max():
        n_sources = int(codes.max()) + 1
        nothing = (
            (lambda n: np.zeros(n)) if n_sources == 2 else (lambda n: np.full((n, n_sources), 1 / n_sources))
        )
        return lambda block: [nothing(len(block)) for _ in OWN]

    def labelled() -> Iterator[tuple[Array, Array]]:
        for start, block in _about_own_mean(rows, people)():
            chosen = np.flatnonzero(usable[start : start + BLOCK])
            whole = namespace(block).int64
            yield block[cast(chosen, block, whole)], cast(codes[start + chosen], block, whole)

    moments = class_moments(labelled(), int(codes.max()) + 1, next(rows())[1].shape[1])
    plain, white = quadratics(moments, PLAIN[:1], False), quadratics(moments, WHITENED[-1:], True)
    return lambda block: plain(block) + white(block)


def _about_own_mean(rows: Blocks, people: NDArray[Any]) -> Blocks:
    """Return rows minus the mean of all rows of their participant."""
    who, total = np.unique(people, return_inverse=True)[1], None
    for start, block in rows():
        if total is None:
            total = zeros((int(who.max()) + 1, block.shape[1]), block)
        if is_tensor(block):
            total.index_add_(0, cast(who[start : start + BLOCK], block, namespace(block).int64), block)
        else:
            np.add.at(total, who[start : start + BLOCK], block)
    mean = total / cast(np.bincount(who), total)[:, None]
    whose = cast(who, mean, namespace(mean).int64)

    def centred() -> Iterator[tuple[int, Array]]:
        for start, block in rows():
            yield start, block - mean[whose[start : start + BLOCK]]

    return centred


def boosted_trees(Z: Floats, codes: Codes, seed: int) -> Reader:
    """Return a reader with a hundred boosted trees of depth three."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    chosen = slice(None) if Z.shape[1] <= TREE_FEATURES else telling_features(Z, codes)
    # Without class weights, which hardly change AUROC but take scikit-learn twenty times as long.
    model = HistGradientBoostingClassifier(
        max_iter=100, max_depth=3, max_features=0.3, early_stopping=False, random_state=seed
    )
    model.fit(Z[:, chosen], codes)
    return lambda held: model_scores(model, held[:, chosen])


def telling_features(Z: Floats, codes: Codes) -> NDArray[np.intp]:
    """Return the ``TREE_FEATURES`` features with the largest source difference in mean or mean size."""
    telling = np.zeros(Z.shape[1])
    for values in (Z, np.abs(Z)):
        mean, spread = values.mean(axis=0), values.std(axis=0)
        for k in range(codes.max() + 1):
            rows_of_k = values[codes == k]
            distance = np.abs(rows_of_k.mean(axis=0) - mean) * np.sqrt(len(rows_of_k))
            telling = np.maximum(telling, distance / np.where(spread > 0, spread, 1.0))
    return np.sort(np.argsort(-telling, kind="stable")[:TREE_FEATURES])


def spread(Z: Floats, codes: Codes, seed: int, leading: Floats | None = None) -> Reader:
    """Return a logistic reader of absolute values along directions with the largest difference in spread.

    Directions are estimated on one half of the rows and the reader is fitted on the other half, then with
    exchanged halves, because directions seem too informative on the rows they were estimated on. Wide rows
    are centred in place and reduced to their ``leading`` directions.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    center: Any = 0.0
    if Z.shape[1] > SPREAD_DIRECTIONS:
        center = Z.mean(axis=0)
        Z -= center
        leading = leading_directions(Z, seed) if leading is None else leading
        Z = Z @ leading
    half = np.empty(len(Z), np.int64)
    rng = np.random.default_rng(seed)
    for k in range(codes.max() + 1):  # for each source
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
        total: Any = sum(model_scores(model, _sizes(held, directions)) for directions, model in fitted)
        return np.asarray(total / 2)

    return scores


def leading_directions(Z: Floats, seed: int) -> Floats:
    """Return the principal directions of centred rows, (d, 256) or fewer.

    scikit-learn's PCA would copy or overwrite all rows.
    """
    from sklearn.utils.extmath import randomized_svd

    directions: Floats = randomized_svd(Z, min(SPREAD_DIRECTIONS, len(Z) - 1), random_state=seed)[2].T
    return directions


def spread_directions(Z: Floats, codes: Codes) -> Floats:
    """Return directions (columns) along which the variance of each source differs most from other sources.

    For two sources, both have the same directions.
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
